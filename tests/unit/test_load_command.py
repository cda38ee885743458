"""Where a server command will listen, and what is refused before a restart."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hpuwatch.app.tune_order import Order, check_order, new_study, tuned_variables
from hpuwatch.app.tune_plan import duration
from hpuwatch.errors import ResourceError, UsageError
from hpuwatch.load.endpoint import Endpoint, endpoint_of_command, flag_of
from hpuwatch.settings import Settings
from hpuwatch.testing.clock import FakeClock
from hpuwatch.tune.trial import LoadPlan

pytestmark = pytest.mark.unit

ORDER = Order((sys.executable, "--port", "8001"), Settings())


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (["/opt/bin/vllm", "serve", "m"], "http://127.0.0.1:8000"),
        (["vllm", "serve", "m", "--port", "9000"], "http://127.0.0.1:9000"),
        (["x", "--port=9000", "--host=0.0.0.0"], "http://127.0.0.1:9000"),
        (["x", "--port", "1", "--port", "9001"], "http://127.0.0.1:9001"),
        (["x", "--port", "9", "--host", "10.1.2.3"], "http://10.1.2.3:9"),
        (["x", "--port", "9", "--host", "::"], "http://[::1]:9"),
    ],
)
def test_a_command_says_where_it_will_listen(command: Sequence[str], url: str) -> None:
    assert endpoint_of_command(command, {}).url == url


@pytest.mark.parametrize(
    "command",
    [
        ["x"],
        ["x", "--port"],
        ["x", "--port", "0"],
        ["x", "--port", "70000"],
        ["x", "--port", "$PORT"],
        ["vllm", "serve", "--port", "auto"],
    ],
)
def test_a_command_without_a_port_to_talk_to_is_refused(command: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="--url http"):
        endpoint_of_command(command, {})


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["x", "--port", "9", "--api-key", "abc"], {}),
        (["x", "--port", "9"], {"VLLM_API_KEY": "abc"}),
    ],
)
def test_the_server_s_key_is_sent_along(
    command: Sequence[str], environment: Mapping[str, str]
) -> None:
    endpoint = endpoint_of_command(command, environment)
    assert endpoint.key == "abc"


def test_a_flag_may_be_spelt_with_underscores() -> None:
    assert flag_of(["--api_key=1"], "--api-key") == "1"
    assert flag_of(["--other", "1"], "--api-key") is None


def test_a_sound_order_passes() -> None:
    assert check_order(ORDER, {"PATH": "/usr/bin"}) == Endpoint("127.0.0.1", 8001)
    asked = replace(ORDER, url="http://10.0.0.1:80")
    assert check_order(asked, {}).url == "http://10.0.0.1:80"


@pytest.mark.parametrize(
    ("order", "environment", "words"),
    [
        (replace(ORDER, command=()), {}, "name the server's command"),
        (replace(ORDER, trials=1), {}, "2 or more"),
        (replace(ORDER, resume=True, seed=3), {}, "study's own knobs"),
        (replace(ORDER, resume=True, load=LoadPlan()), {}, "study's own knobs"),
        (ORDER, {"VLLM_SKIP_WARMUP": "1"}, "VLLM_SKIP_WARMUP is set"),
        (replace(ORDER, command=(*ORDER.command, "--enforce-eager")), {}, "no graphs"),
        (replace(ORDER, knobs=("decode-block-step",)), {}, "changes nothing under"),
    ],
)
def test_what_makes_no_sense_is_refused(
    order: Order, environment: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        check_order(order, environment)


def test_a_command_that_does_not_exist_is_refused() -> None:
    order = replace(ORDER, command=("no-such-program", "--port", "9"))
    with pytest.raises(ResourceError, match="there is no command 'no-such-program'"):
        check_order(order, {"PATH": "/usr/bin"})


def test_a_skipped_warm_up_that_isn_t_one_passes() -> None:
    check_order(ORDER, {"VLLM_SKIP_WARMUP": "false"})


def test_a_study_keeps_no_secret_of_the_command() -> None:
    order = replace(ORDER, command=(*ORDER.command, "--api-key", "abc123secret"))
    study = new_study(order, {}, Endpoint("h", 1), FakeClock())
    assert "abc123secret" not in " ".join(study.command)
    assert "abc123secret" not in study.fingerprint


def test_only_variables_of_reserve_and_buckets_are_tuned_by() -> None:
    environment = {
        "VLLM_GRAPH_RESERVED_MEM": "0.4",
        "VLLM_DECODE_BS_BUCKET_MAX": "64",
        "VLLM_BUCKETING_FROM_FILE": "buckets.txt",
        "VLLM_API_KEY": "secret",
        "PATH": "/bin",
    }
    assert set(tuned_variables(environment)) == {
        "VLLM_GRAPH_RESERVED_MEM",
        "VLLM_DECODE_BS_BUCKET_MAX",
        "VLLM_BUCKETING_FROM_FILE",
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.4, "42 s"), (420, "7 min"), (9000, "2.5 h")]
)
def test_a_length_of_time_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
