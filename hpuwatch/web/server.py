"""Probes, metrics and the status page over HTTP, for machines and for people.

One thread per connection, with a limit on both its patience and their number: a client
that hangs costs one thread for a few seconds, and neither the others nor our own end wait
for it.  Where all threads are taken, the connection that has waited longest without asking
for a page makes room.  Nothing here changes anything, so only GET and HEAD are answered.
"""

from __future__ import annotations

import errno
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

from hpuwatch.errors import ResourceError
from hpuwatch.listen import Listen, parse_listen
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.web.pages import Page, Pages

CLIENT_PATIENCE_SECONDS = 10.0
MOST_CONNECTIONS = 64
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  only ":PORT" asks for it

_STOP_POLL_SECONDS = 0.1
_HANDOVER_SECONDS = 1.0
_LARGEST_IGNORED_BODY = 65536

_Request: TypeAlias = "socket.socket | tuple[bytes, socket.socket]"


class Web:
    """The HTTP side of one instance."""

    def __init__(self, listen: str, take: Callable[[], Snapshot]) -> None:
        """Get ready to listen; nothing is bound yet.

        Args:
            listen: ``HOST:PORT``, ``[::1]:PORT`` or ``:PORT``; port 0 takes a free one.
            take: returns the newest snapshot; called from several threads.

        Raises:
            ConfigError: ``listen`` is none of these.
        """
        self._listen = parse_listen(listen)
        self._pages = Pages(take)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Return ``HOST:PORT`` as it fits into a URL, with the real port once started.

        Every address of the machine is told as ``0.0.0.0``.
        """
        port = self._server.server_port if self._server else self._listen.port
        return str(Listen(self._listen.host or EVERY_ADDRESS, port))

    def start(self) -> None:
        """Bind and answer from now on, on threads of our own.

        Raises:
            ResourceError: the port is in use, or the address is not to be had.
        """
        try:
            self._server = _Server(self._listen, self._pages)
        except OSError as error:
            raise ResourceError(_why_not(self._listen, error)) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_STOP_POLL_SECONDS,),
            name="web",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port; a hanging client is not waited for."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, listen: Listen, pages: Pages) -> None:
        self.pages = pages
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._silent: dict[_Request, None] = {}  # oldest first
        self._silent_lock = threading.Lock()
        host = listen.host
        if not host:
            host = "::" if socket.has_dualstack_ipv6() else EVERY_ADDRESS
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, listen.port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up our own name, which can stall where DNS is down.
        if self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name = ""
        self.server_port = self.server_address[1]

    def process_request(self, request: _Request, client_address: object) -> None:
        if not self._free.acquire(blocking=False) and not self._make_room():
            self.shutdown_request(request)  # better no answer for one than no threads
            return
        with self._silent_lock:
            self._silent[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.asked(request)
            self._free.release()  # no thread was to be had
            raise

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asked(request)
            self._free.release()

    def asked(self, request: _Request) -> None:
        """Note that a connection has said what it wants, or is over."""
        with self._silent_lock:
            self._silent.pop(request, None)

    def _make_room(self) -> bool:
        """Let go of the oldest connection that is silent; return whether we got its place."""
        with self._silent_lock:
            oldest = next(iter(self._silent), None)
            if not isinstance(oldest, socket.socket):
                return False
            del self._silent[oldest]
        with suppress(OSError):  # it is over already
            oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends
        return self._free.acquire(timeout=_HANDOVER_SECONDS)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Say nothing: a client that went away is no news, and pages don't raise."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_PATIENCE_SECONDS
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def do_GET(self) -> None:
        self._send(self._page(), with_body=True)

    def do_HEAD(self) -> None:
        self._send(self._page(), with_body=False)

    def do_POST(self) -> None:
        # What a client is still sending would otherwise cut off our answer.
        length = self.headers.get("Content-Length", "")
        if length.isdecimal():
            self.rfile.read(min(int(length), _LARGEST_IGNORED_BODY))
        sentence = (
            b"hpuwatch changes nothing over HTTP: only GET and HEAD are answered\n"
        )
        self._send(Page(405, self.error_content_type, sentence), with_body=True)

    do_PUT = do_POST  # noqa: N815  the base class looks for these names
    do_DELETE = do_POST  # noqa: N815  likewise
    do_PATCH = do_POST  # noqa: N815  likewise
    do_OPTIONS = do_POST  # noqa: N815  likewise

    def _page(self) -> Page:
        self.server.asked(self.connection)
        accept = self.headers.get("Accept", "")
        return self.server.pages.answer(self.path.partition("?")[0], accept)

    def _send(self, page: Page, *, with_body: bool) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header(
            "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"
        )
        if page.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def version_string(self) -> str:
        return "hpuwatch"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it
        """Say nothing: probes come every few seconds."""


def _why_not(listen: Listen, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{listen}: port in use by another program: use --listen HOST:PORT to take another"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"{listen}: ports below 1024 are not allowed here: use --listen HOST:PORT with a higher one"
    reason = error.strerror or str(error)
    return f"{listen}: can't listen there ({reason}): use --listen HOST:PORT with an address of this machine"
