"""The routes: completions and chats, models, tokens, health, version and metrics.

Request contents are never kept, nor printed but where V0 logs its requests: only their
lengths matter here, and to the prefix cache whether they are alike.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from http import HTTPStatus

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.http.front import Connection
from hpuwatch.sim.http.wire import HttpRequest, Response, json_response
from hpuwatch.sim.serve.answers import Choice, End, Form
from hpuwatch.sim.serve.asked import Reader
from hpuwatch.sim.serve.engine import Engine, Job
from hpuwatch.sim.serve.fields import Fields
from hpuwatch.sim.serve.metrics import exposition
from hpuwatch.sim.serve.question import Question
from hpuwatch.sim.serve.refusals import Refused, dead, invalid, not_valid
from hpuwatch.sim.serve.requestlog import RequestLog
from hpuwatch.sim.serve.schedule import Request
from hpuwatch.sim.serve.tally import Served
from hpuwatch.sim.serve.tokens import fingerprint, pieces_of, text_of, token_id
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.world import World

_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
ROUTES: Mapping[str, str] = {
    "/health": "GET",
    "/load": "GET",
    "/ping": "GET, POST",
    "/tokenize": "POST",
    "/detokenize": "POST",
    "/v1/models": "GET",
    "/version": "GET",
    _CHAT: "POST",
    _COMPLETIONS: "POST",
    "/metrics": "GET",
}
"""The paths that are answered, with their methods."""

_JSON = frozenset({_CHAT, _COMPLETIONS, "/tokenize", "/detokenize"})
_STUMBLES = "fork-..1.21"  # over a body of another type
_UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version"})


class Api:
    """Answers the requests of all connections."""

    def __init__(self, world: World, engine: Engine) -> None:
        """Take the warmed server."""
        self._world = world
        self._engine = engine
        self._reader = Reader(world.options)
        self._names = dice(world.options.seed, "requests")
        self._is_v0 = world.options.point.is_v0
        self._load = 0
        self._request_log = RequestLog(world)
        self._plain: Mapping[str, Callable[[HttpRequest], Response]] = {
            "/health": self._health,
            "/ping": self._health,
            "/load": self._server_load,
            "/metrics": self._metrics,
            "/v1/models": self._models,
            "/version": self._version,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }

    async def answer(self, request: HttpRequest, connection: Connection) -> None:
        """Answer one request on its connection."""
        self._engine.pass_idle()
        pace = self._world.pace
        began = pace.present
        status = await self._world.faults.asked(request.method, request.path)
        if status is not None:
            self._send(request, connection, Response(status))
            return
        try:
            self._check(request)
            if request.path in {_COMPLETIONS, _CHAT}:
                await self._complete(request, connection)
            else:
                response = self._plain[request.path](request)
                self._send(request, connection, response)
        except Refused as refusal:
            response = refusal.response(is_v0=self._is_v0)
            self._send(request, connection, response)
        self._count(request, connection, pace.present - began)

    def _check(self, request: HttpRequest) -> None:
        """Refuse what no route answers, and who has no key.

        Raises:
            Refused: in the words of the web framework.
        """
        keys = self._world.options.api_keys
        given = request.headers.get("authorization", "")
        if keys and request.path.startswith("/v1"):
            scheme, _, key = given.partition(" ")
            if scheme.lower() != "bearer" or key not in keys:
                raise _Unrouted(HTTPStatus.UNAUTHORIZED, {"error": "Unauthorized"})
        methods = ROUTES.get(request.path)
        if methods is None:
            raise _Unrouted(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        if request.method not in methods.split(", "):
            detail = {"detail": "Method Not Allowed"}
            raise _Unrouted(HTTPStatus.METHOD_NOT_ALLOWED, detail)
        if request.path in _JSON:
            self._check_type(request.headers.get("content-type", ""))

    def _check_type(self, given: str) -> None:
        """Refuse a body that isn't said to be JSON; older releases stumble over it."""
        if given.partition(";")[0].strip().lower() == "application/json":
            return
        if not covers(_STUMBLES, self._world.options.point):
            raise not_valid(
                "Unsupported Media Type: Only 'application/json' is allowed"
            )
        if given:
            raise _Unrouted(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _health(self, _request: HttpRequest) -> Response:
        if self._engine.broken:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE)
        return Response()

    def _server_load(self, _request: HttpRequest) -> Response:
        load = self._load if self._world.options.server_load else 0
        return json_response({"server_load": load})

    def _version(self, _request: HttpRequest) -> Response:
        version = self._world.voice.script.version
        return json_response({"version": version, "simulated": True})

    def _metrics(self, _request: HttpRequest) -> Response:
        self._engine.gauges()
        return Response(body=exposition(self._engine.tally), content_type=_METRICS_TYPE)

    def _models(self, _request: HttpRequest) -> Response:
        options = self._world.options
        created = int(self._world.pace.stamp())
        rows: list[dict[str, object]] = [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "vllm",
                "root": options.given_model,
                "parent": None,
                "max_model_len": options.max_model_len,
                "permission": [_permission(created)],
            }
            for name in options.served_names
        ]
        return json_response({"object": "list", "data": rows})

    def _tokenize(self, request: HttpRequest) -> Response:
        fields = Fields.of(request.body)
        self._reader.model(fields)
        options = self._world.options
        if fields.get("messages") is not None:
            pieces = self._reader.conversation(fields).content
        else:
            prompt = fields.typed("prompt", str)
            if prompt is None:
                raise invalid(
                    "missing", "prompt", "Field required", sorted(fields.names)
                )
            pieces = pieces_of(prompt)
        size = options.model.vocabulary
        answer = {
            "count": len(pieces),
            "max_model_len": options.max_model_len,
            "tokens": [token_id(piece, size) for piece in pieces],
            "token_strs": None,
        }
        return json_response(answer)

    def _detokenize(self, request: HttpRequest) -> Response:
        fields = Fields.of(request.body)
        self._reader.model(fields)
        return json_response({"prompt": text_of(fields.token_ids("tokens"))})

    async def _complete(self, request: HttpRequest, connection: Connection) -> None:
        """Answer a completion or a chat."""
        is_chat = request.path == _CHAT
        read = self._reader.chat if is_chat else self._reader.completion
        question = read(request.body)
        engine = self._engine
        if engine.broken:
            raise dead()
        if engine.refuses is not None:
            raise Refused(engine.refuses, HTTPStatus.INTERNAL_SERVER_ERROR)
        choices = self._choices(question)
        identity = self._identity(request, question)
        form = Form(
            question,
            choices,
            {
                "id": identity,
                "created": int(self._world.pace.stamp()),
                "model": question.model,
            },
            tells_cached=self._world.options.prompt_tokens_details,
        )
        self._load += 1
        try:
            if question.stream:
                await self._stream(request, connection, form, choices, identity)
            else:
                await self._whole(request, connection, form, choices, identity)
        finally:
            self._load -= 1

    def _choices(self, question: Question) -> list[Choice]:
        options, times = self._world.options, self._world.times
        choices: list[Choice] = []
        for prompt in question.prompts:
            most = question.most_tokens(
                prompt, options.max_model_len, is_v0=self._is_v0
            )
            key = "" if question.ignore_eos else fingerprint(prompt.content)
            for number in range(question.n):
                natural = most
                if not question.ignore_eos:
                    natural = times.natural_length(f"{key}/{number}")
                end = End.of(question, most, natural)
                choices.append(Choice(len(choices), prompt, end))
            self._engine.tally.images += prompt.images
        return choices

    def _identity(self, request: HttpRequest, question: Question) -> str:
        name = (
            request.headers.get("x-request-id")
            or f"{self._names.getrandbits(128):032x}"
        )
        return f"{'chatcmpl' if question.is_chat else 'cmpl'}-{name}"

    def _submit(
        self,
        connection: Connection,
        question: Question,
        choices: list[Choice],
        identity: str,
        told: Callable[[Choice, Job, int], None],
    ) -> list[Job]:
        """Queue all answers of a question, and end them when the client hangs up."""
        self._request_log.tell(identity, question)
        jobs: list[Job] = []
        for choice in choices:
            asked = Request(
                prompt_tokens=len(choice.prompt.content),
                end_tokens=choice.end.tokens,
                content=choice.prompt.content,
                identity=f"{identity}-{choice.index}",
                siblings=question.n,
                reason_at_end=choice.end.reason,
                max_tokens=question.max_tokens or 0,
            )
            choice.job = self._engine.submit(asked, functools.partial(told, choice))
            jobs.append(choice.job)
        connection.gone = functools.partial(_cancel, self._engine, jobs)
        return jobs

    async def _whole(
        self,
        request: HttpRequest,
        connection: Connection,
        form: Form,
        choices: list[Choice],
        identity: str,
    ) -> None:
        jobs = self._submit(connection, form.question, choices, identity, _ignore)
        await asyncio.wait([job.over for job in jobs])
        if any(job.finish_reason == "error" for job in jobs):
            raise dead()
        self._send(request, connection, json_response(form.whole()))

    async def _stream(
        self,
        request: HttpRequest,
        connection: Connection,
        form: Form,
        choices: list[Choice],
        identity: str,
    ) -> None:
        self._log(request, connection, HTTPStatus.OK)
        connection.begin_stream()
        send = connection.send_events

        def told(choice: Choice, _job: Job, _tokens: int) -> None:
            if events := form.events(choice):
                send(events)

        jobs = self._submit(connection, form.question, choices, identity, told)
        await asyncio.wait([job.over for job in jobs])
        connection.send_events(form.closing())
        connection.send_events(b"")

    def _send(
        self, request: HttpRequest, connection: Connection, response: Response
    ) -> None:
        self._log(request, connection, response.status)
        connection.send(response)

    def _log(
        self, request: HttpRequest, connection: Connection, status: HTTPStatus
    ) -> None:
        if self._world.options.access_log:
            self._world.voice.say(
                self._world.speakers.front,
                "access",
                client=connection.peer,
                method=request.method,
                path=request.target,
                status=f"{status.value} {status.phrase}",
            )

    def _count(
        self, request: HttpRequest, connection: Connection, seconds: float
    ) -> None:
        if request.path in _UNCOUNTED:
            return
        self._engine.tally.http.count(
            Served(
                handler=request.path if request.path in ROUTES else "none",
                method=request.method,
                status=connection.status.value,
                request_bytes=len(request.body),
                response_bytes=connection.sent_bytes,
                seconds=seconds,
            )
        )


class _Unrouted(Refused):
    """What the web framework refuses, in its own form: JSON, or the status as a text."""

    def __init__(
        self, status: HTTPStatus, body: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("", status)
        self._body = body

    def response(self, *, is_v0: bool) -> Response:
        """Return the answer, the same in every release."""
        del is_v0
        if self._body is None:
            return Response.of_text(self.status, self.status.phrase)
        return json_response(self._body, self.status)


def _ignore(_choice: Choice, _job: Job, _tokens: int) -> None:
    """Wait for the whole answer."""


def _cancel(engine: Engine, jobs: list[Job]) -> None:
    for job in jobs:
        engine.cancel(job)


def _permission(created: int) -> dict[str, object]:
    granted = ("allow_sampling", "allow_logprobs", "allow_view")
    denied = ("allow_create_engine", "allow_search_indices", "allow_fine_tuning")
    return {
        "id": f"modelperm-{created:032x}",
        "object": "model_permission",
        "created": created,
        **dict.fromkeys(granted, True),
        **dict.fromkeys(denied, False),
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
