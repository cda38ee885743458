"""Addresses as operators write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError
from hpuwatch.listen import Listen, parse_listen

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9841", "127.0.0.1", 9841),
        ("localhost:0", "localhost", 0),
        ("gaudi-7.rack_2.example:80", "gaudi-7.rack_2.example", 80),
        ("[::1]:9841", "::1", 9841),
        ("[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", 1),
        (":9841", "", 9841),
        (" 127.0.0.1:9841\n", "127.0.0.1", 9841),
    ],
)
def test_an_address_is_read_and_written(text: str, host: str, port: int) -> None:
    listen = parse_listen(text)

    assert listen == Listen(host, port)
    assert str(listen) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "9841",
        "localhost",
        "::1:9841",
        "[::1]",
        "[::1:9841",
        "host:65536",
        "host:-1",
        "host:٣",
        "a b:1",
        "http://host:1",
        "a..b:1",
        f"{'a' * 64}:1",
    ],
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write HOST:PORT") as refused:
        parse_listen(text)

    assert "\n" not in str(refused.value)


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    try:
        listen = parse_listen(text)
    except ConfigError:
        return
    assert 0 <= listen.port <= 65535
    assert parse_listen(str(listen)) == listen
