"""The status page: what it tells, and that a log can't write HTML into it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import (
    BucketList,
    Fault,
    Memory,
    Miss,
    Progress,
    Server,
    Start,
    State,
    Traffic,
    Warmup,
)
from hpuwatch.state.snapshot import Ended, Left, Snapshot
from hpuwatch.testing.snapshots import by_key, full_snapshot, full_start, known
from hpuwatch.web.status import status_page

pytestmark = pytest.mark.unit


class Reader(HTMLParser):
    """Collects the text and the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def text_of(snapshot: Snapshot) -> str:
    return Reader(status_page(snapshot)).text


def with_start(start: Start, phase: Phase = Phase.WARMING) -> Snapshot:
    return replace(full_snapshot(), state=State((start,)), phase=phase)


def running() -> Start:
    """A start whose warm-up is under way."""
    start = full_start()
    return replace(start, warmup=replace(start.warmup, seconds=None))


def test_the_page_tells_phase_warmup_and_time_left() -> None:
    text = text_of(with_start(running()))

    assert "demo" in text
    assert "warming" in text
    assert "36 of 72 buckets (50 %)" in text
    assert "About 28 s left (20 s to 41 s)." in text


def test_the_page_says_why_the_time_left_is_unknown() -> None:
    snapshot = replace(with_start(running()), left=Left(reason="one bucket is done"))

    assert "Time left unknown: one bucket is done" in text_of(snapshot)


def test_the_page_tells_memory_buckets_misses_and_faults() -> None:
    text = text_of(full_snapshot())

    for told in (
        "weights 15.05 GiB",
        "KV cache 64.17 GiB",
        "reserve, idle 5.722 GiB",
        "held back by utilisation 7.92 GiB",
        "Rank 1",
        "4,106 blocks",
        "525,568 tokens",
        "decode 48 12 of 48 161.9 MiB",
        "prompt not warmed up (1, 768, 0) 3",
        "device_oom_devmem fatal prompt bucket 3 of 24",
        "7 not understood",
        "4 KiB not passed through",
        "2027-01-15 08:00:00 UTC",
    ):
        assert told in text


def test_the_page_is_named_after_us_and_the_instance() -> None:
    page = status_page(full_snapshot())
    assert "<title>hpuwatch &ndash; demo: warming</title>" in page


def test_the_page_tells_the_load_where_it_is_known() -> None:
    text = text_of(full_snapshot())

    for told in (
        "requests running 12",
        "requests waiting 3",
        "KV cache in use 42.0 %",
        "prompt tokens/s 1,234.5",
        "generated tokens/s 567.8",
        "preemptions, all in all 2",
    ):
        assert told in text
    quiet = replace(full_start(), traffic=Traffic())
    assert "Load" not in text_of(with_start(quiet))


def test_images_are_listed_by_size_and_warmed_up_in_steps() -> None:
    start = full_start()
    images = replace(
        start,
        buckets={"multimodal": known(BucketList(7))},
        warmup=replace(start.warmup, progress={"multimodal": Progress(36, 36)}),
        graphs_used={},
    )

    assert "multimodal 7 sizes 36 of 36 steps" in text_of(with_start(images))


def test_the_end_of_the_server_before_is_told_unless_it_was_asked_for() -> None:
    told = "The server before this one ended unasked"
    ended = Ended(None, "", asked=False, at=0.0)

    full = text_of(full_snapshot())

    assert f"{told} with code 137 while warming, 2027-01-15 07:50:00 UTC." in full
    bare = text_of(replace(full_snapshot(), ended=ended))
    assert f"{told}, 1970-01-01 00:00:00 UTC." in bare
    asked = replace(ended, asked=True)
    assert told not in text_of(replace(full_snapshot(), ended=asked))


@pytest.mark.parametrize(("starts", "died"), [(0, 0), (1, 0), (3, 2)])
def test_watchers_are_spoken_of_once_one_has_died(starts: int, died: int) -> None:
    text = text_of(replace(full_snapshot(), watcher_starts=starts))

    assert ("watcher" in text) is bool(died)
    assert (f"watchers that died: {died}" in text) is bool(died)


def test_a_simulated_server_is_called_so_and_a_real_one_is_not() -> None:
    start = full_start()
    real = replace(start, server=replace(start.server, simulated=False))

    assert "Simulated" in text_of(with_start(start))
    assert "Simulated" not in text_of(with_start(real))


def test_before_the_first_line_the_page_says_so() -> None:
    text = text_of(Snapshot(name="x", phase=Phase.STARTING))

    assert "has not printed anything yet" in text
    assert "1970-01-01" in text


def test_a_skipped_warmup_is_said() -> None:
    start = replace(full_start(), warmup=Warmup(skipped=known(value=True)))

    assert "Skipped: graphs are compiled while users wait." in text_of(
        with_start(start)
    )


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_page(phase: Phase) -> None:
    for start in (full_start(), Start(Line("")), Start(Line(""), memory={0: Memory()})):
        assert phase.value.replace("_", " ") in text_of(with_start(start, phase))


def test_causes_stand_before_what_follows_from_them() -> None:
    cause = Fault("kv_none", Phase.SIZING, "fatal", Line("no memory"))
    follows = Fault("engine_dead_v1", Phase.SIZING, "fatal", Line("dead"), root=False)

    text = text_of(with_start(replace(full_start(), faults=(cause, follows))))

    assert text.index("kv_none fatal") < text.index("engine_dead_v1 consequence")


def test_a_shape_that_no_traffic_asked_for_is_no_miss() -> None:
    own = (Miss("prompt", "not_prepared", (1, 32768, 0), Line(""), 0),)

    text = text_of(with_start(replace(full_start(), missed=by_key(*own))))

    assert "(1, 32768, 0)" not in text
    assert "Bucket misses None." in text


def test_long_lists_are_cut_and_say_so() -> None:
    misses = tuple(
        Miss("prompt", "not_warmed_up", (1, n, 0), Line(""), n) for n in range(1, 51)
    )

    text = text_of(with_start(replace(full_start(), missed=by_key(*misses))))

    assert "(1, 50, 0)" in text
    assert "(1, 30, 0)" not in text
    assert "and 30 more" in text


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("<>&\"'/ aimgscript=onload\0")))
def test_no_text_of_a_log_becomes_html(text: str) -> None:
    start = replace(
        full_start(),
        server=Server(version=known(text), model=known(text), card=known(text)),
        missed=by_key(Miss(text, text, (1,), Line(text))),
        faults=(Fault(text, Phase.READY, text, Line(text), at=text),),
        buckets={text: full_start().buckets["prompt"]},
    )
    hostile = replace(
        with_start(start),
        name=text,
        reason=text,
        left=Left(reason=text),
        ended=Ended(1, text, asked=False, at=0.0),
    )

    plain, attacked = Reader(status_page(full_snapshot())), Reader(status_page(hostile))

    assert attacked.tags <= plain.tags
    assert attacked.attributes <= plain.attributes


def test_the_page_loads_and_runs_nothing() -> None:
    page = status_page(full_snapshot())

    assert not {"script", "img", "link", "iframe", "object"} & Reader(page).tags
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
