"""Patterns as people write them: the log's own text with typed holes.

    Warmup finished in {s:seconds} secs, allocated {mem:bytes} of device memory

- ``{name:type}`` is a typed field (types in :mod:`hpuwatch.parse.values`);
  ``{phase:prompt|decode}`` lists what it may be; ``{:int}`` is matched and forgotten; a name
  that comes twice must read the same twice.
- ``<<…>>`` is a part that may be missing; parts don't nest.
- ``{{`` and ``}}`` are plain braces.
- One blank stands for one or more, since some releases print a line break's blanks.

A pattern is searched for in the message; text before and after it is nobody's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hpuwatch.events import Value
from hpuwatch.parse.values import NUMBERS, TYPES, Converter, FieldType

_TOKEN = re.compile(
    r"\{\{|\}\}|<<|>>|\{(?P<name>\w*)(?::(?P<spec>[^{}]+))?\}|(?P<stray>[{}])"
)
_BLANK = re.compile(r"(?<! ) (?! )")


@dataclass(frozen=True, eq=False)
class Template:
    """A compiled pattern.

    Attributes:
        text: as written.
        source: its regular expression.
        types: the fields that it captures.
        literal: its longest plain text, which every line that matches contains once its
            blanks are single.
        plain: characters of plain text in it.
        whole: the pattern must cover the message from end to end.
        closed: nothing but plain text, numbers and listed words are in it.
    """

    text: str
    source: str
    types: Mapping[str, FieldType]
    literal: str
    plain: int
    whole: bool = False
    closed: bool = False

    @property
    def lists(self) -> bool:
        """Return whether the pattern holds a list of buckets."""
        return "bucket_list}" in self.text

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Compile on first use: most rules never meet a line."""
        return re.compile(rf"\A{self.source}\Z" if self.whole else self.source)

    @cached_property
    def _converters(self) -> tuple[tuple[str, int, Converter], ...]:
        """Return each field with the place of its group."""
        places = self.regex.groupindex
        return tuple((n, places[n] - 1, t.convert) for n, t in self.types.items())

    def match(self, message: str) -> tuple[int, dict[str, Value]] | None:
        """Return the length of what matched and its fields, or None."""
        found = self.regex.search(message)
        fields = None if found is None else self.fields(found.groups())
        if found is None or fields is None:
            return None
        return found.end() - found.start(), fields

    def cover(self, message: str) -> dict[str, Value] | None:
        """Return the fields if the message is the pattern from end to end, else None."""
        found = self.regex.fullmatch(message)
        return None if found is None else self.fields(found.groups())

    def fields(
        self, texts: tuple[str | None, ...], before: int = 0
    ) -> dict[str, Value] | None:
        """Return the values that groups captured, or None where one can't be converted.

        Args:
            texts: all groups of an expression that holds this one.
            before: groups in front of this one's.
        """
        try:
            return {
                name: convert(text)
                for name, place, convert in self._converters
                if (text := texts[before + place]) is not None
            }
        except (ValueError, OverflowError):
            return None


@dataclass
class _Builder:
    """The parts of a regular expression, gathered from left to right."""

    own: Mapping[str, str]
    parts: list[str] = field(default_factory=list)
    types: dict[str, FieldType] = field(default_factory=dict)
    literals: list[str] = field(default_factory=list)
    optional: bool = False
    closed: bool = True

    def literal(self, text: str) -> None:
        if not text:
            return
        self.parts.append(_BLANK.sub(" +", re.escape(text).replace(r"\ ", " ")))
        if not self.optional:
            self.literals.append(text)

    def hole(self, name: str, spec: str, *, last: bool) -> None:
        if name in self.types:
            self.parts.append(f"(?P={name})")
            return
        kind = self._type_of(name, spec)
        self.closed &= spec not in self.own and (spec in NUMBERS or "|" in spec)
        if not self.parts and spec in _OPEN_ENDED:
            # Text that begins a pattern begins with the message; said, it costs one try.
            self.parts.append(r"\A")
        # Text that ends a pattern reaches to the end of the message.
        regex = (
            kind.regex.removesuffix("?") if last and spec in _OPEN_ENDED else kind.regex
        )
        if name:
            self.types[name] = kind
            self.parts.append(f"(?P<{name}>{regex})")
        else:
            self.parts.append(f"(?:{regex})")

    def _type_of(self, name: str, spec: str) -> FieldType:
        if spec in self.own:
            regex = self.own[spec]
            re.compile(regex)
            return FieldType(regex, TYPES["str"].convert)
        if spec in TYPES:
            return TYPES[spec]
        if "|" in spec:
            choices = sorted(spec.split("|"), key=len, reverse=True)
            regex = "|".join(re.escape(choice) for choice in choices)
            convert = TYPES["phase" if name == "phase" else "str"].convert
            return FieldType(regex, convert)
        raise ValueError(f"{{{name}:{spec}}}: there is no type {spec!r}")

    def toggle(self, *, begin: bool) -> None:
        if begin == self.optional:
            raise ValueError("<< and >> must come in pairs and can't be nested")
        self.optional = begin
        self.parts.append("(?:" if begin else ")?")


_OPEN_ENDED = ("str", "maybe")


def compile_template(
    text: str, own: Mapping[str, str] | None = None, *, whole: bool = False
) -> Template:
    """Compile a pattern; ``own`` adds types (regular expressions) by name.

    Raises:
        ValueError: the pattern is broken; the message says how.
    """
    builder = _Builder(own or {})
    position, plain = 0, ""
    for token in _TOKEN.finditer(text):
        plain += text[position : token.start()]
        position = token.end()
        written = token.group()
        if token["stray"]:
            raise ValueError(f"a stray {written!r}; write it twice to mean itself")
        if written in {"{{", "}}"}:
            plain += written[0]
            continue
        builder.literal(plain)
        plain = ""
        if written in {"<<", ">>"}:
            builder.toggle(begin=written == "<<")
        else:
            last = text[position:] in {"", ">>"}
            builder.hole(token["name"], token["spec"] or "str", last=last)
    builder.literal(plain + text[position:])
    if builder.optional:
        raise ValueError("<< without >>")
    literals = [single_blanks(literal) for literal in builder.literals]
    return Template(
        text,
        "".join(builder.parts),
        builder.types,
        literal=max(literals, key=len, default=""),
        plain=sum(map(len, literals)),
        whole=whole,
        closed=builder.closed,
    )


def without_digits(text: str) -> bytes:
    """Return all of the text but its digits, encoded: what lines of one form share."""
    return text.encode("utf-8", "replace").translate(None, b"0123456789")


def skeleton(text: str) -> str:
    """Return the text without its digits, every run of blanks shortened to one.

    If a text stands in another one, its skeleton stands in the other's skeleton.
    """
    return single_blanks(without_digits(text).decode())


def single_blanks(text: str) -> str:
    """Return the text with every run of blanks shortened to one."""
    return _BLANKS.sub(" ", text) if "  " in text else text


_BLANKS = re.compile("  +")
