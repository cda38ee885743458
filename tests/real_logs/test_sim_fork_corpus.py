"""A real start of the fork with four cards beside a simulated one with the same settings.

The real log is of a development build between 1.19 and 1.20: it has 1.20's settings and
nearly all of its lines.  Compared are the events that the parser makes of both, for each
process: kinds, order, counts, and every figure that is no duration.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hpuwatch.events import Event
from hpuwatch.units import Amount
from tests.simulated import events_of, start

pytestmark = pytest.mark.unit

_FLAGS = (
    *("--release", "fork-1.20", "--model", "meta-llama/Meta-Llama-3.1-70B-Instruct"),
    *("--host", "127.0.0.1", "--port", "80", "-tp", "4", "--block-size", "128"),
    *("--max-num-seqs", "256"),
)
_ENV = {"VLLM_SKIP_WARMUP": "true"}

_ONLY_SIMULATED = {"simulated_server": "says that nothing of this is real"}
_ONLY_REAL = {
    "server_lifecycle": "the start ends before the front end opens its port",
}
"""Kinds that one of the two has more often, with the reason."""

_OTHER_FIGURES = {
    "pid": "a process of each machine",
    "host_delta": "the host's figures are made up",
    "host_used": "the host's figures are made up",
    "elapsed": "a duration",
    "eta": "a duration",
    "rate": "a duration",
    "s": "a duration",
    "args": "the simulator lists fewer arguments, and another address",
    "config": "the simulator tells fewer fields of the configuration",
    "cached": "the real one tells it within its configuration, as 1.19 does",
    "ver": "the real one is a development build",
    "flags": "the real one still looks for 1.19's capabilities",
    "ram": "the machines have not quite the same memory",
}
"""Fields that differ, with the reason."""


@pytest.fixture(scope="module")
def real(shared: Path) -> Sequence[Event]:
    (file,) = (shared / "corpus").glob("*-llama70b-tp4-fork-0.6.3-*.log.gz")
    return events_of(gzip.decompress(file.read_bytes()))


@pytest.fixture(scope="module")
def simulated() -> Sequence[Event]:
    started = start(*_FLAGS, **_ENV)
    assert started.engine is not None
    return events_of(started.output)


def _by_process(events: Sequence[Event]) -> list[list[Event]]:
    """Return the events of rank 0 (with engine and front end), then of the workers."""
    told: Mapping[int | None, list[Event]] = defaultdict(list)
    for event in events:
        told[event.speaker.pid].append(event)
    return [told[None], *(told[pid] for pid in sorted(told, key=str) if pid)]


def _kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]


def test_every_process_says_the_same_in_the_same_order(
    real: Sequence[Event], simulated: Sequence[Event]
) -> None:
    (real_first, *real_others), (first, *others) = map(_by_process, (real, simulated))
    assert [_kinds(events) for events in others] == [
        _kinds(events) for events in real_others
    ]
    assert len(others) == 3
    shown = [kind for kind in _kinds(first) if kind not in _ONLY_SIMULATED]
    expected = _kinds(real_first)
    while expected[-1] in _ONLY_REAL:
        expected.pop()
    assert shown == expected


def test_every_figure_that_is_no_duration_is_the_same(
    real: Sequence[Event], simulated: Sequence[Event]
) -> None:
    ours = [e for e in simulated if e.kind not in _ONLY_SIMULATED]
    for mine, theirs in zip(_by_process(ours), _by_process(real), strict=True):
        for event, expected in zip(mine, theirs, strict=False):
            assert _figures(event) == _figures(expected)


def _figures(event: Event) -> dict[str, object]:
    return {
        name: value.printed if isinstance(value, Amount) else value
        for name, value in event.fields.items()
        if name not in _OTHER_FIGURES
    }


@pytest.mark.parametrize("name", _OTHER_FIGURES)
def test_each_named_difference_is_still_there(
    name: str, real: Sequence[Event], simulated: Sequence[Event]
) -> None:
    values = [
        [str(event.fields[name]) for event in events if name in event.fields]
        for events in (real, simulated)
    ]
    assert values[0] != values[1]
