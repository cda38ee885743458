"""Figures of the document in words: what they are called, their unit, how they are known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hpuwatch.gaudi.estimate import Origin
from hpuwatch.units import format_bytes

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "kv_blocks": "KV blocks",
        "idle_kv_blocks": "KV blocks that the idle reserve would hold",
        "kv_blocks_won": "KV blocks won",
        "kv_blocks_won_percent": "KV blocks won, as a share",
        "kv_tokens": "tokens that fit the KV cache",
        "kv_tokens_won": "tokens won",
        "kv_cache_bytes": "KV cache",
        "reserve_bytes": "graph reserve",
        "graph_bytes": "memory that graphs take",
        "warmup_seconds": "warm-up",
        "ready_seconds": "from start to ready",
        "prompt_buckets": "prompt buckets",
        "decode_buckets": "decode buckets",
        "prompt_padding_percent": "prompt padding",
        "decode_padding_percent": "decode padding",
        "sequences_at_once": "requests at once",
        "tokens_per_second": "output tokens a second",
        "warmup_seconds_then": "warm-up with a full recipe cache",
        "warmup_seconds_more": "warm-up of the missed shapes",
        "max_model_len_tokens": "longest request",
    }
)

ORIGINS: Mapping[Origin, str] = MappingProxyType(
    {
        "measured": "measured in this log",
        "learned": "learned from this and earlier starts",
        "predicted": "predicted by hpuwatch",
        "prior": "prior: from other servers",
    }
)

ARITHMETIC = "arithmetic"
_ARITHMETIC = frozenset(
    {"kv_blocks", "kv_blocks_won", "kv_blocks_won_percent", "kv_tokens"}
    | {"idle_kv_blocks", "kv_tokens_won", "kv_cache_bytes", "reserve_bytes"}
)
"""What follows from the split that a log prints, give or take the rounding of print."""

_UNITS = ("bytes", "seconds", "percent", "ratio", "tokens")


def known_as(name: str, origin: Origin) -> str:
    """Return how a figure that is expected is known, in words."""
    word = known_word(name, origin)
    return "arithmetic on this log" if word == ARITHMETIC else ORIGINS[origin]


def known_word(name: str, origin: Origin) -> str:
    """Return how a figure that is expected is known, in the word that explain knows."""
    return ARITHMETIC if name in _ARITHMETIC and origin != "prior" else origin


def name_of(name: str) -> str:
    """Return what people call a figure."""
    known = NAMES.get(name)
    if known:
        return known
    words = [word for word in name.split("_") if word not in _UNITS]
    return " ".join(words) or name


def told(name: str, value: float) -> str:
    """Return a figure with its unit, which its name carries."""
    unit = unit_of(name)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return duration(value)
    if unit == "percent":
        return f"{value:,.3g} %"
    if unit == "ratio":
        return f"{value:.3g}"
    whole = abs(value) >= 100 or value == round(value)
    text = f"{value:,.0f}" if whole else f"{value:.3g}"
    return f"{text} tokens" if unit == "tokens" else text


def unit_of(name: str) -> str:
    """Return the unit that stands in a figure's name, "" for a mere count.

    Figures per second have none of their own.
    """
    words = name.split("_")
    if "per" in words:
        return ""
    return next((word for word in reversed(words) if word in _UNITS), "")


def interval(name: str, low: float, high: float) -> str:
    """Return between what a figure is expected."""
    if low == high:
        return "exactly that"
    one, other = told(name, low), told(name, high)
    amount, _, unit = one.partition(" ")
    if unit and other.partition(" ")[2] == unit:
        return f"{amount} to {other}"
    return f"{one} to {other}"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 59.95:  # three digits would make 60 s of more
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
