"""``hpuwatch run``: make everything ready, then become the keeper.

Nothing of this process stays: the keeper replaces it, under the same process id.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError
from hpuwatch.runtime.announce import say
from hpuwatch.runtime.instance import Files, Instance, held, in_memory
from hpuwatch.runtime.kept import become_keeper, keeper_argv, server_env
from hpuwatch.settings import Settings

_ENTER = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from hpuwatch.cli import main; main()"
)
"""Starts our own program without looking for modules where the server happens to run."""


def run(
    settings: Settings,
    command: Sequence[str],
    clock: Clock,
    rules: Path | None = None,
) -> NoReturn:
    """Own a server from now on; never returns.

    Args:
        settings: of the instance.
        command: the server's command line.
        clock: where time comes from.
        rules: the operator's own log rules; a mistake in them doesn't stop the server.

    Raises:
        ResourceError: the command doesn't exist or may not be executed.
        BusyError: the name belongs to another run.
    """
    check_command(command)
    files, run_id = _begin(settings, command, clock)
    argv = keeper_argv(
        files,
        command,
        stop_wait_seconds=settings.stop_wait_seconds,
        watcher=watcher_argv(settings, held(files), rules),
    )
    become_keeper(argv, server_env(_original_env(), run_id))


def check_command(command: Sequence[str]) -> None:
    """See that a command can be started.

    Raises:
        ResourceError: it doesn't exist or may not be executed.
    """
    program = command[0]
    if shutil.which(program):
        return
    if os.sep not in program:
        raise ResourceError(
            f"there is no program {program!r} on the PATH: check its name, or name it with "
            "its folder"
        )
    if Path(program).is_file():
        raise ResourceError(f"{program} may not be executed: make it so with chmod +x")
    raise ResourceError(f"there is no program {program}: check its name")


def watcher_argv(
    settings: Settings, files: Files, rules: Path | None = None
) -> list[str]:
    """Return the command line of the watcher that goes with a run."""
    argv = [sys.executable, "-c", _ENTER, "_watch", "--name", settings.name]
    argv += [
        "--listen",
        settings.listen,
        "--spool",
        files.spool,
        "--facts",
        files.facts,
    ]
    if files.folder is not None:
        argv += ["--folder", str(files.folder)]
    if rules is not None:
        argv += ["--rules", str(rules.absolute())]
    if not settings.echo:
        argv += ["--no-echo"]
    return argv


def _begin(
    settings: Settings, command: Sequence[str], clock: Clock
) -> tuple[Files, str]:
    instance = Instance(settings.state_root().absolute(), settings.name)
    try:
        instance.acquire(command)
        run_id = instance.begin(command, clock)
    except ResourceError as error:
        say(
            f"{error}; the server starts all the same: its output is kept in memory, its "
            "oldest part is given up first, and last-exit will have nothing to show"
        )
        files = in_memory()
        return files, files.begin(command, 1, clock)
    # Whoever lives of this run holds the name: keeper, server, watcher.
    os.set_inheritable(instance.lock_fd, True)  # noqa: FBT003  takes no keywords
    return instance.files, run_id


def _original_env() -> Mapping[str, str]:
    """Return the environment as we got it: Python may have set a locale of its own."""
    env = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return env
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        env.pop("LC_CTYPE", None)
    return env
