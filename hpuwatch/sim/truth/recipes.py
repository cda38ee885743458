"""The recipe cache: graphs that an earlier start compiled are only loaded by the next.

``PT_HPU_RECIPE_CACHE_CONFIG`` is ``folder,delete-first,megabytes``.  The simulated cache is
one small text file in that folder for each model, card and parallel size.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.config.knobs import is_true


class Recipes:
    """The shapes that are compiled already."""

    def __init__(self, config: str, *names: object) -> None:
        """Read the cache of a server that the names identify; no config, no cache."""
        folder, _, rest = config.partition(",")
        key = hashlib.sha256("/".join(map(str, names)).encode()).hexdigest()[:12]
        self._file = Path(folder) / f"simulated-{key}.recipes" if folder else None
        self._known: set[str] = set()
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if is_true(rest.partition(",")[0]):
            self._file.unlink(missing_ok=True)
        elif self._file.exists():
            self._known = set(self._file.read_text(encoding="utf-8").splitlines())

    def compiles(self, phase: str, bucket: Bucket) -> bool:
        """Tell whether the shape has to be compiled, and know it from now on."""
        row = f"{phase} {bucket.batch} {bucket.query} {bucket.context}"
        if row in self._known:
            return False
        self._known.add(row)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(row + "\n")
        return True
