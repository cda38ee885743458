"""The fields of a request's body, of the types that they must have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from hpuwatch.sim.http.wire import unpacked
from hpuwatch.sim.serve.refusals import Refused, invalid, not_valid

T = TypeVar("T")

_WORDS: Mapping[type, str] = {str: "string", list: "list", dict: "dictionary"}
_SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}
"""Texts that pydantic takes for truth values."""


class Fields:
    """The fields of one JSON object, of the types that they must have."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Take the object."""
        self._fields = fields

    @classmethod
    def of(cls, body: bytes) -> Fields:
        """Read a body.

        Raises:
            Refused: it is no JSON object.
        """
        try:
            fields = unpacked(body)
        except ValueError as error:
            detail = {"type": "json_invalid", "msg": "JSON decode error"}
            raise not_valid(str(detail | {"ctx": {"error": str(error)}})) from None
        if not isinstance(fields, dict):
            message = "Input should be a valid dictionary"
            raise invalid("model_attributes_type", "", message, type(fields).__name__)
        return cls(fields)

    @property
    def names(self) -> set[str]:
        """The fields that are there."""
        return set(self._fields)

    def get(self, name: str) -> Any:
        """Return a field as it is, None where it is missing."""
        return self._fields.get(name)

    def number(self, name: str, default: int | None) -> int | None:
        """Return a whole number.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None:
            return default
        if isinstance(value, str):  # as pydantic does
            with suppress(ValueError):
                return int(value)
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
        raise invalid("int_type", name, "Input should be a valid integer", value)

    def real(self, name: str) -> float | None:
        """Return a number.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, str):
            with suppress(ValueError):
                return float(value)
        raise invalid("float_type", name, "Input should be a valid number", value)

    def flag(self, name: str) -> bool:
        """Return a switch, off where it is missing.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        if value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.lower() in _SWITCHES:
            return _SWITCHES[value.lower()]
        raise invalid("bool_type", name, "Input should be a valid boolean", value)

    def typed(self, name: str, kind: type[T]) -> T | None:
        """Return a text, a list or an object, None where it is missing.

        Raises:
            Refused: it is something else.
        """
        value = self._fields.get(name)
        if value is None or isinstance(value, kind):
            return value
        word = _WORDS[kind]
        raise invalid(
            f"{kind.__name__}_type", name, f"Input should be a valid {word}", value
        )

    def token_ids(self, name: str) -> list[int]:
        """Return a list of token ids.

        Raises:
            Refused: it is none.
        """
        value = self._fields.get(name)
        if not isinstance(value, list) or (value and not is_ids(value)):
            raise invalid("list_type", name, "Input should be a valid list", value)
        return value

    def stop_texts(self) -> tuple[str, ...]:
        """Return the texts that end an answer.

        Raises:
            Refused: they are no texts, or one is empty.
        """
        value = self._fields.get("stop")
        texts = [value] if isinstance(value, str) else value or []
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise invalid(
                "string_type", "stop", "Input should be a valid string", value
            )
        if "" in texts:
            raise Refused("stop cannot contain an empty string.")
        return tuple(texts)


def is_ids(given: list[Any]) -> bool:
    """Tell whether a list holds token ids; a float or a truth value is none."""
    return set(map(type, given)) == {int}
