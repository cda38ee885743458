"""Which path answers what: pure but for the snapshot that it takes.

Every page is built whole before a byte is sent, so a page that can't be built becomes a
plain 500 with one sentence, is counted, and harms nothing else.  Only ``/livez`` then says
that all is well: a failed liveness probe would get a healthy server killed.

While the output of before is still being read there are no metrics: counters that begin
anew at 0 would be taken for a restart, and all that they count would be counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpuwatch.metrics.collector import SnapshotCollector, scrape
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.web.ready import is_gone, is_ready, ready_of
from hpuwatch.web.status import status_page

_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, ready to be sent."""

    status: int
    content_type: str
    body: bytes


class Pages:
    """The answers to every path."""

    def __init__(self, take: Callable[[], Snapshot]) -> None:
        """Draw from ``take``, which is called once a page, from any thread."""
        self._take = take
        self._collector = SnapshotCollector(take)
        self._by_path: Mapping[str, tuple[str, Callable[[str], Page]]] = {
            "/": ("status", self._status),
            "/metrics": ("metrics", self._metrics),
            "/readyz": ("readyz", self._readyz),
            "/livez": ("livez", self._livez),
        }

    def answer(self, path: str, accept: str = "") -> Page:
        """Return the page of a path without its query; it never raises."""
        name, build = self._by_path.get(path, ("", None))
        if build is None:
            paths = ", ".join(self._by_path)
            return _plain(404, f"no such page; hpuwatch has {paths}")
        try:
            return build(accept)
        except Exception as error:  # noqa: BLE001  the HTTP edge: a page may fail, the watcher may not
            self._collector.page_failed(name)
            status = 200 if build == self._livez else 500
            return _plain(
                status,
                f"hpuwatch could not build this page ({type(error).__name__}), a bug of its own",
            )

    def _metrics(self, accept: str) -> Page:
        snapshot = self._take()
        if snapshot.catching_up:
            return _plain(503, snapshot.reason)
        body, content_type = scrape(self._collector, accept)
        return Page(200, content_type, body)

    def _readyz(self, _accept: str) -> Page:
        snapshot = self._take()
        document = ready_of(snapshot).model_dump_json(by_alias=True)
        return Page(200 if is_ready(snapshot) else 503, _JSON, f"{document}\n".encode())

    def _livez(self, _accept: str) -> Page:
        snapshot = self._take()
        if is_gone(snapshot):
            why = snapshot.reason or "the server ended and is not started again"
            return _plain(503, f"{snapshot.phase.value}: {why}")
        return _plain(200, snapshot.phase.value)

    def _status(self, _accept: str) -> Page:
        return Page(200, _HTML, _bytes(status_page(self._take())))


def _plain(status: int, sentence: str) -> Page:
    return Page(status, _PLAIN, _bytes(f"{sentence}\n"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
