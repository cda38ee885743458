"""What was predicted, what came of it, and what that is worth."""

from __future__ import annotations
