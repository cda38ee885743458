"""Prompts of a known length, some with a shared beginning, made as fast as memory copies.

A prompt is a run of units that are all written with the same number of bytes: token ids of
five digits where the server takes them (then the length is exact), four-letter words where
it doesn't (then about a token each, and the ratio is measured before the run, see
``load.calibrate``).  What the server itself counts is the truth either way.

Every prompt begins with as many units of one *shared* text as it is said to have cached, so
that a prefix cache finds them, goes on with units that spell the request's number, so that
nothing else is found by accident, and is filled up from a long random text.  One shared text
for all is what makes ``cached_prefix_tokens`` true without knowing whose prefix each was; it
stays hot in any cache, so the hits are an upper bound, as they are in the traces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_POOL_UNITS = 1 << 17
_NUMBER_UNITS = 4

_WORDS = tuple(
    word
    for line in (
        "able also area away back base been best body book both call came care case city come",
        "cost data days deal does done door down each even ever face fact feel felt find five",
        "food form four free from full game gave girl give goes good half hand hard have head",
        "hear help here high hold home hope hour idea into just keep kind knew know land last",
        "late lead left less life like line list live long look lost made make many mean mind",
        "more most move much must name near need next once only open over page part past play",
        "rate read real rest road room said same seem seen self send ship show side size some",
        "soon such sure take talk tell than that them then they this time told took town turn",
        "type upon used very view wait walk want week well went were what when will with work",
    )
    for word in line.split()
)
"""Common, and all of four letters."""


@dataclass(frozen=True, slots=True)
class Units:
    """A vocabulary whose members all have one width, and how a run of them is written.

    Attributes:
        name: what a report calls them.
        members: of equal width.
        joint: what stands between two of them.
        opening: what stands before a run, as JSON.
        closing: what stands after it.
        tokens_each: tokens of a unit, as the server counts them.
        tokens_around: tokens that the server adds to each prompt, as a chat template does.
    """

    name: str
    members: Sequence[str]
    joint: str
    opening: str
    closing: str
    tokens_each: float = 1.0
    tokens_around: float = 0.0

    def count(self, tokens: int) -> int:
        """Return how many units a prompt of that many tokens has, at least one."""
        return max(1, round((tokens - self.tokens_around) / self.tokens_each))


# Any vocabulary of today has ids up to 30,000, and the special ones lie outside this range.
_IDS = [str(number) for number in range(10_000, 30_000)]
TOKEN_IDS = Units("token ids", _IDS, ",", "[", "]")
WORDS = Units("words", _WORDS, " ", '"', '"')


class Prompts:
    """Makes the prompts of one run."""

    def __init__(self, units: Units, seed: str) -> None:
        """Draw the texts that all prompts are cut from.

        Two runs with another seed share nothing, so that no cache of an earlier one helps.
        """
        self.units = units
        chance = random.Random(seed)  # noqa: S311  no secret
        self._shared = self._drawn(chance)
        self._filling = self._drawn(chance)
        self._width = len(units.members[0]) + len(units.joint)

    def of(self, number: int, tokens: int, prefix_tokens: int = 0) -> bytes:
        """Return the JSON of a prompt; ``number`` makes it different from all others."""
        units = self.units
        total = units.count(tokens)
        shared = min(total, units.count(prefix_tokens)) if prefix_tokens > 0 else 0
        own = self._number(number)[: (total - shared) * self._width]
        left = total - shared - len(own) // self._width
        start = number * 7919 % _POOL_UNITS
        run = self._cut(self._shared, 0, shared) + own
        run += self._cut(self._filling, start, left)
        text = run[: len(run) - len(units.joint)]
        return units.opening.encode() + text + units.closing.encode()

    def _drawn(self, chance: random.Random) -> bytes:
        units = self.units
        drawn = chance.choices(units.members, k=_POOL_UNITS)
        return (units.joint.join(drawn) + units.joint).encode()

    def _cut(self, pool: bytes, start: int, count: int) -> bytes:
        """Return ``count`` units of a pool that goes round."""
        if start + count > _POOL_UNITS:
            pool *= (start + count) // _POOL_UNITS + 1
        return pool[start * self._width : (start + count) * self._width]

    def _number(self, number: int) -> bytes:
        """Spell a request's number, the fastest changing digit first."""
        members, joint = self.units.members, self.units.joint
        digits = []
        for _ in range(_NUMBER_UNITS):
            number, digit = divmod(number, len(members))
            digits.append(members[digit] + joint)
        return "".join(digits).encode()
