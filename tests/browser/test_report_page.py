"""The report's page in a real Chromium: it fits, can be read, and asks for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpuwatch.advise.document import AccountabilityPart, Report
from hpuwatch.advise.page.page import render_page
from hpuwatch.app.report import report_of
from hpuwatch.testing.browser import Chromium

pytestmark = pytest.mark.timeout(180)

SIZES = [(width, dark) for width in (1280, 390) for dark in (False, True)]


def simulated(folder: Path) -> Path:
    """The log of a simulated start that tells every figure."""
    log = folder / "sim.log"
    words = ("sim", "--speed", "20000", "--port", "0")
    chatty = {"VLLM_DEVELOPER_MODE": "1", "VLLM_GRAPH_RESERVED_MEM": "0.4"}
    with subprocess.Popen(
        [sys.executable, "-m", "hpuwatch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **chatty},
    ) as server:
        assert server.stdout is not None
        with log.open("wb") as file:
            for line in server.stdout:
                file.write(line)
                if b"Application startup complete" in line:
                    break
        server.terminate()
        server.stdout.read()
    return log


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a page can show: a simulated server, and one that died."""
    folder = tmp_path_factory.mktemp("page")
    dead = Path(__file__).resolve().parents[1] / "data/logs/warmup-out-of-memory.log"
    alive, gone = report_of([str(simulated(folder)), str(dead)]).reports
    kept = AccountabilityPart(
        figure="kv_blocks",
        predicted=1000,
        low=900,
        high=1100,
        observed=1200,
        inside=False,
    )
    alive = alive.model_copy(update={"accountability": [kept]})
    file = folder / "report.html"
    file.write_text(render_page(Report(reports=[alive, gone])), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_the_page_fits_and_asks_for_nothing(
    chromium: Chromium, page: Path, width: int, *, dark: bool
) -> None:
    chromium.events.clear()
    chromium.window(width, dark=dark)
    chromium.open(page.as_uri())

    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.complaints() == []
    assert chromium.asked_for() == {page.as_uri()}
    outside = chromium.evaluate(
        "[...document.querySelectorAll('main *')].filter(each => !each.closest('svg')"
        " && getComputedStyle(each).position !== 'absolute'"
        " && !each.closest('thead') && !each.closest('details:not([open])'))"
        f".filter(each => each.getBoundingClientRect().right > {width})"
        ".map(each => each.outerHTML.slice(0, 80))"
    )
    assert outside == []


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_picture_is_seen_once_and_has_its_colours(
    chromium: Chromium, page: Path, width: int, *, dark: bool
) -> None:
    chromium.window(width, dark=dark)
    chromium.open(page.as_uri())

    seen = chromium.evaluate(
        "[...document.querySelectorAll('figure')].map(figure =>"
        " [...figure.querySelectorAll('svg[role=img]')]"
        " .filter(each => each.getBoundingClientRect().width > 0)"
        " .map(each => each.getBoundingClientRect().width))"
    )
    assert [len(each) for each in seen[:5]] == [1] * 5
    assert all(widths[0] <= width for widths in seen[:5])
    black = chromium.evaluate(
        "[...document.querySelectorAll('svg rect, svg circle, svg text')]"
        ".filter(each => getComputedStyle(each).fill === 'rgb(0, 0, 0)')"
        ".map(each => each.outerHTML)"
    )
    assert black == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_scheme_is_that_of_the_reader(
    chromium: Chromium, page: Path, *, dark: bool
) -> None:
    chromium.window(1280, dark=dark)
    chromium.open(page.as_uri())
    back = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_origin_stays_in_sight(chromium: Chromium, page: Path, width: int) -> None:
    chromium.window(width, dark=False)
    chromium.open(page.as_uri())
    chromium.evaluate("document.querySelector('#r1-findings').scrollIntoView()")
    top = "document.querySelector('.origin.simulated').getBoundingClientRect()"
    assert chromium.evaluate(f"{top}.top") == pytest.approx(0, abs=1)
    # A heading that was jumped to is not hidden behind it.
    heading = "document.querySelector('#r1-findings').getBoundingClientRect().top"
    assert chromium.evaluate(heading) >= chromium.evaluate(f"{top}.bottom")


def test_on_paper_nothing_is_folded_away(chromium: Chromium, page: Path) -> None:
    chromium.window(1280, dark=True)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    chromium.open(page.as_uri())
    hidden = chromium.evaluate(
        "[...document.querySelectorAll('details table')]"
        ".filter(each => !each.checkVisibility({contentVisibilityAuto: true}))"
        ".length"
    )
    back = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    chromium.call("Emulation.setEmulatedMedia", media="")
    assert hidden == 0
    assert back == "rgb(255, 255, 255)"


def test_a_click_chooses_a_whole_box(chromium: Chromium, page: Path) -> None:
    chromium.window(1280, dark=False)
    chromium.open(page.as_uri())
    chromium.evaluate("document.querySelector('pre').scrollIntoView({block: 'center'})")
    place = chromium.evaluate(
        "(box => [box.x + 30, box.y + box.height / 2])"
        "(document.querySelector('pre').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        chromium.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=place[0],
            y=place[1],
            button="left",
            clickCount=1,
        )
    chosen = chromium.evaluate("getSelection().toString().trim()")
    assert chosen == chromium.evaluate("document.querySelector('pre').innerText.trim()")
    assert chosen.startswith("VLLM_GRAPH_RESERVED_MEM=")
