"""Device memory of one card: who holds how much, what is pooled, and the card's end.

Each method is one event of a server's life.  It books what ``truth.memory`` says, or raises
:class:`DeviceFull` and books nothing.

How graphs and workspaces share the card depends on the mode.  Compiled code (the plugin's
default) takes both from one pool, which is as large as it ever had to be: a large first
step leaves room in which many later graphs cost nothing.  Captured graphs (lazy mode) hold
their memory for themselves, beside a pool for workspaces, which is given back when warm-up
is over: the peak lies above what stays.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.units import MIB

WEIGHTS, PROFILE, CACHE, IMAGES = "weights", "profile", "cache", "multimodal"
WORKSPACE, LEAK, TAKEN = "workspace", "leak", "taken"
_BASE = "base"
_OF_WARMUP = (IMAGES, PROMPT, DECODE, WORKSPACE)
_ALLOCATION_GRAIN_BYTES = 2 * MIB


class DeviceFull(Exception):  # noqa: N818  the card's state, told by its allocator
    """An allocation didn't fit.

    Attributes:
        wanted_bytes: what was asked for, rounded as the allocator rounds.
        rank: the card that ran out first.
        use: what it was for: ``weights``, ``profile``, ``cache``, ``multimodal``, a phase
            of warm-up (``prompt``, ``decode``), ``serving``, ``leak`` or ``taken``.
    """

    def __init__(self, wanted_bytes: int, use: str, rank: int = 0) -> None:
        """Take what was asked for."""
        super().__init__(wanted_bytes, use, rank)
        self.wanted_bytes = -(-wanted_bytes // _ALLOCATION_GRAIN_BYTES)
        self.wanted_bytes *= _ALLOCATION_GRAIN_BYTES
        self.use = use
        self.rank = rank


class Memory:
    """Device memory of one card in use; all ranks are alike.

    Attributes:
        held: bytes in use by what holds them.
        graph_bytes: what warm-up took so far, by phase (``used_mem``).
        peak_bytes: the most that was ever in use, hidden activations included.
    """

    def __init__(self, truth: MemoryTruth) -> None:
        """Start with an empty card."""
        self.held: dict[str, int] = {_BASE: truth.base_bytes}
        self.graph_bytes: dict[str, int] = {}
        self.peak_bytes = truth.base_bytes
        self._truth = truth
        self._blocks = 0
        self._kept_bytes = 0  # of graphs
        self._pool_bytes = 0  # of compiled code, its graphs included
        self._untouched_bytes = 0  # of the cache, where it counts as free
        self._postponed: dict[tuple[str, Bucket], int] = {}
        self._known: set[tuple[str, Bucket]] = set()

    @property
    def total_bytes(self) -> int:
        """Device memory of the card."""
        return self._truth.total_bytes

    @property
    def used_bytes(self) -> int:
        """What is in use."""
        return sum(self.held.values())

    @property
    def free_bytes(self) -> int:
        """What the runtime would print as free."""
        return self.total_bytes - self.used_bytes + self._untouched_bytes

    @property
    def room_bytes(self) -> int:
        """What can still be allocated; fragments between graphs are no room."""
        fragments = int(self._kept_bytes * self._truth.hidden.fragments)
        return max(0, self.total_bytes - self.used_bytes - fragments)

    @property
    def warmup_bytes(self) -> int:
        """What warm-up has allocated and not given back."""
        return sum(self.held.get(use, 0) for use in _OF_WARMUP)

    def load(self) -> None:
        """Load the weights."""
        self._take(WEIGHTS, self._truth.weights_bytes)

    def convert(self) -> None:
        """Quantise the weights with INC."""
        self._take(WEIGHTS, self._truth.inc_bytes)

    def profile(self, batch: int = 0, length: int = 0) -> None:
        """Go through the profile run, in V0 with so many prompts of so many tokens."""
        run = Bucket(batch, length, 0)
        transient = self._truth.activation_bytes(PROMPT, run)
        self._take(PROFILE, self._truth.profile_bytes(batch * length), transient)

    def make_cache(self, blocks: int) -> None:
        """Allocate the KV cache for so many usable blocks."""
        count = self._truth.cache.allocated_bytes(blocks)
        self._take(CACHE, count)
        self._blocks = blocks
        self._untouched_bytes = count if self._truth.touches_cache_late else 0

    def warm_image(self, index: int) -> None:
        """Go through one step of the multimodal warm-up, counted from 0."""
        truth = self._truth
        if truth.runs_images:
            kept = truth.images.kept_bytes + truth.images.left_bytes(index)
            transient = truth.image_activation_bytes(index)
            self._take(IMAGES, kept - self.held.get(IMAGES, 0), transient)

    def finish_images(self) -> None:
        """End the multimodal warm-up: only what the first image left stays."""
        if IMAGES in self.held:
            self.held[IMAGES] = self._truth.images.kept_bytes

    def rehearse(self, phase: str, bucket: Bucket) -> None:
        """Build a bucket without keeping its graph (the first pass of V0)."""
        self._untouched_bytes = 0
        if self._truth.compiled_share == 1:
            self._step(phase, bucket, 0, phase)

    def warm(self, phase: str, bucket: Bucket) -> None:
        """Build the graph of a bucket and keep it."""
        self._untouched_bytes = 0
        graph = self._truth.graph_bytes(phase, bucket)
        if self._truth.compiled_share == 1:
            taken = self._step(phase, bucket, graph, phase)
        else:
            taken = int(graph * self._truth.compiled_share)
            self._take(phase, taken)
            self._kept_bytes += taken
            self._postponed[phase, bucket] = graph - taken
        self._known.add((phase, bucket))
        self.graph_bytes[phase] = self.graph_bytes.get(phase, 0) + taken

    def finish_warmup(self) -> None:
        """End warm-up: captured graphs give the pool of workspaces back."""
        self.held.pop(WORKSPACE, None)

    def run(self, phase: str, bucket: Bucket) -> None:
        """Run a shape for the first time while serving.

        A shape that is not warm takes its graph now, one that was only compiled what it
        left for later.
        """
        self._untouched_bytes = 0
        shape = phase, bucket
        if shape in self._known:
            graph = self._postponed.get(shape, 0)
        else:
            graph = self._truth.graph_bytes(phase, bucket)
        self._step(phase, bucket, graph, "serving")
        self._postponed.pop(shape, None)
        self._known.add(shape)

    def lose(self, count: int, holder: str) -> None:
        """Lose so many bytes, to a ``LEAK`` or because they are ``TAKEN``."""
        self._take(holder, count)

    def give_back(self, count: int, holder: str) -> None:
        """Have so many of the bytes again that something holds."""
        self._take(holder, -count)

    def _step(self, phase: str, bucket: Bucket, graph: int, use: str) -> int:
        """Run a step that keeps a graph, and return by how much the card got fuller."""
        workspace = self._truth.workspace_bytes(phase, bucket, self._blocks)
        transient = self._truth.activation_bytes(phase, bucket)
        if self._truth.is_lazy:
            pooled = self.held.get(WORKSPACE, 0)
            # What the profile run left is there for later steps.
            growth = max(0, workspace - pooled - self.held.get(PROFILE, 0))
            self._take(phase, graph, growth + transient, use)
            self.held[WORKSPACE] = pooled + growth
            self._kept_bytes += graph
            return graph + growth
        growth = max(0, self._kept_bytes + graph + workspace - self._pool_bytes)
        self._take(phase, growth, transient, use)
        self._pool_bytes += growth
        self._kept_bytes += graph
        return growth

    def _take(
        self, holder: str, count: int, transient: int = 0, use: str | None = None
    ) -> None:
        """Use more for good, and some for a moment; a negative count gives back.

        Raises:
            DeviceFull: the card doesn't have it.
        """
        if count + transient > self.room_bytes:
            wanted = max(count, transient)
            raise DeviceFull(wanted, use or holder, self._truth.hidden.heavy_rank)
        self.held[holder] = self.held.get(holder, 0) + count
        self.peak_bytes = max(self.peak_bytes, self.used_bytes + transient)
