"""Starts of a server as synthetic logs, piece by piece, for tests of findings.

The lines have the form of the plugin (V1) or of the older fork (V0); the figures are made
up, and add up where the runtime's do: ``free = total - weights``, ``usable = utilisation *
free``, ``reserve = ratio * usable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.gaudi.model import Bucket
from hpuwatch.units import GIB, format_bytes

SIZES = {"max_model_len": 8192, "max_num_seqs": 64, "max_num_batched_tokens": 8192}

READY = "INFO:     Application startup complete.\n"


def logged(
    text: str, at: str = "07-13 08:00:00", level: str = "INFO", source: str = "x.py:1"
) -> str:
    """Return a line of the engine, with its header."""
    return f"(EngineCore pid=30) {level} {at} [{source}] {text}\n"


def gib(count: float) -> str:
    """Print an amount of GiB as the runtime does."""
    return format_bytes(count * GIB)


@dataclass(frozen=True, slots=True)
class Split:
    """A card's memory in GiB and what the server was told to make of it.

    Attributes:
        weights: of the model, on this card.
        others: taken before the split by somebody else.
        blocks: KV blocks, which decide how large one is.
        taken: what the cache engine says that it took; what was planned where None.
        beside: taken beside the KV cache by somebody else.
        hybrid_to: the KV cache of a hybrid model, as corrected.
        profile: what the profile run took.
    """

    total: float = 94.62
    weights: float = 14.62
    utilisation: float = 0.9
    ratio: float = 0.1
    others: float = 0.0
    blocks: int = 4000
    taken: float | None = None
    beside: float = 0.0
    hybrid_to: float | None = None
    profile: float = 0.0

    @property
    def free(self) -> float:
        """Return what is free at the split."""
        return self.total - self.weights - self.others - self.profile

    @property
    def reserve(self) -> float:
        """Return what is set aside for graphs."""
        return self.free * self.utilisation * self.ratio

    @property
    def cache(self) -> float:
        """Return what is left for the KV cache."""
        return self.block * self.blocks

    @property
    def block(self) -> float:
        """Return a block, which the block of padding comes on top of as one more."""
        return (self.free * self.utilisation - self.reserve) / (self.blocks + 1)

    @property
    def room(self) -> float:
        """Return what is free before warm-up."""
        return self.total - self._used

    @property
    def _used(self) -> float:
        took = self.cache + self.block if self.taken is None else self.taken
        return self.total - self.free + took + self.beside

    def lines(self) -> str:
        """Return the ledger as the plugin prints it."""
        full, took = self.total - self.free, self.cache + self.block
        took = took if self.taken is None else self.taken
        profile = (
            f"Model profiling run took {gib(self.profile)} of device memory "
            f"({gib(full)}/{gib(self.total)} used) and 0 B of host memory "
            "(61 GiB/1007 GiB used)"
        )
        divided = (
            f"Free device memory: {gib(self.free)}, {gib(self.free * self.utilisation)} "
            f"usable (gpu_memory_utilization={self.utilisation:g}), {gib(self.reserve)} "
            f"reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM={self.ratio:g}), "
            f"{gib(self.block)} reserved for KV cache dummy block {gib(self.cache)} "
            "reserved for usable KV cache"
        )
        said = [profile, divided]
        if self.hybrid_to is not None:
            said.append(
                "Hybrid model (standard Mamba2 + ATN): adjusted usable KV cache from "
                f"{gib(self.cache)} to {gib(self.hybrid_to)} (attn_page=2162688, "
                "mamba_state=2457600, ratio=0.468)"
            )
        said.append(
            f"Usable num_blocks: {self.blocks}, actual allocated num_blocks: "
            f"{self.blocks + 1} (_PAD_BLOCK_ID=0, _PAD_SLOT_ID=-1)"
        )
        said.append(
            f"Initializing cache engine took {gib(took)} of device memory "
            f"({gib(self._used)}/{gib(self.total)} used) and 0 B of host memory "
            "(61 GiB/1007 GiB used)"
        )
        weights = logged(f"Loading model weights took {self.weights:.4f} GB")
        return weights + "".join(map(logged, said))


@dataclass(frozen=True, slots=True)
class Server:
    """The head of a log of the plugin: sizes, strategy and variables."""

    sizes: Mapping[str, int] = field(default_factory=lambda: dict(SIZES))
    version: str = "0.26.0"
    strategy: str = "exp"
    env: Mapping[str, str] = field(default_factory=dict)
    cards: int = 1
    paged: bool = False

    def lines(self) -> str:
        """Return the lines up to the load."""
        arguments = {"model": "made-up-8b", **self.sizes}
        features = {
            "bucketing_strategy": self.strategy,
            "use_contiguous_pa": str(self.paged),
            **self.env,
        }
        longest = self.sizes.get("max_model_len", 2048)
        return (
            f"(APIServer pid=11) INFO 07-13 08:00:00 [utils.py:233] non-default args: "
            f"{arguments}\n"
            + logged(
                f"Initializing a V1 LLM engine (v{self.version}) with config: "
                f"model='made-up-8b', max_seq_len={longest}, "
                f"tensor_parallel_size={self.cards}, device_config=hpu, "
                f"enable_prefix_caching={not self.paged}"
            )
            + _described("Environment:", {"vllm_gaudi_commit": "1a2b3c4"})
            + _described("Features:", features)
        )


def _described(title: str, said: Mapping[str, str]) -> str:
    lines = [
        logged(f"    {name}: {each}", source="runtime.py:32")
        for name, each in said.items()
    ]
    return logged(title, source="runtime.py:28") + "".join(lines)


def listed(phase: str, buckets: Sequence[Bucket | tuple[int, int, int]]) -> str:
    """Return the line that lists the buckets of a phase."""
    shown = ", ".join(str(tuple(each)) for each in buckets)
    return logged(
        f"Generated {len(buckets)} {phase} buckets [bs, query, num_blocks]: [{shown}]"
    )


def warmed(
    phase: str,
    steps: Iterable[tuple[Bucket | tuple[int, int, int], float]],
    total: int,
    each_seconds: int = 1,
    first: int = 1,
) -> str:
    """Return the lines of warm-up: each bucket with the GiB that were free before it."""
    lines = []
    for place, ((batch, query, context), free) in enumerate(steps):
        seconds = place * each_seconds
        at = f"07-13 {9 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        said = (
            f"[Warmup][{phase.capitalize()}][{first + place}/{total}] batch_size:{batch} "
            f"query_len:{query} num_blocks:{context} free_mem:{gib(free)}"
        )
        lines.append(logged(said, at))
    return "".join(lines)


def finished(seconds: int, allocated: float, at: str = "07-13 09:01:00") -> str:
    """Return the end of a warm-up and of the start; ``at`` comes after its last step."""
    said = f"Warmup finished in {seconds} secs, allocated {gib(allocated)} of device memory"
    return logged(said, at) + READY


def died(exception: str) -> str:
    """Return the last words of an engine."""
    said = (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/opt/x/hpu_model_runner.py", line 12, in warmup_model',
        "    self.warmup_graphs()",
        exception,
    )
    return "".join(logged(each, "07-13 18:00:00", "ERROR") for each in said)


def out_of_memory(mebibytes: int) -> str:
    """Return the last words of an engine that found no memory."""
    return died(
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
        f"size::{mebibytes * 1024**2} ({mebibytes})MB"
    )


def stats(
    running: int, waiting: int = 0, use_percent: float = 20.0, times: int = 1
) -> str:
    """Return the engine's periodic line, so many times."""
    said = (
        f"Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: "
        f"90.0 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache "
        f"usage: {use_percent}%, Prefix cache hit rate: 0.0%"
    )
    return logged(said, "07-13 19:00:00") * times


def missed(phase: str, *sizes: int) -> str:
    """Return the warning of a shape that traffic asked for in vain."""
    shape = ", ".join(map(str, sizes))
    said = f"Configuration: ('{phase}', {shape}) was not warmed-up!"
    return logged(said, "07-13 19:00:01", "WARNING")
