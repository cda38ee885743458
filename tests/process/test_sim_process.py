"""The simulated server as a real process: ports, HTTP, signals and exit codes."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import SMALL, Sim, free_port, running


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """One small server that several tests ask."""
    with running(tmp_path_factory.mktemp("sim"), *SMALL, "--port", "0") as sim:
        sim.until_ready()
        yield sim


def test_a_life_from_start_to_stop(tmp_path: Path) -> None:
    port = free_port()
    # Slow enough to be seen while it warms up.
    slow = (*SMALL, "--speed", "20", "--serving-speed", "300")
    with running(tmp_path, *slow, "--port", str(port)) as sim:
        sim.until(lambda: "warmup processing" in sim.text, "warm-up")
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
        sim.until_ready()
        assert sim.port == port
        assert sim.ask("GET", "/health") == (200, b"")
        assert sim.stop() == 0
    assert sim.text.index("this server is simulated") < sim.text.index(
        "Starting to load"
    )
    assert "Application shutdown complete." in sim.text.splitlines()[-1]


def test_a_completion_has_the_tokens_that_were_asked_for(ready: Sim) -> None:
    status, answer = ready.complete(prompt=[1] * 300, max_tokens=40, ignore_eos=True)
    assert status == 200
    assert answer["usage"] == {
        "prompt_tokens": 300,
        "completion_tokens": 40,
        "total_tokens": 340,
        "prompt_tokens_details": None,
    }
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["text"].split()) == 40


def test_a_stream_has_one_event_for_each_token(ready: Sim) -> None:
    asked = {
        "prompt": "a b c",
        "max_tokens": 20,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    status, body = ready.ask("POST", "/v1/completions", asked)
    assert status == 200
    events = [e.removeprefix("data: ") for e in body.decode().split("\n\n") if e]
    assert events[-1] == "[DONE]"
    *tokens, usage = [json.loads(event) for event in events[:-1]]
    assert len(tokens) == 20
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None] * 19 + [
        "length"
    ]
    assert usage["usage"]["prompt_tokens"] == 3


def test_a_connection_is_used_again(ready: Sim) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ready.port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        assert answer.status == 200
        (model,) = json.loads(answer.read())["data"]
        assert model["max_model_len"] == 2048
    connection.close()


def test_it_says_that_it_is_simulated(ready: Sim) -> None:
    _, version = ready.ask("GET", "/version")
    assert json.loads(version) == {"version": "0.26.0", "simulated": True}
    _, page = ready.ask("GET", "/metrics")
    assert b"\nhpuwatch_simulated 1.0\n" in page
    assert b'vllm:num_requests_running{engine="0",model_name="meta-llama/' in page


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/completions", b"{", 400, "JSON decode error"),
        ("/v1/completions", [1], 400, "valid dictionary"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        (
            "/v1/completions",
            {"prompt": "a", "max_tokens": 9999},
            400,
            "maximum context",
        ),
        ("/v1/completions", {"prompt": "a", "model": "x"}, 404, "does not exist"),
        ("/nope", {}, 404, "Not Found"),
        ("/health", {}, 405, "Method Not Allowed"),
    ],
)
def test_bad_requests_are_refused(
    ready: Sim, path: str, body: object, status: int, words: str
) -> None:
    found, answer = ready.ask("POST", path, body)
    assert found == status
    assert words in answer.decode()


def test_a_stop_aborts_the_requests_in_flight(tmp_path: Path) -> None:
    slow = (*SMALL, "--serving-speed", "1", "--port", "0")
    with running(tmp_path, *slow) as sim:
        sim.until_ready()
        with sim.stream(2000) as answer:
            assert sim.stop() == 0
            rest = answer.read().decode()
    assert '"finish_reason":"abort"' in rest
    assert rest.endswith("data: [DONE]\n\n")
    assert "aborting in-flight requests count=1" in sim.text


def test_a_shutdown_time_lets_requests_end(tmp_path: Path) -> None:
    slow = (*SMALL, "--serving-speed", "5", "--port", "0", "--shutdown-timeout", "30")
    with running(tmp_path, *slow) as sim:
        sim.until_ready()
        with sim.stream(300) as answer:
            assert sim.stop() == 0
            rest = answer.read().decode()
    assert '"finish_reason":"length"' in rest
    assert "mode=drain timeout=30s" in sim.text


def test_a_taken_port_ends_it_before_it_loads(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        with running(tmp_path, *SMALL, "--port", port) as sim:
            assert sim.process.wait(timeout=30) == 1
    assert sim.text.splitlines()[-1].endswith(
        "OSError: [Errno 98] Address already in use"
    )
    assert "Starting to load model" not in sim.text


def test_too_little_memory_for_graphs_ends_it_in_warmup(tmp_path: Path) -> None:
    tight = ("--gpu-memory-utilization", "0.9995", "--port", "0")
    with running(tmp_path, *SMALL, *tight, VLLM_GRAPH_RESERVED_MEM="0") as sim:
        assert sim.process.wait(timeout=30) == 1
    assert "PT_DEVMEM Allocation failed for size::" in sim.text
    assert "Engine core initialization failed" in sim.text.splitlines()[-1]


def test_a_graph_too_many_while_serving_ends_it_with_0(tmp_path: Path) -> None:
    """As with vLLM, exit code 0 doesn't mean that anybody wanted the end."""
    tight = ("--gpu-memory-utilization", "0.9995", "--port", "0")
    env = {"VLLM_GRAPH_RESERVED_MEM": "0", "VLLM_SKIP_WARMUP": "1"}
    with running(tmp_path, *SMALL, *tight, **env) as sim:
        sim.until_ready()
        status, _ = sim.complete(prompt=[1] * 1500, max_tokens=5)
        assert status == 500
        assert sim.process.wait(timeout=30) == 0
    assert "EngineCore encountered a fatal error." in sim.text


def test_an_unknown_flag_ends_it_with_2(tmp_path: Path) -> None:
    with running(tmp_path, "--no-such-flag") as sim:
        assert sim.process.wait(timeout=30) == 2
    assert "vllm: error: unrecognized arguments: --no-such-flag" in sim.text
