"""Rules of one's own while a log is followed: changed, broken, mended and taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.app.reload import LiveRules
from hpuwatch.app.rules import shipped_rules
from hpuwatch.life.phases import Phase
from hpuwatch.loop.watch import Watch
from hpuwatch.parse.rules import RuleSet
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.programs import until

pytestmark = pytest.mark.unit

SHIPPED = len(shipped_rules().rules)
HEAD = "INFO 11-29 12:29:10 [own.py:1] "


def rule(sentence: str) -> str:
    return f'config_version: 1\nrules:\n  - event: mine\n    patterns: ["{sentence}"]\n'


def told(live: LiveRules) -> tuple[int, int]:
    snapshot = live.told_in(Snapshot("x", Phase.READY))
    return snapshot.rules - SHIPPED, snapshot.rule_failures


def test_a_new_file_a_changed_one_and_none(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(rule("one two"))
    said: list[str] = []
    live = LiveRules(tmp_path, said.append)
    assert told(live) == (1, 0)
    live.look()
    assert live.take() is None
    (tmp_path / "b.yaml").write_text(rule("three four"))
    live.look()
    assert told(live) == (1, 0)  # in force once they are taken
    taken = live.take()
    assert taken is not None
    assert live.rules is taken
    assert live.take() is None
    assert told(live) == (2, 0)
    (tmp_path / "a.yaml").unlink()
    live.look()
    live.take()
    assert told(live) == (1, 0)
    assert said[-1] == f"{tmp_path} has changed: {SHIPPED + 1} rules in force"
    (tmp_path / "b.yaml").unlink()
    live.look()
    live.take()
    assert told(live) == (0, 0)


def test_a_broken_file_leaves_the_old_rules_in_force(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(rule("one two"))
    said: list[str] = []
    live = LiveRules(tmp_path, said.append)
    bad.write_text(rule("x {y:nonsense}") + "  - event: Other\n    patterns: [abc]\n")
    good.write_text(rule("a {y:nonsense} longer"))
    live.look()
    assert live.take() is None
    assert told(live) == (1, 1)
    text = "\n".join(said)
    assert f"{bad}:5: rules.1.event" in text
    assert f"{good}:4: mine:" in text
    assert said[-1] == "the log rules that were in force stay so"
    live.look()  # nothing has changed: it is said once
    assert told(live) == (1, 1)
    bad.unlink()
    good.write_text(rule("mended"))
    live.look()
    assert live.take() is not None
    assert told(live) == (1, 1)


def test_a_file_that_nobody_can_read_hides_no_mistake(tmp_path: Path) -> None:
    said: list[str] = []
    live = LiveRules(tmp_path, said.append)
    (tmp_path / "a.yaml").write_bytes(b"\xff")
    (tmp_path / "b.yml").write_text(rule("a {y:nonsense}"))
    live.look()
    text = "\n".join(said)
    assert f"{tmp_path}/a.yaml:1: no UTF-8" in text
    assert f"{tmp_path}/b.yml:4: mine:" in text
    assert told(live) == (0, 1)


@pytest.mark.parametrize("text", [None, "rules: [", "config_version: 3"])
def test_a_start_with_broken_rules_is_one_with_the_shipped(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "own.yaml"
    if text is not None:
        path.write_text(text)
    said: list[str] = []
    live = LiveRules(path, said.append)
    assert told(live) == (0, 1)
    assert any(str(path) in sentence for sentence in said)
    path.write_text(rule("here it is"))
    live.look()
    assert live.take() is not None
    assert told(live) == (1, 1)


def test_whatever_goes_wrong_a_good_file_is_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(rule("one two"))
    said: list[str] = []
    live = LiveRules(path, said.append)

    def broken(_path: Path) -> RuleSet:
        raise RecursionError("too deep")

    monkeypatch.setattr("hpuwatch.app.reload._LOOK_SECONDS", 0.05)
    with monkeypatch.context() as patched, live:
        patched.setattr("hpuwatch.app.reload.shipped_rules", broken)
        path.write_text(rule("one two three"))
        until(lambda: len(said) == 2)
    assert said[0] == "the log rules can't be loaded: RecursionError: too deep"
    assert told(live) == (1, 1)
    path.write_text(rule("and four"))
    live.look()
    assert live.take() is not None


@pytest.mark.parametrize("regex", ["(?:" * 2_000 + ")" * 2_000, "a{99999999999}"])
def test_a_type_that_python_stumbles_over_is_a_mistake(
    tmp_path: Path, regex: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(rule("one two"))
    said: list[str] = []
    live = LiveRules(path, said.append)
    path.write_text(f"{rule('said {x:t}')}    types: {{t: '{regex}'}}\n")
    live.look()
    assert told(live) == (1, 1)
    assert any(f"{path}:5: mine: the type 't'" in sentence for sentence in said)


def test_without_rules_of_ones_own_nothing_is_said() -> None:
    said: list[str] = []
    live = LiveRules(None, said.append)
    with live:
        live.look()
    assert (told(live), said) == ((0, 0), [])


def test_what_is_under_way_goes_on_under_new_rules(tmp_path: Path) -> None:
    """A traceback of which the old rules saw the first half."""
    live = LiveRules(tmp_path, print)
    watch = Watch("x", live.rules, FakeClock())
    head = "(EngineCore pid=7) ERROR 11-29 12:29:10 [core.py:1] "
    watch.take(f"{head}Traceback (most recent call last):\n".encode(), 1.0)
    watch.take(f'{head}  File "x.py", line 1, in warm\n'.encode(), 1.0)
    (tmp_path / "a.yaml").write_text(
        "config_version: 1\nrules:\n  - event: fault\n    severity: fatal\n"
        "    set: {name: of_ours}\n"
        '    patterns: ["OurError: {seen:int} seen"]\n'
    )
    live.look()
    rules = live.take()
    assert rules is not None
    watch.use(rules)
    watch.take(f"{head}OurError: 7 seen\n".encode(), 1.0)
    watch.close()
    start = watch.snapshot().state.current
    assert start is not None
    assert [fault.name for fault in start.faults] == ["of_ours"]
    assert len(start.faults[0].context) == 3
    assert watch.snapshot().lines == 3
