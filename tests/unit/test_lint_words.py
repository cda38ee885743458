"""From command lines, env files and logs to settings, in every form that people use."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpuwatch.advise.envheader import EnvHeader, read_header
from hpuwatch.advise.lint.words import (
    flag_name,
    of_command,
    of_file,
    of_log,
    of_mapping,
)
from hpuwatch.errors import UsageError
from hpuwatch.testing.logs import start_of_text

pytestmark = pytest.mark.unit


def values(command: str) -> dict[str, str]:
    found = of_command(shlex.split(command))
    return {name: setting.value for name, setting in found.items()}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m --max-num-seqs 8", {"--model": "m", "--max-num-seqs": "8"}),
        ("vllm serve m --max_num_seqs=8", {"--model": "m", "--max-num-seqs": "8"}),
        (
            "python3 -m vllm.entrypoints.openai.api_server --model m -tp 4",
            {"--model": "m", "--tensor-parallel-size": "4"},
        ),
        (
            "/opt/api_server.py --model m --enforce-eager --port 1",
            {"--model": "m", "--enforce-eager": "true", "--port": "1"},
        ),
        (
            "env VLLM_SKIP_WARMUP=true PT_HPU_LAZY_MODE=1 vllm serve m",
            {"VLLM_SKIP_WARMUP": "true", "PT_HPU_LAZY_MODE": "1", "--model": "m"},
        ),
        (
            "bash -lc 'VLLM_SKIP_WARMUP=1 exec vllm serve m --block-size 128'",
            {"VLLM_SKIP_WARMUP": "1", "--model": "m", "--block-size": "128"},
        ),
        (
            "bash -c 'export VLLM_SKIP_WARMUP=true; exec vllm serve m'",
            {"VLLM_SKIP_WARMUP": "true", "--model": "m"},
        ),
        (
            "bash -c 'VLLM_GRAPH_RESERVED_MEM=0.2;true&&vllm serve m -tp 4&wait'",
            {
                "VLLM_GRAPH_RESERVED_MEM": "0.2",
                "--model": "m",
                "--tensor-parallel-size": "4",
            },
        ),
        (
            "bash -c 'A=\"x; y\"\nvllm serve m \\\n --port 1 2>&1 | tee --append /log'",
            {"A": "x; y", "--model": "m", "--port": "1"},
        ),
        (
            "bash -c 'echo 3 > /count; vllm serve m > /log --port 1'",
            {"--model": "m", "--port": "1"},
        ),
        (
            "docker run -e VLLM_SKIP_WARMUP=1 --env=QUANT_CONFIG=/q image vllm serve m",
            {
                "VLLM_SKIP_WARMUP": "1",
                "QUANT_CONFIG": "/q",
                "--model": "m",
            },
        ),
        (
            "vllm serve m --no-enable-prefix-caching --gpu_memory_util 0.9",
            {
                "--model": "m",
                "--enable-prefix-caching": "false",
                "--gpu-memory-utilization": "0.9",
            },
        ),
        (
            "vllm serve --max-model-len -1 m",
            {"--max-model-len": "-1", "--model": "m"},
        ),
        (
            "vllm serve --enforce-eager m",
            {"--enforce-eager": "true", "--model": "m"},
        ),
        ("vllm serve m --port 1 --port 2", {"--model": "m", "--port": "2"}),
        ("my-server --max-num-seqs 8", {"--max-num-seqs": "8"}),
        ("vllm serve m --api-key", {"--model": "m", "--api-key": "true"}),
    ],
)
def test_a_command_line_in_its_many_forms(
    command: str, expected: dict[str, str]
) -> None:
    assert values(command) == expected


def test_no_command_sets_nothing() -> None:
    assert of_command([]) == {}


def test_a_script_that_no_shell_reads_is_refused() -> None:
    with pytest.raises(UsageError, match="No closing quotation"):
        of_command(["bash", "-c", "vllm serve 'm"])


@pytest.mark.parametrize(
    ("written", "name", "is_on"),
    [
        ("--max_model_len", "--max-model-len", True),
        ("--max-model", "--max-model-len", True),
        ("--max", "--max", True),
        ("--max-num", "--max-num", True),
        ("--no-enable-chunked-prefill", "--enable-chunked-prefill", False),
        ("--no-such-flag", "--no-such-flag", True),
        ("-dp", "--data-parallel-size", True),
    ],
)
def test_a_flag_has_one_name(written: str, name: str, is_on: bool) -> None:
    assert flag_name(written) == (name, is_on)


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words_are_read(words: list[str]) -> None:
    assume("-c" not in words)
    for name, setting in of_command(words).items():
        assert name == setting.name
        assert setting.where == "command line"


def test_an_env_file_is_read_as_a_shell_docker_or_systemd_reads_it() -> None:
    found = of_file(
        "# VLLM_SKIP_WARMUP=1\n\nA=1\nexport B='two words'\nC=\"x=y\"\n D=4 \nnonsense\n",
        "my.env",
    )
    assert {name: each.value for name, each in found.items()} == {
        "A": "1",
        "B": "two words",
        "C": "x=y",
        "D": "4",
    }
    assert found["B"].where == "my.env:4"


def test_vllms_own_configuration_file_holds_flags() -> None:
    found = of_mapping(
        {"max-num-seqs": 8, "enforce_eager": True, "no-enable-prefix-caching": True},
        "c.yaml",
    )
    assert {name: each.value for name, each in found.items()} == {
        "--max-num-seqs": "8",
        "--enforce-eager": "true",
        "--enable-prefix-caching": "false",
    }


SAID = (
    "INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.26.0) with config: "
    "model='m', max_seq_len=4096, tensor_parallel_size=2, enforce_eager=False\n"
    "INFO 01-02 03:04:06 [runtime.py:28] User flags:\n"
    "INFO 01-02 03:04:06 [runtime.py:32]     VLLM_GRAPH_PROMPT_RATIO: 0.3\n"
    "INFO 01-02 03:04:06 [runtime.py:32]     VLLM_PROMPT_SEQ_BUCKET_MAX: 1024\n"
)
ECHOED = (
    "INFO 01-02 03:04:07 [linear.py:117] VLLM_PROMPT_QUERY_BUCKET_MAX=1024 "
    "(default:2048)\n"
    "INFO 01-02 03:04:07 [linear.py:117] VLLM_DECODE_BS_BUCKET_STEP=32 (default:32)\n"
    "INFO 01-02 03:04:07 [linear.py:117] VLLM_DECODE_BLOCK_BUCKET_STEP=64 (default:128)\n"
)


def test_a_log_tells_what_its_server_was_given_and_in_which_line() -> None:
    found = of_log(start_of_text(SAID + ECHOED), "s.log")
    told = {name: (each.value, each.where) for name, each in found.items()}
    assert told["VLLM_GRAPH_PROMPT_RATIO"] == ("0.3", "s.log:3")
    assert told["VLLM_PROMPT_SEQ_BUCKET_MAX"] == ("1024", "s.log:4")
    assert told["--tensor-parallel-size"] == ("2", "s.log:1")
    assert told["--model"] == ("m", "s.log:1")
    # What an older spelling came to was not set by anybody, nor was a default.
    assert "VLLM_PROMPT_QUERY_BUCKET_MAX" not in told
    assert "VLLM_DECODE_BS_BUCKET_STEP" not in told
    assert told["VLLM_DECODE_BLOCK_BUCKET_STEP"] == ("64", "s.log:7")


def test_a_default_that_the_log_prints_is_known() -> None:
    line = (
        "(APIServer pid=9) DEBUG 01-02 03:04:06 [engine/arg_utils.py:20] Defaulting "
        "max_num_seqs to 256 for OPENAI_API_SERVER usage context.\n"
    )
    found = of_log(start_of_text(SAID.splitlines(keepends=True)[0] + line), "s.log")
    assert (found["--max-num-seqs"].value, found["--max-num-seqs"].where) == (
        "256",
        "s.log:2",
    )


def test_a_log_without_a_list_tells_only_what_differs_from_a_default() -> None:
    first = SAID.splitlines(keepends=True)[0]
    found = of_log(start_of_text(first + ECHOED), "s.log")
    told = {name: each.value for name, each in found.items() if name.isupper()}
    assert told == {
        "VLLM_PROMPT_QUERY_BUCKET_MAX": "1024",
        "VLLM_DECODE_BLOCK_BUCKET_STEP": "64",
    }


@given(
    st.builds(
        EnvHeader,
        *(
            st.none()
            | st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=9)
            for _ in range(5)
        ),
    )
)
def test_the_head_of_an_env_file_comes_back(header: EnvHeader) -> None:
    text = "\n".join(["# hpuwatch tune", *header.lines(), "A=1", ""])
    assert read_header(text) == (header if header.known() else None)
