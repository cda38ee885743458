"""Events of a server at work: load, bucket misses, compilations and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

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
    Miss,
    Shape,
    Start,
    Traffic,
)
from hpuwatch.state.warming import PHASES
from hpuwatch.units import Amount

NOT_WARMED_UP = "not_warmed_up"
NOT_PREPARED = "not_prepared"
FATAL = "fatal"
UNIFIED = "unified"
"""The phase of a shape that holds prompts and decodes together."""

_MOST_FAULTS = 64
_MOST_SHAPES = 4096  # a recompile storm has shown 1,996; further ones are only counted
_OTHERS: Shape = ()
_PHASE_WORDS = {"prefill": PROMPT, "prefix_prefill": PROMPT}
_BEFORE_TRAFFIC = (Phase.LOADING, Phase.SIZING, Phase.WARMING)


def _stats(start: Start, event: Event) -> Start:
    running = fields.whole(event, "r")
    if running is None:
        return start
    before = start.traffic
    waiting = fields.whole(event, "w") or fields.whole(event, "p")
    in_a_row = before.waiting_lines + 1 if waiting and waiting.value else 0
    percent = fields.number(event, "kv")
    use = Known(percent.value / 100, event.line) if percent else None
    preempted = fields.whole(event, "preemptions")
    prompt, generated = fields.number(event, "pt"), fields.number(event, "gt")
    traffic = replace(
        before,
        lines=before.lines + 1,
        busy_lines=before.busy_lines + _is_busy(running, prompt, generated),
        waiting_lines=in_a_row,
        waiting_lines_longest=max(before.waiting_lines_longest, in_a_row),
        kv_use_peak=fields.larger(before.kv_use_peak, use),
        running_peak=fields.larger(before.running_peak, running),
        waiting_peak=fields.larger(before.waiting_peak, waiting),
        prompt_tokens_per_second_peak=fields.larger(
            before.prompt_tokens_per_second_peak, prompt
        ),
        generation_tokens_per_second_peak=fields.larger(
            before.generation_tokens_per_second_peak, generated
        ),
        preemptions_printed=before.preemptions_printed or preempted is not None,
    )
    # V1 says how many there were in this interval, not since the start.
    traffic = _preemptions(traffic, preempted, before.preemptions)
    return replace(start, traffic=traffic)


def _is_busy(*activity: Known[int] | Known[float] | None) -> bool:
    return any(each.value > 0 for each in activity if each is not None)


def _preemptions(traffic: Traffic, known: Known[int] | None, before: int) -> Traffic:
    if known is None or known.value <= 0:
        return traffic
    return replace(traffic, preemptions=before + known.value, preempted=known)


def _preemption(start: Start, event: Event) -> Start:
    """V0 logs every 50th with the number since the start."""
    known = fields.whole(event, "n")
    return replace(start, traffic=_preemptions(start.traffic, known, 0))


def _not_warmed(start: Start, event: Event) -> Start:
    word = fields.phase(event)
    sizes = [fields.whole(event, name) for name in ("bs", "seq", "blocks")]
    shape = tuple(size.value for size in sizes if size is not None)
    shape = shape or fields.shape(event, "shape") or ()
    if not shape:
        return start
    phase = _PHASE_WORDS.get(word or "", word or UNIFIED)
    return _missed(start, event, phase, NOT_WARMED_UP, shape)


def _not_prepared(start: Start, event: Event) -> Start:
    shape = fields.shape(event, "requested")
    phase = fields.phase(event) or UNIFIED
    if shape is None:
        return start
    return _missed(start, event, phase, NOT_PREPARED, shape)


def _missed(start: Start, event: Event, phase: str, reason: str, shape: Shape) -> Start:
    """Note a miss; each rank prints it, so only rank 0 counts one up again."""
    counts = 0 if _is_own_doing(start) else 1
    misses = list(start.misses)
    if len(misses) >= _MOST_SHAPES and all(miss.shape != shape for miss in misses):
        shape = _OTHERS
    for place, miss in enumerate(misses):
        if (miss.phase, miss.reason, miss.shape) == (phase, reason, shape):
            if rank_of(start, event) == 0:
                misses[place] = replace(miss, count=miss.count + counts)
            return replace(start, misses=tuple(misses))
    misses.append(Miss(phase, reason, shape, event.line, counts))
    return replace(start, misses=tuple(misses))


def _is_own_doing(start: Start) -> bool:
    """Before it serves, a server asks for shapes itself: that is no traffic."""
    starting = start.phase is Phase.STARTING and start.engine_seen
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
    if any(
        (known.name, known.message) == (name.value, words) for known in start.faults
    ):
        return start
    wanted = event.fields.get("wanted")
    told = severity.value if severity else "error"
    fault = Fault(
        name=name.value,
        phase=start.broke_in or start.phase,
        severity=told,
        line=event.line,
        rank=event.speaker.rank,
        root=event.fields.get("root") is not False
        and not (told == FATAL and _has_died_of_a_cause(start)),
        wanted=wanted if isinstance(wanted, Amount) else None,
        at=_place(start),
        message=words,
        context=event.context,
    )
    return replace(start, faults=(*start.faults, fault))


def _has_died_of_a_cause(start: Start) -> bool:
    """Tell whether the death is explained: what is fatal from then on follows from it."""
    return any(fault.root and fault.severity == FATAL for fault in start.faults)


def _place(start: Start) -> str | None:
    """Return ``prompt bucket 3 of 48`` for the bucket that is being warmed."""
    if (start.broke_in or start.phase) is not Phase.WARMING:
        return None
    for phase in reversed(PHASES):
        progress = start.warmup.progress.get(phase)
        if progress is not None and progress.done < progress.total:
            step = "step" if phase == MULTIMODAL else "bucket"
            return f"{phase} {step} {progress.done + 1:,} of {progress.total:,}"
    return None


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "engine_stats": _stats,
        "preemption": _preemption,
        "config_not_warmed": _not_warmed,
        "bucket_fallback": _not_prepared,
        "graph_compilation_step": _compiled,
        "fault": _fault,
    }
)
