"""Sizes that don't go together: the refusals of ``hpuwatch predict``, asked here too.

Without the model's length and the KV blocks only what the flags alone tell is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hpuwatch.advise.lint import values
from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.remark import Remark, unset
from hpuwatch.advise.lint.shapes import flags_of, sizes_are_known
from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.estimate import exactly
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import refusals

TOKENS = "--max-num-batched-tokens"
_FLAG = re.compile(r"--[a-z-]+")
_CURES = {
    "tokens-below-seqs": f"Raise {TOKENS}, or lower --max-num-seqs.",
    "tokens-below-length": f"Raise {TOKENS}, or lower --max-model-len.",
    "kv-short": "Lower --max-model-len, or make room for more KV blocks.",
    "seqs-above-blocks": "Lower --max-num-seqs.",
    "decode-above-cache": "Lower --max-num-seqs or --max-model-len, or have decode buckets "
    "with fewer blocks.",
}
"""What to do, by the code of the refusal; other codes are told by other checks."""


def refused(found: Configuration) -> Iterator[Remark]:
    """See sizes with which the server doesn't come up."""
    forecast, basis = _forecast(found)
    for each in refusals(forecast, basis):
        if each.code in _CURES:
            named = _FLAG.findall(each.text) or ["buckets"]
            by_somebody = (found.settings[n] for n in named if n in found.settings)
            about = next(by_somebody, unset(named[0]))
            yield Remark(about, each.text, _CURES[each.code])


def _forecast(found: Configuration) -> tuple[Forecast, Basis]:
    plan = Plan(
        found.release_text,
        flags_of(found),
        found.env,
        token_budget=found.count(TOKENS),
    )
    basis = Basis(printed=found.printed, blocks=found.num_blocks)
    if sizes_are_known(found):
        return predict(plan, basis), basis
    length = found.count("--max-model-len") or 1  # no complaint is due to one unknown
    plan = replace(plan, flags=replace(plan.flags, max_model_len=length))
    return Forecast(plan, exactly(plan.flags.num_blocks, "predicted"), 1), basis


def odd(found: Configuration) -> Iterator[Remark]:
    """See odd values, and a token budget that no whole block fits into."""
    yield from values.ending_as(Outcome.WORKS)(found)
    tokens, block = found.count(TOKENS), found.number("--block-size")
    if tokens is not None and block is not None and tokens < block:
        yield Remark(
            found.settings[TOKENS],
            f"{tokens} is less than the {block} tokens of a KV block, which is the least "
            "that makes sense.",
            f"Set {block} or more.",
        )
