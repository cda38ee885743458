"""GuideLLM as the generator, from 0.7 on: its scenario file, and its report as our fields.

Everything goes into a scenario file, the key too, so that no list of processes shows it.  Of
its figures, ``inter_token_latency_ms`` is a request's mean after the first token, which is
vLLM's tpot; its own ``time_per_output_token_ms`` counts the first token too and is nobody
else's.  It keeps no times between single pieces, so that there is no itl.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpuwatch.errors import ResourceError, UsageError
from hpuwatch.load.figures import PERCENTILES
from hpuwatch.load.order import Order
from hpuwatch.load.target import Target
from hpuwatch.load.tools import (
    check_figures,
    check_words,
    flags_in,
    help_of,
    program_of,
    read_json,
)
from hpuwatch.load.workload import Arrivals, Span

_SCENARIO, _RESULT = "scenario.json", "report.json"
_FLAGS = ("--config", "--disable-console-interactive")
# Kinds that its help lists, each at the option where the scenario uses it.
_KINDS = ("openai_http", "synthetic_text", "max_requests", "json", "static")
_PROFILES = {
    Arrivals.CLOSED: "concurrent",
    Arrivals.POISSON: "poisson",
    Arrivals.CONSTANT: "constant",
}
# ours: theirs, and what makes milliseconds of it.
_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("inter_token_latency_ms", 1.0),
    "e2el": ("request_latency", 1000.0),
}


class GuideLlm:
    """The generator of that name."""

    name = "guidellm"

    def command(self, target: Target, order: Order, folder: Path) -> Sequence[str]:
        """Return the command line, after the help has named all that the scenario says."""
        program = program_of("guidellm")
        if order.limits:
            raise UsageError(
                "--goodput can't be asked of guidellm: leave it out, or measure with "
                "--tool own"
            )
        text = help_of([program, "run", "--help"])
        known = {*flags_in(text), *_words(text)}
        check_words(self.name, (*_FLAGS, *_KINDS, _PROFILES[order.arrivals]), known)
        path = folder / _SCENARIO
        path.touch(mode=0o600)
        path.write_text(json.dumps(_scenario(target, order, folder)), encoding="utf-8")
        return [program, "run", "--config", str(path), "--disable-console-interactive"]

    def environment(self, target: Target) -> Mapping[str, str]:
        """Return nothing: the scenario says it all."""
        del target
        return {}

    def read(self, order: Order, folder: Path) -> dict[str, Any]:
        """Return the first benchmark of its report in our fields."""
        report = read_json(folder / _RESULT, self.name)
        try:
            told = _fields(report["benchmarks"][0], order)
        except (LookupError, TypeError, ZeroDivisionError) as error:
            raise ResourceError(
                f"guidellm wrote a report of another form ({error!r} in it): install "
                "another release of it, or measure with --tool own"
            ) from None
        check_figures(self.name, told)
        return told


def _words(text: str) -> set[str]:
    """Return the words of a help, which draws frames and lists kinds in brackets."""
    plain = "".join(char if char.isalnum() or char == "_" else " " for char in text)
    return set(plain.split())


def _scenario(target: Target, order: Order, folder: Path) -> dict[str, Any]:
    key, (inputs, outputs) = target.endpoint.key, order.lengths
    backend: dict[str, Any] = {
        "kind": "openai_http",
        "target": target.endpoint.url,
        "model": target.model,
        "request_format": target.route.path,
    }
    if key is not None:
        backend["api_key"] = key
    profile: dict[str, Any] = {"kind": _PROFILES[order.arrivals]}
    if order.arrivals is Arrivals.CLOSED:
        profile["streams"] = [order.concurrency]
    else:
        profile["rate"] = [order.rate]
    data = {"kind": "synthetic_text"}
    data |= _lengths("prompt_tokens", inputs)
    data |= _lengths("output_tokens", outputs)
    spec: dict[str, Any] = {
        "backend": backend,
        "profile": profile,
        "data": [data],
        "constraints": [{"kind": "max_requests", "count": order.requests}],
        "seed": {"kind": "static", "value": order.seed},
        "outputs": [{"kind": "json", "path": str(folder / _RESULT)}],
    }
    if order.tokenizer is not None:
        spec["tokenizer"] = {"kind": "huggingface_auto", "model": order.tokenizer}
    return {"spec": spec}


def _lengths(name: str, span: Span) -> dict[str, Any]:
    told = {name: span.middle}
    if span.most > span.least:
        told |= {f"{name}_min": span.least, f"{name}_max": span.most}
    return told


def _fields(benchmark: Mapping[str, Any], order: Order) -> dict[str, Any]:
    """Return our fields.

    Raises:
        KeyError: a figure is missing.
    """
    metrics, seconds = benchmark["metrics"], benchmark["duration"]
    totals = metrics["request_totals"]
    inputs = metrics["prompt_token_count"]["successful"]["total_sum"]
    outputs = metrics["output_token_count"]["successful"]["total_sum"]
    done = totals["successful"]
    told: dict[str, Any] = {
        "num_prompts": order.requests,
        "request_rate": "inf" if order.rate is None else order.rate,
        "burstiness": 1.0 if order.arrivals is Arrivals.POISSON else None,
        "max_concurrency": order.concurrency,
        "duration": seconds,
        "completed": done,
        "failed": totals["errored"],
        "unfinished": totals["incomplete"],
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": done / seconds,
        "request_goodput": None,
        "output_throughput": outputs / seconds,
        "total_token_throughput": (inputs + outputs) / seconds,
        "max_concurrent_requests": metrics["request_concurrency"]["successful"]["max"],
    }
    for name, (theirs, factor) in _LATENCIES.items():
        told |= _spread(name, metrics[theirs]["successful"], factor)
    return told


def _spread(name: str, told: Mapping[str, Any], factor: float) -> dict[str, float]:
    values = {
        f"mean_{name}_ms": told["mean"],
        f"median_{name}_ms": told["median"],
        f"std_{name}_ms": told["std_dev"],
    }
    for percent in PERCENTILES:
        values[f"p{percent}_{name}_ms"] = told["percentiles"][f"p{percent}"]
    return {key: value * factor for key, value in values.items()}
