"""Bytes to lines: assembling, following files, container log formats."""

from __future__ import annotations
