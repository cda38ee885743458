"""The names of the phases; nothing else repeats them.

    stopped → starting → loading → sizing → warming → ready → draining → stopping → stopped
                  └─────────┴─────────┴────────┴────────┴──────────→ failed

*Loading* begins with the weights, *sizing* with the profile run and the memory split,
*warming* with the first bucket, *ready* with the front end's own word.
"""

from __future__ import annotations

from enum import Enum


class Phase(str, Enum):
    """Where a server is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    SIZING = "sizing"
    WARMING = "warming"
    READY = "ready"
    SWITCHING = "switching"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"
    BACKING_OFF = "backing_off"
    HALTED = "halted"
