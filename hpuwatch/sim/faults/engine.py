"""Faults of the engine and its card: it hangs, fails, dies, runs out of memory."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from hpuwatch.sim.faults.cards import Cards, check_folder
from hpuwatch.sim.faults.errors import ERRORS, text_of, where_of
from hpuwatch.sim.faults.fault import Fault
from hpuwatch.sim.faults.processes import die_of
from hpuwatch.sim.truth.device import TAKEN
from hpuwatch.sim.world import EngineFailed
from hpuwatch.units import GIB, MIB

if TYPE_CHECKING:
    from typing_extensions import Self

    from hpuwatch.sim.faults.live import LiveFaults

_SURVIVED = {
    *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
}


class Hang(Fault):
    """The engine stands still: nothing is computed, nothing is printed.

    Attributes:
        how: ``waits``: only the engine, /health stays 200; ``blocks``: nothing in the
            process answers; ``stopped``: the process stops itself (SIGSTOP).
    """

    fault: Literal["hang"]
    how: Literal["waits", "blocks", "stopped"] = "waits"

    def strike(self, live: LiveFaults) -> None:
        """Block or stop the process; an engine that waits is held by ``live``."""
        if self.how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.how == "blocks":
            live.block(self)


class Die(Fault):
    """A process of the server dies at once, without a word of its own.

    Attributes:
        process: which one.
        signal: it dies of.
        exit: the exit code that it leaves with instead.
        says: what it prints before, such as a native crash does.
    """

    fault: Literal["die"]
    process: Literal["server", "engine", "worker"] = "server"
    signal: str = "SIGKILL"
    exit: int | None = Field(default=None, ge=0, le=255)
    says: str = ""

    @field_validator("signal")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in signal.Signals.__members__:
            raise ValueError(f"{name!r} is no signal: write it as SIGKILL")
        if signal.Signals[name] in _SURVIVED:
            raise ValueError(f"nobody dies of {name}: choose another, such as SIGKILL")
        return name

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.exit is None:
            return self
        if "signal" in self.model_fields_set:
            raise ValueError("signal and exit exclude each other: keep one")
        if self.process != "server":
            raise ValueError("only the server can leave with an exit code")
        return self

    def strike(self, live: LiveFaults) -> None:
        """Die."""
        if self.says:
            live.world.voice.write("", "stderr", f"{self.says}\n")
        if self.process != "server":
            live.kill(self.process, signal.Signals[self.signal])
        elif self.exit is not None:
            os._exit(self.exit)
        else:
            die_of(signal.Signals[self.signal])


class EngineFails(Fault):
    """The engine dies of an exception: the start fails (1), or a served server ends (0).

    Attributes:
        error: one of the errors that real logs hold.
        text: the exception's last line instead, as ``Type: message``.
        megabytes: what ``device-oom`` couldn't get.
    """

    fault: Literal["engine-fails"]
    error: str = "device-oom"
    text: str = ""
    megabytes: int = Field(default=256, ge=1)

    @field_validator("error")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in ERRORS:
            raise ValueError(
                f"{name!r} is no known error, there are {', '.join(ERRORS)}"
            )
        return name

    def strike(self, live: LiveFaults) -> None:
        """Fail."""
        text = self.text or text_of(self.error, live.world.voice, self.megabytes * MIB)
        live.fail(EngineFailed(text, where_of(live.now.phase)))


class MemoryTaken(Fault):
    """Somebody else takes memory of the card: what comes next may not fit.

    Attributes:
        leave_gib: how much stays free.
    """

    fault: Literal["memory-taken"]
    leave_gib: float = Field(default=0.0, ge=0, le=1024)
    _taken_bytes: int = 0

    def strike(self, live: LiveFaults) -> None:
        """Take all but that, as far as it can be had."""
        memory = live.world.memory
        wanted = memory.free_bytes - int(self.leave_gib * GIB)
        count = max(0, min(wanted, memory.room_bytes))
        memory.lose(count, TAKEN)
        self._taken_bytes += count

    def lift(self, live: LiveFaults) -> None:
        """Give it back."""
        live.world.memory.give_back(self._taken_bytes, TAKEN)
        self._taken_bytes = 0


class Leak(Fault):
    """The engine loses device memory, until the card is full.

    Attributes:
        mib_per_second: in simulated time.
    """

    fault: Literal["leak"]
    mib_per_second: float = Field(gt=0, le=1024 * 1024)

    def go_on(self, live: LiveFaults) -> None:
        """Lose what has leaked since the last look."""
        live.leak(int(self.mib_per_second * MIB * live.seconds_since_look))


class DeviceBusy(Fault):
    """The card stays taken for a while after its server was killed.

    A server with this fault leaves a stamp in the run-time directory while it lives, and
    one that finds a fresh stamp, or the processes of another server, fails to start.

    Attributes:
        after_kill_real_seconds: how long the card stays taken.
        folder: where stamps are kept; the run-time directory if not given.
    """

    fault: Literal["device-busy"]
    after_kill_real_seconds: float = Field(default=10.0, ge=0)
    folder: str = ""
    _cards: Cards | None = None

    @field_validator("folder")
    @classmethod
    def _can_hold_stamps(cls, name: str) -> str:
        if name:
            check_folder(name)
        return name

    def strike(self, live: LiveFaults) -> None:
        """Take the cards, or find them taken."""
        if self._cards is None:
            self._cards = live.cards(self.folder)
        if not self._cards.take(self.after_kill_real_seconds):
            text = text_of("device-busy", live.world.voice, 0)
            live.fail(EngineFailed(text, where_of("engine")))

    def go_on(self, live: LiveFaults) -> None:  # noqa: ARG002
        """Keep the stamps fresh."""
        if self._cards is not None:
            self._cards.touch()

    def lift(self, live: LiveFaults) -> None:  # noqa: ARG002
        """Let the cards go."""
        if self._cards is not None:
            self._cards.release()
