"""A report that may leave the house: without hosts, paths and addresses.

Secrets never reach a report; here goes what tells of a site.  Files become ``log1``,
``log2`` …, since their names often hold a host's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hpuwatch.advise.document import Report

_WORDS = ("schema", "release", "version", "build")  # may look like an address
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_HEX = "[0-9a-fA-F]{1,4}"
_IPV6 = (
    rf"(?<![\w:.])\[?(?:(?:{_HEX}:){{7}}{_HEX}"
    rf"|(?:{_HEX}(?::{_HEX}){{0,6}}::(?:{_HEX}(?::{_HEX}){{0,6}})?"
    rf"|::{_HEX}(?::{_HEX}){{0,6}})(?:(?:\.{_OCTET}){{3}})?)"
    r"(?:%\w{1,16})?(?![\w:])"
)
_DOMAINS = (
    *("local", "lan", "internal", "corp", "cluster", "svc", "intra", "private", "home"),
    *("com", "net", "org", "io", "ai", "cloud", "edu", "gov", "mil", "dev", "lab"),
    *("eu", "de", "fr", "uk", "jp", "cn"),
)
_MASKS = (
    (re.compile(r"\b\w+://[^\s,'\"()\[\]]+"), "<url>"),
    (
        re.compile(rf"(?<![\w./:])(?:{_OCTET}\.){{3}}{_OCTET}(?::\d+)?(?![\w.+])"),
        "<address>",
    ),
    (re.compile(rf"{_IPV6}\]?"), "<address>"),
    (
        re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])"),
        "<address>",
    ),
    (re.compile(r"(?<![\w:])[A-Za-z]:\\[^\s,;'\"<>|]*"), "<path>"),
    (re.compile(r"(?<![\w\\])\\\\\w[\w.$-]*\\[^\s,;'\"<>|]*"), "<path>"),
    (
        re.compile(
            r"(?<![\w.)\]}])(?:~[\w.-]{0,64}|\.{1,2})?/(?:[\w.@%+-]+/)*[\w.@%+-]+/?"
        ),
        "<path>",
    ),
    (re.compile(r"(?<![\w.+-])[A-Za-z][\w.+-]{0,63}@[A-Za-z][\w.-]*"), "<user>"),
    (
        # What is called a host: host=…, --host …, "pod_name": …, (… ip=…)
        re.compile(
            r"(?i)(?<![a-z])((?:host(?:_?name)?|node(?:_?name)?|ip|pod(?:_?name)?"
            r"|namespace|master_addr|data_parallel_address)['\"]?(?:\s*=\s*|: ?)"
            r"|--host(?:name)? )(?!['\"]?<)(?:'[^']*'|\"[^\"]*\"|[^\s,;)'\"]+)"
        ),
        r"\1<host>",
    ),
    (re.compile(r"(?<![\w-])[a-z][a-z0-9-]*-[0-9a-f]{8,10}-[a-z0-9]{5}\b"), "<pod>"),
    (re.compile(r"(?<=\bpod/)[a-z0-9][a-z0-9.-]*"), "<pod>"),
    (
        re.compile(
            rf"(?<![\w./@-])(?:[a-z][a-z0-9-]*\.)+(?:{'|'.join(_DOMAINS)})\b(?::\d+)?"
        ),
        "<host>",
    ),
)


def without_site(report: Report) -> Report:
    """Return the report with hosts, paths and addresses masked."""
    names = {each.source.file: f"log{n}" for n, each in enumerate(report.reports, 1)}
    document = report.model_dump(by_alias=True)
    return Report.model_validate(site_masked(document, names))


def site_masked(
    value: Any, files: Mapping[str, str] = MappingProxyType({}), key: str = ""
) -> Any:
    """Mask hosts, paths and addresses in every text of a document.

    Args:
        value: a text, a number, or lists and mappings of them.
        files: what stands for the name of a file, under the key ``file``.
        key: under which the value stands.
    """
    if isinstance(value, Mapping):
        return {name: site_masked(item, files, name) for name, item in value.items()}
    if isinstance(value, list):
        return [site_masked(item, files, key) for item in value]
    if not isinstance(value, str) or key in _WORDS:
        return value
    return files[value] if key == "file" and value in files else masked(value)


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
