"""What one core of simulated server serves: requests and streamed tokens a second.

The server runs on core 0, ``hpuwatch load`` on the others; each one's CPU time is told by
itself.  Two loads: many streams at 20 simulated seconds a second, where tokens of a moment
share a write, and answers of one token at full speed, where requests are all there is.
Rates are by the clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.bench.live import cpu_seconds

REQUESTS_BOUND = 200.0
TOKENS_BOUND = 20_000.0
_SERVER = ("--port", "0", "--speed", "1e4", "--max-num-seqs", "256", "--noise", "0")
_STREAMS = ("--concurrency", "256", "--output-tokens", "200", "--limit", "3000")
_ANSWERS = ("--concurrency", "256", "--output-tokens", "1", "--limit", "6000")


@dataclass(frozen=True)
class Rate:
    """What a load measured; shares are of one core, over the load's duration."""

    requests_per_second: float
    tokens_per_second: float
    server_share: float
    client_share: float
    simulated_speed: float


def serving_rows() -> None:
    """Print the rates beside the bounds that one core must reach."""
    streams = _rate("20", _STREAMS)
    answers = _rate("1000", _ANSWERS)
    _print("streamed tokens/s", streams.tokens_per_second, TOKENS_BOUND, streams)
    _print("requests/s", answers.requests_per_second, REQUESTS_BOUND, answers)


def _print(what: str, reached: float, bound: float, rate: Rate) -> None:
    print(
        f"simulator: {what:18} {reached:10,.0f}   bound {bound:8,.0f}   "
        f"server {rate.server_share:4.0%} of its core, client {rate.client_share:4.0%},"
        f" {rate.simulated_speed:.1f} simulated seconds a second"
    )


def _rate(speed: str, load: Sequence[str]) -> Rate:
    with _server("--serving-speed", speed) as (pid, url):
        before = cpu_seconds(pid)
        command = [sys.executable, "-m", "hpuwatch", "load", "--url", url]
        shape = ["--input-tokens", "100", "--format", "json"]
        done = subprocess.run(
            [*command, *shape, *load], check=True, stdout=subprocess.PIPE
        )
        used = cpu_seconds(pid) - before
    found: dict[str, Any] = json.loads(done.stdout)
    seconds = found["duration"]
    return Rate(
        requests_per_second=found["request_throughput"],
        tokens_per_second=found["output_throughput"],
        server_share=used / seconds,
        client_share=found["client"]["cpu_seconds"] / seconds,
        simulated_speed=found["simulated"]["speed"],
    )


@contextmanager
def _server(*arguments: str) -> Iterator[tuple[int, str]]:
    """Run a simulated server on core 0 and yield its pid and address, once it is ready."""
    command = [sys.executable, "-m", "hpuwatch", "sim", *_SERVER, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert child.stdout is not None
    try:
        os.sched_setaffinity(child.pid, {0})
        url = ""
        for line in child.stdout:
            if b"Starting vLLM server on " in line:
                url = line.decode().rpartition(" on ")[2].strip()
            if b"Application startup complete" in line:
                break
        else:
            raise SystemExit(f"{command!r} did not get going")
        # Its access lines go on: somebody has to read them.
        subprocess.Popen(["cat"], stdin=child.stdout, stdout=subprocess.DEVNULL)
        yield child.pid, url
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    serving_rows()
