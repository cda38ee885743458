"""The catalogue as a page for people: ``docs/metrics.md`` is this text."""

from __future__ import annotations

from hpuwatch.metrics.catalogue import (
    MEMORY_KINDS,
    METRICS,
    OTHER,
    PAGES,
    SEVERITIES,
    Metric,
)
from hpuwatch.metrics.faults import FAULT_CLASSES
from hpuwatch.metrics.readings import GRAPH_PHASES, MISS_REASONS

_HEAD = """\
# Metrics

<!-- Made from hpuwatch/metrics/catalogue.py by `make docs`; change that file instead. -->

`GET /metrics` serves these, as text or as OpenMetrics, whichever the scraper asks for.

- A figure that the server's log has not told is absent. It is never 0 instead.
- Counters exist from 0 on. They count over all lives of the server, and they never go
  back while a watcher runs, not even when it reads the log again.
- `model_name` and `engine` have the values of vLLM's own metrics, so that they join with
  `vllm:*`. A model's name is cut after 128 characters.
- `rank` is the tensor-parallel rank. Each rank prints a memory split of its own.
- One death of a server is one fault of the severity `fatal`, its cause. What the other
  processes say of it (`EngineDeadError`) has the severity `consequence`.
- `hpuwatch_last_exit_…` tell of the server before, under the same name and state
  directory: under `hpuwatch run` the endpoint ends with its server, a tenth of a second
  after it, so that a scrape hardly ever sees the state `failed`.
- Everything that a simulated server causes is exported beside `hpuwatch_simulated 1`.
"""


def markdown() -> str:
    """Return the page."""
    parts = [_HEAD, *(_section(metric) for metric in METRICS), _values()]
    return "\n".join(parts)


def _section(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    unit = f", in {metric.unit}" if metric.unit else ""
    return (
        f"## {metric.name}\n\n{metric.help}\n\n"
        f"{metric.kind.value.capitalize()}{unit}; labels: {labels}\n"
    )


def _values() -> str:
    rows = {
        "kind": MEMORY_KINDS,
        "phase": (*GRAPH_PHASES, OTHER),
        "reason": (*MISS_REASONS, OTHER),
        "severity": (*SEVERITIES, OTHER),
        "page": PAGES,
        "class": (*FAULT_CLASSES, OTHER),
    }
    lines = [
        f"- `{label}`: {', '.join(f'`{value}`' for value in values)}"
        for label, values in rows.items()
    ]
    return "## Values of labels\n\n" + "\n".join(lines) + "\n"
