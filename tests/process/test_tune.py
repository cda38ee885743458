"""``hpuwatch tune`` from the outside, on the simulated server and by disaster."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpuwatch.runtime.facts import read_facts
from hpuwatch.testing.programs import OURS, PLAIN_PYTHON, Program, Programs, get, until

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)

RESERVE = "VLLM_GRAPH_RESERVED_MEM"
SIM = (
    *(*OURS, "sim", "--model", "llama-3.1-8b", "--card", "gaudi2", "--speed", "2000"),
    *("--gpu-memory-utilization", "0.5", "--max-model-len", "8192"),
    "--disable-uvicorn-access-log",
)
LIGHT = "concurrency=2,requests=2,prompt=16,output=4,windows=2"
# 36 long requests need 2,232 blocks; the wasteful server has 1,520, the best one 2,400.
HEAVY = "concurrency=36,requests=36,prompt=7680,output=256,windows=2"


@dataclass
class Bench:
    """A place to tune in: a state directory, a free port, and what to start there."""

    programs: Programs
    state: Path
    port: int

    def server(self, *more: str) -> list[str]:
        return [*SIM, "--serving-speed", "100", *more, "--port", str(self.port)]

    @property
    def env(self) -> dict[str, str]:
        own = {"HPUWATCH_STATE_DIR": str(self.state), RESERVE: "0.4"}
        plain = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        return {**plain, **own}

    def tune(
        self,
        *options: str,
        server: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        argv = [*OURS, "tune", *options, "--", *(server or self.server())]
        facts = self.state / "default" / "facts"
        return self.programs.program(argv, facts=facts, env={**self.env, **(env or {})})

    def study(self, *words: str) -> str:
        done = subprocess.run(
            [*OURS, "study", *words], env=self.env, capture_output=True, check=True
        )
        return done.stdout.decode()

    def trials(self) -> list[dict[str, object]]:
        trials = json.loads(self.study("export"))["trials"]
        assert isinstance(trials, list)
        return trials

    def states(self) -> list[str]:
        """Return the states of all trials as they are on the disk just now."""
        with suppress(sqlite3.Error):
            db = sqlite3.connect(
                f"file:{self.state}/default/study.sqlite?mode=ro", uri=True
            )
            rows = db.execute(
                "SELECT state FROM trials ORDER BY study, number"
            ).fetchall()
            db.close()
            return [row[0] for row in rows]
        return []

    def is_served(self) -> bool:
        return get(f"http://127.0.0.1:{self.port}/health")[0] == 200


@pytest.fixture
def bench(programs: Programs, tmp_path: Path) -> Iterator[Bench]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    state = tmp_path / "state"
    yield Bench(programs, state, port)
    for path in state.rglob("facts"):
        facts = read_facts(path)
        if facts.keeper is not None and facts.keeper_alive():
            facts.keeper.signal(signal.SIGQUIT)
        if facts.server is not None and facts.server_alive():
            facts.server.signal(signal.SIGKILL)


def test_a_wasteful_server_gets_faster_and_nothing_is_left(bench: Bench) -> None:
    out = bench.state.parent / "best.env"
    tune = bench.tune(
        *("--trials", "4", "--then", "stop", "--load", HEAVY, "--out", str(out))
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
    first = bench.tune("--trials", "4", "--load", HEAVY, "--keep-best")
    assert first.wait() == 0, first.err
    best = json.loads(bench.study("export"))
    setting = best["trials"][best["verdict"]["best"]]["settings"][RESERVE]
    assert f"with {RESERVE}={setting}" in first.out.decode()
    server = first.facts.server
    assert server is not None
    environ = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    assert f"{RESERVE}={setting}".encode() in environ
    again = bench.tune("--trials", "2", "--load", LIGHT, "--then", "stop")
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


def wrapped(bench: Bench, code: str) -> list[str]:
    """Return a command that runs Python code before it becomes the server ``argv``."""
    whole = (
        f"import os, sys; argv = {bench.server()!r}; {code}; os.execvp(argv[0], argv)"
    )
    return [*PLAIN_PYTHON, whole, "--port", str(bench.port)]


def test_a_failed_trial_is_a_state_with_a_cause_and_no_score(bench: Bench) -> None:
    code = f"os.environ[{RESERVE!r}] == '0.4' or sys.exit(3)"
    tune = bench.tune(
        *("--trials", "3", "--then", "stop", "--load", LIGHT),
        server=wrapped(bench, code),
    )
    assert tune.wait() == 69, tune.err
    first, *others = bench.trials()
    assert first["state"] == "ok"
    for trial in others:
        assert trial["state"] == "not_ready"
        outcome = trial["outcome"]
        assert isinstance(outcome, dict)
        assert "exit code 3" in outcome["cause"]
        assert outcome["measurement"] is None
    assert "change nothing" not in tune.out.decode()
    assert "0 of 2 trials counted (2 not_ready)" in tune.out.decode()


def test_memory_that_runs_out_raises_what_is_tried_next(bench: Bench) -> None:
    # Other reserves meet many more graphs, and nothing beside the reserve to put them.
    code = (
        f"own = os.environ[{RESERVE!r}] == '0.4'; "
        "os.environ['VLLM_BUCKETING_STRATEGY'] = 'exp' if own else 'lin'; "
        "argv += [] if own else ['--gpu-memory-utilization', '0.999']"
    )
    tune = bench.tune(
        *("--trials", "3", "--then", "stop", "--load", LIGHT),
        server=wrapped(bench, code),
    )
    assert tune.wait() == 0, tune.err
    trials = bench.trials()
    assert [t["state"] for t in trials[:2]] == ["ok", "out_of_memory"]
    outcome, first, second = (
        trials[1]["outcome"],
        trials[1]["settings"],
        trials[2]["settings"],
    )
    assert isinstance(outcome, dict)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert outcome["phase"] == "warming"
    assert "wanted" in outcome["cause"]
    assert float(second[RESERVE]) > float(first[RESERVE])


def test_a_server_that_stands_still_has_failed_and_does_not_stay(bench: Bench) -> None:
    code = "print('INFO 11-30 10:00:00 [x.py:1] hello'); import time; time.sleep(600)"
    tune = bench.tune("--no-progress", "1", server=wrapped(bench, code))
    assert tune.wait() == 69
    assert "no word for 1 s" in tune.err
    facts = read_facts(bench.state / "default" / "trials" / "1" / "trial-0" / "facts")
    assert not facts.server_alive()


UNSTEADY = """
import itertools, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
count = itertools.count()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        time.sleep(0.6 if next(count) in (4, 5) else 0.05)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"choices": [{"text": " a"}]}\\n\\n' * 4)
        self.wfile.write(b'data: [DONE]\\n\\n')
server = ThreadingHTTPServer(('127.0.0.1', int(sys.argv[-1])), Handler)
print('(APIServer pid=7) INFO:     Application startup complete.')
server.serve_forever()
"""


def test_windows_that_differ_much_get_one_more(bench: Bench) -> None:
    # The first two requests are the warm pass; of two windows the second is slow.
    server = [*PLAIN_PYTHON, UNSTEADY, "--port", str(bench.port)]
    tune = bench.tune("--load", LIGHT, "--then", "stop", server=server)
    assert tune.wait() == 78  # its log shows no memory to tune
    (trial,) = bench.trials()
    outcome = trial["outcome"]
    assert isinstance(outcome, dict)
    assert len(outcome["measurement"]["windows"]) == 3
    assert "unsteady: windows differ by" in bench.study("show")


REFUSING = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        self.send_error(500)
server = ThreadingHTTPServer(('127.0.0.1', int(sys.argv[-1])), Handler)
print('(APIServer pid=7) INFO:     Application startup complete.')
server.serve_forever()
"""


def test_a_server_that_refuses_the_load_has_failed(bench: Bench) -> None:
    server = [*PLAIN_PYTHON, REFUSING, "--port", str(bench.port)]
    tune = bench.tune("--load", LIGHT, server=server)
    assert tune.wait() == 69
    assert "the load failed (HTTP 500" in tune.err
    assert [trial["state"] for trial in bench.trials()] == ["load_failed"]


def test_a_setting_that_is_overruled_ends_the_study(bench: Bench) -> None:
    code = f"os.environ[{RESERVE!r}] = '0.4'"
    tune = bench.tune(
        *("--trials", "5", "--then", "stop", "--load", LIGHT),
        server=wrapped(bench, code),
    )
    assert tune.wait() == 78
    trials = bench.trials()
    assert [t["state"] for t in trials] == ["ok", "setting_not_arrived"]
    said = "Nothing was compared: 0 of 1 trial counted (1 setting_not_arrived)."
    for text in (tune.out.decode(), bench.study("show")):
        assert said in text
        assert "but the log shows 0.4" in text
        assert "Before and after" not in text
    assert "nothing compared" in bench.study("list")
    assert not (bench.state / "default" / "best.env").exists()


def test_a_baseline_that_fails_is_one_sentence(bench: Bench) -> None:
    tune = bench.tune("--load", LIGHT, server=wrapped(bench, "sys.exit(7)"))
    assert tune.wait() == 69
    last = tune.err.strip().splitlines()[-1]
    assert last.startswith(
        "hpuwatch: error: your own configuration failed as the baseline"
    )
    assert "exit code 7" in last
    spool = bench.state / "default" / "trials" / "1" / "trial-0" / "spool"
    assert f"hpuwatch suggest {spool}" in last
    assert spool.exists()
    assert "Traceback" not in tune.err
    assert "exit code 7" in bench.study("show")


def test_a_baseline_without_memory_is_told_in_words(bench: Bench) -> None:
    server = bench.server("--gpu-memory-utilization", "0.999")
    tune = bench.tune("--load", LIGHT, server=server, env={RESERVE: "0.0001"})
    assert tune.wait() == 69
    last = tune.err.strip().splitlines()[-1]
    assert "device memory ran out in warm-up at " in last


def test_a_port_that_is_in_use_is_refused_before_anything_starts(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", bench.port)):
        tune = bench.tune("--load", LIGHT)
        assert tune.wait() == 69
    assert "is in use already" in tune.err
    assert bench.states() == []


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


def test_the_dry_run_changes_nothing(bench: Bench) -> None:
    plan = bench.tune("--dry-run", "--trials", "5", "--knobs", "reserve,buckets")
    assert plan.wait() == 0, plan.err
    text = plan.out.decode()
    assert "VLLM_GRAPH_RESERVED_MEM, VLLM_BUCKETING_STRATEGY" in text
    assert "unknown: 6 starts" in text
    assert not bench.state.exists()


@pytest.mark.parametrize(
    ("options", "server", "env", "code", "words"),
    [
        (
            [],
            ["no-such-program", "--port", "1"],
            {},
            69,
            "no command 'no-such-program'",
        ),
        ([], [*SIM], {}, 2, "no --port"),
        ([], [*SIM, "--port", "0"], {}, 2, "no --port"),
        (["--trials", "1"], [*SIM, "--port", "9"], {}, 2, "must be 2 or more"),
        (["--knobs", "speed"], [*SIM, "--port", "9"], {}, 2, "doesn't know 'speed'"),
        (["--load", "users=3"], [*SIM, "--port", "9"], {}, 2, "is not KEY=N"),
        (["--then", "dance"], [*SIM, "--port", "9"], {}, 2, "neither serve nor stop"),
        (["--resume"], [*SIM, "--port", "9"], {}, 66, "there is no study under"),
        (
            [],
            [*SIM, "--port", "9"],
            {"VLLM_SKIP_WARMUP": "true"},
            2,
            "VLLM_SKIP_WARMUP",
        ),
        ([], [*SIM, "--port", "9", "--enforce-eager"], {}, 2, "no graphs"),
        (
            [],
            ["env", f"{RESERVE}=0.3", *SIM, "--port", "9"],
            {},
            2,
            f"the command sets {RESERVE} itself",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    bench: Bench,
    options: list[str],
    server: list[str],
    env: dict[str, str],
    code: int,
    words: str,
) -> None:
    tune = bench.tune(*options, server=server, env=env)
    assert tune.wait() == code
    (line,) = tune.err.strip().splitlines()
    assert line.startswith("hpuwatch: error: ")
    assert words in line
    assert not bench.state.exists()


@pytest.mark.parametrize("verb", ["show", "export"])
def test_a_study_that_is_not_there_is_no_such_thing(bench: Bench, verb: str) -> None:
    argv = [*OURS, "study", verb, "7"]
    done = subprocess.run(argv, env=bench.env, capture_output=True, check=False)
    assert done.returncode == 66
    assert b"there is no study 7 under the name" in done.stderr


def test_studies_are_listed_shown_and_exported(bench: Bench) -> None:
    assert "There are no studies yet" in bench.study("list")
    tune = bench.tune("--trials", "2", "--then", "stop", "--load", LIGHT)
    assert tune.wait() == 0, tune.err
    assert "2 of 2  ended" in bench.study("list")
    (row,) = json.loads(bench.study("list", "--format", "json"))["studies"]
    assert (row["study"], row["trials"], row["ended"]) == (1, 2, True)
    assert bench.study("show", "1").startswith("Study 1 (SIMULATED)")
    heading, *rows = bench.study("export", "--format", "csv").splitlines()
    assert heading.startswith("number,origin,state,settings,tokens_per_second")
    assert len(rows) == 2
    assert rows[0].startswith("0,baseline,ok,,")
    document = json.loads(bench.study("export"))
    assert document["schema"] == "hpuwatch.study/1"
    assert document["study"]["reason"] == "All 2 starts of the budget were used."
    lines = bench.study("export", "--format", "jsonl").splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["hpuwatch.trial/1"] * 2
    assert [json.loads(line)["trial"] for line in lines] == document["trials"]
    again = bench.tune("--dry-run")
    assert again.wait() == 0, again.err
    assert "in an earlier study of this command" in again.out.decode()
    rest = bench.tune("--resume", "--dry-run", "--trials", "5", "--then", "stop")
    assert rest.wait() == 0, rest.err
    plan = rest.out.decode()
    assert "at most 3 more: 2 of 5 of study 1 are finished" in plan
    assert "2 requests, 2 at a time, about 16 tokens in, 4 out" in plan
    assert ": 3 starts, of " in plan
    assert stat.S_IMODE((bench.state / "default").stat().st_mode) == 0o700
    study = bench.state / "default" / "study.sqlite"
    assert stat.S_IMODE(study.stat().st_mode) == 0o600
