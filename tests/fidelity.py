"""Measure the simulator against what is published; write the tables of docs/explanation.

``python -m tests.fidelity`` measures every point anew (some 20 seconds) and keeps what came
out in ``data/fidelity.json``; ``make docs`` makes the tables from there, and a test measures
a part again, so that neither can be forgotten.  The memory points lie in the shared folder
(``HPUWATCH_SHARED``, else beside the checkout); without it those of the last time stay.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests import memory_points, memory_starts, misfit_points, time_points
from tests.throughput_points import Point, law, points, run

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "tests" / "data" / "fidelity.json"

_NO_NEWS = 0.005

Record = dict[str, Any]


def main() -> None:
    """Measure everything and keep it."""
    kept: dict[str, list[Record]] = {
        "memory": memory() or measured()["memory"],
        "starts": [asdict(row) for row in time_points.starts()],
        "traffic": [asdict(row) for row in time_points.first_requests()],
        "throughput": throughput(points()),
        "misfit": [asdict(row) for row in misfit_points.rows()],
    }
    text = json.dumps(_rounded(kept), indent=1, ensure_ascii=False)
    MEASURED.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {MEASURED.relative_to(ROOT)}; run `make docs`")  # noqa: T201


def measured() -> dict[str, list[Record]]:
    """Return what was measured last."""
    found: dict[str, list[Record]] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def agree(now: Any, kept: Any) -> bool:
    """Tell whether what is measured now is what was kept.

    What is kept has four digits, and half a percent is no news.
    """
    if isinstance(kept, Mapping):
        return list(now) == list(kept) and all(agree(now[k], kept[k]) for k in kept)
    if isinstance(kept, list):
        return len(now) == len(kept) and all(map(agree, now, kept))
    if isinstance(kept, int | float) and isinstance(now, int | float):
        return abs(now - kept) <= _NO_NEWS * abs(kept)
    return bool(now == kept)


def memory() -> list[Record]:
    """Return the memory points, none where the shared folder is not there."""
    shared = Path(os.environ.get("HPUWATCH_SHARED", ROOT.parent / "shared"))
    if not (shared / "reference").is_dir():
        return []
    return [asdict(row) for row in memory_points.rows(shared)]


def throughput(chosen: Iterable[Point]) -> list[Record]:
    """Return what the law and a served batch make of published throughputs."""
    return [_served(point) for point in chosen]


def tables() -> str:
    """Return the generated part of the page."""
    found = measured()
    parts = {
        "Memory": _memory_table(found["memory"]),
        "Memory figures without a row": _unstarted_table(),
        "Starts": _start_table(found["starts"]),
        "First requests": _traffic_table(found["traffic"]),
        "Throughput": _throughput_table(found["throughput"]),
        "Latency": _latency_table(found["throughput"]),
        "Not simulated": _left_out_table(),
        "What predictions are off by": _misfit_table(found["misfit"]),
    }
    return "\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _served(point: Point) -> Record:
    served = asyncio.run(run(point))
    told = {
        "model": point.model,
        "cards": point.cards,
        "input": point.input_tokens,
        "output": point.output_tokens,
        "batch": point.batch,
        "use": "fitted" if point.is_fitted else "predicted",
        "published": point.tokens_per_second,
        "law": law(point),
        "served": served.tokens_per_second,
    }
    seconds = served.first_token_seconds, served.token_seconds
    names = zip(("first_token_ms", "token_ms"), point.latencies_ms, strict=False)
    return told | {
        name: [published, 1000 * found]
        for (name, published), found in zip(names, seconds, strict=False)
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def _table(heads: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; heads that begin with ``>`` stand at the right."""
    names = [head.strip() for head in heads.split("|")]
    lines = [
        [name.removeprefix(">") for name in names],
        ["---:" if name.startswith(">") else "---" for name in names],
        *([_cell(cell) for cell in row] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def _error(simulated: float | None, published: float) -> str:
    if simulated is None or not published:
        return ""
    return f"{100 * (simulated / published - 1):+.0f} %"


def _memory_table(found: Iterable[Record]) -> str:
    """Return the memory points; amounts are exact to print rounding or not at all."""
    return _table(
        "start | figure | >published | >simulated | >error | set from it | why",
        (
            (
                f"{_point(row['source'])}, {row['model']}",
                row["figure"].replace("_mib", ", MiB").replace("_", " "),
                row["published"],
                "-" if row["simulated"] is None else row["simulated"],
                _exact_error(row["simulated"], row["published"]),
                row["set_from"],
                row["why"],
            )
            for row in found
        ),
    )


def _unstarted_table() -> str:
    reasons = [
        *((source, "all", why) for source, why in memory_starts.NOT_STARTED.items()),
        *((*key, why) for key, why in memory_starts.NOT_COMPARED.items()),
    ]
    return _table(
        "point | figure | why",
        (
            (_point(source), figure.replace("_", " "), why)
            for source, figure, why in reasons
        ),
    )


def _point(source: str) -> str:
    named = source.replace("corpus/", "log ").replace("#", " ")
    return named.replace("autocalc_table", "Intel's calculator").replace("_", " ")


def _exact_error(simulated: float | None, published: float) -> str:
    if simulated is None or not published:
        return ""
    error = 100 * (simulated / published - 1)
    return "0" if abs(error) < 0.1 else f"{error:+.1f} %"


def _start_table(found: Iterable[Record]) -> str:
    return _table(
        "start | settings | time | >published s | >simulated s | >error | why",
        (
            (
                row["source"],
                row["settings"],
                row["what"].replace("_", " "),
                row["published"],
                row["simulated"],
                _error(row["simulated"], row["published"]),
                row["why"],
            )
            for row in found
        ),
    )


def _traffic_table(found: Iterable[Record]) -> str:
    return _table(
        "request | >published s | >simulated s | >error | why",
        (
            (
                row["source"],
                row["published"],
                row["simulated"],
                _error(row["simulated"], row["published"]),
                row["why"],
            )
            for row in found
        ),
    )


def _throughput_table(found: Iterable[Record]) -> str:
    return _table(
        "model | >cards | >in | >out | >batch | point is | >published tokens/s"
        " | >law | >served | >error",
        (
            (
                *(row[name] for name in ("model", "cards", "input", "output", "batch")),
                row["use"],
                *(row[name] for name in ("published", "law", "served")),
                _error(row["served"], row["published"]),
            )
            for row in found
        ),
    )


def _latency_table(found: Iterable[Record]) -> str:
    return _table(
        "model | >cards | figure | >published ms | >simulated ms | >error",
        _latencies(found),
    )


def _latencies(found: Iterable[Record]) -> Iterator[tuple[object, ...]]:
    names = {"first_token_ms": "time to first token", "token_ms": "time a token"}
    for row in found:
        for name, told in names.items():
            if name in row:
                published, simulated = row[name]
                error = _error(simulated, published)
                yield row["model"], row["cards"], told, published, simulated, error


def _misfit_table(found: Iterable[Record]) -> str:
    heads = (f">misfit {misfit}" for misfit in misfit_points.MISFITS)
    return _table(
        " | ".join(("prediction", *heads)),
        (
            (row["what"], *(f"{100 * error:.1f} %" for error in row["errors"]))
            for row in found
        ),
    )


def _left_out_table() -> str:
    return _table("model | published | why", time_points.not_simulated())


if __name__ == "__main__":
    main()
