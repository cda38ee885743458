"""Public fakes for those who test against hpuwatch."""

from __future__ import annotations
