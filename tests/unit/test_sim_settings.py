"""The simulator's settings beside the table of knobs and the linter, and against nonsense.

The simulator reads its settings by itself, so that the table and the linter can be wrong
about it.  Every difference that remains stands here with its reason.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.lint.configuration import BucketFile, Configuration, Setting
from hpuwatch.advise.lint.kinds import lint
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.knobs import KNOBS, Knob
from hpuwatch.gaudi.model import BucketError
from hpuwatch.gaudi.spans import covers, point_of
from hpuwatch.sim.config import variables as table
from hpuwatch.sim.config.arguments import flags
from hpuwatch.sim.config.knobs import Knobs, heeds, read_knobs
from hpuwatch.sim.config.options import Options, parse_options
from hpuwatch.sim.config.variables import variables
from tests.simulated import start

pytestmark = pytest.mark.unit

_RELEASES = (
    *("fork-1.18", "fork-1.21", "fork-1.22", "plugin-0.11"),
    *("plugin-0.16", "plugin-0.19", "plugin-0.26", "plugin-head"),
)
_VARIABLES = [name for name, knob in KNOBS.items() if not knob.is_flag]
_FLAGS = [name for name, knob in KNOBS.items() if knob.is_flag]
_OF_STRATEGY = {
    "exp": [release for release in _RELEASES if release.startswith("plugin")],
    "lin": _RELEASES,
    "pad": ["plugin-0.26", "plugin-head"],
}
_SMALL = {"--max-model-len": "2048", "--max-num-seqs": "8", "--block-size": "128"}
_WORDS = [f"{flag}={value}" for flag, value in _SMALL.items()]


class TestTable:
    """The table of variables by itself, and beside the knobs that people are told of."""

    def test_every_row_can_be_read(self) -> None:
        stages = {table.IMPORT, table.FRONT, table.WORKER, table.SPLIT}
        stages |= {table.PICTURES, table.BUCKETS, table.GRAPHS}
        # Values that decide others, or a refusal, on the way to the knobs.
        config = Path(table.__file__).parent
        code = "".join(file.read_text(encoding="utf-8") for file in config.glob("*.py"))
        inner = set(re.findall(r'(?:values|found)\["(\w+)"\]', code))
        for variable in variables().values():
            assert variable.stage in stages
            assert variable.field in {"", *Knobs.__slots__, *inner}
            for release in _RELEASES:
                variable.is_shown(point_of(release))
                variable.without(point_of(release))

    def test_it_holds_every_variable_that_people_are_told_of(self) -> None:
        assert set(_VARIABLES) <= set(variables())
        assert set(_FLAGS) <= set(flags())

    @pytest.mark.parametrize("release", _RELEASES)
    def test_the_same_releases_act_on_a_variable(self, release: str) -> None:
        at = point_of(release)
        differing = {
            name for name in _VARIABLES if heeds(name, at) != KNOBS[name].acts(at)
        }
        assert not differing

    @pytest.mark.parametrize("release", _RELEASES)
    def test_the_same_releases_know_a_flag(self, release: str) -> None:
        at = point_of(release)
        differing = {
            name
            for name in _FLAGS
            if covers(flags()[name].known, at) == KNOBS[name].is_refused(at)
        }
        assert not differing


_LEGAL = {
    "fork-1.22 VLLM_BUCKETING_STRATEGY": "linear_bucketing",
    "VLLM_BUCKETING_STRATEGY": "exp",
    "VLLM_GRAPH_PROMPT_STRATEGY": "max_bs",
    "VLLM_GRAPH_DECODE_STRATEGY": "min_tokens",
    "VLLM_MULTIMODAL_RESOLUTIONS": "640x480,1024x768x1-4",
    "VLLM_DEBUG": "steps,fwd",
    "VLLM_LOGGING_LEVEL": "DEBUG",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_GRAPH_RESERVED_MEM": "0.25",
    "VLLM_UNIFIED_ATTN": "false",
    "VLLM_USE_FAKE_HPU": "0",
    "VLLM_USE_V1": "0",
}
_ENDS_ON_PURPOSE = {
    name for name in _VARIABLES if "PROFILE_" in name or "PT_PROFILE" in name
}


@pytest.mark.parametrize("release", _RELEASES)
def test_a_legal_value_is_accepted(release: str) -> None:
    missing = {"VLLM_BUCKETING_FROM_FILE"}  # needs a file: test_sim_knobs
    for name in sorted(set(_VARIABLES) - _ENDS_ON_PURPOSE - missing):
        value = _LEGAL.get(f"{release} {name}", _LEGAL.get(name, "1"))
        if name == "VLLM_BUCKETING_STRATEGY" and release == "fork-1.22":
            value = "linear_bucketing"
        knobs = read_knobs(replace(_small(release), env={name: value}))
        assert not knobs.deaths, name


@dataclass(frozen=True)
class _Fate:
    """What becomes of one bad value, by the simulator and by the table."""

    dies: bool
    table_says: bool


@cache
def _small(release: str) -> Options:
    """Return a small server without any setting of its environment."""
    return parse_options(["--release", release, *_WORDS], {})


def _fate(knob: Knob, text: str, release: str) -> _Fate:
    found = knob.judge(text, point_of(release))
    try:
        if knob.is_flag:
            chosen = _SMALL | {knob.name: text}
            words = [f"{flag}={value}" for flag, value in chosen.items()]
            with redirect_stderr(io.StringIO()):
                options = parse_options(["--release", release, *words], {})
        else:
            options = replace(_small(release), env={knob.name: text})
        dies = bool(read_knobs(options).deaths)
    except (SystemExit, ConfigError):
        dies = True
    says = found is not None and found.outcome is Outcome.DIES
    return _Fate(dies, says and found is not None and not found.where)


_BAD = ("x", "-1", "0", "1.5", "nan", "tru", "", "a,b", "51")
_SWITCHES = {name for name in _FLAGS if flags()[name].kind in {"switch", "either"}}

_DIFFERENCES = {
    # why the table and the reading of settings differ about a bad value
    "dies later, as no memory is left for the cache": {"VLLM_GRAPH_RESERVED_MEM"},
    "the table doesn't check it": {
        *("--swap-space", "--dtype", "VLLM_LOGGING_LEVEL", "VLLM_LOGGING_STREAM"),
        *("VLLM_LOG_STATS_INTERVAL", "VLLM_BUCKETING_FROM_FILE", "--block-size"),
        "VLLM_MULTIMODAL_BUCKETS",
    },
    "another size forbids it": {"--max-num-batched-tokens", "--tensor-parallel-size"},
    "it can't be simulated": {
        *("--pipeline-parallel-size", "--data-parallel-size"),
        *("VLLM_USE_V1", "VLLM_USE_FAKE_HPU", "VLLM_UNIFIED_ATTN"),
    },
    "a profile ends the server on purpose": _ENDS_ON_PURPOSE - {"VLLM_PROFILE_STEPS"},
    "read under exp alone": {name for name in _VARIABLES if name.endswith("_LIMIT")},
    "nan is a number too": {
        *("VLLM_GRAPH_PROMPT_RATIO", "VLLM_UNIFIED_ATTENTION_SHARED_CACHE_RATIO"),
    },
    "not vLLM reads it, and what it makes of nonsense isn't known": {
        *("PT_HPU_MAX_COMPOUND_OP_SIZE", "OMP_NUM_THREADS"),
    },
    "0 counts as not given": {"--max-num-prefill-seqs"},
}


@pytest.mark.parametrize("release", _RELEASES)
def test_a_bad_value_ends_the_start_where_the_table_says_so(release: str) -> None:
    explained = set().union(*_DIFFERENCES.values())
    differing = {
        (name, text): fate
        for name, knob in KNOBS.items()
        if knob.acts(point_of(release)) and name not in _SWITCHES | explained
        for text in _BAD
        if (fate := _fate(knob, text, release)).dies != fate.table_says
    }
    assert not differing


def test_every_difference_is_one() -> None:
    """What is explained has to differ somewhere, or the explanation is old."""
    for reason, names in _DIFFERENCES.items():
        for name in names:
            knob = KNOBS[name]
            fates = [
                _fate(knob, text, release)
                for release in _RELEASES
                if knob.acts(point_of(release))
                for text in (*_BAD, "1", "1024")
            ]
            assert any(fate.dies != fate.table_says for fate in fates), (reason, name)


_LIN = "VLLM_EXPONENTIAL_BUCKETING=false"
_PAD = "VLLM_BUCKETING_STRATEGY=pad"
_CASES = (
    # what is set, and what the start must or must not survive by both
    "",
    "VLLM_GRAPH_RESERVED_MEM=1",
    "VLLM_GRAPH_RESERVED_MEM=ten",
    "VLLM_GRAPH_RESERVED_MEM=nan",
    "VLLM_BUCKETING_STRATEGY=linear",
    "VLLM_BUCKETING_STRATEGY=pad",
    "VLLM_DECODE_BS_BUCKET_STEP=x",
    f"VLLM_DECODE_BS_BUCKET_STEP=0 {_LIN}",
    "VLLM_PROMPT_QUERY_BUCKET_MIN=x",
    f"VLLM_PROMPT_SEQ_BUCKET_MIN=4096 VLLM_PROMPT_SEQ_BUCKET_MAX=1024 {_LIN}",
    f"VLLM_DECODE_BS_BUCKET_MIN=64 {_LIN}",
    "VLLM_CONTIGUOUS_PA=true --enable-prefix-caching",
    "VLLM_USE_V1=x",
    "VLLM_ENGINE_READY_TIMEOUT_S=soon",
    "VLLM_RPC_TIMEOUT=soon",
    "VLLM_CONFIG_HIDDEN_LAYERS=x",
    "VLLM_DEFRAG_THRESHOLD=x",
    "VLLM_DEBUG=all",
    "VLLM_GRAPH_PROMPT_STRATEGY=fastest",
    "VLLM_GRAPH_PROMPT_RATIO=x",
    "VLLM_BUCKETING_FROM_FILE=/nowhere",
    "VLLM_WORKER_MULTIPROC_METHOD=thread",
    "VLLM_SKIP_WARMUP=maybe",
    "--max-num-seqs=0",
    "--max-num-seqs=many",
    "--gpu-memory-utilization=1.5",
    "--max-model-len=auto",
    "--max-num-batched-tokens=4",
    "--max-num-prefill-seqs=4",
    "--num-scheduler-steps=8",
    "--kv-cache-memory-bytes=1G",
    "--kv-cache-dtype=int2",
    "--block-size=0",
    "VLLM_DELAYED_SAMPLING=true --num-scheduler-steps=8",
    "VLLM_MERGED_PREFILL=true --use-padding-aware-scheduling",
    "--enable-chunked-prefill --use-padding-aware-scheduling",
    "--tensor-parallel-size=3",
    "--max-model-len=999999",
    "VLLM_FULL_WARMUP=1 VLLM_SKIP_WARMUP=true",
    f"VLLM_DECODE_BLOCK_BUCKET_MIN=2000 VLLM_DECODE_BLOCK_BUCKET_MAX=16 {_LIN}",
    "VLLM_DECODE_BS_BUCKET_PAD_PERCENT=51",
    f"{_PAD} VLLM_DECODE_BS_BUCKET_PAD_PERCENT=51",
    f"{_PAD} VLLM_HPU_FSDPA_SLICE_SEQ_LEN_THLD=512",
    f"{_PAD} VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE=512",
    f"{_PAD} VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE=2049",
    f"{_PAD} VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE=2049 VLLM_HPU_FSDPA_SLICE_ENABLED=false",
    "VLLM_DEBUG=",
    "VLLM_CONFIGURE_LOGGING=2",
)
_DISAGREEMENTS = {
    # what is set: the releases about which linter and simulator differ, and why
    "--tensor-parallel-size=3": (set(_RELEASES), "the linter knows no model here"),
    "--max-model-len=999999": (set(_RELEASES), "the linter knows no model here"),
    "VLLM_FULL_WARMUP=1 VLLM_SKIP_WARMUP=true": (
        set(_RELEASES) - {"fork-1.18"},
        "it starts, and dies of its first request",
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_the_linter_foretells_the_death(case: str) -> None:
    differing = {
        release
        for release in _RELEASES
        if _is_doomed(case, release) != _dies(case, release)
    }
    assert differing == _DISAGREEMENTS.get(case, (set(), ""))[0]


def _split(case: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the flags, with those of a small server, and the environment."""
    parts = [word.partition("=") for word in case.split()]
    chosen = {name: value for name, _, value in parts if name.startswith("--")}
    env = {name: value for name, _, value in parts if not name.startswith("--")}
    return _SMALL | chosen, env


def _is_doomed(case: str, release: str) -> bool:
    chosen, env = _split(case)
    told = {
        name: Setting(name, value or "true", "command line")
        for name, value in chosen.items()
    }
    told |= {name: Setting(name, value, "environment") for name, value in env.items()}
    path = env.get("VLLM_BUCKETING_FROM_FILE")
    file = None if path is None else BucketFile(path, None, "no such file")
    found = lint(Configuration(release, told, command=True, bucket_file=file))
    return any(finding.severity == "error" for finding in found)


def _dies(case: str, release: str) -> bool:
    chosen, env = _split(case)
    words = [f"{name}={value}" if value else name for name, value in chosen.items()]
    try:
        with redirect_stderr(io.StringIO()):
            return start("--release", release, *words, **env).failure is not None
    except SystemExit as end:
        return bool(end.code)


_LISTLESS = (
    # what is set, the releases that make no list of it, and the words of that
    ("STEP=0", "lin", "ValueError: range() arg 3 must not be zero"),
    ("STEP=0", "pad", "AssertionError: bucket_step must be positive, got: (0)"),
    (
        "PAD_PERCENT=51",
        "pad",
        "AssertionError: pad_percent must be between 0 and 50 percentage points, got: (51)",
    ),
    (
        "MIN=4096",
        "pad",
        "AssertionError: bucket_min cannot be greater than bucket_max. If you",
    ),
    ("MAX=1" + 400 * "0", "exp", "OverflowError: integer division result too large"),
)


@pytest.mark.parametrize(("setting", "strategy", "words"), _LISTLESS)
def test_without_a_list_it_dies_in_the_runtime_s_words(
    setting: str, strategy: str, words: str
) -> None:
    part, _, value = setting.partition("=")
    env = {f"VLLM_PROMPT_BS_BUCKET_{part}": value}
    if strategy != "pad":
        env["VLLM_EXPONENTIAL_BUCKETING"] = str(strategy == "exp").lower()
    else:
        env["VLLM_BUCKETING_STRATEGY"] = strategy
    for release in _OF_STRATEGY[strategy]:
        failure = start("--release", release, *_WORDS, **env).failure
        assert failure is not None, release
        assert failure.reason.startswith(words), release


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "(1, -5, 0)",
            "RuntimeError: Trying to create tensor with negative dimension -5",
        ),
        ("(1, None, 0)", "TypeError: int() argument must be a string, a bytes-like"),
        ("# none", "ValueError: max() arg is an empty sequence"),
        (
            "nonsense",
            "AttributeError: 'functools._lru_cache_wrapper' object has no attr",
        ),
    ],
)
def test_a_bucket_file_ends_it_in_the_runtime_s_words(
    line: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "buckets.txt"
    file.write_text(f"{line}\n(1, 1, 16)\n")
    failure = start(*_WORDS, VLLM_BUCKETING_FROM_FILE=str(file)).failure
    assert failure is not None
    assert failure.reason.startswith(words)


def test_a_profile_run_of_too_many_prompts_is_out_of_memory_at_once() -> None:
    for release in ("fork-1.18", "fork-1.21"):
        for most in ("1" + 14 * "0", "1000000", 20 * "9", 400 * "9"):
            started = start(
                *("--release", release, "--model", "qwen3-0.6b", *_WORDS),
                VLLM_PROMPT_BS_BUCKET_MAX=most,
            )
            assert started.failure is not None
            assert "MODULE:PT_DEVMEM" in started.failure.reason
            assert started.server.world.pace.passed < 3600


_TEXTS = st.sampled_from(
    (
        *("true", "false", "1", "0", "-1", "7", "64", "300", "0.3", "nan", "inf", ""),
        *("x", "exp", "lin", "pad", "None", "1,2", "640x480", "steps", "fork", "DEBUG"),
        *("ext://sys.stderr", "auto", "fp8", "32k", "{", "é\n", 20 * "9", 400 * "9"),
    )
)
# Tiny blocks make lists of a hundred thousand buckets, which takes its time.
_NOT_ASKED = {"--port", "--model", "--block-size"}
_SET = st.dictionaries(st.sampled_from(sorted(variables())), _TEXTS, max_size=4)
_GIVEN = st.dictionaries(
    st.sampled_from(sorted(set(flags()) - _NOT_ASKED)), _TEXTS, max_size=3
)
_EXTRA = st.lists(
    st.sampled_from(("serve", "--", "-tp", "--release", "-q", "", "--help")), max_size=1
)


@pytest.fixture(scope="module", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a folder that may be written to: any word may name a recipe cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("settings"))
        yield


@settings(max_examples=150)
@given(st.sampled_from(_RELEASES), _SET, _GIVEN, _EXTRA)
def test_any_setting_starts_or_ends_in_real_words(
    release: str, env: dict[str, str], chosen: dict[str, str], extra: list[str]
) -> None:
    words = [
        name if flags()[name].kind == "switch" else f"{name}={value}"
        for name, value in (_SMALL | chosen).items()
    ]
    end = _end(["--release", release, *words, *extra], env)
    assert re.match(
        r"ready|usage: |[\w.]+(Error|Interrupt)(: |$)|\S+ .* can't be ", end
    )


def _end(words: list[str], env: dict[str, str]) -> str:
    """Return ``ready``, or what the server or its command line ends with.

    What hpuwatch itself says of lists that can't be made never reaches a log.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            started = start(*words, **env)
    except SystemExit:
        return said.getvalue()
    except ConfigError as error:
        return str(error)
    if started.failure is None:
        return "ready"
    cause = started.failure.__context__
    assert not (isinstance(cause, BucketError) and str(cause) in started.output)
    return started.failure.reason
