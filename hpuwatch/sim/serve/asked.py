"""Completion and chat requests as they were asked, checked as vLLM checks them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hpuwatch.sim.config.options import Options
from hpuwatch.sim.serve.refusals import Refused, invalid, too_long
from hpuwatch.sim.serve.tokens import Piece, pieces_of, text_of

_DEFAULT_MAX_TOKENS = 16
_IMAGE_TOKENS = 1024  # of a picture of 1024 x 1024 pixels at 32 x 32 a token
_MOST_SEQUENCES = 16384


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


@dataclass(frozen=True, slots=True)
class _Limits:
    """What completions and chats name differently."""

    max_tokens: int | None
    logprobs: int | None


class Reader:
    """Reads the bodies of requests to one server."""

    def __init__(self, options: Options) -> None:
        """Take what the server allows."""
        self._options = options

    def completion(self, body: bytes) -> Question:
        """Read a request for completions.

        Raises:
            Refused: vLLM would refuse it.
        """
        fields = Fields.of(body)
        model = self.model(fields)
        prompts = tuple(_prompts(fields))
        limits = _Limits(
            fields.number("max_tokens", _DEFAULT_MAX_TOKENS),
            fields.number("logprobs", None),
        )
        return self._question(fields, model, prompts, limits, is_chat=False)

    def chat(self, body: bytes) -> Question:
        """Read a request for a chat's next message.

        Raises:
            Refused: vLLM would refuse it.
        """
        fields = Fields.of(body)
        model = self.model(fields)
        prompt = self.conversation(fields)
        older = fields.number("max_tokens", None)
        limits = _Limits(
            fields.number("max_completion_tokens", older),
            fields.number("top_logprobs", 0) if fields.flag("logprobs") else None,
        )
        return self._question(fields, model, (prompt,), limits, is_chat=True)

    def model(self, fields: Fields) -> str:
        """Return the name of the model that was asked for.

        Raises:
            Refused: it is not served.
        """
        names = self._options.served_names
        asked = fields.get("model") or names[0]
        if asked not in names:
            raise Refused(
                f"The model `{asked}` does not exist.", HTTPStatus.NOT_FOUND, "model"
            )
        return str(asked)

    def _question(
        self,
        fields: Fields,
        model: str,
        prompts: tuple[Prompt, ...],
        limits: _Limits,
        *,
        is_chat: bool,
    ) -> Question:
        stream = fields.flag("stream")
        usage = fields.get("stream_options")
        if usage is not None and not stream:
            message = (
                "Value error, Stream options can only be defined when `stream=True`."
            )
            raise invalid("value_error", "stream_options", message, usage)
        options = Fields(usage if isinstance(usage, dict) else {})
        question = Question(
            is_chat=is_chat,
            model=model,
            prompts=prompts,
            max_tokens=limits.max_tokens,
            min_tokens=fields.number("min_tokens", 0) or 0,
            n=fields.number("n", 1) or 0,
            ignore_eos=fields.flag("ignore_eos"),
            echo=fields.flag("echo") and not is_chat,
            logprobs=limits.logprobs,
            stop=fields.stop_texts(),
            include_stop=fields.flag("include_stop_str_in_output"),
            stream=stream,
            usage_at_end=options.flag("include_usage"),
            usage_each=options.flag("continuous_usage_stats"),
        )
        _check_sampling(fields, question, self._options)
        return question

    def conversation(self, fields: Fields) -> Prompt:
        """Lay the messages out as Llama 3's chat template does.

        Raises:
            Refused: they are no messages, or the model can't see their images.
        """
        messages = fields.get("messages")
        if messages is None:
            raise invalid("missing", "messages", "Field required", sorted(fields.names))
        if not isinstance(messages, list) or not messages:
            message = "Input should be a valid list"
            raise invalid("list_type", "messages", message, messages)
        content: list[Piece] = ["<begin>"]
        images = 0
        for message in messages:
            role = message.get("role") if isinstance(message, dict) else None
            if not isinstance(role, str):
                raise invalid("missing", "messages", "Field required", "role")
            content += ["<header>", role, "</header>", "\n\n"]
            for part in _parts(message.get("content")):
                if part is None:
                    images += 1
                    content += [f"<image {images}>"] * _IMAGE_TOKENS
                else:
                    content += pieces_of(part)
            content.append("<end>")
        content += ["<header>", "assistant", "</header>", "\n\n"]
        if images and self._options.model.law.vision is None:
            raise Refused("At most 0 image(s) may be provided in one prompt.")
        return Prompt(content, images=images)


class Fields:
    """The fields of one JSON object, of the types that they must have."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Take the object."""
        self._fields = fields

    @classmethod
    def of(cls, body: bytes) -> Fields:
        """Read a body.

        Raises:
            Refused: it is no JSON object.
        """
        try:
            fields = json.loads(body)
        except ValueError as error:
            detail = {"type": "json_invalid", "msg": "JSON decode error"}
            raise Refused(
                f"1 validation error:\n  {detail | {'ctx': {'error': str(error)}}}"
            ) from None
        if not isinstance(fields, dict):
            message = "Input should be a valid dictionary"
            raise invalid("model_attributes_type", "", message, type(fields).__name__)
        return cls(fields)

    @property
    def names(self) -> set[str]:
        """The fields that are there."""
        return set(self._fields)

    def get(self, name: str) -> Any:
        """Return a field as it is, None where it is missing."""
        return self._fields.get(name)

    def number(self, name: str, default: int | None) -> int | None:
        """Return a whole number.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
            return int(value)  # as pydantic does
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
        raise invalid("int_type", name, "Input should be a valid integer", value)

    def real(self, name: str) -> float | None:
        """Return a number.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None or isinstance(value, (int, float)):
            return value
        raise invalid("float_type", name, "Input should be a valid number", value)

    def flag(self, name: str) -> bool:
        """Return a switch, off where it is missing.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        if value in (0, 1):
            return bool(value)
        raise invalid("bool_type", name, "Input should be a valid boolean", value)

    def token_ids(self, name: str) -> list[int]:
        """Return a list of token ids.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if not isinstance(value, list) or (value and not _is_ids(value)):
            raise invalid("list_type", name, "Input should be a valid list", value)
        return value

    def stop_texts(self) -> tuple[str, ...]:
        """Return the texts that end an answer.

        Raises:
            Refused: they are no texts, or one is empty.
        """
        value = self._fields.get("stop")
        texts = [value] if isinstance(value, str) else value or []
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise invalid(
                "string_type", "stop", "Input should be a valid string", value
            )
        if "" in texts:
            raise Refused("stop cannot contain an empty string.")
        return tuple(texts)


def _prompts(fields: Fields) -> Iterator[Prompt]:
    """Yield the prompts of a completion: a text, token ids, or a list of either."""
    given = fields.get("prompt")
    if given is None:
        raise invalid("missing", "prompt", "Field required", sorted(fields.names))
    is_list = isinstance(given, list) and bool(given) and not _is_ids(given)
    for each in given if is_list else [given]:
        if isinstance(each, str):
            content: Sequence[Piece] = pieces_of(each)
            text = each
        elif isinstance(each, list) and (_is_ids(each) or not each):
            content = each
            text = text_of(each) if fields.get("echo") else ""
        else:
            message = "Input should be a valid string"
            raise invalid("string_type", "prompt", message, type(each).__name__)
        if not content:
            raise Refused("The decoder prompt cannot be empty", param="prompt")
        yield Prompt(content, text)


def _is_ids(given: list[Any]) -> bool:
    """Tell whether a list holds token ids; a float or a truth value is none."""
    return set(map(type, given)) == {int}


def _parts(content: object) -> Iterator[str | None]:
    """Yield the texts of a message, None for each image."""
    if content is None:
        return
    if isinstance(content, str):
        yield content
        return
    parts: list[Any] = content if isinstance(content, list) else [content]
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in {"text", "refusal"} and isinstance(part.get(kind), str):
            yield part[kind]
        elif kind in {"image_url", "input_image"}:
            yield None
        else:
            raise Refused(f"Unknown part type: {kind}", param="messages")


def _check_sampling(fields: Fields, question: Question, options: Options) -> None:
    """Refuse parameters that vLLM's sampler refuses."""
    limit = question.max_tokens
    temperature, top_p = fields.real("temperature"), fields.real("top_p")
    best_of = fields.number("best_of", None)
    is_v0 = options.point.family == "fork"
    most, least = question.logprobs or 0, question.min_tokens
    checks = {
        f"n must be at least 1, got {question.n}.": question.n < 1,
        f"n must be at most {_MOST_SEQUENCES}, got {question.n}.": (
            question.n * len(question.prompts) > _MOST_SEQUENCES
        ),
        f"temperature must be non-negative, got {temperature}.": (
            temperature is not None and temperature < 0
        ),
        f"top_p must be in (0, 1], got {top_p}.": (
            top_p is not None and not 0 < top_p <= 1
        ),
        f"max_tokens must be at least 1, got {limit}.": (
            limit is not None and limit < (0 if question.echo else 1)
        ),
        f"min_tokens must be greater than or equal to 0, got {least}.": least < 0,
        f"min_tokens must be less than or equal to max_tokens={limit}, got {least}.": (
            limit is not None and least > max(1, limit)
        ),
        f"Requested sample logprobs of {most}, which is greater than max allowed:"
        f" {options.max_logprobs}": most > options.max_logprobs,
        f"best_of must be greater than or equal to n, got n={question.n} and"
        f" best_of={best_of}.": is_v0 and best_of is not None and best_of < question.n,
    }
    for message, is_bad in checks.items():
        if is_bad:
            raise Refused(message)
