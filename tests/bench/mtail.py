"""The same work for mtail: a program made of the rules that fire on a log.

mtail is the usual tool for metrics out of logs.  To compare fairly it has to take out of the log
what our state takes, so its program is generated: one block for each of our patterns that
matches at least one line, with its values in gauges and texts, and bucket misses counted by
shape.  Access lines come first and end the look at a line, as an author who cares for speed
writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpuwatch.app.rules import shipped_rules
from hpuwatch.parse.header import read
from hpuwatch.parse.mask import mask
from hpuwatch.parse.rules import NOISE, Rule
from hpuwatch.parse.template import Template, compile_template

MISSES = {"config_not_warmed", "bucket_fallback"}
_OPTIONAL = re.compile(r"<<(.*?)>>")
_WHOLE = {"int"}
_DECIMAL = {"float", "seconds", "percent", "gib", "count_bytes"}
_HOLE = re.compile(r"\{(\w+):([^{}]+)\}")
# What Go's regular expressions spell otherwise, or lack.
_GO = (
    (re.compile(r"-\?\\d\{1,3\}\(\?:,\\d\{3\}\)\+\(\?!\\d\)\|"), ""),
    (re.compile(r"\(\?P=\w+\)"), r"\\S+"),
    (re.compile(r"\\u([0-9a-f]{4})"), r"\\x{\1}"),
    (re.compile(r"\(\?[!=<][^()]*\)"), ""),
    (re.compile(r"\\([ #&~])"), r"\1"),
    (re.compile(r"\\Z"), "$"),
    (re.compile(r"/"), r"\\/"),
)

MINIMAL = """\
counter access
gauge prompt_throughput
counter misses by shape
/" 200 OK$/ {
  access++
}
/Avg prompt throughput: (?P<pt>[0-9.]+) tokens/ {
  prompt_throughput = float($pt)
}
/Configuration: (?P<shape>.*) was not warmed-up!/ {
  misses[$shape]++
}
"""
"""What somebody types who wants three figures only: far less than our state holds."""


@dataclass
class _Fired:
    """A pattern that matched, and what its optional parts held."""

    rule: Rule
    template: Template
    messages: list[str] = field(default_factory=list)


def equivalent(lines: Iterable[str], *, stop: bool) -> tuple[str, int]:
    """Return a program that takes out of such lines what we do, and its patterns."""
    fired = _fired(lines)
    if stop:
        fired.sort(key=lambda each: not _is_access(each))
    declared: list[str] = []
    blocks = [
        _block(number, each, declared, stop=stop and _is_access(each))
        for number, each in enumerate(fired)
    ]
    return "\n".join(declared + blocks) + "\n", len(fired)


def write_program(folder: Path, text: str) -> Path:
    """Write the only program of a folder and return the folder."""
    folder.mkdir()
    (folder / "program.mtail").write_text(text, encoding="utf-8")
    return folder


def _fired(lines: Iterable[str]) -> list[_Fired]:
    rules, found = shipped_rules(), dict[Template, _Fired]()
    for line in lines:
        for record in read(line):
            for match in rules.find(record.message, record.file):
                fired = found.setdefault(
                    match.template, _Fired(match.rule, match.template)
                )
                fired.messages.append(mask(record.message))
    return list(found.values())


def _is_access(fired: _Fired) -> bool:
    return fired.rule.event == NOISE and bool(fired.rule.text.endings)


def _block(number: int, fired: _Fired, declared: list[str], *, stop: bool) -> str:
    template = compile_template(
        _without_idle_parts(fired), fired.rule.text.types, whole=fired.template.whole
    )
    source = template.source + (r"\Z" if template.whole else "")
    for pattern, go in _GO:
        source = pattern.sub(go, source)
    name = f"m{number}_{fired.rule.event}"
    kinds = dict(_HOLE.findall(template.text))
    fields = [each for each in template.types if each in kinds]
    lines = [f"/{source}/ {{"]
    if fired.rule.event in MISSES:
        declared.append(f"counter {name} by {', '.join(fields)}")
        keys = "".join(f"[${each}]" for each in fields)
        lines.append(f"  {name}{keys}++")
    else:
        declared.append(f"counter {name}")
        lines.append(f"  {name}++")
        for each in fields:
            declared.append(f"{_kind(kinds[each])} {name}_{each}")
            lines.append(f"  {name}_{each} = {_value(each, kinds[each])}")
    if stop:
        lines.append("  stop")
    return "\n".join([*lines, "}"])


def _kind(spec: str) -> str:
    return "gauge" if spec in _WHOLE | _DECIMAL else "text"


def _value(name: str, spec: str) -> str:
    if spec in _DECIMAL:
        return f"float(${name})"
    return f"int(${name})" if spec in _WHOLE else f"${name}"


def _without_idle_parts(fired: _Fired) -> str:
    """Return the pattern with only those optional parts that some line has."""
    text = fired.template.text
    for part in _OPTIONAL.findall(text):
        for replaced in ("", part):
            shorter = text.replace(f"<<{part}>>", replaced, 1)
            template = compile_template(shorter, fired.rule.text.types)
            if all(template.regex.search(each) for each in fired.messages):
                text = shorter
                break
    return text
