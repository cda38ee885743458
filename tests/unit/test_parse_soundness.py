"""Rules that are refused although they are well formed: slow ones, repeated ones."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import RuleError
from hpuwatch.parse.linear import _PARSER, LENGTH, ways
from hpuwatch.parse.rulefile import load_rules
from hpuwatch.parse.soundness import flaw_of_type

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "regex",
    [
        r"(?:\w+ ?)*",
        r"(?:a+)+",
        r"(?:a*)*",
        r"(?:a|aa)+",
        r"(?:a|ab|b)*",
        r"(?:x{1,80} ?){0,200}",
        r"(?:|a)*",
        r"(?:\d+|\w)+",
        r"(?:(?:a?b?)+c)?",
        r"(?=(?:\w+ ?)*$)x",
    ],
)
def test_rounds_that_can_be_cut_in_many_ways(regex: str) -> None:
    assert is_slow(regex)


@pytest.mark.parametrize(
    "regex",
    [
        r"\d+\d+",
        r".*a.*",
        r"\w+\d*",
        r"\w+-?\w+",
        r"[ab]*(?:c|a+)",
        r"(?:a+|b)a+",
        r"\s*\n*",
        r"é*.*",
        r"[^a]*[^b]*",
        r"\w{300,}\d{0,1000}",
    ],
)
def test_repeats_in_a_row_that_share_characters(regex: str) -> None:
    assert is_slow(regex)


@pytest.mark.parametrize(
    "regex",
    [
        r"\w+: \w+",
        r"\d+(?:\.\d+)?",
        r"\d+(?:\.\d+)?(?:e[+-]?\d+)?",
        r"(?:\d+\.)*",
        r"(?:\w+\s+)*",
        r"(?:\d{1,3},){2,3}\d",
        r"\[[^\]]*\]",
        r"\d+:\d\d(?::\d\d)?|\?",
        r"GET|POST|[A-Z]{1,9}",
        r"[^\n]{0,200}?",
        r"'[^']*'",
        r"a+(?:b+|c+)d+",
        r"",
    ],
)
def test_what_takes_linear_time(regex: str) -> None:
    assert flaw_of_type("mine", regex) is None


def test_a_group_that_is_referred_to_can_be_anything() -> None:
    assert ways(r"(.)\1*x*") >= LENGTH**2


REGEXES = st.lists(
    st.sampled_from([*"ab.()|*+?[]\\d{}^,12 ", "(?:", "\\w", "{0,9}", "[^a]"]),
    max_size=9,
)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(REGEXES.map("".join))
def test_any_regular_expression_gets_an_answer(regex: str) -> None:
    with suppress(re.error, OverflowError):
        re.compile(regex)
        assert ways(regex) >= 1


def is_slow(regex: str) -> bool:
    return "may take very long" in (flaw_of_type("mine", regex) or "")


@pytest.mark.parametrize(
    "regex",
    [
        ".{0,200}" * 5 + "x",
        "a?" * 30 + "a" * 30,
        "(?:aa|a.|.a)" * 30 + "b",
        r"(?:\w{1,250} ?){1,1}\w{1,250}\w{1,250}",
        "a{0,80}a{0,80}a{0,80}",
        "a{0,99}a{0,99}b" * 4,
        "(?i:a{0,200})A{0,200}a{0,200}",
    ],
)
def test_limits_that_multiply(regex: str) -> None:
    assert is_slow(regex)


@pytest.mark.parametrize(
    ("regex", "word"),
    [
        ("(?:" * 2_000 + ")" * 2_000, "longer than"),
        ("a?" * 3_000, "longer than"),
        ("a{99999999999}", "too large"),
        ("[[a]--b||c]", "may mean something else"),
        ("(?:" * 120 + ")" * 120, ""),
    ],
)
def test_what_python_itself_stumbles_over(regex: str, word: str) -> None:
    for _ in range(2):  # Python remembers an expression, and warns of it once
        assert word in (flaw_of_type("mine", regex) or "")


def ends(tree: Any, text: str, place: int) -> list[int]:
    """Return where the ways through an expression end, one by one, as a matcher walks."""
    now = [place]
    for code, argument in tree:
        now = [end for each in now for end in ends_of(str(code), argument, text, each)]
    return now


def ends_of(name: str, argument: Any, text: str, place: int) -> list[int]:
    if name == "SUBPATTERN":
        return ends(argument[3], text, place)
    if name == "BRANCH":
        return [end for each in argument[1] for end in ends(each, text, place)]
    if name == "MAX_REPEAT":
        least, most, body = argument
        found, now = [place] * (least == 0), [place]
        for times in range(1, min(int(most), len(text)) + 1):
            now = [end for each in now for end in ends(body, text, each) if end > each]
            found += now * (times >= least)
        return found
    if place == len(text):
        return []
    kinds = argument if name == "IN" else [(name, argument)]
    takes = name == "ANY" or any(ord(text[place]) == each for _, each in kinds)
    return [place + 1] * takes


ATOMS = st.sampled_from(["a", "b", "c", "[ab]", "[bc]", "."])
SMALL = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(
            lambda each: f"(?:{'|'.join(each)})"
        ),
        st.tuples(inner, st.sampled_from(["?", "{0,2}", "{1,3}", "*", "+"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=9,
)


@given(SMALL, st.text("abc", max_size=7))
def test_there_are_never_more_ways_than_told(regex: str, text: str) -> None:
    """Counted one by one; with the text's own length for that of a long line."""
    with patch("hpuwatch.parse.linear.LENGTH", len(text) + 1):
        assert len(ends(_PARSER.parse(regex), text, 0)) <= ways(regex)


@given(SMALL)
def test_what_passes_ends_on_hostile_text(regex: str) -> None:
    """The tick of a clock is no proof, but exponential time would never end."""
    if not is_slow(regex):
        for text in ("a" * 2_000, "ab" * 1_000, "abc" * 700):
            re.compile(rf"\A(?:{regex})!").match(text)


def refused(text: str) -> str:
    with pytest.raises(RuleError) as caught:
        load_rules({"own.yaml": f"config_version: 1\nrules:\n{text}"})
    return str(caught.value)


def test_a_slow_type_is_refused_where_it_stands() -> None:
    told = refused(
        '  - event: good\n    patterns: ["all is well"]\n'
        "  - event: mine\n    types: {words: '(?:\\w+ ?)*'}\n"
        '    patterns: ["said {what:words}"]\n'
    )
    assert "own.yaml:6: mine: the type 'words' may take very long" in told


def test_a_type_that_captures_is_refused() -> None:
    assert "captures groups" in refused(
        "  - event: mine\n    types: {v: '(a|b)'}\n    patterns: [\"said {what:v}\"]\n"
    )


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        ("moved {a:str} to {b:str}", False),
        ("moved {a:str} to {b:str} in {s:int} s", True),
        ("{a:str} to {b:str} in {s:int} s", False),
        ("moved {a:word} to {b:word} in {s:int} s", False),
        ("moved {a:mine} to {b:mine} in {s:int} s", True),
        ("moved {a:tuple} to {b:tuple} in {s:int} s", False),
        ("moved {a:str} to {b:int}<<: {c:str}>>", False),
    ],
)
def test_only_few_holes_may_reach_over_anything(pattern: str, is_slow: bool) -> None:
    text = f"  - event: mine\n    types: {{mine: '.*'}}\n    patterns: ['{pattern}']\n"
    if is_slow:
        assert "may take very long" in refused(text)
    else:
        load_rules({"own.yaml": f"config_version: 1\nrules:\n{text}"})


def test_the_same_pattern_under_other_names_can_not_be_reached() -> None:
    told = refused(
        '  - event: one\n    patterns: ["took {a:int} s"]\n'
        '  - event: two\n    patterns: ["took {b:int} s"]\n'
    )
    assert "own.yaml:6: two: 'took {b:int} s' can't be reached: own.yaml:4 has" in told


def test_a_fault_may_have_the_pattern_of_a_sentence() -> None:
    load_rules(
        {
            "own.yaml": "config_version: 1\nrules:\n"
            '  - event: one\n    patterns: ["the engine died"]\n'
            "  - event: fault\n    set: {name: dead}\n"
            '    patterns: ["the engine died"]\n'
        }
    )


def test_a_shipped_pattern_can_not_be_had_twice() -> None:
    rule = shipped_rules().rules[0]
    pattern = rule.text.patterns[0].replace("'", "''")
    text = f"config_version: 1\nrules:\n  - event: mine\n    patterns: ['{pattern}']\n"
    documents = {"shipped.yaml": text, "own.yaml": text}
    with pytest.raises(RuleError, match=r"own\.yaml:4: .* shipped\.yaml:4 has"):
        load_rules(documents)


@pytest.mark.parametrize(
    ("types", "pattern", "word"),
    [
        ("{t: 'a{0,99}'}", "said {a:t}{b:t}{c:t}{d:t}", "too many ways"),
        ("{t: 'a{0,99}'}", "said {a:t} {b:t} {c:t} {d:t}", ""),
        ("{}", "said {a:word}{b:word}{c:word}", "too many ways"),
        ("{}", "said " + "{:int} " * 65, "more than 64 holes"),
        ("{}", "said " + "<<a>>" * 30 + "a" * 30, "may be missing"),
    ],
)
def test_a_pattern_multiplies_too(types: str, pattern: str, word: str) -> None:
    text = f"  - event: mine\n    types: {types}\n    patterns: ['{pattern}']\n"
    if word:
        assert word in refused(text)
    else:
        load_rules({"own.yaml": f"config_version: 1\nrules:\n{text}"})


def test_a_key_that_stands_twice_is_refused_where_it_does() -> None:
    told = refused(
        '  - event: mine\n    patterns: ["all is well"]\n    event: other\nrules: []\n'
    )
    assert "own.yaml:5: event stands here twice" in told
    assert "own.yaml:6: rules stands here twice" in told


@pytest.mark.parametrize("version", ["true", "1.0", "'1'"])
def test_the_version_is_a_whole_number(version: str) -> None:
    with pytest.raises(RuleError, match=r"own\.yaml:1: config_version: .*whole number"):
        load_rules({"own.yaml": f"config_version: {version}\nrules: []\n"})


def test_a_file_of_too_many_rules_is_refused() -> None:
    rule = '  - {event: mine, patterns: ["thing"]}\n'
    assert "more than 2000" in refused(rule * 2_001)


def test_what_is_no_file_of_a_sane_size_is_told_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_bytes(b"#" * (4 << 20) + b"#")
    (tmp_path / "c.yaml").write_text("rules: [")
    with pytest.raises(RuleError) as caught:
        shipped_rules(tmp_path)
    told = str(caught.value)
    assert "a.yaml:1: it can't be read: it is no regular file" in told
    assert "b.yaml:1: it can't be read: it is larger than 4 MiB" in told
    assert "c.yaml:2: no YAML" in told
