"""Markup that can't be broken by what it shows.

Text becomes markup at one place only: :func:`element` escapes whatever is not
:class:`Markup` already, children and attributes alike.  So a line of a log is never more
than text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
"""What XML forbids, and no page can show."""

_VOID = frozenset({"hr", "link", "meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        children: text, which is escaped, and markup, which is not.
        attributes: by name; ``class_`` is ``class``, ``_`` within a name is ``-``.  None
            leaves one out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text_of(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Return parts one after another; those that are no markup are escaped."""
    return Markup(between.join(_marked(part) for part in parts))


def text_of(text: str) -> Markup:
    """Escape a text; what can't be shown becomes a mark."""
    return Markup(escape(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)))


def _marked(part: str) -> Markup:
    return part if isinstance(part, Markup) else text_of(part)
