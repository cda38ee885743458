"""What a trial's log says, and why a trial failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hpuwatch.advise.causes import described
from hpuwatch.advise.checks.ends import told
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import (
    DECODE,
    PROMPT,
    BucketList,
    Fault,
    Known,
    Kv,
    Memory,
    Progress,
    Server,
    Start,
    Warmup,
)
from hpuwatch.tune.facts import (
    OTHER,
    RESERVE,
    STRATEGY,
    during,
    facts_of,
    failure_of,
    missing_arrival,
    reserve_is_short,
    shows_reserve_too_small,
    tunable,
)
from hpuwatch.tune.trial import Facts, Outcome, TrialState
from hpuwatch.units import GIB, MIB, Amount

pytestmark = pytest.mark.unit

LINE = Line("a line")


def amount(count: float) -> Known[Amount]:
    return Known(Amount(round(count), f"{count:.0f} B"), LINE)


def memory(usable_gib: float) -> Memory:
    return Memory(
        free=amount(usable_gib / 0.9 * GIB),
        usable=amount(usable_gib * GIB),
        reserve=amount(usable_gib * 0.4 * GIB),
        reserve_ratio=Known(0.4, LINE),
        kv_cache=amount(usable_gib * 0.6 * GIB),
        profile_run=amount(5 * GIB),
    )


READY = Start(
    LINE,
    phase=Phase.READY,
    server=Server(
        version=Known("0.26.0", LINE),
        model=Known("a-model", LINE),
        max_num_seqs=Known(64, LINE),
        features={"bucketing_strategy": "lin"},
        flags={
            "VLLM_DECODE_BLOCK_BUCKET_STEP": Known("256", LINE),
            "VLLM_API_KEY": Known("a secret", LINE),
        },
        simulated=True,
    ),
    memory={0: memory(70), 1: memory(60)},
    kv=Kv(blocks=Known(2000, LINE), tokens=Known(256000, LINE)),
    buckets={PROMPT: Known(BucketList(24), LINE), DECODE: Known(BucketList(48), LINE)},
    graphs_used={PROMPT: amount(100 * MIB), DECODE: amount(50 * MIB)},
    warmup=Warmup(seconds=Known(32.0, LINE), allocated=amount(200 * MIB)),
)
WARMING = replace(
    READY,
    phase=Phase.WARMING,
    graphs_used={},
    warmup=Warmup(progress={PROMPT: Progress(3, 48)}),
)


def fault(name: str, phase: Phase, severity: str = "fatal") -> Fault:
    return Fault(
        name, phase, severity, LINE, wanted=Amount(GIB, "1 GiB"), at="bucket 3"
    )


def test_the_facts_of_a_start() -> None:
    facts = facts_of(READY)
    assert facts.simulated
    assert (facts.model, facts.strategy) == ("a-model", "lin")
    assert (facts.kv_blocks, facts.block_size, facts.max_num_seqs) == (2000, 128, 64)
    assert facts.buckets == {PROMPT: 24, DECODE: 48}
    assert facts.warmup_seconds == 32.0


def test_what_each_phase_of_a_warm_up_took_is_kept() -> None:
    seconds = {PROMPT: 20.0, DECODE: 10.0}
    warmup = replace(READY.warmup, phase_seconds=seconds)
    facts = facts_of(replace(READY, warmup=warmup))
    assert facts.phase_seconds == seconds
    assert facts.fixed_seconds == 2.0


@pytest.mark.parametrize(
    ("version", "plugin", "release"),
    [
        ("0.26.0", True, "plugin-0.26"),
        ("0.26.0", False, "plugin-0.26"),
        ("0.9.0.1+Gaudi-1.22.0", False, "fork-1.22"),
        ("a-branch", False, "a-branch"),
        (None, False, ""),
    ],
)
def test_the_release_has_the_name_that_we_use_elsewhere(
    version: str | None, release: str, *, plugin: bool
) -> None:
    known = Known(version, LINE) if version else None
    server = replace(READY.server, version=known, plugin=plugin)
    assert facts_of(replace(READY, server=server)).release == release


def test_memory_is_that_of_the_rank_with_the_least() -> None:
    assert facts_of(READY).usable_bytes == 60 * GIB


def test_what_warm_up_took_beyond_the_phases_is_kept() -> None:
    assert facts_of(READY).graph_bytes == {
        PROMPT: 100 * MIB,
        DECODE: 50 * MIB,
        OTHER: 50 * MIB,
    }


def test_a_variable_that_may_be_a_secret_is_not_stored() -> None:
    assert facts_of(READY).flags == {"VLLM_DECODE_BLOCK_BUCKET_STEP": "256"}
    assert not tunable("VLLM_API_KEY")
    assert not tunable("HF_TOKEN")


def test_an_allowance_is_kept_where_activations_were_not_measured() -> None:
    assert facts_of(READY).allowance_bytes == 0  # the profile run took 5 GiB
    # A tenth of the free memory; as much lies outside of vLLM's budget at 0.9.
    silent = replace(memory(60), profile_run=amount(0))
    assert facts_of(replace(READY, memory={0: silent})).allowance_bytes < MIB
    tight = replace(silent, free=amount(60.1 * GIB))
    allowance = facts_of(replace(READY, memory={0: tight})).allowance_bytes
    assert allowance == pytest.approx(5.91 * GIB, rel=0.001)


def test_an_empty_log_gives_empty_facts() -> None:
    assert facts_of(Start(LINE)) == Facts(graph_bytes={OTHER: 0})


@pytest.mark.parametrize(
    ("features", "strategy"),
    [
        ({}, ""),
        ({"bucketing_strategy": "exponential_bucketing"}, "exp"),
        ({"exponential_bucketing": "True"}, "exp"),
        ({"exponential_bucketing": "False"}, "lin"),
    ],
)
def test_the_strategy_in_the_words_of_every_release(
    features: Mapping[str, str], strategy: str
) -> None:
    server = replace(READY.server, features=features)
    assert facts_of(replace(READY, server=server)).strategy == strategy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, None),
        ({RESERVE: "0.400"}, None),
        (
            {RESERVE: "0.1"},
            "VLLM_GRAPH_RESERVED_MEM=0.1 was set, but the log shows 0.4",
        ),
        ({STRATEGY: "lin"}, None),
        ({STRATEGY: "exp"}, "the log shows lin"),
        ({"VLLM_DECODE_BLOCK_BUCKET_STEP": "256"}, None),
        ({"VLLM_PROMPT_QUERY_BUCKET_STEP": "256"}, "nobody knows if it arrived"),
    ],
)
def test_a_setting_counts_only_when_the_log_shows_it(
    settings: Mapping[str, str], words: str | None
) -> None:
    missing = missing_arrival(settings, facts_of(READY))
    assert (missing is None) == (words is None)
    assert (words or "") in (missing or "")


def test_while_the_log_is_short_only_a_contradiction_counts() -> None:
    assert missing_arrival({RESERVE: "0.1"}, Facts(), so_far=True) is None
    assert missing_arrival({RESERVE: "0.1"}, facts_of(READY), so_far=True) is not None


@pytest.mark.parametrize(
    ("start", "state", "phase"),
    [
        (None, TrialState.NOT_READY, "starting"),
        (Start(LINE), TrialState.NOT_READY, "starting"),
        (replace(READY, phase=Phase.LOADING), TrialState.NOT_READY, "loading"),
        (WARMING, TrialState.WARMUP_FAILED, "warming"),
        (replace(WARMING, phase=Phase.FAILED), TrialState.WARMUP_FAILED, "warming"),
        (
            replace(WARMING, faults=(fault("device_oom_devmem", Phase.WARMING),)),
            TrialState.OUT_OF_MEMORY,
            "warming",
        ),
        (
            replace(WARMING, faults=(fault("graph_compile_failed", Phase.WARMING),)),
            TrialState.WARMUP_FAILED,
            "warming",
        ),
        (
            replace(READY, faults=(fault("kv_none", Phase.SIZING),)),
            TrialState.NOT_READY,
            "sizing",
        ),
    ],
)
def test_a_failure_has_a_state_and_a_phase(
    start: Start | None, state: TrialState, phase: str
) -> None:
    outcome = failure_of(start, "the server ended by itself with exit code 1")
    assert (outcome.state, outcome.phase) == (state, phase)
    assert outcome.cause.startswith("the server ended by itself with exit code 1")
    assert outcome.measurement is None


def test_a_failure_names_the_cause_that_the_log_names() -> None:
    start = replace(WARMING, faults=(fault("device_oom_devmem", Phase.WARMING),))
    cause = failure_of(start, "it ended").cause
    assert "device memory ran out in warm-up at bucket 3 (1 GiB wanted)" in cause


def test_other_faults_are_told_in_the_log_s_own_words() -> None:
    broken = fault("unknown_exception", Phase.LOADING)
    start = replace(WARMING, faults=(replace(broken, message="KeyError: 0", at=None),))
    cause = failure_of(start, "it ended").cause
    assert cause == "it ended: KeyError: 0 while weights loaded (1 GiB wanted)"


def test_a_short_kv_cache_is_told_by_its_figures_as_suggest_does() -> None:
    small = replace(memory(60), kv_cache=amount(-1 * GIB))
    short = replace(fault("kv_none", Phase.SIZING), at=None, wanted=None)
    start = replace(READY, memory={0: small}, faults=(short,))
    cause = failure_of(start, "it ended").cause
    assert cause == f"it ended: {told(start, short)} while memory was sized"
    assert told(start, short) != described(short)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.WARMING, "in warm-up"),
        (Phase.READY, "while serving"),
        (Phase.BACKING_OFF, "while backing off"),
    ],
)
def test_a_phase_is_told_in_words(phase: Phase, words: str) -> None:
    assert during(phase) == words


@pytest.mark.parametrize(("allowance_gib", "short"), [(0, False), (2, True)])
def test_a_reserve_is_short_where_graphs_and_the_allowance_exceed_it(
    allowance_gib: int, short: bool
) -> None:
    facts = Facts(
        reserve_bytes=3 * GIB,
        graph_bytes={PROMPT: GIB, DECODE: GIB},
        allowance_bytes=allowance_gib * GIB,
    )
    assert reserve_is_short(facts) is short
    assert not reserve_is_short(replace(facts, reserve_bytes=None))


def test_memory_wins_over_the_outcome_that_the_caller_expects() -> None:
    broke = replace(READY, faults=(fault("device_oom_devmem", Phase.READY),))
    expected = TrialState.LOAD_FAILED
    assert failure_of(READY, "HTTP 500", expected).state is expected
    assert failure_of(broke, "HTTP 500", expected).state is TrialState.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("state", "phase", "too_small"),
    [
        (TrialState.OUT_OF_MEMORY, "warming", True),
        (TrialState.OUT_OF_MEMORY, "ready", True),
        (TrialState.OUT_OF_MEMORY, "loading", False),
        (TrialState.WARMUP_FAILED, "warming", False),
    ],
)
def test_only_memory_after_loading_says_that_the_reserve_was_too_small(
    state: TrialState, phase: str, too_small: bool
) -> None:
    assert shows_reserve_too_small(Outcome(state, "", phase)) is too_small
