"""Being told that something changes in a folder, by watchdog.

A system that has no watches left tells nothing, so whoever uses this looks now and then too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from typing_extensions import Self


class Changes:
    """Watches folders from ``with`` on."""

    def __init__(
        self,
        folders: Iterable[str | Path],
        tell: Callable[[set[str]], None],
        *,
        writes: bool = True,
    ) -> None:
        """Get ready to watch.

        Args:
            folders: what is watched, without what lies in their folders; those that are
                missing are left out.
            tell: is given the paths that something happened to, from a thread.
            writes: tell of writes and removals too, not only of files made or renamed.
        """
        from watchdog import events  # noqa: PLC0415  only who follows files pays for it
        from watchdog.observers import Observer  # noqa: PLC0415  likewise

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                tell({os.fsdecode(event.src_path), os.fsdecode(event.dest_path)})

        # Without the filter every write to a log would wake us, and every look at a file.
        kinds: list[type[events.FileSystemEvent]] = [
            events.FileCreatedEvent,
            events.FileMovedEvent,
        ]
        if writes:
            kinds += [events.FileModifiedEvent, events.FileDeletedEvent]
        self._observer = Observer()
        for folder in folders:
            if os.path.isdir(folder):  # noqa: PTH112  may be a plain text
                self._observer.schedule(Handler(), str(folder), event_filter=kinds)

    def __enter__(self) -> Self:
        """Begin to watch."""
        with suppress(OSError):
            self._observer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Watch no longer."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()
