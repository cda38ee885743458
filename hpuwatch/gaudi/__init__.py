"""The domain: releases, bucket dialects, memory arithmetic.  Pure functions over frozen values."""

from __future__ import annotations
