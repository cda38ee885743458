"""Lint over configurations: each kind of finding, under the releases where it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.finding import SEVERITIES
from hpuwatch.advise.lint.configuration import (
    BucketFile,
    Configuration,
    Setting,
    WarmupTime,
)
from hpuwatch.advise.lint.interplay import conflicting
from hpuwatch.advise.lint.kinds import LINT_KINDS, documentation, lint
from hpuwatch.advise.lint.remark import LintFinding
from hpuwatch.gaudi.basis import Printed
from hpuwatch.gaudi.conflict import Conflict, If
from hpuwatch.gaudi.conflicts import CONFLICTS
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.resolve import Flags
from hpuwatch.gaudi.spans import RELEASES, covers, point_of

pytestmark = pytest.mark.unit

FILE = "VLLM_BUCKETING_FROM_FILE"
TOKENS = "max-num-batched-tokens"


def configuration(
    release: str = NEWEST, values: dict[str, str] | None = None, **seen: object
) -> Configuration:
    settings = {
        name: Setting(name, value, "here") for name, value in (values or {}).items()
    }
    return Configuration(release, settings, **seen)  # type: ignore[arg-type]  # facts by name


def codes(found: tuple[LintFinding, ...]) -> dict[str, list[str]]:
    """Return the names that each code was found for."""
    told: dict[str, list[str]] = {}
    for each in found:
        told.setdefault(each.code, []).append(each.remark.about.name)
    return told


def found(release: str = NEWEST, **values: str) -> dict[str, list[str]]:
    """Lint variables, and flags that are spelt as ``max_num_seqs``."""
    named = {
        name if name.isupper() else "--" + name.replace("_", "-"): value
        for name, value in values.items()
    }
    return codes(lint(configuration(release, named)))


def test_a_sound_configuration_has_no_finding() -> None:
    assert found(VLLM_GRAPH_RESERVED_MEM="0.05", max_num_seqs="128") == {}


@pytest.mark.parametrize(
    ("release", "name", "value", "code"),
    [
        (NEWEST, "VLLM_GRAPH_PROMPT_RATIO", "0.3", "knob-ignored"),
        ("fork-1.22", "VLLM_GRAPH_PROMPT_RATIO", "0.3", "knob-ignored"),
        (NEWEST, "VLLM_GRAPH_PROMPT_STRATEGY", "max_bs", "knob-ignored"),
        (NEWEST, "--kv-cache-memory-bytes", "20G", "knob-ignored"),
        ("fork-1.21", "--kv-cache-memory-bytes", "20G", "flag-unknown"),
        ("plugin-0.10.1", "--kv-cache-memory-bytes", "20G", "flag-unknown"),
        (NEWEST, "--swap-space", "4", "knob-ignored"),
        (NEWEST, "--max-num-prefill-seqs", "4", "flag-unknown"),
        ("vllm-0.8", "--max-num-prefill-seqs", "4", "flag-unknown"),
        (NEWEST, "--use-padding-aware-scheduling", "true", "flag-unknown"),
        (NEWEST, "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION", "1", "knob-ignored"),
        ("plugin-0.18", "VLLM_UNIFIED_ATTN", "1", "knob-ignored"),
        ("plugin-0.18", "VLLM_UNIFIED_ATTN_OTHER", "1", "knob-ignored"),
        ("fork-1.22", "VLLM_PROMPT_BS_BUCKET_LIMIT", "4", "knob-ignored"),
        (NEWEST, "VLLM_DELAYED_SAMPLING", "true", "knob-ignored"),
        ("plugin-0.13", "VLLM_ENGINE_READY_TIMEOUT_S", "3600", "knob-ignored"),
        ("fork-1.21", "VLLM_PROMPT_QUERY_BUCKET_MAX", "512", "knob-ignored"),
        (NEWEST, "VLLM_REGIONAL_COMPILATION", "true", "knob-renamed"),
        ("plugin-0.10.1", "VLLM_REGIONAL_COMPILATION", "true", "knob-renamed"),
        (NEWEST, "VLLM_DECODE_SEQ_BUCKET_MAX", "2048", "knob-renamed"),
        (NEWEST, "VLLM_ENABLE_EXPERIMENTAL_FLAGS", "1", "knob-renamed"),
        (NEWEST, "PT_RECIPE_CACHE_PATH", "/cache", "knob-deprecated"),
        (NEWEST, "VLLM_EXPONENTIAL_BUCKETING", "true", "knob-deprecated"),
        (NEWEST, "PT_COMPILE_ONLY_MODE", "1", "knob-internal"),
        (NEWEST, "VLLM_GRAPH_RESERVD_MEM", "0.1", "name-misspelt"),
        (NEWEST, "vllm_skip_warmup", "true", "name-misspelt"),
        (NEWEST, "--gpu-memory-utilisation", "0.9", "name-misspelt"),
        (NEWEST, "VLLM_PROMPT_QUERY_BUCKET_STEP", "64", "strategy-ignores"),
        (NEWEST, "VLLM_PROMPT_CTX_BUCKET_STEP", "64", "strategy-ignores"),
        (NEWEST, "VLLM_SKIP_WARMUP", "ture", "value-reads-false"),
        ("fork-1.21", "VLLM_SKIP_WARMUP", "1", "value-reads-false"),
        ("fork-1.21", "VLLM_HPU_LOG_STEP_CPU_FALLBACKS", "no", "value-reads-true"),
        ("plugin-0.17", "VLLM_GRAPH_RESERVED_MEM", "x", "value-replaced"),
        ("plugin-0.16", "VLLM_GRAPH_RESERVED_MEM", "x", "value-stops-server"),
        (NEWEST, "VLLM_DECODE_BS_BUCKET_STEP", "x", "value-stops-server"),
        (NEWEST, "--block-size", "16", "value-odd"),
        ("plugin-0.17", "VLLM_PROMPT_BS_BUCKET_MAX", "4", "bound-acts-anyway"),
        ("fork-1.22", "VLLM_BUCKETING_STRATEGY", "lin", "value-stops-server"),
        ("plugin-0.10", "VLLM_BUCKETING_STRATEGY", "exp", "value-stops-server"),
    ],
)
def test_one_setting_and_its_finding(
    release: str, name: str, value: str, code: str
) -> None:
    assert codes(lint(configuration(release, {name: value}))).get(code) == [name]


@pytest.mark.parametrize(
    ("release", "name", "value"),
    [
        ("fork-1.21", "VLLM_GRAPH_PROMPT_RATIO", "0.3"),
        ("fork-1.22", "--max-num-prefill-seqs", "4"),
        ("plugin-0.10.0", "VLLM_REGIONAL_COMPILATION", "true"),
        ("fork-1.17", "VLLM_DECODE_SEQ_BUCKET_MAX", "2048"),
        ("plugin-0.14", "VLLM_ENGINE_READY_TIMEOUT_S", "3600"),
        (NEWEST, "VLLM_HOST_IP", "127.0.0.1"),
        (NEWEST, "--served-model-name", "m"),
        (NEWEST, "PATH", "/bin"),
    ],
)
def test_one_setting_without_a_finding(release: str, name: str, value: str) -> None:
    assert lint(configuration(release, {name: value})) == ()


@pytest.mark.parametrize(
    "name",
    [
        *("VLLM_PP_LAYER_PARTITION", "VLLM_LOG_BATCHSIZE_INTERVAL", "VLLM_PLUGINS"),
        *("VLLM_PROMPT_BUCKETING_STRATEGY", "VLLM_HPU_CONVERT_TO_FP8UZ", "PT_HPU_X"),
        *("--max-num-partial-prefills", "--kv-cache-dtype-skip-layers", "--seed"),
        *("--data-parallel-size-local", "--disable-log-requests", "--enable-lora"),
    ],
)
def test_other_names_of_vllm_are_not_taken_for_typing_errors(name: str) -> None:
    assert lint(configuration(values={name: "1"})) == ()


def test_what_an_old_release_never_reads_does_not_stop_it() -> None:
    name = "VLLM_PROMPT_BS_BUCKET_MIN"
    assert found("fork-1.21", **{name: "x"}) == {"value-stops-server": [name]}
    exp = found("fork-1.21", VLLM_EXPONENTIAL_BUCKETING="true", **{name: "x"})
    assert exp == {"strategy-ignores": [name]}


def test_query_bounds_act_under_lin_only_and_one_under_exp() -> None:
    step = {"VLLM_PROMPT_QUERY_BUCKET_STEP": "64"}
    assert "strategy-ignores" not in found(VLLM_BUCKETING_STRATEGY="lin", **step)
    assert "strategy-ignores" in found(VLLM_BUCKETING_STRATEGY="exp", **step)
    assert found(VLLM_PROMPT_QUERY_BUCKET_MIN="1") == {}
    # The context's maximum bounds long contexts, whatever the strategy.
    context = {"VLLM_PROMPT_CTX_BUCKET_MAX": "64"}
    assert "strategy-ignores" in found(**context, max_model_len="4096")
    assert found(**context, max_model_len="16384") == {}


def test_an_older_name_is_named_where_only_that_acts() -> None:
    told = lint(configuration("fork-1.22", {"VLLM_DEVELOPER_MODE": "1"}))
    assert [each.code for each in told] == ["knob-ignored"]
    assert "VLLM_ENABLE_EXPERIMENTAL_FLAGS" in told[0].remark.cure


# Settings with which each conflict holds; a default has to be told by its release.
def _holding(conflict: Conflict) -> dict[str, str]:
    values: dict[str, str] = {}
    for condition in conflict.when:
        values |= _making(condition)
    return values


def _making(condition: If) -> dict[str, str]:
    name = condition.knobs[0]
    match condition.test:
        case "set" | "given" | "on":
            return {name: "true" if name.startswith("--") else _yes(name)}
        case "off":
            return {name: "false"}
        case "several":
            return {name: "8"}
        case "equals":
            return {name: condition.values[0]}
        case "differs":
            return {name: "exp"}
        case "unset":
            return {}


def _yes(name: str) -> str:
    return "1" if KNOBS[name].judge("1", point_of(NEWEST)) is None else "true"


each_conflict = pytest.mark.parametrize(
    "conflict", CONFLICTS, ids=[f"{each.code}-{n}" for n, each in enumerate(CONFLICTS)]
)


@each_conflict
def test_each_conflict_is_found_where_it_holds(conflict: Conflict) -> None:
    values = {
        # Up to fork-1.21 only the word true means yes, for some.
        name: "true" if value == "1" and "LAZY_MODE" not in name else value
        for name, value in _holding(conflict).items()
    }
    if conflict.code == "v1-refused":
        values = {"VLLM_USE_V1": "1"}
    elif conflict.code == "fake-card":
        values = {"VLLM_USE_FAKE_HPU": "1"}
    holds = [name for name in RELEASES if covers(conflict.releases, point_of(name))]
    for release in (holds[0], holds[-1]):
        told = [*conflicting(conflict.code)(configuration(release, values))]
        assert told, (release, values)
        assert told[0].about.name in conflict.when[0].knobs
    rows = [each for each in CONFLICTS if each.code == conflict.code]
    for release in RELEASES:
        if not any(covers(each.releases, point_of(release)) for each in rows):
            assert not [*conflicting(conflict.code)(configuration(release, values))]


@each_conflict
def test_a_conflict_takes_its_first_setting(conflict: Conflict) -> None:
    """Without it nothing is wrong, whatever the defaults."""
    values = _holding(conflict)
    for name in conflict.when[0].knobs:
        values.pop(name, None)
    for release in RELEASES:
        assert not [*conflicting(conflict.code)(configuration(release, values))]


@each_conflict
def test_a_conflict_takes_all_of_its_settings(conflict: Conflict) -> None:
    at = next(name for name in RELEASES if covers(conflict.releases, point_of(name)))
    for condition in conflict.when[1:]:
        if condition.test not in {"set", "given", "several"}:
            continue  # a default may hold as well
        values = _holding(conflict)
        for name in condition.knobs:
            values.pop(name, None)
        assert not [*conflicting(conflict.code)(configuration(at, values))]


def test_defaults_count_for_the_other_side_of_a_conflict() -> None:
    paged = {"VLLM_CONTIGUOUS_PA": "true"}
    assert found(**paged) == {"prefix-caching-lost": ["VLLM_CONTIGUOUS_PA"]}
    off = {"enable_prefix_caching": "false"}
    assert found(**paged, **off) == {}
    # In the fork contiguous attention is what is on by itself.
    drafts = {"speculative_config": "{}"}
    assert "drafts-refused" in found("fork-1.22", **drafts)
    assert "drafts-refused" not in found(
        "fork-1.22", **drafts, VLLM_CONTIGUOUS_PA="false"
    )


def test_a_finding_tells_who_else_is_meant_and_where_it_was_set() -> None:
    settings = {
        "VLLM_BUCKETING_STRATEGY": Setting("VLLM_BUCKETING_STRATEGY", "lin", "a.env:3"),
        "VLLM_EXPONENTIAL_BUCKETING": Setting(
            "VLLM_EXPONENTIAL_BUCKETING", "true", "environment"
        ),
    }
    told = lint(Configuration(NEWEST, settings))[0]
    assert told.code == "strategy-overridden"
    assert told.remark.about.where == "a.env:3"
    assert "VLLM_EXPONENTIAL_BUCKETING=true (environment)" in told.remark.happens
    alone = lint(configuration(values={"VLLM_ENABLE_BUCKETING": "false"}))
    assert [each.code for each in alone] == ["buckets-off"]
    assert "other" not in alone[0].remark.happens


def test_contiguous_attention_cuts_decodes_at_the_blocks() -> None:
    values = {
        "VLLM_BUCKETING_STRATEGY": "lin",
        "VLLM_DECODE_BLOCK_BUCKET_MAX": "4000",
        "--enable-prefix-caching": "false",
        "--max-num-seqs": "32",
    }
    paged = {**values, "VLLM_CONTIGUOUS_PA": "true"}
    told = [codes(lint(configuration(values=paged, num_blocks=n))) for n in (64, 4000)]
    assert told == [{"bound-cut": ["VLLM_DECODE_BLOCK_BUCKET_MAX"]}, {}]
    assert "bound-cut" not in codes(lint(configuration(values=values, num_blocks=64)))


def test_a_minimum_above_its_maximum_stops_the_server() -> None:
    lin = {"VLLM_BUCKETING_STRATEGY": "lin"}
    name = "VLLM_DECODE_BS_BUCKET_MIN"
    wrong = {"minimum-above-maximum": [name]}
    assert found(**lin, **{name: "64"}, VLLM_DECODE_BS_BUCKET_MAX="32") == wrong
    # The maximum may be a default that another flag decides.
    assert found(**lin, **{name: "64"}, max_num_seqs="32") == wrong
    assert found(**lin, **{name: "64"}, max_num_seqs="64") == {}
    assert found(**lin, **{name: "1_x"}) == {"value-stops-server": [name]}


@pytest.mark.parametrize(
    ("release", "severity"),
    [("plugin-0.20", "error"), ("plugin-0.21", "warning"), (NEWEST, "warning")],
)
def test_the_least_context_of_decodes_gives_way_under_lin(
    release: str, severity: str
) -> None:
    values = {
        "VLLM_DECODE_BLOCK_BUCKET_MIN": "2000",
        "VLLM_DECODE_BLOCK_BUCKET_MAX": "16",
    }
    for strategy, expected in (("lin", severity), ("pad", "error")):
        chosen = {**values, "VLLM_BUCKETING_STRATEGY": strategy}
        told = lint(configuration(release, chosen))
        assert [(each.code, each.severity) for each in told] == [
            ("minimum-above-maximum", expected)
        ]
    # What gives way hides no other reason to stop.
    chosen = {**values, "VLLM_BUCKETING_STRATEGY": "lin", "--max-model-len": "8192"}
    chosen |= {"VLLM_PROMPT_QUERY_BUCKET_MIN": "4096"}
    chosen |= {"VLLM_PROMPT_QUERY_BUCKET_MAX": "8192"}
    stops = "no-buckets" in codes(lint(configuration(release, chosen)))
    assert stops == (severity == "warning")


_SLICE = "VLLM_HPU_FSDPA_SLICE_"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("VLLM_DECODE_BS_BUCKET_PAD_PERCENT", "51", "value-stops-server"),
        (f"{_SLICE}SEQ_LEN_THLD", "512", "value-stops-server"),
        (f"{_SLICE}CHUNK_SIZE", "0", "value-stops-server"),
        (f"{_SLICE}CHUNK_SIZE", "512", "value-odd"),
        (f"{_SLICE}CHUNK_SIZE", "2049", "value-stops-server"),  # of 2048 tokens a step
    ],
)
def test_padding_and_slices_are_looked_at_under_pad_alone(
    name: str, value: str, code: str
) -> None:
    pad, value_of = {"VLLM_BUCKETING_STRATEGY": "pad"}, {name: value}
    assert name in found(**pad, **value_of).get(code, [])
    bad = {"value-stops-server", "value-odd"}
    assert not bad & set(found(**value_of))
    # A number it must be under any strategy.
    assert found(**{name: "x"})["value-stops-server"] == [name]
    if name.startswith(_SLICE):
        off = {f"{_SLICE}ENABLED": "false"}
        assert not bad & set(found(**pad, **value_of, **off))
        longer = {**value_of, f"{_SLICE}SEQ_LEN_THLD": "8192"}
        if value == "2049":
            assert not {"value-stops-server"} & set(found(**pad, **longer))


def test_settings_without_buckets_are_found_before_the_start() -> None:
    told = found(
        "plugin-0.26",
        VLLM_BUCKETING_STRATEGY="lin",
        VLLM_PROMPT_QUERY_BUCKET_MIN="4096",
        VLLM_PROMPT_QUERY_BUCKET_MAX="8192",
        max_num_batched_tokens="2048",
        max_model_len="8192",
    )
    assert "no-buckets" in told


@pytest.mark.parametrize("length", ["-1", "auto"])
def test_a_length_that_is_left_to_the_server_is_no_fault(length: str) -> None:
    assert found("plugin-0.26", max_model_len=length) == {}
    assert found("plugin-0.16", max_model_len=length) == {
        "value-stops-server": ["--max-model-len"]
    }


@pytest.mark.parametrize(
    ("release", "values", "about"),
    [
        ("plugin-0.26", {"max_num_seqs": "300", TOKENS: "299"}, f"--{TOKENS}"),
        ("plugin-0.26", {"max_num_seqs": "300", TOKENS: "300"}, None),
        ("plugin-0.26", {"max_num_seqs": "4096"}, "--max-num-seqs"),
        ("fork-1.22", {"max_model_len": "8192", TOKENS: "4096"}, f"--{TOKENS}"),
        ("fork-1.22", {TOKENS: "4096"}, None),
    ],
)
def test_sizes_that_predict_refuses_are_refused_here_too(
    release: str, values: dict[str, str], about: str | None
) -> None:
    assert found(release, **values).get("sizes-refused") == ([about] if about else None)


def test_blocks_that_are_known_refuse_what_they_cannot_hold() -> None:
    flags = {"--max-model-len": "4096", "--max-num-seqs": "16"}

    def refused(blocks: int | None, printed: Printed | None = None) -> list[str]:
        given = configuration(values=flags, num_blocks=blocks, printed=printed)
        told = codes(lint(given))
        return told.get("sizes-refused", [])

    assert refused(None) == []
    assert refused(512) == []
    assert refused(31) == ["--max-model-len"]
    # 16 sequences of 32 blocks each are more than three times what is there …
    assert refused(128) == ["buckets"]
    # … but a warm-up that came through as much has proven that it goes.
    plan = Plan(NEWEST, Flags(16, 2048, 4096, 128))
    assert refused(128, Printed(plan, 128, captured_blocks=512)) == []


def test_a_budget_below_a_block_is_odd() -> None:
    assert found(max_num_seqs="8", **{TOKENS: "64"}) == {"value-odd": [f"--{TOKENS}"]}
    assert found(max_num_seqs="8", **{TOKENS: "128"}) == {}


@pytest.mark.parametrize(
    ("release", "values", "code"),
    [
        ("fork-1.23", {"VLLM_USE_V1": "1"}, "v1-refused"),
        ("plugin-0.10", {"VLLM_BUCKETING_STRATEGY": "lin"}, "value-stops-server"),
        (NEWEST, {"VLLM_PROMPT_QUERY_BUCKET_MAX": "x"}, "value-stops-server"),
        (
            "fork-1.22",
            {"enable_chunked_prefill": "true", "enable_prefix_caching": "true"},
            "chunked-prefill-refused",
        ),
    ],
)
def test_what_stops_the_server_is_not_called_ignored(
    release: str, values: dict[str, str], code: str
) -> None:
    told = found(release, **values)
    assert code in told
    assert not {"knob-ignored", "strategy-ignores"} & told.keys()


def test_a_budget_that_no_mamba_chunk_divides_stops_the_server() -> None:
    flags = {"--max-num-batched-tokens": "2000"}
    assert "no-buckets" in codes(
        lint(configuration(values=flags, mamba_chunk_size=256))
    )
    earlier = configuration("plugin-0.16", flags, mamba_chunk_size=256)
    assert "no-buckets" not in codes(lint(earlier))


@pytest.mark.parametrize(
    ("release", "text", "expected"),
    [
        ("plugin-0.17", "(1, 128, 0)\n(1, 1, 128)\n", {}),
        ("plugin-0.17", "(1, 128, 0)\n(1, 1, 12", {"bucket-file": [FILE]}),
        (
            "plugin-0.16",
            "(1, 128, 0)\n(1, 1, 128)\nnonsense\n",
            {"bucket-file": [FILE], "bucket-file-evaluated": [FILE]},
        ),
        ("plugin-0.26", "(1, 128, 0)\n", {"bucket-file": [FILE]}),
        ("fork-1.22", "nonsense\n", {"knob-ignored": [FILE]}),
    ],
)
def test_a_bucket_file_is_read_as_the_release_reads_it(
    release: str, text: str, expected: dict[str, list[str]]
) -> None:
    given = configuration(release, {FILE: "b"}, bucket_file=BucketFile("/b", text))
    assert codes(lint(given)) == expected


def test_what_a_bucket_file_leaves_out_is_told_where_the_sizes_are_known() -> None:
    listed = BucketFile("/b", "(1, 128, 0)\n(1, 1, 128)\n")
    values = {FILE: "b", "--max-model-len": "4096"}
    told = lint(configuration(values=values, bucket_file=listed, num_blocks=512))
    assert told[0].severity == "warning"
    assert codes(told).keys() == {"bucket-file"}
    assert {each.remark.about.where for each in told} == {"/b", "/b:2"}


def test_a_line_that_stops_the_server_is_an_error_with_its_place() -> None:
    listed = BucketFile("/b", "(1, 128, 0)\n(1, 1, 12")
    told = lint(configuration("plugin-0.17", {FILE: "b"}, bucket_file=listed))
    assert [(each.severity, each.remark.about.where) for each in told] == [
        ("error", "/b:2")
    ]


def test_what_hpuwatch_cannot_tell_is_no_finding() -> None:
    assert found("plugin-0.16", VLLM_UNIFIED_ATTN="true") == {}


def test_a_skipped_line_of_a_bucket_file_has_its_place() -> None:
    listed = BucketFile("/b", "# mine\n(1, 128, 0)\n(1, 1, 128)\nnonsense\n")
    told = lint(configuration("plugin-0.16", {FILE: "b"}, bucket_file=listed))
    assert [each.remark.about.where for each in told if each.code == "bucket-file"] == [
        "/b:4"
    ]


def test_a_bucket_is_not_filtered_by_sizes_that_nobody_told() -> None:
    listed = BucketFile("/b", "(1, 8192, 0)\n(1, 1, 128)\n")
    told = lint(configuration("plugin-0.17", {FILE: "b"}, bucket_file=listed))
    assert codes(told) == {}


def test_a_bucket_file_that_is_not_there_stops_the_server() -> None:
    gone = BucketFile("/etc/b", None, "No such file or directory")
    told = lint(configuration(values={FILE: "~/b"}, bucket_file=gone))
    assert codes(told)["bucket-file-unreadable"] == [FILE]
    assert "/etc/b" in told[0].remark.happens
    assert "~" in told[0].remark.happens


def _timed(seconds: float, release: str = NEWEST, **values: str) -> list[str]:
    warmup = WarmupTime(seconds, seconds, seconds, "measured: x.log:9")
    return [
        each.severity
        for each in lint(configuration(release, values, warmup=warmup))
        if each.code == "ready-timeout"
    ]


def test_a_warmup_longer_than_the_time_out_is_told_of_but_stops_nothing() -> None:
    assert _timed(400) == []
    assert _timed(500) == ["warning"]
    assert _timed(900) == ["warning"]
    assert _timed(900, VLLM_ENGINE_READY_TIMEOUT_S="3600") == []
    assert _timed(400, VLLM_ENGINE_READY_TIMEOUT_S="0") == ["warning"]
    # Before plugin-0.14 the variable is not looked at.
    assert _timed(900, "plugin-0.13", VLLM_ENGINE_READY_TIMEOUT_S="3600") == ["warning"]
    # The V0 engine knows no such time-out.
    assert _timed(900, "fork-1.22") == []
    (told,) = lint(configuration(warmup=WarmupTime(900, 900, 900, "measured: x.log:9")))
    assert "With several API servers that ends the start" in told.remark.happens
    assert "issue 48031" in told.remark.happens


def test_many_buckets_are_expected_to_outlast_the_time_out() -> None:
    lin = {
        "VLLM_BUCKETING_STRATEGY": "lin",
        "--max-model-len": "32768",
        "--host": "127.0.0.1",
    }
    known = configuration(values=lin, command=True, num_blocks=4107)
    told = [each for each in lint(known) if each.code == "ready-timeout"]
    assert [each.severity for each in told] == ["warning"]
    assert "prior" in told[0].remark.happens
    unknown = configuration(values=lin, command=True)
    assert "ready-timeout" not in codes(lint(unknown))


def test_fewer_cards_than_the_flags_want() -> None:
    cards = {"HABANA_VISIBLE_DEVICES": "0,1"}
    assert "too-few-cards" in found(tensor_parallel_size="4", **cards)
    assert "too-few-cards" not in found(tensor_parallel_size="2", **cards)
    everything = found(tensor_parallel_size="4", HABANA_VISIBLE_DEVICES="all")
    assert "too-few-cards" not in everything


@pytest.mark.parametrize("flag", ["--api-key", "--hf-token"])
def test_a_secret_on_the_command_line_is_told(flag: str) -> None:
    told = codes(lint(configuration(values={flag: "of-no-known-form"})))
    assert told["secret-on-command-line"] == [flag]


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        ({"--host": "0.0.0.0"}, "warning"),  # noqa: S104  what is looked for
        ({"--host": "::"}, "warning"),
        ({}, "info"),
        ({"--host": "127.0.0.1"}, None),
        ({"VLLM_API_KEY": "k"}, None),
        ({"--host": "0.0.0.0", "--api-key": "k"}, None),  # noqa: S104  likewise
    ],
)
def test_a_server_without_a_key_on_every_address(
    values: dict[str, str], severity: str | None
) -> None:
    told = lint(configuration(values=values, command=True))
    assert [each.severity for each in told if each.code == "open-to-all"] == (
        [severity] if severity else []
    )
    assert "open-to-all" not in codes(lint(configuration(values=values)))


def test_a_missing_recipe_cache_is_a_hint_and_a_bad_one_a_warning() -> None:
    name = "PT_HPU_RECIPE_CACHE_CONFIG"
    bare = lint(configuration(command=True, values={"--host": "127.0.0.1"}))
    assert [(each.code, each.severity) for each in bare] == [("recipe-cache", "info")]
    bad = configuration(values={name: "/c,false,9"}, recipe_cache="/c is on tmpfs")
    told = lint(bad)
    assert [(each.code, each.severity) for each in told] == [
        ("recipe-cache", "warning")
    ]
    assert lint(configuration(values={name: "/c,false,9"})) == ()


HEAD = EnvHeader("plugin-0.26", "gaudi3", "some/Model", "4", "0123456789abcdef")


@pytest.mark.parametrize(
    ("server", "differs"),
    [
        (HEAD, []),
        (EnvHeader(), []),
        (EnvHeader(release="plugin-0.26.0"), []),
        (EnvHeader(release="plugin-0.24"), ["release"]),
        (EnvHeader(card="Gaudi3", model="some/model"), []),
        (EnvHeader(card="gaudi2", tp="8"), ["card", "tp"]),
        (EnvHeader(model="another"), ["model"]),
        (EnvHeader(base="0123456789"), []),
        (EnvHeader(base="fedcba9876543210"), ["base"]),
    ],
)
def test_an_env_file_of_another_server_is_an_error(
    server: EnvHeader, differs: list[str]
) -> None:
    told = lint(configuration(header=HEAD, server=server))
    assert codes(told).get("wrong-server", []) == differs
    assert {each.severity for each in told} <= {"error"}


def test_a_misspelt_flag_stops_the_server_and_a_misspelt_variable_does_nothing() -> (
    None
):
    values = {"--tensor-paralel-size": "2", "VLLM_SKIP_WARMUPS": "1"}
    told = lint(configuration(values=values))
    grave = {
        each.remark.about.name: each.severity
        for each in told
        if each.code == "name-misspelt"
    }
    assert grave == {"--tensor-paralel-size": "error", "VLLM_SKIP_WARMUPS": "warning"}


@pytest.mark.parametrize(
    ("release", "lost"),
    [
        ("plugin-0.26", "prefix caching is turned off"),
        ("fork-1.21", "turns contiguous attention off"),
    ],
)
def test_what_a_release_turns_off_is_said(release: str, lost: str) -> None:
    values = {"VLLM_CONTIGUOUS_PA": "true", "--enable-prefix-caching": "true"}
    if release == "fork-1.21":
        # The V0 engine, which is its default, dies of it.
        assert codes(lint(configuration(release, values))) == {
            "prefix-caching-refused": ["VLLM_CONTIGUOUS_PA"]
        }
        values["VLLM_USE_V1"] = "1"
        told = codes(lint(configuration(release, values)))
        assert "prefix-caching-refused" not in told
    (said,) = (
        each.remark.happens
        for each in lint(configuration(release, values))
        if each.code == "prefix-caching-lost"
    )
    assert lost in said


def test_collectives_that_nobody_asks_for_are_the_forks_matter() -> None:
    values = {"PT_HPU_LAZY_MODE": "1", "tensor_parallel_size": "2"}
    assert "lazy-collectives-off" not in found("fork-1.21", **values)
    assert "lazy-collectives-unset" in found("fork-1.21", **values)
    assert "lazy-collectives-unset" not in found("plugin-0.26", **values)
    values["PT_HPU_ENABLE_LAZY_COLLECTIVES"] = "false"
    assert "lazy-collectives-off" in found("plugin-0.26", **values)


def test_the_gravest_comes_first() -> None:
    told = lint(
        configuration(
            values={
                "VLLM_EXPONENTIAL_BUCKETING": "true",
                "VLLM_GRAPH_PROMPT_RATIO": "1",
                "--max-num-seqs": "0",
            }
        )
    )
    ranks = [SEVERITIES.index(each.severity) for each in told]
    assert len(set(ranks)) == len(SEVERITIES)
    assert ranks == sorted(ranks, reverse=True)


def test_each_kind_has_one_row() -> None:
    listed = [kind.code for kind in LINT_KINDS]
    assert len(listed) == len(set(listed))
    assert {each.code for each in CONFLICTS} <= set(listed)
    assert documentation().count("\n") == len(listed) + 2


@given(
    values=st.dictionaries(
        st.sampled_from(sorted(KNOBS)),
        st.sampled_from(["", "0", "1", "true", "ture", "-1", "1.5", "64", "lin", "exp"])
        | st.text(max_size=8),
        max_size=6,
    ),
    release=st.sampled_from(RELEASES),
)
def test_any_settings_are_judged_without_a_crash(
    values: dict[str, str], release: str
) -> None:
    for each in lint(configuration(release, values)):
        assert each.severity in SEVERITIES
        assert each.remark.happens
        assert each.remark.cure
