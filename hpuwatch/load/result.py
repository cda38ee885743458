"""The document of a run: ``vllm bench serve``'s keys first, then what only we tell.

``failures``, ``client``, ``server``, ``simulated`` and ``workload`` are ours.  Figures that
our own processor bounded are the client's, not the server's: ``client.is_bottleneck``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from hpuwatch import __version__
from hpuwatch.load.counters import Counted
from hpuwatch.load.drive import Run
from hpuwatch.load.figures import Measured, figures, measured, percentile
from hpuwatch.load.order import Order
from hpuwatch.load.prompts import TOKEN_IDS, Units
from hpuwatch.load.target import Route, Target
from hpuwatch.load.workload import Arrivals, Totals, Workload, totals_of

SCHEMA = "hpuwatch.load/1"
BUSY_SHARE = 0.9
"""A client that uses more of its core than this is what limits the run."""

_BACKENDS = {Route.COMPLETIONS: "openai", Route.CHAT: "openai-chat"}


@dataclass(frozen=True, slots=True)
class About:
    """What a run was about.

    Attributes:
        target: who was asked.
        order: what was asked for.
        units: what its prompts were made of; token ids count one each.
        version: of the server, None where it doesn't say.
        is_simulated: the server says beside its version that it is.
    """

    target: Target
    order: Order
    units: Units = TOKEN_IDS
    version: str | None = None
    is_simulated: bool = False


def heading(about: About, now: float, num_prompts: int, tool: str) -> dict[str, object]:
    """Return the first fields: what was run, when, against what."""
    moment = datetime.fromtimestamp(now, timezone.utc)
    target = about.target
    return {
        "schema": SCHEMA,
        "date": moment.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": _BACKENDS[target.route],
        "backend": _BACKENDS[target.route],
        "label": None,
        "model_id": target.model,
        "tokenizer_id": None,
        "num_prompts": num_prompts,
        "tool": tool,
        "hpuwatch_version": __version__,
        "url": target.endpoint.url,
        "server_version": about.version,
    }


def document(
    about: About, workload: Workload, run: Run, counted: Counted, now: float
) -> dict[str, object]:
    """Return the document of a run.

    Args:
        about: what it was about.
        workload: what was to be sent.
        run: what came of it.
        counted: what the server counted meanwhile.
        now: seconds since the epoch.
    """
    totals = totals_of([record.request for record in run.records])
    planned = totals.requests if run.planned is None else run.planned
    told = heading(about, now, planned, "own")
    told |= _traffic(workload, totals)
    seen = measured(run)
    told |= figures(seen, about.order.limits)
    told |= {
        "goodput_limits_ms": dict(about.order.limits),
        "origin": _origin(about, counted),
        "simulated": _simulated(about, seen, counted),
        "stopped": run.stopped or None,
        "unfinished": sum(record.outcome is None for record in run.records),
        "unsent": planned - totals.requests,
        "short_answers": _short(run),
        "tokens_per_piece": _tokens_per_piece(run),
        "failures": _failures(run),
        "client": _client(run),
        "server": dict(counted.figures),
        "workload": _workload(about, workload, totals),
    }
    return told


def _origin(about: About, counted: Counted) -> str:
    simulated = about.is_simulated or counted.is_simulated
    return "simulated" if simulated else "measured"


def _traffic(workload: Workload, totals: Totals) -> dict[str, object]:
    """Return the three fields by which vLLM tells how requests were spaced.

    Its burstiness is the shape of a gamma distribution: 1 is Poisson, more is more even.
    """
    burstiness = {Arrivals.POISSON: 1.0, Arrivals.CONSTANT: "inf"}
    rate = totals.rate if workload.rate is None else workload.rate
    return {
        "request_rate": "inf" if rate is None else rate,
        "burstiness": burstiness.get(workload.arrivals),
        "max_concurrency": workload.concurrency,
    }


def _simulated(
    about: About, seen: Measured, counted: Counted
) -> dict[str, object] | None:
    """Return the same figures in the server's simulated seconds, None for a real server.

    Its time doesn't run evenly, so that latencies by the mean speed are estimates;
    ``e2el_error`` is how far their mean lies from the one that the server counted.
    """
    passed = _passed(counted)
    if passed is None or counted.speed is None:
        return None
    told = figures(seen, about.order.limits, counted.speed)
    own, ours = counted.figures.get("mean_e2el_ms"), told["mean_e2el_ms"]
    error = ours / own - 1 if own and isinstance(ours, float) else None
    return passed | told | {"e2el_error": error}


def _passed(counted: Counted) -> dict[str, object] | None:
    """Return how the server's simulated time went, None for a real server."""
    if counted.speed is None:
        return None
    return {
        "seconds": counted.simulated_seconds,
        "busy_seconds": counted.busy_seconds,
        "speed": counted.speed,
    }


def _short(run: Run) -> int:
    """Return how many good answers have fewer tokens than were asked for."""
    return sum(
        record.outcome.tokens < record.request.output_tokens
        for record in run.records
        if record.outcome is not None and not record.outcome.failure
    )


def _tokens_per_piece(run: Run) -> float | None:
    good = [one.outcome for one in run.records if one.outcome]
    pieces = sum(len(outcome.arrivals) for outcome in good if not outcome.failure)
    tokens = sum(outcome.tokens for outcome in good if not outcome.failure)
    return tokens / pieces if pieces else None


def _failures(run: Run) -> list[dict[str, object]]:
    """Return the reasons, the most frequent first; numbers in them don't tell them apart."""
    kinds: dict[str, list[str]] = {}
    for record in run.records:
        why = record.outcome.failure if record.outcome else ""
        if why:
            # The status of HTTP is a reason, a length or an id within its text isn't.
            key = re.sub(r"(?<!HTTP )\b\d+\b", "#", why)
            kinds.setdefault(key, []).append(why)
    ordered = sorted(kinds.values(), key=len, reverse=True)
    return [{"reason": whys[0], "count": len(whys)} for whys in ordered]


def _client(run: Run) -> dict[str, object]:
    """Return how our own side fared: its processor, and how late it sent what was due."""
    lags = sorted(
        (record.sent - record.due) * 1000
        for record in run.records
        if record.due is not None
    )
    share = run.cpu_seconds / run.seconds if run.seconds > 0 else 0.0
    return {
        "cpu_seconds": run.cpu_seconds,
        "cpu_share": share,
        "is_bottleneck": share > BUSY_SHARE,
        "lag_p50_ms": percentile(lags, 50),
        "lag_p99_ms": percentile(lags, 99),
        "lag_max_ms": percentile(lags, 100),
    }


def _workload(about: About, workload: Workload, totals: Totals) -> dict[str, object]:
    order = about.order
    return {
        "trace": str(order.trace) if order.trace else None,
        "warp": (order.warp or 1.0) if order.trace else None,
        "arrivals": workload.arrivals.value,
        "asked_input_tokens": totals.input_tokens,
        "asked_output_tokens": totals.output_tokens,
        "asked_prefix_tokens": totals.prefix_tokens,
        "sending_seconds": totals.seconds,
        "prompts": about.units.name,
        "tokens_per_word": about.units.tokens_each,
    }


def tool_document(
    about: About, tool: str, told: Mapping[str, object], counted: Counted, now: float
) -> dict[str, object]:
    """Return the document of a run that another tool made.

    Args:
        about: what it was about.
        tool: its name.
        told: what its result says, in our fields.
        counted: what the server counted meanwhile, the tool's own warm-up included.
        now: seconds since the epoch.
    """
    return {
        **heading(about, now, 0, tool),
        **told,
        "goodput_limits_ms": dict(about.order.limits),
        "origin": _origin(about, counted),
        "simulated": _passed(counted),
        "server": dict(counted.figures),
    }
