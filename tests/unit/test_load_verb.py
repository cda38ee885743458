"""``hpuwatch load`` from its words to its page, and the connections under it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hpuwatch.cli.load import stoppable
from hpuwatch.cli.main import build
from hpuwatch.clock import SystemClock
from hpuwatch.errors import HpuwatchError, ResourceError, UsageError
from hpuwatch.load.client import Client, Exhausted, Outcome
from hpuwatch.load.endpoint import endpoint_of
from hpuwatch.load.prompts import TOKEN_IDS, Prompts
from hpuwatch.load.target import Target
from hpuwatch.load.workload import Request
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.completions import Handler, complete, serving

pytestmark = pytest.mark.unit

KEY = "sk-hidden-key"
SMALL = ("--input-tokens", "8-16", "--output-tokens", "3")
ONE = Request(0, 0.0, 8, 2)


def call(*argv: str) -> Result:
    result = CliRunner(env={"VLLM_API_KEY": KEY}).invoke(build(), ["load", *argv])
    if isinstance(result.exception, HpuwatchError):
        raise result.exception
    return result


def test_a_closed_loop_is_measured_and_told_as_json(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    with serving() as served:
        served.pages["/version"] = '{"version": "0.26.0"}'
        load = ("--url", served.url, "--concurrency", "3", "--limit", "10", *SMALL)
        result = call(*load, "--format", "json", "--save-detailed", "--out", str(out))
        bodies = served.bodies
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (told["schema"], told["completed"]) == ("hpuwatch.load/1", 10)
    assert (told["total_output_tokens"], told["max_concurrency"]) == (30, 3)
    assert told["server_version"] == "0.26.0"
    assert len(told["itls"]) == 10
    assert json.loads(out.read_text()) == told
    assert {body["authorization"] for body in bodies} == {f"Bearer {KEY}"}
    assert KEY not in result.output
    sent = [body for body in bodies if body["stream"]]
    assert len({json.dumps(body["prompt"]) for body in sent}) == 10
    assert told["total_input_tokens"] == sum(len(body["prompt"]) for body in sent)


def test_a_trace_is_replayed_through_the_chat_endpoint(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,5,2\n0.1,9,3\n")
    with serving() as served:
        words = ("--url", f"{served.url}/v1", "--trace", str(trace), "--warp", "10")
        page = call(*words, "--endpoint", "chat", "--format", "markdown").stdout
        sent = [body for body in served.bodies if body["stream"]]
    assert "# load: 2 of 2 requests answered by m" in page
    assert "| time to first token |" in page
    assert {body["path"] for body in sent} == {"/v1/chat/completions"}
    assert [len(body["messages"][0]["content"].split()) for body in sent] == [5, 9]


def test_limits_may_be_spelt_as_vllm_spells_them() -> None:
    load = ("--concurrency", "2", "--limit", "4", *SMALL, "--format", "json")
    with serving() as served:
        limits = ("--goodput", "ttft:60000", "e2el:60000")
        told = json.loads(call("--url", served.url, *load, *limits).stdout)
    assert told["goodput_limits_ms"] == {"ttft": 60000.0, "e2el": 60000.0}
    assert told["request_goodput"] == told["request_throughput"]


def test_a_server_may_say_beside_its_version_that_it_is_simulated() -> None:
    with serving() as served:
        served.pages["/version"] = '{"version": "0.26.0", "simulated": true}'
        page = call("--url", served.url, "--rate", "500", "--limit", "2", *SMALL).stdout
    assert "(SIMULATED)" in page
    assert "No figure was measured on a Gaudi." in page


def every_second_one_fails(handler: Handler, body: dict[str, Any]) -> None:
    if body["stream"] and len(handler.served.bodies) % 2:
        handler.page(503, '{"error": {"message": "queue full"}}')
    else:
        complete(handler, body)


def test_failures_are_told_by_reason() -> None:
    with serving(every_second_one_fails) as served:
        page = call(
            "--url", served.url, "--rate", "500", "--limit", "10", *SMALL
        ).stdout
    assert "5 of 10 requests answered" in page
    assert "5 times: HTTP 503: queue full" in page


def nothing_but_probes(handler: Handler, body: dict[str, Any]) -> None:
    if body["stream"]:
        handler.close_connection = True
    else:
        complete(handler, body)


def test_a_run_without_any_success_is_an_error() -> None:
    load = ("--concurrency", "2", "--limit", "3", *SMALL)
    with (
        serving(nothing_but_probes) as served,
        pytest.raises(ResourceError, match="no request succeeded: the server closed"),
    ):
        call("--url", served.url, *load)


def test_a_dry_run_asks_nobody() -> None:
    page = call("--rate", "4", "--limit", "9", "--constant", "--dry-run").stdout
    assert "9 requests to http://127.0.0.1:8000 (constant)" in page
    assert "2.0 s" in page
    plan = json.loads(
        call("--concurrency", "4", "--dry-run", "--format", "json").stdout
    )
    assert (plan["requests"], plan["input_tokens"]) == (1000, 1_024_000)


@pytest.mark.parametrize(
    "words",
    [
        ("--input-tokens", "0"),
        ("--input-tokens", "9-3"),
        ("--output-tokens", "many"),
        ("--endpoint", "embeddings"),
        ("--format", "yaml"),
        ("--tool", "wrk"),
    ],
)
def test_what_an_option_doesn_t_have_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=words[0]):
        call("--rate", "1", *words)


def test_a_result_that_can_t_be_kept_is_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="can't be written"):
        call("--rate", "1", "--out", str(tmp_path / "none" / "r.json"))


def test_a_signal_ends_the_run_and_another_or_one_before_it_ends_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: killed.append(number))
    clock = FakeClock()
    with stoppable(clock) as signals:
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGTERM)
        assert end.value.code == 143
        signals.running = True
        for _ in range(2):  # as `timeout` does: to us and to our group
            signal.raise_signal(signal.SIGTERM)
        assert (signals.asked, killed) == (signal.SIGTERM, [])
        clock.wait(1.0)
        signal.raise_signal(signal.SIGTERM)
    assert killed == [signal.SIGTERM]


def test_ctrl_c_while_the_program_is_read_shows_no_traceback() -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "import hpuwatch.cli\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, b"")


def client_of(url: str, limit_seconds: float = 30.0) -> Client:
    target, prompts = Target(endpoint_of(url), "m"), Prompts(TOKEN_IDS, "s")
    return Client(target, prompts, SystemClock().boottime, limit_seconds)


def ask(url: str, times: int = 1, limit_seconds: float = 30.0) -> list[Outcome]:
    async def asked() -> list[Outcome]:
        client = client_of(url, limit_seconds)
        try:
            return [await client.ask(ONE) for _ in range(times)]
        finally:
            client.close()

    return asyncio.run(asked())


STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 59\r\n\r\n"
    b'data: {"choices": [{"text": "a", "finish_reason": "stop"}]}'
)


@contextmanager
def scripted(*answers: bytes) -> Iterator[tuple[str, list[int]]]:
    """A server that gives each connection one answer and then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    served: list[int] = []

    def serve() -> None:
        for number, answer in enumerate(answers):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                served.append(number)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", served
    finally:
        thread.join(10)
        listener.close()


def test_a_connection_is_used_again() -> None:
    peers = set()

    def note(handler: Handler, body: dict[str, Any]) -> None:
        peers.add(handler.client_address)
        complete(handler, body)

    with serving(note) as served:
        outcomes = ask(served.url, 3)
    assert [outcome.tokens for outcome in outcomes] == [2, 2, 2]
    assert len(peers) == 1


def test_a_kept_connection_that_the_server_has_closed_costs_no_request() -> None:
    line = STREAM.replace(b"Length: 59", b"Length: 60") + b"\n"
    with scripted(line, line) as (url, served):
        outcomes = ask(url, 2)
    assert [outcome.failure for outcome in outcomes] == ["", ""]
    assert served == [0, 1]


def test_an_answer_that_never_ends_has_failed_in_time() -> None:
    release = threading.Event()

    def hang(_handler: Handler, _body: dict[str, Any]) -> None:
        release.wait(30)

    with serving(hang) as served:
        (outcome,) = ask(served.url, limit_seconds=0.1)
        release.set()
    assert outcome.failure == "no end within 0.1 s"


def test_a_refused_connection_is_a_failure_in_plain_words() -> None:
    with serving() as served:
        pass
    assert ask(served.url)[0].failure == "no connection: connection refused"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EADDRNOTAVAIL])
def test_a_machine_without_another_connection_is_no_server_s_fault(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_connection", full)
    with pytest.raises(Exhausted):
        ask("http://127.0.0.1:9")
