"""One check per kind of finding: what it looks for in a start, by theme."""

from __future__ import annotations
