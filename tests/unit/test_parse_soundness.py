"""Rules that are refused although they are well formed: slow ones, repeated ones."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import RuleError
from hpuwatch.parse.linear import why_slow
from hpuwatch.parse.rulefile import load_rules

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
    assert "repeats what itself varies" in why_slow(regex)


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
    assert "repeats in a row" in why_slow(regex)


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
    assert why_slow(regex) == ""


def test_a_group_that_is_referred_to_can_be_anything() -> None:
    assert "repeats in a row" in why_slow(r"(.)\1*x*")


REGEXES = st.lists(
    st.sampled_from([*"ab.()|*+?[]\\d{}^,12 ", "(?:", "\\w", "{0,9}", "[^a]"]),
    max_size=9,
)


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(REGEXES.map("".join))
def test_any_regular_expression_gets_an_answer(regex: str) -> None:
    with suppress(re.error, OverflowError):
        re.compile(regex)
        assert isinstance(why_slow(regex), str)


PARTS = st.lists(st.sampled_from(["a*", "b*", "[ab]+", "(?:ab?)*", "c"]), max_size=4)


@given(PARTS.map("".join))
def test_what_passes_is_fast_on_hostile_text(regex: str) -> None:
    """The tick of a clock is no proof, but exponential time would never end."""
    if not why_slow(regex):
        for text in ("a" * 2_000, "ab" * 1_000, "b" * 2_000):
            re.compile(rf"\A{regex}!").match(text)


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
    assert "own.yaml:5: mine: the type 'words' may take very long" in told


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
    assert "own.yaml:5: two: 'took {b:int} s' can't be reached: own.yaml:3 has" in told


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
    with pytest.raises(RuleError, match=r"own\.yaml:3: .* shipped\.yaml:3 has"):
        load_rules(documents)
