"""The phases of a server's life and how it passes from one to the next."""

from __future__ import annotations
