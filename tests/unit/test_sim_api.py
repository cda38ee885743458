"""What clients get: completions, chats, streams, usage, refusals, and who hangs up."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.http.front import Connection
from hpuwatch.sim.serve.answers import End
from hpuwatch.sim.serve.api import ROUTES, Api
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.serve.question import Prompt, Question
from hpuwatch.sim.serve.tokens import WORDS, pieces_of, spoken, text_of, token_id
from hpuwatch.sim.server import Server
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

_SMALL = (
    *("--max-num-seqs", "8", "--max-model-len", "2048", "--noise", "0"),
    *("--speed", "1e12", "--serving-speed", "1", "--served-model-name", "m", "alias"),
)

_IS_JSON = "Content-Type: application/json"


class _Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50000)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        del high, low

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class Got:
    """One answer, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, without the last word."""
        events = [
            e.removeprefix("data: ") for e in self.body.decode().split("\n\n") if e
        ]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


@dataclass
class Site:
    """A server that is asked in this process, in a loop of its own."""

    server: Server
    engine: Engine
    output: io.StringIO
    loop: asyncio.AbstractEventLoop
    key: str = ""
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = Api(self.server.world, self.engine)

    def raw(self, data: bytes) -> _Transport:
        """Send bytes on one connection and wait until nothing more is answered."""
        return self.loop.run_until_complete(self._raw(data))

    async def _raw(self, data: bytes) -> _Transport:
        transport = _Transport()
        connection = Connection(self.api.answer, lambda: 0.0, set())
        connection.connection_made(transport)
        running = asyncio.ensure_future(self.engine.run())
        connection.data_received(data)
        await _until(lambda: not connection.is_answering or running.done())
        running.cancel()
        return transport

    def ask(self, path: str, body: object = None, *more: str, method: str = "") -> Got:
        """Send one request and take its answer apart."""
        if isinstance(body, bytes):
            data = body
        else:
            data = b"" if body is None else json.dumps(body).encode()
        keys = [f"Authorization: Bearer {self.key}"] if self.key else []
        method = method or ("GET" if body is None else "POST")
        rows = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(data)}"]
        rows += [] if any("Content-Type" in row for row in more) else [_IS_JSON]
        head = "\r\n".join([*rows, *keys, *more]) + "\r\n\r\n"
        return _taken_apart(bytes(self.raw(head.encode() + data).written))

    def complete(self, **asked: object) -> Got:
        return self.ask("/v1/completions", {"prompt": "a b c", **asked})

    def chat(self, content: object = "a b", **asked: object) -> Got:
        messages = [{"role": "user", "content": content}]
        return self.ask("/v1/chat/completions", {"messages": messages, **asked})


def _posted(body: str) -> bytes:
    """Return a request for a completion as bytes."""
    rows = ["POST /v1/completions HTTP/1.1", _IS_JSON, f"Content-Length: {len(body)}"]
    return "\r\n".join([*rows, "", body]).encode()


async def _until(true: Callable[[], object]) -> None:
    """Let the others in the loop go on until something holds."""
    while not true():  # noqa: ASYNC110  what holds is no event
        await asyncio.sleep(0)


def _taken_apart(answer: bytes) -> Got:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rows = head.decode().split("\r\n")
    headers = dict(row.split(": ", 1) for row in rows)
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Got(int(first.split()[1]), headers, body)


def _joined(chunks: bytes) -> bytes:
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body


@contextmanager
def _site(*arguments: str) -> Iterator[Site]:
    output, loop = io.StringIO(), asyncio.new_event_loop()
    options = parse_options([*_SMALL, *arguments], {})
    server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
    with closing(loop):
        engine = loop.run_until_complete(server.start())
        server.world.pace.change_speed(1e12)
        yield Site(server, engine, output, loop)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server that all tests share which don't break it."""
    with _site("--enable-prompt-tokens-details") as site:
        yield site


@pytest.fixture(scope="module")
def older() -> Iterator[Site]:
    """A server of the fork."""
    with _site("--release", "fork-1.21") as site:
        yield site


@pytest.fixture
def own() -> Iterator[Site]:
    """A server that one test may break."""
    with _site() as site:
        yield site


def _texts(events: Iterable[Any], index: int = 0) -> str:
    return "".join(
        choice.get("text") or choice.get("delta", {}).get("content") or ""
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


def test_a_completion_has_vllms_fields(site: Site) -> None:
    got = site.complete(prompt=[1, 2, 3], max_tokens=4, ignore_eos=True)
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    answer = got.json
    assert answer["object"] == "text_completion"
    assert answer["model"] == "m"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert choice["text"] == " one two three four"
    assert choice["finish_reason"] == "length"
    assert choice["stop_reason"] is None
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "total_tokens": 7,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_without_a_limit_sixteen_tokens_come(site: Site) -> None:
    assert site.complete(ignore_eos=True).json["usage"]["completion_tokens"] == 16


def test_a_model_ends_by_itself_when_it_may(site: Site) -> None:
    """A chat has no limit but the context."""
    choice = site.chat().json["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].startswith(" one two")
    assert site.chat().json["usage"] == site.chat().json["usage"]


def test_lists_of_prompts_get_answers_for_each(site: Site) -> None:
    answer = site.complete(prompt=["a", "c d e"], n=2).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 4
    ids = site.complete(prompt=[[1, 2], [3]], max_tokens=2).json
    assert ids["usage"]["prompt_tokens"] == 3
    assert ids["usage"]["completion_tokens"] == 4


def test_a_stream_has_an_event_for_each_token(site: Site) -> None:
    options = {"include_usage": True}
    got = site.complete(
        max_tokens=20, stream=True, stream_options=options, ignore_eos=True
    )
    assert got.headers["content-type"].startswith("text/event-stream")
    *tokens, usage = got.events
    reasons = [event["choices"][0]["finish_reason"] for event in tokens]
    assert reasons == [None] * 19 + ["length"]
    assert _texts(tokens) == spoken(0, 20)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 20


def test_a_stream_of_a_chat_begins_with_its_role(site: Site) -> None:
    first, *rest = site.chat(stream=True, max_completion_tokens=3).events
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert _texts(rest) == " one two three"
    assert rest[-1]["choices"][0]["finish_reason"] == "length"


def test_each_event_may_tell_the_usage_so_far(site: Site) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *tokens, last = site.complete(
        max_tokens=3, stream=True, stream_options=options
    ).events
    counts = [event["usage"]["completion_tokens"] for event in tokens]
    assert counts[-1] == last["usage"]["completion_tokens"] == 3
    assert counts == sorted(counts)


def test_several_answers_share_a_stream(site: Site) -> None:
    events = site.complete(max_tokens=5, n=3, stream=True, ignore_eos=True).events
    assert all(_texts(events, index) == spoken(0, 5) for index in range(3))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_stop_text_ends_an_answer(site: Site, *, stream: bool, keeps: bool) -> None:
    got = site.complete(
        max_tokens=40,
        stop=["nothing", "three f"],
        include_stop_str_in_output=keeps,
        stream=stream,
    )
    choice = (got.events[-1] if stream else got.json)["choices"][0]
    text = _texts(got.events) if stream else choice["text"]
    assert text == " one two " + ("three f" if keeps else "")
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == "three f"


def test_an_echo_gives_the_prompt_back(site: Site) -> None:
    asked = {"prompt": "so it was", "max_tokens": 2, "echo": True}
    assert site.complete(**asked).json["choices"][0]["text"] == "so it was one two"
    assert _texts(site.complete(**asked, stream=True).events) == "so it was one two"
    only = site.complete(prompt="so it was", max_tokens=0, echo=True).json
    assert only["choices"][0]["text"] == "so it was"
    assert only["usage"]["completion_tokens"] == 0


def test_log_probabilities_are_told_when_asked_for(site: Site) -> None:
    told = site.complete(max_tokens=2, logprobs=2).json["choices"][0]["logprobs"]
    assert told["tokens"] == [" one", " two"]
    assert told["text_offset"] == [0, 4]
    assert all(len(top) == 2 for top in told["top_logprobs"])
    chat = site.chat(max_tokens=2, logprobs=True, top_logprobs=3).json
    first, _ = chat["choices"][0]["logprobs"]["content"]
    words = [top["token"] for top in first["top_logprobs"]]
    assert words == [" one", " two", " three"]


def test_a_prefix_that_came_before_is_told_as_cached(site: Site) -> None:
    prompt = list(range(5000, 5400))
    first = site.complete(prompt=prompt).json["usage"]["prompt_tokens_details"]
    again = site.complete(prompt=[*prompt, 1]).json["usage"]["prompt_tokens_details"]
    assert first == {"cached_tokens": 0}
    assert again == {"cached_tokens": 384}


def test_without_the_flag_nobody_is_told_of_the_cache(older: Site) -> None:
    assert older.complete().json["usage"]["prompt_tokens_details"] is None


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"prompt": None}, 400, "Field required"),
        ({"prompt": ""}, 400, "prompt cannot be empty"),
        ({"prompt": []}, 400, "prompt cannot be empty"),
        ({"prompt": [[1], []]}, 400, "prompt cannot be empty"),
        ({"prompt": [1, "a"]}, 400, "valid string"),
        ({"prompt": 7}, 400, "valid string"),
        ({"model": "x"}, 404, "The model `x` does not exist."),
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1, got 0."),
        ({"max_tokens": "many"}, 400, "valid integer"),
        ({"max_tokens": "+-5"}, 400, "valid integer"),
        ({"max_tokens": "9" * 5000}, 400, "valid integer"),
        ({"max_tokens": 2046}, 400, "maximum context length is 2048 tokens"),
        ({"prompt": [1] * 2048}, 400, "your request has 2048 input tokens"),
        ({"n": 0}, 400, "n must be at least 1, got 0."),
        ({"temperature": -1}, 400, "temperature must be non-negative, got -1."),
        ({"temperature": "hot"}, 400, "valid number"),
        ({"seed": "x"}, 400, "valid integer"),
        ({"top_k": "x"}, 400, "valid integer"),
        ({"top_k": -2}, 400, "top_k must be 0 (disable), or at least 1, got -2."),
        ({"min_p": -1}, 400, "min_p must be in [0, 1], got -1."),
        ({"presence_penalty": "x"}, 400, "valid number"),
        ({"frequency_penalty": 3}, 400, "must be in [-2, 2], got 3."),
        ({"repetition_penalty": 0}, 400, "must be greater than zero, got 0."),
        ({"stop_token_ids": "x"}, 400, "valid list"),
        ({"user": 5}, 400, "valid string"),
        ({"logit_bias": [1]}, 400, "valid dictionary"),
        ({"response_format": 5}, 400, "valid dictionary"),
        ({"stream": True, "stream_options": 5}, 400, "valid dictionary"),
        ({"tools": 5}, 400, "valid list"),
        ({"priority": {}}, 400, "valid integer"),
        ({"top_p": 2}, 400, "top_p must be in (0, 1], got 2."),
        ({"stop": [""]}, 400, "stop cannot contain an empty string."),
        ({"stop": 7}, 400, "valid string"),
        ({"logprobs": 30}, 400, "greater than max allowed: 20"),
        ({"min_tokens": 30, "max_tokens": 20}, 400, "less than or equal to max_tokens"),
        ({"stream_options": {"include_usage": True}}, 400, "Stream options can only"),
        ({"stream": "perhaps"}, 400, "valid boolean"),
    ],
)
def test_bad_completions_are_refused(
    site: Site, asked: dict[str, object], status: int, words: str
) -> None:
    got = site.complete(**asked)
    assert got.status == status
    assert words in got.message
    assert got.json["error"]["code"] == status


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "Field required"),
        ({"messages": []}, "valid list"),
        ({"messages": [{"content": "a"}]}, "Field required"),
        (
            {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
            "Unknown part type: smell",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": ["x"]}]}]},
            "Unknown part type: ['x']",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "At most 0 image(s)",
        ),
    ],
)
def test_bad_chats_are_refused(site: Site, body: object, words: str) -> None:
    got = site.ask("/v1/chat/completions", body)
    assert got.status == 400
    assert words in got.message


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
@pytest.mark.parametrize(
    "body",
    [b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"prompt": "\\ud800", "max_tokens": 3}'],
)
def test_what_is_no_json_is_refused(site: Site, path: str, body: bytes) -> None:
    assert site.ask(path, body).status == 400


def test_what_nobody_foresaw_is_an_error_and_is_reported(
    own: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr("hpuwatch.sim.serve.api.exposition", broken)
    two = own.raw(b"GET /metrics HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", bytes(two.written))
    assert statuses == [b"500", b"200"]
    assert not two.closed
    assert "GET /metrics can't be answered" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.setattr("hpuwatch.sim.serve.answers.Form.closing", broken)
    stream = own.raw(_posted('{"prompt": "a", "stream": true}'))
    assert stream.closed
    assert not stream.written.endswith(b"0\r\n\r\n")


def test_what_pydantic_takes_for_numbers_and_switches_is_taken(site: Site) -> None:
    got = site.complete(max_tokens="3", temperature="0.5", ignore_eos="yes", echo="off")
    assert got.json["usage"]["completion_tokens"] == 3


def test_a_body_that_is_not_said_to_be_json_is_refused(site: Site, older: Site) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    form = "Content-Type: application/x-www-form-urlencoded"
    got = site.ask("/v1/completions", body, form)
    assert got.status == 400
    assert got.json["error"] == {
        "message": "1 validation error:\n  Unsupported Media Type: Only 'application/json'"
        " is allowed",
        "type": "Bad Request",
        "param": None,
        "code": 400,
    }
    exact = "Content-Type: Application/JSON; charset=utf-8"
    assert site.ask("/v1/completions", body, exact).status == 200
    got = older.ask("/v1/completions", body, form)
    assert (got.status, got.body) == (500, b"Internal Server Error")
    assert older.ask("/v1/completions", body, "Content-Type:").status == 200


def test_the_fork_has_its_errors_at_the_top(older: Site) -> None:
    got = older.complete(model="x")
    assert got.status == 404
    assert got.json["object"] == "error"
    assert got.json["message"] == "The model `x` does not exist."
    assert older.complete(n=2, best_of=1).status == 400
    long = older.complete(max_tokens=3000).json["message"]
    assert (
        "you requested 3003 tokens (3 in the messages, 3000 in the completion)" in long
    )


def test_other_paths_answer_as_the_framework_does(site: Site) -> None:
    assert site.ask("/nope").json == {"detail": "Not Found"}
    assert site.ask("/health", {}).status == 405
    assert site.ask("/health").status == 200
    assert site.ask("/health", method="HEAD").body == b""
    assert site.ask("/ping", {}).status == 200
    assert site.ask("/load").json == {"server_load": 0}
    assert site.ask("/version").json["simulated"] is True
    assert {row["id"] for row in site.ask("/v1/models").json["data"]} == {"m", "alias"}
    assert set(ROUTES) > {"/health", "/metrics"}


def test_an_idle_server_knows_what_time_it_is(own: Site) -> None:
    own.server.world.pace.change_speed(1.0)
    clock = own.server.world.pace._clock
    before = own.ask("/v1/models").json["data"][0]["created"]
    clock.wait(3600.0)
    assert own.ask("/v1/models").json["data"][0]["created"] == before + 3600


def test_text_is_counted_by_a_rule(site: Site) -> None:
    got = site.ask(
        "/tokenize", {"prompt": "so it was, one", "add_special_tokens": False}
    )
    assert got.json["count"] == 5
    assert got.json["max_model_len"] == 2048
    back = site.ask("/detokenize", {"tokens": got.json["tokens"][-1:]})
    assert back.json == {"prompt": " one"}
    chat = {"messages": [{"role": "user", "content": "a b"}]}
    assert site.ask("/tokenize", chat).json["count"] == 1 + 4 + 2 + 1 + 4
    assert site.ask("/detokenize", {"tokens": ["a"]}).status == 400
    assert site.ask("/tokenize", {"prompt": 5}).status == 400
    assert site.ask("/tokenize", {}).status == 400


@given(st.text())
def test_every_text_has_tokens_and_they_have_ids(text: str) -> None:
    pieces = pieces_of(text)
    assert len(pieces) <= len(text)
    assert bool(pieces) == bool(text.split())
    assert all(0 <= token_id(piece, 1000) < 1000 for piece in pieces)


def test_the_models_words_come_back_as_they_were() -> None:
    text = spoken(0, 20)
    assert text_of([token_id(piece, 128_000) for piece in pieces_of(text)]) == text


def test_who_has_no_key_is_refused() -> None:
    with _site("--api-key", "secret") as site:
        assert site.ask("/v1/models").status == 401
        assert site.ask("/v1/models").json == {"error": "Unauthorized"}
        assert site.ask("/health").status == 200
        site.key = "secret"
        assert site.ask("/v1/models").status == 200
        assert "secret" not in site.output.getvalue()


def test_images_count_for_a_model_that_sees() -> None:
    with _site("--model", "qwen3-vl-32b", "--max-model-len", "4096") as site:
        image = {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,AAAA"},
        }
        text = {"type": "text", "text": "what is it"}
        usage = site.chat([text, image], max_tokens=2).json["usage"]
        assert usage["prompt_tokens"] == 1 + 4 + 3 + 1024 + 1 + 4
        assert site.engine.tally.images == 1


def test_requests_on_one_connection_are_answered_in_order(site: Site) -> None:
    one = b"GET /version HTTP/1.1\r\n\r\n"
    written = bytes(site.raw(one * 3).written)
    assert written.count(b"HTTP/1.1 200 OK") == 3
    closing = b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n"
    transport = site.raw(closing)
    assert b"connection: close" in transport.written
    assert transport.closed


def test_nonsense_ends_the_connection(site: Site) -> None:
    transport = site.raw(b"hello\r\n\r\n")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.closed


def test_who_hangs_up_is_forgotten(own: Site) -> None:
    async def hang_up() -> None:
        connection = Connection(own.api.answer, lambda: 0.0, set())
        connection.connection_made(_Transport())
        body = json.dumps({"prompt": "a", "max_tokens": 2000, "ignore_eos": True})
        connection.data_received(_posted(body))
        running = asyncio.ensure_future(own.engine.run())
        await _until(lambda: own.engine.scheduler.running)
        connection.connection_lost(None)
        await _until(lambda: not connection.is_answering)
        running.cancel()

    own.loop.run_until_complete(hang_up())
    assert own.engine.tally.finished == {"abort": 1}
    assert not own.engine.jobs
    assert own.engine.scheduler.pool.used == 0


def test_a_dead_engine_is_told_everywhere(own: Site) -> None:
    own.engine.broken = "gone"
    assert own.ask("/health").status == 503
    assert own.complete().status == 500
    assert "EngineCore encountered an issue" in own.complete().message


def test_who_comes_while_it_drains_is_refused(own: Site) -> None:
    own.engine.refuses = "cannot schedule new futures after shutdown"
    assert own.complete().status == 500
    assert own.complete().message == own.engine.refuses
    assert own.ask("/health").status == 200


def test_contents_are_never_printed(site: Site) -> None:
    site.complete(prompt="a most secret word")
    site.chat("a most secret word", stream=True)
    assert "secret" not in site.output.getvalue()
    assert '"POST /v1/completions HTTP/1.1" 200 OK' in site.output.getvalue()
    site.ask("/version?a=1")
    assert '"GET /version?a=1 HTTP/1.1" 200 OK' in site.output.getvalue()


_QUESTION = Question(
    is_chat=False,
    model="m",
    prompts=(Prompt(["a"]),),
    max_tokens=None,
    min_tokens=0,
    n=1,
    ignore_eos=False,
    echo=False,
    logprobs=None,
    stop=(),
    include_stop=False,
    stream=False,
    usage_at_end=False,
    usage_each=False,
)


def test_where_a_long_answer_ends_is_found_at_once() -> None:
    question = replace(_QUESTION, ignore_eos=True, stop=("no such word", "eight"))
    assert End.of(question, 100_000, 100_000).tokens == len(WORDS)
    question = replace(question, min_tokens=99_990)
    assert End.of(question, 100_000, 100_000).tokens == 99_992


@settings(max_examples=60)
@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 20),
    st.booleans(),
    st.lists(st.sampled_from([*WORDS, "e t", "o", "x"]), max_size=2),
)
def test_an_answer_ends_where_it_must(
    most: int, natural: int, least: int, ignores: bool, stop: list[str]
) -> None:
    question = replace(
        _QUESTION, min_tokens=min(least, most), ignore_eos=ignores, stop=tuple(stop)
    )
    end = End.of(question, most, natural)
    assert 1 <= end.tokens <= most
    text = spoken(0, end.tokens)
    if end.stop is None:
        assert end.characters is None
        expected = most if ignores else min(most, max(natural, question.min_tokens))
        assert end.tokens == expected
    else:
        assert end.characters is not None
        assert text[end.characters :].startswith(end.stop)
        assert end.tokens >= question.min_tokens
        assert end.reason == "stop"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3000)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "{}<", "7", "+-7", "9" * 5000, "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "role"]), inner, max_size=3)
    ),
    max_leaves=4,
)
_FIELDS = (
    *("prompt", "messages", "max_tokens", "min_tokens", "n", "stop", "stream", "echo"),
    *("logprobs", "top_logprobs", "temperature", "top_p", "stream_options", "model"),
    *("ignore_eos", "best_of", "max_completion_tokens", "tokens"),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([path for path, methods in ROUTES.items() if "POST" in methods]),
    st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=4),
    st.booleans(),
    _VALUES,
)
def test_whatever_is_asked_is_answered(
    site: Site, path: str, fields: dict[str, object], usual: bool, content: object
) -> None:
    if usual:
        message = {"role": "user", "content": content}
        fields = {"prompt": "a", "messages": [message], "max_tokens": 3} | fields
    got = site.ask(path, fields)
    assert got.status in {200, 400, 404}
    if got.status != 200:
        assert got.message
