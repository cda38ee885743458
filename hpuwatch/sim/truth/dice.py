"""Repeatable chance: random numbers that depend on names alone."""

from __future__ import annotations

import random


def dice(*names: object) -> random.Random:
    """Return random numbers that depend on nothing but the names."""
    return random.Random("/".join(map(str, names)))  # noqa: S311  repeatable, no secret
