"""``hpuwatch parse`` and ``hpuwatch rules`` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hpuwatch.cli.main import build
from hpuwatch.errors import (
    ConfigError,
    HpuwatchError,
    InputError,
    MissingFileError,
    RuleError,
    UsageError,
)

pytestmark = pytest.mark.unit

LOG = """\
(EngineCore pid=9) INFO 11-29 12:29:10 [hpu_worker.py:432] Bucketing is ON.
(EngineCore pid=9) INFO 11-29 12:29:11 [runner.py:1] Warmup finished in 49 secs, allocated 14.2 GiB of device memory
(EngineCore pid=9) WARNING 11-29 12:29:12 [new.py:1] Something new: 5
(EngineCore pid=9) WARNING 11-29 12:29:13 [new.py:1] Something new: 6
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(build(), list(words))


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    return str(path)


def test_text(log: str) -> None:
    rows = run("parse", log).stdout.splitlines()
    assert rows[0].split(maxsplit=1)[1] == "bucketing_switch  enabled=True"
    assert rows[1].split() == ["2", "warmup_finished", "s=49.0", "mem=14.2", "GiB"]


def test_jsonl(log: str) -> None:
    rows = [
        json.loads(row)
        for row in run("parse", log, "--format", "jsonl").stdout.splitlines()
    ]
    assert [row["schema"] for row in rows] == ["hpuwatch.event/1"] * 2
    assert rows[1]["fields"]["mem"] == {"bytes": 15247133901, "printed": "14.2 GiB"}
    assert rows[1]["speaker"] == {
        "process": "EngineCore",
        "pid": 9,
        "rank": 0,
        "engine": 0,
        "stage": 0,
    }
    assert rows[1]["line"]["number"] == 2


def test_json(log: str) -> None:
    document = json.loads(run("parse", log, "--format", "json").stdout)
    assert document["schema"] == "hpuwatch.event/1"
    assert [event["kind"] for event in document["events"]] == [
        "bucketing_switch",
        "warmup_finished",
    ]


def test_unmatched(log: str) -> None:
    document = json.loads(run("parse", log, "--unmatched", "--format", "json").stdout)
    assert document == {
        "schema": "hpuwatch.unmatched/1",
        "templates": [
            {
                "template": "Something new: <n>",
                "level": "WARNING",
                "count": 2,
                "example": LOG.splitlines()[2],
            }
        ],
    }
    assert run("parse", log, "--unmatched").stdout.split() == (
        ["2", "WARNING", "Something", "new:", "<n>"]
    )
    (row,) = run("parse", log, "--unmatched", "--format", "jsonl").stdout.splitlines()
    assert json.loads(row)["count"] == 2


STATS = {
    "schema": "hpuwatch.stats/1",
    "lines": 9,
    "unparsed": 2,
    "levels": {
        "INFO": {"records": 3, "matched": 2, "noise": 1, "block": 0, "unmatched": 0},
        "WARNING": {"records": 2, "matched": 0, "noise": 0, "block": 0, "unmatched": 2},
        "none": {"records": 4, "matched": 0, "noise": 0, "block": 4, "unmatched": 0},
        "all": {"records": 9, "matched": 2, "noise": 1, "block": 4, "unmatched": 2},
    },
    "events": {"bucketing_switch": 1, "warmup_finished": 1, "fault": 1},
    "faults": {"unknown_exception": 1},
}


@pytest.fixture
def long_log(log: str) -> str:
    text = (
        '(APIServer pid=7) INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n'
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in warm\n'
        "    warm()\n"
        "WeirdError: what is this\n"
    )
    Path(log).write_text(LOG + text)
    return log


def test_stats(long_log: str) -> None:
    words = ["parse", long_log, "--stats"]
    assert json.loads(run(*words, "--format", "json").stdout) == STATS
    (row,) = run(*words, "--format", "jsonl").stdout.splitlines()
    assert json.loads(row) == STATS
    rows = [line.split() for line in run(*words).stdout.splitlines()]
    assert ["WARNING", "2", "0", "0", "0", "2"] in rows
    assert ["1", "unknown_exception"] in rows


def test_stats_and_events_agree(long_log: str) -> None:
    events = json.loads(run("parse", long_log, "--format", "json").stdout)["events"]
    assert len(events) == sum(STATS["events"].values())  # type: ignore[attr-defined]  # a literal


def test_stats_beside_unmatched_is_refused(log: str) -> None:
    result = run("parse", log, "--stats", "--unmatched")
    assert isinstance(result.exception, UsageError)


def test_shared_output_tells_of_no_site(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    head = "(RayWorkerWrapper pid=9, ip=10.2.3.4) "
    path.write_text(
        f"{head}INFO 11-29 12:29:10 [r.py:1] Starting to load model /srv/m/x...\n"
        f"{head}WARNING 11-29 12:29:10 [r.py:1] tcp://gaudi-7.lab:80 is new to /srv/us\n"
        f"{head}WARNING 11-29 12:29:10 [r.py:1] node-17.gaudi-7.internal has ./srv/us\n"
    )
    for options in ([], ["--unmatched"], ["--format", "jsonl"], ["--format", "json"]):
        plain = run("parse", str(path), *options).stdout
        shared = run("parse", str(path), "--share", *options).stdout
        assert "/srv" in plain or options == ["--unmatched"]
        assert not any(
            word in shared for word in ("10.2.3.4", "/srv", "gaudi-", "node-")
        )
        assert len(shared.splitlines()) == len(plain.splitlines())


def test_standard_input() -> None:
    result = CliRunner().invoke(build(), ["parse", "-"], input=LOG)
    assert "warmup_finished" in result.stdout


def test_json_has_no_infinity(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "INFO 11-29 12:29:11 [r.py:1] Warmup finished in inf secs, allocated 1 B of device memory\n"
    )
    row = json.loads(run("parse", str(path), "--format", "jsonl").stdout)
    assert row["fields"]["s"] is None


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        (("parse", "/no/such.log"), MissingFileError, 66),
        (("parse", "/"), InputError, 65),
        (("parse", "/dev/null"), InputError, 65),
        (("parse", "-", "--format", "xml"), UsageError, 2),
        (("rules", "list", "--format", "xml"), UsageError, 2),
        (("rules", "check", "/a", "--rules", "/b"), UsageError, 2),
        (("rules", "check", "/no/such.yaml"), ConfigError, 78),
    ],
)
def test_errors(words: tuple[str, ...], error: type[HpuwatchError], code: int) -> None:
    result = run(*words)
    assert isinstance(result.exception, error)
    assert error.exit_code == code
    assert len(str(result.exception).splitlines()) == 1


def test_rules_of_ones_own(log: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.yaml").write_text(
        'config_version: 1\nrules:\n  - event: mine\n    patterns: ["Something new: {x:int}"]\n'
        '    examples:\n      - {line: "Something new: 5", fields: {x: 5}}\n'
    )
    assert "mine  x=5" in run("parse", log, "--rules", str(own)).stdout
    assert run("rules", "check", str(own)).stdout == (
        "1 rule with 1 pattern in 1 file: no mistake\n"
    )
    assert "examples: 1 match" in run("rules", "test", str(own / "mine.yaml")).stdout
    assert "Something new: {x:int}" in run("rules", "list", str(own)).stdout
    for verb in ("list", "check", "test"):
        named = run("rules", verb, "--rules", str(own))
        assert named.exit_code == 0
        assert named.stdout == run("rules", verb, str(own)).stdout


def test_an_empty_folder_holds_no_rules(tmp_path: Path) -> None:
    result = run("rules", "check", str(tmp_path))
    assert isinstance(result.exception, ConfigError)


def test_broken_rules_are_told_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("config_version: 1\nrules:\n  - event: mine\n")
    result = run("rules", "check", str(path))
    assert isinstance(result.exception, RuleError)
    assert f"{path}:3: rules.0.patterns: Field required" in str(result.exception)


def test_rules_that_break_their_word(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        'config_version: 1\nrules:\n  - event: mine\n    patterns: ["new: {x:int}"]\n'
    )
    result = run("rules", "test", str(path))
    assert isinstance(result.exception, RuleError)
    assert "no example" in str(result.exception)


def test_the_shipped_rules() -> None:
    assert "no mistake" in run("rules", "check").stdout
    assert "near misses: " in run("rules", "test").stdout
    document = json.loads(run("rules", "list", "--format", "json").stdout)
    assert document["schema"] == "hpuwatch.rules/1"
    assert {"memory_split", "fault"} <= {rule["event"] for rule in document["rules"]}
