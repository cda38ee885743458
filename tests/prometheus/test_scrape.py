"""A real Prometheus scrapes hpuwatch, and everything can be asked for."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from hpuwatch.clock import SystemClock
from hpuwatch.metrics.catalogue import METRICS, Kind
from hpuwatch.testing.snapshots import full_snapshot
from hpuwatch.web.server import Web

pytestmark = pytest.mark.timeout(180)

PATIENCE_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


class Prometheus:
    """A running Prometheus on loopback; scrapes its targets every second."""

    def __init__(self, program: str, folder: Path, targets: Mapping[str, str]) -> None:
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address]}]}
                for job, address in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), "utf-8")
        self._log = folder / "prometheus.log"
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, path: str, **query: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urlencode(query)}"
        with urlopen(url, timeout=10) as answer:  # noqa: S310  our own loopback address
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of an instant query."""
        found = self.ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until a condition holds; fail with Prometheus' own words."""
        clock = SystemClock()
        deadline = clock.boottime() + PATIENCE_SECONDS
        while clock.boottime() < deadline:
            try:
                if done():
                    return
            except (URLError, ConnectionError):
                assert self._process.poll() is None, self._log.read_text("utf-8")
            clock.wait(0.2)
        pytest.fail(f"Prometheus didn't get there: {self._log.read_text('utf-8')}")


@pytest.fixture
def prometheus(
    tmp_path: Path, program: Callable[[str], str]
) -> Iterator[Callable[..., Prometheus]]:
    """Start Prometheus servers with ``prometheus(job="host:port")``."""
    running: list[Prometheus] = []

    def start(**targets: str) -> Prometheus:
        folder = tmp_path / f"prometheus-{len(running)}"
        folder.mkdir()
        server = Prometheus(program("prometheus"), folder, targets)
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web("127.0.0.1:0", full_snapshot)
    web.start()
    yield web
    web.close()


def test_every_metric_of_the_catalogue_can_be_queried(
    prometheus: Callable[..., Prometheus], web: Web
) -> None:
    server = prometheus(hpuwatch=web.address)
    server.until(lambda: server.query('up{job="hpuwatch"} == 1') != [])

    for metric in METRICS:
        found = server.query(metric.name)
        assert found, f"{metric.name} is not there"
        for labels, _ in found:
            extra = {"__name__", "instance", "job"}
            assert set(labels) - extra <= set(metric.labels)
    assert server.query("hpuwatch_kv_cache_blocks")[0][1] == 4106
    assert server.query('hpuwatch_runtime_state{state="warming"}')[0][1] == 1


def test_prometheus_knows_kind_and_help(
    prometheus: Callable[..., Prometheus], web: Web
) -> None:
    server = prometheus(hpuwatch=web.address)
    server.until(lambda: server.query("up == 1") != [])

    told = {each["metric"]: each for each in server.ask("targets/metadata")}

    for metric in METRICS:
        # In OpenMetrics, which Prometheus asks for, a family lacks the suffix.
        family = told[metric.name.removesuffix("_total").removesuffix("_info")]
        assert family["help"] == metric.help
        assert family["type"] == Kind(metric.kind).value


def test_every_panel_of_the_dashboard_shows_something(
    prometheus: Callable[..., Prometheus], web: Web, checkout: Path
) -> None:
    dashboard = json.loads((checkout / "grafana/hpuwatch.json").read_text("utf-8"))
    server = prometheus(hpuwatch=web.address)
    server.until(lambda: server.query("count_over_time(up[1m]) > 3") != [])

    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            if "vllm:" in expression or "increase(hpuwatch_faults" in expression:
                continue  # no vLLM here, and nothing breaks meanwhile
            for name, value in {"instance": ".*", "rank": "0"}.items():
                expression = expression.replace(f"${name}", value)
            expression = re.sub(r"\$__\w+", "1m", expression)
            assert server.query(expression), (panel["title"], expression)


@pytest.fixture
def run_with_simulated_server(tmp_path: Path) -> Iterator[str]:
    """``hpuwatch run -- hpuwatch sim``, and the address of its metrics."""
    address = f"127.0.0.1:{free_port()}"
    program = [sys.executable, "-m", "hpuwatch"]
    server = ["sim", "--port", str(free_port()), "--speed", "20", "--seed", "1"]
    log = tmp_path / "run.log"
    run = [*program, "run", "--listen", address, "--"]
    env = {**os.environ, "HPUWATCH_STATE_DIR": str(tmp_path / "state")}
    before = subprocess.run([*run, "false"], env=env, capture_output=True, check=False)
    assert before.returncode == 1
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*run, *program, *server],
            env=env,
            stdout=out,
            stderr=out,
        )
    yield address
    process.terminate()
    try:
        code = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    assert code == 0, log.read_text("utf-8")


def test_a_watched_simulated_server_has_every_metric_of_the_catalogue(
    prometheus: Callable[..., Prometheus], run_with_simulated_server: str
) -> None:
    server = prometheus(hpuwatch=run_with_simulated_server)
    server.until(
        lambda: server.query('hpuwatch_runtime_state{state="ready"} == 1') != []
    )

    missing = [metric.name for metric in METRICS if not server.query(metric.name)]

    assert not missing
    assert server.query('hpuwatch_last_exit_info{code="1", asked="false"}')
    assert server.query("hpuwatch_simulated")[0][1] == 1
    assert server.query("hpuwatch_warmup_progress_ratio")[0][1] == 1
    assert server.query("sum(hpuwatch_faults_total)")[0][1] == 0
    warming = 'max_over_time(hpuwatch_runtime_state{state="warming"}[10m])'
    assert server.query(warming)[0][1] == 1
