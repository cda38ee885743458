"""The starts that were remembered, and what their predictions were worth; read only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.account.score import Scored, scores
from hpuwatch.advise.render.figures import figure_text, figure_words
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.store.starts import (
    FILE_NAME,
    StartStore,
    StoredStart,
    StoredSuggestion,
)
from hpuwatch.tune.report import align
from hpuwatch.units import counted

_ORIGINS = ("measured", "simulated")


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class HistoryRow(_Document):
    """A start: who it was, how it was set, what came of it.

    ``tried`` is the start that ran with what was suggested, null until one does.
    """

    name: str
    number: int
    stored_at: float
    read_at: float
    began: str | None = None
    file: str
    start: int
    origin: str
    release: str | None = None
    model: str | None = None
    card: str | None = None
    tp: int | None = None
    phase: str
    fault: str | None = None
    fingerprint: str
    settings: dict[str, str]
    kv_blocks: int | None = None
    kv_tokens: int | None = None
    graph_bytes: int | None = None
    warmup_seconds: float | None = None
    ready_seconds: float | None = None
    suggested: str | None = None
    tried: int | None = None


class HistoryDocument(_Document):
    """``history/1``: the newest start first."""

    schema_name: Literal["hpuwatch.history/1"] = Field(
        default="hpuwatch.history/1", alias="schema"
    )
    starts: tuple[HistoryRow, ...]


class PredictionRow(_Document):
    """A predicted figure; ``tried_by`` is null until a start runs with the suggestion.

    ``inside`` is null where nothing came of it yet, or the logs never tell.
    """

    name: str
    start: int
    made_at: float
    suggested: str
    figure: str
    predicted: float
    low: float
    high: float
    origin: str
    widened_by: float = 1.0
    tried_by: int | None = None
    observed: float | None = None
    inside: bool | None = None


class ScoreRow(_Document):
    """What the predictions of a figure were worth, of a name's measured or simulated starts.

    ``widens_by`` is the factor by which the next interval grows.
    """

    name: str
    of: str
    figure: str
    count: int
    inside: int
    hit_rate: float
    mean_error_percent: float | None
    mean_off_percent: float | None
    widens_by: float


class PredictionsDocument(_Document):
    """``predictions/1``: the newest suggestion first."""

    schema_name: Literal["hpuwatch.predictions/1"] = Field(
        default="hpuwatch.predictions/1", alias="schema"
    )
    predictions: tuple[PredictionRow, ...]
    scores: tuple[ScoreRow, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is kept under one name."""

    name: str
    starts: Sequence[StoredStart]
    suggestions: Sequence[StoredSuggestion]
    outcomes: dict[str, Sequence[tuple[int, Scored]]]


def kept_under(root: Path, name: str | None = None) -> list[Kept]:
    """Return what is kept under one name, or under each.

    Raises:
        StoreBroken: a file can't be read.
        BusyError: somebody else works on it.
        ResourceError: it may not be read.
    """
    found = []
    for path in sorted(root.glob(f"{name or '*'}/{FILE_NAME}")):
        with closing(StartStore(path, read_only=True)) as store:
            found.append(
                Kept(
                    path.parent.name,
                    store.starts(),
                    store.suggestions(),
                    {origin: store.outcomes(origin) for origin in _ORIGINS},
                )
            )
    return found


def history_of(kept: Sequence[Kept]) -> HistoryDocument:
    """Return the starts, the newest first."""
    rows = [row for each in kept for row in _starts(each)]
    return HistoryDocument(starts=tuple(sorted(rows, key=_newest_first)))


def _newest_first(row: HistoryRow) -> tuple[float, int]:
    return -row.stored_at, -row.number


def _starts(kept: Kept) -> Iterator[HistoryRow]:
    made = {each.start: each for each in kept.suggestions}
    for stored in kept.starts:
        record, suggested = stored.record, made.get(stored.id)
        yield HistoryRow(
            name=kept.name,
            number=stored.id,
            stored_at=stored.stored_at,
            read_at=stored.read_at,
            began=record.began,
            file=record.source.file,
            start=record.source.start,
            origin=record.origin,
            release=record.server.release,
            model=record.server.model,
            card=record.server.card,
            tp=record.server.tp,
            phase=record.server.phase,
            fault=record.died.fault_class if record.died else None,
            fingerprint=record.fingerprint,
            settings=record.settings,
            kv_blocks=record.kv.blocks,
            kv_tokens=record.kv.tokens,
            graph_bytes=record.warmup.allocated_bytes,
            warmup_seconds=record.warmup.seconds,
            ready_seconds=record.ready_seconds,
            suggested=suggested.suggestion.text() if suggested else None,
            tried=suggested.tried_by if suggested else None,
        )


def predictions_of(kept: Sequence[Kept]) -> PredictionsDocument:
    """Return each prediction beside what came, and what they were worth together."""
    rows = [row for each in kept for row in _predictions(each)]
    rows.sort(key=lambda row: -row.made_at)
    return PredictionsDocument(
        predictions=tuple(rows),
        scores=tuple(row for each in kept for row in _scores(each)),
    )


def _predictions(kept: Kept) -> Iterator[PredictionRow]:
    came = {
        (number, scored.figure): scored
        for outcomes in kept.outcomes.values()
        for number, scored in outcomes
    }
    for made in kept.suggestions:
        for figure, part in made.suggestion.figures.items():
            scored = came.get((made.id, figure))
            yield PredictionRow(
                name=kept.name,
                start=made.start,
                made_at=made.made_at,
                suggested=made.suggestion.text(),
                figure=figure,
                predicted=part.value,
                low=part.low,
                high=part.high,
                origin=part.origin,
                widened_by=made.suggestion.factors.get(figure, 1.0),
                tried_by=made.tried_by,
                observed=scored.observed if scored else None,
                inside=scored.inside if scored else None,
            )


def _scores(kept: Kept) -> Iterator[ScoreRow]:
    for origin, outcomes in kept.outcomes.items():
        for each in scores(scored for _, scored in outcomes):
            yield ScoreRow(
                name=kept.name,
                of=origin,
                figure=each.figure,
                count=each.count,
                inside=each.inside,
                hit_rate=each.hit_rate,
                mean_error_percent=each.mean_error_percent,
                mean_off_percent=each.mean_off_percent,
                widens_by=each.factor,
            )


def history_text(document: HistoryDocument) -> str:
    """Return the starts as a table."""
    if not document.starts:
        return "Nothing is remembered yet: hpuwatch suggest LOG remembers its starts.\n"
    table: list[tuple[str, ...]] = [
        (
            "start",
            "read (UTC)",
            "release",
            "reserve",
            "KV blocks",
            "warm-up",
            "ended",
            "model",
        )
    ]
    table += [_row(each) for each in document.starts]
    return align(table) + "\n"


def _row(each: HistoryRow) -> tuple[str, ...]:
    simulated = " (simulated)" if each.origin == "simulated" else ""
    ended = each.phase if each.fault is None else f"{each.phase}: {each.fault}"
    return (
        f"{each.name}@{each.number}",
        _moment(each.stored_at),
        each.release or "unknown",
        each.settings.get(RESERVE, "-"),
        "-" if each.kv_blocks is None else f"{each.kv_blocks:,}",
        "-" if each.warmup_seconds is None else f"{each.warmup_seconds:,.0f} s",
        ended,
        f"{each.model or 'unknown'}{simulated}",
    )


def predictions_text(document: PredictionsDocument) -> str:
    """Return the predictions as a table, and their scores as another."""
    if not document.predictions:
        return "Nothing was predicted yet: hpuwatch suggest LOG makes predictions.\n"
    lines = []
    if document.scores:
        table: list[tuple[str, ...]] = [
            (
                "figure",
                "of",
                "inside",
                "hit rate",
                "mean error",
                "mean off",
                "widens by",
            )
        ]
        table += [_score(each) for each in document.scores]
        lines += ["What predictions were worth", align(table, "  "), ""]
    else:
        lines += ["No suggestion was tried yet.", ""]
    tried = [each for each in document.predictions if each.tried_by is not None]
    lines += ["Predicted and observed"] if tried else []
    for head, rows in groupby(tried, key=_head):
        lines += [f"  {head}", align([_prediction(each) for each in rows], "    ")]
    waiting = {_head(each) for each in document.predictions if each.tried_by is None}
    if waiting:
        lines += [""] if tried else []
        lines.append(
            f"{counted(len(waiting), 'suggestion')} not tried yet: --format json lists what "
            "they predict."
        )
    return "\n".join(lines) + "\n"


def _head(each: PredictionRow) -> str:
    """Return what the figures of one suggestion have in common."""
    tried = f": tried by {each.name}@{each.tried_by}" if each.tried_by else ""
    return f"{each.name}@{each.start}, {each.suggested}{tried}"


def _score(each: ScoreRow) -> tuple[str, ...]:
    error, off = (
        "-" if value is None else f"{round(value, 1) + 0.0:{sign}.1f} %"
        for value, sign in ((each.mean_error_percent, "+"), (each.mean_off_percent, ""))
    )
    return (
        figure_words(each.figure),
        each.name if each.of == "measured" else f"{each.name}, {each.of}",
        f"{each.inside} of {each.count}",
        f"{each.hit_rate:.0%}",
        error,
        off,
        f"{each.widens_by:.3g}",
    )


def _prediction(each: PredictionRow) -> tuple[str, ...]:
    low, high = (figure_text(each.figure, value) for value in (each.low, each.high))
    if each.inside is None:
        came = "no log tells"
    elif each.observed is None:
        came = "never came: the server died first"
    else:
        came = f"came {figure_text(each.figure, each.observed)}"
    return (
        figure_words(each.figure),
        figure_text(each.figure, each.predicted),
        "" if low == high else f"{low} to {high}",
        came,
        _off(each),
        {None: "", True: "inside", False: "OUTSIDE"}[each.inside],
    )


def _off(each: PredictionRow) -> str:
    """Return by how much what came differs: a wide interval holds a bad guess, too."""
    if each.observed is None or not each.predicted:
        return ""
    return f"{100 * (each.observed - each.predicted) / each.predicted:+.1f} %"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M")


def record_in(
    kept: Sequence[Kept], name: str, number: int | None
) -> StartRecord | None:
    """Return a start by name and number, the newest without a number; None: no such."""
    of_name = [stored for each in kept if each.name == name for stored in each.starts]
    chosen = [each for each in of_name if number in (None, each.id)]
    return chosen[-1].record if chosen else None
