"""Which reserve to try next, what it wins and what it keeps.

*Idle at the end of warm-up is not yet winnable.*  Warm-up shows what graphs take, not what
real requests need on top, so a first step down never removes more than half of what lies
idle.  Three bounds follow:

* ``keeps``: at least half of the idle memory stays in the reserve;
* ``peak``: reserve and the memory outside of vLLM's budget together still hold the most
  that warm-up took at any step;
* ``activations``: where real requests were never measured (see
  :func:`hpuwatch.advise.figures.activations_unmeasured`), the idle memory that stays and
  the memory outside of vLLM's budget, ``free - usable``, hold an allowance together.

The allowance is 10 % of the free memory.  Three public logs have profile runs that really
executed: 3.44 GiB of 61.7 (Llama-3.1-70B on four cards), 5.32 of 79.6 (Llama-3.1-8B with a
batch of 64) and 9.04 of 91.7 (Qwen3-VL-32B), that is 5.6, 6.7 and 9.9 %.  10 % covers the
dearest of them.

A step up follows a failure, which tells no upper bound of the need: half as much again as
there was for graphs (the reserve and the memory outside), or what the failed allocation
asked for where that is more.

A KV cache that came out too small gets a smaller reserve where that helps, and only then a
shorter request (see :mod:`hpuwatch.advise.plan.shortage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.checks.memory_ledger import is_mismatched, memory_was_free
from hpuwatch.advise.figures import (
    ACTIVATION_SHARE,
    Reserve,
    about,
    has_traffic,
    kv_is_short,
    reserve_of,
    tokens_per_block,
)
from hpuwatch.advise.graphmemory import warmup_use_of
from hpuwatch.advise.plan.shortage import Shortage, shortage_of
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.memory import blocks_won, ratio_holding
from hpuwatch.gaudi.planning import RESERVE, Change
from hpuwatch.state.model import Known, Start
from hpuwatch.units import format_bytes

_SMALLEST_RATIO, LARGEST_RATIO = 0.01, 0.9
_WORTH_RATIO = 0.02
"""Idle memory below this share of the KV cache is left alone."""
_WORTH_STEP_RATIO = 0.01
"""A step down that wins less of the KV cache than this is not worth a restart."""
_SLACK = 1.02
"""Graphs may take this much of the reserve before it counts as too small: print rounding."""
_STEP_UP = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """Settings of a proposal that belong together.

    Attributes:
        changes: what to set.
        answers: the name of the finding that it answers; "" where the plan asks for it.
        gain: what it is for, in a few words.
        why: a sentence or two.
        rank: orders steps, the most gain for the one restart first.
        bucket_file: the text of the bucket file that it names.
    """

    changes: tuple[Change, ...]
    answers: str
    gain: str
    why: str
    rank: int
    bucket_file: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to try, with what it is expected to bring.

    Attributes:
        env: variables to set.
        flags: command-line flags to set, as words.
        expected: blocks, tokens and bytes after the change; ``_won`` may be negative.
        margin: bytes that stay.
        kept: what stays, in words: a line each.
        proven: whether load has shown that the change is safe; a log never does.
        why: one sentence.
        answers: the name of the finding that it answers.
        unset: variables and flags to take away.
        figures: what is expected, with intervals.
        steps: its parts, the most gain first (see ``advise.plan.whole``).
        checked: ``gaudi.predict`` has looked at the whole.
        cautions: what that said of it, a sentence each.
        bucket_file: the text of a bucket file that is to be written.
    """

    env: Mapping[str, str]
    why: str
    answers: str
    flags: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)
    margin: Mapping[str, float | str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    proven: bool = False
    unset: tuple[str, ...] = ()
    figures: Mapping[str, Estimate] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    checked: bool = False
    cautions: tuple[str, ...] = ()
    bucket_file: str | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the same as changes, in the order in which they are typed."""
        words = iter(self.flags)
        return (
            *(Change(name, value) for name, value in self.env.items()),
            *(Change(name, next(words)) for name in words),
            *(Change(name, None) for name in self.unset),
        )


def of_changes(changes: Iterable[Change], proposal: Proposal) -> Proposal:
    """Return the proposal with just these changes; the last of one name holds."""
    last = {change.name: change for change in changes}
    given = [
        (each.name, each.value) for each in last.values() if each.value is not None
    ]
    return replace(
        proposal,
        env={name: value for name, value in given if not name.startswith("--")},
        flags=tuple(
            word
            for name, value in given
            if name.startswith("--")
            for word in (name, value)
        ),
        unset=tuple(each.name for each in last.values() if each.value is None),
    )


def propose(start: Start) -> Proposal | None:
    """Return the one change that the log supports, or None for "change nothing"."""
    fault = root_fault(start)
    if fault is not None:
        return _after_fault(start, code_of(fault))
    reserve = reserve_of(start)
    if reserve is None or reserve.idle_bytes is None or incomplete_phases(start):
        return None
    if is_mismatched(start):
        return None
    if is_short(reserve):
        return _raise_to_used(start, reserve)
    if is_worth_a_look(start, reserve) and kv_is_short(start) is not False:
        return _lower(start, reserve)
    return None


def is_short(reserve: Reserve) -> bool:
    """Tell whether graphs took more than the reserve."""
    return (reserve.used_bytes or 0) > reserve.reserve_bytes * _SLACK


def is_worth_a_look(start: Start, reserve: Reserve) -> bool:
    """Tell whether so much lies idle that it would be felt as KV cache."""
    blocks = start.kv.blocks
    if reserve.idle_bytes is None or blocks is None or blocks.value <= 0:
        return False
    return reserve.idle_bytes >= blocks.value * reserve.block_bytes * _WORTH_RATIO


def incomplete_phases(start: Start) -> dict[str, Known[float]]:
    """Return the phases whose graphs did not fit their budget (up to fork 1.21)."""
    return {
        phase: captured
        for phase, captured in start.captured.items()
        if 0 < captured.value < 1
    }


def activation_allowance_bytes(reserve: Reserve) -> int:
    """Return what is kept for activations that nobody measured; 0 where they were."""
    if not reserve.activations_unmeasured:
        return 0
    return round(reserve.free_bytes * ACTIVATION_SHARE)


def _after_fault(start: Start, code: str) -> Proposal | None:
    if code in ("kv-short", "kv-none"):
        return _room_for_kv(start, code)
    reserve = reserve_of(start)
    if reserve is None or code not in ("warmup-oom", "serving-oom"):
        return None
    if code == "serving-oom" and memory_was_free(start, reserve):
        return None
    fault = root_fault(start)
    wanted = fault.wanted.bytes if fault and fault.wanted else 0
    had = reserve.reserve_bytes + reserve.outside_bytes
    half = round(had * _STEP_UP)
    added = (
        "half of that"
        if half >= wanted
        else f"the {about(wanted)} that the failed allocation asked for"
    )
    why = (
        f"Memory ran out: {about(had)} in the reserve and outside of vLLM's budget were "
        f"not enough, so {added} is added (a failure tells no upper bound: the next "
        "start will tell more)."
    )
    more = max(wanted, half)
    return _changed(start, reserve, reserve.reserve_bytes + more, (code, why))


def _room_for_kv(start: Start, code: str) -> Proposal | None:
    """Make room by a smaller reserve where that helps, else by shorter requests."""
    short = shortage_of(start)
    if short is not None and short.is_of_the_reserve:
        smaller = _of_the_reserve(start, short, code)
        if smaller is not None:
            return smaller
    if start.kv.fitting_len is None:
        return None
    longest = start.kv.fitting_len.value
    return Proposal(
        env={},
        flags=("--max-model-len", str(longest)),
        expected={"max_model_len_tokens": longest},
        answers=code,
        why=f"The KV cache holds one request of at most {longest:,} tokens.",
    )


def _of_the_reserve(start: Start, short: Shortage, code: str) -> Proposal | None:
    cache = short.cache_at_budget_bytes
    block_size, _ = tokens_per_block(start)
    longest = (short.len_at_budget or 0) // block_size * block_size
    if cache <= 0 or not (short.budget_is_enough or longest):
        return None
    default = (
        "the runtime's own default"
        if short.budget_ratio == short.default_ratio
        else f"the runtime's own {short.default_ratio:g} and an allowance for activations"
    )
    why = (
        f"With {default}, {format_bytes(short.budget_ratio * short.usable_bytes)} stay for "
        f"graphs and the KV cache gets about {format_bytes(cache)}."
    )
    flags: tuple[str, ...] = ()
    expected: dict[str, float] = {
        "kv_cache_bytes": cache,
        "reserve_bytes": round(short.budget_ratio * short.usable_bytes),
    }
    if not short.budget_is_enough:
        flags = ("--max-model-len", str(longest))
        expected["max_model_len_tokens"] = longest
        why += f" That holds one request of about {longest:,} tokens."
    elif start.kv.fitting_len is not None:
        why += (
            " Second choice: keep the reserve and set --max-model-len "
            f"{start.kv.fitting_len.value}."
        )
    return Proposal(
        env={RESERVE: decimals(short.budget_ratio)},
        flags=flags,
        expected=expected,
        answers=code,
        why=why,
    )


def _raise_to_used(start: Start, reserve: Reserve) -> Proposal | None:
    used = reserve.used_bytes or 0
    why = (
        f"Graphs took {about(used)}, more than the {about(reserve.reserve_bytes)} set "
        "aside; the rest came out of memory that requests may need."
    )
    return _changed(start, reserve, used, ("reserve-short", why))


def _lower(start: Start, reserve: Reserve) -> Proposal | None:
    idle, used = reserve.idle_bytes or 0, reserve.used_bytes or 0
    allowance = activation_allowance_bytes(reserve)
    peak = warmup_use_of(start)
    # What warm-up took for a moment has to fit again, in the reserve and outside of it.
    room = (peak.peak_bytes if peak else 0) - used - reserve.outside_bytes
    kept = max(idle / 2, allowance - reserve.outside_bytes, room)
    if kept >= idle:
        return None
    proven = "" if has_traffic(start) else ", which is not proven under load"
    why = f"{about(idle)} of the reserve lie idle after warm-up{proven}."
    step = _changed(start, reserve, round(used + kept), ("reserve-idle", why))
    if step is None or step.expected["kv_blocks_won_percent"] < 100 * _WORTH_STEP_RATIO:
        return None
    return step


def _changed(
    start: Start, reserve: Reserve, wanted_bytes: int, cause: tuple[str, str]
) -> Proposal | None:
    """Return the proposal for a reserve of at least ``wanted_bytes``."""
    answers, why = cause
    ratio = max(ratio_holding(wanted_bytes, reserve.usable_bytes), _SMALLEST_RATIO)
    new_reserve = ratio * reserve.usable_bytes
    # The share times what it is of: the reserve itself was rounded as it was printed.
    freed = (reserve.ratio - ratio) * reserve.usable_bytes
    won = blocks_won(freed, reserve.block_bytes)
    if won == 0 or ratio > LARGEST_RATIO or not _fits_one_request(start, won):
        return None
    margin, kept = _margin(reserve, new_reserve)
    return Proposal(
        env={RESERVE: decimals(ratio)},
        expected=_expected(start, reserve, new_reserve, won),
        margin=margin,
        kept=kept,
        why=why,
        answers=answers,
    )


def _fits_one_request(start: Start, won: int) -> bool:
    """Tell whether the KV cache still holds one request of the longest kind."""
    blocks, longest = start.kv.blocks, start.server.max_model_len
    left = (blocks.value if blocks else 0) + won
    if longest is None:
        return left > 0
    return left * tokens_per_block(start)[0] >= longest.value


def _expected(
    start: Start, reserve: Reserve, new_reserve: float, won: int
) -> dict[str, float]:
    blocks = start.kv.blocks.value if start.kv.blocks else 0
    size, _ = tokens_per_block(start)
    return {
        "kv_blocks": blocks + won,
        "kv_blocks_won": won,
        "kv_blocks_won_percent": round(100 * won / blocks, 1) if blocks else 0.0,
        "kv_tokens_won": won * size,
        "kv_cache_bytes": round((blocks + won) * reserve.block_bytes),
        "reserve_bytes": round(new_reserve),
    }


def _margin(
    reserve: Reserve, new_reserve: float
) -> tuple[dict[str, float | str], tuple[str, ...]]:
    """Return what stays, in bytes and in words."""
    allowance = activation_allowance_bytes(reserve)
    outside = format_bytes(reserve.outside_bytes)
    margin: dict[str, float | str] = {"outside_reserve_bytes": reserve.outside_bytes}
    if reserve.used_bytes is None:
        only = (
            f"The reserve keeps {format_bytes(new_reserve)} for graphs; {outside} stay "
            "free that --gpu-memory-utilization leaves."
        )
        return {**margin, "why": only}, (only,)
    spare = max(0, round(new_reserve - reserve.used_bytes))
    margin["floor_bytes"] = reserve.used_bytes + spare
    margin["kept_idle_bytes"] = spare
    there = spare + reserve.outside_bytes
    activations = (
        f"{about(there)} stay free for the work of real requests: {about(spare)} of the "
        f"reserve, and {about(reserve.outside_bytes)} that --gpu-memory-utilization leaves."
    )
    if allowance:
        margin["activation_allowance_bytes"] = allowance
        activations += (
            f" At least {about(allowance)} should ({100 * ACTIVATION_SHARE:.0f} % of "
            "the free memory); nobody has measured what they need."
        )
    graphs = (
        f"The reserve keeps {format_bytes(reserve.used_bytes + spare)}: "
        f"{format_bytes(reserve.used_bytes)} for graphs + {format_bytes(spare)} spare."
    )
    kept = (graphs, activations)
    return {**margin, "why": " ".join(kept)}, kept


def decimals(ratio: float) -> str:
    """Print with two decimals, or three where the third counts."""
    text = f"{ratio:.3f}"
    return text.removesuffix("0")
