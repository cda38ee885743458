"""A real Chromium with one tab, driven over a pipe.

It speaks its debugging protocol with ``--remote-debugging-pipe``: messages of JSON that end
with a zero byte, which it reads from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from hpuwatch.clock import SystemClock

PATIENCE_SECONDS = 60.0
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
        """Start the program with a profile folder of its own."""
        self.events: list[Answer] = []
        self._last = 0
        self._session = ""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # High numbers, so that the shell can't overwrite one with the other.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]
        redirect = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        self._process = subprocess.Popen(  # noqa: S603  a browser that a test has chosen
            [  # noqa: S607  found on the PATH like a user's
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
        """End it."""
        self._out.close()
        self._in.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **params: object) -> Answer:
        """Send a command and return its result.

        Raises:
            AssertionError: it was refused.
        """
        answer = self._ask(method, params)
        if "error" in answer:
            raise AssertionError(answer)
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
            if not byte:
                raise AssertionError("Chromium closed the pipe")
            text += byte
        answer: Answer = json.loads(text)
        return answer

    def evaluate(self, script: str) -> Any:
        """Return what a script comes to.

        Raises:
            AssertionError: it failed.
        """
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result)
        return result["result"].get("value")

    def open(self, url: str) -> None:
        """Go to a page, and wait until all of it is there."""
        self.call("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === '{url}'")

    def until(self, script: str) -> None:
        """Wait until a script returns true; a page that is being replaced has no answer.

        Raises:
            AssertionError: it never did.
        """
        clock = SystemClock()
        deadline = clock.boottime() + PATIENCE_SECONDS
        while clock.boottime() < deadline:
            answer = self._ask("Runtime.evaluate", {"expression": script})
            if answer.get("result", {}).get("result", {}).get("value") is True:
                return
            clock.wait(0.1)
        raise AssertionError(f"the page never said yes to {script}")

    def window(self, width: int, *, dark: bool) -> None:
        """Make the window that wide, in light or dark surroundings."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def asked_for(self) -> set[str]:
        """Return every address that was asked for."""
        return {
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        }

    def complaints(self) -> list[str]:
        """Return what the console has to say, and what broke."""
        logged = [
            str(event["params"]["entry"]["text"])
            for event in self.events
            if event.get("method") == "Log.entryAdded"
        ]
        broken = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return logged + [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method") in broken
        ]
