"""What is to be said of two starts in sentences, the gravest first.

``regressions`` are those of them that a report tells of its start against the last good one:
it died where the other served, lost KV cache, or compiles its buckets far more slowly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.ages import lasting
from hpuwatch.advise.compare.changes import ChangePart, changes_between, suspects
from hpuwatch.advise.compare.figures import Difference, differences
from hpuwatch.advise.compare.settings import same_value
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.warmuptime import RECIPES
from hpuwatch.life.phases import Phase
from hpuwatch.units import counted, format_bytes

_SLOWER = 1.5
"""Seconds per bucket that differ by more than that factor are told."""
_LOST_PERCENT = -2.0
"""A KV cache that lost less is no regression."""
_SERVED = frozenset(
    each.value for each in (Phase.READY, Phase.STOPPING, Phase.STOPPED, Phase.DRAINING)
)
_OF_RELEASE = frozenset({"release", "version", "build", "engine"})
_MOST_NAMES = 4
_FEWEST_TIMED, _MUCH_SLOWER = 20, 3.0
"""Of fewer buckets, which are the largest, only so great a factor tells anything."""
_ALL = 0.02
"""A share that is that near to the whole is all of it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two starts, and what sentences call them."""

    a: StartRecord
    b: StartRecord
    names: tuple[str, str] = ("A", "B")

    @property
    def turned(self) -> Pair:
        """Return the same the other way round."""
        return Pair(self.b, self.a, (self.names[1], self.names[0]))


def regressions(pair: Pair) -> tuple[str, ...]:
    """Return what became worse from the first start to the second; nothing, if nothing."""
    changes = changes_between(pair.a, pair.b)
    found, _ = differences(pair.a, pair.b, changes)
    by_figure = {each.figure: each for each in found}
    sentences = list(_ends(pair, changes))
    cache = by_figure.get("kv_cache_bytes")
    if cache is not None and (cache.change_percent or 0.0) <= _LOST_PERCENT:
        sentences.append(_memory(cache))
    for phase in (PROMPT, DECODE):
        pace = by_figure.get(f"{phase}_bucket_seconds")
        if pace is not None and (pace.change or 0.0) > 0:
            sentences += _slower(pair, phase, pace)
    if sentences:
        sentences += _recipes(pair.a, pair.b)
    return tuple(sentences)


def said(
    pair: Pair, changes: Sequence[ChangePart], found: Sequence[Difference]
) -> Iterator[str]:
    """Yield what is to be said of two starts, the gravest first."""
    yield from _identities(pair.a, pair.b)
    yield from _ends(pair, changes)
    yield from _ends(pair.turned, changes)
    by_figure = {each.figure: each for each in found}
    if "kv_cache_bytes" in by_figure:
        yield _memory(by_figure["kv_cache_bytes"])
    for phase in (PROMPT, DECODE):
        pace = by_figure.get(f"{phase}_bucket_seconds")
        if pace is not None:
            yield from _slower(pair, phase, pace)
    yield from _recipes(pair.a, pair.b)
    if not changes:
        yield (
            "Nothing that the two logs show was set otherwise."
            if found
            else "Nothing that the two logs show differs."
        )


def _identities(a: StartRecord, b: StartRecord) -> Iterator[str]:
    if a.origin != b.origin:
        yield "One of the two is simulated: its figures were never measured on a Gaudi."
    for name, one, other in (
        ("models", a.server.model, b.server.model),
        ("cards", a.server.card, b.server.card),
    ):
        if one is not None and other is not None and one != other:
            yield f"The two have different {name}: {one} and {other}."


def _ends(pair: Pair, changes: Sequence[ChangePart]) -> Iterator[str]:
    """Say where the first served and the second died, and what is different about it."""
    died = pair.b.died
    if died is None or not served(pair.a):
        return
    yield (
        f"{pair.names[0]} served; {pair.names[1]} died in the phase {died.phase} "
        f"({died.fault_class})."
    )
    moved = suspects(changes, "kv_blocks") if ran_out(pair.b) else ()
    told = [str(each) for each in changes if each.name in moved]
    if told:
        yield f"Memory ran out in {pair.names[1]} alone. Changed: {_few(told)}."
    own = [each for each in changes if each.kind in ("setting", "identity")]
    if own and all(each.name in _OF_RELEASE for each in own):
        yield (
            "The settings that the logs show are the same: exactly this configuration "
            f"served under {_release(pair.a)} and died under {_release(pair.b)}."
        )


def ran_out(record: StartRecord) -> bool:
    """Tell whether a start died of the card's memory."""
    return record.died is not None and "oom" in record.died.fault_class


def served(record: StartRecord) -> bool:
    """Tell whether a start became ready."""
    return record.server.phase in _SERVED


def _release(record: StartRecord) -> str:
    server = record.server
    return server.version or server.release or "an unknown release"


def _memory(each: Difference) -> str:
    change = each.change or 0.0
    verb = "gained" if change > 0 else "lost"
    text = f"The KV cache {verb} {format_bytes(abs(change))}"
    if each.explained:
        most = max(each.explained, key=lambda share: abs(share.amount))
        whole = abs(most.amount - change) <= _ALL * abs(change)
        part = "all" if whole else format_bytes(abs(most.amount))
        text += f"; {part} of that {_effect(most.amount, change)} {most.by}"
    return f"{text}."


def _effect(amount: float, change: float) -> str:
    return "comes from" if amount * change > 0 else "was undone by"


def _slower(pair: Pair, phase: str, pace: Difference) -> Iterator[str]:
    one, other = pace.a or 0.0, pace.b or 0.0
    if min(one, other) <= 0 or max(one, other) / min(one, other) < _SLOWER:
        return
    times = max(one, other) / min(one, other)
    record, name = (pair.b, pair.names[1]) if other > one else (pair.a, pair.names[0])
    if times < _MUCH_SLOWER and (ran_out(record) or _is_hardly_timed(record, phase)):
        return
    text = (
        f"{phase.capitalize()} buckets took {times:.1f} times as long each in {name}: "
        f"{max(one, other):.3g} s instead of {min(one, other):.3g} s"
    )
    listed = record.lists.get(phase)
    if listed and not record.warmup.finished:
        whole = lasting(listed.count * max(one, other))
        text += f", so that {counted(listed.count, 'bucket')} would take {whole}"
    if pace.suspects:
        text += f". Changed: {_few(pace.suspects)}"
    yield f"{text}."


def _is_hardly_timed(record: StartRecord, phase: str) -> bool:
    """Tell whether only the first buckets were timed, which are the dearest."""
    done, listed = record.warmup.phase_done.get(phase), record.lists.get(phase)
    if done is None or listed is None or record.warmup.finished:
        return False
    return done < min(_FEWEST_TIMED, listed.count / 3)


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    said = ", ".join(names[:_MOST_NAMES])
    return f"{said} and {more} more" if more > 0 else said


def _recipes(a: StartRecord, b: StartRecord) -> Iterator[str]:
    """Say where a recipe cache was of no use since the number of blocks changed."""
    one, other = a.settings.get(RECIPES), b.settings.get(RECIPES)
    blocks = a.kv.blocks, b.kv.blocks
    if not one or not other or None in blocks or blocks[0] == blocks[1]:
        return
    if not same_value(one.partition(",")[0], other.partition(",")[0]):
        return
    yield (
        f"Both use the recipe cache, yet the KV blocks differ ({blocks[0]:,} and "
        f"{blocks[1]:,}): a graph that reads the KV cache is compiled for their number, so "
        "decode buckets were compiled anew. To compare settings with the cache, pin the "
        "number with --num-gpu-blocks-override."
    )
