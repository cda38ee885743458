"""The demo's words: all of them where they are piped, what a screen holds elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hpuwatch.app import demo
from hpuwatch.cli import demo as cli
from hpuwatch.errors import ExtraMissing
from hpuwatch.metrics.catalogue import BY_NAME
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

LONG = f"   {'(1, 128, 0), ' * 100}\n"


class Output(io.StringIO):
    """A standard output that may be a screen."""

    def __init__(self, *, screen: bool) -> None:
        super().__init__()
        self.screen = screen

    def isatty(self) -> bool:
        return self.screen


@pytest.mark.parametrize("screen", [False, True])
def test_only_a_screen_gets_long_lines_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, screen: bool
) -> None:
    def shown(say: demo.Say, *_: object, **__: object) -> None:
        say(f"short\n{LONG}")

    output = Output(screen=screen)
    monkeypatch.setattr(demo, "run_demo", shown)
    monkeypatch.setattr(sys, "stdout", output)

    cli.demo(trials=1, seed=1, keep=str(tmp_path))

    said = output.getvalue()
    assert said.startswith("short\n   (1, 128, 0)")
    assert said.endswith(" …\n" if screen else LONG)
    assert (len(said) < len(LONG)) is screen


def test_the_metrics_that_it_shows_exist() -> None:
    assert set(demo.METRICS) <= set(BY_NAME)


def test_without_scikit_optimize_it_does_not_even_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpuwatch.tune.designer.find_spec", lambda _: None)
    said: list[str] = []
    with pytest.raises(ExtraMissing, match="scikit-optimize"):
        demo.run_demo(said.append, FakeClock(), tmp_path, trials=3, seed=1)
    assert said == []
