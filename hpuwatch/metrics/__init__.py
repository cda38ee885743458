"""One catalogue of metrics and one collector over the snapshot."""

from __future__ import annotations
