"""The watcher, step by step: catching up, an end in between, and a folder that is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hpuwatch.app import watch as module
from hpuwatch.app.reload import LiveRules
from hpuwatch.app.watch import Task, Watcher
from hpuwatch.life.machine import Fact
from hpuwatch.runtime import spool as spool_module
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.instance import Files, Instance
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import OUT_OF_MEMORY
from hpuwatch.web.pages import Pages

pytestmark = pytest.mark.unit

READY = "(APIServer pid=7) INFO:     Application startup complete.\n"
NOISE = "".join(f"line {n}\n" for n in range(200))


@dataclass
class SlowClock(FakeClock):
    """Each look at it costs a second, so that each turn reads one chunk."""

    def boottime(self) -> float:
        self.seconds += 1.0
        return super().boottime()


@dataclass
class Run:
    """A run's files, and watchers of them."""

    instance: Instance
    watchers: list[Watcher]

    def watcher(self) -> Watcher:
        task = Task("ours", "127.0.0.1:0", self.instance.files, echo=False)
        watcher = Watcher(task, LiveRules(None, print), SlowClock())
        watcher._watch.process(Fact.SPAWNED)
        self.watchers.append(watcher)
        return watcher


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(spool_module, "CHUNK", 256)
    monkeypatch.setattr(module, "TAIL_BYTES", 512)
    instance = Instance(tmp_path, "ours")
    instance.acquire()
    instance.begin(["x"], FakeClock())
    instance.spool.touch()
    run = Run(instance, [])
    yield run
    for watcher in run.watchers:
        watcher._door.close()
        watcher._room.close()
    instance.release()


def status(watcher: Watcher, path: str) -> int:
    return Pages(lambda: watcher._latest).answer(path).status


def test_it_answers_while_it_still_reads_what_was_said_before(run: Run) -> None:
    """A liveness probe would shoot a healthy server, whose log is merely long."""
    run.instance.spool.write_text(OUT_OF_MEMORY + NOISE + READY)
    watcher = run.watcher()
    turns = 0
    while not watcher._tick():
        if not watcher._catching_up:
            continue
        turns += 1
        assert status(watcher, "/livez") == 200
        assert status(watcher, "/readyz") == 503
        assert status(watcher, "/metrics") == 503
        assert "catching up with the output" in watcher._latest.reason
    assert turns > 3
    assert watcher._door._opened
    assert status(watcher, "/metrics") == 200
    assert status(watcher, "/livez") == 503  # and now the truth
    assert "catching up" not in watcher._latest.reason


def test_output_that_comes_faster_than_it_is_read_is_no_catching_up(run: Run) -> None:
    watcher = run.watcher()
    run.instance.spool.write_text(READY + NOISE)
    assert not watcher._tick()
    assert status(watcher, "/readyz") == 200


def test_a_spool_that_got_shorter_is_caught_up_with(run: Run) -> None:
    run.instance.spool.write_text(READY + NOISE)
    watcher = run.watcher()
    run.instance.spool.write_text(READY)
    assert not watcher._tick()
    assert watcher._tick()
    assert status(watcher, "/readyz") == 200


def test_an_end_while_it_catches_up_still_gets_its_cause(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_READING_SECONDS", 4.0)
    run.instance.spool.write_text(NOISE * 10 + OUT_OF_MEMORY)
    watcher = run.watcher()
    watcher._tick()
    watcher._finish(ExitRecord(1, None, asked=False, ended_at=1.0))
    assert 0 < watcher._spool.skipped_bytes == watcher._latest.log_dropped_bytes
    told = json.loads(run.instance.last_exit.read_text())
    assert "RuntimeError: FATAL ERROR" in told["sentence"]


@pytest.mark.parametrize("asked", [False, True])
def test_other_logs_are_looked_into_only_where_nobody_asked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setenv("HABANA_LOGS", str(tmp_path / "none"))
    run.instance.spool.write_text(OUT_OF_MEMORY)
    watcher = run.watcher()
    watcher._clock = FakeClock()  # a patient one
    watcher._finish(ExitRecord(1, None, asked=asked, ended_at=1.0))
    told = json.loads(run.instance.last_exit.read_text())["elsewhere"]
    sources = [quote["source"] for quote in told]
    assert (str(tmp_path / "none") in sources) is not asked
    assert bool(sources) is not asked


def test_a_folder_that_belongs_to_another_run_by_now_is_left_alone(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Deleted and made anew: the other run's last words must be its own."""
    facts, spool = tmp_path / "held-facts", tmp_path / "held-spool"
    run.instance.spool.write_text(READY)
    facts.hardlink_to(run.instance.facts)
    spool.hardlink_to(run.instance.spool)
    watcher = run.watcher()
    files = Files(str(spool), str(facts), run.instance.dir)
    watcher._task = replace(watcher._task, files=files)
    watcher._check_folder()
    assert capfd.readouterr().err == ""
    run.instance.facts.unlink()
    run.instance.facts.write_text("another run's\n")
    for _ in range(2):
        watcher._check_folder()
    assert capfd.readouterr().err.count("belongs to another run by now") == 1
    watcher._finish(ExitRecord(1, None, asked=False, ended_at=1.0))
    assert not run.instance.last_exit.exists()
    assert "next: read the output above" in capfd.readouterr().err
