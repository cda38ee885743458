"""Other load generators, used where they are installed: what they share.

A tool's command line changes between its releases.  So its help is read first, every flag
that an order needs is looked for there, and one that is missing is told before anything is sent.
The tool then runs as its user would run it, its output goes to our stderr, and the result
that it writes is turned into our document.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

from hpuwatch.errors import ResourceError
from hpuwatch.load.order import Order
from hpuwatch.load.target import Target
from hpuwatch.parse.clean import clean

_HELP_SECONDS = 120  # vLLM imports for many seconds
# Wide and plain: a help that fits itself to a terminal cuts long flags off, or colours them.
_PLAIN = {"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
_FIGURE = re.compile(
    "duration|completed|failed|num_prompts|.*_throughput|.*_ms|request_goodput"
    "|total_.*_tokens|max_.*"
)


class Tool(Protocol):
    """A load generator that can carry out an order; lengths and arrivals it draws itself."""

    @property
    def name(self) -> str:
        """Return what its users call it."""
        ...

    def command(self, target: Target, order: Order, folder: Path) -> Sequence[str]:
        """Return the command line for an order whose result goes into a folder.

        Raises:
            ResourceError: it is not installed, or has changed.
            UsageError: it can't do that.
        """
        ...

    def environment(self, target: Target) -> Mapping[str, str]:
        """Return the variables it is given, a key among them."""
        ...

    def read(self, order: Order, folder: Path) -> dict[str, Any]:
        """Return the fields of our document that its result tells.

        Raises:
            ResourceError: it wrote none, or one of another form.
        """
        ...


def program_of(name: str) -> str:
    """Return the path of an installed program.

    Raises:
        ResourceError: it is not on the PATH.
    """
    path = shutil.which(name)
    if path is None:
        raise ResourceError(
            f"there is no {name} on the PATH: install it, or measure with --tool own"
        )
    return path


def help_of(command: Sequence[str]) -> str:
    """Return what a command says when it is asked for help, whatever its exit code.

    Raises:
        ResourceError: it can't be run, or says nothing within two minutes.
    """
    try:
        asked = subprocess.run(  # noqa: S603  the program that the user named
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_PLAIN},
            timeout=_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError(
            f"`{' '.join(command)}` can't be asked for its options ({error}): run it by "
            "hand, or measure with --tool own"
        ) from None
    lines = asked.stdout.decode("utf-8", "replace").splitlines()
    return "\n".join(map(clean, lines))


def flags_in(text: str) -> frozenset[str]:
    """Return the flags that a help names."""
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def check_words(tool: str, needed: Iterable[str], known: Iterable[str]) -> None:
    """Check that a help names all that we would say.

    Raises:
        ResourceError: something is missing.
    """
    missing = sorted(set(needed) - set(known))
    if missing:
        raise ResourceError(
            f"the installed {tool} has changed: its help doesn't name "
            f"{', '.join(missing)}, which hpuwatch would use; nothing was sent: install "
            "another release of it, or measure with --tool own"
        )


def run_tool(
    tool: Tool, target: Target, order: Order, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Let a tool carry out an order and return the fields of our document that it tells.

    Raises:
        ResourceError: it is not installed, has changed, or failed.
        UsageError: it can't do that.
    """
    with tempfile.TemporaryDirectory(prefix="hpuwatch-load-") as scratch:
        folder = Path(scratch)
        command = tool.command(target, order, folder)
        done = subprocess.run(  # noqa: S603  the program that the user named
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**environment, **tool.environment(target)},
            check=False,
        )
        if done.returncode:
            raise ResourceError(
                f"{tool.name} ended with code {done.returncode}: what it said stands above"
            )
        return tool.read(order, folder)


def read_json(path: Path, tool: str) -> dict[str, Any]:
    """Return the JSON object in a tool's result; what is NaN or endless in it is None.

    Raises:
        ResourceError: there is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
        told = json.loads(text, parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError) as error:
        raise ResourceError(
            f"{tool} wrote no result that can be read ({error}): what it said stands above"
        ) from None
    if not isinstance(told, dict):
        raise ResourceError(f"{tool} wrote a result that is no JSON object")
    return told


def check_figures(tool: str, told: Mapping[str, Any]) -> None:
    """Check that what will be shown as numbers is numbers, or None.

    Raises:
        ResourceError: something isn't.
    """
    for key, value in told.items():
        if _FIGURE.fullmatch(key) and type(value) not in {int, float, NoneType}:
            raise ResourceError(
                f"{tool} wrote a result of another form: {key} is no number; install "
                "another release of it, or measure with --tool own"
            )
