"""What can go wrong when a log is opened, as sentences; the same for all who open one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hpuwatch.errors import InputError, MissingFileError

T = TypeVar("T")


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
