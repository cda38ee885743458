"""How many KV blocks there are, whoever says so and in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.state.model import BlocksFrom, Start
from hpuwatch.testing.logs import start_of_text

pytestmark = pytest.mark.unit

AT = "INFO 01-02 03:04:05 [x.py:1]"
V0 = f"{AT} # hpu blocks: 900, # CPU blocks: 256\n"
FIRST_V1 = f"{AT} # GPU blocks: 901\n"
TOKENS = f"{AT} GPU KV cache size: 115,456 tokens\n"
OVERRIDE = f"{AT} Overriding num_gpu_blocks=900 with num_gpu_blocks_override=2000\n"
HYBRID = (
    f"{AT} Hybrid model (standard Mamba2 + ATN): adjusted usable KV cache from 64.3 GiB to "
    "30.1 GiB (attn_page=2162688, mamba_state=2457600, ratio=0.468)\n"
)


def usable(blocks: int, speaker: str = "EngineCore pid=3") -> str:
    return (
        f"({speaker}) {AT} Usable num_blocks: {blocks}, actual allocated num_blocks: "
        f"{(blocks + 1) * 128} (_PAD_BLOCK_ID={blocks}, _PAD_SLOT_ID={blocks * 128})\n"
    )


def engine(config: str, speaker: str = "EngineCore pid=3") -> str:
    return (
        f"({speaker}) {AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
        f"max_seq_len=2048, {config}, device_config=hpu\n"
    )


def blocks_of(start: Start) -> tuple[int | None, BlocksFrom | None]:
    kv = start.kv
    return (kv.blocks.value if kv.blocks else None, kv.blocks_from)


@pytest.mark.parametrize(
    ("text", "count", "source"),
    [
        (TOKENS, 902, BlocksFrom.TOKENS),
        (TOKENS + V0, 900, BlocksFrom.ENGINE),
        (FIRST_V1, 901, BlocksFrom.ENGINE),
        (TOKENS + FIRST_V1 + usable(1189), 1189, BlocksFrom.WORKER),
        (OVERRIDE, 2000, BlocksFrom.OVERRIDE),
        (V0 + OVERRIDE, 2000, BlocksFrom.OVERRIDE),
        (OVERRIDE + usable(1999), 1999, BlocksFrom.WORKER),
    ],
)
def test_the_best_source_wins(text: str, count: int, source: BlocksFrom) -> None:
    assert blocks_of(start_of_text(text)) == (count, source)


@given(st.permutations([TOKENS, V0, OVERRIDE, usable(1189), usable(1180)]))
def test_the_order_of_the_lines_does_not_matter(lines: list[str]) -> None:
    assert blocks_of(start_of_text("".join(lines))) == (1180, BlocksFrom.WORKER)


def test_of_engines_and_ranks_the_smallest_cache_counts() -> None:
    start = start_of_text(
        usable(1189, "EngineCore_DP0 pid=3")
        + f"(EngineCore_DP0 pid=3) {AT} GPU KV cache size: 152,192 tokens\n"
        f"(EngineCore_DP0 pid=3) {AT} Maximum concurrency for 2,048 tokens per request: "
        "74.31x\n"
        + usable(1100, "EngineCore_DP1 pid=4")
        + f"(EngineCore_DP1 pid=4) {AT} GPU KV cache size: 140,800 tokens\n"
        f"(EngineCore_DP1 pid=4) {AT} Maximum concurrency for 2,048 tokens per request: "
        "68.75x\n" + usable(1189, "EngineCore_DP2 pid=5")
    )
    assert blocks_of(start) == (1100, BlocksFrom.WORKER)
    assert start.kv.tokens is not None
    assert start.kv.tokens.value == 140_800
    assert start.kv.max_concurrency is not None
    assert start.kv.max_concurrency.value == 68.75


def test_blocks_that_follow_from_tokens_follow_from_the_block_size() -> None:
    start = start_of_text(
        f"{AT} non-default args: {{'model': 'm', 'block_size': 256}}\n{TOKENS}"
    )
    assert blocks_of(start) == (451, BlocksFrom.TOKENS)
    # Whoever asks for the block size must not get back what was only assumed.
    assert start.kv.block_size is None
    assert start_of_text(TOKENS + usable(902)).kv.block_size == 128


@pytest.mark.parametrize(
    "text", [TOKENS.replace("456", "457"), HYBRID + TOKENS], ids=["uneven", "hybrid"]
)
def test_tokens_that_are_no_blocks_give_none(text: str) -> None:
    assert blocks_of(start_of_text(text)) == (None, None)


def test_ranks_count_on_over_data_parallel_engines() -> None:
    split = (
        "Free device memory: {free} GiB, {free} GiB usable (gpu_memory_utilization=1), "
        "0 B reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0), 16 MiB reserved for KV "
        "cache dummy block 64.78 GiB reserved for usable KV cache\n"
    )
    speakers = [
        f"Worker_DP{dp}_TP{tp} pid={9 + 2 * dp + tp}" for dp in (0, 1) for tp in (0, 1)
    ]
    text = engine("tensor_parallel_size=2", "EngineCore_DP0 pid=3")
    text += engine("tensor_parallel_size=2", "EngineCore_DP1 pid=4")
    for number, speaker in enumerate(speakers):
        text += f"({speaker}) {AT} {split.format(free=80 - number)}"
    memory = start_of_text(text).memory
    free = {rank: each.free.value.printed for rank, each in memory.items() if each.free}
    assert free == {0: "80 GiB", 1: "79 GiB", 2: "78 GiB", 3: "77 GiB"}


def test_a_switched_models_blocks_are_its_own() -> None:
    start = start_of_text(
        usable(1189)
        + "INFO:     Application startup complete.\n"
        + f"(EngineCore pid=3) {AT} [gaudi_reconfigure] start: target_model=org/other\n"
        f"(EngineCore pid=3) {AT} [gaudi_reconfigure] kv cache reinitialized: "
        "num_gpu_blocks=700\n"
    )
    assert blocks_of(start) == (700, BlocksFrom.ENGINE)


SWITCHING = (
    "INFO:     Application startup complete.\n"
    f"(EngineCore pid=3) {AT} [gaudi_reconfigure] start: target_model=org/other\n"
)


def test_what_a_switching_server_asks_for_itself_is_no_traffic() -> None:
    missed = "WARNING 01-02 03:04:05 [x.py:1] Configuration: ('prompt', 1, 128, 0) was not warmed-up!\n"
    done = f"(EngineCore pid=3) {AT} [gaudi_reconfigure] completed in 9.00s\n"
    (during,) = start_of_text(SWITCHING + missed).misses
    assert during.count == 0
    (after,) = start_of_text(SWITCHING + done + missed).misses
    assert after.count == 1


def test_a_fault_in_a_switched_models_warm_up_knows_its_bucket() -> None:
    bar = "Decode warmup processing:  40%|####      | 2/5 [00:02<00:03,  1.00s/item, 2/5]\n"
    oom = (
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
        "size::1073741824 (1024)MB\n"
    )
    (fault,) = start_of_text(SWITCHING + bar + oom).faults
    assert (fault.phase.value, fault.at) == ("switching", "decode bucket 3 of 5")
