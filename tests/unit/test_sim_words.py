"""Command line, environment, bars and bucket figures of the simulated server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import Bucket, BucketSettings
from hpuwatch.sim.config.knobs import KnobError, check_bucket_numbers, read_knobs
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.plugin import words as bucket_words
from hpuwatch.sim.talk.bars import Bar, glyphs, interval
from hpuwatch.sim.truth.recipes import Recipes

pytestmark = pytest.mark.unit


def test_the_shortest_command_line_is_enough() -> None:
    options = parse_options([], {})
    assert options.model.name == "meta-llama/Llama-3.1-8B-Instruct"
    assert options.card.name == "gaudi2"
    assert options.served_names == (options.model.name,)
    assert options.tensor_parallel == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "llama-3.1-70b"],
        ["serve", "llama-3.1-70b"],
        ["serve", "meta-llama/Llama-3.1-70B-Instruct"],
        ["--model", "/models/Llama-3.1-70B-Instruct"],
    ],
)
def test_a_model_is_named_as_for_vllm(arguments: list[str]) -> None:
    options = parse_options(arguments, {})
    assert options.model.name == "meta-llama/Llama-3.1-70B-Instruct"
    assert options.tensor_parallel == 4


def test_flags_may_have_underscores_and_equal_signs() -> None:
    options = parse_options(
        ["--max_num_seqs=64", "--gpu_memory_utilization", "0.8"], {}
    )
    assert options.max_num_seqs == 64
    assert options.utilisation == 0.8


def test_only_what_departs_from_the_default_is_shown() -> None:
    arguments = ["--max-num-seqs", "64", "--speed", "9", "--port", "8000"]
    shown = parse_options(arguments, {}).shown
    assert shown["max_num_seqs"] == 64
    assert "port" not in shown
    assert "speed" not in shown


def test_serving_keeps_the_speed_unless_told_otherwise() -> None:
    assert parse_options(["--speed", "20"], {}).serving_speed == 20
    both = parse_options(["--speed", "20", "--serving-speed", "5"], {})
    assert both.serving_speed == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--no-such-flag"], "vllm: error: unrecognized arguments: --no-such-flag\n"),
        (
            ["--max-num-seqs", "many"],
            "vllm serve: error: argument --max-num-seqs: invalid int value: 'many'\n",
        ),
        (["--model", "foo"], "argument --model: 'foo' can't be simulated"),
    ],
)
def test_a_bad_command_line_is_refused_in_vllms_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options(arguments, {})
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_a_bad_reserve_takes_the_default() -> None:
    knobs = read_knobs({"VLLM_GRAPH_RESERVED_MEM": "ten"})
    assert knobs.reserve_was_bad
    assert knobs.reserve == 0.1


def test_a_bad_strategy_is_fatal() -> None:
    with pytest.raises(KnobError, match="Invalid bucketing strategy: linear"):
        read_knobs({"VLLM_BUCKETING_STRATEGY": "linear"})


def test_the_older_switch_overrules_the_strategy() -> None:
    env = {"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_EXPONENTIAL_BUCKETING": "flase"}
    knobs = read_knobs(env)
    # A typing error is false, and false means linear.
    assert knobs.strategy == "lin"
    assert knobs.strategy_overruled == "pad"


def test_a_bucket_variable_has_to_be_an_integer() -> None:
    with pytest.raises(KnobError) as error:
        check_bucket_numbers({"VLLM_DECODE_BS_BUCKET_STEP": "x"})
    assert str(error.value) == (
        "RuntimeError: VLLM_DECODE_BS_BUCKET_STEP:"
        " failed to process environment variable"
    )


@given(st.floats(0, 1))
def test_a_bar_is_always_ten_columns_wide(share: float) -> None:
    assert len(glyphs(share)) == 10


def test_a_bar_is_drawn_as_tqdm_draws_it() -> None:
    bar = Bar(35)
    fields = bar.fields()
    assert (fields["elapsed"], fields["left"], fields["rate"]) == (
        "00:00",
        "?",
        "?item/s",
    )
    bar.wait(1.74)
    bar.advance()
    fields = bar.fields()
    assert fields["bar"] == "▎         "
    assert (fields["elapsed"], fields["left"]) == ("00:01", "00:59")
    assert fields["rate"] == " 1.74s/item"
    for _ in range(9):
        bar.wait(0.25)
        bar.advance()
    assert str(bar.fields()["rate"]).endswith("item/s")


def test_long_waits_have_hours() -> None:
    assert interval(59.9) == "00:59"
    assert interval(3661) == "1:01:01"


def _settings(**changes: object) -> BucketSettings:
    fields: dict[str, object] = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 1024,
        "max_model_len": 1024,
        "num_blocks": 1271886,
    }
    return BucketSettings(**(fields | changes))  # type: ignore[arg-type]


def test_exponential_figures_are_those_of_a_real_start() -> None:
    # The real plugin 0.26 printed these figures for these settings.
    prompt = dict(bucket_words.axes(_settings(), "prompt"))
    assert prompt == {
        "PROMPT_BS": [1, 2, 1, 1],
        "PROMPT_QUERY": [128, 128, 1024, 10],
        "PROMPT_CTX": [0, 1, 7, 4],
    }
    decode = dict(bucket_words.axes(_settings(), "decode"))
    assert decode == {"DECODE_BS": [1, 2, 8, 4], "DECODE_BLOCK": [1, 8, 64, 7]}


def test_linear_figures_follow_the_environment_and_are_echoed() -> None:
    env = {"VLLM_DECODE_BLOCK_BUCKET_STEP": "32"}
    settings = _settings(strategy="lin", env=env)
    assert dict(bucket_words.axes(settings, "decode"))["DECODE_BLOCK"] == [1, 32, 128]
    echoes = bucket_words.echoes(settings, "decode")
    assert ("VLLM_DECODE_BLOCK_BUCKET_STEP", 32, 128) in echoes
    assert ("VLLM_DECODE_BS_BUCKET_MAX", 8, 8) in echoes


def test_the_older_name_of_the_query_axis_is_used_where_it_is_alone() -> None:
    env = {
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "256",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "512",
        "VLLM_PROMPT_QUERY_BUCKET_MAX": "768",
    }
    settings = _settings(strategy="lin", env=env)
    figures = dict(bucket_words.axes(settings, "prompt"))
    assert figures["PROMPT_QUERY"] == [128, 256, 768]
    ((query, seq, value),) = bucket_words.seq_for_query(settings)
    assert query == "VLLM_PROMPT_QUERY_BUCKET_STEP"
    assert (seq, value) == ("VLLM_PROMPT_SEQ_BUCKET_STEP", "256")


def test_contiguous_attention_caps_decode_blocks_at_the_cache() -> None:
    env = {"VLLM_DECODE_BLOCK_BUCKET_MAX": "900", "VLLM_DECODE_BLOCK_BUCKET_MIN": "600"}
    settings = _settings(strategy="lin", env=env, num_blocks=500, contiguous_pa=True)
    figures = dict(bucket_words.axes(settings, "decode"))
    assert figures["DECODE_BLOCK"] == [372, 128, 500]
    assert bucket_words.overruled_block_max(settings) == 900


def test_padding_aware_figures_have_five_numbers() -> None:
    for phase in ("prompt", "decode"):
        for _, numbers in bucket_words.axes(_settings(strategy="pad"), phase):
            assert len(numbers) == 5


def test_exponential_warns_of_seq_and_never_of_query() -> None:
    env = {"VLLM_PROMPT_QUERY_BUCKET_STEP": "256", "VLLM_PROMPT_SEQ_BUCKET_STEP": "256"}
    ignored = bucket_words.ignored_by_exp(env, "prompt")
    assert ignored == (("VLLM_PROMPT_SEQ_BUCKET_STEP", "256"),)


def test_a_recipe_is_compiled_once(tmp_path: Path) -> None:
    config = f"{tmp_path}/cache,false,1024"
    bucket = Bucket(1, 128, 0)
    assert Recipes(config, "model").compiles("prompt", bucket)
    assert not Recipes(config, "model").compiles("prompt", bucket)
    assert Recipes(config, "another").compiles("prompt", bucket)
    assert Recipes(f"{tmp_path}/cache,true,1024", "model").compiles("prompt", bucket)


def test_without_a_cache_every_start_compiles() -> None:
    assert Recipes("", "model").compiles("prompt", Bucket(1, 128, 0))
