"""What tests of real processes may ask for."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpuwatch.runtime.facts import read_facts
from hpuwatch.testing.programs import Programs
from hpuwatch.testing.tuning import Bench


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Start programs of ours; what is left of them at the end is killed."""
    starter = Programs(tmp_path)
    yield starter
    starter.clear()


@pytest.fixture
def bench(programs: Programs, tmp_path: Path) -> Iterator[Bench]:
    """Give a place to tune in; what still runs there at the end is killed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    state = tmp_path / "state"
    yield Bench(programs, state, port)
    for path in state.rglob("facts"):
        facts = read_facts(path)
        if facts.keeper is not None and facts.keeper_alive():
            facts.keeper.signal(signal.SIGQUIT)
        if facts.server is not None and facts.server_alive():
            facts.server.signal(signal.SIGKILL)
