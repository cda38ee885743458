"""What it costs to follow a log that grows by 1,000 lines a second.

``hpuwatch attach`` follows a file to which 97 % access lines, statistics and misses are added.  Its
CPU time is read from the system after it has come up, so neither its start nor the writer counts.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.busylog import simulated_start, traffic

LINES_PER_SECOND = 1_000
_WRITES_PER_SECOND = 50
_SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class Live:
    """Share of one core, and resident memory before and after."""

    core_share: float
    begin_mib: float
    end_mib: float
    lines: int


def follow(folder: Path, seconds: float) -> Live:
    """Follow a growing log for so many seconds."""
    path = folder / "growing.log"
    path.write_bytes(simulated_start(folder))
    command = [sys.executable, "-m", "hpuwatch", "attach", "--log", str(path)]
    child = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    while b"following" not in child.stderr.readline():
        if child.poll() is not None:
            raise SystemExit(f"{command!r} did not get going")
    rows = traffic()
    _write(path, rows, _SETTLE_SECONDS)
    before, begin_mib = cpu_seconds(child.pid), resident_mib(child.pid)
    lines = _write(path, rows, seconds)
    used, end_mib = cpu_seconds(child.pid) - before, resident_mib(child.pid)
    child.terminate()
    child.wait()
    return Live(used / seconds, begin_mib, end_mib, lines)


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def _write(path: Path, rows: Iterator[str], seconds: float) -> int:
    """Add lines at an even pace; return how many."""
    begun, written = time.perf_counter(), 0
    with path.open("a", encoding="utf-8") as out:
        while (passed := time.perf_counter() - begun) < seconds:
            due = int(passed * LINES_PER_SECOND) - written
            out.write("".join(itertools.islice(rows, due)))
            out.flush()
            written += due
            time.sleep(1 / _WRITES_PER_SECOND)  # noqa: TID251  a program of its own has no Clock
    return written


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in user and system mode together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
