"""Trials that fail: each is a state with a cause, and the study says so."""

from __future__ import annotations

import pytest

from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.runtime.facts import read_facts
from hpuwatch.testing.programs import PLAIN_PYTHON
from hpuwatch.testing.tuning import LIGHT, Bench

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)


def test_a_failed_trial_is_a_state_with_a_cause_and_no_score(bench: Bench) -> None:
    code = f"os.environ[{RESERVE!r}] == '0.4' or sys.exit(3)"
    tune = bench.tune(
        *("--trials", "3", "--then", "stop", "--load", LIGHT),
        server=bench.wrapped(code),
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
        server=bench.wrapped(code),
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
    tune = bench.tune("--no-progress", "1", server=bench.wrapped(code))
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
        server=bench.wrapped(code),
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
    tune = bench.tune("--load", LIGHT, server=bench.wrapped("sys.exit(7)"))
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
