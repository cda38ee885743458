"""``vllm bench serve`` as the generator: its flags, and its result, whose shape is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpuwatch.errors import UsageError
from hpuwatch.load.client import Route
from hpuwatch.load.figures import METRICS, PERCENTILES
from hpuwatch.load.tools import (
    Job,
    check_words,
    flags_in,
    help_of,
    program_of,
    read_json,
)
from hpuwatch.load.workload import Arrivals, Span

_RESULT = "result.json"
_NEEDED_KEYS = (
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

    def command(self, job: Job, folder: Path) -> Sequence[str]:
        """Return the command line, after its help has named every flag of it."""
        start = [program_of("vllm"), "bench", "serve"]
        # Newer ones list all flags only when asked for all; older ones don't know that.
        text = help_of([*start, "--help=all"])
        if "--num-prompts" not in text:
            text = help_of([*start, "--help"])
        known = flags_in(text)
        flags = list(_flags(job, folder))
        if "--backend" not in known:  # its name before 0.11
            flags = [
                ("--endpoint-type" if flag == "--backend" else flag, values)
                for flag, values in flags
            ]
        check_words(self.name, (flag for flag, _ in flags), known)
        return [*start, *(word for flag, values in flags for word in (flag, *values))]

    def environment(self, job: Job) -> Mapping[str, str]:
        """Return the key, which it takes from there."""
        return {} if job.key is None else {"OPENAI_API_KEY": job.key}

    def read(self, job: Job, folder: Path) -> dict[str, Any]:
        """Return its result as it is; only a count that older ones lack is added."""
        told = read_json(folder / _RESULT, self.name)
        check_words(self.name, _NEEDED_KEYS, told)
        told.setdefault("failed", job.requests - told["completed"])
        return told


def _flags(job: Job, folder: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each flag with its values.

    Raises:
        UsageError: it can't do that.
    """
    chat = job.route is Route.CHAT
    yield "--backend", ["openai-chat" if chat else "openai"]
    yield "--base-url", [job.endpoint.url]
    yield "--endpoint", [job.route.path]
    yield "--model", [job.model]
    if job.tokenizer is not None:
        yield "--tokenizer", [job.tokenizer]
    yield "--dataset-name", ["random"]
    yield "--random-input-len", [str(_middle(job.inputs))]
    yield "--random-output-len", [str(_middle(job.outputs))]
    yield "--random-range-ratio", [f"{_ratio(job):g}"]
    yield "--num-prompts", [str(job.requests)]
    yield "--request-rate", ["inf" if job.rate is None else f"{job.rate:g}"]
    if job.arrivals is Arrivals.CONSTANT:
        yield "--burstiness", [_EVEN]
    if job.concurrency is not None:
        yield "--max-concurrency", [str(job.concurrency)]
    yield "--ignore-eos", []
    yield "--seed", [str(job.seed)]
    yield "--percentile-metrics", [",".join(METRICS)]
    yield "--metric-percentiles", [",".join(map(str, PERCENTILES))]
    if job.limits:
        yield "--goodput", [f"{name}:{most:g}" for name, most in job.limits.items()]
    yield "--save-result", []
    if job.detailed:
        yield "--save-detailed", []
    yield "--result-dir", [str(folder)]
    yield "--result-filename", [_RESULT]


def _middle(span: Span) -> int:
    return round((span.least + span.most) / 2)


def _ratio(job: Job) -> float:
    """Return how far lengths may lie from their middle, as a share of it.

    Raises:
        UsageError: it would be another for prompts than for answers.
    """
    inputs, outputs = (
        round((span.most - span.least) / (span.most + span.least), 3)
        for span in (job.inputs, job.outputs)
    )
    if inputs != outputs:
        raise UsageError(
            "vllm bench serve spreads prompts and answers by one ratio: give both ranges "
            "the same relative width, or measure with --tool own"
        )
    return inputs
