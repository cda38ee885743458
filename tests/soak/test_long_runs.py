"""Long runs, by ``make soak`` only.

HPUWATCH_SOAK_SECONDS says how long a server lives (600), HPUWATCH_SOAK_LINES how long a log is,
HPUWATCH_SOAK_STARTS how often a server is started and killed (500).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpuwatch.clock import SystemClock
from hpuwatch.testing.programs import PLAIN_PYTHON, Program, Programs, alive, until
from tests.running import starts_and_kills

pytestmark = pytest.mark.soak

_SECONDS = float(os.environ.get("HPUWATCH_SOAK_SECONDS", "600"))
_LINES = int(os.environ.get("HPUWATCH_SOAK_LINES", "10000000"))
_STARTS = int(os.environ.get("HPUWATCH_SOAK_STARTS", "500"))
_LINES_AT_ONCE = 10_000
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


def _busy_block(number: int) -> bytes:
    """10,000 lines of a server at work, each block with other numbers and one new sentence."""
    header = "(APIServer pid=7) INFO 11-30 01:16:08 [loggers.py:271]"
    kinds = [
        f'INFO:     10.0.0.1:{number} - "POST /v1/completions HTTP/1.1" 200 OK',
        f'INFO:     10.0.0.1:{number} - "POST /v1/completions HTTP/1.1" 404 Not Found',
        (
            f"{header} Engine 000: Avg prompt throughput: {number}.0 tokens/s, Avg generation "
            "throughput: 2.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: "
            "66.7%, Prefix cache hit rate: 0.0%"
        ),
        f"{header} A word of {number}",
    ]
    sentence = "".join(chr(97 + int(digit)) for digit in str(number))
    block = [kinds[0]] * (_LINES_AT_ONCE - 300) + kinds[1:] * 99
    return "\n".join([*block, f"{header} {sentence}", "KeyError: 1", ""]).encode()


def test_a_log_without_end_takes_no_more_memory_than_a_short_one() -> None:
    """Ten million lines through a pipe: resident memory stays where it was."""
    reader = subprocess.Popen(
        [sys.executable, "-m", "hpuwatch", "parse", "-", "--unmatched"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None
    blocks = _LINES // _LINES_AT_ONCE
    early_mib = 0.0
    for number in range(blocks):
        reader.stdin.write(_busy_block(number))
        if number == blocks // 5:
            early_mib = _resident_mib(reader.pid)
    reader.stdin.flush()
    late_mib = _resident_mib(reader.pid)
    told, _ = reader.communicate()
    assert f"{99 * blocks}".encode() in told
    assert 0 < late_mib < early_mib + 2


def test_hundreds_of_starts_and_kills_leave_nothing_behind(tmp_path: Path) -> None:
    starts_and_kills(tmp_path, _STARTS)
