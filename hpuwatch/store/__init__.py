"""What outlives a process: studies and trials in SQLite."""

from __future__ import annotations
