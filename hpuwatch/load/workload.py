"""What is asked of a server, and when: lengths and arrivals, from a trace or drawn.

The two are chosen apart.  Lengths come from the rows of a trace or are drawn evenly from
ranges; arrivals come from the trace, from a fixed rate, or from the answers themselves
(``concurrency``: a new request as soon as one is answered).

A trace is a CSV file, plain or gzipped, with the columns ``arrival_s``, ``input_tokens``,
``output_tokens`` and, if it has it, ``cached_prefix_tokens``; rows are in the order of
arrival.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from hpuwatch.errors import InputError, MissingFileError

ARRIVAL, INPUT, OUTPUT = "arrival_s", "input_tokens", "output_tokens"
PREFIX = "cached_prefix_tokens"
_NEEDED = (ARRIVAL, INPUT, OUTPUT)
_MOST_TOKENS = 10_000_000
_MOST_CHARACTERS = 100_000  # of a line: a packed one may be gigabytes


class Arrivals(str, Enum):
    """What decides when a request is sent."""

    TRACE = "trace"
    POISSON = "poisson"
    CONSTANT = "constant"
    CLOSED = "closed loop"


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        number: its place in the run, from 0.
        due_seconds: when it is to be sent, after the run's begin; 0 in a closed loop.
        input_tokens: length of its prompt.
        output_tokens: how many tokens it asks for.
        prefix_tokens: how many of the prompt's first tokens others have had before.
    """

    number: int
    due_seconds: float
    input_tokens: int
    output_tokens: int
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """All requests of a run.

    Attributes:
        requests: in the order of sending; a closed loop may have them without end.
        arrivals: what decides when each is sent.
        concurrency: requests in flight in a closed loop, None otherwise.
        rate: requests per second as asked for, None where nothing was.
        seconds: none is sent later than this after the begin; None for no such end.
        strict: an answer shorter than asked for has failed, and the first request that
            fails ends the run.
    """

    requests: Iterable[Request]
    arrivals: Arrivals
    concurrency: int | None = None
    rate: float | None = None
    seconds: float | None = None
    strict: bool = False

    @property
    def planned(self) -> int | None:
        """Return how many requests there are, None for one without end."""
        return len(self.requests) if isinstance(self.requests, tuple) else None


@dataclass(frozen=True, slots=True)
class Totals:
    """What a number of requests come to.

    Attributes:
        requests: how many.
        input_tokens: of all prompts.
        output_tokens: of all answers.
        prefix_tokens: of all prompts, those that others have had before.
        seconds: from the first request's due time to the last one's; 0 in a closed loop.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    prefix_tokens: int
    seconds: float

    @property
    def rate(self) -> float | None:
        """Return requests per second as they are due, None in a closed loop."""
        return (self.requests - 1) / self.seconds if self.seconds > 0 else None


def totals_of(requests: Sequence[Request]) -> Totals:
    """Return what requests come to."""
    return Totals(
        requests=len(requests),
        input_tokens=sum(each.input_tokens for each in requests),
        output_tokens=sum(each.output_tokens for each in requests),
        prefix_tokens=sum(each.prefix_tokens for each in requests),
        seconds=requests[-1].due_seconds if requests else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Span:
    """A range of lengths, both ends included."""

    least: int
    most: int

    @property
    def middle(self) -> int:
        """Return the length halfway."""
        return round((self.least + self.most) / 2)


def drawn_lengths(
    inputs: Span, outputs: Span, prefix_tokens: int, seed: int
) -> Iterator[Request]:
    """Yield requests without end whose lengths are drawn evenly."""
    chance = random.Random(f"lengths/{seed}")  # noqa: S311  no secret
    for number in itertools.count():
        length = chance.randint(inputs.least, inputs.most)
        wanted = chance.randint(outputs.least, outputs.most)
        yield Request(number, 0.0, length, wanted, min(prefix_tokens, length))


def at_rate(
    requests: Iterable[Request], rate: float, arrivals: Arrivals, seed: int
) -> Iterator[Request]:
    """Yield the requests with arrivals at ``rate`` per second, evenly or as a Poisson process."""
    chance = random.Random(f"arrivals/{seed}")  # noqa: S311  no secret
    due = 0.0
    for request in requests:
        yield replace(request, due_seconds=due)
        due += (
            1 / rate
            if arrivals is Arrivals.CONSTANT
            else chance.expovariate(1.0) / rate
        )


def warped(requests: Iterable[Request], factor: float) -> Iterator[Request]:
    """Yield the requests with their arrivals ``factor`` times as fast, the first at once."""
    first: float | None = None
    for request in requests:
        first = request.due_seconds if first is None else first
        yield replace(request, due_seconds=(request.due_seconds - first) / factor)


def read_trace(path: Path) -> Iterator[Request]:
    """Yield the requests of a trace, row by row.

    Raises:
        MissingFileError: there is no such file, or it can't be opened.
        InputError: it is no trace; the message names the line.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            plain = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(plain, "utf-8-sig", newline="") as text:
                yield from _rows(path, text)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        # gzip's own complaint is an OSError too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise MissingFileError(
                f"the trace {path} can't be opened: {error.strerror}"
            ) from None
        if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            raise InputError(
                f"{path} is packed, but cut off or damaged ({error}): copy it anew"
            ) from None
        raise InputError(
            f"{path} is no CSV file, nor a gzipped one ({error}): a trace has the columns "
            f"{','.join(_NEEDED)}[,{PREFIX}]"
        ) from None


def _rows(path: Path, text: io.TextIOBase) -> Iterator[Request]:
    rows = csv.DictReader(_lines(path, text))
    try:
        yield from _checked(path, rows)
    except csv.Error as error:
        raise InputError(
            f"{path}:{rows.line_num}: no row of a CSV file: {error}"
        ) from None


def _lines(path: Path, text: io.TextIOBase) -> Iterator[str]:
    for number in itertools.count(1):
        line = text.readline(_MOST_CHARACTERS)
        if not line:
            return
        if len(line) == _MOST_CHARACTERS:
            raise InputError(
                f"{path}:{number}: a line of {_MOST_CHARACTERS:,} characters or more is no "
                "row of a trace"
            )
        yield line


def _check_columns(path: Path, names: Sequence[str]) -> None:
    for name in (*_NEEDED, PREFIX):
        count = names.count(name)
        if count > 1 or (not count and name != PREFIX):
            how = "there twice" if count else "missing"
            raise InputError(
                f"{path}:1: the column {name} is {how}: a trace begins with the line "
                f"{','.join(_NEEDED)}[,{PREFIX}]"
            )


def _checked(path: Path, rows: csv.DictReader[str]) -> Iterator[Request]:
    _check_columns(path, rows.fieldnames or ())
    last = 0.0
    number = 0
    for number, row in enumerate(rows, 1):
        where = f"{path}:{rows.line_num}"
        if None in row:
            raise InputError(f"{where}: the row has more fields than there are columns")
        request = _request(row, number - 1, where)
        if request.due_seconds < last:
            raise InputError(
                f"{where}: {ARRIVAL} goes back from {last:g} to {request.due_seconds:g}: "
                "sort the rows by it"
            )
        last = request.due_seconds
        yield request
    if not number:
        raise InputError(f"{path}: the trace has no row, so that nothing can be sent")


def _request(row: Mapping[str, str | None], number: int, where: str) -> Request:
    """Read a row.

    Raises:
        InputError: a value makes no sense.
    """
    arrival = _number(row, ARRIVAL, where)
    length, wanted = _tokens(row, INPUT, 1, where), _tokens(row, OUTPUT, 1, where)
    prefix = _tokens(row, PREFIX, 0, where) if row.get(PREFIX) else 0
    if prefix > length:
        raise InputError(
            f"{where}: {PREFIX} {prefix} is more than {INPUT} {length}: a prefix is a part "
            "of its prompt"
        )
    return Request(number, arrival, length, wanted, prefix)


def _number(row: Mapping[str, str | None], column: str, where: str) -> float:
    text = row.get(column)
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise InputError(
            f"{where}: {column} is {text!r}: a number of seconds, 0 or more, belongs there"
        )
    return value


def _tokens(row: Mapping[str, str | None], column: str, least: int, where: str) -> int:
    text = row.get(column)
    try:
        value = int(text or "")
    except ValueError:
        value = -1
    if not least <= value <= _MOST_TOKENS:
        raise InputError(
            f"{where}: {column} is {text!r}: a whole number of tokens, {least} or more, "
            "belongs there"
        )
    return value
