"""What is known of each start of the server, reduced from events."""

from __future__ import annotations
