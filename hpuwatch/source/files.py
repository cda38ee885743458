"""A whole log: a file, a compressed file or standard input."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

from hpuwatch.errors import InputError
from hpuwatch.records import Line
from hpuwatch.source.assemble import Assembler
from hpuwatch.source.envelope import Unwrapper
from hpuwatch.source.opening import GZIP_MAGIC, check_text, opened

_CHUNK = 256 * 1024
_SAMPLE = 64 * 1024
_BLANK = b"\0 \t\r\n"


def read_lines(path: str) -> Iterator[Line]:
    """Yield the pieces of a log, its collector's envelope taken off.

    Args:
        path: a file, plain or gzip (told by its first bytes), or ``-`` for standard input.

    Raises:
        MissingFileError: the file doesn't exist or can't be opened.
        InputError: it is empty, binary, a folder or a broken gzip file.
    """
    with ExitStack() as stack:
        stream = _opened(path, stack)
        name = "standard input" if path == "-" else path
        assembler, unwrapper = Assembler(), Unwrapper()
        for chunk in _chunks(stream, name):
            for line in assembler.feed(chunk):
                yield from unwrapper.feed(line)
        for line in assembler.close():
            yield from unwrapper.feed(line)
        yield from unwrapper.close()


def _opened(path: str, stack: ExitStack) -> BinaryIO:
    stream = sys.stdin.buffer
    if path != "-":
        file = opened(path, lambda: Path(path).open("rb"))  # noqa: SIM115  the stack closes it
        stream = stack.enter_context(file)
    if isinstance(stream, io.BufferedReader) and stream.peek(2)[:2] == GZIP_MAGIC:
        unpacked = stack.enter_context(gzip.GzipFile(fileobj=stream))
        return cast("BinaryIO", unpacked)
    return stream


def _chunks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes, having seen that the first of them are text."""
    sample, checked = b"", False
    try:
        while chunk := stream.read(_CHUNK):
            if not chunk.strip(b"\0"):
                _skip_hole(stream)
            if not checked:
                sample += chunk
                if not sample.strip(_BLANK):
                    continue
                check_text(sample.lstrip(_BLANK)[:_SAMPLE], name)
                chunk, checked = sample, True
            yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{name} is a broken gzip file ({error}): unpack what can be saved with "
            "zcat and read that"
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"{name} is a folder: name a log file in it") from error
    if not checked:
        raise InputError(f"{name} is empty: there is no log in it")


def _skip_hole(stream: BinaryIO) -> None:
    """Jump over the rest of a hole: a spool gives space back by punching them.

    A pipe or a compressed file has none, and reads on.
    """
    if not isinstance(stream, io.BufferedReader) or not stream.seekable():
        return
    number, here = stream.fileno(), stream.tell()
    raw = os.lseek(number, 0, os.SEEK_CUR)
    try:
        data = os.lseek(number, here, os.SEEK_DATA)
    except OSError:  # no data behind it, or a file system without holes
        data = here
    os.lseek(number, raw, os.SEEK_SET)  # where the buffer believes it to be
    stream.seek(data)
