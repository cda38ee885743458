"""The law of graph memory on what real logs printed: parts of a warm-up foretell the rest.

Only one public log with bucket lists went through a whole warm-up on a card.  The stand-in
logs are of the plugin's own code without one, where the memory of a graph is made up; they
show that the interval holds, not what a graph takes.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hpuwatch.advise.graphmemory import observations_of, warmup_use_of
from hpuwatch.gaudi.graphlaw import fit, prior
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.state.configured import printed_lists
from hpuwatch.state.model import Start
from hpuwatch.testing.logs import start_of_text
from hpuwatch.units import GIB, KIB

TRAFFIC = "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz"


@pytest.fixture(scope="module")
def traffic(shared: Path) -> Start:
    data = gzip.decompress((shared / "corpus" / TRAFFIC).read_bytes())
    return start_of_text(data.decode(errors="replace"))


def test_a_whole_warm_up_is_measured_and_carries_over(traffic: Start) -> None:
    law = fit(observations_of(traffic))
    lists = printed_lists(traffic)
    found = law.bytes_of(lists)
    assert found.origin == "measured"
    assert found.value / GIB == pytest.approx(11.11, abs=0.005)
    cost = law.phases[PROMPT].cost
    assert cost.token_bytes / KIB == pytest.approx(18.96, abs=0.01)
    # Without the three longest prompts: a tenth of the tokens less, 3 of 48 graphs.
    shorter = [each for each in lists[PROMPT] if each.query < 20480]
    less = law.bytes_of({PROMPT: shorter, DECODE: lists[DECODE]})
    assert less.origin == "predicted"
    assert less.value / GIB == pytest.approx(11.11 * 0.9, abs=0.005)
    assert less.high / GIB == pytest.approx(11.11 * 45 / 48, abs=0.01)
    assert less.low / GIB == pytest.approx(less.value / GIB, abs=0.01)


def test_what_was_printed_lies_within_the_figures_that_stand_in_before_a_log(
    traffic: Start,
) -> None:
    used = sum(each.value.bytes for each in traffic.graphs_used.values())
    before = prior(hidden_size=5120).bytes_of(printed_lists(traffic))
    assert before.low <= used <= before.high


def test_steady_use_is_what_warm_up_allocated(traffic: Start) -> None:
    use = warmup_use_of(traffic)
    assert use is not None
    assert use.steady_bytes / GIB == pytest.approx(11.11, abs=0.005)


@pytest.mark.parametrize("log", ["developer-mode", "tp2"])
@pytest.mark.parametrize("phase", [PROMPT, DECODE])
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_the_first_graphs_of_a_warm_up_foretell_all_of_them(
    shared: Path, log: str, phase: str, share: float
) -> None:
    path = shared / f"corpus/plugin-on-stand-in/plugin-0.26-{log}.log"
    start = start_of_text(path.read_text(encoding="utf-8", errors="replace"))
    seen = [each for each in observations_of(start) if each.phase == phase]
    single = [each for each in seen if not each.repeats]
    (whole,) = [each for each in seen if each.repeats]
    first = single[: int(len(single) * share)]
    found = fit(first).bytes_of({phase: whole.buckets})
    assert found.low <= whole.used_bytes <= found.high
    assert found.value == pytest.approx(whole.used_bytes, rel=0.41)
