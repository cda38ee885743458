"""A prediction as a document: ``hpuwatch.predict/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from hpuwatch.app.predict import Prediction, Side
from hpuwatch.gaudi.basis import Lists
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.coverage import holes
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.memory import concurrency, tokens_of
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import Remark
from hpuwatch.gaudi.warmuptime import total
from hpuwatch.parse.mask import mask, mask_value

SCHEMA = "hpuwatch.predict/1"
_SHOWN_MISSES = 20


def document(told: Prediction) -> dict[str, object]:
    """Return the whole answer; a part that doesn't exist is null."""
    before = told.current.forecast.lists if told.current else {}
    return {
        "schema": SCHEMA,
        "source": told.source,
        "simulated": told.simulated,
        "starts": told.starts,
        "starts_passed_over": told.passed_over,
        "broke": told.broke and mask(told.broke),
        "model": told.model,
        "card": told.card,
        "weights_bytes": _estimate(told.weights),
        "free_bytes": _estimate(told.basis.device.free if told.basis.device else None),
        "assumed": list(told.assumed),
        "warmup_use": told.warmup_use and asdict(told.warmup_use),
        "current": told.current and _side(told, told.current, before),
        "repair_cut": told.cut,
        "proposed": told.proposed and _side(told, told.proposed, before),
        "repaired": told.repaired
        and {
            "changes": [asdict(change) for change in told.repairs or ()],
            **_side(told, told.repaired, before),
        },
    }


def _side(told: Prediction, side: Side, before: Lists) -> dict[str, object]:
    found = side.forecast
    return {
        "configuration": _configuration(found),
        "works": not side.refusals,
        "refusals": [_remark(each) for each in side.refusals],
        "cautions": [_remark(each) for each in side.cautions],
        "buckets": {phase: _buckets(found, before, phase) for phase in (PROMPT, DECODE)}
        if found.broken is None and found.holds
        else None,
        "kv": _cache(found),
        "concurrency": _concurrency(told, found),
        "memory": _memory(found),
        "warmup_seconds": _estimate(found.warmup),
        "downtime": {
            "parts": [
                {"name": part.name, "seconds": _estimate(part.seconds), "why": part.why}
                for part in found.away
            ],
            "known_seconds": _estimate(total(found.away)),
        },
        "uncovered": {
            "holes": [asdict(hole) for hole in holes(found.prepared)]
            if found.prepared
            else [],
            "observed_misses": len(side.misses),
            "observed_shapes": [
                {"phase": phase, "shape": shape}
                for phase, shape in side.misses[:_SHOWN_MISSES]
            ],
        },
    }


def _configuration(found: Forecast) -> dict[str, object]:
    plan, flags = found.plan, found.plan.flags
    settings = found.prepared.settings if found.prepared else None
    return {
        "release": plan.release.name,
        "dialect": plan.release.dialect,
        "assumed_like": plan.release.assumed_like,
        "strategy": settings.strategy if settings else None,
        "contiguous_pa": settings.contiguous_pa if settings else None,
        "max_num_seqs": flags.max_num_seqs,
        "max_num_batched_tokens": plan.tokens,
        "max_model_len": flags.max_model_len,
        "block_size": flags.block_size,
        "tensor_parallel_size": plan.tensor_parallel,
        "gpu_memory_utilization": plan.utilisation,
        "graph_reserved_mem": plan.reserve_ratio,
        "env": {name: mask_value(name, value) for name, value in plan.env.items()},
    }


def _remark(remark: Remark) -> dict[str, object]:
    return {
        "code": remark.code,
        "severity": remark.severity,
        "text": remark.text,
        "numbers": dict(remark.numbers),
    }


def _buckets(found: Forecast, before: Lists, phase: str) -> dict[str, object]:
    listed, old = set(found.lists.get(phase, ())), set(before.get(phase, ()))
    return {
        "count": found.counts.get(phase, len(listed)),
        "graphs": len(found.graphs.get(phase, ())),
        "new": len(listed - old) if before else None,
        "gone": len(old - listed) if before else None,
        "origin": found.lists_origin,
    }


def _cache(found: Forecast) -> dict[str, object]:
    size = found.plan.flags.block_size
    return {
        "blocks": _estimate(found.blocks),
        "block_size": size,
        "tokens": tokens_of(found.num_blocks, size),
    }


def _concurrency(told: Prediction, found: Forecast) -> dict[str, object]:
    """Return how many sequences fit at once, at the model's and at the usual length."""
    size, tokens = found.plan.flags.block_size, told.length_tokens
    at_length = concurrency(found.num_blocks, found.blocks_per_sequence)
    usual = None
    if tokens is not None:
        usual = {
            "tokens": tokens,
            "from": told.length_from,
            "value": round(concurrency(found.num_blocks, -(-tokens // size)), 2),
        }
    return {
        "model_length": {
            "tokens": found.plan.flags.max_model_len,
            "value": round(at_length, 2),
        },
        "observed_length": usual,
        "origin": found.blocks.origin,
    }


def _memory(found: Forecast) -> dict[str, object] | None:
    parts, room = found.split, found.room
    if parts is None:
        return {"graphs": _estimate(found.graph_bytes)}
    return {
        "usable_bytes": parts.usable_bytes,
        "reserve_bytes": parts.reserve_bytes,
        "kv_cache_bytes": parts.kv_cache_bytes,
        "margin_bytes": parts.margin_bytes,
        "kv_scale_bytes": found.scale_bytes,
        "graphs": _estimate(found.graph_bytes),
        "need": room and _estimate(room.need),
        "room_bytes": room and room.room_bytes,
        "fits": room and room.fits,
    }


def _estimate(figure: Estimate | None) -> Mapping[str, object] | None:
    if figure is None:
        return None
    numbers = (figure.value, figure.low, figure.high)
    value, low, high = (round(number, 1) for number in numbers)
    return {"value": value, "low": low, "high": high, "origin": figure.origin}
