"""How a run is carried out, and the figures, the document and the page that come of it."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hpuwatch.cli.load_page import markdown_page, plan_page, text_page
from hpuwatch.clock import SystemClock
from hpuwatch.load.client import Exhausted, Outcome
from hpuwatch.load.counters import Counted, Scrape, between
from hpuwatch.load.drive import Record, Run, drive
from hpuwatch.load.endpoint import endpoint_of
from hpuwatch.load.figures import detail, figures, measured
from hpuwatch.load.order import Order
from hpuwatch.load.result import About, document
from hpuwatch.load.target import Target
from hpuwatch.load.workload import Arrivals, Request, Workload

pytestmark = pytest.mark.unit

# What `vllm bench serve --save-result` writes for a run with all four metrics.
VLLM_KEYS = {
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id",
    "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration",
    "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "request_goodput", "output_throughput",
    "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
    *(
        f"{kind}_{metric}_ms"
        for kind in ("mean", "median", "std", "p50", "p90", "p95", "p99")
        for metric in ("ttft", "tpot", "itl", "e2el")
    ),
}  # fmt: skip


def record(
    number: int,
    sent: float,
    arrivals: Sequence[float],
    *,
    tokens: int | None = None,
    failure: str = "",
    due: float | None = None,
) -> Record:
    outcome = Outcome(array("d", arrivals), 100, tokens, failure)
    ended = arrivals[-1] if arrivals else sent
    return Record(Request(number, 0.0, 90, 4, 10), due, sent, ended, outcome)


# Begun at 100 s: two good requests, one that failed, one that was stopped on the way.
RUN = Run(
    planned=5,
    records=[
        record(0, 100.0, [101.0, 101.5, 102.0], due=100.0),
        record(1, 100.5, [102.5, 103.5], tokens=5, due=100.4),
        record(2, 101.0, [], failure="HTTP 400: 17 tokens are too many", due=101.0),
        Record(Request(3, 0.0, 90, 4), 102.0, 102.0),
    ],
    answered=3,
    failed=1,
    first_failure="HTTP 400: 17 tokens are too many",
    begun=100.0,
    ended=104.0,
    cpu_seconds=0.4,
    stopped="interrupted",
)


def test_figures_are_what_a_stopwatch_would_say() -> None:
    told = figures(measured(RUN), {})
    assert (told["completed"], told["failed"], told["duration"]) == (2, 1, 4.0)
    assert (told["total_input_tokens"], told["total_output_tokens"]) == (200, 8)
    assert told["output_throughput"] == 2.0
    assert told["total_token_throughput"] == 52.0
    assert told["request_goodput"] is None
    assert (told["mean_ttft_ms"], told["p99_ttft_ms"]) == (1500.0, 2000.0)
    assert told["std_ttft_ms"] == 500.0
    assert told["mean_e2el_ms"] == 2500.0
    # 1 s over two tokens, and 1 s over four.
    assert told["mean_tpot_ms"] == 375.0
    # The second answer's four later tokens came in one piece: a quarter of a second each.
    assert (told["p50_itl_ms"], told["p99_itl_ms"]) == (500.0, 500.0)
    assert told["mean_itl_ms"] == pytest.approx((500 + 500 + 250) / 3)
    assert told["max_output_tokens_per_s"] == 4.0
    assert told["max_concurrent_requests"] == 2


@pytest.mark.parametrize(
    ("limits", "speed", "kept"),
    [
        ({"ttft": 1000.0}, 1.0, 1),
        ({"ttft": 1000.0}, 2.0, 0),
        ({"ttft": 2000.0, "e2el": 2000.0}, 1.0, 1),
        ({"tpot": 250.0}, 1.0, 1),
        ({"tpot": 100.0}, 1.0, 0),
        ({"e2el": 9000.0}, 2.0, 2),
    ],
)
def test_goodput_counts_what_keeps_every_limit(
    limits: dict[str, float], speed: float, kept: int
) -> None:
    goodput = figures(measured(RUN), limits, speed)["request_goodput"]
    assert goodput == kept / (4.0 * speed)


def test_a_simulated_server_s_seconds_stretch_all_figures() -> None:
    clock, simulated = figures(measured(RUN), {}), figures(measured(RUN), {}, 10.0)
    assert simulated["p90_itl_ms"] == 5000.0
    assert simulated["request_throughput"] == 0.05
    assert simulated["completed"] == clock["completed"]


def test_a_run_without_an_answer_has_no_latencies() -> None:
    told = figures(measured(Run(planned=0)), {})
    assert told["mean_ttft_ms"] is None
    assert told["request_throughput"] == 0.0


def test_details_keep_a_row_for_each_request_sent() -> None:
    rows = detail(RUN)
    assert rows["output_lens"] == [3, 5, 0, 0]
    assert rows["ttfts"] == [1.0, 2.0, 0.0, 0.0]
    assert rows["itls"] == [[0.5, 0.5], [0.25], [], []]
    assert rows["start_times"] == [0.0, 0.5, 1.0, 2.0]
    assert rows["errors"] == ["", "", RUN.first_failure, "stopped"]


URL = "http://h:1"
ORDER = Order(URL, trace=Path("t.csv"), warp=2.0, limits={"ttft": 1000.0})
ABOUT = About(Target(endpoint_of(URL), "m"), ORDER)
WORKLOAD = Workload((), Arrivals.TRACE)
REAL = Counted(
    is_simulated=False,
    speed=None,
    simulated_seconds=None,
    busy_seconds=None,
    figures={"mean_e2el_ms": 25.0, "preemptions": 3.0},
)
SIMULATED = replace(REAL, is_simulated=True, speed=10.0, simulated_seconds=40.0)


def made(counted: Counted = REAL, **changes: Any) -> dict[str, Any]:
    return document(ABOUT, WORKLOAD, replace(RUN, **changes), counted, 0.0)


def test_the_document_has_vllm_s_keys_and_says_what_is_ours() -> None:
    told = made()
    assert next(iter(told)) == "schema"
    assert set(told) >= VLLM_KEYS
    assert (told["num_prompts"], told["unfinished"], told["unsent"]) == (5, 1, 1)
    assert (told["origin"], told["simulated"]) == ("measured", None)
    assert told["short_answers"] == 1
    assert told["client"]["lag_max_ms"] == pytest.approx(100.0)
    assert told["client"]["cpu_share"] == pytest.approx(0.1)
    json.dumps(told, allow_nan=False)


def test_failures_are_told_apart_by_reason_not_by_number() -> None:
    whys = ["HTTP 400: 17 tokens", "HTTP 400: 18 tokens", "HTTP 500: 17 tokens"]
    records = [record(n, 100.0, [], failure=why) for n, why in enumerate(whys)]
    assert made(records=records)["failures"] == [
        {"reason": "HTTP 400: 17 tokens", "count": 2},
        {"reason": "HTTP 500: 17 tokens", "count": 1},
    ]


def test_a_simulated_server_is_named_on_every_page_with_both_times() -> None:
    told = made(SIMULATED)
    assert told["simulated"]["mean_ttft_ms"] == 10 * told["mean_ttft_ms"]
    assert told["simulated"]["e2el_error"] == pytest.approx(25_000 / 25 - 1)
    for page in (text_page(told), markdown_page(told)):
        assert "(SIMULATED)" in page
        assert "10.00 times as fast as the clock" in page
        assert "by the clock" in page
        assert "Simulated latencies are off" in page


def test_seconds_that_are_the_clock_s_are_told_once() -> None:
    told = made(replace(SIMULATED, speed=1.002))
    page = text_page(told)
    assert "1.00 times as fast as the clock" in page
    assert "by the clock" in page
    assert "ms simulated" not in page


def test_the_page_of_a_real_server_tells_failures_and_the_client() -> None:
    page = text_page(made())
    assert "SIMULATED" not in page
    assert "2 of 5 requests answered by m" in page
    assert "1 times: HTTP 400: 17 tokens are too many" in page
    assert "stopped on the way: 1" in page
    assert "sent 0.0 ms late (median)" in page
    assert "Ended early: interrupted." in page
    assert "BOTTLENECK" not in page


def test_a_client_at_its_end_says_that_the_figures_are_its_own() -> None:
    told = made(cpu_seconds=3.7)
    assert told["client"]["is_bottleneck"]
    assert "not the server's" in text_page(told).splitlines()[1]


def test_the_plan_of_a_closed_loop_without_a_list_says_when_it_ends() -> None:
    assert "answered in 5 s" in plan_page({"requests": None, "ends_after_seconds": 5.0})


def test_counters_show_what_grew_and_nothing_after_a_restart() -> None:
    name = "vllm:e2e_request_latency_seconds"
    before = Scrape(
        0.0, {f"{name}_sum": 1.0, f"{name}_count": 2.0, "vllm:prompt_tokens_total": 9.0}
    )
    after = Scrape(
        2.0, {f"{name}_sum": 4.0, f"{name}_count": 8.0, "vllm:prompt_tokens_total": 5.0}
    )
    counted = between(before, after)
    assert counted.figures == {"mean_e2el_ms": 500.0}
    assert (counted.is_simulated, counted.speed) == (False, None)
    seconds = "hpuwatch_simulated_seconds_total"
    fast = between(
        Scrape(0.0, {seconds: 1.0, "hpuwatch_simulated": 1.0}),
        Scrape(2.0, {seconds: 21.0, "hpuwatch_simulated": 1.0}),
    )
    assert (fast.is_simulated, fast.speed) == (True, 10.0)
    assert between(Scrape(0.0, None), Scrape(1.0, None)).figures == {}


@dataclass
class Ticking:
    """A clock that goes on by a second whenever somebody looks."""

    seconds: float = 0.0

    def now(self) -> float:
        return 0.0

    def boottime(self) -> float:
        self.seconds += 1.0
        return self.seconds

    def wait(self, seconds: float) -> None:
        raise AssertionError(seconds)


DONE = Outcome(array("d", [1.0]))


def listed(count: int, arrivals: Arrivals, **more: Any) -> Workload:
    made = tuple(Request(number, 0.0, 1, 1) for number in range(count))
    return Workload(made, arrivals, **more)


async def answered(_: Request) -> Outcome:
    await asyncio.sleep(0)
    return DONE


def test_an_open_loop_sends_late_ones_late_and_leaves_none_out() -> None:
    run = asyncio.run(drive(listed(20, Arrivals.TRACE), answered, Ticking()))
    assert [one.request.number for one in run.records] == list(range(20))
    assert all(one.due is not None and one.sent > one.due for one in run.records)
    assert (run.answered, run.failed, run.stopped) == (20, 0, "")


def test_an_open_loop_doesn_t_wait_for_answers() -> None:
    together = asyncio.Event()
    started = 0

    async def ask(_: Request) -> Outcome:
        nonlocal started
        started += 1
        if started == 3:
            together.set()
        await together.wait()
        return DONE

    run = asyncio.run(drive(listed(3, Arrivals.POISSON), ask, SystemClock()))
    assert run.answered == 3


def test_a_closed_loop_has_never_more_in_flight_than_asked_for() -> None:
    flying = most = 0

    async def ask(_: Request) -> Outcome:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0)
        flying -= 1
        return DONE

    workload = listed(30, Arrivals.CLOSED, concurrency=4)
    run = asyncio.run(drive(workload, ask, SystemClock()))
    assert (run.answered, most) == (30, 4)
    assert all(one.due is None for one in run.records)


def test_nothing_is_sent_after_the_time_is_up() -> None:
    workload = listed(50, Arrivals.CLOSED, concurrency=1, seconds=10.0)
    run = asyncio.run(drive(workload, answered, Ticking()))
    assert 0 < len(run.records) < 10


def test_a_run_that_is_stopped_keeps_what_it_has() -> None:
    async def ask(request: Request) -> Outcome:
        if request.number == 0:
            return DONE
        await asyncio.Event().wait()
        raise AssertionError

    def watch(run: Run) -> str | None:
        return "interrupted" if run.answered else None

    run = asyncio.run(drive(listed(3, Arrivals.TRACE), ask, SystemClock(), watch))
    assert (run.stopped, run.answered) == ("interrupted", 1)
    assert [one.outcome is None for one in run.records] == [False, True, True]


def test_a_machine_at_its_end_ends_the_run() -> None:
    async def ask(request: Request) -> Outcome:
        if request.number == 1:
            raise Exhausted("this process may open no more files")
        return await answered(request)

    workload = listed(100, Arrivals.CLOSED, concurrency=1)
    run = asyncio.run(drive(workload, ask, SystemClock()))
    assert (run.exhausted, run.answered) == (True, 1)
    assert "no more files" in run.stopped


def test_a_fault_of_ours_is_not_swallowed() -> None:
    async def ask(_: Request) -> Outcome:
        raise ZeroDivisionError

    for arrivals in (Arrivals.TRACE, Arrivals.CLOSED):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(drive(listed(2, arrivals), ask, SystemClock()))
