"""The command line of the simulated server: vLLM's flags, and a few of its own.

It accepts ``--model M`` or vLLM's spelling ``serve M``, writes flags with dashes or
underscores, and refuses what vLLM refuses in vLLM's words with exit code 2.  Flags that
change nothing here are accepted and shown in the log, so that a real command line can be
tried unchanged.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.sim.talk.script import releases
from hpuwatch.sim.truth.presets import CARDS, MODELS, Card, Model, model_called

_OWN = frozenset(
    {"release", "card", "speed", "serving_speed", "misfit", "noise", "words", "model"}
)
_WITHOUT_EFFECT = (
    "--dtype",
    "--tokenizer",
    "--download-dir",
    "--revision",
    "--kv-cache-dtype",
    "--uvicorn-log-level",
    "--api-key",
)
_SWITCHES_WITHOUT_EFFECT = (
    "--trust-remote-code",
    "--disable-log-requests",
    "--enable-chunked-prefill",
    "--async-scheduling",
)


@dataclass(frozen=True, slots=True)
class Options:
    """One server to simulate.

    Attributes:
        release: whose lines, settings and rules are simulated, as ``plugin-0.26``.
        given_model: the model as it was typed.
        served_names: the names that requests may use; the first is shown.
        utilisation: ``--gpu-memory-utilization``, a share of free memory.
        speed: simulated seconds per real second, until the server is ready.
        serving_speed: the same for serving.
        misfit: how far the truth departs from its public law (0 not at all).
        noise: relative spread of durations.
        shown: what vLLM logs as its non-default arguments.
        env: the environment; only vLLM's and the bridge's variables are read.
    """

    model: Model
    card: Card
    given_model: str
    served_names: tuple[str, ...]
    release: str = NEWEST
    host: str = "127.0.0.1"
    port: int = 8000
    max_num_seqs: int = 256
    max_model_len: int = 131072
    max_num_batched_tokens: int = 2048
    block_size: int = 128
    utilisation: float = 0.92
    tensor_parallel: int = 1
    enforce_eager: bool = False
    prefix_caching: bool = True
    access_log: bool = True
    log_stats: bool = True
    shutdown_seconds: int = 0
    seed: int = 0
    speed: float = 1.0
    serving_speed: float = 1.0
    misfit: float = 1.0
    noise: float = 0.02
    shown: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class _Parser(argparse.ArgumentParser):
    """Fails in vLLM's words."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.format_usage()}{self.prog}: error: {message}\n")


def parse_options(arguments: Sequence[str], env: Mapping[str, str]) -> Options:
    """Read a command line.

    Raises:
        SystemExit: 2 with vLLM's own words on stderr, or 0 after ``--help``.
    """
    parser = _parser()
    known, unknown = parser.parse_known_args(_with_dashes(arguments))
    if unknown:
        # vLLM's outer parser speaks here, so its name lacks the "serve".
        parser.prog = "vllm"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    words = [word for word in known.words if word != "serve"]
    if len(words) > 1:
        parser.prog = "vllm"
        parser.error(f"unrecognized arguments: {' '.join(words[1:])}")
    given = known.model or (words[0] if words else next(iter(MODELS)))
    model = model_called(given)
    if model is None:
        parser.error(
            f"argument --model: {given!r} can't be simulated,"
            f" choose from {', '.join(MODELS)}"
        )
    return _options(known, model, given, env)


def _options(
    known: argparse.Namespace, model: Model, given: str, env: Mapping[str, str]
) -> Options:
    # A preset's short name is ours; the log and the API show the published name.
    public = model.name if given.lower() in MODELS else given
    if known.max_model_len is None:
        known.max_model_len = model.max_model_len
    if known.tensor_parallel_size is None:
        known.tensor_parallel_size = model.tensor_parallel
    return Options(
        model=model,
        card=CARDS[known.card],
        given_model=public,
        release=known.release,
        served_names=tuple(known.served_model_name or (public,)),
        host=known.host,
        port=known.port,
        max_num_seqs=known.max_num_seqs,
        max_model_len=known.max_model_len,
        max_num_batched_tokens=known.max_num_batched_tokens,
        block_size=known.block_size,
        utilisation=known.gpu_memory_utilization,
        tensor_parallel=known.tensor_parallel_size,
        enforce_eager=known.enforce_eager,
        prefix_caching=not known.no_enable_prefix_caching,
        access_log=not known.disable_uvicorn_access_log,
        log_stats=not known.disable_log_stats,
        shutdown_seconds=known.shutdown_timeout,
        seed=known.seed,
        speed=known.speed,
        serving_speed=known.serving_speed or known.speed,
        misfit=known.misfit,
        noise=known.noise,
        shown={"model_tag": public, "model": public} | _non_default(known, model),
        env=dict(env),
    )


def _non_default(known: argparse.Namespace, model: Model) -> dict[str, object]:
    defaults = {
        **vars(_parser().parse_args([])),
        "max_model_len": model.max_model_len,
    }
    return {
        name: value
        for name, value in vars(known).items()
        if name not in _OWN and value != defaults[name]
    }


def _with_dashes(arguments: Sequence[str]) -> list[str]:
    return [
        text.split("=", 1)[0].replace("_", "-") + text[len(text.split("=", 1)[0]) :]
        if text.startswith("--")
        else text
        for text in arguments
    ]


def _positive(text: str) -> float:
    return _within(float(text), 0, math.inf, text)


def _share(text: str) -> float:
    return _within(float(text), 0, math.nextafter(1, 2), text)


def _spread(text: str) -> float:
    return _within(float(text), math.nextafter(0, -1), math.inf, text)


def _count(text: str) -> int:
    return int(_within(int(text), 0, math.inf, text))


def _port(text: str) -> int:
    return int(_within(int(text), -1, 65536, text))


# A word that is no number is refused in argparse's words, which name the type.
_positive.__name__ = _share.__name__ = _spread.__name__ = "float"
_count.__name__ = _port.__name__ = "int"


def _within(value: float, above: float, below: float, text: str) -> float:
    """Return a value that lies between two others; nonsense would break the arithmetic."""
    if not above < value < below:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range")
    return value


def _parser() -> _Parser:
    parser = _Parser(
        prog="vllm serve",
        usage="hpuwatch sim [serve] [MODEL] [--model MODEL] [--card CARD] [options]",
        description="A simulated vLLM server on Gaudi. Nothing it says was measured.",
        allow_abbrev=False,
    )
    add: Any = parser.add_argument
    add("words", nargs="*", metavar="serve MODEL", help="vLLM's own spelling")
    add("--model", help=f"a preset ({', '.join(MODELS)}) or its published name")
    add("--card", choices=tuple(CARDS), default="gaudi2", help="the card (%(default)s)")
    add("--release", choices=releases(), default=NEWEST, help="whose server it is")
    add("--speed", type=_positive, default=1.0, help="simulated seconds per second")
    add("--serving-speed", type=_positive, help="the same once ready (as --speed)")
    add("--misfit", type=float, choices=(0, 1, 2), default=1, help="hidden departure")
    add("--noise", type=_spread, default=0.02, help="spread of durations (%(default)s)")
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=8000)
    add("--seed", type=int, default=0, help="makes truth and noise repeatable")
    add("--max-num-seqs", type=_count, default=256)
    add("--max-model-len", type=_count)
    add("--max-num-batched-tokens", type=_count, default=2048)
    add("--block-size", type=_count, default=128)
    add("--gpu-memory-utilization", type=_share, default=0.92)
    add("--tensor-parallel-size", "-tp", type=_count)
    add("--served-model-name", nargs="+")
    add("--shutdown-timeout", type=int, default=0)
    for switch in (
        "--enforce-eager",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--disable-uvicorn-access-log",
        "--disable-log-stats",
        *_SWITCHES_WITHOUT_EFFECT,
    ):
        add(switch, action="store_true")
    for flag in _WITHOUT_EFFECT:
        add(flag, help=argparse.SUPPRESS)
    return parser
