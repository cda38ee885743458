"""What the simulated server dies of, in the words of the catalogue of real lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpuwatch.sim.config.knobs import read_knobs
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.talk.script import load_script
from tests.catalogue import Catalogue, Points, points_of

pytestmark = pytest.mark.unit

_RELEASES = (
    *("fork-1.18", "fork-1.21", "fork-1.22", "plugin-0.11"),
    *("plugin-0.16", "plugin-0.19", "plugin-0.26", "plugin-head"),
)
_DEATHS = (
    # what is set, and the releases that die of it
    ("VLLM_DECODE_BS_BUCKET_STEP=x", "fork plugin"),
    (
        "VLLM_DECODE_BS_BUCKET_STEP=x VLLM_EXPONENTIAL_BUCKETING=true",
        "fork-1.18 fork-1.22 plugin",  # fork-1.21 reads it under lin alone
    ),
    ("VLLM_PROMPT_QUERY_BUCKET_MIN=x", "plugin"),
    ("VLLM_BUCKETING_STRATEGY=linear", "fork-1.22 plugin-0.26 plugin-head"),
    ("VLLM_GRAPH_RESERVED_MEM=ten", "fork plugin-0.11 plugin-0.16"),
    ("VLLM_DEFRAG_THRESHOLD=x", "plugin"),
    ("VLLM_DEBUG=all", "plugin"),
    ("VLLM_CONTIGUOUS_PA=true --enable-prefix-caching", "fork-1.21 fork-1.22"),
    ("VLLM_GRAPH_PROMPT_STRATEGY=fast", "fork-1.18 fork-1.21"),
)
_OF_PYTHON = re.compile(
    r"ValueError: (invalid literal for int\(\) with base 10|could not convert string to"
    r" float): '\w+'"
)
_UNLISTED = {
    # the catalogue knows these by their beginning, or env-vars.yaml alone tells them
    "NotImplementedError: Unsupported graph allocation strategy: fast",
}


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> Catalogue:
    return Catalogue(shared / "reference")


def _points(release: str) -> Points:
    return points_of(load_script(release).version)


@pytest.mark.parametrize(("case", "dying"), _DEATHS)
def test_a_death_is_told_as_the_release_tells_it(
    catalogue: Catalogue, case: str, dying: str
) -> None:
    flags = [word for word in case.split() if word.startswith("--")]
    pairs = (word.split("=", 1) for word in case.split() if not word.startswith("--"))
    env = dict(pairs)
    for release in _RELEASES:
        deaths = read_knobs(parse_options(["--release", release, *flags], env)).deaths
        expected = any(release.startswith(prefix) for prefix in dying.split())
        assert bool(deaths) == expected, release
        for text in deaths.values():
            if _OF_PYTHON.fullmatch(text) or text in _UNLISTED:
                continue
            # Of fork-1.22 the list of faults tells them, not the catalogue of lines.
            points = None if release == "fork-1.22" else _points(release)
            kinds = catalogue.kinds(text, points, header="traceback")
            assert kinds, (release, text)
