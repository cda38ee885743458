"""How long a prediction works, in CPU seconds of this process.

A plan, what it comes to, the refusals and cautions, and for plans that can't work the
search for the nearest that can.  The last row is the whole verb on a simulated start's
log, reading it included.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpuwatch.app.predict import Order, answer
from hpuwatch.app.predict_document import document
from hpuwatch.gaudi.planning import Change
from tests.bench.busylog import simulated_start

_ROUNDS = 5
_BOUND_SECONDS = 0.5


def _row(name: str, work: Callable[[], object]) -> None:
    seconds = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    took = statistics.median(seconds)
    print(f"{name:34} {took * 1e3:9.1f} ms   bound {_BOUND_SECONDS * 1e3:6.0f} ms")


def _order(strategy: str, length: int, seqs: int) -> Order:
    flags = {
        "strategy": strategy,
        "max-model-len": length,
        "max-num-seqs": seqs,
        "max-num-batched-tokens": 2048,
    }
    changes = [Change(f"--{name}", str(value)) for name, value in flags.items()]
    return Order(changes=changes, release="plugin-head", num_blocks=4107)


def predict_rows() -> None:
    """Print a row for each kind of prediction."""
    cases = (
        ("exp, 4k, works", _order("exp", 4096, 64)),
        ("exp, 128k, repaired", _order("exp", 131072, 256)),
        ("lin, 128k, repaired", _order("lin", 131072, 256)),
    )
    for name, order in cases:
        _row(f"predict {name}", lambda order=order: document(answer(order)))  # type: ignore[misc]  # bound at once
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        log.write_bytes(simulated_start(Path(folder)))
        change = Change("VLLM_GRAPH_RESERVED_MEM", "0.2")
        order = Order(logs=[str(log)], changes=[change])
        _row("predict of a log", lambda: document(answer(order)))


if __name__ == "__main__":
    predict_rows()
