"""The catalogue of findings that ships with hpuwatch."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError

from hpuwatch.advise.catalogue import Catalogue, Family
from hpuwatch.data import data_dir
from hpuwatch.errors import ConfigError

_ORDER = (
    "ends",
    "memory",
    "buckets",
    "warmup",
    "serving",
    "releases",
    "hygiene",
    "log",
)
"""Families in the order of documents, which is that of their codes."""


@cache
def shipped_findings() -> Catalogue:
    """Read the findings of ``rules/advise``.

    Raises:
        ConfigError: a file is missing or wrong.
    """
    folder = data_dir("rules") / "advise"
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return Catalogue(
            Family.model_validate(
                yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  a safe loader either way
            )
            for path in (folder / f"{name}.yaml" for name in _ORDER)
            if path.exists()
        )
    except (OSError, ValueError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(
            f"the findings in {folder} can't be read ({error}): install hpuwatch again"
        ) from error
