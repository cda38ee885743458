"""What ``tune`` shows while it works: a progress bar on a terminal, plain lines elsewhere.

All of it goes to stderr; the result goes to stdout.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from hpuwatch.loop.trials import Glance
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.tune.objective import score
from hpuwatch.tune.report import settings_text
from hpuwatch.tune.trial import Trial, TrialState

if TYPE_CHECKING:
    from rich.progress import Progress


class Screen(Protocol):
    """Takes what goes on."""

    def say(self, text: str) -> None:
        """Show a sentence that stays."""
        ...

    def show(self, glance: Glance) -> None:
        """Show what the running trial does."""
        ...

    def tell(self, trial: Trial) -> None:
        """Show that a trial was planned, or how it ended."""
        ...


def put(text: str, stream: TextIO | None, end: str = "\n") -> None:
    """Print a line; if its reader has left, nothing is printed there any more.

    A study and the server that it leaves matter more than who reads along.  A stream that
    was closed before we began is None.
    """
    if stream is None:
        return
    try:
        print(text, file=stream, end=end, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Terminal(io.TextIOBase):
    """Our stderr for the bar; a terminal that hangs up is no error."""

    def __init__(self) -> None:
        """Hold on to stderr, since the bar puts itself in its place."""
        self._stream = sys.stderr

    def write(self, text: str) -> int:
        """Print at once."""
        put(text, self._stream, end="")
        return len(text)

    def isatty(self) -> bool:
        """Tell that a bar can be drawn."""
        return True


@contextmanager
def screen() -> Iterator[Screen]:
    """Return the fitting screen for our stderr."""
    # It is None where it was closed before we began.
    if not (sys.stderr and sys.stderr.isatty()):
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        console=Console(file=cast("TextIO", Terminal())),
        transient=True,
    ) as progress:
        yield Bar(progress)


def sentence_of(trial: Trial) -> str:
    """Return a trial's news in a line."""
    head = f"trial {trial.number} ({settings_text(trial)})"
    if trial.state is TrialState.PLANNED:
        return f"{head}: starting the server"
    mark = ", simulated" if trial.facts.simulated else ""
    rate = score(trial)
    if rate is not None:
        return f"{head}: {rate:,.1f} output tokens/s{mark}"
    cause = trial.outcome.cause if trial.outcome else ""
    return f"{head}: {trial.state.value}{mark}: {cause}"


def progress_of(snapshot: Snapshot) -> tuple[int, int]:
    """Return the buckets that are warm and all of them; 0 of 0 before warm-up."""
    start = snapshot.state.current
    phases = start.warmup.progress.values() if start else ()
    return sum(one.done for one in phases), sum(one.total for one in phases)


class Lines:
    """A line for each piece of news, for logs and pipes."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._last = ""

    def say(self, text: str) -> None:
        """Print a line."""
        put(f"hpuwatch: {text}", sys.stderr)

    def show(self, glance: Glance) -> None:
        """Print what the trial does, when that has changed."""
        doing = glance.doing
        if glance.snapshot is not None:
            doing = glance.snapshot.phase.value
        line = f"trial {glance.trial.number}: {doing}"
        if line != self._last:
            self._last = line
            self.say(line)

    def tell(self, trial: Trial) -> None:
        """Print a trial's news."""
        self.say(sentence_of(trial))


class Bar:
    """A bar for the warm-up of the running trial, and lines above it for what is over."""

    def __init__(self, progress: Progress) -> None:
        """Show an empty bar."""
        self._progress = progress
        self._task = progress.add_task("trial", total=None, detail="")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(
            f"hpuwatch: {text}", markup=False, highlight=False, soft_wrap=True
        )

    def show(self, glance: Glance) -> None:
        """Move the bar."""
        done, total, detail = 0, 0, glance.doing
        if glance.snapshot is not None:
            done, total = progress_of(glance.snapshot)
            detail = _detail(glance.snapshot, done, total)
        self._progress.update(
            self._task,
            description=f"trial {glance.trial.number}",
            completed=done,
            total=total or None,
            detail=detail,
        )

    def tell(self, trial: Trial) -> None:
        """Print a trial's news above the bar."""
        self.say(sentence_of(trial))


def _detail(snapshot: Snapshot, done: int, total: int) -> str:
    text = snapshot.phase.value
    if total:
        text += f" {done}/{total}"
    left = snapshot.left.value
    return text if left is None else f"{text}, about {left:.0f} s left"
