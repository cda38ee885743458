"""``hpuwatch tune`` from the outside, on the simulated server: its course and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.runtime.facts import read_facts
from hpuwatch.testing.programs import OURS, until
from hpuwatch.testing.tuning import HEAVY, LIGHT, SHORT, Bench

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)


def test_a_wasteful_server_gets_faster_and_nothing_is_left(bench: Bench) -> None:
    out = bench.state.parent / "best.env"
    tune = bench.tune(
        *("--trials", "4", "--then", "stop", "--load", HEAVY, "--out", str(out)),
        server=bench.server(*SHORT),
    )
    assert tune.wait() == 0, tune.err
    document = json.loads(bench.study("export"))
    assert document["origin"] == "simulated"
    assert [trial["state"] for trial in document["trials"]] == ["ok"] * 4
    assert document["verdict"]["gain"] > 0.1
    assert document["verdict"]["within_noise"] is False
    text = out.read_text()
    assert "SIMULATED" in text
    settings = [line for line in text.splitlines() if not line.startswith("#")]
    best = document["trials"][document["verdict"]["best"]]["settings"]
    assert settings == [f"{RESERVE}={best[RESERVE]}"]
    shown = tune.out.decode()
    assert "Before and after (SIMULATED)" in shown
    assert "output tokens/s" in shown
    assert not bench.is_served()


def test_the_server_is_left_on_the_original_and_our_output_ends(bench: Bench) -> None:
    argv = [*OURS, "tune", "--trials", "2", "--load", LIGHT, "--", *bench.server()]
    # Pipes, read to their end: a server that had inherited them would keep us waiting.
    done = subprocess.run(
        argv, env=bench.env, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert b"on its original configuration" in done.stdout
    assert bench.is_served()
    facts = read_facts(bench.state / "default" / "facts")
    assert facts.keeper is not None
    assert facts.server is not None
    assert f"kill {facts.keeper.pid}" in done.stdout.decode()
    assert f"pid {facts.server.pid}" in done.stdout.decode()
    environ = Path(f"/proc/{facts.server.pid}/environ").read_bytes().split(b"\0")
    assert f"{RESERVE}=0.4".encode() in environ
    os.kill(facts.keeper.pid, signal.SIGTERM)
    until(lambda: not facts.keeper_alive())
    assert not bench.is_served()


def test_keep_best_and_the_next_tune_takes_the_server_over(bench: Bench) -> None:
    short = bench.server(*SHORT)
    first = bench.tune("--trials", "4", "--load", HEAVY, "--keep-best", server=short)
    assert first.wait() == 0, first.err
    best = json.loads(bench.study("export"))
    setting = best["trials"][best["verdict"]["best"]]["settings"][RESERVE]
    assert f"with {RESERVE}={setting}" in first.out.decode()
    server = first.facts.server
    assert server is not None
    environ = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    assert f"{RESERVE}={setting}".encode() in environ
    light = ("--trials", "2", "--load", LIGHT, "--then", "stop")
    again = bench.tune(*light, server=short)
    assert again.wait() == 0, again.err
    assert "is drained and stopped" in again.err
    assert not server.alive()


def test_a_server_that_was_taken_over_for_nothing_is_given_back(bench: Bench) -> None:
    first = bench.tune("--trials", "2", "--load", LIGHT)
    assert first.wait() == 0, first.err
    before = first.facts.server
    (bench.state / "default" / "study.sqlite").write_bytes(b"no study at all " * 99)
    again = bench.tune("--trials", "2", "--load", LIGHT)
    assert again.wait() == 78
    assert "can't be used as a study" in again.err
    assert bench.is_served()
    assert again.facts.server != before


def test_a_killed_campaign_goes_on(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--then", "stop", "--load", LIGHT)
    until(lambda: bench.states() == ["ok", "running"] and bench.is_served())
    tune.ask(signal.SIGKILL)
    assert tune.wait() == -signal.SIGKILL
    assert bench.is_served()  # the server was left behind
    assert bench.states() == ["ok", "running"]
    resumed = bench.tune("--resume", "--then", "stop")
    assert resumed.wait() == 0, resumed.err
    assert "which a killed campaign had left, was stopped" in resumed.err
    trials = bench.trials()
    assert [t["state"] for t in trials] == ["ok", "interrupted", "ok", "ok"]
    assert trials[1]["settings"] == trials[2]["settings"]
    assert "trial 0 (the original)" not in resumed.err
    assert not bench.is_served()


def test_a_keeper_that_was_killed_too_does_not_keep_its_server(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--then", "stop", "--load", LIGHT)
    until(bench.is_served)
    tune.ask(signal.SIGKILL)
    tune.wait()
    facts = read_facts(bench.state / "default" / "trials" / "1" / "trial-0" / "facts")
    assert facts.keeper is not None
    assert facts.server is not None
    facts.keeper.signal(signal.SIGKILL)
    until(lambda: not facts.keeper_alive())
    assert facts.server.alive()
    resumed = bench.tune("--resume", "--trials", "2", "--then", "stop")
    assert resumed.wait() == 0, resumed.err
    assert not facts.server.alive()
    assert [t["state"] for t in bench.trials()] == ["interrupted", "ok", "ok"]


def test_sigterm_stops_the_trial_and_starts_the_original_again(bench: Bench) -> None:
    tune = bench.tune("--trials", "3", "--load", LIGHT)
    until(lambda: bench.states() == ["ok", "running"] and bench.is_served())
    tune.ask(signal.SIGTERM)
    assert tune.wait() == 128 + signal.SIGTERM
    assert bench.states() == ["ok", "interrupted"]
    command = tune.err.rpartition("go on with: ")[2]
    # With what the study belongs to in front, so that it works in another shell too.
    assert f"{RESERVE}=0.4 hpuwatch tune --resume --name default --trials 3" in command
    assert "--load" not in command
    shown = tune.out.decode()
    assert "Nothing was compared: 0 of 1 trial counted (1 interrupted)." in shown
    assert "The search was interrupted. It is unfinished" in bench.study("show")
    assert not (bench.state / "default" / "best.env").exists()
    assert "on its original configuration" in tune.out.decode()
    assert bench.is_served()


def test_a_changed_command_cannot_resume(bench: Bench) -> None:
    tune = bench.tune("--trials", "2", "--then", "stop", "--load", LIGHT)
    assert tune.wait() == 0, tune.err
    other = bench.tune("--resume", env={RESERVE: "0.3"})
    assert other.wait() == 78
    assert f"{RESERVE} was 0.4 and is 0.3 now" in other.err
    longer = bench.tune("--resume", server=[*bench.server(), "--max-num-seqs", "9"])
    assert longer.wait() == 78
    assert "(the command is another)" in longer.err
    done = bench.tune("--resume", "--then", "stop")
    assert done.wait() == 0, done.err
    assert "All 2 starts of the budget were used." in done.out.decode()
