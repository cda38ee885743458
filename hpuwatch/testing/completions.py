"""A small server with vLLM's API, whose every answer a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler", dict[str, Any]], None]


@dataclass
class Served:
    """What a server has been asked, and what it says of itself.

    Attributes:
        port: where it listens, on loopback.
        bodies: of all POSTs, with their path and authorisation.
        pages: what a GET of a path answers; others are not found.
    """

    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    pages: dict[str, str] = field(
        default_factory=lambda: {"/v1/models": '{"data": [{"id": "m"}]}'}
    )

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    """Answers as a server with vLLM's API would."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    served: Served

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer with a page."""
        text = self.served.pages.get(self.path)
        self.page(404 if text is None else 200, text or "{}")

    def do_POST(self) -> None:
        """Answer as the test has it."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = {"authorization": self.headers["Authorization"], "path": self.path}
        self.served.bodies.append(body | known)
        type(self).answer(self, body)

    def page(self, status: int, text: str) -> None:
        """Answer in one piece."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def stream(self, *events: object, chunked: bool = True) -> None:
        """Answer with server-sent events, and the end of a stream."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header(
            *("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")
        )
        self.end_headers()
        for event in (*events, "[DONE]"):
            text = event if isinstance(event, str) else json.dumps(event)
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not chunked


def pieces(count: int) -> list[object]:
    """Return the events of so many tokens."""
    return [{"choices": [{"text": " a"}]} for _ in range(count)]


def usage(tokens: int, prompt_tokens: int | None = None) -> object:
    """Return the event that counts them."""
    counts = {"completion_tokens": tokens, "prompt_tokens": prompt_tokens}
    return {"choices": [], "usage": counts}


def length_of(body: dict[str, Any]) -> int:
    """Return the tokens of a prompt: of a list its length, of a text its words."""
    prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def complete(handler: Handler, body: dict[str, Any]) -> None:
    """Answer as asked for: streamed or in one piece, counted."""
    wanted, length = body["max_tokens"], length_of(body)
    if body["stream"]:
        handler.stream(*pieces(wanted), usage(wanted, length))
        return
    whole = {
        "choices": [{"text": " a" * wanted}],
        "usage": {"completion_tokens": wanted, "prompt_tokens": length},
    }
    handler.page(200, json.dumps(whole))


@contextmanager
def serving(answer: Answer = complete) -> Iterator[Served]:
    """Run a server that answers like that, until the end of the block."""
    served = Served()
    handler = type("One", (Handler,), {"answer": answer, "served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    served.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
