"""The model runner: which graphs a plan of the scheduler runs, and what they cost.

A step's time is that of the graphs that it runs, and a graph runs at its bucket's size: so
padding costs time.  A shape that is not warm costs its compilation and its memory first,
and each shape's first use is slower than later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.serve.compilations import CompilationLog
from hpuwatch.sim.serve.defragment import Defragmenter
from hpuwatch.sim.serve.schedule import Plan, Request
from hpuwatch.sim.shapes import Padded, Warmed, WarmShapes
from hpuwatch.sim.world import EngineFailed, World

_SKIPPED_GUARDS = (
    "RuntimeError: Recompilation triggered with skip_guard_eval_unsafe stance. This"
    " usually means that you have not warmed up your model with enough inputs such that"
    " you can guarantee no more recompilations."
)

Prefill = tuple[Request, int]
"""A request and the tokens of it that one step computes."""


class Runner:
    """Runs steps of one engine.

    Attributes:
        decode_seconds: how long the latest decode step took.
    """

    def __init__(self, world: World, warmed: Warmed, first_block: int) -> None:
        """Take the warmed server; ids of KV blocks begin at ``first_block``."""
        knobs = world.knobs
        self.decode_seconds = 0.01
        self.shapes = warmed.shapes
        self._world = world
        self._warm = warmed.warm
        self._used: WarmShapes = set()
        self._warned: set[str] = set()
        self._compiled: list[float] = []
        self._compilations = CompilationLog(world)
        self._contiguous = knobs.contiguous_pa
        # Compiled code that no longer checks its guards can't be compiled for more shapes.
        self._skips_guards = (
            knobs.full_warmup and not knobs.lazy and not knobs.skip_warmup
        )
        # V0 runs all prompts that its scheduler chose as one batch.
        self._splits_prefills = not world.options.point.is_v0
        threshold = knobs.defrag_threshold if knobs.defrag else None
        self._defragmenter = (
            None if threshold is None else Defragmenter(first_block, threshold)
        )

    def run(self, plan: Plan) -> float:
        """Return the seconds that the plan takes, compilation included.

        Raises:
            DeviceFull: a graph or what it needs for a moment didn't fit.
            EngineFailed: with VLLM_FULL_WARMUP, a shape that no warm-up prepared.
        """
        seconds = sum(
            self._graph_seconds(PROMPT, self._prefill_shape(batch))
            for batch in self._prefill_batches(plan.prefills)
        )
        if plan.decodes:
            padded = self._decode_shape(plan.decodes)
            first = self._graph_seconds(DECODE, padded)
            seconds += first
            if plan.steps > 1:
                each = self._step_seconds(DECODE, padded.bucket)
                seconds += each * (plan.steps - 1)
                self.decode_seconds = each
        self._compilations.tell(plan, self._compiled)
        self._compiled.clear()
        return seconds

    def _prefill_batches(self, prefills: Sequence[Prefill]) -> Iterator[list[Prefill]]:
        """Merge neighbouring prompts as far as prefill batch and token budget allow."""
        batch: list[Prefill] = []
        for prefill in prefills:
            if batch and self._splits_prefills and not self._fits(batch, prefill):
                yield batch
                batch = []
            batch.append(prefill)
        if batch:
            yield batch

    def _fits(self, batch: Sequence[Prefill], prefill: Prefill) -> bool:
        shapes, settings = self.shapes, self.shapes.settings
        count = len(batch) + 1
        if count > settings.max_num_prefill_seqs:
            return False
        if not shapes.merges_context and any(r.computed for r, _ in (*batch, prefill)):
            return False
        if settings.merged_prefill:
            tokens = sum(tokens for _, tokens in (*batch, prefill))
        else:
            longest = max(tokens for _, tokens in (*batch, prefill))
            tokens = shapes.padded_tokens(count, longest)
        return tokens <= settings.max_num_batched_tokens

    def _prefill_shape(self, batch: Sequence[Prefill]) -> Padded:
        size = self._world.options.block_size
        contexts = [-(-request.computed // size) for request, _ in batch]
        tokens = [tokens for _, tokens in batch]
        if self.shapes.settings.merged_prefill:
            return self.shapes.merged_prompt(sum(tokens), sum(contexts))
        return self.shapes.prompt(len(batch), max(tokens), max(contexts))

    def _decode_shape(self, decodes: Sequence[Request]) -> Padded:
        size = self._world.options.block_size
        if self._contiguous:
            blocks = self._highest(decodes) + 1
            if self.shapes.counts_references:
                blocks = max(blocks, sum(len(r.blocks) for r in decodes))
        else:
            blocks = sum(request.computed // size + 1 for request in decodes)
        return self.shapes.decode(len(decodes), blocks)

    def _highest(self, decodes: Sequence[Request]) -> int:
        """Return the highest physical block that a decode reads, tidied up before."""
        moved = self._defragmenter
        if moved is None:
            return max(max(request.blocks) for request in decodes)
        used = [block for request in decodes for block in request.blocks]
        moved.compact(used)
        return moved.highest(used)

    def _graph_seconds(self, phase: str, padded: Padded) -> float:
        """Return the seconds of running one graph once, compilation included."""
        world, bucket = self._world, padded.bucket
        for context, most in padded.capped:
            self._tell_capped(phase, context, most)
        for wanted, added in padded.added:
            world.each_rank(
                f"not_prepared_{phase}", wanted=tuple(wanted), added=tuple(added)
            )
        seconds = self._step_seconds(phase, bucket)
        if phase == DECODE:
            self.decode_seconds = seconds
        key = (phase, bucket)
        if key not in self._used:
            self._used.add(key)
            seconds += self._first_use_seconds(phase, bucket)
        return seconds

    def _tell_capped(self, phase: str, context: int, most: int) -> None:
        """Warn of a fallback bucket whose context was cut."""
        world, options = self._world, self._world.options
        if phase == DECODE:
            world.each_rank("fallback_ctx_capped", context=context, most=most)
            return
        world.each_rank(
            "fallback_prompt_capped",
            context=context,
            most=most,
            max_model_len=options.max_model_len,
            block_size=options.block_size,
        )

    def _step_seconds(self, phase: str, bucket: Bucket) -> float:
        times = self._world.times
        seconds = times.step_seconds(phase, bucket)
        return seconds * times.eager_factor if self._is_eager else seconds

    @property
    def _is_eager(self) -> bool:
        return self._world.options.enforce_eager

    def _warn_of_cold(self, phase: str, bucket: Bucket) -> None:
        """Warn of a shape that is not warm, once in the words of the release.

        V0 leaves the blocks of a shape out, unless it caches prefixes.
        """
        world, name, word = self._world, "not_warmed", phase
        if world.knobs.prefix_caching and world.voice.has("not_warmed_cached"):
            name = "not_warmed_cached"
            if phase == PROMPT:
                word = "prefix_prefill" if bucket.context else "prefill"
        values = {
            **bucket._asdict(),
            "phase": word,
            "length": bucket.query if phase == PROMPT else bucket.context,
        }
        text = world.voice.text(name, **values)
        if text not in self._warned:
            self._warned.add(text)
            world.each_rank(name, **values)

    def _first_use_seconds(self, phase: str, bucket: Bucket) -> float:
        world = self._world
        is_cold = (phase, bucket) not in self._warm
        if is_cold and not self._is_eager:
            self._warn_of_cold(phase, bucket)
            if self._skips_guards:
                raise EngineFailed(_SKIPPED_GUARDS, "execute_model")
        world.memory.run(phase, bucket)
        if self._is_eager:
            return 0.0
        if not is_cold:
            return world.times.first_use_seconds(phase, bucket)
        first = not any(name == phase for name, _ in self._warm)
        self._warm.add((phase, bucket))
        seconds = world.compile_seconds(phase, bucket, first=first, during="traffic")
        self._compiled.append(seconds)
        return seconds
