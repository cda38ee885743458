"""The figures of two starts, one by one: the difference, and what explains how much of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.compare.attribution import (
    KV_BLOCKS,
    LEDGER,
    RELEASE,
    WARMUP,
    Formula,
    Share,
    buckets_walked,
    free_bytes,
    kv_blocks,
    kv_cache_bytes,
    ledger_of,
    reserve_bytes,
    usable_bytes,
    walked,
    warmup_inputs,
    warmup_seconds,
    weights_expected,
)
from hpuwatch.advise.compare.changes import ChangePart, suspects
from hpuwatch.advise.render.figures import figure_text, figure_words
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.planning import RESERVE, UTILISATION

_EQUAL_BYTES, _EQUAL_SECONDS = 0.001, 0.05
"""Shares below which two amounts, or two times, count as equal: rounding, and luck."""


class Explained(BaseModel):
    """What a change explains of a difference, in the figure's unit."""

    model_config = ConfigDict(frozen=True)

    by: str
    amount: float


class Difference(BaseModel):
    """A figure that differs.

    Attributes:
        figure: its name, the unit in it.
        a: in A; null where its log doesn't tell.
        b: in B, likewise.
        change: b - a.
        change_percent: of a.
        explained: what arithmetic explains, in the order of the walk; the shares may
            have opposite signs.
        unexplained: what is left of the change then; null where no formula was asked.
        suspects: changes that can move it, though nobody can say by how much.
        note: what is to be known of it.
    """

    model_config = ConfigDict(frozen=True)

    figure: str
    a: float | None
    b: float | None
    change: float | None = None
    change_percent: float | None = None
    explained: tuple[Explained, ...] = ()
    unexplained: float | None = None
    suspects: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Two:
    """The two starts and what changed between them."""

    a: StartRecord
    b: StartRecord
    changes: Sequence[ChangePart]


_Read = Callable[[StartRecord], "float | None"]


def _buckets(phase: str) -> _Read:
    return lambda record: record.lists[phase].count if phase in record.lists else None


def _pace(phase: str) -> _Read:
    return lambda record: record.bucket_seconds.get(phase)


def _graphs(record: StartRecord) -> float | None:
    return record.warmup.allocated_bytes if record.warmup.finished else None


def _elsewhere(record: StartRecord) -> float | None:
    ledger = ledger_of(record)
    return ledger["elsewhere"] if ledger and record.memory.total is not None else None


_FIGURES: Mapping[str, _Read] = MappingProxyType(
    {
        "total_bytes": lambda record: record.memory.total,
        "weights_bytes": lambda record: record.memory.weights,
        "profile_run_bytes": lambda record: record.memory.profile_run,
        "elsewhere_bytes": _elsewhere,
        "free_bytes": lambda record: record.memory.free,
        "usable_bytes": lambda record: record.memory.usable,
        "reserve_bytes": lambda record: record.memory.reserve,
        "kv_cache_bytes": lambda record: record.memory.kv_cache,
        "kv_blocks": lambda record: record.kv.blocks,
        "kv_tokens": lambda record: record.kv.tokens,
        "prompt_buckets": _buckets(PROMPT),
        "decode_buckets": _buckets(DECODE),
        "prompt_bucket_seconds": _pace(PROMPT),
        "decode_bucket_seconds": _pace(DECODE),
        "graph_bytes": _graphs,
        "load_seconds": lambda record: record.load_seconds,
        "warmup_seconds": lambda record: record.warmup.seconds,
        "ready_seconds": lambda record: record.ready_seconds,
    }
)
"""What is compared, and where it is read, in the order of a start."""

_OF_LEDGER: Mapping[str, Formula] = MappingProxyType(
    {
        "free_bytes": free_bytes,
        "usable_bytes": usable_bytes,
        "reserve_bytes": reserve_bytes,
        "kv_cache_bytes": kv_cache_bytes,
        "kv_blocks": kv_blocks,
    }
)
_INPUT_FIGURE: Mapping[str, str] = MappingProxyType(
    {
        "total": "total_bytes",
        "elsewhere": "elsewhere_bytes",
        "weights": "weights_bytes",
        "profile_run": "profile_run_bytes",
        "dummy_block": "dummy_block_bytes",
        "block_bytes": "block_bytes",
    }
)
_INPUT_SETTING = {"utilisation": UTILISATION, "reserve_ratio": RESERVE}


def differences(
    a: StartRecord, b: StartRecord, changes: Sequence[ChangePart]
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """Return the figures that differ, and the names of those that don't."""
    two, found, same = _Two(a, b, changes), [], []
    for figure, read in _FIGURES.items():
        one, other = read(a), read(b)
        note = ""
        if figure == "warmup_seconds" and None in (one, other):
            one, other, note = _projected(two)
        if one is None or other is None:
            continue
        if is_equal(figure, one, other) or _is_print_rounding(two, figure, one - other):
            same.append(figure)
        else:
            found.append(_difference(two, figure, (one, other), note))
    return tuple(found), tuple(same)


def is_equal(figure: str, one: float, other: float) -> bool:
    """Tell whether two figures are equal but for rounding and luck."""
    largest = max(abs(one), abs(other))
    if figure.endswith("_bytes"):
        return abs(one - other) <= _EQUAL_BYTES * largest
    if figure.endswith("_seconds"):
        return abs(one - other) <= max(_EQUAL_SECONDS * largest, 0.01)
    return one == other


def _is_print_rounding(two: _Two, figure: str, change: float) -> bool:
    """Tell whether what logs don't explain differs by what they round of the rest."""
    total = max(two.a.memory.total or 0, two.b.memory.total or 0)
    return figure == "elsewhere_bytes" and abs(change) <= _EQUAL_BYTES / 2 * total


def _projected(two: _Two) -> tuple[float | None, float | None, str]:
    """Return the seconds of warm-ups; of one that didn't finish, as its pace has it."""
    values, note = [], ""
    for name, record in (("A", two.a), ("B", two.b)):
        inputs = warmup_inputs(record)
        seconds = record.warmup.seconds
        if seconds is None and inputs is not None and not record.warmup.skipped:
            seconds = warmup_seconds(inputs)
            note = f"{name} did not finish: its pace over all buckets"
        values.append(seconds)
    return values[0], values[1], note


def _difference(
    two: _Two, figure: str, values: tuple[float, float], note: str
) -> Difference:
    one, other = values
    change = other - one
    shares = _shares(two, figure)
    unexplained = None
    if shares is not None:
        unexplained = change - sum(share.amount for share in shares)
        if _is_rounding(figure, unexplained, values):
            unexplained = 0.0
    return Difference(
        figure=figure,
        a=one,
        b=other,
        change=change,
        change_percent=round(100 * change / abs(one), 1) if one else None,
        explained=tuple(
            Explained(by=_by(two, share.by), amount=share.amount)
            for share in shares or ()
            if not _is_rounding(figure, share.amount, values)
        ),
        unexplained=unexplained,
        suspects=() if unexplained == 0 else suspects(two.changes, figure),
        note=note,
    )


def _is_rounding(figure: str, amount: float, values: tuple[float, float]) -> bool:
    """Tell whether an amount may come of what logs round away."""
    largest = max(map(abs, values))
    if figure.endswith("_bytes"):
        return abs(amount) <= _EQUAL_BYTES * largest
    if figure.endswith("_seconds"):
        return abs(amount) <= max(1.0, 0.01 * largest)
    return abs(amount) <= (
        max(1.0, _EQUAL_BYTES * largest) if figure == KV_BLOCKS else 0
    )


def _shares(two: _Two, figure: str) -> tuple[Share, ...] | None:
    """Return what arithmetic explains of a figure, None where it has no formula."""
    formula = _OF_LEDGER.get(figure)
    if formula is not None:
        return _of_ledger(two, formula)
    asked = _SHARES.get(figure)
    return asked(two) if asked else None


def _of_ledger(two: _Two, formula: Formula) -> tuple[Share, ...] | None:
    one, other = ledger_of(two.a), ledger_of(two.b)
    if one is None or other is None:
        return None
    if not (two.a.memory.total and two.b.memory.total):
        one, other = _without_total(one), _without_total(other)
    return walked(formula, one, other, LEDGER)


def _without_total(ledger: Mapping[str, float]) -> dict[str, float]:
    """Return a ledger in which what was there before the weights stands for the card.

    Both must be read alike: else a card that only one log prints would seem to shrink.
    """
    return {**ledger, "total": ledger["total"] - ledger["elsewhere"], "elsewhere": 0.0}


def _tokens(two: _Two) -> tuple[Share, ...] | None:
    sizes = two.a.kv.block_size, two.b.kv.block_size
    blocks = two.a.kv.blocks, two.b.kv.blocks
    if None in (*sizes, *blocks):
        return None
    names = ("kv_blocks", "block_size")
    before = dict(zip(names, (blocks[0] or 0, sizes[0] or 0), strict=True))
    after = dict(zip(names, (blocks[1] or 0, sizes[1] or 0), strict=True))
    return walked(
        lambda each: each["kv_blocks"] * each["block_size"], before, after, names
    )


def _ready(two: _Two) -> tuple[Share, ...] | None:
    shares = []
    for name in ("load_seconds", "warmup_seconds"):
        one, other = _FIGURES[name](two.a), _FIGURES[name](two.b)
        if one is None or other is None:
            return None
        shares.append(Share(name, other - one))
    return tuple(shares)


def _counts(phase: str) -> Callable[[_Two], tuple[Share, ...] | None]:
    def shares(two: _Two) -> tuple[Share, ...] | None:
        names = [each.name for each in two.changes if each.kind == "setting"]
        return buckets_walked(two.a, two.b, names, phase)

    return shares


def _warmup(two: _Two) -> tuple[Share, ...] | None:
    before, after = warmup_inputs(two.a), warmup_inputs(two.b)
    if before is None or after is None:
        return None
    return walked(warmup_seconds, before, after, WARMUP)


_SHARES: Mapping[str, Callable[[_Two], tuple[Share, ...] | None]] = MappingProxyType(
    {
        "weights_bytes": lambda two: weights_expected(two.a, two.b) or None,
        "kv_tokens": _tokens,
        "prompt_buckets": _counts(PROMPT),
        "decode_buckets": _counts(DECODE),
        "warmup_seconds": _warmup,
        "ready_seconds": _ready,
    }
)


def _by(two: _Two, name: str) -> str:
    """Name what explains a share, with its two values."""
    if name == RELEASE:
        return f"the list rules of {two.b.server.release}"
    setting = _INPUT_SETTING.get(name, name)
    for change in two.changes:
        if change.name == setting and change.kind != "heed":
            return str(change)
    if name == "cards":
        return f"cards {two.a.server.tp or 1} → {two.b.server.tp or 1}"
    if name == "quantization":
        return f"quantisation {_quantised(two.a)} → {_quantised(two.b)}"
    figure = _INPUT_FIGURE.get(name, name)
    values = _input_values(two, name, figure)
    if values is None:
        return figure_words(figure)
    one, other = (figure_text(figure, value) for value in values)
    return f"{figure_words(figure)} {one} → {other}"


def _quantised(record: StartRecord) -> str:
    return record.settings.get("--quantization", "none")


def _input_values(two: _Two, name: str, figure: str) -> tuple[float, float] | None:
    for inputs_of in (ledger_of, warmup_inputs):
        one, other = inputs_of(two.a), inputs_of(two.b)
        if one and other and name in one and name in other:
            if name == "total" and not (two.a.memory.total and two.b.memory.total):
                break
            return one[name], other[name]
    read = _FIGURES.get(figure)
    before, after = (read(two.a), read(two.b)) if read else (None, None)
    return None if before is None or after is None else (before, after)
