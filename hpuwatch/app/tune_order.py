"""What ``hpuwatch tune`` is asked to do, and all that can be refused before a restart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import MissingFileError, ResourceError, StudyBroken, UsageError
from hpuwatch.gaudi.variables import is_true
from hpuwatch.load.endpoint import (
    Endpoint,
    endpoint_of,
    endpoint_of_command,
    key_of,
)
from hpuwatch.load.window import check_plan
from hpuwatch.loop.trials import Limits
from hpuwatch.parse.mask import mask
from hpuwatch.runtime.instance import Instance
from hpuwatch.settings import Settings
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.tune.facts import RESERVE, tunable
from hpuwatch.tune.knobs import FROM_FILE, choose_knobs, strategy_of
from hpuwatch.tune.study import Study, difference, fingerprint, parts_of
from hpuwatch.tune.trial import LoadPlan, Trial

DEFAULT_TRIALS = 8
LEAST_TRIALS = 2
DEFAULT_KNOBS = ("reserve",)


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asked for; None where it said nothing.

    Attributes:
        command: the server's command line.
        settings: name, state directory and the like.
        trials: starts of the server that the study may cost, the baseline included.
        knobs: what is tuned.
        seed: of the search.
        load: the load of each trial.
        url: where the server listens, if its command doesn't say.
        resume: go on with the newest study.
        keep_best: leave the server on the best settings, not on the original ones.
        serve: leave a server running at the end.
        out: where the best setting is written as an env file.
        limits: how long a trial waits for what.
    """

    command: tuple[str, ...]
    settings: Settings
    trials: int | None = None
    knobs: tuple[str, ...] | None = None
    seed: int | None = None
    load: LoadPlan | None = None
    url: str | None = None
    resume: bool = False
    keep_best: bool = False
    serve: bool = True
    out: Path | None = None
    limits: Limits = field(default_factory=Limits)


def check_order(order: Order, environment: Mapping[str, str]) -> Endpoint:
    """Check what can be checked without touching anything; return where the server listens.

    Raises:
        UsageError: the command or a flag makes no sense.
        ResourceError: the command doesn't exist.
    """
    if not order.command:
        raise UsageError(
            "name the server's command: hpuwatch tune -- vllm serve MODEL ..."
        )
    if shutil.which(order.command[0], path=environment.get("PATH")) is None:
        raise ResourceError(
            f"there is no command {order.command[0]!r}: check its spelling and the PATH"
        )
    _check_flags(order)
    if is_true(environment.get("VLLM_SKIP_WARMUP", "")):
        raise UsageError(
            "VLLM_SKIP_WARMUP is set: every trial would measure the compiling of graphs; "
            "unset it for tuning"
        )
    knobs = choose_knobs(
        order.knobs or DEFAULT_KNOBS, environment, strategy_of(environment)
    )
    _check_free(order.command, [knob.variable for knob in knobs])
    if "--enforce-eager" in order.command and any(k.variable == RESERVE for k in knobs):
        raise UsageError(
            f"--enforce-eager captures no graphs, so {RESERVE} is ignored: there is no "
            "reserve to tune"
        )
    return _endpoint(order, environment)


def _check_flags(order: Order) -> None:
    if order.trials is not None and order.trials < LEAST_TRIALS:
        raise UsageError("--trials must be 2 or more: the baseline and one trial")
    if order.resume and (order.knobs or order.load or order.seed is not None):
        raise UsageError("--resume goes on with the study's own knobs, load and seed")
    if order.load is not None:
        check_plan(order.load)
    if order.out is not None:
        _check_out(order.out)


def _check_out(path: Path) -> None:
    """See that a file can be written there, which happens only after hours of trials."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--out {path}: there is no folder {folder}")
    target = path if path.exists() else folder
    if path.is_dir() or not os.access(target, os.W_OK):
        raise UsageError(f"--out {path} can't be written: give another file")


def _check_free(command: Sequence[str], variables: Sequence[str]) -> None:
    """Refuse a command that sets what is tuned (``env NAME=VALUE …``, ``-e NAME=VALUE``)."""
    for variable in variables:
        if any(word.startswith(f"{variable}=") for word in command):
            raise UsageError(
                f"the command sets {variable} itself, so no trial could: set it before "
                f"hpuwatch instead ({variable}=... hpuwatch tune ...)"
            )


def _endpoint(order: Order, environment: Mapping[str, str]) -> Endpoint:
    if order.url is not None:
        return endpoint_of(order.url, key_of(order.command, environment))
    return endpoint_of_command(order.command, environment)


def tuned_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide reserve and buckets, as the operator set them."""
    return {
        name: value
        for name, value in environment.items()
        if tunable(name) or name == FROM_FILE
    }


def new_study(
    order: Order, environment: Mapping[str, str], endpoint: Endpoint, clock: Clock
) -> Study:
    """Return the study that an order asks for; secrets in its command are masked."""
    return Study(
        fingerprint=fingerprint(order.command, environment),
        command=tuple(mask(" ".join(order.command)).split(" ")),
        knobs=order.knobs or DEFAULT_KNOBS,
        seed=order.seed or 0,
        trials=order.trials or DEFAULT_TRIALS,
        load=order.load or LoadPlan(),
        url=endpoint.url,
        created_at=clock.now(),
        parts=parts_of(order.command, environment),
    )


def study_to_resume(
    order: Order, environment: Mapping[str, str]
) -> tuple[Study, list[Trial]]:
    """Return the study that ``--resume`` goes on with and its trials; changes nothing.

    Raises:
        MissingFileError: there is no study under the name.
        StudyBroken: it belongs to another command or other variables, or can't be read.
    """
    instance = Instance(order.settings.state_root(), order.settings.name)
    path = instance.dir / FILE_NAME
    studies, trials = [], []
    if path.exists():
        store = StudyStore(path, read_only=True)
        try:
            studies = store.studies()
            trials = store.trials(studies[-1].id) if studies else []
        finally:
            store.close()
    if not studies:
        raise MissingFileError(
            f"there is no study under the name {instance.name!r}: begin one without "
            "--resume"
        )
    newest = studies[-1]
    if newest.fingerprint != fingerprint(order.command, environment):
        parts = parts_of(order.command, environment)
        differs = newest.parts and difference(newest.parts, parts)
        raise StudyBroken(
            f"study {newest.id} was made for another start of the server "
            f"({differs or 'another command or other variables'}): make it the same, or "
            "begin a new study without --resume"
        )
    return newest, trials
