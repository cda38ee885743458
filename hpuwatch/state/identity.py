"""Events that tell what the server is: versions, model, card, flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.gaudi.warmuptime import RECIPES
from hpuwatch.state import fields
from hpuwatch.state.memory import Handler, with_blocks
from hpuwatch.state.model import BlocksFrom, Known, Server, Start

_FIRST_PLUGIN = (0, 10)
"""In-tree support ended with vLLM 0.10, so a V1 engine from there on is the plugin."""

_ENVIRONMENT = {"hw": "card", "build": "build", "bridge_mode": "bridge_mode"}
_ENGINE_FLAGS = (
    "served_model_name",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "quantization",
    "enforce_eager",
    "enable_prefix_caching",
)


_MINIMUM_IS_A_BLOCK = ("VLLM_PROMPT_SEQ_BUCKET_MIN", "VLLM_PROMPT_QUERY_BUCKET_MIN")
"""Variables whose default is the block size."""


_VERSION_PARTS = re.compile(r"\d{1,9}")
_PORT = re.compile(r":(\d{1,5})/?$")
_MOST_PORTS = _MOST_VERSIONS = 8
_LISTENING = ("listening", "uvicorn_running")


def _server(start: Start, **news: object) -> Start:
    known = {name: value for name, value in news.items() if value is not None}
    changed: Server = replace(start.server, **known)  # type: ignore[arg-type]
    start = replace(start, server=_plugin(changed))
    version = changed.version
    if version is None or version.value in start.versions:
        return start
    if len(start.versions) >= _MOST_VERSIONS:
        return start
    return replace(start, versions={**start.versions, version.value: version.line})


def _plugin(server: Server) -> Server:
    if server.plugin or server.version is None or server.engine is None:
        return server
    found = _VERSION_PARTS.findall(server.version.value)
    numbers = tuple(int(part) for part in found[:2])
    plugin = server.engine.value == "V1" and numbers >= _FIRST_PLUGIN
    return replace(server, plugin=plugin)


def _lifecycle(start: Start, event: Event) -> Start:
    if event.fields.get("step") in _LISTENING:
        return _listening(start, fields.text(event, "addr"))
    return _server(
        start,
        version=fields.text(event, "ver"),
        model=start.server.model or fields.text(event, "model"),
    )


def _listening(start: Start, address: Known[str] | None) -> Start:
    """Note where it listens; a second port belongs to a second server."""
    if address is None:
        return start
    start = _server(start, address=start.server.address or address)
    found = _PORT.search(address.value)
    port = int(found[1]) if found else 0
    if not port or port in start.ports or len(start.ports) >= _MOST_PORTS:
        return start
    return replace(start, ports={**start.ports, port: address.line})


def _engine(start: Start, event: Event) -> Start:
    if "args" in event.fields:
        start = _server(start, arguments=event.line)
    if "ver" in event.fields:
        start = replace(start, engines=start.engines | {event.speaker.engine})
    for name in _ENGINE_FLAGS:
        if name in event.fields and event.fields[name] is not None:
            start = _flag(start, event, name, str(event.fields[name]))
    return _server(
        start,
        version=fields.text(event, "ver"),
        engine=fields.text(event, "engine"),
        model=start.server.model or fields.text(event, "model"),
        tensor_parallel=fields.whole(event, "tensor_parallel_size"),
        pipeline_parallel=fields.whole(event, "pipeline_parallel_size"),
        max_model_len=fields.whole(event, "max_seq_len")
        or fields.whole(event, "max_model_len"),
        max_num_batched_tokens=fields.whole(event, "max_num_batched_tokens"),
        max_num_seqs=fields.whole(event, "max_num_seqs"),
        block_size=fields.whole(event, "block_size"),
    )


def _loading(start: Start, event: Event) -> Start:
    return _server(start, model=start.server.model or fields.text(event, "model"))


def _switched(start: Start, event: Event) -> Start:
    blocks = fields.whole(event, "num_gpu_blocks")
    return with_blocks(_loading(start, event), blocks, BlocksFrom.ENGINE)


def _flag(start: Start, event: Event, name: str, value: str) -> Start:
    flags = {**start.server.flags, name: Known(value, event.line)}
    return replace(start, server=replace(start.server, flags=flags))


def _dump(start: Start, event: Event) -> Start:
    """Read the runtime's dump: environment, features and user flags, one key a line."""
    if "flags" in event.fields:
        return _server(start, card=fields.text(event, "hw"))
    key, value = fields.text(event, "key"), event.fields.get("value")
    if key is None or value is None:
        return start
    if key.value.isupper():
        return _flag(start, event, key.value, str(value))
    return _described(start, event, key.value, str(value))


def _described(start: Start, event: Event, name: str, said: str) -> Start:
    if name == "vllm_gaudi_commit":
        return _server(start, plugin=True)
    if name == "engine_version" and said:
        return _server(start, engine=Known(said.upper(), event.line))
    if name in _ENVIRONMENT and said:
        return _server(start, **{_ENVIRONMENT[name]: Known(said, event.line)})
    features = {**start.server.features, name: said}
    return _server(start, features=features)


def _echo(start: Start, event: Event) -> Start:
    name = fields.text(event, "VAR")
    value = event.fields.get("value")
    if name is None or value is None:
        return start
    start = _flag(start, event, name.value, str(value))
    if name.value not in _MINIMUM_IS_A_BLOCK:
        return start
    return _server(start, range_block_size=fields.whole(event, "default"))


def _ranges(start: Start, event: Event) -> Start:
    """Read the strategy off the ranges; an exponential one starts with a block.

    A linear one may start anywhere: its minimum is a variable's, which is echoed.
    """
    strategy = fields.text(event, "strategy")
    lengths = event.fields.get("query") or event.fields.get("seq")
    block = None
    if strategy and strategy.value == "exp" and isinstance(lengths, tuple):
        first = lengths[0]
        block = Known(first, event.line) if isinstance(first, int) else None
    if block is not None and block.value <= 1:
        block = None  # VLLM_PROMPT_QUERY_BUCKET_MIN=1
    return _server(start, strategy=strategy, range_block_size=block)


def _banner(start: Start, event: Event) -> Start:
    name = fields.text(event, "name")
    said = str(event.fields.get("value")).strip()
    if name is not None and name.value == RECIPES:
        return _recipes(start, event, said)
    if name is None or name.value != "PT_HPU_LAZY_MODE":
        return start
    lazy = said == "1"
    mode = Known("lazy" if lazy else "eager", event.line)
    return _server(start, bridge_mode=start.server.bridge_mode or mode)


def _recipes(start: Start, event: Event, said: str) -> Start:
    """Note the recipe cache; without a folder there is none, which a line says too."""
    is_named = bool(said.partition(",")[0].strip())
    if not is_named and RECIPES in start.server.flags:
        return start
    return _flag(start, event, RECIPES, said if is_named else "")


def _simulated(start: Start, _event: Event) -> Start:
    return _server(start, simulated=True)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "server_lifecycle": _lifecycle,
        "model_load_start": _loading,
        "sleep_and_model_switch": _switched,
        "engine_config": _engine,
        "runtime_config_dump": _dump,
        "bucket_env_echo": _echo,
        "bucket_config": _ranges,
        "bridge_banner": _banner,
        "simulated_server": _simulated,
    }
)
