"""The page of ``hpuwatch load``: throughput, latencies, failures, and how the client fared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpuwatch.load.figures import METRICS, PERCENTILES
from hpuwatch.tune.report import align
from hpuwatch.units import counted

_NONE = "-"
_CREDIBLE_ERROR = 0.2
_EQUAL_SPEED = 0.01  # the server's seconds are the clock's, as nearly as anybody reads
_TITLES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end to end",
}
_TOTALS = (
    ("duration, s", "duration", 2),
    ("requests/s", "request_throughput", 2),
    ("good requests/s", "request_goodput", 2),
    ("output tokens/s", "output_throughput", 1),
    ("all tokens/s", "total_token_throughput", 1),
    ("peak output tokens/s", "max_output_tokens_per_s", 0),
)
_SERVER = (
    ("mean time to first token, ms", "mean_ttft_ms"),
    ("mean inter-token latency, ms", "mean_itl_ms"),
    ("mean end to end, ms", "mean_e2el_ms"),
    ("mean wait in its queue, ms", "mean_queue_ms"),
    ("prompt tokens", "prompt_tokens"),
    ("prompt tokens from the prefix cache", "prefix_cache_hit_tokens"),
    ("generated tokens", "generation_tokens"),
    ("preemptions", "preemptions"),
)

Table = list[list[str]]


def text_page(told: Mapping[str, Any]) -> str:
    """Return the page for a terminal."""
    parts = [[_title(told), *_remarks(told)]]
    parts += [align(table).splitlines() for table in _tables(told)]
    parts.append(_notes(told))
    return "\n\n".join("\n".join(part) for part in parts if part)


def markdown_page(told: Mapping[str, Any]) -> str:
    """Return the page as markdown."""
    parts = [f"# {_title(told)}", "\n\n".join(_remarks(told))]
    for head, *rows in _tables(told):
        cells = [head, ["---"] * len(head), *rows]
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in cells))
    parts.append("\n".join(f"- {line}" for line in _notes(told)))
    return "\n\n".join(part for part in parts if part)


def plan_page(plan: Mapping[str, Any]) -> str:
    """Return what would be sent."""
    requests = plan["requests"]
    if requests is None:
        lasts = f"{plan['ends_after_seconds']:g} s"
        return f"load: as many requests as are answered in {lasts}\nnothing was sent"
    lines = [
        f"load: {counted(requests, 'request')} to {plan['url']} ({plan['arrivals']})",
        f"  input tokens   {plan['input_tokens']:>14,}",
        f"  output tokens  {plan['output_tokens']:>14,}",
        f"  shared prefix  {plan['prefix_tokens']:>14,}",
    ]
    if plan["concurrency"] is not None:
        lines.append(f"  in flight      {plan['concurrency']:>14,}")
    else:
        lines.append(f"  sending        {plan['sending_seconds']:>14,.1f} s")
    if plan["rate"] is not None:
        lines.append(f"  rate           {plan['rate']:>14,.2f} requests/s")
    return "\n".join([*lines, "nothing was sent"])


def _title(told: Mapping[str, Any]) -> str:
    done = f"{told['completed']:,} of {counted(told['num_prompts'], 'request')}"
    mark = " (SIMULATED)" if told["origin"] == "simulated" else ""
    return f"load: {done} answered by {told['model_id']}{mark}"


def _remarks(told: Mapping[str, Any]) -> list[str]:
    """Return what must be known before any figure is read."""
    lines = []
    if (told.get("client") or {}).get("is_bottleneck"):
        lines.append(
            "THE CLIENT WAS THE BOTTLENECK: these figures are its own, not the server's."
        )
    if told.get("stopped"):
        lines.append(f"Ended early: {told['stopped']}.")
    simulated = told.get("simulated")
    if simulated:
        lines.append(
            "No figure was measured on a Gaudi. The server's seconds ran "
            f"{simulated['speed']:.2f} times as fast as the clock."
        )
        off = simulated.get("e2el_error")
        if off is not None and abs(off) > _CREDIBLE_ERROR:
            lines.append(
                f"Simulated latencies are off by {off:+.0%} in the mean, as that speed was "
                "not even: read the server's own counters, or lower its --serving-speed."
            )
    elif told["origin"] == "simulated":
        lines.append("No figure was measured on a Gaudi.")
    return lines


def _tables(told: Mapping[str, Any]) -> list[Table]:
    columns = _columns(told)
    totals: Table = [["", *(name for name, _ in columns)]]
    for title, key, digits in _TOTALS:
        if told.get(key) is not None:
            totals.append(
                [title, *(_figure(side.get(key), digits) for _, side in columns)]
            )
    tables = [totals, *(_latencies(name, side) for name, side in columns)]
    figures: Mapping[str, float] = told.get("server") or {}
    counters: Table = [
        [title, _figure(figures[key], 1 if key.endswith("_ms") else 0)]
        for title, key in _SERVER
        if key in figures
    ]
    tables.append([["by the server's own counters", ""], *counters])
    return [table for table in tables if len(table) > 1]


def _columns(told: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    columns = [("by the clock", told)]
    simulated = told.get("simulated") or {}
    # Another tool's figures can't be told in the server's seconds.
    if "duration" not in simulated or abs(simulated["speed"] - 1) < _EQUAL_SPEED:
        return columns
    return [*columns, ("simulated", simulated)]


def _latencies(name: str, side: Mapping[str, Any]) -> Table:
    head = ["mean", *(f"p{percent}" for percent in PERCENTILES)]
    table: Table = [[f"ms {name}", *head]]
    for metric in METRICS:
        values = [side.get(f"{each}_{metric}_ms") for each in head]
        if any(value is not None for value in values):
            table.append([_TITLES[metric], *(_figure(value, 2) for value in values)])
    return table


def _notes(told: Mapping[str, Any]) -> list[str]:
    return [*_failures(told), *_client(told)]


def _failures(told: Mapping[str, Any]) -> Iterator[str]:
    if told.get("failed"):
        yield f"failed: {told['failed']:,}"
    for row in told.get("failures") or ():
        yield f"  {row['count']:,} times: {row['reason']}"
    for key, what in (("unfinished", "stopped on the way"), ("unsent", "never sent")):
        if told.get(key):
            yield f"{what}: {told[key]:,}"
    if told.get("short_answers"):
        yield f"answers with fewer tokens than asked for: {told['short_answers']:,}"


def _client(told: Mapping[str, Any]) -> Iterator[str]:
    client = told.get("client")
    if not client:
        return
    line = (
        f"the client: {client['cpu_seconds']:.2f} CPU s, "
        f"{client['cpu_share']:.0%} of a core"
    )
    if client["lag_p99_ms"] is not None:
        line += (
            f"; sent {client['lag_p50_ms']:.1f} ms late (median), "
            f"{client['lag_p99_ms']:.1f} ms (p99), {client['lag_max_ms']:.1f} ms at most"
        )
    yield line
    work = told["workload"]
    asked, got = work["asked_input_tokens"], told["total_input_tokens"]
    yield (
        f"prompts: {work['prompts']}, {asked:,} tokens asked for, {got:,} in answered "
        "requests by the server's count"
    )


def _figure(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"
