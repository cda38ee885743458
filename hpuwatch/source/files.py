"""A whole log: a file, a compressed file or standard input."""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from hpuwatch.errors import InputError
from hpuwatch.parse.parser import Parser
from hpuwatch.records import Line
from hpuwatch.source.lines import Lines
from hpuwatch.source.opening import GZIP_MAGIC, check_text, opened

_CHUNK = 256 * 1024
_SAMPLE = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS  # for zlib: a gzip header and trailer stand around it
_BLANK = b"\0 \t\r\n"


def read_lines(path: str, parser: Parser | None = None) -> Iterator[Line]:
    """Yield the pieces of a log, its collector's envelope taken off.

    Args:
        path: a file, plain or gzip (told by its first bytes), or ``-`` for standard input.
        parser: who takes each piece before the next; what it would not look at is stepped
            over.  Without one, all pieces come.

    Raises:
        MissingFileError: the file doesn't exist or can't be opened.
        InputError: it is empty, binary, a folder or a broken gzip file, or can't be read.
    """
    name = "standard input" if path == "-" else path
    with ExitStack() as stack, _told(name):
        stream: BinaryIO = sys.stdin.buffer
        if path != "-":
            file = opened(path, lambda: Path(path).open("rb"))  # noqa: SIM115  the stack closes it
            stream = stack.enter_context(file)
        lines = Lines(parser)
        for chunk in _text(_chunks(stream), name):
            yield from lines.feed(chunk)
        yield from lines.close()


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say in a sentence what can go wrong while a log is read."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise InputError(
            f"{name} is a broken gzip file ({error}): unpack what can be saved with "
            "zcat and read that"
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"{name} is a folder: name a log file in it") from error
    except OSError as error:
        raise InputError(
            f"{name} can't be read ({error.strerror}): check the disk, or name a copy "
            "of the log"
        ) from error


def _text(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Pass the bytes on, having seen that the first of them that aren't blank are text."""
    checked = False
    for chunk in chunks:
        if checked or not chunk.strip(_BLANK):
            yield chunk
            continue
        # What is not blank may only just begin here.
        sample = chunk + next(chunks, b"")
        check_text(sample.lstrip(_BLANK)[:_SAMPLE], name)
        checked = True
        yield sample
    if not checked:
        raise InputError(f"{name} is empty: there is no log in it")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    if isinstance(stream, io.BufferedReader) and stream.peek(2)[:2] == GZIP_MAGIC:
        yield from _unpacked(stream)
        return
    while chunk := stream.read(_CHUNK):
        if not chunk.strip(b"\0"):
            _skip_hole(stream)
        yield chunk


def _unpacked(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what the members of a gzip file hold, and drop what stands behind them.

    Raises:
        EOFError: the file ends within a member.
        zlib.error: a member is damaged.
    """
    packed = stream.read(_CHUNK)
    while packed.startswith(GZIP_MAGIC):
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            packed = packed or stream.read(_CHUNK)
            chunk = member.decompress(packed, _CHUNK)
            if not packed and not chunk and not member.eof:
                raise EOFError("it ends before its last block")
            packed = member.unconsumed_tail
            if chunk:
                yield chunk
        packed = member.unused_data
        if len(packed) < len(GZIP_MAGIC):
            packed += stream.read(_CHUNK)


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
