"""How many tokens a text has, by a rule that anybody can follow.

A word of up to eight letters or digits is one token, a longer one has a token for each
eight begun; every other character that is no blank is one token.  English text comes out
at about one token a word, as with the tokenizers of real models; a list of token ids has
its own length.  What the tokens are matters only to the prefix cache, which compares them,
and to ``/tokenize``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

Piece = str | int
"""One token: a piece of a text, or an id as the client gave it."""

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
"""What the simulated model says, over and over."""

_PIECE = re.compile(r"[A-Za-z0-9]{1,8}|[^\sA-Za-z0-9]")


def pieces_of(text: str) -> list[str]:
    """Split a text into its tokens."""
    return _PIECE.findall(text)


def token_id(piece: Piece, vocabulary: int) -> int:
    """Return the id of a token; those of the model's own words are their places."""
    if isinstance(piece, int):
        return piece
    if piece in WORDS:
        return WORDS.index(piece)
    return zlib.crc32(piece.encode()) % vocabulary


def text_of(ids: Sequence[int]) -> str:
    """Return a text of that many tokens; only the model's own words come back as they were."""
    return "".join(f" {WORDS[number % len(WORDS)]}" for number in ids)


def spoken(first: int, last: int) -> str:
    """Return the model's words from token ``first`` up to before ``last``."""
    return text_of(range(first, last))


def fingerprint(content: Sequence[Piece]) -> str:
    """Return a few digits that tell prompts apart, the same in every process."""
    return f"{zlib.crc32(repr(content).encode()):08x}"
