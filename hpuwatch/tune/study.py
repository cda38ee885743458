"""A study: what is tuned for which server, and what to try next.

:func:`propose` is a pure function of the trials so far: the baseline, then a first guess
from the memory arithmetic, then the designer's points.  A study that was killed goes on by
asking again; an interrupted trial says nothing, so the same point comes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.tune.axes import Point, Told
from hpuwatch.tune.designer import Designer, RandomDesigner
from hpuwatch.tune.facts import tunable
from hpuwatch.tune.objective import score
from hpuwatch.tune.space import Space
from hpuwatch.tune.trial import LoadPlan, Trial

BASELINE = "baseline"
FIRST_GUESS = "first guess"
DESIGNER = "designer"
RANDOM = "random"
COMMAND = "command"

_DESIGNER_ATTEMPTS = 8
_RANDOM_ATTEMPTS = 64
_CHANCES = 3
_SERVER_VARIABLES = ("VLLM_", "PT_", "HABANA_", "HPU_", "HL_")


@dataclass(frozen=True, slots=True)
class Study:
    """What is tuned, for which server, under which load.

    Attributes:
        id: its number in the store, 0 before it is stored.
        fingerprint: of command and environment; a study belongs to one.
        parts: what the fingerprint is made of, by name: ``command`` and each variable, as
            digests; only what may be tuned is kept as it was set.
        command: for people, with secrets masked.
        knobs: as asked for on the command line.
        seed: makes its suggestions repeatable.
        trials: starts of the server that it may cost, the baseline included.
        url: where the server listens.
        ended_at: when it came to its end, None while it may go on.
        reason: why it came to its end, or was interrupted; a sentence.
    """

    fingerprint: str
    command: tuple[str, ...]
    knobs: tuple[str, ...]
    seed: int
    trials: int
    load: LoadPlan
    url: str
    created_at: float
    id: int = 0
    ended_at: float | None = None
    reason: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to try next, and who says so; no settings stand for the baseline."""

    settings: Mapping[str, str] = field(default_factory=dict)
    origin: str = BASELINE


def server_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide how the server runs, by name in order."""
    return {
        name: environment[name]
        for name in sorted(environment)
        if name.startswith(_SERVER_VARIABLES)
    }


def fingerprint(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a digest of what decides how the server runs: argv and its variables."""
    variables = server_variables(environment).items()
    return _digest(*command, "", *(f"{name}={value}" for name, value in variables))


def parts_of(
    command: Sequence[str], environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return what a fingerprint is made of, without a value that may be a secret."""
    return {COMMAND: _digest(*command)} | {
        name: value if tunable(name) else _digest(name, value)
        for name, value in server_variables(environment).items()
    }


def difference(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return in words how the parts of two fingerprints differ; empty if they don't."""
    words = []
    for name in dict.fromkeys((*then, *now)):
        before, after = then.get(name), now.get(name)
        if before == after:
            continue
        if name == COMMAND:
            words.append("the command is another")
        elif after is None:
            words.append(f"{name} is not set now")
        elif before is None:
            words.append(f"{name} was not set then")
        elif tunable(name):
            words.append(f"{name} was {before} and is {after} now")
        else:
            words.append(f"{name} has another value now")
    return ", ".join(words)


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="replace")).hexdigest()[:16]


def propose(
    trials: Sequence[Trial], space: Space, designer: Designer, seed: int
) -> Proposal | None:
    """Return what to try next, None when nothing new is left.

    A point whose settings come to the same as a tried one, or that isn't worth a restart,
    is passed over.  The designer gets a few more draws, then chance does; when that was
    needed three times in a row the designer has converged, and a restart is too dear for chance.
    """
    judged = [trial for trial in trials if trial.state.judged]
    if [trial.origin for trial in judged[-_CHANCES:]] == [RANDOM] * _CHANCES:
        return None
    for point, origin in _points(judged, space, designer, seed):
        settings = _worth_trying(point, judged, space)
        if settings is not None:
            return Proposal(settings, origin)
    return None


def _points(
    judged: Sequence[Trial], space: Space, designer: Designer, seed: int
) -> Iterator[tuple[Point, str]]:
    if all(trial.is_baseline for trial in judged):
        yield space.first_guess(), FIRST_GUESS
    history = told(judged, space)
    for attempt in range(_DESIGNER_ATTEMPTS):
        yield designer.suggest(space.axes, history, seed + attempt), DESIGNER
    chance = RandomDesigner()
    for attempt in range(_RANDOM_ATTEMPTS):
        yield chance.suggest(space.axes, history, seed + attempt), RANDOM


def told(judged: Sequence[Trial], space: Space) -> list[Told]:
    """Return the trials as a designer is told them, in today's coordinates."""
    return [
        Told(
            space.point_of(trial.settings),
            score(trial),
            designed=trial.origin not in (BASELINE, FIRST_GUESS),
        )
        for trial in judged
    ]


def _worth_trying(
    point: Point, judged: Sequence[Trial], space: Space
) -> Mapping[str, str] | None:
    try:
        settings = space.settings_of(point)
    except ValueError:
        # Buckets that the runtime wouldn't make; the arithmetic says so by raising.
        return None
    if space.objection(settings) is not None:
        return None
    if any(space.same(settings, trial.settings) for trial in judged):
        return None
    return settings
