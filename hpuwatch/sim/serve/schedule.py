"""Continuous batching: which requests run in the next step, and who has to wait.

The rules are vLLM's V1 scheduler in short.  Running requests come first, one new token
each; waiting prompts fill what is left of the token budget, in chunks.  Every request holds
whole KV blocks; when none is free, the newest running request gives all of its blocks back
and starts over later (a *preemption*).  Nothing here knows the time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Request:
    """One completion on its way.

    Attributes:
        prompt_tokens: length of the prompt.
        end_tokens: tokens after which it is complete.
        computed: tokens whose keys and values lie in the cache.
        generated: tokens made so far.
        blocks: KV blocks held.
    """

    prompt_tokens: int
    end_tokens: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def ahead(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.prompt_tokens + self.generated - self.computed

    @property
    def is_complete(self) -> bool:
        """Tell whether all its tokens are made."""
        return self.generated >= self.end_tokens


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


@dataclass(slots=True)
class Scheduler:
    """The queues and the KV blocks of one engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    used_blocks: int = 0
    preemptions: int = 0

    @property
    def has_work(self) -> bool:
        """Tell whether any request is running or waiting."""
        return bool(self.running or self.waiting)

    @property
    def usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return self.used_blocks / self.num_blocks

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
        budget, prefills, decodes = self._plan_running()
        preempted = self.preemptions > before
        if not preempted:
            prefills += self._admit(budget)
        steps = 1
        # After a preemption the very next step may admit somebody again.
        if decodes and not prefills and not preempted:
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
        for request in plan.decodes:
            request.computed += plan.steps
            request.generated += plan.steps
            made.append((request, plan.steps))
        for request, _ in made:
            if request.is_complete:
                self.drop(request)
        return made

    def _plan_running(self) -> tuple[int, list[tuple[Request, int]], list[Request]]:
        budget = self.max_num_batched_tokens
        prefills: list[tuple[Request, int]] = []
        decodes: list[Request] = []
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            ahead = request.ahead
            tokens = min(ahead, budget)
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
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            tokens = min(request.ahead, budget)
            if not self._take(request, tokens):
                break
            self.waiting.popleft()
            self.running.append(request)
            admitted.append((request, tokens))
            budget -= tokens
        return admitted

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Take blocks, preempting the newest; False when ``request`` itself had to go."""
        if request.computed + tokens <= request.blocks * self.block_size:
            return True
        while not self._take(request, tokens):
            newest = self.running.pop()
            self._free(newest)
            newest.computed = 0
            newest.preemptions += 1
            self.preemptions += 1
            self.waiting.appendleft(newest)
            if newest is request:
                return False
        return True

    def _take(self, request: Request, tokens: int) -> bool:
        needed = -(-(request.computed + tokens) // self.block_size) - request.blocks
        if needed > self.num_blocks - self.used_blocks:
            return False
        request.blocks += max(0, needed)
        self.used_blocks += max(0, needed)
        return True

    def _free(self, request: Request) -> None:
        self.used_blocks -= request.blocks
        request.blocks = 0

    def _room(self, request: Request) -> int:
        """Return the decode steps before ``request`` completes or needs a block."""
        in_block = request.blocks * self.block_size - request.computed
        return min(request.end_tokens - request.generated, in_block)
