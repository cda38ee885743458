"""Long runs, by ``make soak`` only: HPUWATCH_SOAK_SECONDS says how long (600)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from hpuwatch.clock import SystemClock
from hpuwatch.testing.programs import PLAIN_PYTHON, Program, Programs, alive, until

pytestmark = pytest.mark.soak

_SECONDS = float(os.environ.get("HPUWATCH_SOAK_SECONDS", "600"))
_KILL_EVERY_SECONDS = 15.0

# 200 access lines a second and a line of the engine now and then, for as long as it may live.
_BUSY_SERVER = """
import time
n = 0
while True:
    n += 1
    print(f'INFO:     127.0.0.1:{n % 60000} - "POST /v1/completions HTTP/1.1" 200 OK')
    if n % 50 == 0:
        print("INFO 11-30 01:16:08 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 "
              "tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 8 reqs, Waiting: 0 "
              "reqs, GPU KV cache usage: 66.7%, Prefix cache hit rate: 0.0%")
    time.sleep(0.005)
"""


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def _next_watcher(run: Program, before: int) -> int:
    return until(lambda: pid if (pid := run.watcher()) not in {0, before} else 0)


def test_hours_of_traffic_and_a_watcher_killed_again_and_again(
    programs: Programs,
) -> None:
    """The server never notices, no line is lost, and memory stays where it was."""
    clock = SystemClock()
    run = programs.run([*PLAIN_PYTHON, _BUSY_SERVER], "--no-echo")
    watcher = _next_watcher(run, 0)
    keeper_mib, kills, peak_mib = _resident_mib(run.child.pid), 0, 0.0
    end = clock.boottime() + _SECONDS
    while clock.boottime() < end:
        clock.wait(_KILL_EVERY_SECONDS)
        peak_mib = max(peak_mib, _resident_mib(watcher))
        os.kill(watcher, signal.SIGKILL)
        kills += 1
        watcher = _next_watcher(run, watcher)
    assert alive(run.server())
    assert kills >= 1
    until(lambda: run.metric("hpuwatch_watcher_starts_total") == kills + 1)
    counted = run.metric("hpuwatch_log_lines_total")
    written = until(lambda: run.printed.count("\n") if counted else 0)
    until(lambda: run.metric("hpuwatch_log_lines_total") >= written)
    assert _resident_mib(run.child.pid) < keeper_mib + 2
    assert peak_mib < 150
    run.ask()
    assert run.wait() == 128 + signal.SIGTERM
