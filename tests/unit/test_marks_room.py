"""Room for the spool: ahead of its end, and in its middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.runtime import spool as module
from hpuwatch.runtime.room import Room
from hpuwatch.runtime.spool import Marks, Spool
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

MIB = 1024**2


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "STARTUP_BYTES", 2 * MIB)
    spool = tmp_path / "spool"
    spool.write_bytes(b"")
    return spool


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def read(path: Path) -> bytes:
    spool = Spool(str(path), Marks(None), FakeClock().now)
    data = b""
    while (chunk := spool.read()) is not None:
        data += chunk.data
    spool.close()
    return data


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def allocates(path: Path) -> bool:
    room = Room(str(path), print, most_bytes=1 << 40)
    room.tend()
    room.close()
    return blocks(path) > 0


def test_room_is_kept_ahead_of_the_end(path: Path) -> None:
    if not allocates(path):
        pytest.skip("this file system can't allocate ahead")
    room = Room(str(path), print, most_bytes=1 << 40)
    append(path, b"x" * 10 * MIB)
    room.tend()
    assert path.stat().st_size == 10 * MIB
    assert blocks(path) >= 26 * MIB
    room.close()


def test_a_spool_past_its_limit_gets_a_hole_that_reading_skips(
    path: Path,
) -> None:
    if not allocates(path):
        pytest.skip("this file system can't punch holes")
    room = Room(
        str(path), print, most_bytes=8 * MIB, startup_bytes=2 * MIB, ahead=False
    )
    per_mib = MIB // 8
    for first in range(0, 20 * per_mib, per_mib):
        append(path, b"".join(b"%07d\n" % n for n in range(first, first + per_mib)))
        room.tend()
    room.close()
    assert path.stat().st_size == 20 * MIB
    assert blocks(path) <= 9 * MIB + 16 * MIB  # and what allocates() left ahead
    lines = read(path).split(b"\n")
    numbers = [int(each) for each in lines if each]
    assert numbers[:3] == [0, 1, 2]
    assert numbers[-1] == 20 * per_mib - 1
    assert len(numbers) < 9 * per_mib
    assert len(numbers) >= 4 * per_mib
    assert numbers == sorted(numbers)
