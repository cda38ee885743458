"""The page about the knobs, made from the table."""

from __future__ import annotations

from hpuwatch.gaudi.knobs import KNOBS, Knob

_HEAD = """# Knobs

<!-- Made from hpuwatch/gaudi/knobs.py by `make docs`; change that file instead. -->

The environment variables and flags of a vLLM server on Gaudi that hpuwatch explains or
tunes. `plugin-0.11` and later numbers are vllm-gaudi, `fork-1.18` to `fork-1.23` Gaudi's
fork of vLLM. Where a default has changed, the newest comes first.
"""
_GROUPS = {
    "memory": "Memory",
    "buckets": "Buckets",
    "warm-up": "Warm-up",
    "restart": "Restart",
}


def knob_page() -> str:
    """Return ``docs/knobs.md``."""
    parts = [_HEAD]
    for group, title in _GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(knob) for knob in KNOBS.values() if knob.group == group]
    return "\n".join(parts)


def _entry(knob: Knob) -> str:
    defaults = "; ".join(
        value if releases == "all" else f"{value} ({releases})"
        for releases, value in knob.defaults
    )
    lines = [
        f"### {knob.name}\n",
        f"{knob.decides}\n",
        f"- default: {defaults}",
        f"- legal: {knob.legal}",
        f"- honoured by: {knob.honoured}",
    ]
    if knob.beware:
        lines.append(f"- beware: {knob.beware}")
    return "\n".join(lines) + "\n"
