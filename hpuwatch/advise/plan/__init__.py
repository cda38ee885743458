"""From findings to one proposal: steps, what they bring, what stays, and a first configuration."""

from __future__ import annotations
