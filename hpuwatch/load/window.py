"""One window of load for ``tune``: a closed loop of streamed completions, always the same.

The requests of a window are asked by ``concurrency`` askers until they are used up.  Prompts
are made of short words (about one token each), different for every request so that no prefix
cache helps, and the same for every trial of a study.  Each answer has exactly
``output_tokens`` tokens, so that all trials do the same work.

The first error ends the window: a trial with errors has failed anyway, and downtime is
dear.  A window is bounded in requests and in time.
"""

from __future__ import annotations

from collections.abc import Callable

from hpuwatch.clock import Clock
from hpuwatch.errors import UsageError
from hpuwatch.load.client import Client
from hpuwatch.load.drive import Run, carry_out
from hpuwatch.load.figures import good_of, percentile
from hpuwatch.load.prompts import WORDS, Prompts
from hpuwatch.load.target import Target
from hpuwatch.load.workload import Arrivals, Request, Workload
from hpuwatch.tune.trial import LoadPlan, Window

_MOST = {
    "concurrency": 4096,
    "requests": 100_000,
    "prompt_tokens": 1_000_000,
    "output_tokens": 1_000_000,
    "windows": 100,
}
_MOST_TOKENS = 50_000_000


def check_plan(plan: LoadPlan) -> None:
    """Check that one machine could give this load.

    Raises:
        UsageError: a figure is out of bounds.
    """
    for figure, most in _MOST.items():
        value = getattr(plan, figure)
        if not 0 < value <= most:
            raise UsageError(
                f"the load's {figure.replace('_', ' ')} must lie between 1 and {most:,}"
            )
    if plan.requests * plan.prompt_tokens > _MOST_TOKENS:
        raise UsageError(
            f"the load's requests times prompt tokens must not exceed {_MOST_TOKENS:,}"
        )


def run_load(
    target: Target,
    plan: LoadPlan,
    clock: Clock,
    *,
    window: int = 0,
    look: Callable[[], bool] = lambda: False,
) -> Window:
    """Run one window and return what it measured; failed requests are counted in it.

    Args:
        target: who is asked.
        plan: the load.
        clock: where time comes from.
        window: which window, so that no two share a prompt.
        look: called now and then while the window lasts; True ends it early, with an
            error that says so.
    """

    def watch(run: Run) -> str | None:
        if look():
            return "interrupted"
        if clock.boottime() - run.begun > plan.window_limit_seconds:
            return f"no end within {plan.window_limit_seconds:g} s"
        return None

    requests = (
        Request(number, 0.0, plan.prompt_tokens, plan.output_tokens)
        for number in range(plan.requests)
    )
    workload = Workload(tuple(requests), Arrivals.CLOSED, plan.concurrency, strict=True)
    # Made before the clock runs: it is our work, not the server's.
    prompts = Prompts(WORDS, f"{plan.seed}/{window}")
    client = Client(target, prompts, clock.boottime, plan.window_limit_seconds)
    return _window(carry_out(workload, client, clock, watch))


def _window(run: Run) -> Window:
    good = [one for one in map(good_of, run.records) if one is not None]
    first = sorted(one.ttft for one in good)
    between = sorted(one.tpot for one in good if one.tpot is not None)
    # What stops a run without a failed request has failed the window as a whole.
    errors = max(run.failed, 1 if run.stopped else 0)
    return Window(
        seconds=run.seconds,
        requests=len(good) + errors,
        errors=errors,
        output_tokens=sum(one.tokens for one in good),
        first_error=run.first_failure or run.stopped,
        ttft_p50_seconds=percentile(first, 50),
        ttft_p99_seconds=percentile(first, 99),
        itl_p50_seconds=percentile(between, 50),
        itl_p99_seconds=percentile(between, 99),
    )
