"""What tests of real processes may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpuwatch.testing.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Start programs of ours; what is left of them at the end is killed."""
    starter = Programs(tmp_path)
    yield starter
    starter.clear()
