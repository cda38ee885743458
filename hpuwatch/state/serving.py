"""Events of a server at work: load, bucket misses, compilations and faults.

A busy server says hardly anything but its load and its misses, over and over.  These are
therefore folded many at a time (``FOLDS``); one at a time gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from hpuwatch.events import Event
from hpuwatch.life.phases import Phase
from hpuwatch.state import fields
from hpuwatch.state.memory import Handler, rank_of
from hpuwatch.state.model import (
    DECODE,
    MULTIMODAL,
    PROMPT,
    Fault,
    Known,
    Memory,
    Miss,
    MissKey,
    Shape,
    Start,
    Traffic,
    value_of,
)
from hpuwatch.state.warming import PHASES
from hpuwatch.units import Amount

Number = TypeVar("Number", int, float)

NOT_WARMED_UP = "not_warmed_up"
NOT_PREPARED = "not_prepared"
FATAL = "fatal"
KV_ALLOCATION = "KV cache allocation"
"""Where a fault struck that comes after the split of memory and before warm-up."""
UNIFIED = "unified"
"""The phase of a shape that holds prompts and decodes together."""

_MOST_FAULTS = 64
_MOST_SHAPES = 4096  # a recompile storm has shown 1,996; further ones are only counted
_OTHERS: Shape = ()
_PHASE_WORDS = {"prefill": PROMPT, "prefix_prefill": PROMPT}
_BEFORE_TRAFFIC = (Phase.LOADING, Phase.SIZING, Phase.WARMING, Phase.SWITCHING)


def _stats(start: Start, events: Sequence[Event]) -> Start:
    """Fold the engine's periodic lines, figure by figure."""
    told = [event for event in events if _whole(event, "r") is not None]
    if not told:
        return start
    before = start.traffic
    running = [_whole(event, "r") for event in told]
    waiting = [_waiting(event) for event in told]
    prompt, generated = _numbers(told, "pt"), _numbers(told, "gt")
    use = [None if kv is None else kv / 100 for kv in _numbers(told, "kv")]
    activity = [*zip(running, prompt, generated, strict=True)]
    traffic = replace(
        before,
        lines=before.lines + len(told),
        busy_lines=before.busy_lines + sum(map(_is_busy, activity)),
        kv_use_peak=_peak(before.kv_use_peak, told, use),
        running_peak=_peak(before.running_peak, told, running),
        waiting_peak=_peak(before.waiting_peak, told, waiting),
        prompt_tokens_per_second_peak=_peak(
            before.prompt_tokens_per_second_peak, told, prompt
        ),
        generation_tokens_per_second_peak=_peak(
            before.generation_tokens_per_second_peak, told, generated
        ),
    )
    traffic = _stalled(_in_a_row(traffic, waiting), told, activity)
    return replace(start, traffic=_preempted(traffic, told))


def _whole(event: Event, name: str) -> int | None:
    value = event.fields.get(name)
    return value if type(value) is int else None


def _waiting(event: Event) -> int | None:
    waiting = _whole(event, "w")
    return _whole(event, "p") if waiting is None else waiting


def _numbers(events: Iterable[Event], name: str) -> list[float | None]:
    """Return a figure of each event, None where it has none."""
    return [value_of(fields.number(event, name)) for event in events]


def _stalled(
    traffic: Traffic,
    events: Sequence[Event],
    activity: Iterable[tuple[float | None, ...]],
) -> Traffic:
    """Count the lines on end in which requests ran and not a token went in or out."""
    in_a_row, longest = traffic.stalled_lines, traffic.stalled_longest
    for event, (running, *tokens) in zip(events, activity, strict=True):
        in_a_row = in_a_row + 1 if running and tokens == [0.0, 0.0] else 0
        if in_a_row > (value_of(longest) or 0):
            longest = Known(in_a_row, event.line)
    return replace(traffic, stalled_lines=in_a_row, stalled_longest=longest)


def _is_busy(activity: tuple[float | None, ...]) -> bool:
    return any(each is not None and each > 0 for each in activity)


def _peak(
    before: Known[Number] | None,
    events: Sequence[Event],
    sizes: Sequence[Number | None],
) -> Known[Number] | None:
    """Return the largest figure and its line, the first where several are equal."""
    known = [size for size in sizes if size is not None]
    if not known:
        return before
    most = max(known)
    if before is not None and most <= before.value:
        return before
    return Known(most, events[sizes.index(most)].line)


def _in_a_row(traffic: Traffic, waiting: Iterable[int | None]) -> Traffic:
    """Count the lines on end that tell of waiting requests."""
    in_a_row, longest = traffic.waiting_lines, traffic.waiting_lines_longest
    for count in waiting:
        in_a_row = in_a_row + 1 if count else 0
        longest = max(longest, in_a_row)
    return replace(traffic, waiting_lines=in_a_row, waiting_lines_longest=longest)


def _preempted(traffic: Traffic, events: Iterable[Event]) -> Traffic:
    """Add up preemptions: V1 says how many there were in its interval."""
    for event in events:
        count = _whole(event, "preemptions")
        if count is not None:
            traffic = replace(traffic, preemptions_printed=True)
            known = Known(count, event.line)
            traffic = _preemptions(traffic, known, traffic.preemptions)
    return traffic


def _preemptions(traffic: Traffic, known: Known[int] | None, before: int) -> Traffic:
    if known is None or known.value <= 0:
        return traffic
    return replace(traffic, preemptions=before + known.value, preempted=known)


def _preemption(start: Start, event: Event) -> Start:
    """V0 logs every 50th with the number since the start."""
    known = fields.whole(event, "n")
    return replace(start, traffic=_preemptions(start.traffic, known, 0))


def _misses(start: Start, events: Sequence[Event]) -> Start:
    """Fold misses; each rank prints one, so only rank 0 counts it up again."""
    counts = 0 if _is_own_doing(start) else 1
    missed = dict(start.missed)
    for event in events:
        key = _MISSED[event.kind](event)
        if key is None:
            continue
        if len(missed) >= _MOST_SHAPES and key not in missed:
            key = (*key[:2], _OTHERS)
        before = missed.get(key)
        if before is None:
            missed[key] = Miss(*key, event.line, counts)
        elif counts and rank_of(start, event) == 0:
            missed[key] = Miss(*key, before.line, before.count + counts)
    return replace(start, missed=missed)


def _not_warmed(event: Event) -> MissKey | None:
    sizes = [_whole(event, name) for name in ("bs", "seq", "blocks")]
    shape = tuple(size for size in sizes if size is not None)
    shape = shape or fields.shape(event, "shape") or ()
    if not shape:
        return None
    word = fields.phase(event) or UNIFIED
    return _PHASE_WORDS.get(word, word), NOT_WARMED_UP, shape


def _not_prepared(event: Event) -> MissKey | None:
    shape = fields.shape(event, "requested")
    if shape is None:
        return None
    return fields.phase(event) or UNIFIED, NOT_PREPARED, shape


_MISSED = {"config_not_warmed": _not_warmed, "bucket_fallback": _not_prepared}


def _is_own_doing(start: Start) -> bool:
    """Before it serves, a server asks for shapes itself: that is no traffic."""
    starting = start.phase is Phase.STARTING and bool(start.engines)
    return starting or start.phase in _BEFORE_TRAFFIC


def _compiled(start: Start, event: Event) -> Start:
    count = fields.whole(event, "TotalNumber")
    prompt, site = event.fields.get("is_prompt"), fields.text(event, "site")
    if count is None:
        return start
    where = site.value if site else (PROMPT if prompt else DECODE)
    total = start.compiled.get(where, 0) + count.value
    return replace(start, compiled={**start.compiled, where: total})


def _fault(start: Start, event: Event) -> Start:
    """Note a fault; the same exception is printed again by every process above it."""
    name, message = fields.text(event, "name"), fields.text(event, "message")
    severity = fields.text(event, "severity")
    if name is None or len(start.faults) >= _MOST_FAULTS:
        return start
    words = message.value if message else ""
    fault_class = _fault_class(start, name.value)
    if any(
        (known.name, known.message) == (fault_class, words) for known in start.faults
    ):
        return start
    printed = fields.whole(event, "rank")
    rank = printed.value if printed else rank_of(start, event)
    wanted = event.fields.get("wanted")
    told = severity.value if severity else "error"
    fault = Fault(
        name=fault_class,
        phase=start.broke_in or start.phase,
        severity=told,
        line=event.line,
        rank=rank,
        root=event.fields.get("root") is not False
        and not (told == FATAL and _has_died_of_a_cause(start)),
        wanted=wanted if isinstance(wanted, Amount) else None,
        at=_place(start, rank),
        message=words,
        context=event.context,
    )
    return replace(start, faults=(*start.faults, fault))


def _has_died_of_a_cause(start: Start) -> bool:
    """Tell whether the death is explained: what is fatal from then on follows from it."""
    return any(fault.root and fault.severity == FATAL for fault in start.faults)


def _fault_class(start: Start, name: str) -> str:
    """Return the class, by what else is known: the line alone doesn't tell them apart."""
    warming = (start.broke_in or start.phase) is Phase.WARMING
    if name == "device_oom_devmem" and warming and start.kv.hybrid:
        return "device_oom_warmup_hybrid"
    return name


def _place(start: Start, rank: int) -> str | None:
    """Return ``prompt bucket 3 of 48`` for the bucket that is being warmed, and the like."""
    phase_now = start.broke_in or start.phase
    if phase_now is Phase.SIZING:
        split = start.memory.get(rank, Memory()).usable
        return "profile run" if split is None else KV_ALLOCATION
    if phase_now not in (Phase.WARMING, Phase.SWITCHING):
        return None
    for phase in reversed(PHASES):
        progress = start.warmup.progress.get(phase)
        if progress is not None and progress.done < progress.total:
            step = "step" if phase == MULTIMODAL else "bucket"
            return f"{phase} {step} {progress.done + 1:,} of {progress.total:,}"
    return None


Fold = Callable[[Start, Sequence[Event]], Start]

FOLDS: Mapping[str, Fold] = MappingProxyType(
    {"engine_stats": _stats, **dict.fromkeys(_MISSED, _misses)}
)
"""What takes many events of a kind at once; no fold looks at what another one changes."""


def _one_at_a_time(fold: Fold) -> Handler:
    return lambda start, event: fold(start, (event,))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{kind: _one_at_a_time(fold) for kind, fold in FOLDS.items()},
        "preemption": _preemption,
        "graph_compilation_step": _compiled,
        "fault": _fault,
    }
)
