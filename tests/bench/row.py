"""A row of a table of timings: what some work takes, beside the bound that it should keep to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_ROUNDS = 5


def row(name: str, work: Callable[[], object], bound_seconds: float) -> None:
    """Print the median of some rounds, in CPU time of this process."""
    seconds = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    took = statistics.median(seconds)
    print(f"{name:34} {took * 1000:9.1f} ms   bound {bound_seconds * 1000:6.0f} ms")
