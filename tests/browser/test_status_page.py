"""The status page in a real Chromium: it renders, refreshes, fits, and loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import BucketList, Fault, Progress, State
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.browser import Chromium
from hpuwatch.testing.snapshots import amount, full_snapshot, full_start, known
from hpuwatch.web.server import Web

pytestmark = pytest.mark.timeout(180)

TITLE = "hpuwatch \N{EN DASH} demo:"


@pytest.fixture
def shown() -> list[Snapshot]:
    """What the server shows: the last of these."""
    return [full_snapshot()]


@pytest.fixture
def url(shown: list[Snapshot]) -> Iterator[str]:
    web = Web("127.0.0.1:0", lambda: shown[-1])
    web.start()
    yield f"http://{web.address}/"
    web.close()


def brightness(colour: str) -> float:
    numbers = colour.partition("(")[2].strip(")").split(",")
    return sum(float(each) for each in numbers[:3]) / 3


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 420, 1280])
def test_the_page_fits_and_can_be_read(
    chromium: Chromium, url: str, width: int, *, dark: bool
) -> None:
    chromium.window(width, dark=dark)
    chromium.open(url)

    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    style = "getComputedStyle(document.body)"
    back = brightness(chromium.evaluate(f"{style}.backgroundColor"))
    text = brightness(chromium.evaluate(f"{style}.color"))
    assert (back < text) is dark
    assert abs(back - text) > 150


def test_tables_of_figures_fit_a_telephone(
    chromium: Chromium, url: str, shown: list[Snapshot]
) -> None:
    start = full_start()
    images = replace(
        start,
        buckets={**start.buckets, "multimodal": known(BucketList(7))},
        warmup=replace(
            start.warmup,
            progress={**start.warmup.progress, "multimodal": Progress(1036, 1036)},
        ),
        graphs_used={**start.graphs_used, "multimodal": amount("1023.9 MiB")},
    )
    shown.append(replace(full_snapshot(), state=State((images,))))
    for width in (360, 420):
        chromium.window(width, dark=False)
        chromium.open(url)

        wide = chromium.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(each => each.scrollWidth > each.clientWidth)"
            ".map(each => each.innerText)"
        )

        assert wide == [], width


def test_bars_are_as_long_as_their_figures(chromium: Chromium, url: str) -> None:
    chromium.window(1280, dark=False)
    chromium.open(url)

    share = (
        "(part => part.getBoundingClientRect().width /"
        " part.parentElement.getBoundingClientRect().width)"
    )
    done = chromium.evaluate(f"{share}(document.querySelector('.bar .done'))")
    kv_cache = chromium.evaluate(f"{share}(document.querySelector('.ledger .kv'))")
    assert done == pytest.approx(0.5, abs=0.01)
    assert kv_cache == pytest.approx(64.17 / 94.62, abs=0.01)
    colours = chromium.evaluate(
        "[...document.querySelector('.ledger').querySelectorAll('i')]"
        ".map(part => getComputedStyle(part).backgroundColor)"
    )
    assert len(set(colours)) == 7


def test_a_simulated_server_is_called_so_before_anything_else(
    chromium: Chromium, url: str
) -> None:
    chromium.open(url)

    text = chromium.evaluate("document.body.innerText")
    assert text.index("Simulated") < text.index("warming")


def test_the_page_refreshes_itself(
    chromium: Chromium, url: str, shown: list[Snapshot]
) -> None:
    chromium.open(url)
    assert "warming" in chromium.evaluate("document.title")

    shown.append(replace(full_snapshot(), phase=Phase.READY, reason="serving"))

    chromium.until(f"document.title === '{TITLE} ready'")


def test_a_log_cannot_run_a_script(
    chromium: Chromium, url: str, shown: list[Snapshot]
) -> None:
    attack = "<img src=x onerror='document.title=\"owned\"'><script>document.title='owned'</script>"
    fault = Fault(attack, Phase.READY, attack, Line(attack), at=attack)
    hostile = State((replace(full_start(), faults=(fault,)),))
    shown.append(replace(full_snapshot(), reason=attack, state=hostile))

    chromium.open(url)

    assert chromium.evaluate("document.title") == f"{TITLE} warming"
    assert chromium.evaluate("document.querySelectorAll('script, img').length") == 0
    assert attack in chromium.evaluate("document.body.innerText")


def test_the_page_loads_nothing_else_and_breaks_no_rule_of_its_own(
    chromium: Chromium, url: str
) -> None:
    chromium.events.clear()
    chromium.open(url)
    chromium.evaluate("0")

    assert chromium.asked_for() <= {url, f"{url}favicon.ico"}
    said = chromium.complaints()
    assert not [text for text in said if "Content Security Policy" in text], said
