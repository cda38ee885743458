"""The log of a server that has been at work for long: what the speed rows read.

Of its lines 97 % are access lines, 2.5 % are the engine's statistics and 0.5 % are shapes that
were not warmed up; every 200,000 lines the server starts anew, in the simulated server's words.
The same seed gives the same log.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

LINES_PER_START = 200_000
_SEED = 7
_STATISTICS, _MISSES = 0.025, 0.005
_AT_ONCE = 10_000  # lines that are written at a time

_PATHS = ("/v1/completions", "/v1/chat/completions", "/health", "/metrics")


def write_busy_log(path: Path, lines: int) -> None:
    """Write a log of about so many lines, one start included for each 200,000."""
    start = simulated_start(path.parent)
    chance = random.Random(_SEED)  # noqa: S311  the same log each time is the point
    with path.open("wb") as out:
        written = 0
        while written < lines:
            share = min(LINES_PER_START, lines - written)
            out.write(start)
            written += share
            rows = islice(traffic(chance), max(0, share - start.count(b"\n")))
            while block := "".join(islice(rows, _AT_ONCE)):
                out.write(block.encode())


def simulated_start(folder: Path) -> bytes:
    """Return what a simulated server prints until it is ready."""
    command = [sys.executable, "-m", "hpuwatch", "sim", "--model", "llama-3.1-8b"]
    command += ["--card", "gaudi2", "--port", "0", "--speed", "100000"]
    path = folder / "start.log"
    with path.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.perf_counter() + 60
        while b"startup complete" not in path.read_bytes():
            if server.poll() is not None or time.perf_counter() > deadline:
                raise SystemExit(f"{command!r} did not get going")
            time.sleep(0.05)  # noqa: TID251  a program of its own has no Clock
        server.terminate()
        server.wait()
    whole, complete, _ = path.read_bytes().partition(b"startup complete.\n")
    return whole + complete


def traffic(chance: random.Random | None = None) -> Iterator[str]:
    """Yield the lines of a server at work, without end."""
    chance = chance or random.Random(_SEED)  # noqa: S311  likewise
    for number in count():
        kind = chance.random()
        if kind < _MISSES:
            yield _miss(chance, number)
        elif kind < _MISSES + _STATISTICS:
            yield _statistics(chance, number)
        else:
            yield _access(chance)


def _access(chance: random.Random) -> str:
    path = chance.choice(_PATHS)
    verb = "GET" if path in {"/health", "/metrics"} else "POST"
    address = f"10.{chance.randrange(100, 256)}.{chance.randrange(256)}.{chance.randrange(256)}"
    port = chance.randrange(10_000, 65_536)
    return f'INFO:     {address}:{port} - "{verb} {path} HTTP/1.1" 200 OK\n'


def _header(process: str, level: str, number: int, place: str) -> str:
    minutes, seconds = divmod(number // 50, 60)
    hours, minutes = divmod(minutes, 60)
    at = f"11-30 {hours % 24:02}:{minutes:02}:{seconds:02}"
    return f"({process}) {level} {at} [{place}] "


def _statistics(chance: random.Random, number: int) -> str:
    header = _header("APIServer pid=41", "INFO", number, "loggers.py:271")
    prompt, generation = chance.uniform(0, 9000), chance.uniform(0, 3000)
    return (
        f"{header}Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation "
        f"throughput: {generation:.1f} tokens/s, Running: {chance.randrange(64)} reqs, "
        f"Waiting: {chance.randrange(9)} reqs, GPU KV cache usage: "
        f"{chance.uniform(0, 99):.1f}%, Prefix cache hit rate: {chance.uniform(0, 99):.1f}%\n"
    )


def _miss(chance: random.Random, number: int) -> str:
    header = _header("EngineCore pid=42", "WARNING", number, "hpu_model_runner.py:2853")
    phase, batch = chance.choice((("prompt", 1), ("decode", 2 ** chance.randrange(7))))
    query = 128 * chance.randrange(1, 17) if phase == "prompt" else 1
    shape = f"('{phase}', {batch}, {query}, {128 * chance.randrange(9)})"
    return f"{header}Configuration: {shape} was not warmed-up!\n"
