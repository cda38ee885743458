"""Figures in words: the name under which people know one, and its value with its unit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hpuwatch.units import format_bytes

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "total_bytes": "memory of the card",
        "elsewhere_bytes": "memory that the log doesn't explain",
        "free_bytes": "free after both",
        "reserve_bytes": "graph reserve",
        "block_bytes": "one KV block",
        "graph_bytes": "graphs",
        "warmup_seconds": "warm-up",
        "prompt_bucket_seconds": "seconds per prompt bucket",
        "decode_bucket_seconds": "seconds per decode bucket",
        "rest_seconds": "warm-up beside the buckets",
        "load_seconds": "loading",
        "ready_seconds": "until ready",
    }
)
_UNITS = ("_bytes", "_seconds", "_percent")
_SMALL = 10
"""From there on a fraction of a count or a second tells nothing."""


def figure_words(figure: str) -> str:
    """Return a figure's name for people, without its unit: ``KV cache``."""
    if figure in _WORDS:
        return _WORDS[figure]
    for unit in _UNITS:
        figure = figure.removesuffix(unit)
    words = figure.replace("_", " ")
    return f"KV{words[2:]}" if words.startswith("kv") else words


def figure_text(figure: str, value: float) -> str:
    """Return a figure's value with its unit, as its name says."""
    if figure.endswith("_bytes"):
        return format_bytes(value)
    if figure.endswith("_seconds"):
        return f"{value:,.0f} s" if abs(value) >= _SMALL else f"{value:.3g} s"
    if figure.endswith("_percent"):
        return f"{value:.1f} %"
    whole = value == int(value) or abs(value) >= _SMALL
    return f"{value:,.0f}" if whole else f"{value:.2g}"
