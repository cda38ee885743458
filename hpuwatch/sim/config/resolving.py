"""What the variables mean together: defaults that hang on other settings, by release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.config.options import Options

DEFAULT_RESERVE = 0.1
_PAGED = "VLLM_CONTIGUOUS_PA"
_PREFILL = "VLLM_PROMPT_BS_BUCKET_MAX"
_SLICES = (
    "PT_HPU_SDPA_QKV_SLICE_MODE_FWD",
    "PT_HPU_SDPA_BC_FACTOR",
    "VLLM_FUSEDSDPA_SLIDE_THLD",
)
"""Variables of attention in slices, which drops prompt buckets."""


def resolve(
    values: Mapping[str, Any], understood: Mapping[str, object], options: Options
) -> dict[str, Any]:
    """Return the values by field with everything that follows from them.

    Args:
        values: what the variables say, each by itself.
        understood: what was made of each variable that is set, by its name.
        options: the command line.
    """
    found = dict(values)
    found["reserve_was_bad"] = found["reserve"] is None
    if found["reserve_was_bad"]:
        found["reserve"] = DEFAULT_RESERVE
    found["bucket_env"] = {
        name: options.env[name]
        for name in understood
        if "_BUCKET_" in name or name in _SLICES
    }
    _attention(found, options)
    _strategy(found, options)
    _prefills(found, understood, options)
    wanted = found["fsdpa_slices"] is not False
    found["fsdpa_slices"] = wanted and found["strategy"] == "pad" and found["bucketing"]
    found["delayed_sampling"] = _delays(found, options)
    return found


def _attention(found: dict[str, Any], options: Options) -> None:
    """Settle contiguous attention, and what is on or off with it."""
    at, caching = options.point, options.prefix_caching
    asked, turned_off = found["contiguous_pa"], False
    if covers("plugin-0.11..", at):
        found["contiguous_pa"] = bool(asked)
        # Prefix caching is turned off by another reading of the variable, which knows two
        # spellings of yes.
        turned_off = options.env.get(_PAGED, "").lower() in {"1", "true"}
        caching = caching and not turned_off
    elif covers("fork-1.21.. plugin", at):
        found["contiguous_pa"] = not caching if asked is None else asked
    elif covers("fork-1.19..", at):
        found["contiguous_pa"] = asked is not False
    else:
        found["contiguous_pa"] = False
    found["prefix_caching"], found["caching_turned_off"] = caching, turned_off
    if found["defrag"] is None:
        found["defrag"] = found["contiguous_pa"] and covers("plugin-0.19..", at)


def _strategy(found: dict[str, Any], options: Options) -> None:
    """Settle how buckets are made."""
    at, legacy = options.point, found["exponential"]
    strategy, overruled = "exp", None
    if covers("fork-..1.20 vllm", at) or (covers("fork-1.21", at) and not legacy):
        strategy = "lin"
    elif covers("plugin-0.20..", at):
        strategy = found["named_strategy"] or "exp"
    if legacy is not None and covers("fork-1.22.. plugin", at):
        overruled = strategy if covers("plugin-0.20..", at) else None
        strategy = "exp" if legacy else "lin"
    path = found["bucket_file_path"]
    if path is not None:
        strategy, overruled = "file", None
        try:
            found["bucket_file"] = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            found["bucket_file_trouble"] = f"{type(error).__name__}: {error}"
    found["strategy"], found["strategy_overruled"] = strategy, overruled


def _prefills(
    found: dict[str, Any], understood: Mapping[str, object], options: Options
) -> None:
    """Settle how many prompts one prefill takes."""
    at = options.point
    if covers("plugin-0.11..", at):
        seqs = options.max_num_seqs if found["merged_prefill"] else 1
        found["max_prefill_seqs"] = understood.get(_PREFILL, seqs)
    elif covers("fork-1.20..", at):
        seqs = options.max_num_prefill_seqs or options.max_num_seqs
        found["max_prefill_seqs"] = seqs
    elif not at.is_v0:
        found["max_prefill_seqs"] = 1
    else:
        found["max_prefill_seqs"] = min(64, options.max_num_seqs)


def _delays(found: Mapping[str, Any], options: Options) -> bool:
    """Tell whether sampling is delayed: asked for, or by default where nothing forbids it."""
    if "VLLM_DELAYED_SAMPLING" in options.env:
        return bool(found["delayed_sampling"])
    forbids = (
        options.speculative_tokens > 0
        or options.num_scheduler_steps > 1
        or options.pipeline_parallel > 1
    )
    return bool(found["delayed_sampling"]) and not forbids
