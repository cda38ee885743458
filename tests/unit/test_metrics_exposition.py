"""What a scrape shows: everything that is known, nothing that isn't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from hpuwatch import __version__
from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import BY_NAME, METRICS, OTHER, PAGES, Kind
from hpuwatch.metrics.collector import SnapshotCollector, exposition, scrape
from hpuwatch.metrics.faults import FAULT_CLASSES
from hpuwatch.metrics.readings import GRAPH_PHASES
from hpuwatch.records import Line
from hpuwatch.state.model import Fault, Miss, Server, Start, State
from hpuwatch.state.snapshot import Ended, Snapshot
from hpuwatch.testing.snapshots import by_key, full_snapshot, full_start, known

pytestmark = pytest.mark.unit

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def shown(snapshot: Snapshot) -> Samples:
    return samples(exposition(snapshot).decode())


def value(found: Samples, name: str, **labels: str) -> float:
    """The value of the one series that has at least these labels."""
    (match,) = (
        each
        for (sample, pairs), each in found.items()
        if sample == name and labels.items() <= dict(pairs).items()
    )
    return match


def with_starts(*starts: Start) -> Snapshot:
    return Snapshot(name="x", phase=Phase.READY, state=State(starts))


def test_the_full_snapshot_shows_the_golden_exposition(checkout: Path) -> None:
    golden = (checkout / "tests/data/metrics-full.prom").read_text("utf-8")

    text = exposition(full_snapshot()).decode()

    assert samples(text) == samples(golden.replace("HPUWATCH_VERSION", __version__))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [line for line in golden.splitlines() if line.startswith("#")]


def test_every_metric_of_the_catalogue_is_in_the_full_snapshot() -> None:
    assert {name for name, _ in shown(full_snapshot())} == set(BY_NAME)


def test_before_the_first_line_only_the_process_is_known() -> None:
    found = shown(Snapshot(name="x", phase=Phase.STARTING))

    names = {name for name, _ in found}
    counters = {metric.name for metric in METRICS if metric.kind is Kind.COUNTER}
    always = {"hpuwatch_runtime_state", "hpuwatch_build_info", "hpuwatch_replayed"}
    assert names == counters | always
    assert all(each == 0 for (name, _), each in found.items() if name in counters)


@pytest.mark.parametrize("phase", Phase)
def test_one_phase_is_hot(phase: Phase) -> None:
    found = shown(Snapshot(name="x", phase=phase))

    for each in Phase:
        hot = value(found, "hpuwatch_runtime_state", state=each.value)
        assert hot == (each is phase)


def test_a_restart_takes_no_counter_back_and_no_figure_along() -> None:
    found = shown(with_starts(full_start(), Start(Line("again"))))

    model = "meta-llama/Llama-3.1-8B-Instruct"
    assert value(found, "hpuwatch_faults_total", **{"class": "dynamo_limit"}) == 1
    miss = {"phase": "prompt", "reason": "not_warmed_up", "model_name": model}
    assert value(found, "hpuwatch_bucket_misses_total", **miss) == 3
    names = {name for name, _ in found}
    assert "hpuwatch_device_memory_bytes" not in names
    assert "hpuwatch_warmup_progress_ratio" not in names


def test_misses_belong_to_the_model_that_was_served() -> None:
    other = replace(full_start(), server=Server(model=known("other/model")))

    found = shown(with_starts(full_start(), other))

    for model in ("meta-llama/Llama-3.1-8B-Instruct", "other/model"):
        miss = {"phase": "decode", "reason": "not_prepared", "model_name": model}
        assert value(found, "hpuwatch_bucket_misses_total", **miss) == 2


def test_the_model_has_the_name_that_vllm_labels_it_with() -> None:
    server = Server(
        model=known("/models/a"), flags={"served_model_name": known("['tiny']")}
    )

    found = shown(with_starts(Start(Line(""), server=server)))

    assert value(found, "hpuwatch_runtime_info", model_name="tiny", engine="0") == 1


def test_one_death_is_one_fatal_fault() -> None:
    """The front ends' complaints of a dead engine only follow from what killed it."""
    dead = Fault("engine_dead_v1", Phase.FAILED, "fatal", Line(""), root=False)
    start = Start(
        Line(""),
        faults=(Fault("unknown_exception", Phase.READY, "fatal", Line("")), dead, dead),
    )

    found = shown(with_starts(start))

    fatal = {"fatal", "consequence"}
    by_severity = {
        severity: sum(
            each
            for (name, pairs), each in found.items()
            if name == "hpuwatch_faults_total" and ("severity", severity) in pairs
        )
        for severity in fatal
    }
    assert by_severity == {"fatal": 1, "consequence": 2}
    of_dead = [pairs for _, pairs in found if ("class", "engine_dead_v1") in pairs]
    assert len(of_dead) == 1


def test_the_end_of_the_server_before_is_shown_where_it_is_known() -> None:
    ended = Ended(None, "not a phase", asked=True, at=12.5)

    found = shown(Snapshot(name="x", phase=Phase.STARTING, ended=ended))

    labels = {"code": "", "phase": "", "asked": "true"}
    assert value(found, "hpuwatch_last_exit_info", **labels) == 1
    assert value(found, "hpuwatch_last_exit_timestamp_seconds") == 12.5


def test_unknown_names_become_other_and_add_up() -> None:
    start = Start(
        Line(""),
        faults=(
            Fault("brand_new", Phase.READY, "fatal", Line("")),
            Fault("also_new", Phase.READY, "fatal", Line("")),
        ),
        missed=by_key(
            Miss("mamba", "odd", (1,), Line(""), 2),
            Miss("x", "y", (1,), Line(""), 5),
        ),
    )

    found = shown(with_starts(start))

    fault = {"class": OTHER, "severity": "fatal"}
    assert value(found, "hpuwatch_faults_total", **fault) == 2
    assert value(found, "hpuwatch_bucket_misses_total", phase=OTHER, reason=OTHER) == 7


@settings(deadline=None)
@given(model=st.text(), fault=st.text(), severity=st.text(), phase=st.text())
def test_no_text_of_a_log_makes_many_or_broken_labels(
    model: str, fault: str, severity: str, phase: str
) -> None:
    start = replace(
        full_start(),
        server=Server(model=known(model), card=known(model)),
        faults=(Fault(fault, Phase.READY, severity, Line("")),),
        missed=by_key(Miss(phase, phase, (1, 2), Line(""))),
        graphs_used={phase: full_start().graphs_used["prompt"]},
    )

    found = shown(with_starts(start))

    for name, pairs in found:
        for label, text in pairs:
            assert len(text) <= 128
            assert text.isprintable()
            if label == "class":
                assert text in {*FAULT_CLASSES, OTHER}
            if label == "phase":
                assert text in {*GRAPH_PHASES, OTHER}, name


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 5)), min_size=2
    )
)
def test_a_counter_never_goes_back(steps: list[tuple[int, int, int]]) -> None:
    """A watcher that reads its spool again starts from nothing."""
    snapshots = [
        replace(
            with_starts(
                replace(
                    full_start(),
                    missed=by_key(
                        Miss("prompt", "not_warmed_up", (1, 2), Line(""), misses)
                    ),
                )
            ),
            lines=lines,
            restarts=restarts,
        )
        for lines, misses, restarts in steps
    ]
    coming = iter(snapshots)
    collector = SnapshotCollector(lambda: next(coming))
    last: Samples = {}
    for _ in snapshots:
        found = samples(scrape(collector)[0].decode())
        for key, each in found.items():
            if key[0].endswith("_total"):
                assert each >= last.get(key, 0)
        last = found

    assert value(last, "hpuwatch_log_lines_total") == max(step[0] for step in steps)


def test_openmetrics_tells_the_same_where_it_is_asked_for() -> None:
    collector = SnapshotCollector(full_snapshot)

    body, content_type = scrape(collector, "application/openmetrics-text;version=1.0.0")

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]  # its annotations are missing
        for sample in family.samples
    }
    assert found == samples(scrape(collector)[0].decode())


def test_a_page_that_failed_is_counted() -> None:
    collector = SnapshotCollector(full_snapshot)
    collector.page_failed("status")

    found = samples(scrape(collector)[0].decode())

    for page in PAGES:
        errors = value(found, "hpuwatch_page_errors_total", page=page)
        assert errors == (page == "status")
