"""Ranges of releases: what lies in them, patches included, and how they are told."""

from __future__ import annotations

import pytest

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.spans import RELEASES, Point, covers, point_of, prose, read_spans

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("plugin-0.17.1", Point("plugin", (0, 17, 1))),
        ("plugin-0.10", Point("plugin", (0, 10))),
        ("0.9.0.1+Gaudi-1.22.0", Point("fork", (1, 22, 0))),
        ("v0.6.4.post1", Point("vllm", (0, 6, 4))),
        ("plugin-0.15.0rc2.dev85", Point("plugin", (0, 15, 0))),
        ("plugin-head", Point("plugin", (float("inf"),))),
        ("1.24.0.460", Point("plugin", (0, 26))),
    ],
)
def test_a_release_stands_where_its_version_says(text: str, point: Point) -> None:
    assert point_of(text) == point


@pytest.mark.parametrize("release", RELEASES)
def test_the_older_engine_ends_with_the_plugin(release: str) -> None:
    assert point_of(release).is_v0 is not release.startswith("plugin")


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(ConfigError):
        point_of("teapot")


@pytest.mark.parametrize(
    ("spans", "inside", "outside"),
    [
        ("fork-1.19..", ["fork-1.19", "fork-1.23.0"], ["fork-1.18.9", "plugin-0.26"]),
        ("fork-..1.21", ["fork-1.17", "fork-1.21.3"], ["fork-1.22", "vllm-0.6"]),
        ("fork-1.21", ["fork-1.21", "fork-1.21.2"], ["fork-1.20", "fork-1.22"]),
        ("fork-1.21.2..", ["fork-1.21.2", "fork-1.21"], ["fork-1.21.1"]),
        ("plugin-0.10.0", ["plugin-0.10.0"], ["plugin-0.10", "plugin-0.10.1"]),
        ("plugin-0.14..0.17", ["plugin-0.17.1"], ["plugin-0.18", "plugin-head"]),
        ("plugin-0.20..", ["plugin-0.20", "plugin-head"], ["plugin-0.19"]),
        ("plugin-head", ["plugin-head"], ["plugin-0.27"]),
        ("vllm plugin", ["vllm-0.6", "plugin-0.26"], ["fork-1.22"]),
        ("all", list(RELEASES), []),
        ("none", [], list(RELEASES)),
    ],
)
def test_a_range_covers_its_releases_and_no_other(
    spans: str, inside: list[str], outside: list[str]
) -> None:
    assert [name for name in inside if not covers(spans, point_of(name))] == []
    assert [name for name in outside if covers(spans, point_of(name))] == []


@pytest.mark.parametrize("word", ["fork-", "plugin-0.", "torch-1.0", "fork-1.19..."])
def test_what_is_no_range_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="no range of releases"):
        read_spans(word)


def test_ranges_in_words() -> None:
    told = prose("fork-1.19.. vllm plugin-0.14..0.17 fork-..1.18 plugin-head")
    assert told == (
        "fork-1.19 and later, vllm, plugin-0.14 to plugin-0.17, up to fork-1.18, "
        "plugin-head"
    )
    assert (prose("all"), prose("none")) == ("all", "none")
