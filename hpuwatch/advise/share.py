"""A report that may leave the house: without hosts, paths and addresses.

Secrets never reach a report; here goes what tells of a site.  Files become ``log1``,
``log2`` …, since their names often hold a host's.
"""

from __future__ import annotations

import re
from typing import Any

from hpuwatch.advise.document import Report

_WORDS = ("schema", "release", "version", "build")  # may look like an address
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_MASKS = (
    (re.compile(r"\b\w+://[^\s,'\"()\[\]]+"), "<url>"),
    (
        re.compile(rf"(?<![\w./:])(?:{_OCTET}\.){{3}}{_OCTET}(?::\d+)?(?![\w.+])"),
        "<address>",
    ),
    (
        re.compile(r"\[?(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}\]?"),
        "<address>",
    ),
    (re.compile(r"(?<![\w.)\]}])~?/(?:[\w.@%+-]+/)*[\w.@%+-]+/?"), "<path>"),
    (re.compile(r"(?:(?<=\bhost=)|(?<=\bip=))(?!'?<)[^\s,)]+"), "<host>"),
    (
        re.compile(
            r"(?<![\w/@-])(?:[a-z][a-z0-9-]*\.)+(?:local|lan|internal|corp|cluster|svc|com|net|org|io|ai|cloud)\b(?::\d+)?"
        ),
        "<host>",
    ),
)


def without_site(report: Report) -> Report:
    """Return the report with hosts, paths and addresses masked."""
    names = {each.source.file: f"log{n}" for n, each in enumerate(report.reports, 1)}
    document = report.model_dump(by_alias=True)
    return Report.model_validate(_masked("", document, names))


def masked(text: str) -> str:
    """Mask hosts, paths and addresses in one text.

    One mask can lay bare the beginning of another, so it goes on until nothing changes.
    """
    before = None
    while text != before:
        before = text
        for pattern, name in _MASKS:
            text = pattern.sub(name, text)
    return text


def _masked(key: str, value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _masked(name, item, names) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(key, item, names) for item in value]
    if not isinstance(value, str) or key in _WORDS:
        return value
    return names[value] if key == "file" else masked(value)
