"""Real logs as pages: which pictures their figures allow, and the lines that are quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.advise.page.page import pictures, render_page
from hpuwatch.app.report import report_of


@pytest.mark.parametrize(
    ("log", "drawn_names"),
    [
        (
            "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz",
            ["memory", "free-memory", "buckets", "warmup-cost"],
        ),
        (
            "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz",
            ["memory", "free-memory", "buckets", "warmup-cost"],
        ),
        ("gaudi2-llama70b-tp4-fork-0.6.3-skip-warmup.log.gz", ["memory"]),
        (
            "plugin-on-stand-in/plugin-0.26-developer-mode.log",
            ["memory", "free-memory", "buckets", "warmup-cost"],
        ),
    ],
)
def test_real_logs_become_pages(shared: Path, log: str, drawn_names: list[str]) -> None:
    report = report_of([str(shared / "corpus" / log)])
    (start,) = report.reports
    assert [each.name for each in pictures(start) if each.draw] == drawn_names
    page = render_page(report)
    for finding in start.findings:
        for line in finding.evidence[:1]:
            assert f"{Path(line.file).name}:{line.line}" in page
