"""Advice that was wrong once: what a server proved, what a plan costs, and what is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpuwatch.advise.account.record import is_further, proof_of, record_of
from hpuwatch.advise.baseline import baseline_of, captured_blocks, lesson_of
from hpuwatch.advise.compare.said import Pair, regressions
from hpuwatch.advise.document import StartReport
from hpuwatch.advise.plan.whole import planned
from hpuwatch.advise.render.settings import render_diff
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.remember import Memory
from hpuwatch.app.remember import reported as reported_by
from hpuwatch.app.report import report_of
from hpuwatch.gaudi.predict import predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.testing.agreement import contradictions
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.kept import divided, record_of_text
from hpuwatch.testing.lives import DECODE, Told
from hpuwatch.testing.logs import OUT_OF_MEMORY, start_of_text, state_of_text

pytestmark = pytest.mark.unit

RESERVE = "VLLM_GRAPH_RESERVED_MEM"
SKIP = "VLLM_SKIP_WARMUP"
SEQS = "--max-num-seqs"
UTILISATION = "--gpu-memory-utilization"

DEEP = replace(
    divided(Told(args={"max_num_seqs": 64, "max_model_len": 131072}, strategy="exp")),
    decode=(*DECODE, (64, 1, 65536)),
)
"""Its last bucket has many times the blocks of the card, and is captured first."""
IDLE = divided(Told(used=0.5, profile=4.0))
BUSY = (
    "(APIServer pid=11) INFO 03-04 12:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: "
    "9.0 tokens/s, Avg generation throughput: 90.0 tokens/s, Running: 8 reqs, Waiting: 9 "
    "reqs, GPU KV cache usage: 97.0%, Prefix cache hit rate: 0.0%\n"
)
MISSED = (
    "(EngineCore pid=30) WARNING 03-04 12:00:01 [m.py:1] Configuration: ('decode', 3, 1, "
    "64) was not warmed-up!\n"
)


def reported(*texts: str) -> StartReport:
    logs = [(f"{n}.log", state_of_text(text)) for n, text in enumerate(texts)]
    return build_report(logs, shipped_findings()).reports[-1]


def died(start: Told) -> str:
    return start.text() + OUT_OF_MEMORY.replace("pid=7", "pid=30")


def skipped(start: Told) -> str:
    text = replace(start, stops_in="prompt").text()
    where = text.index("(EngineCore", text.index("Generated"))
    said = "(EngineCore pid=30) INFO 03-04 10:01:09 [m.py:1] Skipping warmup...\n"
    return text[:where] + said + text[where:] + "INFO: Application startup complete.\n"


def test_what_a_warm_up_captured_is_no_reason_against_a_plan() -> None:
    """Pains 10 and 11: how deep a bucket may be is read off the log, and never modelled."""
    tenth = start_of_text(died(replace(DEEP, stops_in="decode", stops_after=3)))
    assert captured_blocks(tenth) == 65536
    baseline = baseline_of([tenth])
    assert baseline is not None
    now = predict(baseline.plan, baseline.basis)
    assert "decode-above-cache" not in {e.code for e in refusals(now, baseline.basis)}
    proposal = planned([tenth]).proposal
    assert proposal is not None
    assert SEQS not in proposal.flags


def test_a_death_at_the_first_decode_cuts_the_buckets_and_no_cache() -> None:
    first = start_of_text(died(replace(DEEP, stops_in="decode", stops_after=0)))
    assert captured_blocks(first) == 0
    proposal = planned([first]).proposal
    assert proposal is not None
    assert RESERVE not in proposal.env
    assert SEQS in proposal.flags
    most = int(proposal.flags[proposal.flags.index(SEQS) + 1])
    assert f"At most {most} requests run at once, not 64" in proposal.cautions[0]


def test_an_earlier_start_that_captured_it_is_believed() -> None:
    good = start_of_text(DEEP.text())
    bad = start_of_text(died(replace(DEEP, stops_in="decode", stops_after=0)))
    baseline = baseline_of([bad], lessons=[lesson_of(good)])
    assert baseline is not None
    assert baseline.basis.printed is not None
    assert baseline.basis.printed.captured_blocks == 65536
    assert baseline.starts == 2
    other = baseline_of([bad], lessons=[replace(lesson_of(good), release="0.11")])
    assert other is not None
    assert other.basis.printed is not None
    assert other.basis.printed.captured_blocks == 0


def test_a_skipped_warm_up_is_to_be_switched_on_everywhere() -> None:
    report = reported(skipped(IDLE) + MISSED)
    assert report.proposal is not None
    assert report.proposal.unset == [SKIP]
    assert report.headline.do.startswith(f"Unset {SKIP}")
    left = {each.name: each.why for each in report.left}
    assert SKIP not in left
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in left
    assert "since warm-up was skipped" in left["buckets"]
    assert contradictions(report) == []


def test_a_skipped_warm_up_is_another_start_than_one_that_warmed() -> None:
    proofs = [proof_of(start_of_text(text)) for text in (IDLE.text(), skipped(IDLE))]
    assert not is_further(*proofs)
    assert not is_further(*reversed(proofs))


def test_a_second_step_down_waits_for_load() -> None:
    smaller = divided(replace(IDLE, reserve=0.06))
    alone, after = reported(smaller.text()), reported(IDLE.text(), smaller.text())
    assert alone.proposal is not None
    assert after.proposal is None
    assert after.headline.do.startswith(f"Run normal traffic with {RESERVE}=0.06")
    assert contradictions(after) == []


def test_a_share_above_the_default_is_taken_back_where_the_card_is_full() -> None:
    lines = replace(IDLE, utilisation=0.99).text().splitlines(keepends=True)
    sized = next(n for n, line in enumerate(lines) if "Usable num_blocks" in line)
    text = "".join(lines[: sized + 1])
    report = reported(text + OUT_OF_MEMORY.replace("pid=7", "pid=30"))
    assert report.proposal is not None
    assert report.proposal.flags == [UTILISATION, "0.92"]
    assert UTILISATION not in {each.name for each in report.left}


def test_a_default_that_changes_is_named_and_shown_in_the_diff() -> None:
    plain = replace(DEEP, args={}, stops_in="decode", stops_after=0)
    report = reported(died(plain))
    assert report.proposal is not None
    assert report.proposal.now[SEQS] == "256"
    assert "(now 256, the default)" in report.headline.do
    logs = [("a.log", state_of_text(died(plain)))]
    assert f"-{SEQS} 256" in render_diff(build_report(logs, shipped_findings()))


def test_a_death_of_memory_names_the_memory_that_moved() -> None:
    good = record_of_text(divided(replace(IDLE, reserve=0.4)).text())
    tight = divided(replace(IDLE, reserve=0.01, stops_in="decode", stops_after=2))
    said = " ".join(regressions(Pair(good, record_of_text(died(tight)), ("A", "B"))))
    assert f"Memory ran out in B alone. Changed: {RESERVE} 0.4 → 0.01" in said
    assert "times as long" not in said


def test_seconds_of_an_unfinished_phase_are_shared_by_what_was_done() -> None:
    slow = replace(IDLE, decode_seconds=60.0, stops_in="decode", stops_after=6)
    record = record_of(start_of_text(slow.text()), reported(slow.text()))
    assert record.bucket_seconds["decode"] == pytest.approx(60.0, rel=0.1)


def test_the_store_teaches_and_compares_whatever_was_read_first(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "state", FakeClock(), lambda _: None)
    bad, good = tmp_path / "bad.log", tmp_path / "good.log"
    bad.write_text(died(replace(IDLE, reserve=0.01, stops_in="decode", stops_after=2)))
    good.write_text(divided(replace(IDLE, reserve=0.4)).text())

    def read(path: Path) -> StartReport:
        return report_of([str(path)], memory=memory).reports[-1]

    assert read(bad).against is None
    read(good)
    again = read(bad)
    assert again.against is not None
    assert again.against.known.startswith(f"{RESERVE} 0.4, read ")
    (tmp_path / "late.log").write_text(
        died(replace(IDLE, reserve=0.02, stops_in="decode", stops_after=2))
    )
    late = read(tmp_path / "late.log")
    assert late.proposal is not None
    assert late.proposal.figures["warmup_seconds"].origin == "learned"


def test_a_bad_prediction_widens_the_report_that_shows_it(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "state", FakeClock(), lambda _: None)

    def read(start: Told) -> StartReport:
        text = start.then(*[BUSY] * 8)
        log = (f"{start.began:%H}.log", state_of_text(text))
        return reported_by(memory, [log]).reports[-1]

    first = read(IDLE).proposal
    assert first is not None
    ratio = float(first.env[RESERVE])
    slow = replace(IDLE, reserve=ratio, decode_seconds=9.0)
    second = read(divided(replace(slow, began=IDLE.began.replace(hour=15))))
    came = {each.figure: each for each in second.accountability}
    assert not came["warmup_seconds"].inside
    assert second.proposal is not None
    alone = planned([start_of_text(slow.then(*[BUSY] * 8))]).proposal
    assert alone is not None
    wide = second.proposal.figures["warmup_seconds"]
    plain = alone.figures["warmup_seconds"]
    assert wide.high - wide.value > 2 * (plain.high - plain.value)
