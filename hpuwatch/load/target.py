"""Who is asked, and how a request to it becomes bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from hpuwatch.load.endpoint import Endpoint


class Route(str, Enum):
    """Which of the two generating endpoints is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """Return its path."""
        return "/v1/chat/completions" if self is Route.CHAT else "/v1/completions"


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked.

    Attributes:
        endpoint: where the server listens.
        model: its model's name.
        route: which of its endpoints.
    """

    endpoint: Endpoint
    model: str
    route: Route = Route.COMPLETIONS

    def body(self, prompt: bytes, output_tokens: int, *, stream: bool = True) -> bytes:
        """Return the JSON of a request whose answer has exactly so many tokens.

        ``ignore_eos`` is vLLM's; a server that doesn't know it may answer with fewer.

        Args:
            prompt: as JSON: long ones would be slow to encode once more.
            output_tokens: how many are asked for.
            stream: the answer comes piece by piece, with its usage at the end.
        """
        if self.route is Route.CHAT:
            given = b'"messages": [{"role": "user", "content": ' + prompt + b"}]"
        else:
            given = b'"prompt": ' + prompt
        asked: dict[str, object] = {
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": stream,
        }
        if stream:
            asked["stream_options"] = {"include_usage": True}
        return json.dumps(asked).encode()[:-1] + b", " + given + b"}"

    def message(self, body: bytes) -> bytes:
        """Return a whole HTTP request."""
        endpoint = self.endpoint
        rows = [
            f"POST {endpoint.prefix}{self.route.path} HTTP/1.1",
            f"Host: {endpoint.authority}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in endpoint.headers.items()),
        ]
        return "\r\n".join([*rows, "", ""]).encode() + body
