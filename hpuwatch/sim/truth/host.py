"""The simulated host beside the cards: its cores, and how full its memory is.

The figures are those that the lines of real starts show.
"""

from __future__ import annotations

from hpuwatch.units import GIB

TOTAL_BYTES = 1007 * GIB
USED_BYTES = 61 * GIB
"""What is in use before a server leaves anything there."""
CORES = 160  # as the system counts them, two to each real one
THREADS = CORES // 2
