"""Which reserve is proposed, and what never is."""

from __future__ import annotations

from math import floor
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpuwatch.advise.figures import reserve_of
from hpuwatch.advise.plan.reserve import Proposal, propose
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import (
    PROMPT,
    Fault,
    Known,
    Kv,
    Memory,
    Server,
    Start,
    T,
    Traffic,
    Warmup,
)
from hpuwatch.testing.logs import start_of_text
from hpuwatch.units import GIB, MIB, Amount, format_bytes

pytestmark = pytest.mark.unit

LINE = Line("line")


def known(value: T) -> Known[T]:
    return Known(value, LINE)


def gib(count: float) -> Known[Amount]:
    return known(Amount(round(count * GIB), format_bytes(count * GIB)))


def served(
    *,
    free: float = 80.0,
    utilisation: float = 0.9,
    ratio: float = 0.4,
    used: float = 2.0,
    profile: float = 5.0,
    traffic: Traffic | None = None,
) -> Start:
    """A server that warmed up and is ready; one KV block is 16 MiB."""
    usable = free * utilisation
    reserve = usable * ratio
    memory = Memory(
        total=gib(94.62),
        weights=gib(15),
        profile_run=gib(profile),
        free=gib(free),
        utilisation=known(utilisation),
        usable=gib(usable),
        reserve=gib(reserve),
        reserve_ratio=known(ratio),
        kv_cache=gib(usable - reserve),
    )
    blocks = floor((usable - reserve) * GIB / (16 * MIB))
    return Start(
        LINE,
        phase=Phase.READY,
        server=Server(max_model_len=known(4096)),
        memory={0: memory},
        kv=Kv(blocks=known(blocks), tokens=known(blocks * 128)),
        graphs_used={PROMPT: gib(used)},
        warmup=Warmup(seconds=known(30.0), allocated=gib(used)),
        traffic=traffic or Traffic(),
    )


def ratio_of(proposal: Proposal) -> float:
    return float(proposal.env[RESERVE])


def test_without_load_half_of_what_lies_idle_stays() -> None:
    proposal = propose(served())
    assert proposal is not None
    # Usable 72 GiB, reserve 28.8, used 2: 26.8 idle, so at least 2 + 13.4 must stay.
    assert ratio_of(proposal) == pytest.approx(0.214)
    assert not proposal.proven
    assert "not proven under load" in proposal.why
    won = (28.8 - 0.214 * 72) * GIB / (16 * MIB)
    assert proposal.expected["kv_blocks_won"] == pytest.approx(won, abs=2)
    assert proposal.expected["kv_tokens_won"] == (
        128 * proposal.expected["kv_blocks_won"]
    )
    assert proposal.margin["kept_idle_bytes"] == pytest.approx(
        (0.214 * 72 - 2) * GIB, rel=1e-6
    )
    assert "activation_allowance_bytes" not in proposal.margin


def test_unmeasured_activations_keep_an_allowance_and_name_it() -> None:
    # At 0.99 only 0.8 GiB lie outside, so 7.2 of the 8 GiB allowance stay in the reserve.
    start = served(utilisation=0.99, ratio=0.15, used=1.0, profile=0.0)
    proposal = propose(start)
    assert proposal is not None
    kept = proposal.margin["kept_idle_bytes"]
    assert isinstance(kept, int)
    assert kept >= 7.2 * GIB
    assert proposal.margin["activation_allowance_bytes"] == round(8 * GIB)
    assert "At least 8.0 GiB should" in str(proposal.margin["why"])
    measured = propose(served(utilisation=0.99, ratio=0.15, used=1.0, profile=5.0))
    assert measured is not None
    assert ratio_of(measured) < ratio_of(proposal)


def test_a_compile_only_warm_up_counts_as_unmeasured() -> None:
    start = served(utilisation=0.99, ratio=0.15, used=1.0)
    warmup = start.warmup
    only = Start(
        LINE,
        phase=start.phase,
        server=start.server,
        memory=start.memory,
        kv=start.kv,
        graphs_used=start.graphs_used,
        warmup=Warmup(
            seconds=warmup.seconds, allocated=warmup.allocated, compile_only=True
        ),
    )
    proposal = propose(only)
    assert proposal is not None
    assert "activation_allowance_bytes" in proposal.margin


def test_nothing_is_proposed_when_the_allowance_takes_all() -> None:
    assert propose(served(utilisation=0.99, ratio=0.1, used=1.0, profile=0.0)) is None


def busy(use: float, **rest: int) -> Traffic:
    return Traffic(
        lines=9,
        busy_lines=9,
        kv_use_peak=known(use),
        preemptions=rest.get("preemptions", 0),
        waiting_lines_longest=rest.get("waiting", 0),
    )


@pytest.mark.parametrize(
    ("traffic", "wanted"),
    [
        (busy(0.667), False),
        (busy(0.849, waiting=5), False),
        (busy(0.85), True),
        (busy(0.3, preemptions=1), True),
        (busy(0.3, waiting=6), True),
        (Traffic(lines=2, busy_lines=2, kv_use_peak=known(0.01)), True),
        (Traffic(), True),
    ],
)
def test_kv_cache_that_is_not_short_asks_for_nothing(
    traffic: Traffic,
    wanted: bool,
) -> None:
    assert (propose(served(traffic=traffic)) is not None) is wanted


def test_graphs_that_took_more_than_the_reserve_get_it() -> None:
    start = served(ratio=0.05, used=5.0)
    proposal = propose(start)
    assert proposal is not None
    assert proposal.answers == "reserve-short"
    assert ratio_of(proposal) * 72 >= 5.0
    assert proposal.expected["kv_blocks_won"] < 0


def test_a_phase_whose_budget_ran_out_stops_any_lowering() -> None:
    start = served()
    cut = Start(
        LINE,
        phase=start.phase,
        memory=start.memory,
        kv=start.kv,
        graphs_used=start.graphs_used,
        warmup=start.warmup,
        captured={PROMPT: known(0.625)},
    )
    assert propose(cut) is None


def failed(name: str, phase: Phase, wanted: int = 0, max_len: int = 4096) -> Start:
    start = served(ratio=0.05)
    fault = Fault(
        name,
        phase,
        "fatal",
        LINE,
        wanted=Amount(wanted, format_bytes(wanted)) if wanted else None,
    )
    return Start(
        LINE,
        phase=Phase.FAILED,
        broke_in=phase,
        server=Server(max_model_len=known(max_len)),
        memory=start.memory,
        kv=start.kv,
        faults=(fault,),
    )


def test_memory_that_ran_out_in_warm_up_gets_half_as_much_again_at_least() -> None:
    proposal = propose(failed("device_oom_devmem", Phase.WARMING))
    assert proposal is not None
    # 3.6 GiB in the reserve and 8 outside were not enough: 5.8 more.
    assert ratio_of(proposal) == pytest.approx(0.131)
    assert "half of that is added" in proposal.why
    wanted = propose(failed("device_oom_devmem", Phase.WARMING, wanted=9 * GIB))
    assert wanted is not None
    assert "the 9.0 GiB that the failed allocation asked for is added" in wanted.why
    assert ratio_of(wanted) * 72 >= 3.6 + 9


def test_a_reserve_that_leaves_no_room_for_one_request_is_not_proposed() -> None:
    long = failed("device_oom_devmem", Phase.WARMING, max_len=4377 * 128)
    assert propose(long) is None


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.LOADING, Phase.SIZING])
def test_memory_that_ran_out_before_the_reserve_was_made_changes_no_reserve(
    phase: Phase,
) -> None:
    assert propose(failed("device_oom_devmem", phase)) is None


def test_a_code_bug_changes_nothing() -> None:
    assert propose(failed("unknown_exception", Phase.WARMING)) is None


def test_the_longest_request_that_fits_is_proposed_as_a_flag() -> None:
    said = (
        "ERROR 01-02 03:04:05 [core.py:1] ValueError: To serve at least one request with "
        "the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger "
        "than the available KV cache memory (12.5 GiB). Based on the available memory, the "
        "estimated maximum model length is 102400. Try increasing "
        "`gpu_memory_utilization`.\n"
    )
    proposal = propose(start_of_text(said))
    assert proposal is not None
    assert proposal.env == {}
    assert proposal.flags == ("--max-model-len", "102400")


def test_an_unknown_ledger_proposes_nothing() -> None:
    start = served()
    for missing in ("usable", "reserve", "kv_cache", "reserve_ratio", "free"):
        fields = {
            name: None if name == missing else getattr(start.memory[0], name)
            for name in Memory.__slots__
        }
        blind = Start(
            LINE,
            phase=Phase.READY,
            memory={0: Memory(**fields)},
            kv=start.kv,
            graphs_used=start.graphs_used,
            warmup=start.warmup,
        )
        assert reserve_of(blind) is None
        assert propose(blind) is None


@given(
    free=st.floats(10, 120),
    utilisation=st.floats(0.3, 0.99),
    ratio=st.floats(0.01, 0.9),
    used=st.floats(0, 60),
    profile=st.sampled_from([0.0, 6.0]),
)
def test_a_step_down_never_takes_more_than_half_and_keeps_its_word(
    free: float, utilisation: float, ratio: float, used: float, profile: float
) -> None:
    start = served(
        free=free, utilisation=utilisation, ratio=ratio, used=used, profile=profile
    )
    reserve = reserve_of(start)
    assume(reserve is not None)
    proposal = propose(start)
    if proposal is None or reserve is None:
        return
    after = ratio_of(proposal) * reserve.usable_bytes
    won = proposal.expected["kv_blocks_won"]
    if proposal.answers == "reserve-idle":
        idle = reserve.reserve_bytes - (reserve.used_bytes or 0)
        assert reserve.reserve_bytes - after <= idle / 2 + 1
        assert after >= (reserve.used_bytes or 0)
        assert 0 < won * reserve.block_bytes <= reserve.reserve_bytes - after + 1
        if profile == 0.0:
            kept = after - (reserve.used_bytes or 0) + reserve.outside_bytes
            assert kept >= 0.1 * reserve.free_bytes - 1
    else:
        assert after >= (reserve.used_bytes or 0) - 1
        assert won <= 0
    digits = proposal.env[RESERVE].partition(".")[2]
    assert 2 <= len(digits) <= 3


def test_the_public_sample(checkout: Path) -> None:
    text = (checkout / "tests/data/logs/llama8b-gaudi2.log").read_text()
    proposal = propose(start_of_text(text))
    assert proposal is not None
    assert proposal.env == {RESERVE: "0.051"}
    assert proposal.expected["kv_blocks_won"] == 223
    assert proposal.expected["kv_blocks"] == 4330
