"""``vllm bench serve`` as the generator: its flags, and its result, whose shape is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpuwatch.errors import UsageError
from hpuwatch.load.figures import METRICS, PERCENTILES
from hpuwatch.load.order import Order
from hpuwatch.load.target import Route, Target
from hpuwatch.load.tools import (
    check_figures,
    check_words,
    flags_in,
    help_of,
    program_of,
    read_json,
)
from hpuwatch.load.workload import Arrivals, Span

_RESULT = "result.json"
_NEEDED_KEYS = (
    "num_prompts",
    "duration",
    "completed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "mean_ttft_ms",
)
# A gamma distribution of that shape has hardly any spread.
_EVEN = "1000000"


class VllmBench:
    """The generator that comes with vLLM."""

    name = "vllm bench serve"

    def command(self, target: Target, order: Order, folder: Path) -> Sequence[str]:
        """Return the command line, after its help has named every flag of it."""
        start = [program_of("vllm"), "bench", "serve"]
        # Newer ones list all flags only when asked for all; older ones don't know that.
        text = help_of([*start, "--help=all"])
        if "--num-prompts" not in text:
            text = help_of([*start, "--help"])
        known = flags_in(text)
        flags = list(_flags(target, order, folder))
        if "--backend" not in known:  # its name before 0.11
            flags = [
                ("--endpoint-type" if flag == "--backend" else flag, values)
                for flag, values in flags
            ]
        check_words(self.name, (flag for flag, _ in flags), known)
        return [*start, *(word for flag, values in flags for word in (flag, *values))]

    def environment(self, target: Target) -> Mapping[str, str]:
        """Return the key, which it takes from there."""
        key = target.endpoint.key
        return {} if key is None else {"OPENAI_API_KEY": key}

    def read(self, order: Order, folder: Path) -> dict[str, Any]:
        """Return its result as it is; only what older ones lack or misspell is mended."""
        del order
        told = read_json(folder / _RESULT, self.name)
        told.setdefault("request_goodput", told.pop("request_goodput:", None))
        check_words(self.name, _NEEDED_KEYS, told)
        check_figures(self.name, told)
        told.setdefault("failed", told["num_prompts"] - told["completed"])
        return told


def _flags(
    target: Target, order: Order, folder: Path
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each flag with its values.

    Raises:
        UsageError: it can't do that.
    """
    inputs, outputs = order.lengths
    chat = target.route is Route.CHAT
    yield "--backend", ["openai-chat" if chat else "openai"]
    yield "--base-url", [target.endpoint.url]
    yield "--endpoint", [target.route.path]
    yield "--model", [target.model]
    if order.tokenizer is not None:
        yield "--tokenizer", [order.tokenizer]
    yield "--dataset-name", ["random"]
    yield "--random-input-len", [str(inputs.middle)]
    yield "--random-output-len", [str(outputs.middle)]
    yield "--random-range-ratio", [f"{_ratio(inputs, outputs):g}"]
    yield "--num-prompts", [str(order.requests)]
    yield "--request-rate", ["inf" if order.rate is None else f"{order.rate:g}"]
    if order.arrivals is Arrivals.CONSTANT:
        yield "--burstiness", [_EVEN]
    if order.concurrency is not None:
        yield "--max-concurrency", [str(order.concurrency)]
    yield "--ignore-eos", []
    yield "--seed", [str(order.seed)]
    yield "--percentile-metrics", [",".join(METRICS)]
    yield "--metric-percentiles", [",".join(map(str, PERCENTILES))]
    if order.limits:
        yield "--goodput", [f"{name}:{most:g}" for name, most in order.limits.items()]
    yield "--save-result", []
    if order.detailed:
        yield "--save-detailed", []
    yield "--result-dir", [str(folder)]
    yield "--result-filename", [_RESULT]


def _ratio(inputs: Span, outputs: Span) -> float:
    """Return how far lengths may lie from their middle, as a share of it.

    Raises:
        UsageError: it would be another for prompts than for answers.
    """
    ratio, other = (
        round((span.most - span.least) / (span.most + span.least), 3)
        for span in (inputs, outputs)
    )
    if ratio != other:
        raise UsageError(
            "vllm bench serve spreads prompts and answers by one ratio: give both ranges "
            "the same relative width, or measure with --tool own"
        )
    return ratio
