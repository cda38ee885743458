"""``python -m hpuwatch`` is the same program as ``hpuwatch``."""

from __future__ import annotations

from hpuwatch.cli import main

if __name__ == "__main__":
    main()
