"""A study for people: the table of before and after, the list of trials, the env file.

Text only, without colours, so that the same rows serve a terminal, a file and a test.
Simulated figures say so in every form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.tune.facts import RESERVE, reserve_is_short, wanted_bytes
from hpuwatch.tune.objective import (
    FEWEST_WINDOWS,
    Doubt,
    Verdict,
    gain_of,
    judge,
    prices,
    score,
)
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import UNSTEADY, Facts, Measurement, Trial
from hpuwatch.units import format_bytes

Table = list[tuple[str, ...]]
DASH = "-"
RESERVE_KNOB = "reserve"


def _relative(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.1f} %" if before else ""


@dataclass(frozen=True, slots=True)
class _Row:
    """A figure of the table: its name, where it comes from, how it and its change show."""

    name: str
    read: Callable[[Trial], float | None]
    show: Callable[[float], str]
    change: Callable[[float, float], str] = _relative


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


def _points(before: float, after: float) -> str:
    """Return the change of a share, which would be a per cent of per cents otherwise."""
    return f"{(after - before) * 100:+.0f} points"


def _untold(_before: float, _after: float) -> str:
    """Return nothing: a setting is no result."""
    return ""


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
    _Row(
        "KV use, peak",
        _from_measurement(lambda found: found.kv_use_peak),
        _percent,
        _points,
    ),
    _Row("bucket misses", _from_measurement(lambda found: found.bucket_misses), _count),
    _Row(
        RESERVE,
        lambda trial: trial.facts.reserve_ratio,
        lambda ratio: f"{ratio:g}",
        _untold,
    ),
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
        differ = before is not None and after is not None and before != after
        change = row.change(before or 0, after or 0) if differ else ""
        table.append((row.name, *shown, change))
    names = dict.fromkeys(name for name in verdict.best.settings if name != RESERVE)
    table += [(name, "(as it was)", verdict.best.settings[name], "") for name in names]
    return table


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return the verdict in a sentence, and in more what it rests on."""
    baseline, best = verdict.baseline, verdict.best
    more = (_ties(verdict), _unsteady(baseline, best), _plenty(verdict))
    return [_verdict(verdict), *filter(None, more)]


def _verdict(verdict: Verdict) -> str:
    baseline, best, doubted = verdict.baseline, verdict.best, verdict.doubted
    if doubted is not None:
        rise = f"{gain_of(doubted, baseline) * 100:+.1f} % output tokens/s"
        said = f"trial {doubted.number} ({settings_text(doubted)}) measured {rise}"
        if verdict.doubt is Doubt.ONE_WINDOW:
            return (
                f"Not proven by one window: {said}, but one window shows no spread. Change "
                f"nothing yet, and measure with --load windows={FEWEST_WINDOWS} or more."
            )
        return f"Change nothing: {said}, but {_no_help(baseline)}."
    if best.is_baseline:
        return (
            "No setting did better than the original configuration beyond the noise: "
            "change nothing."
        )
    return (
        f"Best: trial {best.number} ({settings_text(best)}), "
        f"{verdict.gain * 100:+.1f} % output tokens/s{_price(baseline, best)}, "
        f"{_windows(baseline, best)}."
    )


def _price(baseline: Trial, best: Trial) -> str:
    """Return which latencies got worse, as a part of the verdict."""
    worse = [f"{name} {change * 100:+.0f} %" for name, change in prices(baseline, best)]
    return f" at the price of {' and '.join(worse)}" if worse else ""


def _windows(baseline: Trial, best: Trial) -> str:
    before, after = (
        len(trial.measurement.windows) if trial.measurement else 0
        for trial in (baseline, best)
    )
    if before != after:
        return f"by {after} windows against {before}"
    return f"by {before} window{'s' * (before != 1)} of each"


def _ties(verdict: Verdict) -> str:
    """Return why the chosen trial needn't have the highest figure."""
    if len(verdict.ties) < 2:
        return ""
    best = verdict.best
    why = (
        "which is your own configuration"
        if best.is_baseline
        else "which deviates least from your own configuration"
    )
    return (
        f"Trials {_listed(verdict.ties)} tie within the noise, so it is trial "
        f"{best.number}, {why}."
    )


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def _unsteady(baseline: Trial, best: Trial) -> str:
    """Return a warning where a figure that the verdict rests on is hardly one."""
    both = dict.fromkeys(trial.number for trial in (baseline, best) if _remark(trial))
    if not both:
        return ""
    whose = f"trial{'s' * (len(both) > 1)} {_listed(list(both))}"
    return (
        f"The windows of {whose} differ by more than {UNSTEADY * 100:.0f} %: measure "
        "again when nothing else runs, or with longer windows (--load requests=N)."
    )


def _plenty(verdict: Verdict) -> str:
    """Return why more KV cache could not help, where the load didn't need it."""
    found = verdict.baseline.measurement
    if not verdict.best.is_baseline or found is None or not found.kv_was_plenty:
        return ""
    heavier = "If your traffic is heavier, say so with --load."
    if verdict.doubt is Doubt.KV_WAS_PLENTY:
        return heavier
    said = _no_help(verdict.baseline)
    return f"{said[0].upper()}{said[1:]}. {heavier}"


def _no_help(baseline: Trial) -> str:
    peak = baseline.measurement.kv_use_peak if baseline.measurement else None
    return (
        "a larger KV cache could not help under this load: KV use peaked at "
        f"{(peak or 0) * 100:.0f} %; whatever differs is not the setting's doing"
    )


def nothing_compared(trials: Sequence[Trial]) -> str:
    """Return how it came that there is no verdict, in a sentence."""
    tried = [trial for trial in trials if not trial.is_baseline]
    if not any(score(trial) is not None for trial in trials if trial.is_baseline):
        return "Nothing was compared: your own configuration was not measured."
    if not tried:
        return "Nothing was compared: no other setting was tried."
    states = Counter(trial.state.value for trial in tried)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return (
        f"Nothing was compared: 0 of {len(tried)} trial{'s' * (len(tried) != 1)} "
        f"counted ({counts})."
    )


def study_text(study: Study, trials: Sequence[Trial], reason: str) -> str:
    """Return a whole study: the verdict, why it ended, its trials, before and after."""
    origin = " (SIMULATED)" if is_simulated(trials) else ""
    verdict = judge(trials)
    said = verdict_lines(verdict) if verdict else [nothing_compared(trials)]
    head = [f"Study {study.id}{origin}", *said, reason]
    if RESERVE_KNOB in study.knobs:
        head.append(_short_reserve(trials))
    parts = ["\n".join(filter(None, head)), align(trial_table(trials), "  ")]
    if verdict is not None and not verdict.best.is_baseline:
        parts.append(f"Before and after{origin}:")
        parts.append(align(before_and_after(verdict), "  "))
    return "\n\n".join(parts)


def _short_reserve(trials: Sequence[Trial]) -> str:
    """Return why reserves above the operator's own were tried, where they were."""
    own = next((trial.facts for trial in trials if trial.is_baseline), None)
    if own is None or not reserve_is_short(own):
        return ""
    return (
        f"Your own reserve ({format_bytes(own.reserve_bytes or 0)}) is less than graphs and "
        f"the allowance for activations want by its log "
        f"({format_bytes(wanted_bytes(own))}): larger ones were allowed too."
    )


def trial_table(trials: Iterable[Trial]) -> Table:
    """Return one row for each trial, failures with their cause; a heading comes first."""
    table: Table = [_HEADING]
    for trial in trials:
        rate = score(trial)
        blocks = trial.facts.kv_blocks
        table.append(
            (
                str(trial.number),
                settings_text(trial),
                trial.state.value,
                DASH if rate is None else f"{rate:,.1f}",
                _plus_minus(trial.measurement),
                DASH if blocks is None else f"{blocks:,}",
                _remark(trial),
            )
        )
    return table


_HEADING = ("trial", "settings", "outcome", "tokens/s", "±", "KV blocks", "remark")


def _plus_minus(found: Measurement | None) -> str:
    """Return half of what the windows differ by; a single window tells nothing of it."""
    if found is None or len(found.windows) < 2:
        return DASH
    return f"{found.spread / 2:,.1f}"


def _remark(trial: Trial) -> str:
    found = trial.measurement
    if found is not None and found.is_unsteady:
        share = found.spread / (found.tokens_per_second or 1)
        return f"unsteady: windows differ by {share * 100:.0f} %"
    return trial.outcome.cause if trial.outcome else ""


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

    The form is read alike by a shell, ``docker --env-file`` and systemd; ``lint`` compares
    its head with the server that is to use it.
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
        *_header(study, facts).lines(),
        f"# {verdict_lines(verdict)[0]}",
        f"# before {score(verdict.baseline):.1f}, after {score(best):.1f} output tokens/s",
        *(f"{name}={value}" for name, value in best.settings.items()),
    ]
    return "\n".join(lines) + "\n"


def _header(study: Study, facts: Facts) -> EnvHeader:
    """Return for which server the settings were found."""
    cards = facts.tensor_parallel
    return EnvHeader(
        release=facts.release or None,
        card=facts.card or None,
        model=facts.model or None,
        tp=None if cards is None else str(cards),
        base=study.fingerprint or None,
    )


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
