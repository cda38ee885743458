"""``hpuwatch lint``: what it reads, what it says, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.app import doctor
from hpuwatch.app.lint import Order, judge
from hpuwatch.app.server_inputs import View
from hpuwatch.cli.main import build
from hpuwatch.errors import (
    ConfigError,
    HpuwatchError,
    InputError,
    MissingFileError,
    UsageError,
)
from hpuwatch.parse.mask import mask_value
from hpuwatch.tune.study import fingerprint

pytestmark = pytest.mark.unit

KEYED = "sk-" + "a1b2c3d4" * 3
LOG = (
    "INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.26.0) with config: "
    "model='some/model', max_seq_len=4096, tensor_parallel_size=2, enforce_eager=False, "
    "device_config=hpu\n"
    "INFO 01-02 03:04:06 [runtime.py:28] Environment:\n"
    "INFO 01-02 03:04:06 [runtime.py:32]     hw: gaudi3\n"
    "INFO 01-02 03:04:06 [runtime.py:32]     vllm_gaudi_commit: 1a2b3c4\n"
    "INFO 01-02 03:04:06 [runtime.py:28] User flags:\n"
    "INFO 01-02 03:04:06 [runtime.py:32]     VLLM_GRAPH_PROMPT_RATIO: 0.3\n"
    "INFO 01-02 03:19:06 [hpu_worker.py:1] Warmup finished in 900 secs, allocated 1 GiB "
    "of device memory\n"
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


def run(*argv: str, code: int = 0) -> str:
    result = CliRunner().invoke(build(), ["lint", *argv])
    if isinstance(result.exception, HpuwatchError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize(
    ("word", "error"),
    [("missing", MissingFileError), ("/", InputError), ("/dev/null", InputError)],
)
def test_a_word_that_is_no_log(word: str, error: type[HpuwatchError]) -> None:
    with pytest.raises(error, match=word):
        run(word)


def test_a_card_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="choose from gaudi, gaudi2"):
        run("--card", "GAUDI9", "--env", "A=1")


def document(*argv: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run("--format", "json", *argv))
    assert told["schema"] == "hpuwatch.lint/1"
    return told


def codes(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["code"], each["knob"], each["where"]) for each in told["findings"]]


SERVE = ["--", "vllm", "serve", "m", "--host", "127.0.0.1"]


def test_flags_variables_and_their_places() -> None:
    told = document(
        *("--release", "plugin-0.26.0", "--env", "VLLM_SKIP_WARMUP=ture"),
        *(*SERVE, "--max-num-prefill-seqs", "4"),
    )
    assert told["release"] == "plugin-0.26"
    assert told["dialect"] == "gaudi-plugin-0.26"
    assert codes(told) == [
        ("flag-unknown", "--max-num-prefill-seqs", "command line"),
        ("value-reads-false", "VLLM_SKIP_WARMUP", "--env"),
        ("recipe-cache", "PT_HPU_RECIPE_CACHE_CONFIG", "default"),
    ]
    first = told["findings"][0]
    assert first["value"] == "4"
    assert set(first) == {
        *("code", "severity", "knob", "value", "where", "happens", "do")
    }


def test_a_log_is_read_for_variables_release_and_warmup(log: str) -> None:
    told = document(log)
    assert told["release"] == "plugin-0.26"
    assert ("knob-ignored", "VLLM_GRAPH_PROMPT_RATIO", f"{log}:6") in codes(told)


def test_a_version_in_a_log_that_names_no_release_is_said_and_passed_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.log"
    path.write_text(LOG.replace("v0.26.0", "v0.9.0.1+Gaudi-1.22.0"), encoding="utf-8")
    told = document(str(path))
    assert told["release"] == "plugin-0.26"
    assert any("0.9.0.1+Gaudi-1.22.0, which names no" in note for note in told["notes"])
    best = tmp_path / "best.env"
    best.write_text(header(release="plugin-0.24"), encoding="utf-8")
    told = document("--env", str(best), str(path))
    assert told["release"] == "plugin-0.24"
    assert any("; the env file says plugin-0.24" in note for note in told["notes"])


def test_ranges_of_a_log_show_which_variables_act(tmp_path: Path) -> None:
    ranges = (
        "INFO 01-02 03:04:07 [x.py:80] Prompt bucket config (min, step, max_warmup{}) "
        "bs:[1, 2, 1{}], query:[128, 128, 256{}], blocks:[0, 1, 1{}]\n"
    )
    linear = LOG + ranges.format(*[""] * 4)
    path = tmp_path / "s.log"
    bound = ["--env", "VLLM_PROMPT_QUERY_BUCKET_STEP=256", str(path)]
    ignored = ("strategy-ignores", "VLLM_PROMPT_QUERY_BUCKET_STEP", "--env")
    path.write_text(linear, encoding="utf-8")
    assert ignored not in codes(document(*bound))
    assert ignored in codes(document("--release", "plugin-0.26", *bound)), (
        "another release makes its own ranges"
    )
    path.write_text(LOG + ranges.format(", limit", *[", 9"] * 3), encoding="utf-8")
    assert ignored in codes(document(*bound))
    by_hand = ["--env", "VLLM_EXPONENTIAL_BUCKETING=false"]
    assert ignored not in codes(document(*by_hand, *bound))


def test_a_warmup_that_was_measured_is_held_against_the_time_out(log: str) -> None:
    told = document(log, "--release", "plugin-0.26")
    timeout = next(each for each in told["findings"] if each["code"] == "ready-timeout")
    assert timeout["severity"] == "warning"
    assert f"measured: {log}:7" in timeout["happens"]
    enough = ["--env", "VLLM_ENGINE_READY_TIMEOUT_S=3600"]
    assert "ready-timeout" not in str(
        document(log, "--release", "plugin-0.26", *enough)
    )


def test_other_settings_warm_at_the_pace_of_the_log(tmp_path: Path) -> None:
    listed = "(1, 128, 0), (1, 256, 0)"
    path = tmp_path / "s.log"
    path.write_text(
        LOG + "INFO 01-02 03:04:07 [common.py:1] Generated 2 prompt buckets "
        f"[bs, query, num_blocks]: [{listed}]\n",
        encoding="utf-8",
    )
    same = ["--num-blocks", "64", str(path)]
    timeout = "VLLM_ENGINE_READY_TIMEOUT_S=800"
    assert "measured: " in str(document("--env", timeout, *same))
    other = document("--env", timeout, *same, *SERVE, "--max-model-len", "2048")
    told = next(each for each in other["findings"] if each["code"] == "ready-timeout")
    assert "at the log's pace" in told["happens"]
    assert "measured: " not in told["happens"]


def test_the_later_place_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_GRAPH_RESERVED_MEM", "7")
    file = tmp_path / "s.env"
    file.write_text("VLLM_GRAPH_RESERVED_MEM=8\n", encoding="utf-8")
    name, both = "VLLM_GRAPH_RESERVED_MEM", ["--inherit", "--env-file", str(file)]
    assert ("value-stops-server", name, "environment") in codes(document("--inherit"))
    assert ("value-stops-server", name, f"{file}:1") in codes(document(*both))
    assert document(*both, "--env", f"{name}=0.1")["findings"] == []
    told = document(*both, "--", "env", f"{name}=9", *SERVE[1:])
    assert ("value-stops-server", name, "command line") in codes(told)


def test_vllms_own_configuration_file_is_read(tmp_path: Path) -> None:
    config = tmp_path / "vllm.yaml"
    config.write_text("max-num-seqs: 0\nblock-size: 16\n", encoding="utf-8")
    told = document(*SERVE, "--config", str(config), "--block-size", "128")
    assert ("value-stops-server", "--max-num-seqs", str(config)) in codes(told)
    assert "--block-size" not in str(told["findings"])
    config.write_text("- 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no settings"):
        run(*SERVE, "--config", str(config))
    config.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="no YAML"):
        run(*SERVE, "--config", str(config))
    with pytest.raises(MissingFileError):
        run(*SERVE, "--config", str(tmp_path / "none"))


def test_a_path_is_opened_as_the_server_opens_it(tmp_path: Path) -> None:
    (tmp_path / "buckets.txt").write_text("(1, 128, 0)\n(1, 1, 128)\n", "utf-8")
    base = ["--release", "plugin-0.26", "--env"]
    listed = [*base, "VLLM_BUCKETING_FROM_FILE=buckets.txt"]
    assert document(*listed, "--cwd", str(tmp_path))["findings"] == []
    gone = document(*listed, "--cwd", str(tmp_path / "other"))
    assert [each["code"] for each in gone["findings"]] == ["bucket-file-unreadable"]
    inside = [*base, "VLLM_BUCKETING_FROM_FILE=/data/buckets.txt"]
    assert document(*inside, "--map", f"/data={tmp_path}")["findings"] == []
    home = document(*base, "VLLM_BUCKETING_FROM_FILE=~/buckets.txt")
    assert "No ~ is replaced" in home["findings"][0]["happens"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("b.txt", "/srv/b.txt"),
        ("/etc/b.txt", "/etc/b.txt"),
        ("/data/deep/b.txt", "/mnt/deep/b.txt"),
        ("/data/x/b.txt", "/mnt/data/x/b.txt"),
        ("/database/b.txt", "/database/b.txt"),
        ("~/b.txt", "/srv/~/b.txt"),
    ],
)
def test_the_deepest_mapped_folder_counts(path: str, expected: str) -> None:
    mapped = (("/data/deep", "/mnt/deep"), ("/data", "/mnt/data"))
    assert View("/srv", mapped).find(path) == Path(expected)


def test_a_recipe_cache_in_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "mounts", lambda: [(Path("/"), "tmpfs")])
    told = document("--env", "PT_HPU_RECIPE_CACHE_CONFIG=/cache,false,1024")
    assert [each["code"] for each in told["findings"]] == ["recipe-cache"]
    assert "tmpfs" in told["findings"][0]["happens"]


def test_secrets_are_masked_in_every_form() -> None:
    argv = [*SERVE, "--api-key", KEYED, "--hf-token", "of-no-known-form"]
    for text in (run(*argv), run("--format", "json", *argv)):
        assert "secret-on-command-line" in text
        assert KEYED not in text
        assert "of-no-known-form" not in text
    assert mask_value("VLLM_API_KEY", "of-no-known-form") == "***"
    assert mask_value("--max-num-seqs", "8") == "8"


def header(**known: str) -> str:
    lines = EnvHeader(**known).lines()
    return "\n".join([*lines, "VLLM_GRAPH_RESERVED_MEM=0.05", ""])


def test_an_env_file_of_another_server_is_refused(tmp_path: Path, log: str) -> None:
    best = tmp_path / "best.env"
    same = {"card": "gaudi3", "model": "some/model", "tp": "2"}
    best.write_text(header(**same), encoding="utf-8")
    run("--env", str(best), log)
    for name, other in {"card": "gaudi2", "model": "another", "tp": "8"}.items():
        best.write_text(header(**{**same, name: other}), encoding="utf-8")
        with pytest.raises(ConfigError, match="another server"):
            run("--env", str(best), log)
        with pytest.raises(ConfigError):
            run("--env-file", str(best), log, "--format", "json")


def test_an_env_file_is_held_against_the_command_and_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = tmp_path / "best.env"
    best.write_text(header(release="plugin-0.24", card="gaudi3", tp="1"), "utf-8")
    monkeypatch.setattr(doctor, "installed_release", lambda: None)
    told = document("--env", str(best), *SERVE)
    assert told["release"] == "plugin-0.24"
    assert any("not compared" in note and "card" in note for note in told["notes"])
    with pytest.raises(ConfigError):
        run("--env", str(best), "--card", "gaudi2", *SERVE)
    with pytest.raises(ConfigError):
        run("--env", str(best), *SERVE, "-tp", "4")
    monkeypatch.setattr(doctor, "installed_release", lambda: "plugin-0.26.0")
    with pytest.raises(ConfigError):
        run("--env", str(best), *SERVE)


def test_the_base_of_an_env_file_is_command_and_variables(tmp_path: Path) -> None:
    command = ["vllm", "serve", "m"]
    environ = {"VLLM_SKIP_WARMUP": "false"}
    best = tmp_path / "best.env"
    best.write_text(header(base=fingerprint(command, environ)), "utf-8")
    order = Order(words=command, env=[str(best)], inherit=True)
    assert "wrong-server" not in str(judge(order, environ).findings)
    assert "wrong-server" in str(judge(order, {"VLLM_SKIP_WARMUP": "true"}).findings)


@pytest.mark.parametrize(
    ("severity", "code"), [("error", 0), ("warning", 1), ("info", 1)]
)
def test_the_exit_code_follows_the_gravest_finding(severity: str, code: int) -> None:
    run("--env", "VLLM_GRAPH_PROMPT_RATIO=0.3", "--fail-on", severity, code=code)


def test_what_was_not_looked_at_is_said() -> None:
    docker = [
        "--",
        "docker",
        "run",
        "--env-file",
        "my.env",
        "-e",
        "HF_TOKEN=hf_abcdefghijk",
    ]
    words = ["image", *SERVE[1:], "--foo-bar", "3", "--tensor-paralel-size", "2"]
    told = document(*docker, *words)
    assert any("--foo-bar (" in note for note in told["notes"])
    assert any("my.env" in note for note in told["notes"])
    found = codes(told)
    assert ("name-misspelt", "--tensor-paralel-size", "command line") in found
    assert ("secret-on-command-line", "HF_TOKEN", "command line") in found
    assert "hf_abcdefghijk" not in str(told)


def test_an_empty_variable_is_unset(tmp_path: Path) -> None:
    first = tmp_path / "first.env"
    first.write_text("VLLM_SKIP_WARMUP=true\n", "utf-8")
    both = document("--env", str(first), "--env", "VLLM_DELAYED_SAMPLING=", *SERVE)
    assert "warmup-skipped" in str(codes(both))
    unset = document("--env", str(first), "--env", "VLLM_SKIP_WARMUP=", *SERVE)
    assert "VLLM_SKIP_WARMUP" not in str(codes(unset))


def test_a_log_shows_that_warmup_is_skipped(tmp_path: Path, log: str) -> None:
    skipped = tmp_path / "skipped.log"
    line = "INFO 03-01 10:00:58 [hpu_model_runner.py:9] Skipping warmup..."
    skipped.write_text(f"{Path(log).read_text('utf-8').rstrip()}\n{line}\n", "utf-8")
    number = len(skipped.read_text("utf-8").splitlines())
    where = f"{skipped}:{number}"
    assert ("warmup-skipped", "VLLM_SKIP_WARMUP", where) in codes(
        document(str(skipped))
    )


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to look at"):
        run()
    with pytest.raises(UsageError, match="--fail-on"):
        run("--fail-on", "fatal", *SERVE)
    with pytest.raises(UsageError, match="--format"):
        run("--format", "yaml", *SERVE)
    with pytest.raises(UsageError, match="--map"):
        run("--map", "data=/x", *SERVE)
    with pytest.raises(MissingFileError, match="neither NAME=VALUE nor"):
        run("--env", str(tmp_path / "none.env"))
    with pytest.raises(MissingFileError):
        run(str(tmp_path / "none.log"))
    with pytest.raises(ConfigError, match="names no release"):
        run("--release", "teapot", *SERVE)


def test_a_program_is_no_log_and_a_log_no_program(tmp_path: Path, log: str) -> None:
    program = tmp_path / "serve-it"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    os.chmod(program, 0o755)  # noqa: PTH101, S103  a program of the test's own
    told = document(str(program), "--", "--max-num-seqs", "0")
    assert ("value-stops-server", "--max-num-seqs", "command line") in codes(told)
    both = document(log, *SERVE, "--max-num-seqs", "0")
    found = codes(both)
    assert ("value-stops-server", "--max-num-seqs", "command line") in found
    assert ("knob-ignored", "VLLM_GRAPH_PROMPT_RATIO", f"{log}:6") in found


def test_the_text_has_the_gravest_first_and_a_sum() -> None:
    text = run("--env", "VLLM_GRAPH_RESERVED_MEM=2", "--env", "VLLM_SKIP_WARMUP=1")
    lines = text.splitlines()
    heads = [line for line in lines if line.startswith(("ERROR", "WARNING", "INFO"))]
    assert heads == [
        "ERROR value-stops-server: VLLM_GRAPH_RESERVED_MEM=2 (--env)",
        "INFO warmup-skipped: VLLM_SKIP_WARMUP=1 (--env)",
    ]
    assert lines[-1] == "1 error, 1 info"
    assert (
        run("--env", "VLLM_GRAPH_RESERVED_MEM=0.1").splitlines()[-1] == "nothing found"
    )
