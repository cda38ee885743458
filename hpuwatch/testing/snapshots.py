"""Hand-made snapshots, for tests and previews of what people and Prometheus see.

The figures are those of no real server; they only add up as a real server's do.
"""

from __future__ import annotations

from dataclasses import replace

from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import (
    BucketList,
    Fault,
    Known,
    Kv,
    Memory,
    Miss,
    MissKey,
    Progress,
    Server,
    Start,
    State,
    T,
    Traffic,
    Warmup,
)
from hpuwatch.state.snapshot import Ended, Left, Snapshot
from hpuwatch.units import Amount, parse_amount


def known(value: T, text: str = "") -> Known[T]:
    """Return a value that rests on a made-up line."""
    return Known(value, Line(text))


def amount(text: str) -> Known[Amount]:
    """Return an amount like ``7.13 GiB`` that rests on a made-up line."""
    return known(parse_amount(text))


def full_memory() -> Memory:
    """Return a memory ledger in which everything is known."""
    return Memory(
        total=amount("94.62 GiB"),
        weights=amount("15.05 GiB"),
        profile_run=amount("355.2 MiB"),
        free=amount("79.22 GiB"),
        utilisation=known(0.9),
        usable=amount("71.3 GiB"),
        reserve=amount("7.13 GiB"),
        reserve_ratio=known(0.1),
        dummy_block=amount("16 MiB"),
        kv_cache=amount("64.17 GiB"),
        kv_taken=amount("64.17 GiB"),
        used_after_kv=amount("79.6 GiB"),
    )


def by_key(*misses: Miss) -> dict[MissKey, Miss]:
    """Return misses as a start holds them."""
    return {(each.phase, each.reason, each.shape): each for each in misses}


def full_start() -> Start:
    """Return a start in the middle of its warm-up, in which everything is known."""
    return Start(
        first_line=Line("first"),
        phase=Phase.WARMING,
        server=Server(
            version=known("0.26.0"),
            build=known("1.24.0.460"),
            engine=known("V1"),
            plugin=True,
            model=known("meta-llama/Llama-3.1-8B-Instruct"),
            card=known("gaudi2"),
            tensor_parallel=known(2),
            bridge_mode=known("lazy"),
            simulated=True,
        ),
        memory={0: full_memory(), 1: full_memory()},
        kv=Kv(blocks=known(4106), tokens=known(525568)),
        buckets={
            "prompt": known(BucketList(24)),
            "decode": known(BucketList(48)),
        },
        graphs_used={"prompt": amount("1.25 GiB"), "decode": amount("161.9 MiB")},
        warmup=Warmup(
            seconds=known(49.0),
            progress={
                "prompt": Progress(24, 24, 30.0),
                "decode": Progress(12, 48, 9.0),
            },
        ),
        missed=by_key(
            Miss("prompt", "not_warmed_up", (1, 768, 0), Line("miss"), 3),
            Miss("decode", "not_prepared", (64, 1, 4096), Line("miss"), 2),
        ),
        faults=(
            Fault(
                "device_oom_devmem",
                Phase.WARMING,
                "fatal",
                Line("RuntimeError: Allocation failed for size::134217728 (128)MB"),
                at="prompt bucket 3 of 24",
            ),
            Fault("dynamo_limit", Phase.READY, "warning", Line("recompile_limit (8)")),
        ),
        traffic=Traffic(
            lines=3,
            kv_use_peak=known(0.42),
            running_peak=known(12),
            waiting_peak=known(3),
            preemptions=2,
            prompt_tokens_per_second_peak=known(1234.5),
            generation_tokens_per_second_peak=known(567.8),
        ),
    )


def full_snapshot() -> Snapshot:
    """Return a snapshot that gives every metric of the catalogue data.

    No server can be in this state: it has finished its warm-up and has some left.
    """
    return Snapshot(
        name="demo",
        phase=Phase.WARMING,
        state=State((replace(full_start(), faults=(), missed={}), full_start())),
        now=1_800_000_000.0,
        lines=5120,
        unparsed_lines=7,
        restarts=1,
        watcher_starts=2,
        log_dropped_bytes=8192,
        echo_dropped_bytes=4096,
        rules=197,
        rule_failures=1,
        left=Left(value=27.5, low=20.0, high=41.0, reason="12 of 48 decode buckets"),
        reason="warming up: 36 of 72 buckets",
        ended=Ended(137, "warming", asked=False, at=1_799_999_400.0),
    )
