"""Completion and chat requests as they were asked, checked as vLLM checks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hpuwatch.sim.config.options import Options
from hpuwatch.sim.serve.fields import Fields, is_ids
from hpuwatch.sim.serve.question import Prompt, Question
from hpuwatch.sim.serve.refusals import Refused, invalid
from hpuwatch.sim.serve.sampling import check_sampling
from hpuwatch.sim.serve.tokens import Piece, pieces_of, text_of

_DEFAULT_MAX_TOKENS = 16
_IMAGE_TOKENS = 1024  # of a picture of 1024 x 1024 pixels at 32 x 32 a token


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
        options = Fields(fields.typed("stream_options", dict) or {})
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
        check_sampling(fields, question, self._options)
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


def _prompts(fields: Fields) -> Iterator[Prompt]:
    """Yield the prompts of a completion: a text, token ids, or a list of either."""
    given = fields.get("prompt")
    if given is None:
        raise invalid("missing", "prompt", "Field required", sorted(fields.names))
    is_list = isinstance(given, list) and bool(given) and not is_ids(given)
    for each in given if is_list else [given]:
        if isinstance(each, str):
            content: Sequence[Piece] = pieces_of(each)
            text = each
        elif isinstance(each, list) and (is_ids(each) or not each):
            content = each
            text = text_of(each) if fields.get("echo") else ""
        else:
            message = "Input should be a valid string"
            raise invalid("string_type", "prompt", message, type(each).__name__)
        if not content:
            raise Refused("The decoder prompt cannot be empty", param="prompt")
        yield Prompt(content, text)


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
        if kind in ("text", "refusal") and isinstance(part.get(kind), str):
            yield part[kind]
        elif kind in ("image_url", "input_image"):
            yield None
        else:
            raise Refused(f"Unknown part type: {kind}", param="messages")
