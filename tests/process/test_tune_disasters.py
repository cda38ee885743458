"""``hpuwatch tune`` when something beside the server breaks: no server is ever lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpuwatch.app.final_server import FinalServer
from hpuwatch.app.rules import shipped_rules
from hpuwatch.clock import SystemClock
from hpuwatch.load.endpoint import Endpoint
from hpuwatch.loop.trials import Limits
from hpuwatch.runtime.facts import Facts, read_facts
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.process import process_of
from hpuwatch.testing.programs import OURS, until
from hpuwatch.testing.tuning import LIGHT, SIM, Bench
from tests.running import scenario

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)


def facts_of(bench: Bench, trial: int) -> Facts:
    """Return what is known of a trial's server."""
    return read_facts(
        bench.state / "default" / "trials" / "1" / f"trial-{trial}" / "facts"
    )


def kill_keeper(facts: Facts) -> None:
    """Kill a trial's keeper; its server lives on."""
    assert facts.keeper is not None
    assert facts.server is not None
    facts.keeper.signal(signal.SIGKILL)
    until(lambda: not facts.keeper_alive())
    assert facts.server_alive()


def in_trial_1(bench: Bench) -> bool:
    """Tell whether the baseline is done and the next trial's server answers."""
    return bench.states() == ["ok", "running"] and bench.is_served()


def test_a_trial_whose_keeper_is_killed_goes_on_and_leaves_nothing(
    bench: Bench,
) -> None:
    tune = bench.tune("--trials", "3", "--then", "stop", "--load", LIGHT)
    until(lambda: in_trial_1(bench))
    facts = facts_of(bench, 1)
    kill_keeper(facts)
    assert tune.wait() == 0, tune.err
    assert bench.states() == ["ok"] * 3
    assert not facts.server_alive()
    assert not bench.is_served()


def test_a_server_that_its_study_has_forgotten_is_stopped_first(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--then", "stop", "--load", LIGHT)
    until(lambda: in_trial_1(bench))
    tune.ask(signal.SIGKILL)
    tune.wait()
    facts = facts_of(bench, 1)
    kill_keeper(facts)
    with sqlite3.connect(bench.state / "default" / "study.sqlite") as db:
        db.execute("UPDATE trials SET state = 'interrupted' WHERE number = 1")
    db.close()
    again = bench.tune("--trials", "2", "--then", "stop", "--load", LIGHT)
    assert again.wait() == 0, again.err
    said = "the server of trial 1, which a killed campaign had left, was stopped"
    assert said in again.err
    assert not facts.server_alive()


def test_a_reader_that_leaves_stops_neither_study_nor_server(bench: Bench) -> None:
    argv = [*OURS, "tune", "--trials", "2", "--load", LIGHT, "--", *bench.server()]
    with subprocess.Popen(
        argv, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as tune:
        assert tune.stdout is not None
        tune.stdout.readline()
        tune.stdout.close()
        assert tune.wait(120) == 0
    assert bench.states() == ["ok", "ok"]
    assert not facts_of(bench, 1).server_alive()
    facts = read_facts(bench.state / "default" / "facts")
    assert facts.server_alive()
    assert bench.is_served()


def test_a_terminal_that_is_gone_stops_neither_study_nor_server(bench: Bench) -> None:
    argv = [*OURS, "tune", "--trials", "2", "--load", LIGHT, "--", *bench.server()]
    ours, its = os.openpty()
    with subprocess.Popen(argv, env=bench.env, stdout=its, stderr=its) as tune:
        os.close(its)
        while b"trial 0" not in os.read(ours, 100_000):
            pass
        os.close(ours)
        assert tune.wait(120) == 0
    assert bench.states() == ["ok", "ok"]
    assert not facts_of(bench, 1).server_alive()
    assert bench.is_served()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_cost_their_words_only(
    bench: Bench, closed: str
) -> None:
    argv = [*OURS, "tune", "--trials", "2", "--then", "stop", "--load", LIGHT, "--"]
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *argv, *bench.server()]
    done = subprocess.run(
        shell, env=bench.env, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert bench.states() == ["ok", "ok"]
    assert not bench.is_served()


@pytest.fixture
def listening() -> Iterator[None]:
    """Undo what ``nohup`` did to us: a child inherits that a hang-up is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("listening")
def test_a_hangup_ends_it_as_sigterm_does(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--load", LIGHT)
    until(lambda: in_trial_1(bench))
    tune.ask(signal.SIGHUP)
    assert tune.wait() == 128 + signal.SIGHUP
    assert bench.states() == ["ok", "interrupted"]
    assert not facts_of(bench, 1).server_alive()
    assert bench.is_served()


def test_a_server_that_still_starts_is_not_waited_for(
    bench: Bench, tmp_path: Path
) -> None:
    """It would swallow SIGTERM as a real one does, and warm up for an hour."""
    hang = {"fault": "hang", "when": {"phase": "prompt", "index": 2}}
    server = bench.server("--faults", scenario(tmp_path, hang))
    tune = bench.tune("--trials", "2", "--then", "stop", "--load", LIGHT, server=server)
    until(lambda: "warming" in tune.err)
    tune.ask(signal.SIGTERM)
    assert tune.wait() == 128 + signal.SIGTERM  # long before --stop-wait
    assert not facts_of(bench, 0).server_alive()


def test_a_hangup_that_is_ignored_ends_nothing(bench: Bench) -> None:
    argv = [*OURS, "tune", "--trials", "2", "--then", "stop", "--load", LIGHT]
    deaf = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *argv, "--", *bench.server()]
    tune = bench.programs.program(deaf, env=bench.env)
    until(bench.is_served)
    tune.ask(signal.SIGHUP)
    assert tune.wait() == 0, tune.err
    assert bench.states() == ["ok", "ok"]


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_file_that_cannot_be_written_is_refused_at_once(
    bench: Bench, more: list[str]
) -> None:
    for out in (bench.state / "none" / "x.env", bench.state.parent):
        tune = bench.tune("--out", str(out), *more)
        assert tune.wait() == 2
        assert f"--out {out}" in tune.err
    assert not bench.state.exists()


def test_a_file_that_could_be_written_no_more_costs_only_itself(bench: Bench) -> None:
    folder = bench.state.parent / "results"
    folder.mkdir()
    out = folder / "best.env"
    tune = bench.tune("--trials", "2", "--load", LIGHT, "--out", str(out))
    until(bench.is_served)
    folder.rmdir()
    assert tune.wait() == 69
    assert f"{out} can't be written" in tune.err.strip().splitlines()[-1]
    shown = tune.out.decode()
    assert "All 2 starts of the budget were used." in shown
    assert "as an env file" not in shown
    assert "on its original configuration" in shown
    assert bench.is_served()


def test_a_study_that_cannot_be_written_gives_the_server_back(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--load", LIGHT)
    until(lambda: in_trial_1(bench))
    file = bench.state / "default" / "study.sqlite"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert tune.wait() == 75
    other.close()
    last = tune.err.strip().splitlines()[-1]
    assert last.startswith(f"hpuwatch: error: {file} can't be used just now")
    assert "starting the server again" in tune.err
    facts = read_facts(bench.state / "default" / "facts")
    assert facts.keeper is not None
    assert f"stop it with: kill {facts.keeper.pid}" in tune.err
    assert not facts_of(bench, 1).server_alive()
    assert bench.is_served()
    resumed = bench.tune("--resume", "--then", "stop")
    assert resumed.wait() == 0, resumed.err
    assert bench.states() == ["ok", "interrupted", "ok", "ok"]


# Its Popen is let go on purpose: the server outlives who started it.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_the_final_server_starts_without_a_folder_for_its_output(
    bench: Bench, tmp_path: Path
) -> None:
    state = tmp_path / "file"
    state.touch()
    served = FinalServer(
        command=bench.server(),
        environment=bench.env,
        instance=Instance(state, "default"),
        endpoint=Endpoint("127.0.0.1", bench.port),
        rules=shipped_rules(),
        limits=Limits(),
        clock=SystemClock(),
    ).start(state)
    keeper = process_of(served.keeper_pid)
    assert keeper is not None
    assert served.server_pid is None
    assert bench.is_served()
    keeper.signal(signal.SIGTERM)
    os.waitpid(served.keeper_pid, 0)
    assert not bench.is_served()


@pytest.mark.parametrize("figure", ["9" * 5000, "999999999999", "10000"])
def test_a_load_beyond_all_bounds_is_refused(bench: Bench, figure: str) -> None:
    tune = bench.tune("--load", f"concurrency={figure}", server=[*SIM, "--port", "9"])
    assert tune.wait() == 2
    assert "concurrency must lie between 1 and" in tune.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--resume"], 66, "there is no study under the name 'default': begin one"),
        (["--dry-run"], 0, ""),
    ],
)
def test_an_empty_file_is_no_study(
    bench: Bench, options: list[str], code: int, words: str
) -> None:
    file = bench.state / "default" / "study.sqlite"
    file.parent.mkdir(parents=True)
    file.touch()
    tune = bench.tune(*options, server=[*SIM, "--port", "9"])
    assert tune.wait() == code
    assert words in tune.err
    assert file.read_bytes() == b""
