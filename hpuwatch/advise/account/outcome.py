"""Predicted beside observed: what became of a suggestion once somebody followed it.

A later start *tries* a suggestion where it runs the same release, model, cards and number of
cards, every suggested setting that its log shows has the suggested value (at least one does),
and nothing else changed.  Anything else would blame the prediction for another change.

A figure that never came because the server died of memory or time counts as missed: it was
suggested, and it did not hold.  A death of another kind says nothing of the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.account.score import Scored
from hpuwatch.advise.compare.settings import changes_of, same_value
from hpuwatch.advise.document import (
    AccountabilityPart,
    AgainstPart,
    FigurePart,
    ProposalPart,
)
from hpuwatch.advise.render.figures import figure_text, figure_words
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.planning import Change
from hpuwatch.gaudi.remedies import MAX_LEN
from hpuwatch.life.phases import Phase

_ANSWERED_FOR = frozenset(
    {"device_oom_devmem", "device_oom_warmup_hybrid", "pooler_oom"}
    | {"kv_none", "kv_short", "engine_ready_timeout"}
)
"""Fault classes that a suggestion of memory and buckets answers for."""
TOKEN_BUDGET, LEAST_TOKENS = "--max-num-batched-tokens", 2048
"""The fork's default of it is the model's length, but never less than that."""
_RAN = frozenset(
    each.value for each in (Phase.READY, Phase.STOPPED, Phase.STOPPING, Phase.DRAINING)
)


class Suggestion(BaseModel):
    """A proposal that was made, with what it promised.

    Attributes:
        env: variables to set.
        flags: words of the command line.
        unset: what to take away.
        figures: predicted, with the intervals as they were stated.
        factors: by which an interval had been widened, where it had.
    """

    model_config = ConfigDict(frozen=True)

    env: dict[str, str] = Field(default_factory=dict)
    flags: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    figures: dict[str, FigurePart] = Field(default_factory=dict)
    factors: dict[str, float] = Field(default_factory=dict)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return what it wants set."""
        return changes_of(self.env, self.flags, self.unset)

    def text(self) -> str:
        """Return it as it is typed."""
        return " ".join(map(str, self.changes))


def suggestion_of(proposal: ProposalPart, factors: Mapping[str, float]) -> Suggestion:
    """Return what a report proposes, with the factors that widened its intervals."""
    return Suggestion(
        env=proposal.env,
        flags=tuple(proposal.flags),
        unset=tuple(proposal.unset),
        figures=proposal.figures,
        factors={
            name: factors[name]
            for name, each in proposal.figures.items()
            if factors.get(name, 1.0) > 1 and each.origin != "measured"
        },
    )


def is_tried(made: Suggestion, before: StartRecord, after: StartRecord) -> bool:
    """Tell whether a later start ran with the suggestion, and with nothing else new."""
    if before.identity != after.identity:
        return False
    wanted = {each.name: each.value for each in made.changes}
    seen = 0
    for name, value in wanted.items():
        now = after.settings.get(name)
        if now is None:
            continue  # not printed, or not set any more: nothing is contradicted
        if value is None or not same_value(value, now):
            return False
        seen += 1
    if not seen and not _is_gone(wanted, before, after):
        return False
    return not any(_other_changes(wanted, before, after))


def _is_gone(
    wanted: Mapping[str, str | None], before: StartRecord, after: StartRecord
) -> bool:
    """Tell whether a setting that was to be taken away is."""
    return any(
        value is None and name in before.settings and name not in after.settings
        for name, value in wanted.items()
    )


def _other_changes(
    wanted: Mapping[str, str | None], before: StartRecord, after: StartRecord
) -> Iterator[str]:
    comparable = before.settings_given == after.settings_given
    whole = comparable and after.server.phase in _RAN and before.server.phase in _RAN
    for name in before.settings.keys() | after.settings.keys():
        one, other = before.settings.get(name), after.settings.get(name)
        if name in wanted or _follows(name, wanted, before, after):
            continue
        if one is None or other is None:
            if whole:
                yield name
        elif not same_value(one, other):
            yield name


def _follows(
    name: str,
    wanted: Mapping[str, str | None],
    before: StartRecord,
    after: StartRecord,
) -> bool:
    """Tell whether a size only follows from a suggested one, as its default does."""
    if name != TOKEN_BUDGET or MAX_LEN not in wanted:
        return False
    lengths = before.server.max_model_len, after.server.max_model_len
    budgets = before.settings.get(name), after.settings.get(name)
    return all(
        length is not None and budget == str(max(length, LEAST_TOKENS))
        for length, budget in zip(lengths, budgets, strict=True)
    )


def _graph_bytes(_before: StartRecord, after: StartRecord) -> float | None:
    """Return what the phases print that they took, as laws predict it; else all of it."""
    if not after.warmup.finished:
        return None
    used = (after.graphs.prompt_used_bytes, after.graphs.decode_used_bytes)
    known = [each for each in used if each is not None]
    return sum(known) if known else after.warmup.allocated_bytes


def _buckets(phase: str) -> _Observed:
    def count(_before: StartRecord, after: StartRecord) -> float | None:
        return after.lists[phase].count if phase in after.lists else None

    return count


_Observed = Callable[[StartRecord, StartRecord], "float | None"]

OBSERVED: Mapping[str, _Observed] = MappingProxyType(
    {
        "kv_blocks": lambda _before, after: after.kv.blocks,
        "reserve_bytes": lambda _before, after: after.memory.reserve,
        "graph_bytes": _graph_bytes,
        "warmup_seconds": lambda _before, after: after.warmup.seconds,
        "ready_seconds": lambda _before, after: after.ready_seconds,
        "prompt_buckets": _buckets(PROMPT),
        "decode_buckets": _buckets(DECODE),
    }
)
"""How a predicted figure is read off a later start; what stands not here never is.

What follows from the blocks alone (tokens, the cache) counts with them, not a second time.
"""


def outcomes(
    made: Suggestion, before: StartRecord, after: StartRecord
) -> tuple[Scored, ...]:
    """Return the predictions of a tried suggestion of which something came."""
    fell = _fell(after)
    found = []
    for name, each in made.figures.items():
        read = OBSERVED.get(name)
        observed = read(before, after) if read else None
        if read is None or (observed is None and not fell):
            continue
        factor = made.factors.get(name, 1.0)
        found.append(Scored(name, each.value, each.low, each.high, observed, factor))
    return tuple(found)


def _fell(after: StartRecord) -> bool:
    """Tell whether the start died of what a suggestion answers for, before service."""
    died = after.died
    return (
        died is not None
        and not after.warmup.finished
        and died.fault_class in _ANSWERED_FOR
    )


def parts_of(
    made: Suggestion, before: StartRecord, after: StartRecord
) -> list[AccountabilityPart]:
    """Return the outcomes as the report has them."""
    return [
        AccountabilityPart(
            figure=each.figure,
            predicted=each.value,
            low=each.low,
            high=each.high,
            observed=each.observed,
            inside=each.inside,
            origin=made.figures[each.figure].origin,
            suggested=made.text(),
        )
        for each in outcomes(made, before, after)
    ]


def accountability_lines(parts: Sequence[AccountabilityPart]) -> list[str]:
    """Return predicted beside observed as text, a line each; none for none."""
    if not parts:
        return []
    inside = sum(each.inside for each in parts)
    title = f"Predicted and observed ({parts[0].suggested}): {inside} of {len(parts)} inside"
    return [title, *(f"  {_line(each)}" for each in parts)]


def against_lines(part: AgainstPart | None) -> list[str]:
    """Return what became worse since the last good start, a line each; none for none."""
    if part is None:
        return []
    more = f"hpuwatch compare {part.start} LOG tells all that differs."
    return [
        f"Against the last good start, {part.start}{f' ({part.known})' if part.known else ''}",
        *(f"  {each}" for each in part.said),
        f"  {more}",
    ]


def _line(each: AccountabilityPart) -> str:
    name = figure_words(each.figure)
    low, high = figure_text(each.figure, each.low), figure_text(each.figure, each.high)
    between = "" if low == high else f" ({low} to {high})"
    if each.observed is None:
        came = "never came: the server died first"
    else:
        came = f"came {figure_text(each.figure, each.observed)}"
    verdict = "inside" if each.inside else "OUTSIDE"
    return (
        f"{name}: predicted {figure_text(each.figure, each.predicted)}{between}, {came}: "
        f"{verdict}"
    )
