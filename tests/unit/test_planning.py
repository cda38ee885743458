"""A plan and its changes, under the names that the server reads."""

from __future__ import annotations

import pytest

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.planning import RESERVE, UTILISATION, Change, Plan, applied
from hpuwatch.gaudi.resolve import FILE_VARIABLE, Flags

pytestmark = pytest.mark.unit

PLAN = Plan("plugin-0.26", Flags(256, 0, 4096, 0))


def changed(*changes: Change) -> Plan:
    return applied(PLAN, changes)


def test_flags_go_where_they_decide() -> None:
    plan = changed(
        Change("--max-num-seqs", "64"),
        Change("--max-num-batched-tokens", "8192"),
        Change("--no-enable-prefix-caching", "true"),
        Change("--gpu-memory-utilization", "0.8"),
        Change("--enforce-eager", "true"),
    )
    assert plan.flags == Flags(64, 0, 4096, 0, prefix_caching=False)
    assert (plan.tokens, plan.utilisation, plan.eager) == (8192, 0.8, True)
    assert plan.reserve_ratio == 0.0
    settings = plan.shapes(1000)
    assert (settings.num_blocks, settings.max_num_batched_tokens) == (1000, 8192)


def test_unset_means_the_default_again() -> None:
    once = changed(Change("--gpu-memory-utilization", "0.5"), Change(RESERVE, "0.4"))
    again = applied(
        once, [Change("--gpu-memory-utilization", None), Change(RESERVE, None)]
    )
    assert (once.utilisation, once.reserve_ratio) == (0.5, 0.4)
    assert again == PLAN
    assert again.reserve_ratio == 0.1


def test_a_variable_ends_what_stood_in_for_it() -> None:
    told = changed(Change("--strategy", "lin"), Change("--contiguous-pa", "on"))
    assert told.shapes(100).strategy == "lin"
    assert told.shapes(100).contiguous_pa
    plan = applied(
        told,
        [
            Change("VLLM_BUCKETING_STRATEGY", "pad"),
            Change("VLLM_CONTIGUOUS_PA", "false"),
        ],
    )
    assert plan.shapes(100).strategy == "pad"
    assert not plan.shapes(100).contiguous_pa


def test_a_bucket_file_goes_with_its_variable() -> None:
    listed = Plan(
        "plugin-0.26",
        Flags(256, 0, 4096, 0, bucket_file="(1, 128, 0)"),
        {FILE_VARIABLE: "f"},
    )
    plan = applied(listed, [Change(FILE_VARIABLE, None)])
    assert plan.flags.bucket_file is None
    assert plan.shapes(100).strategy == "exp"


@pytest.mark.parametrize(
    ("release", "tokens"), [("plugin-0.26", 2048), ("fork-1.21", 32768)]
)
def test_the_token_budget_of_a_release(release: str, tokens: int) -> None:
    assert Plan(release, Flags(1, 0, 32768, 0)).tokens == tokens


@pytest.mark.parametrize(
    ("release", "text", "ratio"),
    [
        ("plugin-0.26", None, 0.1),
        ("fork-1.18", None, 0.4),
        ("plugin-0.26", "0.25", 0.25),
        ("plugin-0.26", "a tenth", 0.1),
    ],
)
def test_the_reserve_of_a_release(release: str, text: str | None, ratio: float) -> None:
    plan = applied(Plan(release, Flags(1, 0, 4096, 0)), [Change(RESERVE, text)])
    assert plan.reserve_ratio == ratio


@pytest.mark.parametrize(
    ("release", "text", "seconds"),
    [
        ("plugin-0.26", "1800", 1800),
        ("plugin-0.26", "0", 0),
        ("plugin-0.26", None, 600),
        ("plugin-0.13", "1800", 600),
        ("fork-1.22", "1800", None),
    ],
)
def test_how_long_the_front_end_waits(
    release: str, text: str | None, seconds: int | None
) -> None:
    change = Change("VLLM_ENGINE_READY_TIMEOUT_S", text)
    plan = applied(Plan(release, Flags(1, 0, 4096, 0)), [change])
    assert plan.ready_seconds == seconds


@pytest.mark.parametrize(
    ("release", "usual"),
    [
        ("plugin-0.26", 0.92),
        ("plugin-head", 0.92),
        ("plugin-0.17.1", 0.9),
        ("0.6.3", 0.9),
    ],
)
def test_the_utilisation_of_a_release(release: str, usual: float) -> None:
    plan = Plan(release, Flags(1, 0, 4096, 0))
    assert plan.utilisation == usual
    told = applied(plan, [Change(UTILISATION, "0.5")])
    assert told.utilisation == 0.5
    assert applied(told, [Change(UTILISATION, None)]) == plan


@pytest.mark.parametrize(
    "change",
    [
        Change("--max-num-seqs", "many"),
        Change("--max-num-seqs", "0"),
        Change("--block-size", "-128"),
        Change("--num-speculative-tokens", "-1"),
        Change("--contiguous-pa", "maybe"),
        Change("--port", "8000"),
    ],
)
def test_what_can_t_be_read_is_told(change: Change) -> None:
    with pytest.raises(ConfigError, match=change.name):
        changed(change)


def test_a_change_as_it_is_typed() -> None:
    assert str(Change("A", "1")) == "A=1"
    assert str(Change("--a", "1")) == "--a 1"
    assert str(Change("A", None)) == "unset A"
