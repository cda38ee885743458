"""What SIGTERM and SIGINT mean to a server, which depends on how far it has come.

While it imports they are the end, as for any program.  While the engine starts and warms
up, SIGTERM is swallowed, and so is the first SIGINT; the second one is the end.  A server
that is ready begins to stop, and then only SIGINT is heard again: it hurries the stop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from hpuwatch.sim.hooks import Faults


class Signals:
    """The signals of one server.

    Attributes:
        asked: set once a ready server was asked to stop.
        hurried: set when it was asked not to wait for anybody.
        name: the signal that asked.
    """

    def __init__(self, faults: Faults, die: Callable[[signal.Signals], None]) -> None:
        """Begin with a server that imports, and ``die`` of a signal at once."""
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.name = signal.SIGTERM.name
        self._faults = faults
        self._die = die
        self._is_ready = False
        self._interrupted = False

    def listen(self) -> None:
        """Be told of signals by the running event loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.take, number)

    def server_is_ready(self) -> None:
        """From now on a signal is a wish to stop."""
        self._is_ready = True

    def take(self, number: signal.Signals) -> None:
        """Take one signal."""
        is_interrupt = number is signal.SIGINT
        if not is_interrupt and self._faults.stop.deaf:
            return
        if not self._is_ready:
            if self._faults.now.phase == "import" or self._interrupted:
                self._die(number)
            self._interrupted = is_interrupt or self._interrupted
        elif not self.asked.is_set():
            self.name = number.name
            self.asked.set()
        elif is_interrupt:
            self.hurried.set()
