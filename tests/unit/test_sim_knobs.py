"""The environment of the simulated server, as each release understands it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.gaudi.buckets import DECODE, PROMPT, generate
from hpuwatch.sim.config.bucketing import bucket_settings
from hpuwatch.sim.config.knobs import KnobError, Knobs, read_knobs
from hpuwatch.sim.config.options import Options, parse_options

pytestmark = pytest.mark.unit

_RELEASES = (
    *("fork-1.18", "fork-1.21", "fork-1.22", "plugin-0.11"),
    *("plugin-0.16", "plugin-0.19", "plugin-0.26", "plugin-head"),
)


def _options(release: str, *arguments: str, **env: str) -> Options:
    return parse_options(["--release", release, *arguments], env)


def _knobs(release: str, *arguments: str, **env: str) -> Knobs:
    return read_knobs(_options(release, *arguments, **env))


@pytest.mark.parametrize("release", _RELEASES)
@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "on", "treu", ""])
def test_a_truth(release: str, text: str) -> None:
    """Up to fork-1.21 only one word is yes; typing errors are no."""
    understood = text.lower() == "true" or (
        release not in {"fork-1.18", "fork-1.21"} and text in {"1", "yes", "on"}
    )
    assert _knobs(release, VLLM_SKIP_WARMUP=text).skip_warmup is understood


def test_some_truths_have_rules_of_their_own() -> None:
    assert not _knobs("plugin-0.26", VLLM_FULL_WARMUP="yes").full_warmup
    name = "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION"
    assert _knobs("fork-1.21", **{name: "false"}).step_compilations
    assert not _knobs("plugin-0.26", **{name: "true"}).step_compilations


@pytest.mark.parametrize("release", _RELEASES)
def test_the_reserve(release: str) -> None:
    assert _knobs(release).reserve == (0.4 if release == "fork-1.18" else 0.1)
    knobs = _knobs(release, VLLM_GRAPH_RESERVED_MEM="ten")
    if release in {"plugin-0.19", "plugin-0.26", "plugin-head"}:
        (warned,) = knobs.warned("split")
        assert (warned.line, dict(warned.values)) == (
            "bad_reserve",
            {"default": 0.1},
        )
    else:
        with pytest.raises(KnobError, match="could not convert string to float: 'ten'"):
            knobs.check("split")


@pytest.mark.parametrize(
    ("release", "env", "strategy"),
    [
        ("fork-1.18", {"VLLM_EXPONENTIAL_BUCKETING": "true"}, "lin"),
        ("fork-1.21", {}, "lin"),
        ("fork-1.21", {"VLLM_EXPONENTIAL_BUCKETING": "1"}, "lin"),
        ("fork-1.21", {"VLLM_EXPONENTIAL_BUCKETING": "true"}, "exp"),
        ("fork-1.22", {}, "exp"),
        ("plugin-0.16", {"VLLM_EXPONENTIAL_BUCKETING": "flase"}, "lin"),
        ("plugin-0.19", {"VLLM_BUCKETING_STRATEGY": "pad"}, "exp"),
        ("plugin-0.26", {"VLLM_BUCKETING_STRATEGY": "pad"}, "pad"),
    ],
)
def test_the_strategy(release: str, env: dict[str, str], strategy: str) -> None:
    assert _knobs(release, **env).strategy == strategy


def test_the_older_switch_overrules_the_strategy() -> None:
    env = {"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_EXPONENTIAL_BUCKETING": "flase"}
    knobs = _knobs("plugin-0.26", **env)
    # A typing error is false, and false means linear.
    assert knobs.strategy == "lin"
    deprecated, overruled = knobs.warned("buckets")
    assert deprecated.line == "strategy_deprecated"
    assert dict(overruled.values) == {
        "strategy": "PaddingAwareBucketingStrategy",
        "new_strategy": "LinearBucketingStrategy",
        "value": "flase",
    }


@pytest.mark.parametrize(
    ("release", "words", "env", "paged", "caching"),
    [
        ("fork-1.18", "", {}, False, False),
        ("fork-1.21", "", {}, True, False),
        ("fork-1.21", "--enable-prefix-caching", {}, False, True),
        ("fork-1.22", "", {"VLLM_CONTIGUOUS_PA": "0"}, False, False),
        ("plugin-0.26", "", {}, False, True),
        ("plugin-0.26", "--no-enable-prefix-caching", {}, False, False),
        ("plugin-0.26", "", {"VLLM_CONTIGUOUS_PA": "true"}, True, False),
        # Prefix caching is turned off by a reading that knows two spellings only.
        ("plugin-0.26", "", {"VLLM_CONTIGUOUS_PA": "yes"}, True, True),
    ],
)
def test_contiguous_attention_and_prefix_caching(
    release: str,
    words: str,
    env: dict[str, str],
    paged: bool,
    caching: bool,
) -> None:
    knobs = _knobs(release, *words.split(), **env)
    assert (knobs.contiguous_pa, knobs.prefix_caching) == (paged, caching)
    warned = [warned.line for warned in knobs.warned("front")]
    assert ("contiguous_pa" in warned) is (
        release == "plugin-0.26" and not caching and paged
    )


@pytest.mark.parametrize(
    ("release", "words", "env", "prefills"),
    [
        ("fork-1.18", "", {}, 64),
        ("fork-1.21", "", {}, 256),
        ("fork-1.21", "--max-num-prefill-seqs 16", {}, 16),
        ("fork-1.21", "", {"VLLM_PROMPT_BS_BUCKET_MAX": "8"}, 256),
        ("plugin-0.11", "", {}, 1),
        ("plugin-0.26", "", {"VLLM_PROMPT_BS_BUCKET_MAX": "8"}, 8),
        ("plugin-0.26", "", {"VLLM_MERGED_PREFILL": "1"}, 256),
    ],
)
def test_the_batch_of_a_prefill(
    release: str, words: str, env: dict[str, str], prefills: int
) -> None:
    assert _knobs(release, *words.split(), **env).max_prefill_seqs == prefills


def test_what_the_user_set_is_listed_in_the_logs_order() -> None:
    env = {
        "VLLM_PROMPT_CTX_BUCKET_MAX": "1",
        "VLLM_CONTIGUOUS_PA": "true",  # a feature, not one of the user's flags
        "VLLM_PROMPT_QUERY_BUCKET_STEP": "256",
        "VLLM_DEVELOPER_MODE": "true",
        "PT_HPU_LAZY_MODE": "1",
    }
    assert _knobs("plugin-0.26", **env).flags == (
        ("VLLM_DEVELOPER_MODE", True),
        ("VLLM_PROMPT_QUERY_BUCKET_STEP", 256),
        ("VLLM_PROMPT_CTX_BUCKET_MAX", 1),
        ("PT_HPU_WEIGHT_SHARING", "0"),
    )
    eager = _knobs("plugin-0.16", VLLM_EXPONENTIAL_BUCKETING="False")
    assert eager.flags == (
        ("VLLM_EXPONENTIAL_BUCKETING", False),
        ("PT_HPU_WEIGHT_SHARING", "0"),
        ("RUNTIME_SCALE_PATCHING", "1"),
    )


def test_the_core_warns_of_what_isnt_its_own() -> None:
    env = {"VLLM_DEFRAG": "1", "VLLM_API_KEY": "x", "VLLM_TYPO": "", "OTHER": "1"}
    assert _knobs("plugin-0.26", **env).unknown_variables == (
        "VLLM_DEFRAG",
        "VLLM_TYPO",
    )
    assert not _knobs("plugin-0.16", **env).unknown_variables


def test_a_missing_bucket_file_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "buckets.txt"
    path = {"VLLM_BUCKETING_FROM_FILE": str(file)}
    assert "FileNotFoundError" in _knobs("plugin-0.26", **path).deaths["buckets"]
    file.write_text("(1, 128, 0)\n(1, 1, 128)\n")
    knobs = _knobs("plugin-0.26", **path)
    assert (knobs.strategy, knobs.deaths) == ("file", {})
    options = _options("plugin-0.26", **path)
    settings = bucket_settings(options, knobs, 512)
    assert len(generate(settings, PROMPT)) == len(generate(settings, DECODE)) == 1


@pytest.mark.parametrize("release", _RELEASES)
def test_the_lists_can_be_made(release: str) -> None:
    words = (
        "--max-num-seqs",
        "8",
        "--max-model-len",
        "2048",
        "--block-size",
        "128",
    )
    options = _options(release, *words)
    settings = bucket_settings(options, read_knobs(options), 512)
    assert settings.dialect == options.dialect
    assert generate(settings, PROMPT)
    assert generate(settings, DECODE)
