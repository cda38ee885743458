"""``hpuwatch demo``: the main job on the simulated server, in under two minutes.

It types the commands that an operator would type, against a wasteful simulated server
(Llama-3.1-8B on Gaudi2 with 40 % of usable memory reserved for graphs), and shows what they
print.  Nothing in it is measured on a Gaudi, and it says so.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpuwatch.clock import Clock
from hpuwatch.errors import RuntimeBootError
from hpuwatch.tune.designer import SkoptDesigner

Say = Callable[[str], None]

WASTEFUL = {"VLLM_GRAPH_RESERVED_MEM": "0.4"}
_NAME = "demo"
# Most of the card is left to others, so that a small load fills the KV cache, and simulated
# time runs so fast that nine starts fit into a minute.
_SERVER = (
    *(
        "--model",
        "llama-3.1-8b",
        "--card",
        "gaudi2",
        "--gpu-memory-utilization",
        "0.15",
    ),
    *("--max-model-len", "8192", "--disable-uvicorn-access-log"),
    *("--speed", "60", "--serving-speed", "60"),
)
_LOAD = "concurrency=36,requests=36,prompt=1536,output=512"
_READY_SECONDS = 90.0
METRICS = (
    "hpuwatch_runtime_state",
    "hpuwatch_device_memory_bytes",
    "hpuwatch_kv_cache_blocks",
    "hpuwatch_graph_memory_used_bytes",
    "hpuwatch_buckets",
    "hpuwatch_warmup_duration_seconds",
    "hpuwatch_bucket_misses_total",
    "hpuwatch_simulated",
)


def run_demo(say: Say, clock: Clock, folder: Path, *, trials: int, seed: int) -> None:
    """Show run, readiness, metrics, ``suggest`` and ``tune`` one after the other.

    Args:
        say: prints a piece of text.
        clock: where time comes from.
        folder: the state directory, new and empty.
        trials: how many trials ``tune`` may take.
        seed: of the simulated server and of the search.

    Raises:
        ExtraMissing: scikit-optimize is not installed, so that it could not be ended.
        RuntimeBootError: a step of the demo failed; the message says which.
    """
    SkoptDesigner.require()
    server_port, web_port = _free_port(), _free_port()
    server = [*_ours("sim"), *_SERVER, "--port", str(server_port), "--seed", str(seed)]
    env = {**os.environ, **WASTEFUL, "HPUWATCH_STATE_DIR": str(folder)}
    say("All of this is SIMULATED: no figure below was measured on a Gaudi.\n\n")
    _start_and_report(say, clock, server, env, f"127.0.0.1:{web_port}")
    say("\n4. Let scikit-optimize look for a better reserve, one restart a trial.\n")
    out = folder / "best.env"
    tune = ["tune", "--trials", str(trials), "--seed", str(seed), "--name", "demo-tune"]
    _show(
        say,
        [*tune, "--load", _LOAD, "--then", "stop", "--out", str(out), "--", *server],
        env,
    )
    say(f"\nThe best setting, as {out.name}:\n{out.read_text(encoding='utf-8')}")
    say("Simulated from end to end. On your own server: hpuwatch suggest LOG\n")


def _start_and_report(
    say: Say, clock: Clock, server: Sequence[str], env: Mapping[str, str], listen: str
) -> None:
    say(
        "1. Start a server that reserves 40 % of its memory for graphs, and watch it warm up.\n"
    )
    run = ["run", "--name", _NAME, "--listen", listen, "--no-echo", "--", *server]
    say(_typed(run, WASTEFUL))
    with _running([*_ours(), *run], env) as keeper:
        _until_ready(say, clock, f"http://{listen}", keeper)
        say("\n2. What Prometheus sees (an excerpt of /metrics).\n")
        for line in _metrics(f"http://{listen}/metrics"):
            say(f"   {line}\n")
        say("\n3. Ask what to change, and why.\n")
        spool = Path(env["HPUWATCH_STATE_DIR"]) / _NAME / "spool"
        _show(say, ["suggest", str(spool)], env)


def _ours(*verb: str) -> list[str]:
    return [sys.executable, "-m", "hpuwatch", *verb]


def _typed(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Return a command as a person would have typed it."""
    words = [f"{key}={value}" for key, value in (env or {}).items()]
    words += ["hpuwatch", *(shlex.quote(word) for word in arguments)]
    line = " ".join(words).replace(
        f"{shlex.quote(sys.executable)} -m hpuwatch", "hpuwatch"
    )
    return f"$ {line}\n"


def _show(say: Say, arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Run one of our verbs and pass on what it prints, line by line."""
    say(_typed(arguments))
    with subprocess.Popen(  # noqa: S603  our own program
        [*_ours(), *arguments],
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101  asked for above
        for line in child.stdout:
            say(f"   {line.rstrip()}\n" if line.strip() else "\n")
    if child.returncode:
        raise RuntimeBootError(
            f"the step `{arguments[0]}` of the demo failed ({child.returncode})"
        )


@contextmanager
def _running(
    command: Sequence[str], env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a server running for a while; it is asked to stop at the end."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(command, env=dict(env), stdout=quiet, stderr=quiet)  # noqa: S603  ours
    try:
        yield child
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=30)
        if child.poll() is None:
            child.kill()
            child.wait()


def _until_ready(
    say: Say, clock: Clock, base: str, keeper: subprocess.Popen[bytes]
) -> None:
    """Print the answer of the readiness probe whenever it has changed much."""
    deadline = clock.boottime() + _READY_SECONDS
    shown = ""
    while clock.boottime() < deadline and keeper.poll() is None:
        answer = _ready(f"{base}/readyz")
        line = _progress(answer)
        if line and line != shown:
            say(f"   /readyz: {line}\n")
            shown = line
        if answer.get("phase") == "ready":
            return
        clock.wait(0.5)
    raise RuntimeBootError("the simulated server of the demo did not become ready")


def _ready(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  loopback
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    except OSError:
        return {}
    parsed: dict[str, Any] = json.loads(body)
    return parsed


def _progress(answer: Mapping[str, Any]) -> str:
    if not answer:
        return ""
    line = str(answer.get("phase", ""))
    if answer.get("total"):
        line += f", {answer['done']} of {answer['total']} buckets"
    left = answer.get("seconds_left")
    if isinstance(left, dict):
        line += f", about {left['value']:.0f} s left ({left['low']:.0f} to {left['high']:.0f})"
    return line


def _metrics(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  loopback
        lines = answer.read().decode().splitlines()
    return [
        line for line in lines if line.startswith(METRICS) and not line.endswith(" 0.0")
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
