"""The flags of a server's command line, as vLLM repeats those that are no defaults.

``non-default args: {'port': 9000, 'quantization': 'inc', …}`` is a mapping as Python prints
it.  Whatever of it is no plain value (an object, a secret that is masked) has no place on a
command line, and is left out.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator

from hpuwatch.parse.mask import STARS
from hpuwatch.state.model import Start

_LINE = re.compile(r"non-default args:\s*(\{.*\})")
_MASKED = re.compile(rf"(?<![\w'\"*]){re.escape(STARS)}(?![\w'\"*])")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}")
_NO_FLAGS = frozenset(
    {"model", "model_tag", "config", "subparser", "dispatch_function"}
)
LISTS = frozenset(
    {"--served-model-name", "--lora-modules", "--middleware", "--api-key"}
)
"""Flags that take several words."""


def arguments_of(start: Start) -> dict[str, str]:
    """Return what the line of arguments sets, by flag; switches are true or false.

    Several words of one flag are joined as a shell would read them, mappings are JSON.
    """
    line = start.server.arguments
    found = _LINE.search(line.text) if line is not None else None
    if found is None:
        return {}
    try:
        tree = ast.parse(_MASKED.sub(repr(STARS), found[1]), mode="eval").body
        return dict(_flags(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # cut short, or no mapping as Python prints it


def _flags(tree: ast.expr) -> Iterator[tuple[str, str]]:
    if not isinstance(tree, ast.Dict):
        return
    for key, value in zip(tree.keys, tree.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or not _KEY.fullmatch(name) or name in _NO_FLAGS:
            continue
        try:
            text = _text(ast.literal_eval(value))
        except ValueError:  # an object
            continue
        if text is not None:
            yield f"--{name.replace('_', '-')}", text


def _text(value: object) -> str | None:
    """Return a value as it is typed, None where that can't be."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, (list, tuple)) and all(
        isinstance(e, (str, int)) for e in value
    ):
        return shlex.join(map(str, value)) if value else None
    return None
