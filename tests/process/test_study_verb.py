"""``hpuwatch study`` from the outside."""

from __future__ import annotations

import json
import stat
import subprocess

import pytest

from hpuwatch.testing.programs import OURS
from hpuwatch.testing.tuning import LIGHT, Bench

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)


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
    picture = bench.state.parent / "study.svg"
    assert bench.study("plot", "1", "--out", str(picture)) == f"Drawn: {picture}\n"
    assert "SIMULATED" in picture.read_text("utf-8")
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
