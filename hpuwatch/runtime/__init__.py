"""Owning the server's process: keeper, spool, signals, exit records."""

from __future__ import annotations
