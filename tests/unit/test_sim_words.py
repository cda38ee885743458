"""Words and looks of the simulated server: headers, prefixes, colours, bars, bucket ranges."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.gaudi.ranges import Axis, PaddedAxis, exponential, linear, padded
from hpuwatch.sim.plugin import words
from hpuwatch.sim.talk.bars import Bar, glyphs, interval
from hpuwatch.sim.talk.manner import Manner
from hpuwatch.sim.talk.script import load_script, releases
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.sim.world import Speakers

pytestmark = pytest.mark.unit

_ENGINE = "(EngineCore pid=12) "
_DIALECTS = [f"gaudi-{r}" for r in releases() if r.startswith("plugin-")]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _said(
    name: str,
    release: str = "plugin-0.26",
    manner: Manner | None = None,
    streams: Mapping[str, io.StringIO] | None = None,
    **values: object,
) -> str:
    both = io.StringIO()
    streams = streams or {"stdout": both, "stderr": both}
    voice = Voice(load_script(release), lambda: 0.0, streams, manner)
    voice.say(_ENGINE, name, **values)
    return "".join({id(s): s.getvalue() for s in streams.values()}.values())


def test_a_record_has_prefix_level_time_and_file() -> None:
    said = _said("sampler_start")
    assert said.startswith("(EngineCore pid=12) INFO ")
    assert said.endswith(" [hpu_model_runner.py:5324] Starting sampler warmup...\n")


def test_a_line_that_the_release_lacks_is_not_said() -> None:
    assert _said("bad_reserve", "plugin-0.16", default=0.1) == ""
    assert "using default 0.1" in _said("bad_reserve", "plugin-0.17", default=0.1)
    with pytest.raises(KeyError):
        _said("no_such_line")


def test_at_debug_vllms_files_have_their_path_and_the_plugins_have_none() -> None:
    debug = Manner(level="DEBUG")
    said = _said("engine_ready", manner=debug, seconds=1.0)
    assert "[v1/engine/core.py:347]" in said
    said = _said("loaded_in", manner=debug, seconds=1.0)
    assert "[model_executor/model_loader/default_loader.py:430]" in said
    said = _said("non_default", manner=debug, arguments={})
    assert "[entrypoints/.../utils/api_utils.py:273]" in said
    assert "[common.py:245]" in _said(
        "prompt_buckets", manner=debug, count=0, buckets=[]
    )


def test_levels_hide_what_is_below_them() -> None:
    assert _said("compile_only") == ""
    assert "Using PT_COMPILE_ONLY_MODE." in _said(
        "compile_only", manner=Manner(level="DEBUG")
    )
    assert _said("sampler_start", manner=Manner(level="WARNING")) == ""


def test_users_may_put_a_word_before_the_level_and_choose_the_stream() -> None:
    said = _said("sampler_start", manner=Manner(prefix="myhost "))
    assert said.startswith("(EngineCore pid=12) myhost INFO ")
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    _said("sampler_start", manner=Manner(stream="stderr"), streams=streams)
    assert streams["stdout"].getvalue() == ""
    assert "Starting sampler warmup" in streams["stderr"].getvalue()


def test_each_line_of_a_record_repeats_the_header_behind_a_carriage_return() -> None:
    lines = _said("banner", version="0.26.0", model="m").split("\n")
    assert len(lines) == 7
    assert lines.pop() == ""
    assert all(line.startswith("(EngineCore pid=12) INFO ") for line in lines)
    assert all(line.endswith("\r") for line in lines[:-1])


def test_without_logging_only_warnings_are_seen_and_they_are_bare() -> None:
    silent = Manner(configured=False)
    assert _said("sampler_start", manner=silent) == ""
    warning = "Pin memory is not supported on HPU.\n"
    assert _said("no_pinning", manner=silent) == warning
    # Before 0.17 the prefixes didn't depend on it.
    assert _said("no_pinning", "plugin-0.16", silent) == (
        f"\x1b[0;36m(EngineCore pid=12)\x1b[0;0m {warning}"
    )


@pytest.mark.parametrize(
    ("release", "manner", "terminal", "prefix", "header"),
    [
        ("plugin-0.11", Manner(), False, "\x1b[1;36m", False),
        ("plugin-0.11", Manner(no_color=True), True, "\x1b[1;36m", False),
        ("plugin-0.13", Manner(), False, "\x1b[0;36m", False),
        ("plugin-0.13", Manner(no_color=True), True, "", False),
        ("plugin-0.13", Manner(), True, "\x1b[0;36m", True),
        ("plugin-0.26", Manner(), False, "", False),
        ("plugin-0.26", Manner(), True, "\x1b[0;36m", True),
        ("plugin-0.26", Manner(colour="1"), False, "\x1b[0;36m", True),
        ("plugin-0.26", Manner(colour="0"), True, "", False),
        ("plugin-0.26", Manner(no_color=True, colour="1"), True, "", False),
    ],
)
def test_colours_are_those_of_the_release(
    release: str, manner: Manner, terminal: bool, prefix: str, header: bool
) -> None:
    both = _Terminal() if terminal else io.StringIO()
    streams = {"stdout": both, "stderr": both}
    said = _said("sampler_start", release, manner, streams)
    assert said.startswith(f"{prefix}(EngineCore pid=12)")
    assert ("\x1b[32mINFO\x1b[0m \x1b[90m" in said) is header


def test_a_process_puts_its_prefix_at_line_starts_only() -> None:
    both = io.StringIO()
    streams = {"stdout": both, "stderr": both}
    voice = Voice(load_script(), lambda: 0.0, streams)
    voice.write(_ENGINE, "stderr", "\rfirst")
    voice.write(_ENGINE, "stderr", "\rsecond")
    voice.write("(Worker pid=13) ", "stderr", "another\n")
    voice.write(_ENGINE, "stdout", "a\nb\n")
    voice.write(_ENGINE, "stderr", "\nlast")
    voice.write("", "stderr", "nobody\n")
    assert both.getvalue() == (
        f"{_ENGINE}\rfirst\rsecond(Worker pid=13) another\n"
        f"{_ENGINE}a\n{_ENGINE}b\n\n{_ENGINE}lastnobody\n"
    )


@pytest.mark.parametrize(
    ("release", "engine", "worker"),
    [
        ("plugin-0.11", "EngineCore_DP0", None),
        ("plugin-0.17", "EngineCore_DP0", "Worker"),
        ("plugin-0.19", "EngineCore", "Worker"),
        ("plugin-head", "EngineCore", "Worker"),
    ],
)
def test_processes_are_named_as_the_release_names_them(
    release: str, engine: str, worker: str | None
) -> None:
    script = load_script(release)
    one = Speakers.of(1, script, (5, 6))
    assert (one.front, one.engine) == ("(APIServer pid=5) ", f"({engine} pid=6) ")
    assert one.unranked == one.ranks == (one.engine,)
    two = Speakers.of(2, script, (5, 6, 7, 8))
    assert two.ranks == ("(Worker_TP0 pid=7) ", "(Worker_TP1 pid=8) ")
    named = ("(Worker pid=7) ", "(Worker pid=8) ")
    assert two.unranked == (named if worker else ("", ""))


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
    assert words.ranges(_settings(), PROMPT) == (
        [1, 2, 1, 1],
        [128, 128, 1024, 10],
        [0, 1, 7, 4],
    )
    decode = words.ranges(_settings(), DECODE)
    assert (decode.batch, decode.blocks) == ([1, 2, 8, 4], [1, 8, 64, 7])


def test_linear_figures_are_those_of_a_real_start_of_an_older_release() -> None:
    # As a server of 0.15 printed them, which took the older name for the queries.
    env = {
        "VLLM_PROMPT_SEQ_BUCKET_MIN": "5120",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "1024",
        "VLLM_PROMPT_SEQ_BUCKET_MAX": "20480",
        "VLLM_PROMPT_CTX_BUCKET_STEP": "12",
        "VLLM_PROMPT_CTX_BUCKET_MAX": "24",
    }
    settings = _settings(
        max_num_seqs=256,
        max_num_batched_tokens=32768,
        max_model_len=32768,
        num_blocks=1189,
        contiguous_pa=True,
        dialect="gaudi-plugin-0.16",
        strategy="lin",
        env=env,
    )
    told = words.told(settings, PROMPT)
    assert [name for name, _ in told].count("seq_for_query") == 3
    echoed = [line["name"] for name, line in told if name == "setting_echo"]
    assert echoed[:4] == [
        "VLLM_PROMPT_BS_BUCKET_MIN",
        "VLLM_PROMPT_BS_BUCKET_STEP",
        "VLLM_PROMPT_BS_BUCKET_MAX",
        "VLLM_PROMPT_QUERY_BUCKET_MIN",
    ]
    assert told[-1][1] == {
        "name": "VLLM_PROMPT_CTX_BUCKET_MAX",
        "value": 24,
        "default": 216,
    }
    assert words.ranges(settings, PROMPT).query == [5120, 1024, 20480]
    assert words.ranges(settings, DECODE).blocks == [1, 128, 1189]


def test_the_cache_bounds_decode_blocks_by_strategy_and_release() -> None:
    env = {"VLLM_DECODE_BLOCK_BUCKET_MAX": "900", "VLLM_DECODE_BLOCK_BUCKET_MIN": "600"}
    bounded = _settings(strategy="lin", env=env, num_blocks=500, contiguous_pa=True)
    assert words.ranges(bounded, DECODE).blocks == [372, 128, 500]
    assert [name for name, _ in words.told(bounded, DECODE)][-2:] == [
        "block_max_overruled",
        "block_min_overruled",
    ]
    free = replace(bounded, contiguous_pa=False)
    assert words.ranges(free, DECODE).blocks == [600, 128, 900]
    older = replace(free, dialect="gaudi-plugin-0.19")
    assert words.ranges(older, DECODE).blocks == [372, 128, 500]


def test_exponential_warns_of_seq_and_never_of_query() -> None:
    env = {"VLLM_PROMPT_QUERY_BUCKET_STEP": "256", "VLLM_PROMPT_SEQ_BUCKET_STEP": "256"}
    stars, warning, _ = words.told(_settings(env=env), PROMPT)
    assert stars == ("stars", {})
    assert warning == (
        "exp_ignores",
        {"name": "VLLM_PROMPT_SEQ_BUCKET_STEP", "value": "256"},
    )


def test_merged_prefill_makes_one_row_of_all_prompts() -> None:
    merged = words.merged(_settings(max_num_prefill_seqs=8, merged_prefill=True))
    assert merged.batch == [1, 1, 1, 1]
    assert merged.query == [128, 512, 1024, 10]
    assert merged.blocks[:3] == [0, 4, 56]


def _values(s: BucketSettings, numbers: Sequence[int], dialect: str) -> set[int]:
    """Return what a range that was printed so may contain."""
    kept = (0,) if dialect == "gaudi-plugin-0.11" else (0, 1)
    clipped = dialect not in {"gaudi-plugin-0.11", "gaudi-plugin-0.13"}
    if s.strategy == "exp":
        axis, count = Axis(*numbers[:3]), numbers[3]
        found = exponential(
            axis, count, exact_end=s.contiguous_pa, kept=kept, clipped=clipped
        )
    elif s.strategy == "lin":
        found = linear(Axis(*numbers))
    else:
        found = padded(PaddedAxis(*numbers))
    return set(found)


@given(
    dialect=st.sampled_from(_DIALECTS),
    strategy=st.sampled_from(["exp", "lin", "pad"]),
    contiguous=st.booleans(),
    seqs=st.sampled_from([1, 4, 17, 64]),
    budget=st.sampled_from([512, 2048]),
    length=st.sampled_from([1024, 4096]),
    blocks=st.integers(40, 2000),
    batch=st.sampled_from([None, 2, 8]),
)
def test_the_lists_lie_within_the_ranges_that_are_printed(
    dialect: str,
    strategy: str,
    contiguous: bool,
    seqs: int,
    budget: int,
    length: int,
    blocks: int,
    batch: int | None,
) -> None:
    number = dialect.rpartition(".")[2]
    assume(strategy != "pad" or number in {"21", "26"} or dialect.endswith("head"))
    env = {} if batch is None else {"VLLM_DECODE_BS_BUCKET_MIN": str(batch)}
    settings = _settings(
        dialect=dialect,
        strategy=strategy,
        contiguous_pa=contiguous,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=length,
        num_blocks=blocks,
        env=env,
    )
    try:
        prompts, decodes = (generate(settings, phase) for phase in (PROMPT, DECODE))
    except BucketError:
        return
    _check(settings, PROMPT, prompts, dialect)
    _check(settings, DECODE, decodes, dialect)


def _check(
    s: BucketSettings, phase: str, buckets: tuple[Bucket, ...], dialect: str
) -> None:
    printed = words.ranges(s, phase)
    assert {b.batch for b in buckets} <= _values(s, printed.batch, dialect)
    contexts = _values(s, printed.blocks, dialect)
    if phase == PROMPT:
        assert {b.query for b in buckets} <= _values(s, printed.query, dialect)
    else:
        # A decode is capped at what its sequences can reach, or at the whole cache.
        contexts |= {b.batch * s.blocks_per_sequence for b in buckets} | {s.num_blocks}
    assert {b.context for b in buckets} <= contexts
