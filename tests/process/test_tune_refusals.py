"""What ``hpuwatch tune`` refuses before a server is touched."""

from __future__ import annotations

import socket

import pytest

from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.testing.tuning import LIGHT, SIM, Bench

pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
pytestmark = pytest.mark.timeout(240)


def test_a_port_that_is_in_use_is_refused_before_anything_starts(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", bench.port)):
        tune = bench.tune("--load", LIGHT)
        assert tune.wait() == 69
    assert "is in use already" in tune.err
    assert bench.states() == []


def test_the_dry_run_changes_nothing(bench: Bench) -> None:
    plan = bench.tune("--dry-run", "--trials", "5", "--knobs", "reserve,buckets")
    assert plan.wait() == 0, plan.err
    text = plan.out.decode()
    assert "VLLM_GRAPH_RESERVED_MEM, VLLM_BUCKETING_STRATEGY" in text
    assert "unknown: 6 starts" in text
    assert not bench.state.exists()


@pytest.mark.parametrize(
    ("options", "server", "env", "code", "words"),
    [
        (
            [],
            ["no-such-program", "--port", "1"],
            {},
            69,
            "no command 'no-such-program'",
        ),
        ([], [*SIM], {}, 2, "no --port"),
        ([], [*SIM, "--port", "0"], {}, 2, "no --port"),
        (["--trials", "1"], [*SIM, "--port", "9"], {}, 2, "must be 2 or more"),
        (["--knobs", "speed"], [*SIM, "--port", "9"], {}, 2, "doesn't know 'speed'"),
        (["--load", "users=3"], [*SIM, "--port", "9"], {}, 2, "is not KEY=N"),
        (["--then", "dance"], [*SIM, "--port", "9"], {}, 2, "neither serve nor stop"),
        (["--resume"], [*SIM, "--port", "9"], {}, 66, "there is no study under"),
        (
            [],
            [*SIM, "--port", "9"],
            {"VLLM_SKIP_WARMUP": "true"},
            2,
            "VLLM_SKIP_WARMUP",
        ),
        ([], [*SIM, "--port", "9", "--enforce-eager"], {}, 2, "no graphs"),
        (
            [],
            ["env", f"{RESERVE}=0.3", *SIM, "--port", "9"],
            {},
            2,
            f"the command sets {RESERVE} itself",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    bench: Bench,
    options: list[str],
    server: list[str],
    env: dict[str, str],
    code: int,
    words: str,
) -> None:
    tune = bench.tune(*options, server=server, env=env)
    assert tune.wait() == code
    (line,) = tune.err.strip().splitlines()
    assert line.startswith("hpuwatch: error: ")
    assert words in line
    assert not bench.state.exists()
