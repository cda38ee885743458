"""Bucket settings that came to nothing: what was asked for against what was made.

A variable may be one that the strategy or the release never looks at (``gaudi.heeded``), or
one that acts and whose bound the printed list doesn't keep all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.advise.bucketing import ranges_of
from hpuwatch.advise.finding import WARNING, Case, Sighting
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.heeded import unheeded
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.resolve import resolve
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.records import Line
from hpuwatch.state.configured import acting_variables, configured, printed_lists
from hpuwatch.state.model import Known, Start
from hpuwatch.units import counted

_SHOWN = 4
_AXES = {
    "PROMPT_BS": (PROMPT, "batch"),
    "PROMPT_QUERY": (PROMPT, "query"),
    "PROMPT_SEQ": (PROMPT, "query"),
    "DECODE_BS": (DECODE, "batch"),
    "DECODE_BLOCK": (DECODE, "context"),
}
_UNITS = {"batch": "requests", "query": "tokens", "context": "blocks"}


@dataclass(frozen=True, slots=True)
class _Broken:
    """A bound that the printed list doesn't keep."""

    name: str
    asked: int
    made: int
    unit: str
    line: Line


def ignored(case: Case) -> Sighting | None:
    """Look for bucket variables that are set and change nothing."""
    start = case.start
    settings = _settings(start)
    if settings is None:
        return None
    known = acting_variables(start.server)
    vain = [name for name in unheeded(settings) if name in known]
    broken = list(_broken(start, known, set(vain)))
    if not vain and not broken:
        return None
    lines = [known[name].line for name in vain]
    for each in broken:
        phase = DECODE if "_DECODE_" in each.name else PROMPT
        lines += [each.line, start.buckets[phase].line]
    return Sighting(
        title="title" if vain else "title_broken",
        why=(
            *(("why",) if vain else ()),
            *(("why_broken",) if broken else ()),
        ),
        cure=("cure" if vain else "cure_broken",),
        numbers={
            "ignored_settings": len(vain),
            "bounds_not_kept": len(broken),
            **_numbers(broken),
        },
        words={
            "vain": counted(len(vain), "bucket setting"),
            "do": "does" if len(vain) == 1 else "do",
            "names": _named(vain),
            "broken": "; ".join(
                f"{each.name}={each.asked:,} was set and the list has {each.made:,} "
                f"{each.unit}"
                for each in broken[:_SHOWN]
            ),
            "strategy": ranges_of(start).word,
        },
        lines=tuple(dict.fromkeys(lines)),
        severity=WARNING if broken else None,
    )


def _numbers(broken: Sequence[_Broken]) -> dict[str, float]:
    if not broken:
        return {}
    first = broken[0]
    return {f"asked_{first.unit}": first.asked, f"made_{first.unit}": first.made}


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _settings(start: Start) -> BucketSettings | None:
    known = configured(start)
    if known is None or known.bucket_file is not None:
        return None  # what a file holds decides, and lint tells of that
    try:
        return resolve(known.release.dialect, known.flags, known.env)
    except ConfigError:
        return None


def _broken(
    start: Start, known: Mapping[str, Known[str]], vain: set[str]
) -> Iterator[_Broken]:
    """Yield the minima that the lists undercut, and the maxima that they exceed.

    The last decode bucket may stand for the whole pool, and so lie above its maximum.
    """
    lists = printed_lists(start)
    for axis, (phase, number) in _AXES.items():
        listed = lists.get(phase, ())
        if not listed:
            continue
        for bound, end in (("MIN", min), ("MAX", max)):
            name = f"VLLM_{axis}_BUCKET_{bound}"
            setting = known.get(name)
            asked = flag_number(setting.value) if setting else None
            if setting is None or asked is None or name in vain:
                continue
            if bound == "MAX" and axis == "DECODE_BLOCK":
                continue
            made = end(_sizes(listed, number))
            if (made < asked) if bound == "MIN" else (made > asked):
                yield _Broken(name, asked, made, _UNITS[number], setting.line)


def _sizes(listed: Sequence[Bucket], number: str) -> list[int]:
    return [int(getattr(each, number)) for each in listed]
