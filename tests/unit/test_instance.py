"""One name, one owner; and what the facts of a run tell."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpuwatch.errors import BusyError, ResourceError
from hpuwatch.runtime.facts import Facts, read_facts
from hpuwatch.runtime.instance import Instance, fingerprint, in_memory
from hpuwatch.runtime.last_exit import (
    LastExit,
    ended_before,
    how,
    read_last_exit,
    write_last_exit,
)
from hpuwatch.runtime.process import Process, boot_id, process_of
from hpuwatch.state.snapshot import Ended
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

VLLM = ["/opt/venv/bin/vllm", "serve", "--api-key", "secret"]


@pytest.fixture
def ours(tmp_path: Path) -> Instance:
    return Instance(tmp_path / "state", "ours")


def write(path: Path, *facts: dict[str, object]) -> Facts:
    path.write_text("".join(json.dumps({"at": 1.0, **fact}) + "\n" for fact in facts))
    return read_facts(path)


def test_the_folder_is_private_and_the_command_is_not_kept(ours: Instance) -> None:
    ours.acquire(VLLM)
    ours.begin(VLLM, FakeClock())
    assert stat.S_IMODE(ours.dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(ours.facts.stat().st_mode) == 0o600
    assert "secret" not in ours.facts.read_text()
    assert ours.read().program == "vllm"
    assert ours.read().fingerprint == fingerprint(VLLM)
    ours.release()


def test_a_name_has_one_owner_at_a_time(ours: Instance, tmp_path: Path) -> None:
    ours.acquire()
    ours.begin(VLLM, FakeClock())
    with pytest.raises(BusyError, match="'ours' is in use, so that sh"):
        Instance(tmp_path / "state", "ours").acquire(["sh"])
    Instance(tmp_path / "state", "theirs").acquire()
    ours.release()
    again = Instance(tmp_path / "state", "ours")
    again.acquire()
    again.release()


def test_the_owner_is_named(ours: Instance, tmp_path: Path) -> None:
    ours.acquire()
    run = ours.begin(VLLM, FakeClock())
    ourselves = process_of(os.getpid())
    assert ourselves is not None
    who = {"pid": ourselves.pid, "ticks": ourselves.ticks, "at": 1.0}
    with ours.facts.open("a") as file:
        file.write(json.dumps({"fact": "keep", **who}) + "\n")
        file.write(json.dumps({"fact": "start", **who}) + "\n")
    with pytest.raises(BusyError) as caught:
        Instance(tmp_path / "state", "ours").acquire(VLLM)
    message = str(caught.value)
    assert f"belongs to keeper {os.getpid()}, which runs vllm" in message
    assert f"server pid {os.getpid()}" in message
    assert "the same" in message
    assert ours.read().run == run
    ours.release()


def test_a_new_run_counts_on_and_puts_the_old_spool_aside(ours: Instance) -> None:
    ours.acquire()
    runs = set()
    for number in (1, 2, 3):
        runs.add(ours.begin(VLLM, FakeClock()))
        assert ours.read().number == number
        for left in ("marks", "echoed"):
            assert not (ours.dir / left).exists()
            (ours.dir / left).write_text("old")
        ours.spool.write_text(f"spool {number}")
    assert (ours.dir / "spool.1").read_text() == "spool 2"
    assert read_facts(ours.dir / "facts.1").number == 2
    assert len(runs) == 3
    ours.release()


KEPT = {"pid": 5, "ticks": 6, "fact": "keep", "at": 45.0}
EXIT = {"pid": 5, "ticks": 6, "fact": "exit", "code": -9, "asked": False, "at": 50.0}


def words(run: str, phase: str) -> LastExit:
    """What a watcher left of the end of a run."""
    return LastExit(
        name="ours",
        run=run,
        sentence="the server ended",
        phase=phase,
        code=3,
        signal=None,
        asked=True,
        ended_at=40.0,
    )


def test_how_the_server_before_ended(ours: Instance) -> None:
    ours.acquire()
    assert ended_before(ours.dir) is None
    older = ours.begin(VLLM, FakeClock())
    write_last_exit(ours.last_exit, words(older, "draining"))
    assert ended_before(ours.dir) is None  # it is this run's own
    ours.begin(VLLM, FakeClock())
    assert ended_before(ours.dir) == Ended(3, "draining", asked=True, at=40.0)
    # A watcher that was killed left no words; the keeper still noted the end.
    with ours.facts.open("a") as facts:
        facts.write(f"{json.dumps(KEPT)}\n{json.dumps(EXIT)}\n")
    ours.begin(VLLM, FakeClock())
    assert ended_before(ours.dir) == Ended(137, "", asked=False, at=50.0)
    told = read_last_exit(ours)
    assert told is not None
    assert told.sentence == "the server was ended unasked by SIGKILL"
    # This one's keeper was killed as well: nobody knows.
    ours.begin(VLLM, FakeClock())
    assert ended_before(ours.dir) is None
    ours.release()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"can't be written .*--state-dir"):
        Instance(tmp_path / "file", "ours").acquire()


def test_a_full_disk(ours: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(ResourceError, match="the disk is full"):
        ours.acquire()
    assert ours.lock_fd == -1


def test_in_memory() -> None:
    files = in_memory()
    run = files.begin(VLLM, 4, FakeClock())
    assert files.folder is None
    assert read_facts(files.facts).run == run
    assert read_facts(files.facts).number == 4
    Path(files.spool).write_bytes(b"output")
    assert Path(files.spool).read_bytes() == b"output"
    for path in (files.spool, files.facts):
        os.close(int(path.rpartition("/")[2]))


def test_facts_that_are_torn_or_strange_tell_less(tmp_path: Path) -> None:
    assert read_facts(tmp_path / "none") == Facts()
    path = tmp_path / "facts"
    write(path, {"fact": "start", "pid": 7, "ticks": 8, "new": "field"})
    with path.open("ab") as file:
        file.write(
            b'not json\n\xff\n{"fact": "exit", "pid": 1, "ticks": 2, "at": 3, "co'
        )
    facts = read_facts(path)
    assert facts.server == Process(7, 8)
    assert facts.exit is None


@pytest.mark.parametrize(
    ("code", "asked", "error", "words"),
    [
        (0, True, "", "stopped as asked (exit code 0)"),
        (-15, True, "", "stopped as asked (SIGTERM)"),
        (-9, True, "", "was asked to stop and had to be killed (SIGKILL)"),
        (0, False, "", "ended by itself with exit code 0"),
        (-11, False, "", "was ended unasked by SIGSEGV"),
        (-64, False, "", "was ended unasked by SIGRTMAX"),
        (69, False, "x: No such file", "can't be started: x: No such file"),
    ],
)
def test_how_it_ended(
    tmp_path: Path, code: int, asked: bool, error: str, words: str
) -> None:
    who = {"pid": 7, "ticks": 8}
    facts = [{"fact": "start", **who}, {"fact": "exit", "pid": 1, "ticks": 2}]
    facts[1] |= {"code": code, "asked": asked}
    if error:
        facts.insert(1, {"fact": "failed", "error": error, **who})
    end = write(tmp_path / "facts", *facts).exit
    assert end is not None
    assert how(end) == words


def test_a_watcher_that_cannot_start_is_not_the_servers_failure(tmp_path: Path) -> None:
    facts = write(
        tmp_path / "facts",
        {"fact": "start", "pid": 7, "ticks": 8},
        {"fact": "failed", "pid": 9, "ticks": 8, "error": "python: not found"},
        {"fact": "exit", "pid": 1, "ticks": 2, "code": 0, "asked": True},
    )
    assert facts.exit is not None
    assert facts.exit.error == ""


def test_a_process_id_of_another_boot_or_time_means_nothing(tmp_path: Path) -> None:
    ourselves = process_of(os.getpid())
    assert ourselves is not None
    assert ourselves.alive()
    assert ourselves.signal(0)
    older = Process(ourselves.pid, ourselves.ticks - 1)
    assert not older.alive()
    assert not older.signal(9)
    who = {"pid": ourselves.pid, "ticks": ourselves.ticks}
    for boot, is_alive in ((boot_id(), True), ("another", False)):
        facts = write(
            tmp_path / "facts",
            {"fact": "run", "run": "r", "boot": boot, **who},
            {"fact": "keep", **who},
            {"fact": "start", **who},
        )
        assert facts.keeper_alive() is is_alive
        assert facts.server_alive() is is_alive


def test_a_process_that_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    zombie = process_of(pid)
    assert zombie is not None
    assert not zombie.alive()
    os.waitpid(pid, 0)
    assert process_of(pid) is None
    assert not zombie.signal(9)
