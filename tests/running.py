"""The simulated server as a real process, for tests of ports, signals and exits."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.clock import SystemClock

SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048", "--speed", "300")
_CLOCK = SystemClock()
_RUN_ID = "HPUWATCH_RUN_ID"
_IS_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Sim:
    """A running simulated server, and the file that it prints to."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = _CLOCK.boottime() + 40
        while not true():
            over = _CLOCK.boottime() > deadline or self.process.poll() is not None
            assert not over or true(), f"{what} never came:\n{self.text}"
            _CLOCK.wait(0.02)

    def until_said(self, words: str) -> None:
        self.until(lambda: words in self.text, words)

    def until_ready(self) -> None:
        self.until_said("Application startup complete")

    @property
    def port(self) -> int:
        found = re.search(r"Starting vLLM server on http://[\d.]+:(\d+)", self.text)
        assert found, self.text
        return int(found[1])

    @property
    def control(self) -> int:
        found = re.search(r"simulated server on http://[\d.]+:(\d+)", self.text)
        assert found, self.text
        return int(found[1])

    def ask(
        self, method: str, path: str, body: object = None, *, port: int | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.port, timeout=30
        )
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, None if body is None else data, _IS_JSON)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def complete(self, **asked: Any) -> Any:
        status, body = self.ask("POST", "/v1/completions", asked)
        return status, json.loads(body)

    @contextmanager
    def stream(self, tokens: int) -> Iterator[http.client.HTTPResponse]:
        """A completion of which the first event has come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        asked = {
            "prompt": "a",
            "max_tokens": tokens,
            "stream": True,
            "ignore_eos": True,
        }
        try:
            connection.request("POST", "/v1/completions", json.dumps(asked), _IS_JSON)
            answer = connection.getresponse()
            assert answer.readline().startswith(b"data: ")
            yield answer
        finally:
            connection.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def end(self) -> int:
        return self.process.wait(timeout=30)


@contextmanager
def running(folder: Path, *arguments: str, **env: str) -> Iterator[Sim]:
    """A server that is gone afterwards with all its processes; it prints to ``server.log``."""
    run_id = env.setdefault(_RUN_ID, str(folder))
    sim = _start(folder, arguments, env)
    try:
        yield sim
    finally:
        sim.process.kill()
        sim.process.wait(timeout=30)
        for pid in processes_of(run_id):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _start(folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> Sim:
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hpuwatch", "sim", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(env),
        )
    return Sim(process, log)


def scenario(folder: Path, *faults: Mapping[str, object]) -> str:
    """Write a scenario file and return its path."""
    path = folder / "faults.yaml"
    path.write_text(yaml.safe_dump({"faults": list(faults)}), encoding="utf-8")
    return str(path)


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def processes_of(run_id: str) -> list[int]:
    """Return the living processes that were started under this run id."""
    marked = f"{_RUN_ID}={run_id}".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # gone, or not ours
            if marked in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


def starts_and_kills(folder: Path, count: int, *, at_once: int = 6) -> None:
    """Start servers and end them at any moment, and look for what they leave behind."""
    runtime, recipes = folder / "runtime", folder / "recipes"
    runtime.mkdir()
    env = {
        _RUN_ID: f"starts-{os.getpid()}",
        "XDG_RUNTIME_DIR": str(runtime),
        "TMPDIR": str(runtime),
        "PT_HPU_RECIPE_CACHE_CONFIG": f"{recipes},false,1024",
    }

    def one(number: int) -> list[int]:
        is_orderly = number % 4 == 0
        sim = _begin(folder / f"server-{number}", env, with_all=is_orderly)
        return _end_orderly(sim) if is_orderly else _end_anyhow(sim, number)

    with ThreadPoolExecutor(at_once) as workers:
        ports = [port for held in workers.map(one, range(count)) for port in held]
    assert processes_of(env[_RUN_ID]) == []
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    assert list(runtime.iterdir()) == []
    left = {path for path in folder.rglob("*") if not path.is_dir()}
    assert {path.name for path in left if path.parent != recipes} == {"server.log"}


def _begin(folder: Path, env: Mapping[str, str], *, with_all: bool) -> Sim:
    """Start a server, with child processes and a control socket or without."""
    folder.mkdir()
    words = [*SMALL, "--speed", "2000", "--port", "0"]
    if with_all:
        words += ["--control", str(folder / "control"), "--processes"]
    return _start(folder, words, env)


def _end_orderly(sim: Sim) -> list[int]:
    sim.until_ready()
    assert sim.stop() == 0
    return [sim.port]


def _end_anyhow(sim: Sim, seed: int) -> list[int]:
    """Send a signal at any moment, and SIGKILL where it was swallowed."""
    chance = random.Random(seed)  # noqa: S311  repeatable
    _CLOCK.wait(chance.uniform(0, 1.5))
    sim.process.send_signal(chance.choice([signal.SIGTERM, signal.SIGKILL]))
    with suppress(subprocess.TimeoutExpired):
        sim.process.wait(timeout=chance.uniform(0, 0.5))
    sim.process.kill()
    sim.process.wait(timeout=20)
    return [sim.port] if "Starting vLLM server" in sim.text else []
