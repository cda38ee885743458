"""``hpuwatch load`` as a program, against the simulated server: Ctrl-C, codes, labels."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpuwatch.load.endpoint import endpoint_of, scrape
from hpuwatch.testing.programs import OURS, until

SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048", "--speed", "100000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a simulated server whose time runs as fast as ours when it serves."""
    log = tmp_path_factory.mktemp("sim") / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*OURS, "sim", "--port", "0", *SMALL, "--serving-speed", "5"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "startup complete" in log.read_text() or process.poll())
        found = re.search(r"server on http://[\d.]+:(\d+)", log.read_text())
        assert found, log.read_text()
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.kill()
        process.wait()


def test_a_simulated_server_is_measured_and_said_to_be_one(server: str) -> None:
    words = ("--url", server, "--concurrency", "4", "--limit", "8")
    lengths = ("--input-tokens", "32", "--output-tokens", "8", "--format", "json")
    done = subprocess.run(
        [*OURS, "load", *words, *lengths], capture_output=True, check=True
    )
    told = json.loads(done.stdout)
    assert (told["origin"], told["completed"], told["failed"]) == ("simulated", 8, 0)
    assert told["total_input_tokens"] == 8 * 32
    assert told["server"]["generation_tokens"] == 8 * 8
    simulated = told["simulated"]
    assert simulated["duration"] == pytest.approx(told["duration"] * simulated["speed"])


def test_ctrl_c_tells_the_figures_so_far(server: str, tmp_path: Path) -> None:
    out, log = tmp_path / "result.json", tmp_path / "stderr"
    words = ("--url", server, "--concurrency", "4", "--seconds", "600")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*OURS, "load", *words, "--output-tokens", "4", "--out", str(out)],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    # The file is there when the words were read, and handlers stand when it is.
    until(out.exists)
    until(lambda: _is_busy(server))
    process.send_signal(signal.SIGINT)
    page, _ = process.communicate(timeout=40)
    assert process.returncode == 130, log.read_text()
    assert b"Ended early: interrupted." in page
    assert json.loads(out.read_text())["stopped"] == "interrupted"


def _is_busy(server: str) -> bool:
    sums = scrape(endpoint_of(server)) or {}
    return sums.get("vllm:num_requests_running", 0.0) >= 2
