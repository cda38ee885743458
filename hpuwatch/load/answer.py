"""The raw reader: one HTTP answer, read from pieces as they come, for timing and counting.

A load generator must be much faster than the server that it measures, so nothing is decoded
that isn't counted.  Of a streamed token only the moment of arrival is kept: its event is
recognised by a pattern in its bytes, and JSON is read for the few events that may hold
something else (usage, an error, a role, an end).  Understood are HTTP/1.1 bodies with a
length, in chunks, or up to the connection's end, and server-sent events within them.

Nothing that comes is trusted: what is no answer, or a count that can't be one, never gets
further than a failure of that request.  A stream is whole when it says so, by ``[DONE]`` or a
reason to finish; a connection that ends before is a failure, however it was framed.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Mapping, Sequence

from hpuwatch.parse.clean import clean

_MOST_PLAIN_BYTES = 1 << 20
_MOST_HEAD_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 20
_MOST_TOKENS = 1 << 40  # a count beyond it is nonsense, and no float's matter
_SHOWN_CHARACTERS = 200
_DONE = b"[DONE]"
# Within a JSON text a quote is escaped, so that no token can spell one of these keys.
_TEXT = re.compile(rb'"(?:text|content|reasoning_content|reasoning)": ?"(?!")')
_USAGE = re.compile(rb'"usage": ?\{')
_FINISH = re.compile(rb'"finish_reason": ?"')
_STATUS = re.compile(rb"[1-5][0-9][0-9]")


class AnswerReader:
    """Reads one answer.

    Attributes:
        status: of HTTP, 0 before it is known.
        arrivals: when each piece of the text came, in the caller's seconds.
        input_tokens: of the prompt, as the server counts them; None where it doesn't say.
        output_tokens: of the answer, likewise.
        failure: why this is no good answer, empty for a good one.
        complete: nothing more belongs to this answer.
        keeps_open: another request may be sent on the connection.
    """

    __slots__ = (
        "_body",
        "_chunked",
        "_ended",
        "_last",
        "_left",
        "_line",
        "_raw",
        "_streams",
        "arrivals",
        "complete",
        "failure",
        "input_tokens",
        "keeps_open",
        "output_tokens",
        "status",
    )

    def __init__(self) -> None:
        """Wait for the first byte."""
        self.status = 0
        self.arrivals: array[float] = array("d")
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.failure = ""
        self.complete = False
        self.keeps_open = False
        self._raw = b""  # not taken apart yet
        self._line = b""  # the begun line of a stream
        self._last = b""  # its last event with text, which may say that it ends
        self._ended = False  # or another has said it
        self._body = b""  # of an answer in one piece
        self._chunked = False
        self._streams = False
        self._left: int | None = None  # bytes of the body or chunk; None: unknown

    def feed(self, data: bytes, now: float) -> None:
        """Take what has come at ``now``."""
        if self.complete:
            return
        self._raw += data
        try:
            if not self.status and not self._head():
                return
            body = self._chunks() if self._chunked else self._plain()
        except ValueError:
            self._fail("what came is no HTTP/1.1 answer")
            return
        if self._streams:
            self._lines(body, now)
        else:
            self._body += body[: _MOST_PLAIN_BYTES - len(self._body)]
        if self.complete:
            self._close(now)

    def end(self, now: float) -> None:
        """Take note that the server has closed the connection."""
        if self.complete:
            return
        self.keeps_open = False
        if self.status and not self._chunked and self._left is None:
            self.complete = True
            self._close(now)
            return
        how = "in the middle of its answer" if self.status else "without an answer"
        self._fail(f"the server closed the connection {how}")

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self.complete = True
        self.keeps_open = False

    def _head(self) -> bool:
        """Read status and headers; False until all of them are there.

        Raises:
            ValueError: that is no answer.
        """
        while True:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                if len(head) > _MOST_HEAD_BYTES:
                    raise ValueError("endless head")
                return False
            first, *rows = head.split(b"\r\n")
            version, number = first.split(b" ")[:2]
            if not version.startswith(b"HTTP/1.") or not _STATUS.fullmatch(number):
                raise ValueError("another protocol")
            self._raw = rest
            if not number.startswith(b"1"):  # an interim answer, the real one follows
                break
        self.status = int(number)
        headers = {
            name.strip().lower(): value.strip().lower()
            for name, _, value in (row.partition(b":") for row in rows)
        }
        self._understand(headers, version)
        return True

    def _understand(self, headers: Mapping[bytes, bytes], version: bytes) -> None:
        """Take from the headers how long the body is and what is in it.

        Raises:
            ValueError: the length is no number.
        """
        self._chunked = b"chunked" in headers.get(b"transfer-encoding", b"")
        length = headers.get(b"content-length")
        self._left = _size(length, 10) if length and not self._chunked else None
        kind = headers.get(b"content-type", b"")
        self._streams = self.status == 200 and not kind.startswith(b"application/json")
        connection = headers.get(b"connection", b"")
        bounded = self._chunked or self._left is not None
        self.keeps_open = (
            bounded and version != b"HTTP/1.0" and b"close" not in connection
        )

    def _plain(self) -> bytes:
        """Return what has come of a body with a length, or without an end."""
        body, self._raw = self._raw, b""
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
            self.complete = self._left == 0
        return body

    def _chunks(self) -> bytes:
        """Return what has come of a body in chunks, without their frames.

        Raises:
            ValueError: the size of a chunk is no number.
        """
        raw, at, parts = self._raw, 0, []
        while True:
            if self._left:
                part = raw[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                parts.append(part)
                if self._left:
                    break
            # A chunk ends with an empty line, which stands before the next one's size.
            begin = at + 2 if self._left == 0 else at
            end = raw.find(b"\r\n", begin)
            if end < 0:
                break
            size = _size(raw[begin:end].partition(b";")[0], 16)
            if size == 0:
                # Trailers end with an empty line.
                self.complete = raw.startswith(b"\r\n", end + 2) or (
                    raw.find(b"\r\n\r\n", end + 2) > 0
                )
                break
            self._left, at = size, end + 2
        self._raw = raw[at:]
        return b"".join(parts)

    def _lines(self, body: bytes, now: float) -> None:
        """Take the events apart that have come in full."""
        *lines, self._line = (self._line + body).split(b"\n")
        if len(self._line) > _MOST_LINE_BYTES:
            self._fail("the stream holds a line without end")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == _DONE:
                self._ended = True
            elif _TEXT.search(payload) and not _USAGE.search(payload):
                self.arrivals.append(now)
                self._last = payload
            else:
                self._event(payload, now)

    def _event(self, payload: bytes, now: float) -> None:
        """Take an event that may be more, or less, than a piece of text."""
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            self._fail("the stream holds what is no JSON")
            return
        if not isinstance(event, dict):
            return
        if "error" in event or event.get("object") == "error":
            self.failure = f"the stream broke off: {_message(event)}"
            return
        self._count(event)
        choices = _choices(event)
        self._ended |= any(choice.get("finish_reason") for choice in choices)
        if any(map(_has_text, choices)):
            self.arrivals.append(now)

    def _count(self, event: Mapping[str, object]) -> None:
        usage = _object(event.get("usage"))
        self.input_tokens = _tokens(usage.get("prompt_tokens"), self.input_tokens)
        self.output_tokens = _tokens(usage.get("completion_tokens"), self.output_tokens)

    def _close(self, now: float) -> None:
        """Judge the answer, which is there in full."""
        if self.status != 200:
            self.failure = f"HTTP {self.status}: {_words(self._body)}"
        elif not self._streams:
            self._whole(now)
        elif not self.arrivals and self.output_tokens:
            self.arrivals.append(now)  # tokens that make no text
        if not self.arrivals:
            self.failure = self.failure or "the answer has no text"
        elif self._streams and not self._ended and not _FINISH.search(self._last):
            self.failure = self.failure or "the stream ended before the answer did"

    def _whole(self, now: float) -> None:
        """Take an answer in one piece, as a server gives it that doesn't stream."""
        try:
            answer = json.loads(self._body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or "choices" not in answer:
            self._fail("the answer is no completion")
            return
        self._count(answer)
        self.arrivals.append(now)


def _size(text: bytes, base: int) -> int:
    """Read a length.

    Raises:
        ValueError: it is no number, or none that a length can have.
    """
    size = int(text, base)
    if size < 0:
        raise ValueError("a length below zero")
    return size


def _tokens(value: object, known: int | None) -> int | None:
    """Return a count of tokens, or what is known where it is none."""
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else known


def _object(value: object) -> Mapping[str, object]:
    """Return a JSON object, an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def _choices(event: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    rows = event.get("choices")
    return [_object(row) for row in rows] if isinstance(rows, list) else []


def _has_text(choice: Mapping[str, object]) -> bool:
    """Tell whether a choice of a stream carries a token, be its text empty or not.

    Half a character of several bytes comes as an empty text; the opening of a chat, which
    says the role, and its end, which says nothing, carry none.
    """
    if "text" in choice:
        return bool(choice["text"]) or not choice.get("finish_reason")
    delta = _object(choice.get("delta"))
    texts = [delta.get(key) for key in ("content", "reasoning_content", "reasoning")]
    if any(texts):
        return True
    ends = "role" in delta or choice.get("finish_reason")
    return bool(delta.get("tool_calls")) or ("" in texts and not ends)


def _words(body: bytes) -> str:
    """Return what an answer that is no success says, shortened."""
    try:
        return _message(json.loads(body))
    except (ValueError, RecursionError):
        return shown(body.decode("utf-8", "replace"))


def _message(answer: object) -> str:
    if isinstance(answer, dict):
        error = answer.get("error", answer)
        inner = error.get("message") if isinstance(error, dict) else error
        answer = inner or answer.get("detail") or answer
    return shown(str(answer))


def shown(text: str) -> str:
    """Return what a server said as it may be shown: safe for a terminal, short, one line."""
    line = " ".join(clean(" ".join(text.split())).split())[:_SHOWN_CHARACTERS]
    return line.encode("utf-8", "replace").decode()
