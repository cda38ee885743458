"""A recorded log, played again: what is known at each moment is what was known then."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpuwatch.app.replay import AT_ONCE, Replay, timed
from hpuwatch.app.rules import shipped_rules
from hpuwatch.cli.main import build
from hpuwatch.errors import HpuwatchError, MissingFileError, UsageError
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.clock import FakeClock
from hpuwatch.web.status import status_page

pytestmark = pytest.mark.unit

CORE = "(EngineCore pid=9) INFO {} [runner.py:1] "
LOG = (
    "a line before any time\n"
    + CORE.format("12-31 23:59:00")
    + "Starting to load model some/model...\n"
    + "[Warmup][Prompt][1/2] batch_size:1 query_len:128 num_blocks:0 free_mem:60 GiB\n"
    + CORE.format("12-31 23:59:50")
    + "nobody knows this\n"
    + "[Warmup][Prompt][2/2] batch_size:1 query_len:256 num_blocks:0 free_mem:59 GiB\n"
    + CORE.format("01-01 00:00:30")
    + "Warmup finished in 49 secs, allocated 12.5 GiB of device memory\n"
    + "(APIServer pid=7) INFO:     Application startup complete.\n"
)
BEGIN = datetime(2026, 12, 31, 23, 59, tzinfo=timezone.utc).timestamp()
WRITTEN = datetime(2027, 1, 1, 0, 1, tzinfo=timezone.utc).timestamp()


@dataclass
class WatchedClock(FakeClock):
    """Tells at each wait what has become of the replay."""

    look: Callable[[], Snapshot] | None = None
    seen: list[tuple[float, Snapshot]] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        if self.look is not None:
            self.seen.append((self.seconds, self.look()))
        super().wait(seconds)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    os.utime(path, (WRITTEN, WRITTEN))
    return str(path)


def played(log: str, speed: float) -> tuple[Replay, WatchedClock]:
    clock = WatchedClock()
    replay = Replay("x", log, shipped_rules(), clock, speed=speed)
    clock.look = lambda: replay._latest
    replay.play()
    return replay, clock


def lines(*texts: str) -> list[Line]:
    return [Line(text, number=number) for number, text in enumerate(texts, 1)]


def test_each_line_comes_when_the_log_says(log: str) -> None:
    replay, clock = played(log, 1.0)
    begin = clock.seen[0][0]
    assert clock.seconds - begin == pytest.approx(90.0)
    for at, snapshot in clock.seen:
        assert snapshot.now - BEGIN == pytest.approx(at - begin, abs=0.11)
        assert snapshot.replayed
        start = snapshot.state.current
        assert start is not None
        done = start.warmup.progress["prompt"].done
        assert done == (0 if at - begin < 50 else 1)  # the bucket under way
        assert snapshot.phase is Phase.WARMING
    assert replay._latest.phase is Phase.READY
    assert replay._latest.now - BEGIN == 90.0
    assert replay._latest.lines == 7


def test_ten_times_as_fast_is_the_same_in_a_tenth_of_the_time(log: str) -> None:
    slow, _ = played(log, 1.0)
    fast, clock = played(log, 10.0)
    assert sum(clock.waits) == pytest.approx(9.0)
    assert fast._latest == slow._latest


def test_at_once_nothing_is_waited_for(log: str) -> None:
    replay, clock = played(log, AT_ONCE)
    assert clock.waits == []
    assert replay._latest == played(log, 1.0)[0]._latest


def test_what_is_left_of_the_warm_up_is_as_it_was_then(log: str) -> None:
    _, clock = played(log, 1.0)
    first, last = clock.seen[10][1], clock.seen[-1][1]
    assert first.state.current is not None
    assert first.state.current.warmup.progress["prompt"].first_at == BEGIN
    assert last.state.current is not None
    assert last.state.current.warmup.progress["prompt"].last_at == BEGIN + 50


def test_lines_without_a_time_come_with_the_line_before() -> None:
    head = CORE.format("12-31 23:59:00")
    found = timed(lines("before", "any", f"{head}one", "two", "three"), WRITTEN)
    assert [line.received_at for line in found] == [BEGIN] * 5


def test_a_log_without_any_time_is_of_when_it_was_written() -> None:
    found = list(timed(lines("one", "two"), WRITTEN))
    assert [line.received_at for line in found] == [WRITTEN] * 2
    assert [line.text for line in found] == ["one", "two"]


def test_the_status_page_says_that_it_is_a_replay(log: str) -> None:
    snapshot = played(log, AT_ONCE)[0]._latest
    assert "Replay: a recorded log is played again" in status_page(snapshot)
    assert "Replay:" not in status_page(replace(snapshot, replayed=False))


def test_an_order_to_stop_ends_it_at_once(log: str) -> None:
    clock = WatchedClock()
    replay = Replay("x", log, shipped_rules(), clock)

    def look() -> Snapshot:
        if len(clock.waits) == 3:
            replay._order(15, None)
        return replay._latest

    clock.look = look
    replay.play()
    assert len(clock.waits) == 4


def test_metrics_are_printed_once_it_is_over(log: str, tmp_path: Path) -> None:
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(Path(log).read_bytes()))
    words = ["replay", str(packed), "--speed", "max", "--once"]
    result = CliRunner().invoke(build(), [*words, "--listen", "127.0.0.1:0"])
    assert result.exit_code == 0, result.exception
    shown = result.stdout.splitlines()
    assert "hpuwatch_replayed 1.0" in shown
    assert 'hpuwatch_runtime_state{state="ready"} 1.0' in shown
    assert "hpuwatch_log_lines_total 7.0" in shown


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["/no/such.log"], MissingFileError),
        *(
            (["x.log", "--speed", each], UsageError)
            for each in ("0", "-1", "nan", "inf", "fast")
        ),
    ],
)
def test_errors(words: list[str], error: type[HpuwatchError]) -> None:
    words = ["replay", *words, "--listen", "127.0.0.1:0"]
    result = CliRunner().invoke(build(), words)
    assert isinstance(result.exception, error)
    assert "replaying" not in result.stderr
