"""A damaged log costs what is damaged: whatever stands in it, nothing raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.loop.watch import Watch
from hpuwatch.metrics.collector import exposition
from hpuwatch.parse.parser import Parser
from hpuwatch.source.lines import Lines
from hpuwatch.state.model import DECODE, BucketList, State
from hpuwatch.state.reduce import fold
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import rules
from hpuwatch.web.status import status_page

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).resolve().parents[1] / "golden"
LOGS = [path.read_text("utf-8") for path in sorted(FOLDER.glob("*/log"))]
AT = "INFO 01-02 03:04:05 [x.py:1]"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e\d+)?")
SHAPE = re.compile(r"\([\d, ]+\)")

Damage = Callable[[list[str], int], None]


def dropped(lines: list[str], pick: int) -> None:
    del lines[pick % len(lines)]


def doubled(lines: list[str], pick: int) -> None:
    place = pick % len(lines)
    lines.insert(pick // len(lines) % len(lines), lines[place])


def cut(lines: list[str], pick: int) -> None:
    place = pick % len(lines)
    lines[place] = lines[place][: pick % (len(lines[place]) + 1)]


def instead(pattern: re.Pattern[str], text: str) -> Damage:
    """Return what puts a text in the place of one of those that the pattern finds."""

    def damage(lines: list[str], pick: int) -> None:
        found = [(n, m) for n, line in enumerate(lines) for m in pattern.finditer(line)]
        if found:
            place, match = found[pick % len(found)]
            line = lines[place]
            lines[place] = line[: match.start()] + text + line[match.end() :]

    return damage


NUMBERS = (
    "0",
    "-1",
    "1",
    "9" * 30,
    "9" * 400,
    "9" * 5_000,
    "1e300",
    "1e999",
    "nan",
    "inf",
)
SHAPES = ("(2,4)", "(10)", "(0, 0, 0)", "(1, -1, 1)", "x", "()", "(1, 1.5, None)")
NESTS = tuple(each * 3_000 for each in ("(", "[", "{", "-"))
DAMAGES = (
    *(dropped, doubled, cut),
    *(instead(NUMBER, text) for text in NUMBERS),
    *(instead(SHAPE, text) for text in (*SHAPES, *NESTS)),
)


@st.composite
def damaged_logs(draw: st.DrawFn) -> str:
    """A golden's log with some places damaged, each in its own way."""
    lines = draw(st.sampled_from(LOGS)).splitlines()
    wounds = st.tuples(st.sampled_from(DAMAGES), st.integers(0, 10**6))
    for damage, pick in draw(st.lists(wounds, min_size=1, max_size=12)):
        if lines:
            damage(lines, pick)
    return "".join(f"{line}\n" for line in lines)


def read_in_full(text: str) -> State:
    """Read a log by all that read logs, offline and live, and return what is known."""
    data = text.encode()
    parser = Parser(rules())
    lines = Lines(parser, unwrap=True)
    events = [e for line in lines.feed(data) for e in parser.feed(line)]
    events += [e for line in lines.close() for e in parser.feed(line)]
    state = fold(State(), events + parser.close())
    report = build_report([("s.log", state)], shipped_findings())
    render_text(report)
    report.model_dump_json()
    watch = Watch("x", rules(), FakeClock(1e9), unwrap=True)
    watch.take(data, 1e9)
    watch.close()
    snapshot = watch.snapshot()
    assert snapshot.state.broken == 0
    status_page(snapshot)
    exposition(snapshot)
    return state


@settings(max_examples=40)
@given(damaged_logs())
def test_no_damage_to_a_log_raises(text: str) -> None:
    read_in_full(text)


LISTED = f"{AT} Generated 3 decode buckets [bs, query, num_blocks]: "
MISSED = f"{AT} Configuration: ('decode', 4, 1, 9) was not warmed-up!\n"


@pytest.mark.parametrize(
    "odd", ["(2,4)", "(10)", "()", "(1, None, 3)", "(1, 1, " + "9" * 30 + ")"]
)
def test_a_damaged_list_of_buckets_counts_as_unreadable(odd: str) -> None:
    state = read_in_full(f"{LISTED}[(1, 1, 1), {odd}, (4, 1, 4)]\n{MISSED}")
    assert state.starts[0].buckets[DECODE].value == BucketList(3)


@pytest.mark.parametrize("depth", [9, 200, 990, 3_000, 60_000])
def test_a_list_nested_without_end_counts_as_unreadable(depth: int) -> None:
    state = read_in_full(f"{LISTED}[{'(' * depth}{MISSED}")
    assert state.starts[0].buckets[DECODE].value == BucketList(3)
    read_in_full(f"{LISTED}[{'(' * depth}{')' * depth}]\n{MISSED}")


@pytest.mark.parametrize("phase", ["Prompt", "Decode"])
@pytest.mark.parametrize("place", ["0/2", "-1/2", "1/0", "9/2", "1/-2"])
def test_a_bucket_at_an_impossible_place(phase: str, place: str) -> None:
    read_in_full(
        f"{AT} [Warmup][{phase}][{place}] batch_size:1 query_len:256 num_blocks:0 "
        "free_mem:15.07 GiB\n"
    )


def test_a_bucket_before_the_first_is_none() -> None:
    line = (
        "[Warmup][Prompt][0/2] batch_size:1 query_len:256 num_blocks:0 free_mem:9 GiB"
    )
    assert read_in_full(f"{AT} {line}\n").starts[0].warmup.progress == {}


@pytest.mark.parametrize("digits", [19, 30, 400, 5_000])
def test_a_count_that_no_server_has(digits: int) -> None:
    state = read_in_full(
        f"{AT} GPU KV cache size: 526,080 tokens\n"
        f"{AT} Maximum concurrency for {'9' * digits} tokens per request: 2055.00x\n"
        f"{AT} # HPU blocks: {'9' * digits}, # CPU blocks: 0\n"
    )
    assert state.starts[0].kv.tokens is not None
    blocks = state.starts[0].kv.blocks
    assert blocks is not None
    assert blocks.value == 526_080 // 128


def test_a_figure_that_is_no_number_is_not_known() -> None:
    line = f"{AT} Warmup finished in nan secs, allocated 51.2 MiB of device memory\n"
    warmup = read_in_full(line).starts[0].warmup
    assert warmup.seconds is None
    assert warmup.allocated is not None
