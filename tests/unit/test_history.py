"""Starts are remembered, and what was predicted of them is shown beside what came."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpuwatch.advise.account.outcome import (
    OBSERVED,
    Suggestion,
    accountability_lines,
    is_tried,
    outcomes,
)
from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.compare.settings import given, in_force, same_value
from hpuwatch.advise.document import FigurePart, Report, StartReport
from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.history import (
    history_of,
    history_text,
    kept_under,
    predictions_of,
    predictions_text,
)
from hpuwatch.app.reload import LiveRules
from hpuwatch.app.remember import BY_HAND, LiveStarts, Memory, settings_of_process
from hpuwatch.app.watch import Task, Watcher
from hpuwatch.cli.main import build
from hpuwatch.life.phases import Phase
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.instance import Instance
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.store.starts import FILE_NAME, StartStore
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.kept import divided, record_of_text
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import OUT_OF_MEMORY, start_of_text, state_of_text

pytestmark = pytest.mark.unit

RESERVE = "VLLM_GRAPH_RESERVED_MEM"
IDLE = divided(Told(used=0.5, profile=4.0))
LATER = IDLE.began.replace(hour=15)


@dataclass
class Desk:
    """A state directory, and reports that are made over it."""

    root: Path
    said: list[str] = field(default_factory=list)

    def memory(self, folder: Path | None = None) -> Memory:
        return Memory(self.root, FakeClock(), self.said.append, folder)

    def report(self, text: str, file: str = "x.log") -> StartReport:
        memory, logs = self.memory(), [(file, state_of_text(text))]
        factors = memory.widenings(logs)
        made = build_report(logs, shipped_findings(), factors)
        return memory.keep(made, logs).reports[0]

    @property
    def predictions(self) -> dict[str, tuple[float | None, bool | None]]:
        """What came of each figure of the oldest suggestion, and whether it was inside."""
        document = predictions_of(kept_under(self.root))
        first = min(row.start for row in document.predictions)
        return {
            row.figure: (row.observed, row.inside)
            for row in document.predictions
            if row.start == first
        }


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "state")


def followed(report: StartReport, **changes: object) -> Told:
    """A later life that runs with what a report proposes."""
    assert report.proposal is not None
    ratio = float(report.proposal.env[RESERVE])
    told = replace(IDLE, reserve=ratio, began=LATER, **changes)  # type: ignore[arg-type]
    return divided(told)


def test_predicted_stands_beside_observed(desk: Desk) -> None:
    first = desk.report(IDLE.text())
    assert first.accountability == []
    second = desk.report(followed(first).text())
    came = {each.figure: each for each in second.accountability}
    assert {"kv_blocks", "reserve_bytes", "warmup_seconds", "graph_bytes"} <= set(came)
    assert "decode_padding_percent" not in came  # no log tells
    assert came["kv_blocks"].observed == second.kv.blocks
    assert came["kv_blocks"].inside
    assert came["kv_blocks"].predicted == first.proposal.figures["kv_blocks"].value  # type: ignore[union-attr]
    assert came["kv_blocks"].suggested == f"{RESERVE}={second.memory.reserve_ratio}"
    observed, inside = desk.predictions["warmup_seconds"]
    assert (observed, inside) == (second.warmup.seconds, True)
    assert desk.said == []


def test_a_log_with_both_starts_tells_the_same(desk: Desk) -> None:
    after = followed(Desk(desk.root / "other").report(IDLE.text()))
    both = desk.report(IDLE.ended() + after.text())
    assert any(each.figure == "kv_blocks" for each in both.accountability)
    assert both.earlier[0].accountability == []
    assert len(history_of(kept_under(desk.root)).starts) == 2


def test_a_log_that_is_read_again_is_kept_once_and_says_the_same(desk: Desk) -> None:
    first = desk.report(IDLE.text())
    after = followed(first).text()
    again = [desk.report(text) for text in (IDLE.text(), after, after, IDLE.text())]
    assert again[0] == again[3] == first
    assert again[1] == again[2]
    document = history_of(kept_under(desk.root))
    assert [row.number for row in document.starts] == [2, 1]
    (row,) = (row for row in document.starts if row.number == 1)
    assert row.tried == 2
    (score,) = (
        each
        for each in predictions_of(kept_under(desk.root)).scores
        if each.figure == "kv_blocks"
    )
    assert (score.count, score.inside, score.hit_rate) == (1, 1, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"utilisation": 0.8},
        {"version": "0.21.0"},
        {"model": "acme/other-7b"},
        {"env": {"VLLM_DECODE_BS_BUCKET_MAX": "4"}},
    ],
    ids=str,
)
def test_another_change_beside_it_says_nothing_of_the_prediction(
    desk: Desk, change: dict[str, object]
) -> None:
    first = desk.report(IDLE.text())
    assert desk.report(followed(first, **change).text()).accountability == []
    assert desk.predictions["kv_blocks"] == (None, None)


def test_a_bad_prediction_widens_the_next_interval(desk: Desk) -> None:
    """The warm-up takes five times as long as it was predicted to."""
    first = desk.report(IDLE.text())
    slow = followed(first, prompt_seconds=10.0, decode_seconds=5.0)
    second = desk.report(slow.text())
    came = {each.figure: each for each in second.accountability}["warmup_seconds"]
    assert not came.inside
    line = next(e for e in accountability_lines(second.accountability) if "warm" in e)
    assert re.fullmatch(
        r"  warm-up: predicted 20 s \(\d+ s to \d+ s\), came 100 s: OUTSIDE", line
    )
    fresh = Desk(desk.root / "fresh").report(slow.text())
    unheard, heard = (
        each.proposal.figures["warmup_seconds"]  # type: ignore[union-attr]
        for each in (fresh, desk.report(slow.text()))
    )
    assert heard.high - heard.value > 3 * (unheard.high - unheard.value)
    (row,) = (
        row
        for row in predictions_of(kept_under(desk.root)).predictions
        if row.figure == "warmup_seconds" and row.start == 2
    )
    assert row.widened_by > 3


def test_a_start_that_died_of_memory_counts_as_missed(desk: Desk) -> None:
    first = desk.report(IDLE.text())
    dead = followed(first, stops_in="decode", stops_after=2)
    second = desk.report(dead.text() + OUT_OF_MEMORY)
    came = {each.figure: each for each in second.accountability}
    assert came["warmup_seconds"].observed is None
    assert not came["warmup_seconds"].inside
    assert came["kv_blocks"].inside
    assert "never came: the server died first: OUTSIDE" in "\n".join(
        accountability_lines(second.accountability)
    )
    assert "the server died first" in predictions_text(
        predictions_of(kept_under(desk.root))
    )


def test_another_death_says_nothing_of_what_never_came(desk: Desk) -> None:
    first = desk.report(IDLE.text())
    dead = followed(first, stops_in="decode", stops_after=2)
    second = desk.report(dead.dies("KeyError: 'a_layer'"))
    assert {each.figure for each in second.accountability} == {
        *("kv_blocks", "reserve_bytes", "prompt_buckets", "decode_buckets"),
    }


def test_simulated_and_measured_starts_make_no_score_together() -> None:
    measured = record_of_text(IDLE.text())
    simulated = measured.model_copy(update={"origin": "simulated"})
    made = Suggestion(env={RESERVE: "0.05"})
    after = record_of_text(divided(replace(IDLE, reserve=0.05)).text())
    assert is_tried(made, measured, after)
    assert not is_tried(made, simulated, after)


def test_a_setting_that_no_log_shows_is_not_taken_for_tried() -> None:
    before = record_of_text(IDLE.text())
    unseen = Suggestion(env={"VLLM_ENGINE_READY_TIMEOUT_S": "1200"})
    assert not is_tried(unseen, before, before)
    both = Suggestion(env={"VLLM_ENGINE_READY_TIMEOUT_S": "1200", RESERVE: "0.05"})
    after = record_of_text(divided(replace(IDLE, reserve=0.05)).text())
    assert is_tried(both, before, after)


def test_what_was_to_go_is_gone() -> None:
    limited = replace(IDLE, env={"VLLM_DECODE_BS_BUCKET_MAX": "4"})
    before, after = record_of_text(limited.text()), record_of_text(IDLE.text())
    gone = Suggestion(unset=("VLLM_DECODE_BS_BUCKET_MAX",))
    assert is_tried(gone, before, after)
    assert not is_tried(gone, before, before)


def test_every_predicted_figure_can_be_observed_or_is_known_not_to_be(
    desk: Desk,
) -> None:
    proposal = desk.report(IDLE.text()).proposal
    assert proposal is not None
    unseen = {name for name in proposal.figures if name not in OBSERVED}
    of_blocks = {"kv_blocks_won", "kv_tokens", "kv_cache_bytes"}
    assert all(name.endswith("_padding_percent") for name in unseen - of_blocks)


def test_flags_are_read_as_they_are_typed() -> None:
    made = Suggestion(
        flags=("--max-model-len", "4096"),
        figures={
            "kv_blocks": FigurePart(value=1, low=1, high=1, origin="predicted"),
            "unheard_of": FigurePart(value=1, low=1, high=1, origin="prior"),
        },
    )
    assert made.text() == "--max-model-len 4096"
    before = record_of_text(IDLE.text())
    changed = {**before.settings, "--max-model-len": "4096"}
    after = before.model_copy(update={"settings": changed})
    assert is_tried(made, before, after)
    (only,) = outcomes(made, before, after)
    assert only.observed == after.kv.blocks


def test_a_size_that_only_follows_a_suggested_one_is_no_other_change() -> None:
    """The fork's token budget is the model's length where nobody gives one."""
    made = Suggestion(flags=("--max-model-len", "4096"))
    before = record_of_text(IDLE.text())

    def sized(length: int, tokens: int) -> StartRecord:
        sizes = {"--max-model-len": length, "--max-num-batched-tokens": tokens}
        settings = {**before.settings, **{k: str(v) for k, v in sizes.items()}}
        server = before.server.model_copy(update={"max_model_len": length})
        return before.model_copy(update={"settings": settings, "server": server})

    assert is_tried(made, sized(8192, 8192), sized(4096, 4096))
    assert not is_tried(made, sized(8192, 8192), sized(4096, 2048))


def test_a_plan_of_another_hpuwatch_is_left_out() -> None:
    text = record_of_text(IDLE.text()).model_dump_json(by_alias=True)
    record = json.loads(text)
    assert StartRecord.model_validate(record).plan is not None
    record["plan"]["flags"] = "written in another form"
    assert StartRecord.model_validate(record).plan is None


COMPILE_FAILED = (
    "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
)


def test_case_14_what_served_before_is_known_from_the_history(desk: Desk) -> None:
    good = replace(IDLE, version="0.24.0")
    assert desk.report(good.text()).against is None
    bad = replace(good, version="0.26.0", began=LATER, stops_in="decode", stops_after=2)
    against = desk.report(bad.dies(COMPILE_FAILED)).against
    assert against is not None
    assert against.start == "suggest@1"
    assert against.said[0].startswith("suggest@1 served; this start died in the phase")
    assert "served under 0.24.0 and died under 0.26.0" in against.said[1]
    text = render_text(
        Report(reports=[desk.report(bad.dies(COMPILE_FAILED))]), width=None
    )
    assert "Against the last good start, suggest@1 (" in text


def test_case_19_a_pace_far_below_the_last_start_is_told_while_it_warms(
    desk: Desk,
) -> None:
    parallel = {"FUSER_ENABLE_MULTI_THREADED_INVOCATIONS": "1"}
    desk.report(replace(IDLE, env=parallel).text())
    slow = replace(IDLE, began=LATER, decode_seconds=15.0, stops_in="decode")
    against = desk.report(replace(slow, stops_after=5).text()).against
    assert against is not None
    (sentence,) = against.said
    assert "15.0 times as long each in this start" in sentence
    assert "FUSER_ENABLE_MULTI_THREADED_INVOCATIONS" in sentence


@pytest.mark.parametrize(
    "change",
    [{}, {"model": "acme/other-7b", "free": 60.0}, {"free": 84.0}, {"free": 79.5}],
    ids=["the same", "another model", "more room", "hardly less room"],
)
def test_no_regression_is_told_where_there_is_none(
    desk: Desk, change: dict[str, Any]
) -> None:
    desk.report(IDLE.text())
    later = divided(replace(IDLE, began=LATER, **change))
    assert desk.report(later.text()).against is None


def test_an_unusable_store_costs_one_sentence_and_no_report(desk: Desk) -> None:
    desk.root.parent.joinpath("state").write_text("in the way")
    report = desk.report(IDLE.text())
    assert report.proposal is not None
    assert len(desk.said) == 1
    assert "goes on without remembering starts" in desk.said[0]


def test_a_full_disk_costs_one_sentence_and_no_report(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: StartStore, *_: object) -> int:
        with store._told():
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(StartStore, "keep", full)
    plain = build_report([("x.log", state_of_text(IDLE.text()))], shipped_findings())
    assert desk.report(IDLE.text()) == plain.reports[0]
    (said,) = desk.said
    assert "free some room there" in said


def test_a_broken_store_costs_one_sentence_and_no_report(desk: Desk) -> None:
    folder = desk.root / BY_HAND
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_text(
        "not a database, but long enough to look like\n" * 99
    )
    assert desk.report(IDLE.text()).proposal is not None
    assert len(desk.said) == 1


def test_no_secret_is_kept(desk: Desk) -> None:
    key = "sk-" + "abcdef0123456789"
    told = replace(IDLE, args={"api_key": key}, env={"VLLM_API_KEY": key})
    desk.report(told.text())
    assert len(history_of(kept_under(desk.root)).starts) == 1
    assert key.encode() not in (desk.root / BY_HAND / FILE_NAME).read_bytes()
    words = ["vllm", "serve", "m", "--api-key", key, "--max-num-seqs", "5", "--x", key]
    env = {"VLLM_API_KEY": key, "HOME": "/home/me", "VLLM_SKIP_WARMUP": "true"}
    assert given(words, env) == {
        "--max-num-seqs": "5",
        "VLLM_API_KEY": "***",
        "VLLM_SKIP_WARMUP": "true",
    }


def test_the_settings_of_a_process_are_those_it_was_started_with() -> None:
    script = "print('up', flush=True); input()"
    words = [sys.executable, "-c", script, "serve", "m", "--max-num-seqs", "5"]
    with subprocess.Popen(
        words,
        env={"VLLM_SKIP_WARMUP": "1", "HOME": "/home/me"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        seen = settings_of_process(server.pid)
        server.communicate(b"\n")
    assert seen == {"--max-num-seqs": "5", "VLLM_SKIP_WARMUP": "1"}
    assert settings_of_process(2**22 + 1) == {}


def test_what_the_log_shows_goes_by_the_names_that_people_type() -> None:
    told = replace(IDLE, args={"max_num_seqs": 8}, env={"VLLM_SKIP_WARMUP": "true"})
    assert (
        in_force(start_of_text(told.text())).items()
        >= {
            "--max-num-seqs": "8",
            "--max-model-len": "8192",
            "--gpu-memory-utilization": "0.9",
            "VLLM_BUCKETING_STRATEGY": "lin",
            "VLLM_SKIP_WARMUP": "true",
            RESERVE: "0.1",
        }.items()
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.4", "0.40", True),
        ("True", "1", True),
        ("off", "false", True),
        ("0.051", "0.05", False),
        ("exp", "lin", False),
        ("1", "false", False),
    ],
)
def test_one_value_may_be_written_in_several_ways(
    one: str, other: str, same: bool
) -> None:
    assert same_value(one, other) is same


def live(text: str, phase: Phase = Phase.READY) -> Snapshot:
    return Snapshot(name="mine", phase=phase, state=state_of_text(text, 5.0))


def test_a_watched_server_is_kept_once_it_is_ready_and_as_it_ends(desk: Desk) -> None:
    folder = desk.root / "mine"
    starts = LiveStarts("spool", desk.memory(folder))
    starts.look(live(replace(IDLE, stops_in="decode", stops_after=1).text()))
    starts.close(state_of_text(""))
    assert not folder.exists()
    starts.look(live(IDLE.text()))
    starts.look(live(IDLE.text()))
    starts.close(state_of_text(IDLE.ended(), 5.0))
    (row,) = history_of(kept_under(desk.root, "mine")).starts
    assert (row.name, row.file, row.phase) == ("mine", "spool", "draining")
    assert row.suggested is not None
    assert desk.said == []


def test_what_breaks_while_it_is_kept_costs_the_watch_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Report:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("hpuwatch.app.remember.build_report", broken)
    starts = LiveStarts("spool", desk.memory(desk.root / "mine"))
    starts.close(state_of_text(IDLE.text()))
    assert desk.said == ["a fault of ours; hpuwatch goes on without remembering starts"]


def test_the_output_of_a_run_is_kept_under_its_name(desk: Desk) -> None:
    folder = desk.root / "mine"
    folder.mkdir(parents=True)
    (folder / "facts").touch()
    desk.report(IDLE.text(), str(folder / "spool"))
    desk.report(IDLE.text(), str(desk.root / "elsewhere" / "spool"))
    kept = kept_under(desk.root)
    assert [(each.name, len(each.starts)) for each in kept] == [
        ("mine", 1),
        (BY_HAND, 1),
    ]
    assert [each.name for each in kept_under(desk.root, "mine")] == ["mine"]


def test_what_a_run_was_given_outlives_a_reading_of_its_log(desk: Desk) -> None:
    folder = desk.root / "mine"
    folder.mkdir(parents=True)
    (folder / "facts").touch()
    hidden = {"VLLM_ENGINE_READY_TIMEOUT_S": "900"}
    memory = Memory(desk.root, FakeClock(), desk.said.append, folder, lambda: hidden)
    LiveStarts(str(folder / "spool"), memory).close(state_of_text(IDLE.text()))
    desk.report(IDLE.text(), str(folder / "spool"))
    (row,) = history_of(kept_under(desk.root)).starts
    assert row.settings.items() >= hidden.items()
    assert row.settings[RESERVE] == "0.1"


def test_an_old_suggestion_stays_when_more_starts_come_behind_it(desk: Desk) -> None:
    """Of a long log only the last two starts are predicted anew."""
    text = IDLE.ended()
    desk.report(text)
    for hour in (16, 17):
        text += divided(replace(IDLE, began=IDLE.began.replace(hour=hour))).ended()
        desk.report(text)
    rows = history_of(kept_under(desk.root)).starts
    assert [row.number for row in rows if row.suggested] == [3, 2, 1]


def test_a_watched_run_is_kept(desk: Desk) -> None:
    """The watcher of ``run`` keeps what it has watched, beside its spool."""
    instance = Instance(desk.root, "mine")
    instance.acquire()
    instance.begin(["x"], FakeClock())
    instance.spool.write_text(IDLE.text())
    task = Task("mine", "127.0.0.1:0", instance.files, echo=False)
    watcher = Watcher(task, LiveRules(None, print), FakeClock())
    try:
        while not watcher._tick():
            pass
        watcher._finish(ExitRecord(0, None, asked=True, ended_at=1.0))
    finally:
        watcher._door.close()
        watcher._room.close()
        instance.release()
    (row,) = history_of(kept_under(desk.root, "mine")).starts
    assert (row.phase, row.file) == ("ready", str(instance.spool))


def test_nothing_remembered_is_said(tmp_path: Path) -> None:
    assert "Nothing is remembered yet" in history_text(history_of(kept_under(tmp_path)))
    assert "Nothing was predicted yet" in predictions_text(
        predictions_of(kept_under(tmp_path))
    )


def verb(*words: str) -> str:
    """Run one of our verbs and return what it says on stdout."""
    result = CliRunner().invoke(build(), words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_verbs(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suggestion, a start that follows it, and the score."""
    monkeypatch.setenv("HPUWATCH_STATE_DIR", str(desk.root))
    before, after = tmp_path / "before.log", tmp_path / "after.log"
    before.write_text(IDLE.text())
    kept = desk.root / BY_HAND / FILE_NAME
    verb("suggest", str(before), "--no-store")
    assert not kept.exists()
    first = json.loads(verb("suggest", str(before), "--format", "json"))
    assert kept.stat().st_mode & 0o777 == 0o600
    after.write_text(followed(Report.model_validate(first).reports[0]).text())
    text = verb("suggest", str(after))
    assert re.search(rf"Predicted and observed \({RESERVE}=\S+\):\s+\d+ of \d+", text)
    scored = json.loads(verb("history", "--predictions", "--format", "json"))
    assert scored["schema"] == "hpuwatch.predictions/1"
    assert {row["figure"] for row in scored["scores"]} >= {"kv_blocks", "graph_bytes"}


def test_a_log_that_is_attached_to_is_kept(desk: Desk) -> None:
    words = [sys.executable, "-m", "hpuwatch", "attach", "--log", "-"]
    state = {"HPUWATCH_STATE_DIR": str(desk.root), "HPUWATCH_LISTEN": "127.0.0.1:0"}
    attached = subprocess.run(
        words,
        input=IDLE.text(),
        env={**os.environ, **state},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "remembering" not in attached.stderr
    (row,) = history_of(kept_under(desk.root, "default")).starts
    assert (row.phase, row.suggested is None) == ("ready", False)


def test_the_tables_of_history(desk: Desk) -> None:
    first = desk.report(IDLE.text())
    desk.report(followed(first).text())
    kept = kept_under(desk.root)
    document = history_of(kept)
    assert document.model_dump(by_alias=True)["schema"] == "hpuwatch.history/1"
    head, newest, oldest = history_text(document).splitlines()
    assert head.split()[:2] == ["start", "read"]
    assert newest.startswith("suggest@2")
    assert oldest.startswith("suggest@1")
    text = predictions_text(predictions_of(kept))
    assert "What predictions were worth" in text
    assert f"suggest@1, {RESERVE}=" in text
    assert "tried by suggest@2" in text
    (warmup,) = (line for line in text.splitlines() if line.startswith("    warm-up"))
    assert re.search(r"came \S+ s +[+-]\d+\.\d % +inside$", warmup)
    assert "suggest@2, " not in text
    assert text.splitlines()[-1].startswith("1 suggestion not tried yet: --format json")
