"""Other load generators, used where they are installed: what they share.

A tool's command line changes between its releases.  So its help is read first, every flag
that a job needs is looked for there, and one that is missing is told before anything is sent.
The tool then runs as its user would run it, its output goes to our stderr, and the result
that it writes is turned into our document.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hpuwatch.errors import ResourceError
from hpuwatch.load.client import Route
from hpuwatch.load.endpoint import Endpoint
from hpuwatch.load.workload import Arrivals, Span

_HELP_SECONDS = 120  # vLLM imports for many seconds
_AUTHORIZATION = "Authorization"


@dataclass(frozen=True, slots=True)
class Job:
    """What a tool is to do; it draws lengths and arrivals itself.

    Attributes:
        endpoint: where the server listens, and its key.
        model: the name it is asked by.
        route: which endpoint.
        inputs: lengths of the prompts.
        outputs: lengths of the answers.
        requests: how many are sent.
        arrivals: what decides when each is sent, never a trace.
        rate: requests per second, None in a closed loop.
        concurrency: requests in flight at most, None without a bound.
        seed: of what is drawn.
        limits: of a good request, in milliseconds.
        tokenizer: its name or folder, None for the model's name.
        detailed: keep what is known of each request.
    """

    endpoint: Endpoint
    model: str
    route: Route
    inputs: Span
    outputs: Span
    requests: int
    arrivals: Arrivals
    rate: float | None = None
    concurrency: int | None = None
    seed: int = 0
    limits: Mapping[str, float] = field(default_factory=dict)
    tokenizer: str | None = None
    detailed: bool = False

    @property
    def key(self) -> str | None:
        """Return the server's API key, None if it has none."""
        given = self.endpoint.headers.get(_AUTHORIZATION)
        return None if given is None else given.removeprefix("Bearer ")


class Tool(Protocol):
    """A load generator that can do a job."""

    @property
    def name(self) -> str:
        """Return what its users call it."""
        ...

    def command(self, job: Job, folder: Path) -> Sequence[str]:
        """Return the command line for a job whose result goes into a folder.

        Raises:
            ResourceError: it is not installed, or has changed.
            UsageError: it can't do that.
        """
        ...

    def environment(self, job: Job) -> Mapping[str, str]:
        """Return the variables it is given, a key among them."""
        ...

    def read(self, job: Job, folder: Path) -> dict[str, Any]:
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
            timeout=_HELP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError(
            f"`{' '.join(command)}` can't be asked for its options ({error}): run it by "
            "hand, or measure with --tool own"
        ) from None
    return asked.stdout.decode("utf-8", "replace")


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


def run_tool(tool: Tool, job: Job, environment: Mapping[str, str]) -> dict[str, Any]:
    """Let a tool do a job and return the fields of our document that it tells.

    Raises:
        ResourceError: it is not installed, has changed, or failed.
        UsageError: it can't do that.
    """
    with tempfile.TemporaryDirectory(prefix="hpuwatch-load-") as scratch:
        folder = Path(scratch)
        command = tool.command(job, folder)
        done = subprocess.run(  # noqa: S603  the program that the user named
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**environment, **tool.environment(job)},
            check=False,
        )
        if done.returncode:
            raise ResourceError(
                f"{tool.name} ended with code {done.returncode}: what it said stands above"
            )
        return tool.read(job, folder)


def read_json(path: Path, tool: str) -> dict[str, Any]:
    """Return the JSON object in a tool's result.

    Raises:
        ResourceError: there is none.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResourceError(
            f"{tool} wrote no result that can be read ({error}): what it said stands above"
        ) from None
    if not isinstance(told, dict):
        raise ResourceError(f"{tool} wrote a result that is no JSON object")
    return told
