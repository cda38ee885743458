"""The command line: one file per verb, and the only code that prints to people.

A verb imports what it needs when it runs, so that ``suggest`` never pays for ``tune``.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback

try:
    from hpuwatch.cli.main import build
    from hpuwatch.errors import HpuwatchError
except KeyboardInterrupt:  # a traceback would look like a fault of ours
    sys.exit(128 + signal.SIGINT)

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main() -> None:
    """Run the verb on the command line; an error becomes one sentence and an exit code."""
    _fill_standard_streams()
    try:
        try:
            build()()
        finally:
            sys.stdout.flush()  # what can't be written is told here, not at shutdown
    except SystemExit as end:
        if not _reader_left(end.__context__):
            raise
        _end_quietly()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except HpuwatchError as error:
        print(f"hpuwatch: error: {_printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001  the program's edge: a fault of ours is exit 70
        if _reader_left(error):
            _end_quietly()
        if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
            _end_unwritten(error)
        _own_fault(error)


def _fill_standard_streams() -> None:
    """Open /dev/null for each standard stream that we were started without.

    Otherwise the next file that is opened would become one of them, and a server that we
    start would inherit it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            stream = open(number, mode, closefd=False, encoding="utf-8")  # noqa: SIM115  for good
            setattr(sys, name, stream)


def _reader_left(error: BaseException | None) -> bool:
    """Say whether an error means that nobody reads our output any more (head, less)."""
    return isinstance(error, BrokenPipeError)


def _end_quietly() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _end_unwritten(error: OSError) -> None:
    print(
        f"hpuwatch: error: the output can't be written ({error.strerror}): make room, or "
        "write elsewhere",
        file=sys.stderr,
    )
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(69)


def _own_fault(error: Exception) -> None:
    """Say that it is our fault and where; ``HPUWATCH_DEBUG=1`` shows the whole traceback."""
    if os.environ.get("HPUWATCH_DEBUG"):
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    print(
        f"hpuwatch: error: a fault of hpuwatch itself, please report it: "
        f"{type(error).__name__}: {error} (at {os.path.basename(place.filename)}:{place.lineno}; "  # noqa: PTH119  a name only
        "HPUWATCH_DEBUG=1 shows more)",
        file=sys.stderr,
    )
    sys.exit(70)


def _printable(text: str) -> str:
    """Return a message in which a file's name can't move a terminal's cursor."""
    from hpuwatch.advise.render.escaping import printable

    return "\n".join(map(printable, text.split("\n")))
