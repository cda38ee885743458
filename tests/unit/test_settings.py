"""Settings: where each comes from, and whose mistake a wrong one is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpuwatch.errors import ConfigError, UsageError
from hpuwatch.settings import load_settings

pytestmark = pytest.mark.unit


def test_a_flag_stands_above_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPUWATCH_NAME", "theirs")
    monkeypatch.setenv("HPUWATCH_LISTEN", ":1")

    settings = load_settings(name="ours", listen=None)

    assert (settings.name, settings.listen) == ("ours", ":1")


WRONG = [
    ("name", "--name", "HPUWATCH_NAME", "../evil", "is not a name"),
    ("listen", "--listen", "HPUWATCH_LISTEN", "nowhere", "write HOST:PORT"),
    ("stop_wait_seconds", "--stop-wait", "HPUWATCH_STOP_WAIT_SECONDS", "-1", "seconds"),
    (
        "stop_wait_seconds",
        "--stop-wait",
        "HPUWATCH_STOP_WAIT_SECONDS",
        "inf",
        "seconds",
    ),
    ("echo", "--no-echo", "HPUWATCH_ECHO", "perhaps", "true or false"),
]


@pytest.mark.parametrize(("setting", "flag", "variable", "value", "words"), WRONG)
def test_a_wrong_value_is_told_by_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    flag: str,
    variable: str,
    value: str,
    words: str,
) -> None:
    with pytest.raises(UsageError) as by_flag:
        load_settings(**{setting: value})
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as by_variable:
        load_settings()

    sentences = {flag: by_flag, f"{variable}=": by_variable}
    for where, raised in sentences.items():
        sentence = str(raised.value)
        assert sentence.startswith(where)
        assert repr(value) in sentence
        assert words in sentence
        assert "\n" not in sentence


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("run", ["--listen", "nowhere", "--", "true"]),
        ("run", ["--name", "../evil", "--", "true"]),
        ("run", ["--stop-wait", "0", "--", "true"]),
        ("attach", ["--listen", "nowhere", "--log", "-"]),
        ("doctor", ["--listen", "bad"]),
        ("doctor", ["--server", "bad"]),
        ("last-exit", ["--name", "../evil"]),
    ],
)
def test_a_wrong_flag_ends_with_2(verb: str, words: list[str], tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hpuwatch", verb, *words],
        env={"HPUWATCH_STATE_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 2, said.stderr
    assert said.stderr.startswith(f"hpuwatch: error: {words[0]} ")
    assert said.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_wrong_variable_ends_with_78(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hpuwatch", "run", "--", "true"],
        env={"HPUWATCH_STATE_DIR": str(tmp_path), "HPUWATCH_LISTEN": "nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 78, said.stderr
    assert said.stderr.startswith("hpuwatch: error: HPUWATCH_LISTEN='nowhere' is not")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the state would go into whatever folder we were started in."""
    monkeypatch.setenv("HPUWATCH_STATE_DIR", "")
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert load_settings().state_root() == Path("/somewhere/hpuwatch")
