"""What memory the simulated server takes on each card: every figure, hidden ones included.

Figures only; ``truth.device`` takes and gives the bytes.

Weights are told by ``truth.weights``, the KV cache by ``truth.cache``, images by
``truth.images``, and how far all this departs from the laws by ``truth.hidden``.

*The profile run* of V0 runs the largest prompt and leaves its workspace.  That of the
plugin only initialises: 0 B, up to 0.13 one KV block and a bit; since 0.15 a model with
images runs its longest prompt.

*A graph* keeps memory by a law linear in tokens and blocks.  A *step* needs a workspace
beside it: that of a prefill grows with its tokens, and the context is gathered for one
layer at a time, keys and values one after the other, unless the cache is contiguous.  The
bridge pools workspaces, so free memory shows the largest only.  Beyond that, activations
live too shortly for any line.  *A departure*: no more is gathered than the cache holds,
while a real default start died of a decode bucket of 81,920 blocks on a cache of 7,593.

In *lazy* mode graphs are captured under compile-only mode: they are built, not run, and
only a part of what they need is taken then; the first real request takes the rest.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.kvcache import KvLayout, kv_dtype_bytes
from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.truth.cache import Cache
from hpuwatch.sim.truth.hidden import Hidden
from hpuwatch.sim.truth.images import Images, Size
from hpuwatch.sim.truth.weights import weights_of
from hpuwatch.units import GIB, KIB

_V0_PROFILE_BYTES = 16_383_511  # beside the workspace: two public starts of one model
_EARLY_PROFILE_BYTES = 512 * KIB
_PROFILES_A_BLOCK = "plugin-..0.13"
_PROFILES_IMAGES = "plugin-0.15.."
_TOUCHES_CACHE_LATE = "fork-..1.18"
_GRAPH_GRAIN_BYTES = 64 * KIB
_LOGIT_BYTES = 4
_GATHERED_SHARE = 0.55  # of keys and values: one of them at a time, and a bit
_OUTPUT_BYTES = 11.765  # per word of the vocabulary and token, of a graph with outputs
_COMPILED_SHARE = 0.18  # what 24 graphs of Llama-3.1-8B in fork-1.18 took, by its law


class MemoryTruth:
    """Memory of one simulated server, per card.

    Attributes:
        weights_bytes: taken while the model is loaded.
        inc_bytes: what INC's conversion takes on top, negative where it gives back.
        cache: sizes of the KV cache.
        hidden: how far the truth is from the laws.
        is_lazy: whether graphs are captured, else they are compiled like any code.
        compiled_share: the part of a graph that is taken when it is built.
        touches_cache_late: whether the cache counts as free until the first step.
        images: of the multimodal warm-up.
        runs_images: whether that runs them, else it only compiles.
    """

    def __init__(self, options: Options, knobs: Knobs) -> None:
        """Draw the hidden departures.

        Raises:
            ConfigError: heads can't be shared out among the cards.
        """
        model, ranks = options.model, options.tensor_parallel
        self._options = options
        self._model = model
        self._ranks = ranks
        self._knobs = knobs
        self._point = options.point
        name = f"{options.seed}/{model.name}/{options.card.name}"
        self.hidden = Hidden(name, options.misfit, ranks)
        weights = weights_of(options)
        self.weights_bytes = weights.loaded_bytes
        self.inc_bytes = weights.converted_bytes
        layout = KvLayout(
            model.shape,
            ranks,
            kv_dtype_bytes(options.kv_cache_dtype, model.shape),
            options.block_size,
            compact_gdn=bool(knobs.compact_gdn),
        )
        self.cache = Cache(layout, self._point, options.max_num_seqs)
        self.is_lazy = knobs.lazy
        compiles_only = self.is_lazy and knobs.compile_only
        self.compiled_share = _COMPILED_SHARE if compiles_only else 1.0
        self.touches_cache_late = covers(_TOUCHES_CACHE_LATE, self._point)
        self.images = Images(
            name,
            model.law.vision,
            knobs.multimodal_buckets,
            knobs.multimodal_resolutions,
            is_v0=self._point.is_v0,
        )
        self.runs_images = not compiles_only or knobs.mm_warmup_executes

    @property
    def total_bytes(self) -> int:
        """Device memory of the card."""
        return self._options.card.total_bytes

    @property
    def base_bytes(self) -> int:
        """Used before a model is loaded."""
        return self._options.card.base_bytes

    @property
    def block_bytes(self) -> int:
        """What the engine divides the KV budget by."""
        return self.cache.block_bytes

    @property
    def dummy_bytes(self) -> int:
        """What the V1 engine sets aside for padding; 0 in V0."""
        return self.cache.dummy_bytes

    @property
    def swap_blocks(self) -> int:
        """KV blocks that V0 keeps in the host's memory."""
        if not self._point.is_v0:
            return 0
        return int(self._options.swap_space_gib * GIB) // self.block_bytes

    @property
    def has_images(self) -> bool:
        """Whether the model takes images."""
        return self._model.law.vision is not None

    @property
    def image_sizes(self) -> tuple[Size, ...]:
        """Width and height of each step of the multimodal warm-up; none without images."""
        return self.images.sizes

    @property
    def profiles_images(self) -> bool:
        """Whether the plugin's profile run really runs: a model with images, since 0.15."""
        return self.has_images and covers(_PROFILES_IMAGES, self._point)

    def profile_bytes(self, tokens: int) -> int:
        """Return what the profile run leaves on the card.

        Args:
            tokens: of the prompt that V0 runs; the plugin runs none.
        """
        options, vision = self._options, self._model.law.vision
        if self._point.is_v0:
            return _V0_PROFILE_BYTES + self._workspace_of(tokens)
        if vision and self.profiles_images:
            longest = min(options.max_num_batched_tokens, options.max_model_len)
            return longest * vision.profile_bytes // self._ranks
        if covers(_PROFILES_A_BLOCK, self._point):
            return self.block_bytes + _EARLY_PROFILE_BYTES
        return 0

    def graph_bytes(self, phase: str, bucket: Bucket) -> int:
        """Return what the graph of a bucket keeps once it has run."""
        if self._options.enforce_eager:
            return 0
        law, bend = self._model.law.graphs[phase], self.hidden.bends[phase]
        tokens = bucket.batch * bucket.query
        size = (
            law.fixed_bytes
            + law.token_bytes * tokens * bend.factor(tokens)
            + law.block_bytes * bucket.context * bend.slope
        ) * self.hidden.outlier("heavy", phase, bucket)
        if self.is_lazy and self._knobs.tensor_cache:
            size += _OUTPUT_BYTES * self._model.vocabulary * tokens / self._ranks
        return int(size) // _GRAPH_GRAIN_BYTES * _GRAPH_GRAIN_BYTES

    def workspace_bytes(self, phase: str, bucket: Bucket, blocks: int) -> int:
        """Return what a run of a bucket needs and free memory shows afterwards.

        Args:
            phase: prompt or decode.
            bucket: the padded shape.
            blocks: those of the KV cache.
        """
        page = _GATHERED_SHARE * self.cache.layer_page_bytes
        gathered = int(min(bucket.context, blocks) * page)
        if phase == DECODE:
            return 0 if self._knobs.contiguous_pa else gathered
        shown = self._workspace_of(bucket.batch * bucket.query)
        return int(shown * self.hidden.workspace) + gathered

    def activation_bytes(self, phase: str, bucket: Bucket) -> int:
        """Return what a run needs on top for a moment; no line tells of it."""
        tokens = bucket.batch * (bucket.query if phase == PROMPT else 1)
        logits = bucket.batch * self._model.vocabulary * _LOGIT_BYTES
        needed = (tokens * self._model.law.activation_bytes + logits) / self._ranks
        return int(needed * self.hidden.misfit * self.hidden.heavy_rank_factor)

    def image_activation_bytes(self, index: int) -> int:
        """Return what a step of the multimodal warm-up needs for a moment, untold."""
        return int(self.images.activation_bytes(index) * self.hidden.misfit)

    def _workspace_of(self, tokens: int) -> int:
        return tokens * self._model.law.workspace_bytes // self._ranks
