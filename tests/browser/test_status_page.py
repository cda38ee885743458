"""The status page in a real Chromium: it renders, refreshes, fits, and loads nothing.

Chromium is driven over a pipe (``--remote-debugging-pipe``: messages of JSON that end
with a zero byte, which it reads from descriptor 3 and writes to 4).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpuwatch.clock import SystemClock
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import BucketList, Fault, Progress, State
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.snapshots import amount, full_snapshot, full_start, known
from hpuwatch.web.server import Web

pytestmark = pytest.mark.timeout(180)

PATIENCE_SECONDS = 60.0
TITLE = "hpuwatch \N{EN DASH} demo:"
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has no other way
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)

Answer = dict[str, Any]


class Chromium:
    """A browser with one tab, and what happened in it."""

    def __init__(self, program: str, profile: Path) -> None:
        self.events: list[Answer] = []
        self._last = 0
        self._session = ""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # High numbers, so that the shell can't overwrite one with the other.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]
        redirect = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                redirect,
                "bash",
                program,
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        self._in = os.fdopen(ours_in, "rb")
        self._out = os.fdopen(ours_out, "wb")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._out.close()
        self._in.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **params: object) -> Answer:
        """Send a command and return its result."""
        answer = self._ask(method, params)
        assert "error" not in answer, answer
        result: Answer = answer["result"]
        return result

    def _ask(self, method: str, params: dict[str, object]) -> Answer:
        """Send a command and return its answer; events on the way are kept."""
        self._last += 1
        message: Answer = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (answer := self._next()).get("id") != self._last:
            self.events.append(answer)
        return answer

    def _next(self) -> Answer:
        text = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "Chromium closed the pipe"
            text += byte
        answer: Answer = json.loads(text)
        return answer

    def evaluate(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === '{url}'")

    def until(self, script: str) -> None:
        """Wait until a script returns true; a page that is being replaced has no answer."""
        clock = SystemClock()
        deadline = clock.boottime() + PATIENCE_SECONDS
        while clock.boottime() < deadline:
            answer = self._ask("Runtime.evaluate", {"expression": script})
            if answer.get("result", {}).get("result", {}).get("value") is True:
                return
            clock.wait(0.1)
        pytest.fail(f"the page never said yes to {script}")

    def window(self, width: int, *, dark: bool) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    browser = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


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

    asked = {
        event["params"]["request"]["url"]
        for event in chromium.events
        if event.get("method") == "Network.requestWillBeSent"
    }
    assert asked <= {url, f"{url}favicon.ico"}
    said = [
        event["params"]["entry"]["text"]
        for event in chromium.events
        if event.get("method") == "Log.entryAdded"
    ]
    assert not [text for text in said if "Content Security Policy" in text], said
