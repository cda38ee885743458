"""How long a prediction works, in CPU seconds of this process.

A plan, what it comes to, the refusals and cautions, and for plans that can't work the
search for the nearest that can.  The last row is the whole verb on a simulated start's
log, reading it included.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from hpuwatch.app.predict import Order, answer
from hpuwatch.app.predict_document import document
from hpuwatch.gaudi.buckets import forget
from hpuwatch.gaudi.planning import Change
from tests.bench.busylog import simulated_start
from tests.bench.row import row

_BOUND_SECONDS = 0.5
_ABSURD_BOUND_SECONDS = 2.0


def _told(order: Order) -> dict[str, object]:
    forget()
    return document(answer(order))


def _order(strategy: str, length: int, seqs: int, **more: str) -> Order:
    flags = {
        "--strategy": strategy,
        "--max-model-len": str(length),
        "--max-num-seqs": str(seqs),
        "--max-num-batched-tokens": "2048",
        **more,
    }
    changes = [Change(name, value) for name, value in flags.items()]
    return Order(changes=changes, release="plugin-head", num_blocks=4107)


_MILLION = 1 << 20
_MERGED = {
    "VLLM_MERGED_PREFILL": "1",
    "VLLM_PROMPT_QUERY_BUCKET_MIN": "4096",
    "--block-size": "16",
}
_LONG = {"--max-num-batched-tokens": "8192"}
_ABSURD = (
    ("lin, 1M, refused", _order("lin", _MILLION, 256, **_MERGED)),
    ("lin, 1M, long lists", _order("lin", _MILLION, 64, **_LONG)),
    (
        "fork lin, 1M, shrunk",
        replace(
            _order("lin", _MILLION, 256, **{"--block-size": "16"}),
            release="fork-1.21",
            num_blocks=100,
        ),
    ),
)


def predict_rows() -> None:
    """Print a row for each kind of prediction."""
    cases = (
        ("exp, 4k, works", _order("exp", 4096, 64)),
        ("exp, 128k, repaired", _order("exp", 131072, 256)),
        ("lin, 128k, repaired", _order("lin", 131072, 256)),
        ("lin, 128k, refused", _order("lin", 131072, 256, **_MERGED)),
    )
    for name, order in cases:
        row(f"predict {name}", partial(_told, order), _BOUND_SECONDS)
    for name, order in _ABSURD:
        row(f"predict {name}", partial(_told, order), _ABSURD_BOUND_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        log.write_bytes(simulated_start(Path(folder)))
        change = Change("VLLM_GRAPH_RESERVED_MEM", "0.2")
        order = Order(logs=[str(log)], changes=[change])
        row("predict of a log", partial(_told, order), _BOUND_SECONDS)


if __name__ == "__main__":
    predict_rows()
