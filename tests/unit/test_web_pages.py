"""What each path answers, without a socket."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import Start, State
from hpuwatch.state.snapshot import Left, Snapshot
from hpuwatch.testing.snapshots import full_snapshot
from hpuwatch.web.pages import Page, Pages

pytestmark = pytest.mark.unit


def get(path: str, snapshot: Snapshot) -> Page:
    return Pages(lambda: snapshot).answer(path)


def document(snapshot: Snapshot) -> object:
    return json.loads(get("/readyz", snapshot).body)


def in_phase(phase: Phase) -> Snapshot:
    return replace(full_snapshot(), phase=phase)


@pytest.mark.parametrize("phase", Phase)
def test_only_a_ready_server_is_ready(phase: Phase) -> None:
    page = get("/readyz", in_phase(phase))

    assert page.status == (200 if phase is Phase.READY else 503)
    assert page.content_type == "application/json"


@pytest.mark.parametrize("phase", Phase)
def test_only_a_server_that_is_gone_for_good_is_not_alive(phase: Phase) -> None:
    page = get("/livez", in_phase(phase))

    gone = phase in {Phase.FAILED, Phase.HALTED}
    assert page.status == (503 if gone else 200)
    assert page.body.startswith(phase.value.encode())


@pytest.mark.parametrize("phase", Phase)
def test_what_is_of_the_past_is_neither_ready_nor_gone(phase: Phase) -> None:
    """While the output of before is read again, its phases pass by once more."""
    told = "hpuwatch is catching up with the output: 40% read"
    snapshot = replace(in_phase(phase), catching_up=True, left=Left(), reason=told)

    assert get("/livez", snapshot).status == 200
    assert get("/readyz", snapshot).status == 503
    said = document(snapshot)
    assert isinstance(said, dict)
    assert said["reason"] == told
    # Counters from 0 on would count everything twice.
    assert get("/metrics", snapshot).status == 503
    assert told in get("/metrics", snapshot).body.decode()


def test_ready_tells_how_far_the_warmup_is() -> None:
    assert document(full_snapshot()) == {
        "schema": "hpuwatch.ready/1",
        "phase": "warming",
        "done": 36,
        "total": 72,
        "seconds_left": {"value": 27.5, "low": 20.0, "high": 41.0},
        "reason": "warming up: 36 of 72 buckets",
    }


def test_an_estimate_without_a_range_is_its_own_range() -> None:
    said = document(replace(full_snapshot(), left=Left(value=9.0123)))

    assert isinstance(said, dict)
    assert said["seconds_left"] == {"value": 9.0, "low": 9.0, "high": 9.0}


def test_ready_says_why_there_is_no_estimate() -> None:
    snapshot = replace(full_snapshot(), left=Left(reason="no bucket is done yet"))

    assert document(snapshot) == {
        "schema": "hpuwatch.ready/1",
        "phase": "warming",
        "done": 36,
        "total": 72,
        "seconds_left": None,
        "reason": "warming up: 36 of 72 buckets; time left unknown: no bucket is done yet",
    }


def test_ready_before_the_first_line() -> None:
    assert document(Snapshot(name="x", phase=Phase.BACKING_OFF)) == {
        "schema": "hpuwatch.ready/1",
        "phase": "backing_off",
        "done": None,
        "total": None,
        "seconds_left": None,
        "reason": "the server's phase is backing off",
    }


def test_ready_before_the_buckets_are_known() -> None:
    said = document(Snapshot("x", Phase.LOADING, State((Start(Line("")),))))

    assert isinstance(said, dict)
    assert said["done"] is said["total"] is None


def test_an_unknown_path_is_one_line() -> None:
    for path in ("", "/metrics/", "/nope", "/../etc/passwd", "<script>"):
        page = get(path, full_snapshot())

        assert page.status == 404
        assert page.body.count(b"\n") == 1
        assert b"script" not in page.body


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "status"),
        ("/metrics", "metrics"),
        ("/readyz", "readyz"),
        ("/livez", "livez"),
    ],
)
def test_a_page_that_cannot_be_built_is_a_sentence_and_is_counted(
    path: str, name: str
) -> None:
    """A liveness probe that fails would get a healthy server killed."""
    broken = [True]

    def take() -> Snapshot:
        if broken:
            raise RuntimeError("secret=hunter2")
        return full_snapshot()

    pages = Pages(take)
    page = pages.answer(path)
    broken.clear()

    assert page.status == (200 if path == "/livez" else 500)
    assert page.body.count(b"\n") == 1
    assert b"RuntimeError" in page.body
    assert b"hunter2" not in page.body
    counted = f'hpuwatch_page_errors_total{{page="{name}"}} 1.0'
    assert counted in pages.answer("/metrics").body.decode()


def test_metrics_are_openmetrics_where_the_scraper_asks() -> None:
    pages = Pages(full_snapshot)

    plain = pages.answer("/metrics")
    asked = pages.answer("/metrics", "application/openmetrics-text;version=1.0.0,*/*")

    assert plain.content_type.startswith("text/plain; version=0.0.4")
    assert asked.content_type.startswith("application/openmetrics-text")
    assert asked.body.endswith(b"# EOF\n")
