"""The JSON of completions and chats: whole, or as the events of a stream.

The simulated model says the same eight words over and over, each with a probability of
90 %.  All events of a stream but a few differ in their word only, and a stream has
thousands of them: so they are made of prepared pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate, takewhile

from hpuwatch.sim.http.wire import packed
from hpuwatch.sim.serve.engine import Job
from hpuwatch.sim.serve.question import Prompt, Question
from hpuwatch.sim.serve.refusals import DEAD, error_object
from hpuwatch.sim.serve.tokens import WORDS, spoken

_LIKELY = math.log(0.9)
_UNLIKELY = math.log(0.1 / (len(WORDS) - 1))
_WORDS_AS_JSON = tuple(packed(f" {word}") for word in WORDS)
_DONE = b"data: [DONE]\n\n"

Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class End:
    """Where an answer will end.

    Attributes:
        tokens: how many are made, of which ``shown`` are given to the client.
        reason: ``stop`` or ``length``.
        stop: the text that ends it, None without one.
        characters: of its text, where a stop text cuts it short, else None.
    """

    tokens: int
    shown: int
    reason: str
    stop: str | None = None
    characters: int | None = None

    @classmethod
    def of(cls, question: Question, most: int, natural: int) -> End:
        """Decide where an answer ends.

        Args:
            question: what was asked.
            most: tokens that it may have.
            natural: tokens after which the model would end by itself.
        """
        least = question.min_tokens
        stops = not question.ignore_eos and max(natural, least) < most
        tokens = max(natural, least) if stops else most
        reason = "stop" if stops else "length"
        if not question.stop:
            return cls(max(1, tokens), tokens, reason)
        text = spoken(0, tokens)
        begin = len(spoken(0, least))
        places = [(text.find(stop, begin), stop) for stop in question.stop]
        found = min((place for place in places if place[0] >= 0), default=None)
        if found is None:
            return cls(max(1, tokens), tokens, reason)
        place, stop = found
        last = place + len(stop)
        lengths = accumulate(len(spoken(n, n + 1)) for n in range(tokens - 1))
        made = 1 + sum(1 for _ in takewhile(last.__gt__, lengths))
        return cls(made, made, "stop", stop, last if question.include_stop else place)


@dataclass(slots=True, eq=False)
class Choice:
    """One of the answers to a question.

    Attributes:
        job: who makes its tokens.
        opened: a stream has been given what comes before the tokens.
        sent: tokens that a stream has been given.
        characters: of their text.
    """

    index: int
    prompt: Prompt
    end: End
    job: Job | None = None
    opened: bool = False
    sent: int = 0
    characters: int = 0
    pieces: tuple[bytes, ...] = ()

    @property
    def made(self) -> int:
        """Tokens made so far that the client is given."""
        return min(self.job.request.generated, self.end.shown) if self.job else 0

    @property
    def finish_reason(self) -> str | None:
        """Why it ended, None while it goes on."""
        return self.job.finish_reason if self.job else None

    @property
    def is_at_end(self) -> bool:
        """Tell whether it ended as it was meant to."""
        return self.finish_reason in {"stop", "length"}


class Form:
    """How the answers to one question are written."""

    def __init__(
        self,
        question: Question,
        choices: Sequence[Choice],
        head: Record,
        *,
        tells_cached: bool = False,
    ) -> None:
        """Take the question, its answers, and what stands at the head of each record."""
        self.question = question
        self._choices = choices
        self._head = head
        self._tells_cached = tells_cached
        self._is_plain = question.logprobs is None and not question.usage_each

    def whole(self) -> Record:
        """Return the answer in one piece."""
        kind = "chat.completion" if self.question.is_chat else "text_completion"
        tail: Record = {"service_tier": None, "system_fingerprint": None}
        if self.question.is_chat:
            last: Record = {"prompt_logprobs": None, "prompt_token_ids": None}
        else:
            last = {}
        choices = [self._whole_choice(choice) for choice in self._choices]
        return {
            **self._record(kind, choices),
            **tail,
            "usage": self._usage(),
            **last,
            "kv_transfer_params": None,
        }

    def events(self, choice: Choice) -> bytes:
        """Return the events of the tokens that a stream has not been given."""
        opening = b"" if choice.opened else self._opening(choice)
        first, last = choice.sent, choice.made
        choice.sent = last
        ends = choice.is_at_end
        plain_end = last - ends
        if self._is_plain and choice.end.characters is None:
            if not choice.pieces:
                choice.pieces = self._prepared(choice)
            pieces, count = choice.pieces, len(WORDS)
            events = b"".join(pieces[n % count] for n in range(first, plain_end))
        else:
            events = b"".join(self._token(choice, n) for n in range(first, plain_end))
        if ends:
            # One that was asked for no tokens ends without a word.
            number = max(first, plain_end) if choice.end.shown else None
            events += self._token(choice, number, choice.finish_reason)
        elif choice.finish_reason == "error":
            error = error_object(DEAD, HTTPStatus.INTERNAL_SERVER_ERROR)
            events += b"data: " + packed({"error": error}) + b"\n\n"
        elif choice.finish_reason is not None:
            events += self._token(choice, None, choice.finish_reason)
        return opening + events

    def closing(self) -> bytes:
        """Return what a stream ends with."""
        if not self.question.usage_at_end:
            return _DONE
        return self._event([], {"usage": self._usage()}) + _DONE

    def _opening(self, choice: Choice) -> bytes:
        """Return what a stream begins with: a chat's role, or the echoed prompt."""
        choice.opened = True
        if self.question.is_chat:
            delta = {"role": "assistant", "content": ""}
            return self._event([self._part(choice.index, delta)])
        if self.question.echo and choice.prompt.text:
            choice.characters = len(choice.prompt.text)
            return self._event([self._text_part(choice, choice.prompt.text)])
        return b""

    def _whole_choice(self, choice: Choice) -> Record:
        text = spoken(0, choice.made)[: choice.end.characters]
        end = {
            "logprobs": self._logprobs(choice, 0, choice.made),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.end.stop,
        }
        if not self.question.is_chat:
            echoed = choice.prompt.text if self.question.echo else ""
            return {
                "index": choice.index,
                "text": echoed + text,
                **end,
                "token_ids": None,
                "prompt_logprobs": None,
                "prompt_token_ids": None,
            }
        message: Record = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": None,
        }
        return {"index": choice.index, "message": message, **end, "token_ids": None}

    def _token(
        self, choice: Choice, number: int | None, reason: str | None = None
    ) -> bytes:
        """Return one event: a token's text, cut where a stop text begins, or only the end."""
        text = "" if number is None else f" {WORDS[number % len(WORDS)]}"
        if choice.end.characters is not None:
            text = text[: max(0, choice.end.characters - choice.characters)]
        if not text and reason is None:
            return b""  # held back for the stop text
        logprobs = None
        if number is not None:
            logprobs = self._logprobs(choice, number, number + 1)
        choice.characters += len(text)
        stop = choice.end.stop if reason == "stop" else None
        if self.question.is_chat:
            part = self._part(choice.index, {"content": text}, logprobs, reason)
            part |= {"stop_reason": stop} if reason else {}
        else:
            part = self._text_part(choice, text, logprobs, reason, stop)
        each: Record | None = (
            {"usage": self._usage()} if self.question.usage_each else None
        )
        return self._event([part], each)

    def _prepared(self, choice: Choice) -> tuple[bytes, ...]:
        if self.question.is_chat:
            part = self._part(choice.index, {"content": "\0"})
        else:
            part = self._text_part(choice, "\0")
        before, after = self._event([part]).split(packed("\0"))
        return tuple(before + word + after for word in _WORDS_AS_JSON)

    def _event(self, choices: list[Record], more: Record | None = None) -> bytes:
        kind = "chat.completion.chunk" if self.question.is_chat else "text_completion"
        record = self._record(kind, choices)
        if not self.question.is_chat:
            record["usage"] = None
        return b"data: " + packed({**record, **(more or {})}) + b"\n\n"

    def _record(self, kind: str, choices: list[Record]) -> Record:
        head = self._head
        return {
            "id": head["id"],
            "object": kind,
            "created": head["created"],
            "model": head["model"],
            "choices": choices,
        }

    def _part(
        self,
        index: int,
        delta: Mapping[str, object],
        logprobs: Record | None = None,
        reason: str | None = None,
    ) -> Record:
        return {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason,
            "token_ids": None,
        }

    def _text_part(
        self,
        choice: Choice,
        text: str,
        logprobs: Record | None = None,
        reason: str | None = None,
        stop: str | None = None,
    ) -> Record:
        return {
            "index": choice.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": reason,
            "stop_reason": stop,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def _usage(self) -> Record:
        each_prompt = {id(c.prompt): c for c in reversed(self._choices)}.values()
        asked = sum(len(choice.prompt.content) for choice in each_prompt)
        made = sum(choice.made for choice in self._choices)
        details = None
        if self._tells_cached:
            jobs = [choice.job for choice in each_prompt if choice.job]
            details = {"cached_tokens": sum(job.request.cached or 0 for job in jobs)}
        return {
            "prompt_tokens": asked,
            "total_tokens": asked + made,
            "completion_tokens": made,
            "prompt_tokens_details": details,
        }

    def _logprobs(self, choice: Choice, first: int, last: int) -> Record | None:
        count = self.question.logprobs
        if count is None:
            return None
        tokens = [f" {WORDS[n % len(WORDS)]}" for n in range(first, last)]
        if self.question.is_chat:
            return {"content": [_chat_logprob(token, count) for token in tokens]}
        offsets, offset = [], choice.characters
        for token in tokens:
            offsets.append(offset)
            offset += len(token)
        return {
            "text_offset": offsets,
            "token_logprobs": [_LIKELY] * len(tokens),
            "tokens": tokens,
            "top_logprobs": [_alternatives(token, count) for token in tokens],
        }


def _alternatives(token: str, count: int) -> dict[str, float]:
    """Return the token and the most likely others, with their log probabilities."""
    others = [f" {word}" for word in WORDS if f" {word}" != token]
    return {token: _LIKELY} | dict.fromkeys(others[: max(0, count - 1)], _UNLIKELY)


def _chat_logprob(token: str, count: int) -> Record:
    def one(text: str, logprob: float) -> Record:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    top = [one(*pair) for pair in _alternatives(token, count).items()] if count else []
    return one(token, _LIKELY) | {"top_logprobs": top}
