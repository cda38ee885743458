"""Whatever a log says, a scrape stays small: no label takes values without end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse_text

from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import METRICS
from hpuwatch.metrics.collector import exposition
from hpuwatch.records import Line
from hpuwatch.state.model import BucketList, Fault, Miss, Progress, Start, State, Warmup
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.snapshots import amount, by_key, full_memory, full_start, known

pytestmark = pytest.mark.unit

MANY = 200


def labels(*starts: Start) -> dict[str, set[str]]:
    """The values of each label over a whole scrape."""
    snapshot = Snapshot("x", Phase.READY, State(starts))
    found: dict[str, set[str]] = {}
    for family in parse_text(exposition(snapshot).decode()):
        for sample in family.samples:
            for name, value in sample.labels.items():
                found.setdefault(name, set()).add(value)
    return found


def test_models_that_are_switched_without_end() -> None:
    starts = [
        replace(
            full_start(), server=replace(full_start().server, model=known(f"m/{n}"))
        )
        for n in range(MANY)
    ]
    found = labels(*starts)["model_name"]
    assert len(found) == 17
    assert {"m/0", "m/15", "other"} <= found


def test_ranks_without_end() -> None:
    memory = {rank * 7: full_memory() for rank in range(MANY)}
    found = labels(replace(full_start(), memory=memory))["rank"]
    assert found == {str(rank * 7) for rank in range(64)}


WILD = st.text(min_size=1, max_size=300)


@given(st.lists(WILD, min_size=1, max_size=6, unique=True))
def test_words_of_a_log_become_no_label(words: list[str]) -> None:
    """Phases, reasons, shapes and fault classes as a hostile log may have them."""
    start = replace(
        full_start(),
        buckets={word: known(BucketList(1)) for word in words},
        graphs_used={word: amount("1 GiB") for word in words},
        warmup=Warmup(progress={word: Progress(1, 2) for word in words}),
        missed=by_key(*(Miss(w, w, (n,), Line(w)) for n, w in enumerate(words))),
        faults=tuple(Fault(w, Phase.READY, w, Line(w)) for w in words),
    )
    plain = labels(full_start())
    for name, values in labels(start).items():
        assert values <= plain[name] | {"other", "multimodal", "unified"}, name


@given(WILD)
def test_a_models_name_is_one_short_line(name: str) -> None:
    server = replace(full_start().server, model=known(name))
    (found,) = labels(replace(full_start(), server=server))["model_name"]
    assert len(found) <= 128
    assert found.isprintable()


def test_every_label_of_the_catalogue_is_looked_at() -> None:
    declared = {label for metric in METRICS for label in metric.labels}
    assert declared - set(labels(full_start())) == {"asked", "code"}
