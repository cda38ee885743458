"""Reading a model's ``config.json``: numbers under the names that model families use.

Families name the same thing differently (``hidden_size``, ``n_embd``, ``d_model``), and a
multimodal model keeps its language model in a ``text_config``.  A field of another kind than
its name promises is refused where it is read, and so is a size that no model has.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TypeVar

from hpuwatch.errors import ConfigError

_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "max_position": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "max_sequence_length",
        "seq_length",
    ),
    "intermediate_size": (
        "intermediate_size",
        "ffn_dim",
        "ffn_hidden_size",
        "n_inner",
    ),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "shared_expert": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "sparse_step": ("decoder_sparse_step", "interleave_moe_layer_step"),
    "mamba_heads": ("mamba_n_heads", "mamba_num_heads"),
    "mamba_head_dim": ("mamba_d_head", "mamba_head_dim"),
    "mamba_groups": ("mamba_n_groups", "n_groups"),
    "mamba_state_size": ("mamba_d_state", "ssm_state_size"),
    "mamba_conv_kernel": ("mamba_d_conv", "conv_kernel"),
}
"""What we call it → what it may be called, the usual name first."""

_MOST_LAYERS = 10_000
_MOST = 10**8
"""Of any other size; the longest context today is ten million tokens."""

SERVED_DTYPE_BYTES = 2
"""Bytes of one number as it is served: the plugin makes bfloat16 of all floats."""

_DTYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "auto": 2,
}
_T = TypeVar("_T", str, int)
_PLURALS: Mapping[type, str] = {str: "words", int: "whole numbers"}
_NESTED = ("text_config", "llm_config", "language_config")


class Fields:
    """The language model's part of a configuration.

    Attributes:
        whole: the configuration as it was given, the outer one of a multimodal model.
        name: what to call the model in messages.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        """Take a parsed ``config.json``."""
        self.whole = config
        self._inner = next(
            (nested for name in _NESTED if (nested := mapping(config, name))), config
        )
        self.name = str(config.get("_name_or_path") or self.text("model_type") or "?")

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number of 0 or more, or the default where it is not given.

        Raises:
            ConfigError: it is missing without a default, no such number, or larger than
                any model has it.
        """
        most = _MOST_LAYERS if name == "layers" else _MOST
        for spelling in _NAMES.get(name, (name,)):
            value = self._inner.get(spelling)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(
                    f"the model's configuration has {spelling} = {value!r}, "
                    "which is not a number of 0 or more"
                )
            if value > most:
                raise ConfigError(
                    f"the model's configuration has {spelling} above {most:,}, which no "
                    "model has"
                )
            return value
        if default is not None:
            return default
        names = " or ".join(_NAMES.get(name, (name,)))
        raise ConfigError(
            f"the configuration of model {self.name!r} lacks {names}: give the "
            "config.json that lies beside the model's weights"
        )

    def positive(self, name: str, default: int | None = None) -> int:
        """Return a whole number above 0.

        Raises:
            ConfigError: it is missing, 0 or no number.
        """
        value = self.number(name, default)
        if value == 0:
            raise ConfigError(f"the model's configuration has {name} = 0")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean; the outer part counts where the inner one lacks it."""
        value = self._inner.get(name, self.whole.get(name))
        return default if value is None else bool(value)

    def text(self, name: str) -> str:
        """Return a string, the empty one where there is none.

        Raises:
            ConfigError: it is something else.
        """
        value = self._inner.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _no(name, value, "text")
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, the empty one where there is none.

        Raises:
            ConfigError: it is something else.
        """
        return _list(name, self._inner.get(name), str) or ()

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers, None where there is none.

        Raises:
            ConfigError: it is something else.
        """
        return _list(name, self._inner.get(name), int)

    def value(self, name: str) -> object:
        """Return what the configuration gives, None where it doesn't."""
        return self._inner.get(name)

    def has(self, name: str) -> bool:
        """Tell whether the configuration gives it (null is not given)."""
        return self.value(name) is not None

    def dtype_bytes(self, *names: str) -> int | None:
        """Return the bytes of one number of the first dtype given, None without one.

        Raises:
            ConfigError: no such dtype.
        """
        for name in names:
            value = self._inner.get(name, self.whole.get(name))
            if value is None:
                continue
            dtype = str(value).removeprefix("torch.")
            if dtype not in _DTYPE_BYTES:
                raise ConfigError(
                    f"the model's configuration has {name} = {value!r}, choose from "
                    f"{', '.join(_DTYPE_BYTES)}"
                )
            return _DTYPE_BYTES[dtype]
        return None

    def mapping(self, name: str) -> Mapping[str, object] | None:
        """Return a part of the configuration, of the inner or the outer one."""
        return mapping(self._inner, name) or mapping(self.whole, name)


def mapping(config: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    """Return the part of that name, None where there is none or it is empty.

    Raises:
        ConfigError: it is something else.
    """
    value = config.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _no(name, value, "a mapping")
    return value or None


def _list(name: str, value: object, kind: type[_T]) -> tuple[_T, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise _no(name, value, f"a list of {_PLURALS[kind]}")
    return tuple(value)


def _no(name: str, value: object, kind: str) -> ConfigError:
    said = textwrap.shorten(repr(value), 60, placeholder=" …")
    return ConfigError(
        f"the model's configuration has {name} = {said}, which is not {kind}"
    )
