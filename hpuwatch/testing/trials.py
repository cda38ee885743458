"""Trials as they come out of a study, for tests of designers and objectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpuwatch.tune.facts import OTHER, RESERVE
from hpuwatch.tune.trial import (
    Facts,
    Measurement,
    Outcome,
    Trial,
    TrialState,
    Window,
)
from hpuwatch.units import GIB

A_WASTEFUL_SERVER = Facts(
    simulated=True,
    release="plugin-0.26",
    model="a-model",
    strategy="exp",
    usable_bytes=70 * GIB,
    reserve_bytes=28 * GIB,
    reserve_ratio=0.4,
    kv_bytes=42 * GIB,
    kv_blocks=2688,
    block_size=128,
    allowance_bytes=GIB // 2,
    graph_bytes={"prompt": GIB, "decode": GIB // 2, OTHER: 0},
    warmup_seconds=30.0,
)
"""Facts of a server that reserves 28 GiB and needs 2 (activations included)."""


def measured(
    number: int,
    settings: Mapping[str, str],
    *rates: float,
    facts: Facts = A_WASTEFUL_SERVER,
    origin: str = "designer",
) -> Trial:
    """Return an ``ok`` trial with one window of a second for each rate (tokens/s)."""
    ratio = float(settings.get(RESERVE, facts.reserve_ratio or 0.0))
    usable = facts.usable_bytes or 0
    windows = tuple(Window(1.0, 8, 0, round(rate)) for rate in rates)
    outcome = Outcome(
        TrialState.OK,
        facts=replace(facts, reserve_ratio=ratio, reserve_bytes=round(ratio * usable)),
        measurement=Measurement(windows),
        ready_seconds=60.0,
    )
    return Trial(number, settings, origin, TrialState.OK, outcome=outcome)


def failed(
    number: int,
    settings: Mapping[str, str],
    state: TrialState = TrialState.OUT_OF_MEMORY,
    phase: str = "warming",
) -> Trial:
    """Return a trial that failed."""
    outcome = Outcome(state, "it failed", phase)
    return Trial(number, settings, "designer", state, outcome=outcome)
