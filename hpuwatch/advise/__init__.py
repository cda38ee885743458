"""Findings, proposals and reports over what is known of a start."""

from __future__ import annotations
