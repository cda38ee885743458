"""Continuous batching: which requests run in the next step, and who has to wait.

The rules are those of vLLM's V1 scheduler.  Running requests come first, one new token
each; waiting prompts fill what is left of the token budget, in chunks unless that is
switched off.  A prompt that begins like an earlier one takes the blocks of that beginning
from the prefix cache.  When no block is free, the newest running request gives all of its
blocks back and starts over later (a *preemption*).  Nothing here knows the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpuwatch.sim.serve.blocks import BlockPool
from hpuwatch.sim.serve.tokens import WORDS, Piece

_RECENT_REQUESTS = 1000  # vLLM's hit rate is that of the most recent ones


@dataclass(slots=True, eq=False)
class Request:
    """One sequence on its way.

    Attributes:
        prompt_tokens: length of the prompt.
        end_tokens: tokens after which it is complete.
        content: the prompt's tokens; empty where the prefix cache shall not know it.
        identity: its name in log lines.
        siblings: sequences that were asked for together, itself among them.
        reason_at_end: why it ends once it is complete.
        max_tokens: most tokens that the client wanted, 0 where it set no limit.
        computed: tokens whose keys and values lie in the cache.
        generated: tokens made so far.
        cached: tokens that the prefix cache had when it was first admitted.
        blocks: ids of the KV blocks held, in the order of its tokens.
        hashes: chained hashes of its full blocks, as far as they were needed.
    """

    prompt_tokens: int
    end_tokens: int
    content: Sequence[Piece] = ()
    identity: str = ""
    siblings: int = 1
    reason_at_end: str = "length"
    max_tokens: int = 0
    computed: int = 0
    generated: int = 0
    cached: int | None = None
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.prompt_tokens + self.generated

    @property
    def ahead(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.prompt_tokens + self.generated - self.computed

    @property
    def is_complete(self) -> bool:
        """Tell whether all its tokens are made."""
        return self.generated >= self.end_tokens

    def hash_blocks(self, count: int, block_size: int) -> list[int]:
        """Return the hashes of its first ``count`` blocks, which must be full."""
        while len(self.hashes) < count:
            begin = len(self.hashes) * block_size
            piece = tuple(self.content[begin : begin + block_size])
            if len(piece) < block_size:
                said = range(begin + len(piece), begin + block_size)
                piece += tuple(
                    WORDS[(place - self.prompt_tokens) % len(WORDS)] for place in said
                )
            before = self.hashes[-1] if self.hashes else 0
            self.hashes.append(hash((before, piece)))
        return self.hashes[:count]


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs next.

    Attributes:
        prefills: requests with the number of new tokens to compute for each.
        decodes: requests that get one new token in each step.
        steps: equal steps in a row; more than one only without prefills.
    """

    prefills: tuple[tuple[Request, int], ...] = ()
    decodes: tuple[Request, ...] = ()
    steps: int = 1

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing can run."""
        return not self.prefills and not self.decodes


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step.

    Attributes:
        chunked_prefill: a prompt may be computed in several steps.
        whole_prompts: a prompt is admitted only when all of it fits, not its first chunk.
        long_prefill_tokens: most tokens of one prompt in a step, 0 for no such limit.
        max_num_prefill_seqs: V0: most prompts in a step, None for no such limit.
        padding_aware: V0: the token budget counts prompts as long as the longest.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool = True
    whole_prompts: bool = False
    long_prefill_tokens: int = 0
    max_num_prefill_seqs: int | None = None
    padding_aware: bool = False


class PrefixHits:
    """How often the prefix cache had what was asked for, in tokens."""

    def __init__(self) -> None:
        """Start counting."""
        self.queries = 0
        self.hits = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT_REQUESTS)

    def count(self, queried: int, hit: int) -> None:
        """Count one request."""
        self.queries += queried
        self.hits += hit
        self._recent.append((queried, hit))

    @property
    def recent_rate(self) -> float:
        """Share of the tokens of recent requests that were there, 0 to 1."""
        queried = sum(queried for queried, _ in self._recent)
        return sum(hit for _, hit in self._recent) / queried if queried else 0.0


@dataclass(slots=True)
class Scheduler:
    """The queues of one engine."""

    limits: Limits
    pool: BlockPool
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    preemptions: int = 0
    prefix: PrefixHits = field(default_factory=PrefixHits)

    @property
    def has_work(self) -> bool:
        """Tell whether any request is running or waiting."""
        return bool(self.running or self.waiting)

    @property
    def usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return self.pool.used / self.pool.count

    def add(self, request: Request) -> None:
        """Queue a new request."""
        self.waiting.append(request)

    def drop(self, request: Request) -> None:
        """Forget a request, wherever it is."""
        self._free(request)
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def plan(self, most_steps: int = 1) -> Plan:
        """Choose the next step, and take the blocks that it needs.

        With ``most_steps`` above 1 a plan may stand for that many equal decode steps:
        as many as pass before a request completes or needs another block.
        """
        before = self.preemptions
        prefills, decodes = self._choose()
        steps = 1
        # After a preemption the very next step may admit somebody again.
        if decodes and not prefills and self.preemptions == before:
            steps = min(most_steps, *(self._room(request) for request in decodes))
        return Plan(tuple(prefills), tuple(decodes), max(1, steps))

    def apply(self, plan: Plan) -> list[tuple[Request, int]]:
        """Carry a plan out and return who got how many new tokens."""
        made: list[tuple[Request, int]] = []
        for request, tokens in plan.prefills:
            request.computed += tokens
            if request.ahead == 0:
                request.generated += 1
                made.append((request, 1))
        steps, caches = plan.steps, self.pool.caches
        for request in plan.decodes:
            request.computed += steps
            request.generated += steps
            made.append((request, steps))
            if caches and request.computed % self.pool.block_size == 0:
                self._remember(request, request.computed)
        for request, _ in made:
            if request.is_complete:
                self.drop(request)
        return made

    def _choose(self) -> tuple[list[tuple[Request, int]], list[Request]]:
        before = self.preemptions
        budget, prefills, decodes = self._plan_running()
        if self.preemptions == before:
            prefills += self._admit(budget)
        return prefills, decodes

    def _plan_running(self) -> tuple[int, list[tuple[Request, int]], list[Request]]:
        budget = self.limits.max_num_batched_tokens
        prefills: list[tuple[Request, int]] = []
        decodes: list[Request] = []
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            ahead = request.ahead
            tokens = min(self._at_once(ahead), budget)
            if not self._make_room(request, tokens):
                break
            index += 1
            budget -= tokens
            if ahead == 1 and request.generated:
                decodes.append(request)
            else:
                prefills.append((request, tokens))
        return budget, prefills, decodes

    def _admit(self, budget: int) -> list[tuple[Request, int]]:
        admitted: list[tuple[Request, int]] = []
        limits = self.limits
        while self.waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            request = self.waiting[0]
            found = self._cached_blocks(request)
            cached = len(found) * self.pool.block_size
            tokens = self._at_once(request.tokens - cached)
            if tokens > budget and not limits.chunked_prefill:
                break
            tokens = min(tokens, budget)
            if not self._begin(request, found, tokens):
                break
            self.waiting.popleft()
            self.running.append(request)
            admitted.append((request, tokens))
            budget -= tokens
        return admitted

    def _at_once(self, tokens: int) -> int:
        most = self.limits.long_prefill_tokens
        return min(tokens, most) if most else tokens

    def _cached_blocks(self, request: Request) -> list[int]:
        """Return the blocks of its beginning that the prefix cache has.

        One token at least is computed, or nothing could be sampled.
        """
        pool = self.pool
        if not pool.caches or not request.content:
            return []
        full = (request.tokens - 1) // pool.block_size
        return pool.known(request.hash_blocks(full, pool.block_size))

    def _begin(self, request: Request, found: Sequence[int], tokens: int) -> bool:
        """Give a waiting request its first blocks; False where there are too few."""
        pool = self.pool
        cached = len(found) * pool.block_size
        needed = -(-(cached + tokens) // pool.block_size) - len(found)
        whole = -(-request.tokens // pool.block_size) - len(found)
        wanted = whole if self.limits.whole_prompts else needed
        if wanted + pool.dormant(found) > pool.free:
            return False
        pool.share(found)
        request.blocks = [*found, *pool.take(needed)]
        request.computed = cached
        if request.cached is None:
            request.cached = cached
            if pool.caches:
                self.prefix.count(request.tokens, cached)
        self._remember(request, cached + tokens)
        return True

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Take blocks, preempting the newest; False when ``request`` itself had to go."""
        while not self._grow(request, tokens):
            newest = self.running[-1]
            self._preempt(newest)
            if newest is request:
                return False
        return True

    def _preempt(self, request: Request) -> None:
        """Take all blocks from a running request."""
        self._start_over(request)

    def _start_over(self, request: Request) -> None:
        """Let a running request wait for room and begin anew then."""
        self.running.remove(request)
        self._free(request)
        request.computed = 0
        self.preemptions += 1
        self.waiting.appendleft(request)

    def _grow(self, request: Request, tokens: int) -> bool:
        """Take the blocks for more tokens; False where there are too few."""
        end = request.computed + tokens
        needed = -(-end // self.pool.block_size) - len(request.blocks)
        if needed > 0:
            if needed > self.pool.free:
                return False
            request.blocks += self.pool.take(needed)
        if tokens > 1:
            self._remember(request, end)
        return True

    def _remember(self, request: Request, computed: int) -> None:
        """Make the full blocks among the first ``computed`` tokens findable."""
        pool = self.pool
        if not pool.caches or not request.content:
            return
        full = min(computed // pool.block_size, len(request.blocks))
        hashes = request.hash_blocks(full, pool.block_size)
        for block, key in zip(request.blocks, hashes, strict=False):
            pool.remember(block, key)

    def _free(self, request: Request) -> None:
        self.pool.give_back(request.blocks)
        request.blocks = []

    def _room(self, request: Request) -> int:
        """Return the decode steps before ``request`` completes or needs a block."""
        in_block = len(request.blocks) * self.pool.block_size - request.computed
        return min(request.end_tokens - request.generated, in_block)
