"""hpuwatch owns a vLLM server on Intel Gaudi, understands its log and tunes it."""

from __future__ import annotations

__version__ = "0.1.0"
