"""The command line: one file per verb, and the only code that prints to people.

A verb imports what it needs when it runs, so that ``suggest`` never pays for ``tune``.
"""

from __future__ import annotations

import os
import sys
import traceback

from hpuwatch.cli.main import build
from hpuwatch.errors import HpuwatchError


def main() -> None:
    """Run the verb on the command line; an error becomes one sentence and an exit code."""
    try:
        build()()
    except HpuwatchError as error:
        print(f"hpuwatch: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output (head, less) went away: nothing to tell it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # noqa: BLE001  the program's edge: a fault of ours is exit 70
        _own_fault(error)


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
