"""What can go wrong when a log is opened, as sentences; the same for all who open one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hpuwatch.errors import InputError, MissingFileError

T = TypeVar("T")

GZIP_MAGIC = b"\x1f\x8b"

_MOST_STRANGE = 0.1  # of the characters; a log in a wrong encoding stays below it
_CONTROLS = set("\t\n\r\b\f\x1b")  # those that logs do hold


def opened(path: str | Path, open_it: Callable[[], T]) -> T:
    """Return what *open_it* opens at *path*.

    Raises:
        MissingFileError: there is no such file, or it can't be opened.
        InputError: it is a folder.
    """
    try:
        return open_it()
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder: name a log file in it") from error
    except OSError as error:
        raise MissingFileError(
            f"{path} can't be opened ({error.strerror}): check the name and its "
            "permissions"
        ) from error


def check_text(sample: bytes, name: str) -> None:
    """See that the first bytes of a log are text.

    Raises:
        InputError: they are binary.
    """
    # A file that was truncated while it was written to has NULs and is still a log.
    text = sample.replace(b"\0", b"").decode("utf-8", "replace")
    strange = sum(
        character == "\ufffd" or (character < " " and character not in _CONTROLS)
        for character in text
    )
    if strange > _MOST_STRANGE * len(text):
        raise InputError(f"{name} is binary, not a log: name the server's text output")


def check_grows(sample: bytes, path: str) -> None:
    """See that a log which is to be followed begins like one that grows.

    Raises:
        InputError: it is compressed; nobody adds to such a file.
    """
    if sample.startswith(GZIP_MAGIC):
        name = "standard input" if path == "-" else path
        raise InputError(
            f"{name} is compressed, so nothing will be added to it: read it as a whole "
            f"with hpuwatch suggest {path}"
        )
