"""The loop: take lines, step the state, publish a snapshot."""

from __future__ import annotations
