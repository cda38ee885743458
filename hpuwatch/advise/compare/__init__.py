"""Two starts beside each other: what changed, and which change explains which."""

from __future__ import annotations
