"""The server's HTTP side as load and tuning see it: where, is it well, which model, how busy.

Standard library only.  A question that gets no answer is answered None, since a server
that starts, stops or hangs is the normal case here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import isfinite
from pathlib import Path
from urllib.parse import urlsplit

from hpuwatch.errors import UsageError

VLLM_PORT = 8000
HTTPS_PORT = 443
MODELS = "/v1/models"
_MOST_BYTES = 1 << 24
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  replaced
_SAMPLE = re.compile(rb"^(\w[\w:]*)(?:\{[^}]*\})? ([-+.\deE]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens.

    Attributes:
        host: a name or address.
        port: its port.
        key: its API key, sent with each request and never stored; None if it has none.
        secure: whether it speaks TLS.
        prefix: the path above ``/v1``, empty or like ``/llm``.
    """

    host: str
    port: int
    key: str | None = field(default=None, repr=False)
    secure: bool = False
    prefix: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that each request has."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def authority(self) -> str:
        """Return host and port as a URL and a Host header spell them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the address as a URL."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.authority}{self.prefix}"

    def connect(self, timeout_seconds: float) -> HTTPConnection:
        """Return a connection, not yet open."""
        kind = HTTPSConnection if self.secure else HTTPConnection
        return kind(self.host, self.port, timeout=timeout_seconds)


def endpoint_of(url: str, key: str | None = None) -> Endpoint:
    """Read a URL like ``http://127.0.0.1:8000`` or ``https://gateway/llm/v1``.

    A path that ends with ``/v1``, as clients are often given it, names the same server.

    Raises:
        UsageError: it is no http address with a port, nor an https address.
    """
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host, port = parts.hostname, parts.port or (HTTPS_PORT if secure else None)
    except ValueError:
        host, port, secure, parts = None, None, False, urlsplit("")
    odd = parts.query or parts.fragment or parts.username
    if host is None or not port or odd or parts.scheme not in {"http", "https"}:
        raise UsageError(f"{url!r} is no address like http://127.0.0.1:8000")
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Endpoint(host, port, key, secure, prefix)


def endpoint_of_command(
    command: Sequence[str], environment: Mapping[str, str]
) -> Endpoint:
    """Return where a server command will listen, by its ``--host`` and ``--port``.

    ``vllm`` without ``--port`` listens on 8000.  A host that stands for all addresses is
    reached by loopback.  A key in ``--api-key`` or VLLM_API_KEY is sent along.

    Raises:
        UsageError: the command names no port that we could talk to.
    """
    port = flag_of(command, "--port")
    if port is None and Path(command[0]).name == "vllm":
        port = str(VLLM_PORT)
    if port is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(
            "the command has no --port that hpuwatch could talk to: give it one, or say "
            "where the server listens with --url http://127.0.0.1:PORT"
        )
    host = flag_of(command, "--host") or "127.0.0.1"
    host = _LOOPBACK.get(host, host)
    return Endpoint(host, int(port), key_of(command, environment))


def key_of(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the API key that a command gives its server, None if it has none."""
    return flag_of(command, "--api-key") or environment.get("VLLM_API_KEY") or None


def flag_of(command: Sequence[str], name: str) -> str | None:
    """Return the value of a flag, as ``--name VALUE`` or ``--name=VALUE``; the last counts."""
    found = None
    for place, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") != name:
            continue
        found = value if equals else next(iter(command[place + 1 :]), None)
    return found


def exchange(
    endpoint: Endpoint,
    path: str,
    body: bytes | None = None,
    timeout_seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Return status and body of the answer to a GET, or to a POST of a JSON body.

    A body that is longer than 16 MiB is cut there.

    Raises:
        OSError: nobody answers.
        HTTPException: what answers doesn't speak HTTP.
    """
    connection = endpoint.connect(timeout_seconds)
    method, kind = "GET", {}
    if body is not None:
        method, kind = "POST", {"Content-Type": "application/json"}
    try:
        connection.request(
            method, endpoint.prefix + path, body, kind | endpoint.headers
        )
        response = connection.getresponse()
        return response.status, response.read(_MOST_BYTES)
    finally:
        connection.close()


def get(endpoint: Endpoint, path: str, timeout_seconds: float = 5.0) -> bytes | None:
    """Return the body of a GET that was answered 200, else None."""
    try:
        status, said = exchange(endpoint, path, timeout_seconds=timeout_seconds)
    except (OSError, HTTPException):
        return None
    return said if status == 200 else None


def is_listening(endpoint: Endpoint) -> bool:
    """Tell whether somebody accepts connections there, healthy or not."""
    connection = endpoint.connect(2.0)
    try:
        connection.connect()
    except OSError:
        return False
    finally:
        connection.close()
    return True


def model_name(endpoint: Endpoint) -> str | None:
    """Return the name of the first model that is served, None where nobody says."""
    return model_in(get(endpoint, MODELS) or b"")


def model_in(said: bytes) -> str | None:
    """Return the first name of a list of models, None where it is no such list."""
    try:
        name = json.loads(said)["data"][0]["id"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) and name.isprintable() else None


def scrape(endpoint: Endpoint) -> Mapping[str, float] | None:
    """Return /metrics as name → sum over its labels, None without an answer."""
    body = get(endpoint, "/metrics")
    if body is None:
        return None
    sums: dict[str, float] = {}
    for name, text in _SAMPLE.findall(body):
        try:
            value = float(text)
        except ValueError:
            continue
        if isfinite(value):
            sums[name.decode()] = sums.get(name.decode(), 0.0) + value
    return sums


def requests_in_flight(endpoint: Endpoint) -> int | None:
    """Return the requests running and waiting, None where the server doesn't say."""
    sums = scrape(endpoint)
    if sums is None or "vllm:num_requests_running" not in sums:
        return None
    return round(
        sums["vllm:num_requests_running"] + sums.get("vllm:num_requests_waiting", 0.0)
    )


def preemptions(endpoint: Endpoint) -> int | None:
    """Return the preemptions since the server's start, None where it doesn't say."""
    sums = scrape(endpoint) or {}
    count = sums.get("vllm:num_preemptions_total", sums.get("vllm:num_preemptions"))
    return None if count is None else round(count)


def kv_use(endpoint: Endpoint) -> float | None:
    """Return the share of the KV cache in use, None where the server doesn't say."""
    sums = scrape(endpoint) or {}
    return sums.get("vllm:kv_cache_usage_perc", sums.get("vllm:gpu_cache_usage_perc"))
