"""Starting a keeper: in our place (``hpuwatch run``) or beside us (``tune``)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hpuwatch.clock import Clock, SystemClock
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.instance import Files, Instance
from hpuwatch.runtime.process import Process

KEEPER = Path(__file__).with_name("keeper.py")


def keeper_argv(
    files: Files,
    command: Sequence[str],
    *,
    stop_wait_seconds: float,
    watcher: Sequence[str] | None = None,
) -> list[str]:
    """Return the command line of a keeper."""
    argv = [sys.executable, "-I", "-S", str(KEEPER)]
    argv += ["--spool", files.spool, "--facts", files.facts]
    argv += ["--stop-wait", str(stop_wait_seconds)]
    if watcher:
        argv += ["--watcher", json.dumps(list(watcher))]
    return [*argv, "--", *command]


def server_env(env: Mapping[str, str], run: str) -> dict[str, str]:
    """Return the server's environment: what it would have had, and two variables."""
    return {"PYTHONUNBUFFERED": "1", **env, "HPUWATCH_RUN_ID": run}


def become_keeper(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by a keeper; nothing of ours is left in memory."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it was closed before we began
            stream.flush()
    os.execve(argv[0], list(argv), dict(env))  # noqa: S606  our own program


class Kept:
    """A server under a keeper of its own, which outlives us.

    A keeper may be killed, and its server lives on: then the server itself is asked.  Who
    it is is certain, since its start record holds process id, start time and boot.
    """

    def __init__(
        self,
        instance: Instance,
        keeper: subprocess.Popen[bytes] | None,
        clock: Clock,
    ) -> None:
        """Speak for a keeper.

        Args:
            instance: the name that it runs under.
            keeper: the keeper, if it is our child.
            clock: where time comes from.
        """
        self._instance = instance
        self._keeper = keeper
        self._clock = clock

    def exit(self) -> ExitRecord | None:
        """Return how the server ended, or None while it or anything of it lives."""
        if self._keeper_alive():
            return None
        facts = self._instance.read()
        if facts.exit is None and facts.server_alive():
            return None
        return facts.exit or ExitRecord(
            None, None, asked=False, ended_at=self._clock.now()
        )

    def stop(self) -> None:
        """Ask for the end: the keeper asks the server, waits, and then insists.

        A server without a keeper is only asked.
        """
        if not self._tell_keeper(signal.SIGTERM) and (server := self._left()):
            server.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Insist on the end at once."""
        if not self._tell_keeper(signal.SIGQUIT) and (server := self._left()):
            server.kill_group()  # its engine would hold the device on without it

    def _tell_keeper(self, number: int) -> bool:
        """Send a signal to the keeper; tell whether there was one to hear it."""
        if self._keeper is not None:
            self._keeper.send_signal(number)
            return self._keeper.returncode is None
        keeper = self._instance.read().keeper
        return keeper is not None and self._keeper_alive() and keeper.signal(number)

    def _left(self) -> Process | None:
        """Return the server that has lost its keeper, or None."""
        facts = self._instance.read()
        return facts.server if facts.server_alive() else None

    def _keeper_alive(self) -> bool:
        if self._keeper is not None:
            return self._keeper.poll() is None
        return self._instance.read().keeper_alive()


def start_kept(  # noqa: PLR0913  what a process needs, most of it by keyword
    instance: Instance,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stop_wait_seconds: float,
    watcher: Sequence[str] | None = None,
    clock: Clock | None = None,
) -> Kept:
    """Start a server under a detached keeper; the name must have been acquired.

    Args:
        instance: the name, whose lock the keeper and the server inherit.
        command: the server's command line.
        env: its whole environment.
        stop_wait_seconds: how long the keeper waits before it insists.
        watcher: the command line of a watcher, if there shall be one.
        clock: where time comes from.

    Raises:
        ResourceError: the folder can't be written.
    """
    clock = clock or SystemClock()
    run = instance.begin(command, clock)
    argv = keeper_argv(
        instance.files, command, stop_wait_seconds=stop_wait_seconds, watcher=watcher
    )
    keeper = subprocess.Popen(  # noqa: S603  our own program with the user's command
        argv,
        env=server_env(env, run),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[instance.lock_fd],
        start_new_session=True,
    )
    return Kept(instance, keeper, clock)


def find_kept(instance: Instance, clock: Clock | None = None) -> Kept | None:
    """Return the server that a killed owner of this name left behind, or None."""
    facts = instance.read()
    if not facts.keeper_alive() and not facts.server_alive():
        return None
    return Kept(instance, None, clock or SystemClock())
