"""Which cards are taken: stamps in the run-time directory, one for each card.

A stamp names the processes of the server that holds the card and is kept fresh by it.  It
goes with an orderly end.  After a kill it stays, and tells by its age how long ago that was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import ConfigError

_FRESH_SECONDS = 0.2


class Cards:
    """The cards of one server, by the environment that chooses them."""

    def __init__(
        self, env: Mapping[str, str], folder: str, clock: Clock, pids: Iterable[int]
    ) -> None:
        """Find out which cards these processes would have; nothing is taken yet."""
        home = Path(env.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        chosen = env.get("HABANA_VISIBLE_DEVICES") or env.get("HABANA_VISIBLE_MODULES")
        names = [name.strip() for name in (chosen or "all").split(",")]
        place = Path(folder) if folder else home / f"hpuwatch-sim-{os.getuid()}"
        self._stamps = [place / f"card-{name.replace('/', '-')}" for name in names]
        self._clock = clock
        self._pids = " ".join(map(str, pids))
        self._touched = 0.0
        self._held = False

    def take(self, after_kill_seconds: float) -> bool:
        """Take the cards, unless somebody else has one of them.

        Raises:
            ConfigError: there is no place for the stamps.
        """
        if any(self._is_taken(stamp, after_kill_seconds) for stamp in self._stamps):
            return False
        self._held = True
        self._stamp()
        return True

    def touch(self) -> None:
        """Keep the stamps fresh.

        Raises:
            ConfigError: there is no place for them any more.
        """
        now = self._clock.now()
        if not self._held or now - self._touched < _FRESH_SECONDS:
            return
        self._touched = now
        try:
            for stamp in self._stamps:
                os.utime(stamp, (now, now))
        except FileNotFoundError:  # somebody tidied up, or shared them
            self._stamp()

    def release(self) -> None:
        """Let the cards go, in good order."""
        if self._held:
            self._held = False
            for stamp in self._stamps:
                with suppress(OSError):
                    stamp.unlink()

    def _stamp(self) -> None:
        now = self._touched = self._clock.now()
        try:
            for stamp in self._stamps:
                stamp.parent.mkdir(parents=True, exist_ok=True)
                stamp.write_text(self._pids, encoding="ascii")
                os.utime(stamp, (now, now))
        except OSError as error:
            raise ConfigError(f"{error.filename}: {_no_place(error)}") from None

    def _is_taken(self, stamp: Path, after_kill_seconds: float) -> bool:
        try:
            pids = stamp.read_text(encoding="ascii")
            age = self._clock.now() - stamp.stat().st_mtime
        except (OSError, ValueError):
            return False
        if pids == self._pids:
            return False
        return age < after_kill_seconds or any(map(_is_alive, pids.split()))


def check_folder(name: str) -> None:
    """Make a folder for stamps, if there is none yet.

    Raises:
        ValueError: it can't be written into.
    """
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=name):
            pass
    except OSError as error:
        raise ValueError(f"{name!r}: {_no_place(error)}") from None


def _no_place(error: OSError) -> str:
    return f"no stamps can be kept there ({error.strerror}): name another folder"


def _is_alive(pid: str) -> bool:
    """Tell whether a simulated server's process runs; a zombie doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    is_ours = b"sim" in words.split(b"\0") or words.startswith(b"VLLM::")
    return is_ours and stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
