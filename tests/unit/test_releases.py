"""Any version string leads to a dialect, and what is unproven says so."""

from __future__ import annotations

import pytest

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.releases import NEWEST, release_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "name", "dialect", "like"),
    [
        ("plugin-0.26", "plugin-0.26", "gaudi-plugin-0.26", None),
        ("gaudi-plugin-0.11", "plugin-0.11", "gaudi-plugin-0.11", None),
        ("0.26.0", "plugin-0.26", "gaudi-plugin-0.26", None),
        ("v0.24.0", "plugin-0.24", "gaudi-plugin-0.26", None),
        ("0.15.1", "plugin-0.15", "gaudi-plugin-0.16", None),
        ("0.18.1rc1", "plugin-0.18", "gaudi-plugin-0.18", "plugin-0.17"),
        ("vllm-gaudi 0.22.0", "plugin-0.22", "gaudi-plugin-0.21", "plugin-0.21"),
        ("0.25", "plugin-0.25", "gaudi-plugin-0.26", "plugin-0.26"),
        ("0.27.0rc0", "plugin-0.27", "gaudi-plugin-0.26", None),
        ("0.27.0", "plugin-0.27", "gaudi-plugin-0.26", "plugin-0.26"),
        ("0.31.2", "plugin-0.31", "gaudi-plugin-head", "plugin-head"),
        ("plugin-2.0", "plugin-2.0", "gaudi-plugin-head", "plugin-head"),
        ("plugin-head", "plugin-head", "gaudi-plugin-head", None),
        ("main", "plugin-head", "gaudi-plugin-head", None),
        ("0.11.0rc3.dev12+g1a2b3c", "plugin-0.11", "gaudi-plugin-0.11", None),
        ("fork-1.22", "fork-1.22", "fork-1.22", None),
        ("0.9.0.1+Gaudi-1.22.0", "fork-1.22", "fork-1.22", None),
        ("0.7.2+Gaudi-1.21.2", "fork-1.21", "fork-1.21", None),
        ("0.7.2+Gaudi-1.21.0", "fork-1.21", "fork-1.21", "fork-1.21"),
        ("1.19.1", "fork-1.19", "fork-1.20", "fork-1.20"),
        ("fork-1.23", "fork-1.23", "fork-1.22", "fork-1.22"),
        ("1.24.1", "gaudi-1.24", "gaudi-plugin-0.26", "plugin-0.26"),
        ("0.8.5.post1", "vllm-0.8", "fork-1.21", "fork-1.21"),
        # vLLM itself runs on Gaudi since 0.6.4; what is older is the fork's.
        ("0.6.3.dev1405+gdb686905", "fork-1.19", "fork-1.20", "fork-1.20"),
        ("0.5.3.post1", "fork-1.18", "fork-1.18", "fork-1.18"),
        ("0.6.4.post1", "vllm-0.6", "fork-1.20", "fork-1.20"),
        ("vllm-0.6", "vllm-0.6", "fork-1.20", "fork-1.20"),
    ],
)
def test_versions(text: str, name: str, dialect: str, like: str | None) -> None:
    release = release_of(text)
    assert (release.name, release.dialect, release.assumed_like) == (
        name,
        dialect,
        like,
    )


@pytest.mark.parametrize(
    "text", ["", "banana", "plugin-0.9", "0.3.1", "fork-1.12", "fork-2.0"]
)
def test_what_never_ran_on_gaudi_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no release"):
        release_of(text)


def test_every_dialect_is_reached_by_its_own_name() -> None:
    for name in DIALECTS:
        assert release_of(name).dialect == name


def test_every_release_has_a_dialect() -> None:
    texts = [f"plugin-0.{minor}" for minor in range(10, 40)]
    texts += [f"fork-1.{minor}" for minor in range(16, 24)]
    assert all(release_of(text).dialect in DIALECTS for text in texts)
    assert release_of(NEWEST).assumed_like is None
