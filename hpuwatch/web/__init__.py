"""Probes, metrics and the status page, over HTTP on loopback."""

from __future__ import annotations
