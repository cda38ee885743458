"""A short name for a long list of buckets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence


def fingerprint(buckets: Iterable[Sequence[int]]) -> str:
    """Return the SHA-256 of the list, as JSON without spaces, in its order."""
    text = json.dumps([list(bucket) for bucket in buckets], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
