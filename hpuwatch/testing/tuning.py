"""A place to tune a simulated server in, from the outside."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.testing.programs import OURS, PLAIN_PYTHON, Program, Programs, get

SIM = (
    *(*OURS, "sim", "--model", "llama-3.1-8b", "--card", "gaudi2", "--speed", "2000"),
    *("--gpu-memory-utilization", "0.5", "--max-model-len", "8192"),
    "--disable-uvicorn-access-log",
)
LIGHT = "concurrency=2,requests=2,prompt=16,output=4,windows=2"
# 36 requests need 576 blocks; with this part of the card the wasteful server has 455, the
# best one 740.
SHORT = ("--gpu-memory-utilization", "0.15")
HEAVY = "concurrency=36,requests=36,prompt=1536,output=512,windows=2"


@dataclass(frozen=True, slots=True)
class Bench:
    """A place to tune in: a state directory, a free port, and what to start there."""

    programs: Programs
    state: Path
    port: int

    def server(self, *more: str) -> list[str]:
        """Return the command of a wasteful simulated server."""
        return [*SIM, "--serving-speed", "100", *more, "--port", str(self.port)]

    @property
    def env(self) -> dict[str, str]:
        """Return an environment in which 40 % of the memory are reserved."""
        own = {"HPUWATCH_STATE_DIR": str(self.state), RESERVE: "0.4"}
        plain = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        return {**plain, **own}

    def tune(
        self,
        *options: str,
        server: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """Start ``hpuwatch tune``."""
        argv = [*OURS, "tune", *options, "--", *(server or self.server())]
        facts = self.state / "default" / "facts"
        return self.programs.program(argv, facts=facts, env={**self.env, **(env or {})})

    def study(self, *words: str) -> str:
        """Return what ``hpuwatch study`` prints."""
        done = subprocess.run(  # noqa: S603  our own program
            [*OURS, "study", *words], env=self.env, capture_output=True, check=True
        )
        return done.stdout.decode()

    def trials(self) -> list[dict[str, object]]:
        """Return the trials of the newest study, as they are exported."""
        trials: list[dict[str, object]] = json.loads(self.study("export"))["trials"]
        return trials

    def states(self) -> list[str]:
        """Return the states of all trials as they are on the disk just now."""
        with suppress(sqlite3.Error):
            db = sqlite3.connect(
                f"file:{self.state}/default/study.sqlite?mode=ro", uri=True
            )
            rows = db.execute(
                "SELECT state FROM trials ORDER BY study, number"
            ).fetchall()
            db.close()
            return [row[0] for row in rows]
        return []

    def is_served(self) -> bool:
        """Tell whether a server answers."""
        return get(f"http://127.0.0.1:{self.port}/health")[0] == 200

    def wrapped(self, code: str) -> list[str]:
        """Return a command that runs Python code before it becomes the server ``argv``."""
        whole = (
            f"import os, sys; argv = {self.server()!r}; {code}; "
            "os.execvp(argv[0], argv)"
        )
        return [*PLAIN_PYTHON, whole, "--port", str(self.port)]
