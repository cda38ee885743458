"""Lines to events: header, rules, matching, multi-line records."""

from __future__ import annotations
