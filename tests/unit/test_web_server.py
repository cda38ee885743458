"""The server on a real socket: well-behaved clients, rude ones, and ports in use."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPConnection
from typing import NamedTuple

import pytest

from hpuwatch.errors import ConfigError, ResourceError
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.snapshots import full_snapshot
from hpuwatch.web import server
from hpuwatch.web.server import Web

pytestmark = pytest.mark.unit


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web("127.0.0.1:0", full_snapshot)
    web.start()
    yield web
    web.close()


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


def ask(web: Web, method: str, path: str, body: bytes | None = None) -> Answer:
    connection = HTTPConnection(web.address, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def connect(web: Web) -> socket.socket:
    host, _, port = web.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_the_address_is_the_real_one(web: Web) -> None:
    assert web.address.startswith("127.0.0.1:")
    assert not web.address.endswith(":0")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/metrics", 200),
        ("/metrics?x=1", 200),
        ("/livez", 200),
        ("/readyz", 503),
        ("/no", 404),
    ],
)
def test_head_is_get_without_the_body(web: Web, path: str, status: int) -> None:
    get, head = ask(web, "GET", path), ask(web, "HEAD", path)

    assert get.status == head.status == status
    assert get.body
    assert not head.body
    assert get.headers.get("Content-Length") == str(len(get.body))
    for name in ("Content-Type", "Content-Security-Policy", "Cache-Control"):
        assert get.headers.get(name) == head.headers.get(name) is not None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_changed_over_http(web: Web, method: str) -> None:
    answer = ask(web, method, "/metrics", b"x" * 30_000)

    assert answer.status == 405
    assert answer.headers.get("Allow") == "GET, HEAD"
    assert answer.body.count(b"\n") == 1


def test_a_method_that_nobody_knows_gets_one_line(web: Web) -> None:
    answer = ask(web, "BREW", "/")

    assert answer.status == 501
    assert answer.body.count(b"\n") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [b"\0\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 3],
)
def test_garbage_harms_nobody(web: Web, request_bytes: bytes) -> None:
    with connect(web) as rude:
        rude.sendall(request_bytes)
        rude.shutdown(socket.SHUT_WR)
        while rude.recv(4096):
            pass

    assert ask(web, "GET", "/livez").status == 200


def test_a_hanging_client_holds_up_neither_others_nor_the_end(web: Web) -> None:
    with connect(web) as silent, connect(web) as slow:
        slow.sendall(b"GET /metrics HT")

        assert ask(web, "GET", "/livez").status == 200

        web.close()
        with pytest.raises(OSError, match="refused"):
            connect(web)
        assert silent.fileno() != slow.fileno()  # both were still open


def test_a_hanging_client_is_let_go(monkeypatch: pytest.MonkeyPatch, web: Web) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 0.05)

    with connect(web) as slow:
        slow.sendall(b"GET /metrics HT")

        assert slow.recv(4096) == b""


def test_a_client_that_leaves_without_reading_harms_nobody(
    web: Web, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        rude = connect(web)
        rude.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        rude.close()

    assert ask(web, "GET", "/metrics").status == 200
    assert capfd.readouterr() == ("", "")


def test_where_all_threads_are_taken_the_longest_silent_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of half-open connections must not cost a liveness probe its answer."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(server._Handler, "timeout", 30)
    web = Web("127.0.0.1:0", full_snapshot)
    web.start()
    rude = []
    try:
        for _ in range(40):
            rude.append(connect(web))
            rude[-1].sendall(b"GET / HT")
        assert ask(web, "GET", "/livez").status == 200
        assert rude[0].recv(4096) == b""
        rude[-1].sendall(b"TP/1.0\r\n\r\n")
        assert rude[-1].recv(4096).startswith(b"HTTP/1.0 200")
    finally:
        for each in rude:
            each.close()
        web.close()


def test_nobody_who_has_asked_is_let_go_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    taking, go_on = threading.Event(), threading.Event()

    def take() -> Snapshot:
        taking.set()
        go_on.wait(10)
        return full_snapshot()

    web = Web("127.0.0.1:0", take)
    web.start()
    try:
        with connect(web) as first:
            first.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert taking.wait(10)
            with connect(web) as second:
                assert second.recv(4096) == b""
            go_on.set()
            assert first.recv(4096).startswith(b"HTTP/1.0 200")
    finally:
        go_on.set()
        web.close()


def test_many_ask_at_once(web: Web) -> None:
    answers: list[int] = []

    def scrape() -> None:
        answers.extend(ask(web, "GET", "/metrics").status for _ in range(5))

    clients = [threading.Thread(target=scrape) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()

    assert answers == [200] * 40


def test_a_broken_snapshot_leaves_the_server_answering() -> None:
    """An exception in a page must not end its thread, let alone the server."""
    broken = [True]

    def take() -> Snapshot:
        if broken:
            raise RuntimeError
        return full_snapshot()

    web = Web("127.0.0.1:0", take)
    web.start()
    try:
        assert ask(web, "GET", "/metrics").status == 500
        broken.clear()
        answer = ask(web, "GET", "/metrics")
        assert answer.status == 200
        assert b'hpuwatch_page_errors_total{page="metrics"} 1.0' in answer.body
    finally:
        web.close()


def test_a_port_in_use_is_told_with_the_way_out(web: Web) -> None:
    second = Web(web.address, full_snapshot)

    with pytest.raises(ResourceError, match=r"port in use.*use --listen"):
        second.start()

    second.close()  # never started: nothing to do
    assert ask(web, "GET", "/livez").status == 200


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ResourceError, match=r"can't listen there .*use --listen"):
        Web("192.0.2.1:0", full_snapshot).start()


def test_a_wrong_address_is_refused_before_anything_is_bound() -> None:
    with pytest.raises(ConfigError):
        Web("nonsense", full_snapshot)


def test_the_port_is_free_again_after_the_end(web: Web) -> None:
    address = web.address
    web.close()
    web.close()

    again = Web(address, full_snapshot)
    again.start()
    try:
        assert ask(again, "GET", "/livez").status == 200
    finally:
        again.close()


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_ipv6_loopback() -> None:
    web = Web("[::1]:0", full_snapshot)
    if not has_ipv6_loopback():
        with pytest.raises(ResourceError, match="can't listen there"):
            web.start()
        return
    web.start()
    try:
        assert web.address.startswith("[::1]:")
        assert ask(web, "GET", "/livez").status == 200
    finally:
        web.close()


def test_a_bare_port_means_every_address() -> None:
    web = Web(":0", full_snapshot)
    web.start()
    try:
        host, _, port = web.address.partition(":")
        assert host == server.EVERY_ADDRESS
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.0 200")
    finally:
        web.close()
