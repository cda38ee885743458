"""The server that ``tune`` leaves behind: started by ``hpuwatch run``, detached from us.

It keeps nothing of ours, not even our output, so that a caller who reads that output to its
end doesn't wait for the server's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import RuntimeBootError
from hpuwatch.life.phases import Phase
from hpuwatch.load.endpoint import Endpoint, get
from hpuwatch.loop.trials import Limits, Log
from hpuwatch.parse.rules import RuleSet
from hpuwatch.runtime.instance import Instance

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Served:
    """The server that was left running.

    Attributes:
        name: its instance.
        keeper_pid: whom to ask for its end.
        server_pid: the server itself, None if nobody knows.
    """

    name: str
    keeper_pid: int
    server_pid: int | None


@dataclass(frozen=True, slots=True)
class FinalServer:
    """Starts the server that stays.

    Attributes:
        command: its command line.
        environment: its whole environment.
        instance: the name that it runs under; it must be free.
        endpoint: where it listens.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    instance: Instance
    endpoint: Endpoint
    rules: RuleSet
    limits: Limits
    clock: Clock

    def start(self, state_dir: Path) -> Served:
        """Start it under a keeper that outlives us, and wait until it is ready.

        Where the state directory can't be written its output is kept in memory, so that
        only its health tells us how it is.

        Raises:
            RuntimeBootError: it ended, or stood still, before it was ready.
        """
        before = self.instance.read().run
        keeper = subprocess.Popen(  # noqa: S603  our own program with the user's command
            [
                *(
                    sys.executable,
                    "-m",
                    "hpuwatch",
                    "run",
                    "--name",
                    self.instance.name,
                ),
                *("--", *self.command),
            ],
            env={**self.environment, "HPUWATCH_STATE_DIR": str(state_dir)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        began = self.clock.boottime()
        while self.instance.read().run in ("", before):
            self._check(keeper, "it could not be started")
            if self._healthy():
                return Served(self.instance.name, keeper.pid, None)
            self._be_patient(keeper, self.clock.boottime() - began, "no word of it")
            self.clock.wait(_LOOK_SECONDS)
        return self._until_ready(keeper)

    def _until_ready(self, keeper: subprocess.Popen[bytes]) -> Served:
        log = Log(self.instance, self.rules, self.clock)
        try:
            while not (log.snapshot().phase is Phase.READY and self._healthy()):
                log.read()
                self._check(keeper, log.snapshot().reason)
                self._be_patient(keeper, log.quiet_seconds, log.snapshot().reason)
                self.clock.wait(_LOOK_SECONDS)
        finally:
            log.close()
        server = self.instance.read().server
        return Served(self.instance.name, keeper.pid, server.pid if server else None)

    def _check(self, keeper: subprocess.Popen[bytes], doing: str) -> None:
        if keeper.poll() is not None:
            raise RuntimeBootError(
                f"the final server ended before it was ready ({doing}): "
                f"hpuwatch last-exit --name {self.instance.name}"
            )

    def _be_patient(
        self, keeper: subprocess.Popen[bytes], quiet_seconds: float, doing: str
    ) -> None:
        if quiet_seconds > self.limits.no_progress_seconds:
            raise RuntimeBootError(
                f"the final server (keeper {keeper.pid}) prints nothing more: {doing}; "
                f"stop it with: kill {keeper.pid}"
            )

    def _healthy(self) -> bool:
        return get(self.endpoint, "/health") is not None
