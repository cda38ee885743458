"""Speed and memory, as ratios against a reference measured in the same run.

These machines are noisy and differ, so no figure here is a promise: each row pairs what we
do with something fixed that does comparable work, in turns, and prints the median ratio.

    suggest     a report on a log of 500 KB    against an interpreter that imports our dependencies
    parse       lines to events                against one `re` alternation over the same lines
    reduce      events to state                against making the same number of dataclasses
    scrape      the exposition of a snapshot   against as many plain gauges of prometheus_client
    buckets     lists and look-ups             against a bound, in CPU seconds
    predict     a plan, refused and repaired   against a bound, in CPU seconds
    keeper      resident memory                against a bare interpreter
    attach      following 1,000 lines a second: share of a core and resident memory
    simulator   what a core of simulated server serves (tests/bench/serving.py)
    speed       a log of 2 million lines       against mtail and ripgrep (tests/bench/speed.py)

HPUWATCH_BENCH_LINES makes the last one's log shorter, HPUWATCH_BENCH_SECONDS the following.
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
from tests.bench.buckets import bucket_rows
from tests.bench.busylog import simulated_start, traffic
from tests.bench.live import follow, resident_mib
from tests.bench.predict import predict_rows
from tests.bench.serving import serving_rows
from tests.bench.speed import need_tools, speed

_ROUNDS = 7


def _log(kilobytes: int, folder: Path) -> Path:
    """Write the log of a simulated start, followed by traffic, *kilobytes* long."""
    path = folder / f"{kilobytes}.log"
    path.write_bytes(simulated_start(folder))
    with path.open("a", encoding="utf-8") as out:
        for line in traffic():
            if out.tell() >= kilobytes * 1024:
                break
            out.write(line)
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
    mine, other = resident_mib(ours.pid), resident_mib(bare.pid)
    print(
        f"{'keeper':10} {mine:9.1f} MiB   reference {other:8.1f} MiB   ratio {mine / other:6.2f}"
    )
    for child in (ours, bare):
        child.terminate()
        child.wait()


def main() -> None:
    """Print one row a subject."""
    need_tools()
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
        bucket_rows()
        predict_rows()
        _keeper(folder)
        _attach(folder)
        serving_rows()
        speed(folder, int(os.environ.get("HPUWATCH_BENCH_LINES", "2000000")))


def _attach(folder: Path) -> None:
    live = follow(folder, float(os.environ.get("HPUWATCH_BENCH_SECONDS", "30")))
    print(
        f"{'attach':10} {live.core_share:9.2%} of a core for {live.lines:,} lines   "
        f"{live.begin_mib:.1f} MiB, {live.end_mib:.1f} MiB at the end"
    )


if __name__ == "__main__":
    main()
