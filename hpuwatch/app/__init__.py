"""Composition: reads files and environment, builds objects, knows everybody."""

from __future__ import annotations
