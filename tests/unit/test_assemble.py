"""The assembler gives the same pieces, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.records import Line
from hpuwatch.source.assemble import LONGEST, Assembler, Stepping

pytestmark = pytest.mark.unit

# Mostly line ends, so that every neighbourhood of them occurs; a character of several bytes.
STREAMS = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"bar 3%", "█".encode(), b"\xff"]),
    max_size=30,
).map(b"".join)


def whole(data: bytes) -> list[Line]:
    assembler = Assembler()
    return [*assembler.feed(data), *assembler.close()]


def in_chunks(data: bytes, cuts: list[int]) -> list[Line]:
    assembler = Assembler()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces: list[Line] = []
    for start, end in pairwise(bounds):
        pieces += assembler.feed(data[start:end])
    return pieces + assembler.close()


@given(STREAMS, st.lists(st.integers(0, 120), max_size=8))
def test_random_cuts_change_nothing(data: bytes, cuts: list[int]) -> None:
    assert in_chunks(data, cuts) == whole(data)


@given(STREAMS)
def test_byte_by_byte_changes_nothing(data: bytes) -> None:
    assert in_chunks(data, list(range(len(data)))) == whole(data)


@given(STREAMS)
def test_a_piece_stands_at_its_offset_on_its_line(data: bytes) -> None:
    for piece in whole(data):
        size = len(data[piece.offset :].replace(b"\r", b"\n").split(b"\n")[0])
        stored = data[piece.offset : piece.offset + size]
        assert stored.decode("utf-8", "replace") == piece.text
        assert piece.number == 1 + data[: piece.offset].count(b"\n")


@given(STREAMS)
def test_every_physical_line_gives_a_piece_but_a_blank_behind_a_blank(
    data: bytes,
) -> None:
    numbers = {piece.number for piece in whole(data)}
    blank = [not line.strip(b"\r") for line in data.split(b"\n")[:-1]]
    for number, is_blank in enumerate(blank, start=1):
        again = number > 1 and is_blank and blank[number - 2]
        assert (number in numbers) is not again


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_flood_of_blank_lines_is_one_piece(end: bytes) -> None:
    pieces = whole(b"a\n" + end * 1_000_000 + b"b\n")
    assert len(pieces) <= 3
    assert pieces[-1].text == "b"
    assert pieces[-1].offset == 2 + 1_000_000 * len(end)
    assert pieces[-1].number == 2 + (1_000_000 if b"\n" in end else 0)


def test_carriage_return_and_newline_on_two_sides_of_a_cut() -> None:
    assembler = Assembler()
    assert list(assembler.feed(b"one\r")) == [Line("one", 0, 1)]
    assert list(assembler.feed(b"\ntwo\n")) == [Line("two", 5, 2)]


def test_a_progress_bar_is_many_pieces_of_one_line() -> None:
    pieces = whole(b"\rbar 1\rbar 2\rbar 3\nnext\n")
    assert [(piece.text, piece.number) for piece in pieces] == [
        ("bar 1", 1),
        ("bar 2", 1),
        ("bar 3", 1),
        ("next", 2),
    ]


def test_a_blank_line_is_a_piece() -> None:
    assert whole(b"a\n\r\nb") == [Line("a", 0, 1), Line("", 2, 2), Line("b", 4, 3)]


def test_the_end_of_a_chunk_is_no_end_of_a_piece() -> None:
    assembler = Assembler()
    assert list(assembler.feed(b"half")) == []
    assert list(assembler.feed(b"", 5.0)) == []
    assert list(assembler.feed(b" whole\n", 7.0)) == [Line("half whole", 0, 1, 7.0)]
    assert assembler.close() == []


def test_an_endless_line_is_cut() -> None:
    data = b"x" * (2 * LONGEST + 5) + b"\nnext\n"
    pieces = whole(data)
    assert [len(piece.text) for piece in pieces] == [LONGEST, LONGEST, 5, 4]
    assert [piece.number for piece in pieces] == [1, 1, 1, 2]
    assert in_chunks(data, [LONGEST - 1, LONGEST, LONGEST + 1]) == pieces


def test_a_stream_can_be_taken_up_in_the_middle() -> None:
    assembler = Assembler(offset=100, number=7)
    assert list(assembler.feed(b"one\ntw")) == [Line("one", 100, 7)]
    assert assembler.offset == 104
    assert assembler.close() == [Line("tw", 104, 8)]


NOISE = " is noise"
TOLD = st.lists(
    st.sampled_from(["", "a", "b  is noises", *[f"c{NOISE}", f"d {NOISE}"] * 3]),
    max_size=30,
)


class Taker:
    """Wants all lines from an "a" to the next "d", else only those that are no noise."""

    def __init__(self) -> None:
        self.wants_all = False

    def take(self, piece: Line) -> bool:
        wanted = self.wants_all or not piece.text.endswith(NOISE)
        if wanted:
            self.wants_all = piece.text == "a" or (
                self.wants_all and not piece.text.startswith("d")
            )
        return wanted


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@given(lines=TOLD, cuts=st.lists(st.integers(0, 200), max_size=6))
def test_stepping_over_leaves_out_what_it_may_and_nothing_else(
    lines: list[str], cuts: list[int], end: str
) -> None:
    data = "".join(line + end for line in lines).encode()
    taker, model = Taker(), Taker()
    stepping = Stepping([NOISE], lambda: taker.wants_all, lambda _: False)
    assembler = Assembler(stepping=stepping)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces: list[Line] = []
    for start, stop in pairwise(bounds):
        # A line end that was cut makes all lines of its chunk pieces.
        pieces += [p for p in assembler.feed(data[start:stop]) if taker.take(p)]
    assert pieces == [piece for piece in whole(data) if model.take(piece)]
    assert assembler.number == 1 + len(lines)
    assert assembler.offset == len(data)


def test_an_odd_chunk_is_read_as_a_whole() -> None:
    data = f"a{NOISE}\nb{NOISE}\n".encode()
    odd = Stepping([NOISE], lambda: False, lambda data: b"b" in data)
    assert list(Assembler(stepping=odd).feed(data)) == whole(data)
    even = Stepping([NOISE], lambda: False, lambda _: False)
    assert list(Assembler(stepping=even).feed(data)) == []
