"""The parser of one release: vLLM's flags, and ours that say what is simulated."""

from __future__ import annotations

import argparse
import math
from functools import lru_cache
from typing import Any

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.spans import point_of
from hpuwatch.sim.config.arguments import VllmParser, add_flags, number
from hpuwatch.sim.models.presets import CARDS, MODELS
from hpuwatch.sim.talk.script import releases

FAULTS_VARIABLE = "HPUWATCH_SIM_FAULTS"

_PROGRAMS = {False: "vllm serve", True: "api_server.py"}
_USAGE = "hpuwatch sim [serve] [MODEL] [--model MODEL] [--card CARD] [options]"

_CONFIG_HELP = "a model's config.json; or vLLM's own YAML file of flags"
_MISFIT_HELP = (
    "how far memory and times depart from what is public: 0 not at all, 2 twice as far"
    " (%(default)s)"
)
_SPEED_HELP = "simulated seconds per second (%(default)s); at 1 a start takes minutes"
_FAULTS_HELP = f"a scenario of faults (or {FAULTS_VARIABLE})"


def lines_of(release: str) -> str:
    """Return the release whose lines are printed: itself, or the one that it is like.

    Raises:
        ConfigError: neither can be simulated.
    """
    found, known = release_of(release), releases()
    for name in (found.name, found.dialect.removeprefix("gaudi-")):
        if name in known and not found.name.startswith("vllm"):
            return name
    raise ConfigError(
        f"{release!r} can't be simulated, choose from {', '.join(known)}, or say a version"
        " such as 0.19.1"
    )


def _release(text: str) -> str:
    try:
        lines_of(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _positive(text: str) -> float:
    return _at_least(number(text), math.nextafter(0, 1), text)


def _spread(text: str) -> float:
    return _at_least(number(text), 0, text)


_positive.__name__ = _spread.__name__ = "float"


def _at_least(value: float, least: float, text: str) -> float:
    """Return a value that isn't too small; nonsense would break the arithmetic."""
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range")
    return value


def finder_of(*, is_module: bool) -> VllmParser:
    """Return the parser of what has to be known before all else: release and file."""
    parser = VllmParser(
        prog=_PROGRAMS[is_module], usage=_USAGE, add_help=False, allow_abbrev=False
    )
    parser.add_argument("--release", default=NEWEST)
    parser.add_argument("--config", default="")
    return parser


@lru_cache(maxsize=16)  # whoever starts many servers in one process has few releases
def parser_of(release: str, *, is_module: bool) -> VllmParser:
    """Return the parser of a release's command line, with our own flags.

    Args:
        release: as it was given; one that can't be simulated is refused by the parser.
        is_module: the server is started as a module, and errors name it so.
    """
    parser = VllmParser(
        prog=_PROGRAMS[is_module],
        usage=_USAGE,
        description="A simulated vLLM server on Gaudi. Nothing it says was measured.",
        epilog="Example: hpuwatch sim --speed 200 --serving-speed 1 --port 18631. The "
        "environment counts as for the real server. See docs/sim.md.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="serve MODEL",
        help=f"what to serve: {', '.join(MODELS)} (the first if none is said), a published"
        " name, or a folder with a config.json",
    )
    group: Any = parser.add_argument_group("what is simulated")
    add = group.add_argument
    add(
        "--release",
        type=_release,
        default=NEWEST,
        help=f"whose server it is: {', '.join(releases())}, or a version (%(default)s)",
    )
    add("--card", choices=tuple(CARDS), default="gaudi2", help="the card (%(default)s)")
    add("--config", metavar="FILE", default="", help=_CONFIG_HELP)
    add("--speed", type=_positive, default=1.0, help=_SPEED_HELP)
    add("--serving-speed", type=_positive, help="the same once ready (--speed)")
    add("--misfit", type=float, choices=(0, 1, 2), default=1, help=_MISFIT_HELP)
    add("--noise", type=_spread, default=0.02, help="spread of durations (%(default)s)")
    add("--faults", metavar="FILE", default="", help=_FAULTS_HELP)
    add(
        "--control",
        metavar="PORT|PATH",
        default="",
        help="port or Unix socket where faults are shown and changed",
    )
    add("--processes", action="store_true", help="engine and workers as processes")
    try:
        at = point_of(release)
    except ConfigError:
        at = point_of(NEWEST)  # the parser itself refuses the release
    add_flags(parser, at)
    return parser
