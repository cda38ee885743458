"""One server to simulate: vLLM's command line as its release reads it, and our own flags.

A command line may be copied from a real server: ``vllm serve M …``, ``serve M …``,
``python -m vllm.entrypoints.openai.api_server --model M …`` or the flags alone.  What vLLM
refuses is refused in its words with exit code 2.  Values that it takes and then dies of are
another matter (``refusals``): the server begins to start with them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.spans import Point, point_of
from hpuwatch.sim.config.arguments import VllmParser, flags
from hpuwatch.sim.config.defaults import settle
from hpuwatch.sim.config.parser import (
    FAULTS_VARIABLE,
    finder_of,
    lines_of,
    parser_of,
)
from hpuwatch.sim.models.fromconfig import model_of
from hpuwatch.sim.models.model import Model
from hpuwatch.sim.models.presets import CARDS, MODELS, Card, model_called

_LOOPBACK = "127.0.0.1"
_MODULES = ("vllm.entrypoints.openai.api_server",)
_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class Options:
    """One server to simulate.

    Attributes:
        release: whose lines, settings and rules are simulated, as ``plugin-0.26``.
        point: the same with the patch that was asked for.
        dialect: the name of its bucket rules.
        given_model: the model as vLLM shows it.
        served_names: the names that requests may use; the first is shown.
        max_model_len: tokens; the model's where it is not given.
        fits_length: the length is cut to what the cache holds (``auto``), once that is known.
        utilisation: ``--gpu-memory-utilization``, a share of free memory.
        tensor_parallel: cards; a preset's own number where it is not given.
        kv_cache_memory_bytes: accepted; no release known to us acts on it.
        num_blocks_override: KV blocks instead of what fits, or None.
        prefix_caching: as the flag or the release's default has it; contiguous attention
            may turn it off (``Knobs.prefix_caching``).
        padding_aware_scheduling: prompts are packed by padded size (V0).
        speculative_tokens: tokens that a draft adds to each decode.
        api_keys: what requests must carry one of; none if empty.
        speed: simulated seconds per real second, until the server is ready.
        serving_speed: the same for serving.
        misfit: how far the truth departs from its public law (0 not at all).
        noise: relative spread of durations.
        faults_file: the scenario of faults, or empty.
        control: port or path of the control endpoint, or empty.
        processes: engine and workers are child processes.
        max_log_len: characters and tokens of a prompt in its log line; None for all.
        given: the flags that were asked for, by the names of their parsed arguments.
        shown: what vLLM logs as its non-default arguments.
        env: the environment.
    """

    model: Model
    card: Card
    given_model: str
    served_names: tuple[str, ...]
    release: str = NEWEST
    point: Point = field(default_factory=lambda: point_of(NEWEST))
    dialect: str = f"gaudi-{NEWEST}"
    host: str = _LOOPBACK
    port: int = 8000
    max_num_seqs: int = 256
    max_model_len: int = 131072
    fits_length: bool = False
    max_num_batched_tokens: int = 2048
    max_num_prefill_seqs: int | None = None
    long_prefill_tokens: int = 0
    chunked_prefill: bool = True
    prefix_caching: bool = True
    padding_aware_scheduling: bool = False
    num_scheduler_steps: int = 1
    speculative_tokens: int = 0
    block_size: int = 128
    utilisation: float = 0.92
    kv_cache_memory_bytes: int | None = None
    num_blocks_override: int | None = None
    swap_space_gib: float = 4.0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    load_format: str = "auto"
    enforce_eager: bool = False
    api_keys: tuple[str, ...] = ()
    access_log: bool = True
    log_stats: bool = True
    log_requests: bool = False
    max_log_len: int | None = None
    api_servers: int = 1
    prompt_tokens_details: bool = False
    server_load: bool = False
    max_logprobs: int = 20
    shutdown_seconds: int = 0
    seed: int = 0
    speed: float = 1.0
    serving_speed: float = 1.0
    misfit: float = 1.0
    noise: float = 0.02
    faults_file: str = ""
    control: str = ""
    processes: bool = False
    given: frozenset[str] = frozenset()
    shown: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def unsized(self) -> Options:
        """The same model and card without any size that was asked for."""
        return Options(
            self.model,
            self.card,
            self.given_model,
            self.served_names,
            release=self.release,
            point=self.point,
            dialect=self.dialect,
            tensor_parallel=self.model.tensor_parallel,
        )


def parse_options(arguments: Sequence[str], env: Mapping[str, str]) -> Options:
    """Read a command line.

    Raises:
        SystemExit: 2 with vLLM's own words on stderr, or 0 after ``--help``.
    """
    words, is_module = _without_launcher(arguments)
    words = _with_dashes(words)
    finder = finder_of(is_module=is_module)
    found = finder.parse_known_args(words)[0]
    parser = parser_of(found.release, is_module=is_module)
    known, unknown = parser.parse_known_args(
        [*_from_file(parser, found.config), *words]
    )
    tags = [word for word in known.words if word != "serve"]
    if unknown or len(tags) > 1:
        parser.unknown([*unknown, *tags[1:]])
    return _options(parser, known, tags, env)


def _without_launcher(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Drop what starts vLLM; tell whether it is the module, which has no subcommand."""
    words = list(arguments)
    if words and Path(words[0]).name.startswith("python") and "-m" in words:
        words = words[words.index("-m") + 1 :]
    if words and words[0] in _MODULES:
        return words[1:], True
    if words and Path(words[0]).name == "vllm":
        words = words[1:]
    return words, False


def _with_dashes(words: Sequence[str]) -> list[str]:
    """Write flags with dashes; vLLM takes underscores too."""
    parts = (word.partition("=") for word in words)
    return [
        flag.replace("_", "-") + sign + value if flag.startswith("--") else word
        for word, (flag, sign, value) in zip(words, parts, strict=True)
    ]


def _from_file(parser: VllmParser, name: str) -> list[str]:
    """Return the flags of a YAML file, as vLLM's own ``--config`` reads them."""
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        return []
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if not isinstance(settings, dict):
            parser.error(
                f"argument --config: {path} holds no mapping of flags to values"
            )
        return _with_dashes([*_words(settings)])
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        parser.error(f"argument --config: {path} can't be read as YAML: {error}")


def _words(settings: Mapping[object, object]) -> Iterator[str]:
    for flag, value in settings.items():
        if value is True:
            yield f"--{flag}"
        elif value is not False and value is not None:
            is_text = isinstance(value, str)
            yield f"--{flag}={value if is_text else json.dumps(value, default=str)}"


def _options(
    parser: VllmParser,
    known: argparse.Namespace,
    tags: Sequence[str],
    env: Mapping[str, str],
) -> Options:
    given = known.model or (tags[0] if tags else next(iter(MODELS)))
    model = _model(parser, known.config, given)
    # A preset's short name is ours; the log and the API show the published name.
    public = model.name if given.lower() in MODELS else given
    at = point_of(known.release)
    settled = settle(vars(known), model, at)
    cards = settled["tensor_parallel_size"]
    shown = {
        "model": public,
        "api_key": known.api_key and [_HIDDEN] * len(known.api_key),
        # A preset's cards are shown as if they had been asked for.
        "tensor_parallel_size": cards if cards != 1 else None,
    }
    keys = known.api_key or [key for key in (env.get("VLLM_API_KEY"),) if key]
    return Options(
        model=model,
        card=CARDS[known.card],
        given_model=public,
        served_names=tuple(known.served_model_name or (public,)),
        release=lines_of(known.release),
        point=at,
        dialect=release_of(known.release).dialect,
        host=known.host or _LOOPBACK,
        api_keys=tuple(keys),
        access_log=not settled.get("disable_uvicorn_access_log"),
        log_stats=not known.disable_log_stats,
        seed=known.seed or 0,
        serving_speed=known.serving_speed or known.speed,
        faults_file=known.faults or env.get(FAULTS_VARIABLE, ""),
        given=frozenset(_asked(vars(known))),
        shown=({"model_tag": public} if tags else {}) | _asked(vars(known) | shown),
        env=dict(env),
        **{name: settled[flag] for name, flag in _PLAIN.items() if flag in settled},
    )


def _model(parser: VllmParser, config: str, given: str) -> Model:
    """Find the model by its name, or make it of a config.json."""
    is_told = config.endswith(".json")
    file = Path(config) if is_told else Path(given) / "config.json"
    named = model_called(given)
    if named is not None and not is_told:
        return named
    if not (is_told or file.is_file()):
        parser.refuse(
            f"argument --model: {given!r} can't be simulated, choose from"
            f" {', '.join(MODELS)}, or give its config.json with --config"
        )
    try:
        return model_of(_object(file), given if named is None else named.name)
    except (OSError, ValueError, ArithmeticError, RecursionError, ConfigError) as error:
        parser.refuse(f"argument --config: {file} tells no model: {error}")


def _object(file: Path) -> dict[str, object]:
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ConfigError("it holds no object of fields and values.")
    return found


def _asked(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the arguments that differ from vLLM's defaults, in its parser's order."""
    return {
        flag.field: given[flag.field]
        for flag in flags().values()
        if given.get(flag.field) not in (None, flag.default)
    }


_PLAIN = {
    "port": "port",
    "max_num_seqs": "max_num_seqs",
    "max_model_len": "max_model_len",
    "fits_length": "fits_length",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_prefill_seqs": "max_num_prefill_seqs",
    "long_prefill_tokens": "long_prefill_token_threshold",
    "chunked_prefill": "enable_chunked_prefill",
    "prefix_caching": "enable_prefix_caching",
    "padding_aware_scheduling": "use_padding_aware_scheduling",
    "num_scheduler_steps": "num_scheduler_steps",
    "speculative_tokens": "speculative_tokens",
    "block_size": "block_size",
    "utilisation": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "num_blocks_override": "num_gpu_blocks_override",
    "swap_space_gib": "swap_space",
    "tensor_parallel": "tensor_parallel_size",
    "pipeline_parallel": "pipeline_parallel_size",
    "data_parallel": "data_parallel_size",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "load_format": "load_format",
    "enforce_eager": "enforce_eager",
    "log_requests": "log_requests",
    "max_log_len": "max_log_len",
    "api_servers": "api_server_count",
    "prompt_tokens_details": "enable_prompt_tokens_details",
    "server_load": "enable_server_load_tracking",
    "max_logprobs": "max_logprobs",
    "shutdown_seconds": "shutdown_timeout",
    "speed": "speed",
    "misfit": "misfit",
    "noise": "noise",
    "control": "control",
    "processes": "processes",
}
"""Options that are taken as vLLM's flag, or what holds without it, has them."""
