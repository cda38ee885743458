"""A known load for a server: small and fixed for trials, any that is wished for by hand."""

from __future__ import annotations
