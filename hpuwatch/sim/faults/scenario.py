"""Scenarios read: a YAML file to faults, or every mistake in it with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hpuwatch.errors import ConfigError
from hpuwatch.sim.faults import engine, output, outside
from hpuwatch.sim.faults.fault import Fault

AnyFault = Annotated[
    engine.Hang
    | engine.Die
    | engine.EngineFails
    | engine.MemoryTaken
    | engine.Leak
    | engine.DeviceBusy
    | output.Silent
    | output.HalfLine
    | output.CloseOutput
    | output.Flood
    | output.BadBytes
    | output.ClockJump
    | outside.SlowAnswer
    | outside.RefuseAnswer
    | outside.NoAnswer
    | outside.IgnoreSigterm
    | outside.SlowStop
    | outside.AbortRaceLost
    | outside.Orphans
    | outside.OutOfDescriptors,
    Field(discriminator="fault"),
]
_ONE: TypeAdapter[Fault] = TypeAdapter(AnyFault)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    faults: tuple[AnyFault, ...]


def read_scenario(name: str) -> tuple[Fault, ...]:
    """Read a scenario file.

    Raises:
        ConfigError: it can't be read or makes no sense; the message tells every mistake
            with its line.
    """
    try:
        text = Path(name).read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(
            f"{name}: the faults can't be read ({error.strerror}): name a scenario file"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigError(
            f"{name}:{line}: no YAML: {getattr(error, 'problem', None) or error}"
        ) from None
    try:
        return _File.model_validate(values).faults
    except ValidationError as error:
        told = "\n  ".join(
            f"{name}:{_line_of(root, path)}: {text}" for path, text in _mistakes(error)
        )
        raise ConfigError(f"the scenario of faults is wrong:\n  {told}") from None


def read_fault(value: object) -> Fault:
    """Read one fault, as the control endpoint gets it.

    Raises:
        ConfigError: it makes no sense; the message tells every mistake.
    """
    try:
        return _ONE.validate_python(value)
    except ValidationError as error:
        told = "; ".join(text for _, text in _mistakes(error))
        raise ConfigError(f"this is no fault: {told}") from None


def _mistakes(error: ValidationError) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield where each mistake is and what it is."""
    for mistake in error.errors(include_url=False):
        message = mistake["msg"].removeprefix("Value error, ")
        keys = [key for key in mistake["loc"] if isinstance(key, str)]
        place = ".".join(keys[1:] if keys[:1] == ["faults"] and keys[1:] else keys)
        yield mistake["loc"], f"{place}: {message}" if place else message


def _line_of(root: yaml.Node | None, path: tuple[int | str, ...]) -> int:
    """Return the line of the deepest node that a path leads to."""
    node = root
    for key in path:
        node = _below(node, key) or node
    return node.start_mark.line + 1 if node is not None else 1


def _below(node: yaml.Node | None, key: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
        return node.value[key] if key < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        found: Any = next((v for k, v in node.value if k.value == key), None)
        return found if isinstance(found, yaml.Node) else None
    return None
