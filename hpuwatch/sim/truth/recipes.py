"""The recipe cache: graphs that an earlier start compiled are only loaded by the next.

``PT_HPU_RECIPE_CACHE_CONFIG`` is ``folder,delete,megabytes``, as the bridge reads it: the
folder is made, emptied first where ``delete`` is true, and held at 0.99 of the megabytes by
removing the oldest recipes, one process at a time.  One rank compiles a recipe and the
others read it.  A recipe belongs to its shape and to what made it: software, card, model,
parallel size and types.  A graph that reads the KV cache belongs to its number of blocks
too: that is every decode, and every prompt behind a context.

Each simulated recipe is a short text file whose name holds the size that it stands for, so
that a large cache costs no disk.  Only files named ``simulated-…`` are ever removed: a
folder with real recipes, or of anything else, stays as it is.  What can't be written is
told once, and compiled again at the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.gaudi.buckets import DECODE, Bucket
from hpuwatch.units import KIB, MIB

LAYER_BYTES = 96 * KIB
"""What one layer adds to a recipe; an assumption, no public figure tells."""

_FILLED = 0.99
_MARK = "simulated-"
_SETTING = "PT_HPU_RECIPE_CACHE_CONFIG"


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """What ``PT_HPU_RECIPE_CACHE_CONFIG`` asks for.

    Attributes:
        folder: where recipes lie; None switches the cache off.
        empties: remove all recipes first.
        limit_bytes: what the recipes may take, None for any amount.
        troubles: what of the text makes no sense, a sentence each.
    """

    folder: Path | None = None
    empties: bool = False
    limit_bytes: int | None = None
    troubles: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> CacheSetting:
        """Read the variable; items that are missing or make no sense are left out."""
        folder, empties, megabytes = [*text.split(","), "", ""][:3]
        if not folder.strip():
            return cls()
        troubles = []
        if empties.strip().lower() not in {"", "true", "false", "0", "1"}:
            troubles.append(
                f"{empties!r} is neither true nor false, nothing is deleted"
            )
        limit = megabytes.strip()
        if limit and not (limit.isascii() and limit.isdigit() and int(limit)):
            troubles.append(
                f"{megabytes!r} is no number of megabytes, there is no limit"
            )
            limit = ""
        return cls(
            Path(folder.strip()),
            empties.strip().lower() in {"true", "1"},
            int(limit) * MIB if limit else None,
            tuple(troubles),
        )


class Recipes:
    """The graphs that need not be compiled.

    Attributes:
        kv_blocks: number of KV blocks that graphs are compiled for from now on.
    """

    def __init__(
        self,
        setting: str,
        *made_by: object,
        recipe_bytes: int = MIB,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open the cache of a server.

        Args:
            setting: the variable's text; empty for no cache.
            made_by: what a recipe depends on beside its shape.
            recipe_bytes: size that each recipe stands for.
            complain: takes a sentence for each thing that doesn't work.
        """
        asked = CacheSetting.read(setting)
        self.kv_blocks = 0
        self._made_by = made_by
        self._recipe_bytes = recipe_bytes
        self._complain = complain
        self._limit_bytes = asked.limit_bytes
        self._folder = asked.folder
        self._held: set[str] = set()
        for trouble in asked.troubles:
            complain(f"{_SETTING}={setting}: {trouble}")
        with self._or_off():
            self._open(empties=asked.empties)

    def compiles(self, phase: str, bucket: Bucket) -> bool:
        """Tell whether the shape has to be compiled, and keep its recipe from now on."""
        blocks = self.kv_blocks if phase == DECODE or bucket.context else 0
        text = "/".join(map(str, (*self._made_by, phase, *bucket, blocks)))
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key in self._held:
            return False
        self._held.add(key)
        return not self._is_stored(key, text)

    def _open(self, *, empties: bool) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for file in list(self._folder.iterdir()):
            if empties and file.name.startswith(_MARK):
                file.unlink(missing_ok=True)

    def _is_stored(self, key: str, text: str) -> bool:
        """Return whether a recipe lay in the folder; else put it there."""
        with self._or_off():
            if self._folder is None:
                return False
            size = self._recipe_bytes // KIB
            file = self._folder / f"{_MARK}{key}-{size}k.recipe"
            try:
                _write(file, f"Simulated, no graph is in here: {text}\n")
            except FileExistsError:
                return True
            self._evict()
        return False

    def _evict(self) -> None:
        """Remove the oldest recipes until the rest fits; one process at a time."""
        if self._limit_bytes is None or self._folder is None:
            return
        with (self._folder / f"{_MARK}eviction.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # whoever holds it removes for both
            stored = sorted(_stored(self._folder))
            taken = sum(size for _, size, _ in stored)
            for _, size, file in stored:
                if taken <= _FILLED * self._limit_bytes:
                    break
                file.unlink(missing_ok=True)
                taken -= size

    @contextlib.contextmanager
    def _or_off(self) -> Iterator[None]:
        """Go on without a folder where it can't be used."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            folder, self._folder = self._folder, None
            self._complain(
                f"the recipe cache {folder} can't be used ({reason}): graphs are compiled"
                " without it"
            )


def _write(file: Path, text: str) -> None:
    """Write a recipe; whoever makes the file has compiled it, so that no two write it."""
    with file.open("x", encoding="utf-8") as recipe:
        try:
            recipe.write(text)
            recipe.flush()
        except OSError:
            file.unlink(missing_ok=True)
            raise


def _stored(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield (when it was made, bytes, file) of each recipe; others may come and go."""
    for file in folder.glob(f"{_MARK}*k.recipe"):
        size = file.stem.rpartition("-")[2].removesuffix("k")
        with contextlib.suppress(FileNotFoundError, ValueError):
            yield file.stat().st_mtime_ns, int(size) * KIB, file
