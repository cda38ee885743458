"""A study for people: the table of before and after, the list of trials, the env file.

Text only, without colours, so that the same rows serve a terminal, a file and a test.
Simulated figures say so in every form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import Verdict, judge, noise, score
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import Measurement, Trial
from hpuwatch.units import format_bytes

Table = list[tuple[str, ...]]
DASH = "-"


@dataclass(frozen=True, slots=True)
class _Row:
    """A figure of the table: its name, where it comes from, how it is printed."""

    name: str
    read: Callable[[Trial], float | None]
    show: Callable[[float], str]


def _from_windows(figure: str) -> Callable[[Trial], float | None]:
    return lambda trial: trial.measurement.mean(figure) if trial.measurement else None


def _from_measurement(
    read: Callable[[Measurement], float | None],
) -> Callable[[Trial], float | None]:
    return lambda trial: read(trial.measurement) if trial.measurement else None


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _graphs(trial: Trial) -> float | None:
    graphs = trial.facts.graph_bytes
    return sum(graphs.values()) if graphs else None


def _buckets(trial: Trial) -> float | None:
    buckets = trial.facts.buckets
    return sum(buckets.values()) if buckets else None


_ROWS = (
    _Row("output tokens/s", score, lambda rate: f"{rate:,.1f}"),
    _Row("TTFT p50", _from_windows("ttft_p50_seconds"), _seconds),
    _Row("TTFT p99", _from_windows("ttft_p99_seconds"), _seconds),
    _Row("ITL p50", _from_windows("itl_p50_seconds"), _seconds),
    _Row("ITL p99", _from_windows("itl_p99_seconds"), _seconds),
    _Row("errors", _from_measurement(lambda found: found.errors), _count),
    _Row("preemptions", _from_measurement(lambda found: found.preemptions), _count),
    _Row("KV use, peak", _from_measurement(lambda found: found.kv_use_peak), _percent),
    _Row("bucket misses", _from_measurement(lambda found: found.bucket_misses), _count),
    _Row(RESERVE, lambda trial: trial.facts.reserve_ratio, lambda ratio: f"{ratio:g}"),
    _Row("graph reserve", lambda trial: trial.facts.reserve_bytes, format_bytes),
    _Row("graph memory used", _graphs, format_bytes),
    _Row("KV cache", lambda trial: trial.facts.kv_bytes, format_bytes),
    _Row("KV blocks", lambda trial: trial.facts.kv_blocks, _count),
    _Row("buckets", _buckets, _count),
    _Row("warm-up", lambda trial: trial.facts.warmup_seconds, _seconds),
)


def before_and_after(verdict: Verdict) -> Table:
    """Return the table: figure, before, after, change; a heading comes first."""
    table: Table = [("", "before", "after", "change")]
    for row in _ROWS:
        before, after = row.read(verdict.baseline), row.read(verdict.best)
        if before is None and after is None:
            continue
        shown = [
            DASH if value is None else row.show(value) for value in (before, after)
        ]
        table.append((row.name, *shown, _change(before, after)))
    names = dict.fromkeys(name for name in verdict.best.settings if name != RESERVE)
    table += [(name, "(as it was)", verdict.best.settings[name], "") for name in names]
    return table


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None or before == after:
        return ""
    return f"{(after / before - 1) * 100:+.1f} %"


def verdict_text(verdict: Verdict) -> str:
    """Return the verdict in a sentence or two."""
    baseline, best = verdict.baseline, verdict.best
    windows = len(baseline.measurement.windows) if baseline.measurement else 0
    if best.is_baseline:
        return (
            "No setting did better than the original configuration beyond the noise: "
            "change nothing." + _plenty(baseline)
        )
    text = (
        f"{verdict.gain * 100:+.1f} % output tokens/s with trial {best.number}, by "
        f"{windows} window{'s' * (windows != 1)} of each."
    )
    if verdict.within_noise:
        spread = noise(best, baseline)
        text += f" That is within noise: windows differ by up to {spread:.4g} tokens/s."
    return text


def _plenty(baseline: Trial) -> str:
    """Return why more KV cache could not help, where the load didn't need it."""
    found = baseline.measurement
    if found is None or not found.kv_was_plenty:
        return ""
    return (
        f" Under this load the KV cache was never short (its use peaked at "
        f"{(found.kv_use_peak or 0) * 100:.0f} %), so a larger one could not help: if your "
        "traffic is heavier, say so with --load."
    )


def study_text(study: Study, trials: Sequence[Trial], state: str) -> str:
    """Return a whole study: its trials, the table of before and after, the verdict."""
    origin = " (SIMULATED)" if is_simulated(trials) else ""
    parts = [f"Study {study.id}{origin}: {state}.", align(trial_table(trials), "  ")]
    verdict = judge(trials)
    if verdict is not None:
        parts.append(f"Before and after{origin}:")
        parts.append(align(before_and_after(verdict), "  "))
        parts.append(verdict_text(verdict))
    return "\n\n".join(parts)


def trial_table(trials: Iterable[Trial]) -> Table:
    """Return one row for each trial, failures with their cause; a heading comes first."""
    table: Table = [("trial", "settings", "outcome", "tokens/s", "KV blocks", "cause")]
    for trial in trials:
        rate = score(trial)
        blocks = trial.facts.kv_blocks
        table.append(
            (
                str(trial.number),
                settings_text(trial),
                trial.state.value,
                DASH if rate is None else f"{rate:,.1f}",
                DASH if blocks is None else f"{blocks:,}",
                trial.outcome.cause if trial.outcome else "",
            )
        )
    return table


def settings_text(trial: Trial) -> str:
    """Return what a trial changed, in a few words."""
    if trial.is_baseline:
        return "the original"
    return " ".join(f"{name}={value}" for name, value in trial.settings.items())


def is_simulated(trials: Iterable[Trial]) -> bool:
    """Tell whether a server of these trials said that it is simulated."""
    return any(trial.facts.simulated for trial in trials)


def env_text(study: Study, verdict: Verdict, now: float) -> str:
    """Return the best setting as an env file; its comments say where it comes from.

    The form is read alike by a shell, ``docker --env-file`` and systemd.
    """
    best, facts = verdict.best, verdict.best.facts
    day = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%d")
    origin = (
        "SIMULATED: no figure here was measured on a Gaudi"
        if is_simulated((verdict.baseline, best))
        else "measured"
    )
    lines = [
        f"# hpuwatch tune, study {study.id}, {day} ({origin})",
        f"# model {facts.model or 'unknown'}, release {facts.release or 'unknown'}",
        f"# {verdict_text(verdict)}",
        f"# before {score(verdict.baseline):.1f}, after {score(best):.1f} output tokens/s",
        *(f"{name}={value}" for name, value in best.settings.items()),
    ]
    return "\n".join(lines) + "\n"


def align(table: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return a table as text: the first column to the left, no trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        indent
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in table
    )
