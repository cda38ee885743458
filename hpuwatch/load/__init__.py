"""A small, fixed load for trials."""

from __future__ import annotations
