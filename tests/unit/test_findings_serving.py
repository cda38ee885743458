"""What the findings of a server at work say: storms, stalls, and what no line shows."""

from __future__ import annotations

import pytest

from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit


def found(text: str) -> dict[str, Finding]:
    starts = state_of_text(text).starts
    findings = findings_of(starts[-1], shipped_findings(), starts[:-1])
    assert all(each.lines for each in findings), "a finding without evidence"
    return {each.name: each for each in findings}


def missed(batch: int, blocks: int, second: int = 0) -> str:
    at = f"03-04 11:{second // 60:02d}:{second % 60:02d}"
    return (
        f"(EngineCore pid=30) WARNING {at} [m.py:1] Configuration: ('decode', {batch}, 1, "
        f"{blocks}) was not warmed-up!\n"
    )


def stats(running: int = 8, tokens: float = 90.0, prompt: float = 0.0) -> str:
    return (
        "(APIServer pid=11) INFO 03-04 11:00:00 [loggers.py:1] Engine 000: Avg prompt "
        f"throughput: {prompt} tokens/s, Avg generation throughput: {tokens} tokens/s, "
        f"Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 40.0%, Prefix "
        "cache hit rate: 0.0%\n"
    )


def test_a_storm_tells_its_rate_and_its_range() -> None:
    storm = "".join(missed(8, 300 + n, second=n) for n in range(120))
    findings = found(Told().text() + storm)
    seen = findings["recompile-storm"]
    assert seen.severity == "error"
    assert seen.numbers["shapes"] == 120
    assert seen.numbers["shapes_per_minute"] == pytest.approx(120 / (119 / 60), abs=0.1)
    assert "419 blocks, 1.6 times the largest bucket (256)" in seen.why
    assert [line.number for line in seen.lines] == [27, 146]
    assert "bucket-miss" in findings


@pytest.mark.parametrize(
    ("shapes", "apart", "is_storm"),
    [
        (9, 1, False),  # a few at the start of a load
        (25, 1, True),  # 25 in half a minute
        (25, 30, False),  # 25 in 12 minutes
        (100, 30, True),  # so many at any rate
    ],
)
def test_what_is_a_storm(shapes: int, apart: int, is_storm: bool) -> None:
    storm = "".join(missed(8, 300 + n, second=n * apart) for n in range(shapes))
    assert ("recompile-storm" in found(Told().text() + storm)) is is_storm


def test_without_warm_up_every_shape_is_new_and_no_storm() -> None:
    skipped = Told().text().replace("Warmup finished in", "Skipping warmup...", 1)
    storm = "".join(missed(8, 300 + n) for n in range(120))
    assert "recompile-storm" not in found(skipped + storm)


def test_a_miss_tells_what_its_warm_up_would_have_taken() -> None:
    seen = found(Told(decode_seconds=3.0).text() + missed(8, 300) + missed(8, 301))
    price = seen["bucket-miss"].figures["warmup_seconds_more"]
    assert price.value == pytest.approx(6.0)
    assert price.low < 6 < price.high


def test_requests_without_a_token() -> None:
    silent = stats(tokens=0.0)
    text = Told().text() + stats() + silent * 6 + stats()
    seen = found(text)["stalled"]
    assert seen.numbers == {"lines": 6, "seconds": 60}
    assert seen.lines[0].number == 26 + 1 + 6
    assert "hl-smi" in seen.cure
    missing = found(text + missed(8, 300))["stalled"]
    assert "graph was being compiled" in missing.why


@pytest.mark.parametrize(
    "line",
    [
        stats(running=0, tokens=0.0),  # idle
        stats(tokens=0.0, prompt=800.0),  # a long prompt
        stats(),
    ],
)
def test_what_is_no_stall(line: str) -> None:
    assert "stalled" not in found(Told().text() + line * 8)


def test_a_stall_is_counted_on_end() -> None:
    broken = (stats(tokens=0.0) * 2 + stats()) * 4
    assert "stalled" not in found(Told().text() + broken)


def test_the_first_pass_is_told_of_once_there_is_load() -> None:
    text = Told(compile_only=True).text()
    assert "first-pass" not in found(text)
    seen = found(text + stats())["first-pass"]
    assert seen.severity == "info"
    assert "PT_COMPILE_ONLY_MODE" in seen.lines[0].text
    assert "first pass" in seen.cure
    assert "first-pass" not in found(Told().text() + stats())
