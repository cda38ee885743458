"""The load against a small server of our own: counts, failures, limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.clock import SystemClock
from hpuwatch.errors import UsageError
from hpuwatch.load import endpoint as endpoints
from hpuwatch.load.endpoint import endpoint_of
from hpuwatch.load.figures import percentile
from hpuwatch.load.target import Target
from hpuwatch.load.window import check_plan, run_load
from hpuwatch.testing import completions
from hpuwatch.testing.completions import Answer, Handler, pieces, usage
from hpuwatch.tune.trial import LoadPlan

pytestmark = pytest.mark.unit

PLAN = LoadPlan(concurrency=3, requests=7, prompt_tokens=20, output_tokens=4)
METRICS = """\
# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_preemptions_total{engine="0",model_name="m"} 1.2e+01
"""


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[Target, list[dict[str, Any]]]]:
    with completions.serving(answer) as served:
        served.pages["/metrics"] = METRICS
        yield Target(endpoint_of(served.url), "m"), served.bodies


@pytest.mark.parametrize("framing", ["chunked", "until the end"])
def test_a_window_counts_requests_tokens_and_times(framing: str) -> None:
    def answer(handler: Handler, _body: dict[str, Any]) -> None:
        handler.stream(*pieces(4), usage(4), chunked=framing == "chunked")

    with serving(answer) as (target, bodies):
        window = run_load(target, PLAN, SystemClock())
    assert (window.requests, window.errors, window.output_tokens) == (7, 0, 28)
    assert window.tokens_per_second == pytest.approx(28 / window.seconds)
    assert window.ttft_p50_seconds is not None
    assert window.ttft_p99_seconds is not None
    assert 0 <= window.ttft_p50_seconds <= window.ttft_p99_seconds <= window.seconds
    assert window.itl_p50_seconds is not None
    assert {body["max_tokens"] for body in bodies} == {4}
    assert all(body["ignore_eos"] is True for body in bodies)
    assert len({str(body["prompt"]) for body in bodies}) == 7


def test_the_server_s_own_count_of_tokens_wins_over_the_pieces() -> None:
    def answer(handler: Handler, _body: dict[str, Any]) -> None:
        handler.stream(*pieces(2), usage(4))

    with serving(answer) as (target, _):
        assert run_load(target, PLAN, SystemClock()).output_tokens == 28


def test_without_a_count_the_pieces_are_counted() -> None:
    def answer(handler: Handler, _body: dict[str, Any]) -> None:
        handler.stream(*pieces(4))

    with serving(answer) as (target, _):
        assert run_load(target, PLAN, SystemClock()).output_tokens == 28


def refuse(handler: Handler, _body: dict[str, Any]) -> None:
    handler.page(500, "EngineDeadError")


def break_off(handler: Handler, _body: dict[str, Any]) -> None:
    handler.stream(*pieces(1), {"error": {"message": "EngineCore is gone"}})


def too_few(handler: Handler, _body: dict[str, Any]) -> None:
    handler.stream(*pieces(1), usage(1))


def hang_up(handler: Handler, _body: dict[str, Any]) -> None:
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refuse, "HTTP 500"),
        (break_off, "EngineCore is gone"),
        (too_few, "1 tokens came where 4 were asked for"),
        (hang_up, "the server closed the connection without an answer"),
    ],
)
def test_the_first_error_ends_the_window(answer: Answer, words: str) -> None:
    plan = LoadPlan(concurrency=1, requests=50, output_tokens=4)
    with serving(answer) as (target, bodies):
        window = run_load(target, plan, SystemClock())
    assert window.errors == 1
    assert words in window.first_error
    assert len(bodies) == 1


def test_a_port_nobody_listens_on_is_an_error_of_the_window() -> None:
    with serving(refuse) as (target, _):
        pass
    window = run_load(target, PLAN, SystemClock())
    assert window.errors
    assert "refused" in window.first_error


def test_a_window_that_never_ends_is_cut_at_its_limit() -> None:
    release = threading.Event()

    def answer(_handler: Handler, _body: dict[str, Any]) -> None:
        release.wait(30)

    plan = LoadPlan(concurrency=2, requests=2, window_limit_seconds=0.2)
    with serving(answer) as (target, _):
        window = run_load(target, plan, SystemClock())
        release.set()
    assert window.first_error == "no end within 0.2 s"
    assert window.output_tokens == 0


def test_a_window_can_be_interrupted() -> None:
    stop, release = threading.Event(), threading.Event()

    def answer(_handler: Handler, _body: dict[str, Any]) -> None:
        stop.set()
        release.wait(30)

    with serving(answer) as (target, _):
        window = run_load(target, PLAN, SystemClock(), look=stop.is_set)
        release.set()
    assert window.first_error == "interrupted"


def test_a_key_is_sent_and_never_shown() -> None:
    def answer(handler: Handler, _body: dict[str, Any]) -> None:
        handler.stream(*pieces(4))

    with serving(answer) as (target, bodies):
        url = target.endpoint.url
        keyed = endpoint_of(url, "abc123")
        run_load(Target(keyed, "m"), PLAN, SystemClock())
    assert {body["authorization"] for body in bodies} == {"Bearer abc123"}
    assert "abc123" not in repr(keyed)


def test_what_the_server_says_of_itself() -> None:
    with serving(refuse) as (target, _):
        assert endpoints.model_name(target.endpoint) == "m"
        assert endpoints.requests_in_flight(target.endpoint) == 5
        assert endpoints.preemptions(target.endpoint) == 12
        assert endpoints.get(target.endpoint, "/health") is None
        assert endpoints.is_listening(target.endpoint)


def test_what_can_t_be_read_of_the_metrics_is_passed_over() -> None:
    with completions.serving() as served:
        served.pages["/metrics"] = "a ---\nb 1e999\nc{x ..-+e\nd NaN\ne 1.1.1\nf 2\n"
        assert endpoints.scrape(endpoint_of(served.url)) == {"f": 2.0}


def test_a_server_that_is_gone_says_nothing() -> None:
    with serving(refuse) as (target, _):
        pass
    assert endpoints.model_name(target.endpoint) is None
    assert endpoints.requests_in_flight(target.endpoint) is None
    assert endpoints.preemptions(target.endpoint) is None
    assert not endpoints.is_listening(target.endpoint)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "http://h",
        "ftp://h:1",
        "http://u:p@h:1",
        "http://h:1?a=b",
        "http://h:x",
        "http://:1",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(UsageError, match="is no address like"):
        endpoint_of(url)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h", "https://h:443"),
        ("https://h/llm/v1", "https://h:443/llm"),
    ],
)
def test_an_address_may_be_given_as_clients_have_it(given: str, url: str) -> None:
    assert endpoint_of(given).url == url


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.integers(1, 100))
def test_a_percentile_is_one_of_the_values_with_enough_at_or_below(
    ordered: Sequence[float], percent: int
) -> None:
    value = percentile(ordered, percent)
    assert value is not None
    assert value in ordered
    assert sum(each <= value for each in ordered) * 100 >= percent * len(ordered)


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 50) is None


def test_the_load_that_comes_without_a_word_is_within_bounds() -> None:
    check_plan(LoadPlan())


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (LoadPlan(concurrency=999_999_999_999), "concurrency must lie between 1 and"),
        (LoadPlan(requests=0), "requests must lie between 1 and"),
        (LoadPlan(prompt_tokens=10**7), "prompt tokens must lie between 1 and"),
        (LoadPlan(output_tokens=10**7), "output tokens must lie between 1 and"),
        (LoadPlan(windows=10**4), "windows must lie between 1 and 100"),
        (
            LoadPlan(requests=10**5, prompt_tokens=10**5),
            "requests times prompt tokens",
        ),
    ],
)
def test_a_load_beyond_all_bounds_is_refused(plan: LoadPlan, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_plan(plan)
