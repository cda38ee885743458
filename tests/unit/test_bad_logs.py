"""Logs that are cut, mixed, contradictory, foreign or too new: said, and judged as far as it goes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.document import StartReport
from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.report import report_of
from hpuwatch.errors import InputError
from hpuwatch.state.warmup_timed import timed_start
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import start_of_text, state_of_text

pytestmark = pytest.mark.unit

IDLE = Told(used=0.5)
OTHER = Told(
    pid=81,
    engine_pid=90,
    model="acme/large-70b",
    free=40.0,
    blocks=900,
    address="http://127.0.0.1:8001",
)


GAVE_UP = (
    "TimeoutError: Timed out waiting for engine core processes to start. This is often "
    "caused by slow weight loading for large models. Waited 600s (configured by "
    "VLLM_ENGINE_READY_TIMEOUT_S)."
)


def reported(text: str) -> StartReport:
    (only,) = build_report([("s.log", state_of_text(text))], shipped_findings()).reports
    return only


def names(report: StartReport) -> list[str]:
    return [each.name for each in report.findings]


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def mixed(one: str, other: str) -> str:
    pairs = zip_longest(lines_of(one), lines_of(other), fillvalue="")
    return "".join(chain.from_iterable(pairs))


def test_a_whole_log_leaves_open_only_what_no_log_of_it_can_tell() -> None:
    report = reported(IDLE.text())
    (only,) = report.not_established
    assert only.startswith("How it does under load")


def test_a_log_from_the_middle_of_a_run() -> None:
    text = "".join(lines_of(IDLE.text())[-8:])
    report = reported(text)
    assert "log-incomplete" in names(report)
    said = " ".join(report.not_established)
    for words in ("no line tells its version", "no line names it", "the reserve"):
        assert words in said
    assert report.warmup.seconds == 20, "what is there is told"
    assert report.proposal is None


def test_the_last_lines_of_a_stopped_server_show_no_start_that_failed() -> None:
    text = "".join(lines_of(IDLE.ended("stopped"))[-1:])
    report = reported(text * 3)
    assert "stopped" in names(report)
    assert "log-incomplete" in names(report)
    assert not {"stopped-early", "restart-loop"} & {*names(report)}


def test_a_log_that_was_cut_at_its_end() -> None:
    text = "".join(lines_of(IDLE.text())[:17])
    report = reported(text)
    assert names(report) == ["not-ready"]
    assert report.memory.printed["free"] == "80 GiB"
    assert report.proposal is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.integers(0, 4000))
def test_no_cut_can_break_the_report(begin: int, length: int) -> None:
    whole = IDLE.text() + OTHER.dies("KeyError: 7")
    state = state_of_text(whole[begin : begin + length])
    report = build_report([("s.log", state)], shipped_findings())
    assert render_text(report)
    for each in report.reports:
        for finding in each.findings:
            assert finding.evidence, finding.code
        if "log-incomplete" in names(each):
            assert each.not_established


@pytest.mark.parametrize("late", [False, True])
def test_two_servers_in_one_log_are_told_apart_by_nobody(late: bool) -> None:
    if late:
        stats = (
            "(APIServer pid=11) INFO 03-04 11:00:00 [loggers.py:1] Engine 000: Avg "
            "prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, "
            "Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache "
            "hit rate: 0.0%\n"
        )
        text = IDLE.text() + mixed(OTHER.text(), stats * 9)
    else:
        text = mixed(IDLE.text(), OTHER.text())
    report = reported(text)
    seen = next(each for each in report.findings if each.name == "log-mixed")
    assert "11" in seen.title
    assert "81" in seen.title
    assert len(seen.evidence) >= 2
    assert report.not_established[0].startswith("Whose figures these are")


def test_two_splits_of_one_card_contradict_each_other() -> None:
    report = reported(mixed(IDLE.text(), OTHER.text()))
    seen = next(each for each in report.findings if each.name == "log-contradicts")
    assert "80 GiB and 40 GiB" in seen.title
    assert [line.text.count("Free device memory") for line in seen.evidence] == [1, 1]


def test_no_proposal_rests_on_a_split_that_cannot_be() -> None:
    text = IDLE.text()
    usual = f"gpu_memory_utilization={IDLE.utilisation:g})"
    report = reported(text.replace(usual, "gpu_memory_utilization=9.0)"))
    seen = next(each for each in report.findings if each.name == "log-contradicts")
    assert "72 GiB of usable memory for a share of 9 of the 80 GiB" in seen.title
    assert any("can't be right" in each for each in report.not_established)
    assert reported(text).proposal is not None
    assert report.proposal is None


@pytest.mark.parametrize(
    "text",
    [
        IDLE.text() + IDLE.text(),  # a restart
        IDLE.ended("stopped") + OTHER.text(),  # another server after it
        Told(began=IDLE.began + timedelta(days=1)).text(),
    ],
)
def test_one_server_after_the_other_is_no_mixture(text: str) -> None:
    assert not {"log-mixed", "log-contradicts"} & {*names(reported(text))}


def test_several_api_processes_of_one_server_are_no_mixture() -> None:
    more = "".join(
        f"(ApiServer_{n} pid={40 + n}) INFO 03-04 10:02:00 [api.py:1] Starting vLLM API "
        f"server {n} on http://127.0.0.1:8000\n"
        for n in range(3)
    )
    assert "log-mixed" not in names(reported(IDLE.text() + more))


def test_a_newer_release_is_read_with_care() -> None:
    report = reported(Told(version="0.41.0", used=0.5).text())
    assert "release-newer" in names(report)
    assert any("newer than those" in said for said in report.not_established)
    assert report.kv.blocks == 4146
    assert "reserve-idle" in names(report), "what is printed still holds"


def test_a_log_of_cuda_gets_a_clear_sentence(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "INFO 03-04 10:00:00 [cuda.py:1] Using Flash Attention backend on V1 engine.\n"
        "INFO 03-04 10:00:09 [gpu_model_runner.py:1] Graph capturing finished in 9 secs\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="looks like the log of a server on CUDA"):
        report_of([str(log)])


def test_the_text_tells_what_was_not_established() -> None:
    text = "".join(lines_of(IDLE.text())[-8:])
    report = build_report([("s.log", state_of_text(text))], shipped_findings())
    said = " ".join(render_text(report).split())
    for sentence in report.reports[0].not_established:
        assert sentence in said


def timeouts(report: StartReport) -> list[str]:
    changes = report.proposal.env if report.proposal else {}
    return [value for name, value in changes.items() if "READY_TIMEOUT" in name]


def test_times_that_cannot_be_are_no_ground_for_a_time_out() -> None:
    cut = Told(stops_in="decode", stops_after=3)
    slow = reported(replace(cut, decode_seconds=80.0).dies(GAVE_UP))
    assert timeouts(slow) == ["2100"]
    assert not any("more than a week" in each for each in slow.not_established)
    absurd = reported(replace(cut, decode_seconds=4e5).dies(GAVE_UP))
    assert timeouts(absurd) == ["1200"], "twice what was not enough"
    assert any("more than a week" in each for each in absurd.not_established)
    assert "warmup-long" not in names(absurd)


def test_nobody_can_tell_whose_times_a_mixed_log_has() -> None:
    slow = Told(decode_seconds=80.0, stops_in="decode", stops_after=3).dies(GAVE_UP)
    usual = "(gpu_memory_utilization=0.9)"
    assert not timeouts(reported(slow.replace(usual, "(gpu_memory_utilization=0.5)")))


def test_phases_that_outlast_their_warmup_teach_nothing() -> None:
    text = Told(decode_seconds=30.0).text()
    (took,) = re.findall(r"Warmup finished in (\d+) secs", text)
    timed = timed_start(start_of_text(text))
    assert timed is not None
    assert timed.phase_seconds
    hasty = text.replace(f"finished in {took} secs", "finished in 14 secs")
    timed = timed_start(start_of_text(hasty))
    assert timed is not None
    assert timed.total_seconds == 14
    assert not timed.phase_seconds
