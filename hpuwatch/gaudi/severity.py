"""How grave a thing is that an operator is told."""

from __future__ import annotations

from typing import Literal

Severity = Literal["info", "warning", "error"]
"""``error``: the server does not start, or breaks; ``warning``: it works otherwise than meant."""
