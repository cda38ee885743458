"""Write docs/calculator.md anew: a rule-based calculator's answers, ours, and the truth.

The inputs and the calculator's answers lie in the shared folder (``HPUWATCH_SHARED``, else
beside the checkout); what its settings really make was got by running the plugin's own code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis, Device
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.cards import card_called
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.predict import predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.gaudi.resolve import Flags
from hpuwatch.units import GIB

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "calculator.md"
BEGIN = "<!-- The table is made by `.venv/bin/python tests/calculator.py`. -->"

Record = dict[str, Any]

_QWEN3_8B = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
"""The one model of the inputs that the calculator has no row for."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Our answer to one input; ``refusal`` says why it can't work, "" where it can."""

    prompt: int | None = None
    decode: int | None = None
    blocks: int | None = None
    sequences: int | None = None  # of the model's length, that the blocks hold
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One input: the calculator's record of it, and our answer."""

    record: Record
    ours: Ours

    @property
    def emitted(self) -> Record:
        """What the calculator would start the server with; empty where it crashed."""
        return dict(self.record.get("outputs") or {})

    @property
    def real(self) -> tuple[int, int] | None:
        """Prompt and decode buckets that the plugin's own code makes of that."""
        check = self.record.get("check")
        if not check:
            return None
        return check["real_prompt_buckets"], check["real_decode_buckets"]


def rows(shared: Path) -> Iterator[Row]:
    """Yield every input of the calculator's runs with our answer."""
    text = (shared / "peers" / "autocalc-runs.json").read_text(encoding="utf-8")
    document = json.loads(text)
    for record in (*document["runs"], *document["probes"]):
        yield Row(record, _ours(record))


def _ours(record: Record) -> Ours:
    try:
        plan, device = _asked(record)
        basis = Basis(device=device)
        forecast = predict(plan, basis)
        wrong = [remark.text for remark in refusals(forecast, basis)]
    except ConfigError as error:
        return Ours(refusal=f"{error}.".replace("..", "."))
    if not forecast.num_blocks or not forecast.lists:
        return Ours(blocks=forecast.num_blocks, refusal=wrong[0])
    return Ours(
        len(forecast.lists[PROMPT]),
        len(forecast.lists[DECODE]),
        forecast.num_blocks,
        forecast.num_blocks // forecast.blocks_per_sequence,
        wrong[0] if wrong else "",
    )


def _asked(record: Record) -> tuple[Plan, Device]:
    emitted = record.get("outputs") or {}
    if not emitted:
        return _asked_anew(record["inputs"], record["device"])
    env = {
        name: str(value)
        for name, value in emitted.items()
        if name.startswith("VLLM_")
        and value is not None
        # It is worked out, but not handed to the server.
        and name != "VLLM_DECODE_BLOCK_BUCKET_MAX"
    }
    flags = Flags(
        max_num_seqs=emitted["MAX_NUM_SEQS"],
        max_num_batched_tokens=emitted["MAX_NUM_BATCHED_TOKENS"],
        max_model_len=emitted["MAX_MODEL_LEN"],
        num_blocks=0,
        block_size=emitted["BLOCK_SIZE"],
    )
    plan = Plan(
        "plugin-head",
        flags,
        env,
        token_budget=flags.max_num_batched_tokens,
        utilisation_given=emitted["GPU_MEM_UTILIZATION"],
        tensor_parallel=emitted["TENSOR_PARALLEL_SIZE"],
    )
    free = exactly(emitted["USABLE_MEM"] * GIB)
    return plan, Device(free, model=_shape(emitted))


def _shape(emitted: Mapping[str, Any]) -> ModelShape:
    """Return the model as the calculator's own row describes it; weights play no part."""
    config = {
        "model_type": emitted["MODEL"],
        "num_hidden_layers": emitted["NUM_HIDDEN_LAYERS"],
        "hidden_size": emitted["HIDDEN_SIZE"],
        "num_attention_heads": emitted["NUM_ATTENTION_HEADS"],
        "num_key_value_heads": emitted["NUM_KEY_VALUE_HEADS"],
        "max_position_embeddings": emitted["LIMIT_MODEL_LEN"],
        "head_dim": int(emitted["HEAD_DIM"]) if emitted["HEAD_DIM"] else None,
        "vocab_size": 1,
        "intermediate_size": 1,
    }
    return read_model(config)


def _asked_anew(inputs: Mapping[str, Any], device: str) -> tuple[Plan, Device]:
    """Ask what the calculator gave no answer to, from the model and the card alone."""
    models = yaml.safe_load((ROOT / "tests/data/models.yaml").read_text("utf-8"))
    name = inputs["MODEL"].rpartition("/")[2].removesuffix("-Instruct")
    model = read_model({**models, "Qwen3-8B": _QWEN3_8B}[name])
    card = card_called(device)
    cards = inputs.get("TENSOR_PARALLEL_SIZE", 1)
    free = card.total_bytes - model.weight_bytes(cards)
    flags = Flags(
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        max_model_len=inputs.get("MAX_MODEL_LEN", model.max_position),
        num_blocks=0,
    )
    plan = Plan("plugin-head", flags, {}, token_budget=2048, tensor_parallel=cards)
    return plan, Device(Estimate(free, free, free, "predicted"), model=model)


def table(shared: Path) -> str:
    """Return the table as Markdown."""
    head = (
        *("input", "card", "buckets", "lazy", "its sequences"),
        *("its reserve (by its own estimate)", "its graphs, prompt + decode"),
        *("really generated", "ours", "our KV blocks", "we say"),
    )
    lines = [_line(head), _line(["---"] * len(head))]
    lines += [_line(_cells(row)) for row in rows(shared)]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _cells(row: Row) -> list[object]:
    record, given, told = row.record, row.record["inputs"], row.emitted
    model = given["MODEL"].rpartition("/")[2].removesuffix("-Instruct")
    cards, length = given.get("TENSOR_PARALLEL_SIZE"), given.get("MAX_MODEL_LEN")
    name = " ".join(
        filter(None, (model, cards and f"TP{cards}", length and f"{length:,}"))
    )
    if given.get("ENABLE_PREFIX_CACHING"):
        name += " prefix caching"
    strategy = "exp" if given.get("VLLM_EXPONENTIAL_BUCKETING") else "lin"
    first = [name, record["device"], strategy, given.get("PT_HPU_LAZY_MODE", 0)]
    return [*first, *_its(told), *_real_and_ours(row)]


def _its(told: Record) -> list[object]:
    if not told:
        return ["crashes", "", ""]
    reserve, wanted = told["VLLM_GRAPH_RESERVED_MEM"], told["EST_GRAPH_RESERVE_MEM"]
    clamped = "**clamped** " if wanted > reserve else ""
    graphs = f"{told['EST_NUM_PROMPT_GRAPHS']:,.0f} + {told['NUM_DECODE_GRAPHS']:,.0f}"
    return [told["MAX_NUM_SEQS"], f"{clamped}{reserve} ({wanted})", graphs]


def _real_and_ours(row: Row) -> list[object]:
    ours = row.ours
    real = "" if row.real is None else f"{row.real[0]:,} + {row.real[1]:,}"
    starts = ours.prompt is not None and not (real == "" and ours.refusal)
    made = "" if not starts else f"{ours.prompt:,} + {ours.decode:,}"
    blocks = "" if ours.blocks is None else f"{ours.blocks:,}"
    return [real, made, blocks, ours.refusal or _room(row)]


def _room(row: Row) -> str:
    """Say how many sequences of full length fit, beside those that it asks for."""
    asked, fit = row.emitted.get("MAX_NUM_SEQS"), row.ours.sequences
    said = f"{fit:,} sequences of full length fit"
    return (
        f"{said}, of {asked:,}" if asked and fit is not None and fit < asked else said
    )


def page(shared: Path, text: str) -> str:
    """Return the page with its table made anew."""
    kept, mark, _ = text.partition(BEGIN)
    return f"{kept}{mark}\n\n{table(shared)}"


def main() -> None:
    """Write the page's table."""
    shared = Path(os.environ.get("HPUWATCH_SHARED", ROOT.parent / "shared"))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(shared, text), encoding="utf-8")


if __name__ == "__main__":
    main()
