"""The flags that vLLM repeats at its start, and how they come to a command again."""

from __future__ import annotations

import pytest

from hpuwatch.advise.plan.arguments import arguments_of
from hpuwatch.advise.plan.parts import settings_of
from hpuwatch.state.model import Start
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit

AT = "(APIServer pid=1) INFO 06-01 09:59:50 [utils.py:233] "
REST = (
    f"{AT}Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=2048, device_config=hpu\n"
)


def start_with(args: str) -> Start:
    (start,) = state_of_text(f"{AT}non-default args: {args}\n{REST}").starts
    return start


def test_every_plain_value_becomes_a_flag() -> None:
    start = start_with(
        "{'model': 'm', 'port': 9000, 'quantization': 'inc', 'seed': 1.5, "
        "'served_model_name': ['a', 'b c'], 'enable_prefix_caching': False, "
        "'trust_remote_code': True, 'hf_overrides': {'x': 1}, 'none': None, "
        "'made': CompilationConfig(level=3)}"
    )
    assert arguments_of(start) == {
        "--port": "9000",
        "--quantization": "inc",
        "--seed": "1.5",
        "--served-model-name": "a 'b c'",
        "--enable-prefix-caching": "false",
        "--trust-remote-code": "true",
        "--hf-overrides": '{"x": 1}',
    }


def test_secrets_are_named_without_their_values() -> None:
    start = start_with("{'model': 'm', 'port': 1, 'hf_token': 'hf_abcdefghijklmnop'}")
    found = {each.name: each for each in settings_of(start)}
    assert found["--hf-token"].value == "***"
    assert found["--port"].value == "1"
    assert found["--port"].line == 1


@pytest.mark.parametrize(
    "args",
    ["{'port': 9000, 'x'", "{" * 9_000 + "}", "{'--rm -rf': 1, 'A B': 2}", "{1: 2}"],
)
def test_what_is_no_mapping_of_flags_gives_none(args: str) -> None:
    assert arguments_of(start_with(args)) == {}
