"""What a log shows of a configuration, and where its lists are not the rules'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hpuwatch.advise.checks.listed import differ
from hpuwatch.advise.finding import Case
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.resolve import resolve
from hpuwatch.records import Line
from hpuwatch.state.configured import (
    acting_variables,
    bucket_of,
    configured,
    differences,
    printed_lists,
    printed_strategy,
    release_text,
)
from hpuwatch.state.model import (
    DECODE,
    PROMPT,
    BucketList,
    Known,
    Kv,
    Server,
    Shape,
    Start,
    T,
)

pytestmark = pytest.mark.unit


def known(value: T, text: str = "") -> Known[T]:
    return Known(value, Line(text, 0, 1, None))


SERVER = Server(
    version=known("0.16.0"),
    plugin=True,
    max_model_len=known(16384),
    max_num_seqs=known(16),
    max_num_batched_tokens=known(4096),
    block_size=known(128),
)


def start(
    server: Server = SERVER, lists: Mapping[str, tuple[Shape, ...]] | None = None
) -> Start:
    buckets = {
        phase: known(BucketList(len(shapes), shapes))
        for phase, shapes in (lists or {}).items()
    }
    return Start(
        Line("", 0, 1, None),
        server=server,
        kv=Kv(blocks=known(900)),
        buckets=buckets,
    )


def made(of: Start, phase: str, dialect: str = "") -> tuple[Shape, ...]:
    told = configured(of)
    assert told is not None
    settings = resolve(dialect or told.release.dialect, told.flags, told.env)
    return tuple(tuple(bucket) for bucket in generate(settings, phase))


def test_a_log_gives_flags_and_variables() -> None:
    flags = {
        "enable_prefix_caching": known("True"),
        "VLLM_PROMPT_BS_BUCKET_MAX": known("4"),
        "VLLM_DECODE_BS_BUCKET_MAX": known(
            "16", "x VLLM_DECODE_BS_BUCKET_MAX=16 (default:16)"
        ),
        "VLLM_DECODE_BS_BUCKET_STEP": known(
            "8", "x VLLM_DECODE_BS_BUCKET_STEP=8 (default:32)"
        ),
    }
    features = {
        "bucketing_strategy": "linear_bucketing",
        "use_contiguous_pa": "True",
        "merged_prefill": "False",
    }
    told = configured(start(replace(SERVER, flags=flags, features=features)))
    assert told is not None
    assert told.release.name == "plugin-0.16"
    assert (told.flags.max_num_seqs, told.flags.num_blocks) == (16, 900)
    assert (told.flags.strategy, told.flags.contiguous_pa) == ("lin", True)
    assert told.flags.prefix_caching is True
    assert told.env == {
        "VLLM_PROMPT_BS_BUCKET_MAX": "4",
        "VLLM_DECODE_BS_BUCKET_STEP": "8",
        "VLLM_MERGED_PREFILL": "False",
    }
    assert told.assumed == ()


def test_a_bound_that_came_from_its_older_name_is_not_set() -> None:
    came = "WARNING VLLM_PROMPT_QUERY_BUCKET_{}={} (default:2048)"
    flags = {
        "VLLM_PROMPT_SEQ_BUCKET_MAX": known("1024"),
        "VLLM_PROMPT_QUERY_BUCKET_MAX": known("1024", came.format("MAX", 1024)),
        "VLLM_PROMPT_SEQ_BUCKET_MIN": known("128"),
        "VLLM_PROMPT_QUERY_BUCKET_MIN": known("256", came.format("MIN", 256)),
    }
    told = configured(start(replace(SERVER, flags=flags)))
    assert told is not None
    assert told.env == {
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "128",
        "VLLM_PROMPT_QUERY_BUCKET_MIN": "256",
    }


def test_a_variable_without_a_value_is_not_set() -> None:
    flags = {
        "VLLM_EXPONENTIAL_BUCKETING": known("None"),
        "VLLM_BUCKETING_FROM_FILE": known(""),
        "VLLM_SKIP_WARMUP": known("false"),
        "enforce_eager": known("True"),
    }
    acting = acting_variables(replace(SERVER, flags=flags))
    assert {name: each.value for name, each in acting.items()} == {
        "VLLM_SKIP_WARMUP": "false"
    }


@pytest.mark.parametrize(
    ("features", "strategy"),
    [
        ({}, "pad"),
        ({"exponential_bucketing": "True"}, "exp"),
        ({"exponential_bucketing": "False"}, "lin"),
        ({"exponential_bucketing": "True", "bucketing_strategy": "lin"}, "lin"),
    ],
)
def test_features_say_the_strategy_before_the_form_of_the_ranges(
    features: Mapping[str, str], strategy: str
) -> None:
    server = replace(SERVER, features=features, strategy=known("pad"))
    assert printed_strategy(start(server)) == strategy


def test_what_the_log_leaves_out_is_named() -> None:
    told = configured(start(replace(SERVER, max_num_seqs=None, block_size=None)))
    assert told is not None
    assert told.assumed == ("max_num_seqs", "block_size")
    assert (told.flags.max_num_seqs, told.flags.block_size) == (256, 128)
    assert configured(start(replace(SERVER, max_model_len=None))) is None
    assert configured(start(replace(SERVER, version=known("none")))) is None


def test_a_fork_is_known_by_its_build() -> None:
    fork = replace(SERVER, version=known("0.6.3"), build=known("1.21.2"), plugin=False)
    assert release_text(fork) == "fork-1.21.2"
    told = configured(start(replace(fork, max_num_batched_tokens=None)))
    assert told is not None
    assert told.release.name == "fork-1.21"
    assert told.flags.max_num_batched_tokens == 16384


def test_printed_pairs_become_buckets() -> None:
    seen = start(lists={PROMPT: ((2, 128),), DECODE: ((4, 256), (4, 1, 512))})
    assert printed_lists(seen) == {
        PROMPT: (Bucket(2, 128, 0),),
        DECODE: (Bucket(4, 1, 256), Bucket(4, 1, 512)),
    }


def test_a_list_that_is_cut_or_holds_another_shape_is_none() -> None:
    assert bucket_of(PROMPT, (2, 1, 3, 4)) is None
    seen = start(lists={PROMPT: ((2, 128), (2,)), DECODE: ()})
    assert printed_lists(seen) == {}


def test_lists_as_the_rules_give_them_are_no_difference() -> None:
    lists = {phase: made(start(), phase) for phase in (PROMPT, DECODE)}
    assert differences(start(lists=lists)) == ()
    assert differ(Case(start(lists=lists))) is None


def test_a_list_of_other_rules_is_a_finding_that_names_them() -> None:
    flags = {"VLLM_PROMPT_CTX_BUCKET_MAX": known("24")}
    server = replace(SERVER, flags=flags, features={"bucketing_strategy": "lin"})
    older = made(start(server), PROMPT, "gaudi-plugin-0.14")
    (found,) = differences(start(server, {PROMPT: older}))
    assert found.listed.value.count == found.predicted == len(older)
    assert found.added == found.removed > 0
    assert found.like == ("gaudi-plugin-0.14",)
    seen = differ(Case(start(server, {PROMPT: older})))
    assert seen is not None
    assert seen.numbers["prompt_buckets_only_in_log"] == found.added
    assert "rules of gaudi-plugin-0.14 give exactly" in str(seen.words["said"])


def test_a_cut_list_is_compared_by_its_length() -> None:
    seen = start()
    count = len(made(seen, DECODE))
    cut = {DECODE: known(BucketList(count))}
    assert differences(replace(seen, buckets=cut)) == ()
    (found,) = differences(
        replace(seen, buckets={DECODE: known(BucketList(count + 1))})
    )
    assert (found.phase, found.predicted, found.like) == (DECODE, count, ())


def test_nothing_is_made_of_a_size_that_the_log_leaves_out() -> None:
    unsaid = replace(SERVER, max_num_seqs=None)
    lists = {PROMPT: ((1, 128, 0),), DECODE: ((1, 1, 128),)}
    assert [each.phase for each in differences(start(unsaid, lists))] == [PROMPT]


def test_buckets_of_a_file_are_not_compared() -> None:
    flags = {"VLLM_BUCKETING_FROM_FILE": known("/b.txt")}
    server = replace(SERVER, flags=flags)
    assert differences(start(server, {PROMPT: ((1, 128, 0),)})) == ()
