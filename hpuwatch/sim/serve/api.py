"""The routes: completions (streaming too), models, health, version and metrics.

Request contents are never printed or kept; only their lengths matter here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from hpuwatch.sim.serve.engine import Engine, Job
from hpuwatch.sim.serve.metrics import exposition
from hpuwatch.sim.serve.wire import (
    BadRequest,
    HttpRequest,
    Response,
    chunk,
    head,
    json_response,
    read_request,
    whole,
)
from hpuwatch.sim.world import World

ROUTES = {
    "/version": "GET",
    "/health": "GET",
    "/metrics": "GET",
    "/ping": "GET",
    "/v1/models": "GET",
    "/v1/completions": "POST",
}
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_DEFAULT_MAX_TOKENS = 16
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


class Refused(Exception):  # noqa: N818  an answer, not a failure of ours
    """A request that vLLM would refuse, with its status and words."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        """Make the answer."""
        super().__init__(message)
        self.response = json_response(
            {
                "error": {
                    "message": message,
                    "type": kind,
                    "param": None,
                    "code": status.value,
                }
            },
            status,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion as asked for, checked."""

    model: str
    prompt: str  # only its hash decides where the model would stop by itself
    prompt_tokens: int
    end_tokens: int
    reason_at_end: str
    stream: bool
    stream_usage: bool


class Api:
    """Answers the requests of all connections."""

    def __init__(self, world: World, engine: Engine) -> None:
        """Take the warmed server."""
        self._world = world
        self._engine = engine
        self._numbers = itertools.count(1)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one connection until either side ends it."""
        try:
            while True:
                request = await read_request(reader)
                if request is None:
                    break
                await self._answer(request, reader, writer)
                if not request.keeps_open:
                    break
        except BadRequest as error:
            refused = json_response({"detail": error.message}, error.status)
            writer.write(whole(refused, keeps_open=False))
        except ConnectionError:
            pass  # the client went away in the middle of an answer
        finally:
            writer.close()

    async def _answer(
        self,
        request: HttpRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if (request.method, request.path) == ("POST", "/v1/completions"):
                completion = self._read(request.body)
                await self._complete(request, completion, reader, writer)
                return
            response = self._plain(request)
        except Refused as refusal:
            response = refusal.response
        self._log(request, writer, response.status)
        writer.write(whole(response, keeps_open=request.keeps_open))
        await writer.drain()

    def _plain(self, request: HttpRequest) -> Response:
        method = ROUTES.get(request.path)
        if method is None:
            return json_response({"detail": "Not Found"}, HTTPStatus.NOT_FOUND)
        if method != request.method:
            return json_response(
                {"detail": "Method Not Allowed"}, HTTPStatus.METHOD_NOT_ALLOWED
            )
        answers = {
            "/metrics": self._metrics,
            "/v1/models": self._models,
            "/version": self._version,
        }
        return answers.get(request.path, self._health)()

    def _health(self) -> Response:
        if self._engine.broken:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE)
        return Response()

    def _version(self) -> Response:
        version = self._world.voice.script.version
        return json_response({"version": version, "simulated": True})

    def _metrics(self) -> Response:
        self._engine.gauges()
        page = exposition(self._engine.tally)
        return Response(body=page, content_type=_METRICS_TYPE)

    def _models(self) -> Response:
        options = self._world.options
        rows: list[dict[str, object]] = [
            {
                "id": name,
                "object": "model",
                "created": int(self._world.pace.stamp()),
                "owned_by": "vllm",
                "root": options.given_model,
                "parent": None,
                "max_model_len": options.max_model_len,
                "permission": [],
            }
            for name in options.served_names
        ]
        return json_response({"object": "list", "data": rows})

    def _read(self, body: bytes) -> Completion:
        try:
            asked = json.loads(body)
        except ValueError as error:
            raise _bad(f"JSON decode error: {error}") from None
        if not isinstance(asked, dict):
            raise _bad("The body is no JSON object.")
        options = self._world.options
        model = asked.get("model") or options.served_names[0]
        if model not in options.served_names:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                "NotFoundError",
                f"The model `{model}` does not exist.",
            )
        prompt, count = _prompt(asked.get("prompt"))
        wanted = asked.get("max_tokens", _DEFAULT_MAX_TOKENS)
        if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
            raise _bad(f"max_tokens must be at least 1, got {wanted!r}.")
        if count + wanted > options.max_model_len:
            raise _bad(
                f"This model's maximum context length is {options.max_model_len} tokens."
                f" However, you requested {wanted} output tokens and your prompt contains"
                f" {count} input tokens, for a total of {count + wanted} tokens."
            )
        natural = self._world.times.natural_length(prompt)
        stops = not asked.get("ignore_eos", False) and natural < wanted
        stream_options = asked.get("stream_options") or {}
        return Completion(
            model=str(model),
            prompt=prompt,
            prompt_tokens=count,
            end_tokens=natural if stops else wanted,
            reason_at_end="stop" if stops else "length",
            stream=bool(asked.get("stream", False)),
            stream_usage=bool(stream_options.get("include_usage", False)),
        )

    async def _complete(
        self,
        request: HttpRequest,
        completion: Completion,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if self._engine.broken:
            raise Refused(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "InternalServerError",
                "EngineCore is dead.",
            )
        job = self._engine.submit(
            completion.prompt_tokens,
            completion.end_tokens,
            completion.reason_at_end,
            streams=completion.stream,
            is_gone=reader.at_eof,
        )
        answer = _Answer(
            f"cmpl-{next(self._numbers):016x}",
            int(self._world.pace.stamp()),
            completion,
        )
        if completion.stream:
            self._log(request, writer, HTTPStatus.OK)
            await self._stream(request, answer, job, writer)
            return
        while job.finish_reason is None:
            await job.news.wait()
            job.news.clear()
        if job.finish_reason == "error":
            raise Refused(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "InternalServerError",
                "EngineCore is dead.",
            )
        self._log(request, writer, HTTPStatus.OK)
        response = json_response(answer.whole(job))
        writer.write(whole(response, keeps_open=request.keeps_open))
        await writer.drain()

    async def _stream(
        self,
        request: HttpRequest,
        answer: _Answer,
        job: Job,
        writer: asyncio.StreamWriter,
    ) -> None:
        headers = {
            "server": "uvicorn",
            "content-type": "text/event-stream; charset=utf-8",
            "transfer-encoding": "chunked",
            "connection": "keep-alive" if request.keeps_open else "close",
        }
        writer.write(head(HTTPStatus.OK, headers))
        sent = 0
        while True:
            await job.news.wait()
            job.news.clear()
            over = job.finish_reason is not None
            events = b"".join(answer.events(sent, job))
            sent = job.request.generated
            if events:
                writer.write(chunk(events))
            if over:
                break
            await writer.drain()
        writer.write(chunk(answer.last(job)) + chunk(b""))
        await writer.drain()

    def _log(
        self, request: HttpRequest, writer: asyncio.StreamWriter, status: HTTPStatus
    ) -> None:
        if not self._world.options.access_log:
            return
        peer = writer.get_extra_info("peername") or ("-", 0)
        self._world.voice.say(
            self._world.speakers.front,
            "access",
            client=f"{peer[0]}:{peer[1]}",
            method=request.method,
            path=request.path,
            status=f"{status.value} {status.phrase}",
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """The JSON of one completion."""

    identity: str
    created: int
    asked: Completion

    def whole(self, job: Job) -> dict[str, object]:
        """Return the answer in one piece."""
        made = job.request.generated
        text = "".join(" " + _WORDS[i % len(_WORDS)] for i in range(made))
        choice = self._choice(text, job.finish_reason)
        return self._object([choice]) | {"usage": self._usage(made)}

    def events(self, sent: int, job: Job) -> Iterator[bytes]:
        """Yield one event for each token after the first ``sent``."""
        made = job.request.generated
        ends = job.finish_reason in {"stop", "length"}
        # All but the last differ in their word only: a stream has thousands of them.
        before, after = _event(self._object([self._choice("?", None)])).split(b'"?"')
        for number in range(sent, made - ends):
            yield before + b'" ' + _WORDS[number % len(_WORDS)].encode() + b'"' + after
        if ends:
            text = " " + _WORDS[(made - 1) % len(_WORDS)]
            yield _event(self._object([self._choice(text, job.finish_reason)]))

    def last(self, job: Job) -> bytes:
        """Return the events that end a stream."""
        events = b""
        if job.finish_reason == "error":
            dead = (
                "EngineCore encountered an issue. See stack trace for the root cause."
            )
            events += _event(
                {"error": {"message": dead, "type": "InternalServerError", "code": 500}}
            )
        elif job.finish_reason == "abort":
            events += _event(self._object([self._choice("", "abort")]))
        if self.asked.stream_usage:
            usage = self._usage(job.request.generated)
            events += _event(self._object([]) | {"usage": usage})
        return events + b"data: [DONE]\n\n"

    def _object(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": self.identity,
            "object": "text_completion",
            "created": self.created,
            "model": self.asked.model,
            "choices": choices,
        }

    def _choice(self, text: str, reason: str | None) -> dict[str, object]:
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
        }

    def _usage(self, made: int) -> dict[str, int]:
        asked = self.asked.prompt_tokens
        return {
            "prompt_tokens": asked,
            "completion_tokens": made,
            "total_tokens": asked + made,
        }


def _event(content: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _bad(message: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "BadRequestError", message)


def _prompt(given: object) -> tuple[str, int]:
    """Return the prompt as text and its length in tokens.

    A list of token ids has its own length; a text counts its words.
    """
    if isinstance(given, list) and len(given) == 1 and not isinstance(given[0], int):
        given = given[0]  # a batch of one
    if isinstance(given, str) and given:
        return given, max(1, len(given.split()))
    if isinstance(given, list) and given and all(isinstance(t, int) for t in given):
        return " ".join(map(str, given)), len(given)
    raise _bad("The prompt must be a text or a list of token ids, one per request.")
