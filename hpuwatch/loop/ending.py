"""The last words on a server: why it ended, in which phase, and what to do next."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NamedTuple

from hpuwatch.advise.catalogue import Catalogue
from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.checks.ends import told
from hpuwatch.advise.findings import findings_of
from hpuwatch.life.phases import Phase
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.last_exit import LastExit, how
from hpuwatch.state.model import Start
from hpuwatch.state.snapshot import Snapshot

_LONGEST_CAUSE = 300
_USAGE_ERROR = 2

_WHILE = {
    Phase.STARTING: "while starting",
    Phase.LOADING: "while loading weights",
    Phase.SIZING: "while sizing memory",
    Phase.WARMING: "in warm-up",
    Phase.READY: "while serving",
    Phase.SWITCHING: "while switching models",
    Phase.DEGRADED: "while serving",
}


class Output(NamedTuple):
    """What a server printed.

    Attributes:
        last_lines: the last lines that say something, masked.
        spool: where all of it can be read, or None.
    """

    last_lines: tuple[str, ...]
    spool: Path | None


def last_exit_of(
    before: Snapshot,
    end: ExitRecord,
    *,
    run: str,
    output: Output,
    catalogue: Catalogue,
) -> LastExit:
    """Say how a server ended.

    Args:
        before: what was known before the process ended, all output read.
        end: how the process ended.
        run: the run's id.
        output: what it printed.
        catalogue: the findings that tell what helps.
    """
    start = before.state.current
    fault = root_fault(start) if start and not end.asked else None
    phase = fault.phase if fault else before.phase
    sentence = f"the server {how(end)}"
    known = end.code is not None or end.signal is not None
    if known and not end.asked and not end.error and phase in _WHILE:
        sentence += f" {_WHILE[phase]}"
    if fault and fault.at:
        sentence += f" ({fault.at})"
    if start and fault:
        sentence += f": {told(start, fault)[:_LONGEST_CAUSE]}"
    cure = _cure(start, catalogue) if start and fault else None
    return LastExit(
        name=before.name,
        run=run,
        sentence=sentence,
        phase=phase.value,
        code=end.code,
        signal=end.signal,
        asked=end.asked,
        ended_at=end.ended_at,
        lines=() if end.asked else output.last_lines,
        next_step="" if end.asked else _next_step(end, phase, output.spool, cure),
    )


def _cure(start: Start, catalogue: Catalogue) -> str:
    found = findings_of(start, catalogue)
    return found[0].cure if found else ""


def _next_step(
    end: ExitRecord, phase: Phase, spool: Path | None, cure: str | None
) -> str:
    read = f"hpuwatch suggest {spool}" if spool else "read the output above"
    if end.error:
        return "check the command's name and that it may be executed"
    if cure is not None:
        return f"{cure} The whole story: {read}".strip()
    if end.signal == signal.SIGKILL:
        return (
            "look into the kernel's log for the out-of-memory killer, and for a probe or "
            f"a time limit that ended it; the whole story: {read}"
        )
    if end.code == _USAGE_ERROR and phase is Phase.STARTING:
        return "mend the server's command line"
    return read
