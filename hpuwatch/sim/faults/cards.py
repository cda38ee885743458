"""Which cards are taken: stamps in the run-time directory, one for each card.

A stamp names the processes of the server that holds the card and is kept fresh by it.  It
goes with an orderly end.  After a kill it stays, and tells by its age how long ago that was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from hpuwatch.clock import Clock

_FRESH_SECONDS = 0.2


class Cards:
    """The cards of one server, by the environment that chooses them."""

    def __init__(self, env: Mapping[str, str], folder: str, clock: Clock) -> None:
        """Find out which cards they are; nothing is taken yet."""
        home = Path(env.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        chosen = env.get("HABANA_VISIBLE_DEVICES") or env.get("HABANA_VISIBLE_MODULES")
        names = [name.strip() for name in (chosen or "all").split(",")]
        place = Path(folder) if folder else home / f"hpuwatch-sim-{os.getuid()}"
        self._stamps = [place / f"card-{name.replace('/', '-')}" for name in names]
        self._clock = clock
        self._touched = 0.0
        self._held = False

    def take(self, pids: Iterable[int], after_kill_seconds: float) -> bool:
        """Take the cards for these processes, unless one of the cards is taken."""
        if any(self._is_taken(stamp, after_kill_seconds) for stamp in self._stamps):
            return False
        for stamp in self._stamps:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(" ".join(map(str, pids)), encoding="ascii")
        self._held = True
        self.touch()
        return True

    def touch(self) -> None:
        """Keep the stamps fresh."""
        now = self._clock.now()
        if self._held and now - self._touched >= _FRESH_SECONDS:
            self._touched = now
            for stamp in self._stamps:
                os.utime(stamp, (now, now))

    def release(self) -> None:
        """Let the cards go, in good order."""
        if self._held:
            self._held = False
            for stamp in self._stamps:
                stamp.unlink(missing_ok=True)

    def _is_taken(self, stamp: Path, after_kill_seconds: float) -> bool:
        try:
            pids = stamp.read_text(encoding="ascii").split()
            age = self._clock.now() - stamp.stat().st_mtime
        except (OSError, ValueError):
            return False
        return age < after_kill_seconds or any(_is_alive(pid) for pid in pids)


def _is_alive(pid: str) -> bool:
    """Tell whether a simulated server's process runs; a zombie doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    is_ours = b"sim" in words.split(b"\0") or words.startswith(b"VLLM::")
    return is_ours and stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
