"""Speed and memory, as ratios against a reference measured in the same run.

These machines are noisy and differ, so no figure here is a promise: each row pairs what we
do with something fixed that does comparable work, in turns, and prints the median ratio.

    suggest     a report on a log of 500 KB    against an interpreter that imports our dependencies
    parse       lines to events                against one `re` alternation over the same lines
    reduce      events to state                against making the same number of dataclasses
    scrape      the exposition of a snapshot   against as many plain gauges of prometheus_client
    keeper      resident memory                against a bare interpreter
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.metrics.collector import exposition
from hpuwatch.parse.parser import Parser
from hpuwatch.records import Line
from hpuwatch.state.model import State
from hpuwatch.state.reduce import reduce
from hpuwatch.testing.snapshots import full_snapshot

_ROUNDS = 7
_ACCESS = 'INFO:     127.0.0.1:{port} - "POST /v1/completions HTTP/1.1" 200 OK'
_STATS = (
    "(APIServer pid=7) INFO 11-30 01:16:08 [loggers.py:271] Engine 000: Avg prompt throughput: "
    "{n}.0 tokens/s, Avg generation throughput: 205.6 tokens/s, Running: 8 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 66.7%, Prefix cache hit rate: 0.0%"
)


def _log(kilobytes: int, folder: Path) -> Path:
    """Write the log of a simulated start, followed by traffic, *kilobytes* long."""
    command = [sys.executable, "-m", "hpuwatch", "sim", "--model", "llama-3.1-8b"]
    command += ["--card", "gaudi2", "--port", "0", "--speed", "100000"]
    path = folder / f"{kilobytes}.log"
    with path.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _until(server, lambda: b"startup complete" in path.read_bytes())
        server.terminate()
        server.wait()
    with path.open("a", encoding="utf-8") as out:
        n = 0
        while out.tell() < kilobytes * 1024:
            n += 1
            line = _STATS.format(n=n) if n % 20 == 0 else _ACCESS.format(port=n % 60000)
            out.write(line + "\n")
    return path


def _until(child: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 60
    while not reached():
        if child.poll() is not None or time.perf_counter() > deadline:
            raise SystemExit(f"{child.args!r} did not get going")
        os.sched_yield()


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _paired(
    name: str, ours: Callable[[], object], reference: Callable[[], object]
) -> None:
    pairs = [(_seconds(ours), _seconds(reference)) for _ in range(_ROUNDS)]
    ratios = sorted(mine / other for mine, other in pairs)
    print(
        f"{name:10} {statistics.median(p[0] for p in pairs) * 1e3:9.1f} ms"
        f"   reference {statistics.median(p[1] for p in pairs) * 1e3:9.1f} ms"
        f"   ratio {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def _scan(lines: list[Line]) -> int:
    interesting = re.compile(
        "Free device memory|captured|not warmed|Warmup finished|throughput"
    )
    return sum(interesting.search(line.text) is not None for line in lines)


def _events(lines: list[Line]) -> list[Event]:
    parser = Parser(shipped_rules())
    return [event for line in lines for event in parser.feed(line)] + parser.close()


def _reduced(events: list[Event]) -> State:
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


def _gauges(count: int) -> bytes:
    registry = CollectorRegistry()
    gauge = Gauge("plain", "As many samples as ours", ["n"], registry=registry)
    for n in range(count):
        gauge.labels(n).set(n)
    return generate_latest(registry)


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])


def _keeper(folder: Path) -> None:
    """Compare the keeper's memory with that of a bare interpreter, both asleep."""
    import hpuwatch.runtime  # noqa: PLC0415  only its place is wanted

    keeper = Path(hpuwatch.runtime.__path__[0]) / "keeper.py"
    base = [sys.executable, "-I", "-S"]
    sleep = "import time; print('up', flush=True); time.sleep(60)"
    bare = subprocess.Popen([*base, "-c", sleep], stdout=subprocess.PIPE)
    assert bare.stdout is not None
    bare.stdout.readline()
    spool = folder / "spool"
    files = [
        "--spool",
        str(spool),
        "--facts",
        str(folder / "facts"),
        "--stop-wait",
        "1",
    ]
    ours = subprocess.Popen(
        [*base, str(keeper), *files, "--", sys.executable, "-uc", sleep]
    )
    _until(ours, lambda: spool.exists() and b"up" in spool.read_bytes())
    mine, other = _resident_kib(ours.pid), _resident_kib(bare.pid)
    print(
        f"{'keeper':10} {mine:9} KiB   reference {other:8} KiB   ratio {mine / other:6.2f}"
    )
    for child in (ours, bare):
        child.terminate()
        child.wait()


def main() -> None:
    """Print one row a subject."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, large = _log(500, folder), _log(20_000, folder)
        _paired(
            "suggest",
            lambda: _run("-m", "hpuwatch", "suggest", str(small)),
            lambda: _run("-c", "import typer, rich, pydantic_settings, yaml"),
        )
        text = large.read_text(encoding="utf-8", errors="replace")
        lines = [
            Line(piece, number=n)
            for n, piece in enumerate(re.split(r"[\r\n]+", text), 1)
        ]
        print(f"           ({len(text) / 1e6:.0f} MB, {len(lines)} lines)")
        _paired("parse", lambda: _events(lines), lambda: _scan(lines))
        events = _events(lines)
        _paired(
            "reduce", lambda: _reduced(events), lambda: [Event("x", {}) for _ in events]
        )
        snapshot = full_snapshot()
        samples = sum(not s.startswith(b"#") for s in exposition(snapshot).splitlines())
        _paired("scrape", lambda: exposition(snapshot), lambda: _gauges(samples))
        _keeper(folder)


if __name__ == "__main__":
    main()
