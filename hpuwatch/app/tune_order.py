"""What ``hpuwatch tune`` is asked to do, and all that can be refused before a restart."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError, UsageError
from hpuwatch.gaudi.variables import is_true
from hpuwatch.load.endpoint import (
    Endpoint,
    endpoint_of,
    endpoint_of_command,
    headers_of,
)
from hpuwatch.loop.trials import Limits
from hpuwatch.parse.mask import mask
from hpuwatch.settings import Settings
from hpuwatch.tune.facts import RESERVE, tunable
from hpuwatch.tune.knobs import FROM_FILE, choose_knobs, strategy_of
from hpuwatch.tune.study import Study, fingerprint
from hpuwatch.tune.trial import LoadPlan

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
    if order.trials is not None and order.trials < LEAST_TRIALS:
        raise UsageError("--trials must be 2 or more: the baseline and one trial")
    if order.resume and (order.knobs or order.load or order.seed is not None):
        raise UsageError("--resume goes on with the study's own knobs, load and seed")
    if is_true(environment.get("VLLM_SKIP_WARMUP", "")):
        raise UsageError(
            "VLLM_SKIP_WARMUP is set: every trial would measure the compiling of graphs; "
            "unset it for tuning"
        )
    knobs = choose_knobs(
        order.knobs or DEFAULT_KNOBS, environment, strategy_of(environment)
    )
    if "--enforce-eager" in order.command and any(k.variable == RESERVE for k in knobs):
        raise UsageError(
            f"--enforce-eager captures no graphs, so {RESERVE} is ignored: there is no "
            "reserve to tune"
        )
    return _endpoint(order, environment)


def _endpoint(order: Order, environment: Mapping[str, str]) -> Endpoint:
    if order.url is not None:
        return endpoint_of(order.url, headers_of(order.command, environment))
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
    )
