"""Nothing that a terminal would obey comes out of a log."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.advise.render.text import render_markdown, render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.rules import shipped_rules
from hpuwatch.parse.clean import clean
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.unmatched import Counter
from hpuwatch.records import Line
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit

HOSTILE = {
    "colour": "\x1b[31m",
    "title": "\x1b]0;OWNED\x07",
    "clipboard": "\x1b]52;c;T1dORUQ=\x1b\\",
    "link": "\x1b]8;;http://OWNED\x9c",
    "device control": "\x1bPOWNED\x1b\\",
    "privacy message": "\x1b^OWNED\x1b\\",
    "application": "\x1b_OWNED\x1b\\",
    "string": "\x1bXOWNED\x1b\\",
    "title by one character": "\x9d0;OWNED\x9c",
    "colour by one character": "\x9b31m",
    "character set": "\x1b(0",
    "reset": "\x1bc",
    "escape alone": "\x1b\x1b[2J",
    "bell": "\x07",
    "backspaces": "\b\b\b",
    "form feed": "\f",
    "delete": "\x7f",
    "direction": "\u202e",
    "isolate": "\u2066\u2069",
    "separator": "\u2028",
    "nul": "\0",
}
BODY = "OWNED"


def harmless(text: str) -> bool:
    """Tell whether a text has line ends and tabs for its only controls."""
    rest = text.replace("\n", "").replace("\t", "")
    return BODY not in text and not any(
        unicodedata.category(character) in {"Cc", "Zl"}
        or unicodedata.bidirectional(character)
        in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        for character in rest
    )


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_only_the_text_around_is_left(hostile: str) -> None:
    assert clean(f"one{hostile}\ttwo") == "one\ttwo"


def test_a_sequence_that_is_cut_goes_too() -> None:
    assert clean("one\x1b[31") == clean("one\x1b") == clean("one\x1b(") == "one"


def test_a_string_without_an_end_reaches_to_the_end() -> None:
    assert clean("one\x1b]0;OWNED two") == "one"


@pytest.mark.parametrize(
    "text", ["", "plain", "a\tb", "█ 3%|▋", "naïve 日本語 \U0001f600"]
)
def test_plain_text_stays(text: str) -> None:
    assert clean(text) == text


@given(st.text(st.characters(max_codepoint=0x2100)))
def test_any_text_is_harmless_and_cleaned_once_and_for_all(text: str) -> None:
    assert harmless(clean(text).replace(BODY, ""))
    assert clean(clean(text)) == clean(text)


def log(hostile: str) -> str:
    at = "INFO 01-02 03:04:05 [x.py:1]"
    dies = "ERROR 01-02 03:04:09 [core.py:9]"
    return (
        f"{at} Initializing a V1 LLM engine (v0.26.0) with config: model='m{hostile}x', "
        "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
        f"{at} Loading model weights took 14.5000 GB{hostile}\n"
        f"WARNING 01-02 03:04:05 [x.py:1] nobody knows{hostile} this\n"
        f"{dies} Traceback (most recent call last):\n"
        f'{dies}   File "/opt/x/core.py", line 12, in run{hostile}\n'
        f"{dies}     step({hostile})\n"
        f"{dies} WeirdError: what{hostile} is this\n"
    )


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_reports_and_events_are_clean(hostile: str) -> None:
    text = log(hostile)
    report = build_report([("s.log", state_of_text(text))], shipped_findings())
    assert "WeirdError: what is this" in render_text(report)
    for rendered in (render_text(report), render_markdown(report)):
        assert harmless(rendered)
    assert harmless(json.dumps(report.model_dump(mode="json"), ensure_ascii=False))
    counter = Counter()
    parser = Parser(shipped_rules(), unmatched=counter)
    pieces = enumerate(text.split("\n"), start=1)
    events = [e for number, t in pieces for e in parser.feed(Line(t, number=number))]
    for event in events + parser.close():
        told = [event.line.text, *event.context, *map(str, event.fields.values())]
        assert all(map(harmless, told))
    (unknown,) = counter.templates()
    assert harmless(unknown.template + unknown.example)
