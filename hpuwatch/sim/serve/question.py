"""What one request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpuwatch.sim.serve.refusals import too_long
from hpuwatch.sim.serve.tokens import Piece


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        content: its tokens.
        text: as it is echoed.
        images: how many pictures are in it.
    """

    content: Sequence[Piece]
    text: str = ""
    images: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """One request of ``/v1/completions`` or ``/v1/chat/completions``.

    Attributes:
        max_tokens: most tokens of each answer, None where the client set no limit.
        n: answers for each prompt.
        logprobs: alternatives to tell with each token, None for none at all.
        stop: texts that end an answer, which ``include_stop`` keeps.
        usage_each: a stream tells the tokens so far with every event.
    """

    is_chat: bool
    model: str
    prompts: tuple[Prompt, ...]
    max_tokens: int | None
    min_tokens: int
    n: int
    ignore_eos: bool
    echo: bool
    logprobs: int | None
    stop: tuple[str, ...]
    include_stop: bool
    stream: bool
    usage_at_end: bool
    usage_each: bool

    def most_tokens(self, prompt: Prompt, limit: int, *, is_v0: bool) -> int:
        """Return how long an answer may become, with a context of ``limit`` tokens.

        Raises:
            Refused: prompt and answer don't fit.
        """
        count = len(prompt.content)
        if count >= limit or count + (self.max_tokens or 0) > limit:
            raise too_long(limit, count, self.max_tokens, is_v0=is_v0)
        return limit - count if self.max_tokens is None else self.max_tokens
