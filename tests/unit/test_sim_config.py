"""The command line of the simulated server, and what its front end dies of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpuwatch.errors import ConfigError
from hpuwatch.sim.config.arguments import flags
from hpuwatch.sim.config.knobs import KnobError, Knobs, read_knobs
from hpuwatch.sim.config.options import _PLAIN, Options, parse_options

pytestmark = pytest.mark.unit

_RELEASES = (
    *("fork-1.18", "fork-1.21", "fork-1.22", "plugin-0.11"),
    *("plugin-0.16", "plugin-0.19", "plugin-0.26", "plugin-head"),
)
_FORKS = _RELEASES[:3]


def _options(release: str, *arguments: str, **env: str) -> Options:
    return parse_options(["--release", release, *arguments], env)


def _knobs(release: str, *arguments: str, **env: str) -> Knobs:
    return read_knobs(_options(release, *arguments, **env))


class TestCommandLine:
    """What is a flag, what its default is, and what refuses it."""

    def test_the_shortest_is_enough(self) -> None:
        options = parse_options([], {})
        assert options.model.name == "meta-llama/Llama-3.1-8B-Instruct"
        assert (options.card.name, options.release) == ("gaudi2", "plugin-0.26")
        assert options.served_names == (options.model.name,)
        assert options.tensor_parallel == 1

    @pytest.mark.parametrize(
        "words",
        [
            ["--model", "llama-3.1-70b"],
            ["serve", "meta-llama/Llama-3.1-70B-Instruct"],
            ["vllm", "serve", "/models/Llama-3.1-70B-Instruct"],
            ["/usr/bin/vllm", "serve", "llama-3.1-70b"],
            [
                *("python3", "-m", "vllm.entrypoints.openai.api_server"),
                *("--model", "llama-3.1-70b"),
            ],
        ],
    )
    def test_it_may_be_copied_from_a_real_server(self, words: list[str]) -> None:
        options = parse_options(words, {})
        assert options.model.name == "meta-llama/Llama-3.1-70B-Instruct"
        assert options.tensor_parallel == 4

    def test_flags_may_have_underscores_and_equal_signs(self) -> None:
        words = ["--max_num_seqs=64", "--gpu_memory_utilization", "0.8"]
        options = parse_options([*words, "--max-model-len", "32k"], {})
        assert (options.max_num_seqs, options.utilisation) == (64, 0.8)
        assert options.max_model_len == 32000

    def test_only_what_departs_from_the_default_is_shown(self) -> None:
        words = ["--max-num-seqs", "64", "--speed", "9", "--port", "8000"]
        words += ["--no-enable-prefix-caching", "--api-key", "secret"]
        shown = parse_options(["serve", "llama-3.1-8b", *words], {}).shown
        assert dict(shown) == {
            "model_tag": "meta-llama/Llama-3.1-8B-Instruct",
            "api_key": ["[hidden]"],
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "enable_prefix_caching": False,
            "max_num_seqs": 64,
        }

    def test_what_was_asked_for_is_known_beside_what_holds(self) -> None:
        asked = parse_options(["--block-size", "128", "--max-num-seqs", "64"], {})
        assert {"block_size", "max_num_seqs"} <= asked.given
        assert asked.block_size == parse_options([], {}).block_size
        assert not parse_options([], {}).given

    def test_every_flag_that_is_acted_upon_has_a_help(self) -> None:
        fields = {flag.field: flag.help for flag in flags().values()}
        silent = {name for name in _PLAIN.values() if fields.get(name) == ""}
        assert not silent

    def test_serving_keeps_the_speed_unless_told_otherwise(self) -> None:
        assert parse_options(["--speed", "20"], {}).serving_speed == 20
        both = parse_options(["--speed", "20", "--serving-speed", "5"], {})
        assert both.serving_speed == 5

    def test_vllms_own_file_of_flags_yields_to_the_command_line(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "serve.yaml"
        file.write_text("max-num-seqs: 32\nblock-size: 256\nenforce-eager: true\n")
        words = ["--config", str(file), "--block-size", "128"]
        options = parse_options(words, {})
        assert (options.max_num_seqs, options.block_size) == (32, 128)
        assert options.enforce_eager

    @pytest.mark.parametrize("by", ["folder", "flag"])
    def test_a_model_may_come_from_its_own_configuration(
        self, tmp_path: Path, by: str
    ) -> None:
        fields = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "max_position_embeddings": 4096,
            "torch_dtype": "bfloat16",
        }
        file = tmp_path / "config.json"
        file.write_text(json.dumps(fields))
        words = ["--model", str(tmp_path)]
        if by == "flag":
            words = ["--model", "mine", "--config", str(file)]
        options = parse_options(words, {})
        assert (options.model.layers, options.max_model_len) == (16, 4096)

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            ("--no-such-flag", "vllm: error: unrecognized arguments: --no-such-flag\n"),
            (
                "--max-num-seqs many",
                "vllm serve: error: argument --max-num-seqs: invalid int value: 'many'\n",
            ),
            ("--dtype int4", "argument --dtype: invalid choice: 'int4' (choose from"),
            ("--port 99999", "'99999' is no port from 0 to 65535"),
            ("--hf-overrides {a", "Value {a cannot be converted to <function loads>."),
            ("--max-num-prefill-seqs 4", "unrecognized arguments: --max-num-prefill"),
            ("--num-scheduler-steps 4", "unrecognized arguments: --num-scheduler-ste"),
            ("--model foo", "argument --model: 'foo' can't be simulated, choose from"),
            ("--release vllm-0.9", "'vllm-0.9' can't be simulated, choose from"),
            ("--release 0.1", "'0.1' names no release that runs on Gaudi"),
            ("--speed 0", "hpuwatch sim: error: argument --speed: '0' is out of range"),
            ("--speed nan", "argument --speed: 'nan' is no number to reckon with"),
            ("--config /none.yaml", "argument --config: /none.yaml can't be read"),
            ("--config /none.json", "argument --config: /none.json tells no model"),
            ("--max-num-seqs 99999999999999999999", "is too large to reckon with"),
            (f"--max-num-batched-tokens {400 * '9'}k", "is too large to reckon with"),
            ("a b", "vllm: error: unrecognized arguments: b\n"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_code_2(
        self, words: str, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as end:
            parse_options(words.split(), {})
        assert end.value.code == 2
        assert says in capsys.readouterr().err

    @pytest.mark.parametrize(
        "text", ["- 1", "a: &a [*a]", "a: [", "max-num-seqs: 2024-01-01"]
    )
    def test_a_file_that_tells_no_flags_is_refused_with_code_2(
        self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "flags.yaml"
        file.write_text(text)
        with pytest.raises(SystemExit) as end:
            parse_options(["--config", str(file)], {})
        assert end.value.code == 2
        assert "error: argument --" in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["[]", "3", "{", 100_000 * "["])
    def test_a_file_that_tells_no_model_is_refused_with_code_2(
        self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "config.json"
        file.write_text(text)
        with pytest.raises(SystemExit) as end:
            parse_options(["--config", str(file)], {})
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert f"hpuwatch sim: error: argument --config: {file} tells no model" in error

    @pytest.mark.parametrize(
        ("release", "sizes"),
        [
            ("fork-1.20", "8, 16, 32, 64, 128"),
            ("fork-1.22", "1, 8, 16, 32, 64, 128"),
            ("plugin-0.16", "1, 8, 16, 32, 64, 128, 256"),
            ("plugin-0.26", ""),
        ],
    )
    def test_the_size_of_a_block_is_one_of_a_list_in_older_releases(
        self, release: str, sizes: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--release", release, "--block-size", "7"]
        if not sizes:
            assert parse_options(words, {}).block_size == 7
            return
        with pytest.raises(SystemExit):
            parse_options(words, {})
        said = f"--block-size: invalid choice: 7 (choose from {sizes})\n"
        error = capsys.readouterr().err
        assert error.startswith("usage: vllm serve [model_tag] [options]\n")
        assert error.endswith(f"vllm serve: error: argument {said}")

    @pytest.mark.parametrize("release", _RELEASES)
    def test_defaults_are_those_of_the_release(self, release: str) -> None:
        options = _options(release, "--max-model-len", "8192")
        is_v1 = release not in _FORKS
        newest = release in {"plugin-0.26", "plugin-head"}
        assert options.utilisation == (0.92 if newest else 0.9)
        assert options.block_size == (16 if release == "fork-1.18" else 128)
        assert options.max_num_batched_tokens == (2048 if is_v1 else 8192)
        assert options.prefix_caching is options.chunked_prefill is is_v1
        assert options.log_requests is not is_v1

    @pytest.mark.parametrize(
        ("flag", "known"),
        [
            ("--max-num-prefill-seqs=2", {"fork-1.21", "fork-1.22"}),
            ("--use-padding-aware-scheduling", {"fork-1.21", "fork-1.22"}),
            ("--num-scheduler-steps=2", set(_FORKS)),
            ("--kv-cache-memory-bytes=1Gi", set(_RELEASES) - set(_FORKS)),
            ("--shutdown-timeout=5", {"plugin-0.26", "plugin-head"}),
            ("--swap-space=0", set(_RELEASES)),
        ],
    )
    def test_each_release_has_its_own_flags(
        self, flag: str, known: set[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for release in _RELEASES:
            if release in known:
                assert _options(release, flag).release == release
                continue
            with pytest.raises(SystemExit):
                _options(release, flag)
            assert "unrecognized arguments" in capsys.readouterr().err

    def test_a_size_yields_to_the_one_that_is_given(self) -> None:
        assert (
            _options("plugin-0.26", "--max-num-batched-tokens", "64").max_num_seqs == 64
        )
        assert (
            _options("plugin-0.11", "--max-num-batched-tokens", "64").max_num_seqs
            == 256
        )
        short = _options("plugin-0.26", "--max-model-len", "64", "--max-num-seqs", "4")
        assert short.max_num_batched_tokens == 256

    def test_a_release_may_be_named_by_a_version(self) -> None:
        options = _options("0.19.1")
        assert (options.release, options.point.numbers) == ("plugin-0.19", (0, 19, 1))
        assert (
            _options("plugin-0.15").release == "plugin-0.16"
        )  # its rules are the same
        assert _options("plugin-0.15").dialect == "gaudi-plugin-0.16"

    @pytest.mark.parametrize(
        ("word", "wanted"), [("=False", False), ("=true", True), ("", True)]
    )
    def test_a_switch_of_the_fork_may_carry_a_word(
        self, word: str, wanted: bool
    ) -> None:
        options = _options("fork-1.21", f"--enable-chunked-prefill{word}")
        assert options.chunked_prefill is wanted

    def test_the_length_may_be_left_to_the_cache(self) -> None:
        options = _options("plugin-0.19", "--max-model-len", "auto")
        assert options.fits_length
        assert options.max_model_len == options.model.max_model_len


class TestFrontEnd:
    """Values that vLLM takes and then dies of, with exit code 1."""

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (
                "--max-model-len 200000",
                "max_model_len (200000) is greater than the derived max_model_len",
            ),
            (
                "--max-num-batched-tokens 64 --max-num-seqs 128",
                "max_num_batched_tokens (64) must be greater than or equal to max_num_seqs",
            ),
            (
                "--no-enable-chunked-prefill --max-num-batched-tokens 4096",
                "max_num_batched_tokens (4096) is smaller than max_model_len (131072).",
            ),
            (
                "--tensor-parallel-size 3",
                "Total number of attention heads (32) must be divisible by tensor",
            ),
            ("--gpu-memory-utilization 1.2", "Input should be less than or equal to 1"),
            ("--max-num-seqs 0", "Input should be greater than 0"),
        ],
    )
    def test_the_plugins_configuration_refuses_it(self, words: str, says: str) -> None:
        with pytest.raises(KnobError) as death:
            _knobs("plugin-0.26", *words.split()).check("front")
        lines = str(death.value).split("\n")
        assert ": 1 validation error for " in lines[0]
        assert says in "\n".join(lines)
        assert lines[-1].startswith("    For further information visit https://errors.")

    def test_the_fork_says_it_in_one_line(self) -> None:
        with pytest.raises(KnobError) as death:
            _knobs("fork-1.21", "--gpu-memory-utilization", "1.2").check("front")
        reason = "ValueError: GPU memory utilization must be less than 1.0. Got 1.2."
        assert str(death.value) == reason

    def test_a_long_model_can_be_allowed(self) -> None:
        words = ("--max-model-len", "200000")
        knobs = _knobs("plugin-0.26", *words, VLLM_ALLOW_LONG_MAX_MODEL_LEN="1")
        assert not knobs.deaths

    @pytest.mark.parametrize(
        ("release", "words", "env", "says"),
        [
            ("fork-1.23", "", {"VLLM_USE_V1": "1"}, "In-tree HPU support for v1"),
            (
                "fork-1.22",
                "--enable-prefix-caching",
                {"VLLM_CONTIGUOUS_PA": "true"},
                "AssertionError: Contiguous PA doesn't support APC",
            ),
            (
                "fork-1.21",
                "--num-speculative-tokens 3",
                {},
                "ValueError: Speculative decoding is not supported with contiguous PA",
            ),
            (
                "fork-1.21",
                "--num-scheduler-steps 8",
                {"VLLM_DELAYED_SAMPLING": "true"},
                "AssertionError: Delayed sampling is not compatible with MSS!",
            ),
            (
                "fork-1.22",
                "--use-padding-aware-scheduling",
                {"VLLM_MERGED_PREFILL": "true"},
                "Merged prefill is not compatible with padding aware scheduling!",
            ),
            (
                "fork-1.22",
                "--use-padding-aware-scheduling --enable-chunked-prefill",
                {},
                "Padding-aware scheduling currently does not work with chunked prefill",
            ),
        ],
    )
    def test_features_of_the_fork_exclude_each_other(
        self, release: str, words: str, env: dict[str, str], says: str
    ) -> None:
        deaths = _knobs(release, *words.split(), **env).deaths
        assert says in " ".join(deaths.values())

    @pytest.mark.parametrize(
        ("release", "env"),
        [
            ("fork-1.22", {"VLLM_USE_V1": "1"}),
            ("plugin-0.16", {"VLLM_UNIFIED_ATTN": "true"}),
            ("plugin-0.26", {"VLLM_USE_FAKE_HPU": "1"}),
        ],
    )
    def test_what_cant_be_simulated_is_said(
        self, release: str, env: dict[str, str]
    ) -> None:
        with pytest.raises(
            ConfigError, match=r"as it is can't be simulated on .*: leave it out"
        ):
            _knobs(release, **env)

    def test_several_front_ends_cant_be_simulated(self) -> None:
        with pytest.raises(ConfigError, match="--api-server-count as it is can't be"):
            _knobs("plugin-0.26", "--api-server-count", "2")
        assert not _knobs("plugin-0.26", "--api-server-count", "1").deaths
