"""Rules: patterns, selection, mistakes told with file and line, proofs."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import RuleError
from hpuwatch.parse.header import read
from hpuwatch.parse.proof import mistakes
from hpuwatch.parse.rulefile import Document, load_rules
from hpuwatch.parse.rules import RuleSet, RuleText
from hpuwatch.parse.template import compile_template
from hpuwatch.parse.values import TYPES

pytestmark = pytest.mark.unit


def rules(text: str) -> RuleSet:
    return load_rules({"own.yaml": "config_version: 1\nrules:\n" + text})


def fields(pattern: str, message: str, **own: str) -> dict[str, Any] | None:
    found = compile_template(pattern, own).match(message)
    return None if found is None else found[1]


def test_typed_holes() -> None:
    got = fields(
        "took {s:seconds} s in {phase:Prompt|Decode}", "it took 6.5 s in Decode."
    )
    assert got == {"s": 6.5, "phase": "decode"}


def test_parts_that_may_be_missing() -> None:
    pattern = "Running: {r:int}<<, Preemptions: {p:int}>>, KV: {kv:float}"
    assert fields(pattern, "Running: 3, KV: 1.5") == {"r": 3, "kv": 1.5}
    assert fields(pattern, "Running: 3, Preemptions: 2, KV: 1.5") == {
        "r": 3,
        "p": 2,
        "kv": 1.5,
    }


def test_a_repeated_hole_repeats_its_text() -> None:
    assert fields("{n:int} of {n:int}", "5 of 5") == {"n": 5}
    assert fields("is {n:int} of {n:int}", "is 5 of 6") is None


def test_nameless_holes_and_braces() -> None:
    assert fields("procs {{{:int}}} of {x:word}", "procs {4} of b") == {"x": "b"}


def test_one_blank_stands_for_many() -> None:
    assert (
        fields("graphs, {p:bytes} for prompt", "graphs, 4 GiB       for prompt")
        is not None
    )
    assert fields("ab", "a b") is None


def test_text_at_the_end_reaches_to_the_end() -> None:
    assert fields("args: {args:str}", "args: a b c") == {"args": "a b c"}
    assert fields("a<<: {rest:str}>>", "a: b c") == {"rest": "b c"}
    assert fields("{a:str} is {b:word}", "it is so") == {"a": "it", "b": "so"}


def test_own_types() -> None:
    assert fields("size {v:mine}", "size aab", mine="a+") == {"v": "aa"}


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("a {x:nonsense}", "no type"),
        ("a << b", "<<"),
        ("a >> b", "pairs"),
        ("a << b << c >>", "nested"),
        ("a } b", "stray"),
        ("a {x!r}", "stray"),
    ],
)
def test_broken_patterns(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        compile_template(pattern)


WORDS = st.lists(
    st.sampled_from(["a", "bb", "ccc", "is", "of"]), min_size=3, max_size=6
)


@given(WORDS, WORDS, st.sampled_from([" ", "  ", "   "]))
def test_selection_loses_no_match(
    pattern: list[str], around: list[str], blanks: str
) -> None:
    text = " ".join(pattern)
    one = rules(f'  - event: thing\n    patterns: ["{text}"]\n')
    message = f"{' '.join(around)}-{blanks.join(pattern)}-{around[0]}"
    assert one.rules[0].templates[0].match(message) is not None
    (match,) = one.find(message)
    assert match.rule is one.rules[0]


def test_the_longest_match_wins_whatever_the_order() -> None:
    for patterns in (["blocks: {n:int}", "blocks: {n:int}, swap: {m:int}"],) * 2:
        patterns.reverse()
        both = rules(
            "".join(f'  - event: e{len(p)}\n    patterns: ["{p}"]\n' for p in patterns)
        )
        (match,) = both.find("blocks: 4, swap: 5")
        assert match.fields == {"n": 4, "m": 5}


def test_a_fault_is_matched_beside_the_sentence() -> None:
    both = rules(
        '  - event: engine_death\n    patterns: ["engine {who:word} died"]\n'
        '  - event: fault\n    severity: fatal\n    set: {name: dead}\n    patterns: ["died"]\n'
    )
    found = both.find("engine 5 died")
    assert {match.rule.event for match in found} == {"engine_death", "fault"}


def test_constants_and_inner_values() -> None:
    one = rules(
        "  - event: engine_config\n    set: {engine: V1, model: none}\n"
        '    patterns: ["config: {_all:str}"]\n'
        '    inside: {_all: ["model=\'{model:str}\'", "len={len:int}"]}\n'
    )
    message = "config: model='m/a', len=7"
    (match,) = one.find(message)
    assert match.fields == {"engine": "V1", "model": "m/a", "len": 7}


def test_a_rule_bound_to_a_file() -> None:
    one = rules(
        "  - event: setting\n    files: [runtime.py]\n    whole: true\n"
        '    patterns: ["    {key:name}: {value:maybe}"]\n'
    )
    assert one.find("    hw: gaudi3", "other.py") == ()
    assert one.find("    hw: gaudi3") == ()
    (match,) = one.find("    hw: gaudi3", "runtime.py")
    assert match.fields == {"key": "hw", "value": "gaudi3"}


BROKEN = """\
config_version: 1
rules:
  - event: good
    patterns: ["all is well"]
  - event: Bad Name
    patterns: ["something here"]
  - event: other
    severity: terrible
    patterns: []
"""


def test_every_mistake_is_told_with_file_and_line() -> None:
    with pytest.raises(RuleError) as caught:
        load_rules({"a.yaml": BROKEN, "b.yaml": "rules: [\n", "c.yaml": "just text"})
    text = str(caught.value)
    for place in ("a.yaml:5: rules.1.event", "a.yaml:8: rules.2.severity"):
        assert place in text
    for place in ("a.yaml:9: rules.2.patterns", "b.yaml:2: no YAML", "c.yaml:1:"):
        assert place in text


def test_broken_patterns_and_unfindable_ones_are_told_together() -> None:
    with pytest.raises(RuleError) as caught:
        rules(
            '  - event: one\n    patterns: ["size {x:nonsense}"]\n'
            '  - event: two\n    patterns: ["{a:int} {b:int}"]\n'
            '  - event: three\n    types: {v: "("}\n    patterns: ["size {x:v}"]\n'
        )
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines[1:]] == ["4", "6", "8"]


FLAWED = """\
config_version: 1
rules:
  - severity: warning
    event: one
    patterns:
      - "alpha beta {n:int}"
      - "alpha {x:nope}"
      - "beta {1a:int}"
    types: {v: "("}
  - {event: two, patterns: ["gamma {x:nope}", "delta } b"]}
  - patterns: ["epsilon {x:nope}", ["no text"]]
    event: three
  - event: Four
    inside: {x: ["zeta",
                 "eta {x:nope}"]}
    patterns: ["theta {x:str}"]
    endings: ["all is quiet"]
  - event: five
    endings: ["all is quiet"]
    patterns: ["iota {x:nope}"]
  - event: six
    patterns: ["alpha beta {m:int}"]
  - "no rule"
"""


def test_no_mistake_hides_another() -> None:
    documents: dict[str, Document] = {
        "a.yaml": FLAWED,
        "b.yaml": b"config_version: 1\n# \xff",
        "c.yaml": OSError(13, "Permission denied"),
        "d.yaml": 'config_version: 1\nrules:\n- {event: x, patterns: ["a {y:no}"]}\n',
    }
    with pytest.raises(RuleError) as caught:
        load_rules(documents)
    places = [row.split(": ")[0].strip() for row in str(caught.value).splitlines()[1:]]
    assert sorted(places, key=lambda place: (place[0], int(place[7:]))) == [
        *(f"a.yaml:{n}" for n in (7, 8, 9, 10, 10, 11, 13, 15, 19, 20, 23)),
        *("b.yaml:2", "c.yaml:1", "d.yaml:3"),
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "config_version: 2\nrules: []", "{{{", "2001-99-99"]
)
def test_a_file_that_is_no_rule_file(text: str) -> None:
    with pytest.raises(RuleError, match=r"own\.yaml:\d"):
        load_rules({"own.yaml": text})


@given(st.text(max_size=60))
def test_any_text_is_rules_or_a_rule_error(text: str) -> None:
    with suppress(RuleError):
        assert isinstance(load_rules({"own.yaml": text}), RuleSet)


def test_the_shipped_rules_prove_themselves() -> None:
    assert mistakes(shipped_rules()) == []


def test_a_rule_that_breaks_its_word_is_told() -> None:
    one = rules(
        '  - event: thing\n    patterns: ["took {s:int} s", "never {seen:word}"]\n'
        "    examples:\n      - {line: it took 5 s, fields: {s: 6, t: 1}}\n"
        "      - {line: it took no time}\n"
        "    near_misses: [it took 7 s]\n"
    )
    text = "\n".join(mistakes(one))
    for part in (
        "s is 5, not 6",
        "t is missing",
        "no match",
        "near miss",
        "never {seen",
    ):
        assert part in text


def test_the_documented_rule_proves_itself(checkout: Path) -> None:
    page = (checkout / "docs" / "rules.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert mistakes(load_rules({"own.yaml": text})) == []


def test_every_key_and_type_is_documented(checkout: Path) -> None:
    page = (checkout / "docs" / "rules.md").read_text(encoding="utf-8")
    rows = "".join(row.split("|")[1] for row in page.splitlines() if row[:1] == "|")
    names = {field.alias or name for name, field in RuleText.model_fields.items()}
    assert set(re.findall(r"`(\w+)`", rows)) == names | set(TYPES)


def test_no_example_is_covered_by_two_closed_patterns() -> None:
    """Else their order would matter."""
    known = shipped_rules()
    closed = [t for rule in known.rules for t in rule.templates if t.closed]
    examples = [each.line for rule in known.rules for each in rule.text.examples]
    messages = {record.message for line in examples for record in read(line)}
    covered = 0
    for message in messages:
        covering = {t.text for t in closed if t.cover(message) is not None}
        assert len(covering) <= 1, message
        covered += len(covering)
    assert covered > 100


def test_a_closed_pattern_that_is_the_message_wins_whatever_the_order() -> None:
    texts = ["moved {n:int} of {m:int} blocks", "moved {what:str}", "moved {:int} of"]
    for patterns in (texts, texts[::-1]):
        several = rules(
            "".join(f'  - event: e{len(p)}\n    patterns: ["{p}"]\n' for p in patterns)
        )
        (match,) = several.find("moved 4 of 5 blocks")
        assert match.fields == {"n": 4, "m": 5}
        (match,) = several.find("moved 4 of 5 blocks, at last")
        assert match.fields == {"what": "4 of 5 blocks, at last"}


def test_a_covered_message_may_be_a_fault_all_the_same() -> None:
    both = rules(
        '  - event: engine_death\n    patterns: ["engine {who:int} died"]\n'
        '  - event: fault\n    severity: fatal\n    set: {name: dead}\n    patterns: ["died"]\n'
    )
    found = both.find("engine 5 died")
    assert {match.rule.event for match in found} == {"engine_death", "fault"}


@given(WORDS, st.integers(0, 999))
def test_numbers_in_a_literal_are_no_hindrance(pattern: list[str], n: int) -> None:
    text = f"{' '.join(pattern)} v{n} {pattern[0]}"
    one = rules(f'  - event: thing\n    patterns: ["{text}"]\n')
    assert one.find(f"so {text} it is")
    assert not one.find(f"so {text} it is".replace(f"v{n}", f"v{n + 1}"))


@pytest.mark.parametrize(
    ("event", "ending"),
    [("thing", "all is well"), ("noise", "short"), ("noise", "ümlaut here")],
)
def test_endings_are_for_noise_and_can_be_told_apart(event: str, ending: str) -> None:
    with pytest.raises(RuleError, match="endings"):
        rules(
            f'  - event: {event}\n    patterns: ["all is well"]\n    endings: ["{ending}"]\n'
        )


def test_an_ending_needs_an_example() -> None:
    one = rules(
        '  - event: noise\n    patterns: ["all is well"]\n    endings: ["is well, really"]\n'
        "    examples: [{line: all is well}]\n"
    )
    assert "is well, really" in "\n".join(mistakes(one))
