"""The catalogue of real lines in the shared folder: which release prints what.

Each variant of the catalogue says in a few words ``where`` it holds: families (``fork``,
``vllm-gaudi``, ``core`` for vLLM itself) with ranges of versions.  :func:`covers` reads
them; :class:`Catalogue` tells whether a release prints a line.
"""

from __future__ import annotations

import fnmatch
import re
import string
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Version = tuple[int, ...]
Points = Mapping[str, Sequence[Version]]
"""Of each family the versions that a release stands for; one of them has to be covered."""

_CORES: tuple[Version, ...] = (
    (0, 10, 1),
    (0, 11, 2),
    (0, 13, 0),
    (0, 17, 1),
    (0, 19, 1),
    (0, 21, 0),
    (0, 24, 0),
    (0, 26, 0),
)
"""Versions of vLLM that the catalogue's author opened; between them it is interpolated."""

_NUMBER = r"v?(\d+(?:\.\d+)+)(?:\.x|\.post\d+|rc\d+)?"
_TO = "\N{EN DASH}"
_RANGE = re.compile(rf"(≤|≥|from |to )?{_NUMBER}(?:{_TO}{_NUMBER}|(\+))?")
_FAMILY = re.compile(
    r"\b(fork V[01]|fork|vllm-gaudi|core|upstream|V0|ext|main|habana_main|SynapseAI)\b"
)
_EVERYTHING = re.compile(r"\b(all|any) (SynapseAI )?releases?\b|\bnewer SynapseAI")


def covers(where: str, points: Points) -> bool:
    """Tell whether the words of a variant cover a release."""
    bare = re.sub(r"\([^()]*\)", "", where)
    text = bare if _FAMILY.search(bare) or _EVERYTHING.search(bare) else where
    text = text.replace("vllm-gaudi with core", "core").replace("to core ", "core ≤")
    return any(_clause_covers(clause, points) for clause in text.split(";"))


def _clause_covers(clause: str, points: Points) -> bool:
    families = list(_FAMILY.finditer(clause))
    if _EVERYTHING.search(clause):
        return not (families and families[0][1] == "V0") or "V0" in points
    for index, family in enumerate(families):
        last = index + 1 == len(families)
        end = len(clause) if last else families[index + 1].start()
        ranges = list(_RANGE.finditer(clause, family.end(), end))
        if not ranges and not last and families[index + 1][1] == "main":
            continue  # between two releases
        for point in points.get(family[1], ()):
            if not ranges or any(_within(point, found) for found in ranges):
                return True
    return False


def _within(point: Version, found: re.Match[str]) -> bool:
    sign, low, high, plus = found.groups()
    first = _version(low)
    if sign in {"≤", "to "}:
        return point[: len(first)] <= first
    if sign or plus:
        return point >= first
    last = _version(high or low)
    return first <= point and point[: len(last)] <= last


def _version(text: str) -> Version:
    return tuple(map(int, text.split(".")))


def plugin_points(version: str) -> Points:
    """Return what a release of the plugin, with vLLM's own version, stands for."""
    found = re.match(r"\d+\.\d+\.\d+", version)
    assert found is not None
    point = _version(found[0])
    core = min(point, _CORES[-1])
    below = [v for v in _CORES if v <= core][-1]
    above = next(v for v in _CORES if v >= core)
    return {"vllm-gaudi": [point], "core": [core, below, above]}


def points_of(version: str) -> Points:
    """Return what a release of either family stands for."""
    return fork_points(version) if "+Gaudi" in version else plugin_points(version)


def fork_points(version: str) -> Points:
    """Return what a release of Gaudi's fork, as ``0.9.0.1+Gaudi-1.22.0``, stands for."""
    core, _, gaudi = version.partition("+Gaudi-")
    point = _version(gaudi)
    points: dict[str, Sequence[Version]] = {
        family: [point] for family in ("fork", "fork V0", "ext")
    }
    # "V0" alone covers every release of the fork, but narrows no range that it follows.
    return points | {"V0": [], "core": [_version(core.partition(".post")[0])[:3]]}


@dataclass(frozen=True)
class _Variant:
    kind: str
    where: str
    levels: Sequence[str]
    headers: Sequence[str]
    streams: Sequence[str]
    files: Sequence[str]
    shapes: Sequence[re.Pattern[str]]

    def is_from(self, file: str) -> bool:
        """Tell whether a file prints it; true where the catalogue names none.

        Of some lines it names the file as it was called after fork-1.18 only.
        """
        name = file.rpartition("/")[2]
        names = (name, name.replace("habana_", "hpu_"))
        patterns = self.files or ("*",)
        return any(fnmatch.fnmatch(n, pattern) for n in names for pattern in patterns)


def shape_of(text: str) -> re.Pattern[str]:
    """Return what messages of a line of the simulator look like, whatever its values."""
    pieces = string.Formatter().parse(text)
    return re.compile(
        "".join(
            re.escape(literal) + ("" if field is None else ".*")
            for literal, field, _, _ in pieces
        )
    )


class Placed(NamedTuple):
    """A line as it was printed: its message, and what its header says, if it has one."""

    message: str
    header: str
    level: str | None
    file: str | None


class Catalogue:
    """All variants, read once."""

    def __init__(self, folder: Path) -> None:
        """Read ``log-lines.yaml`` of the shared folder's ``reference``."""
        self._checker = checker = _checker(folder / "check_catalogue.py")
        text = (folder / "log-lines.yaml").read_text(encoding="utf-8")
        document = yaml.load(text, Loader=yaml.CSafeLoader)
        self.variants = list(_read(checker, document))
        self._matched: dict[tuple[str, str], list[_Variant]] = {}

    def kinds(
        self,
        message: str,
        points: Points | None = None,
        *,
        header: str,
        stream: str | None = None,
        level: str | None = None,
        file: str | None = None,
    ) -> list[str]:
        """Return the kinds of a line in a release, or in any where ``points`` is None.

        Stream, level and file are those that the line stands in, where they are known.
        """
        return [
            variant.kind
            for variant in self._matching(message, header)
            if (stream is None or stream in variant.streams)
            and (level is None or header == "none" or level in variant.levels)
            and (not file or variant.is_from(file))
            and (points is None or covers(variant.where, points))
        ]

    def placed(self, line: str, *headers: str) -> Placed:
        """Take a line apart, by the first of the kinds of header that fits."""
        found = {h: self._checker.strip_header(line, h) for h in headers}
        header, parts = next((h, parts) for h, parts in found.items() if parts)
        message, level, file = parts
        return Placed(message, header, level, file)

    def of_release(self, points: Points) -> set[str]:
        """Return the kinds of lines that a release may print."""
        return {v.kind for v in self.variants if covers(v.where, points) and v.shapes}

    def _matching(self, message: str, header: str) -> Sequence[_Variant]:
        place = message, header
        if place not in self._matched:
            self._matched[place] = [
                variant
                for variant in self.variants
                if header in variant.headers
                and any(shape.fullmatch(message) for shape in variant.shapes)
            ]
        return self._matched[place]


def _checker(file: Path) -> Any:
    """Return the catalogue's own checker, which knows how a template matches a line."""
    module = types.ModuleType(file.stem)
    code = compile(file.read_text(encoding="utf-8"), str(file), "exec")
    exec(code, module.__dict__)  # noqa: S102  it lies beside the data that it checks
    return module


def _read(checker: Any, document: Any) -> Iterator[_Variant]:
    for kind, _, variant in checker.iter_variants(document):
        fields = checker.variant_fields(kind, variant)
        texts = checker.expanded_templates(variant) + list(variant.get("also") or [])
        yield _Variant(
            kind=kind["kind"],
            where=str(variant["where"]),
            levels=checker.as_list(variant["level"]),
            headers=checker.as_list(variant["header"]),
            streams=checker.as_list(variant["stream"]),
            files=list(_files(checker, variant["emitter"] or "")),
            shapes=[checker.template_regex(text, fields) for text in texts],
        )


def _files(checker: Any, emitter: str) -> Iterator[str]:
    """Yield the names of files, or patterns of them, among the words about an emitter."""
    for word in re.findall(r"[\w*./{},-]+", emitter):
        if ".py" in word or "*" in word:
            yield from checker.expand_braces(word.rpartition("/")[2])
