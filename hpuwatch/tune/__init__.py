"""Search space, study and designers.  A trial that failed is told as a state, never as a score."""

from __future__ import annotations
