"""The picture of a study: valid files, what they say, and what is refused."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpuwatch.app.studies import StoredStudy
from hpuwatch.app.study_plot import plot_study
from hpuwatch.errors import MissingFileError, ResourceError, UsageError
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.testing.trials import A_WASTEFUL_SERVER, failed, measured
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan, Trial, TrialState

pytestmark = pytest.mark.unit

STUDY = Study("f", ("cmd",), ("reserve",), 7, 8, LoadPlan(), "http://h:1", 0.0, id=3)
BASELINE = measured(0, {}, 1000, 1010, origin="baseline")
FAILURE = failed(1, {RESERVE: "0.01"})
BETTER = measured(2, {RESERVE: "0.05"}, 1240, 1260)
REAL = replace(A_WASTEFUL_SERVER, simulated=False)
NO_EXTRA = """
import importlib.util, sys
found = importlib.util.find_spec
missing = ("skopt", "matplotlib")
importlib.util.find_spec = lambda name, *more: name not in missing and found(name, *more) or None
from hpuwatch.cli import main
main()
"""


def stored(*trials: Trial) -> StoredStudy:
    return StoredStudy("default", STUDY, trials)


def drawn(path: Path, *trials: Trial) -> str:
    """Return the words of a study's SVG."""
    pytest.importorskip("matplotlib", reason="the extra 'tune' is not installed")
    plot_study(stored(*trials), path)
    text = path.read_text("utf-8")
    assert text.startswith("<?xml")
    assert text.rstrip().endswith("</svg>")
    return "\n".join(re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", text))


def test_the_picture_says_what_it_shows(tmp_path: Path) -> None:
    words = drawn(tmp_path / "study.svg", BASELINE, FAILURE, BETTER)
    for said in (
        "Study 3 · a-model · SIMULATED",
        "best: trial 2, +24.4 % output tokens/s",
        "output tokens/s, ± half of the windows",
        f"{RESERVE} (share of usable memory)",
        "out of memory",
        "the original",
        "the best",
        "failed (no score)",
    ):
        assert said in words


def test_a_png_is_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'tune' is not installed")
    path = tmp_path / "study.PNG"
    plot_study(stored(BASELINE, FAILURE, BETTER), path)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", head[16:]) == (1650, 720)


def test_what_was_measured_is_not_called_simulated(tmp_path: Path) -> None:
    own = measured(0, {}, 1000, 1000, facts=REAL, origin="baseline")
    same = measured(1, {RESERVE: "0.05"}, 1001, 1001, facts=REAL)
    words = drawn(tmp_path / "study.svg", own, same)
    assert "SIMULATED" not in words
    assert "nothing is proven better than the original configuration" in words
    assert "the best" not in words
    assert "failed" not in words


@pytest.mark.parametrize(
    "trials",
    [
        [BASELINE],
        [BASELINE, FAILURE],
        [failed(0, {}, TrialState.WARMUP_FAILED)],
        [BASELINE, Trial(1, {RESERVE: "0.1"}, "designer")],
    ],
)
def test_a_study_without_a_comparison_is_drawn_too(
    trials: Sequence[Trial], tmp_path: Path
) -> None:
    assert "nothing was compared" in drawn(tmp_path / "study.svg", *trials)


def test_the_same_study_gives_the_same_svg(tmp_path: Path) -> None:
    drawn(tmp_path / "one.svg", BASELINE, BETTER)
    drawn(tmp_path / "two.svg", BASELINE, BETTER)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_what_can_not_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"doesn't end in \.png or \.svg"):
        plot_study(stored(BASELINE), tmp_path / "study.pdf")
    pytest.importorskip("matplotlib", reason="the extra 'tune' is not installed")
    with pytest.raises(MissingFileError, match="holds no trial that is over"):
        plot_study(stored(Trial(0, {}, "baseline")), tmp_path / "study.png")
    with pytest.raises(ResourceError, match="can't be written"):
        plot_study(stored(BASELINE), tmp_path / "nowhere" / "study.png")


def without_extra(state: Path, *words: str) -> str:
    """Run hpuwatch where the extra is not installed; return its one sentence."""
    argv = [sys.executable, "-c", NO_EXTRA, *words, "--state-dir", str(state)]
    if words[0] == "tune":
        argv += ["--", sys.executable, "-m", "none", "--port", "9"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 78, done.stderr
    (line,) = done.stderr.splitlines()
    assert done.stdout == ""
    return line


def test_a_picture_without_matplotlib_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    store = StudyStore(tmp_path / "default" / FILE_NAME)
    store.plan(store.create(STUDY).id, BASELINE)
    store.close()
    out = tmp_path / "study.png"
    said = without_extra(tmp_path, "study", "plot", "--out", str(out))
    assert said == (
        "hpuwatch: error: hpuwatch study plot needs matplotlib: pip install "
        "'hpuwatch[tune]'"
    )
    assert not out.exists()


def test_tuning_without_scikit_optimize_touches_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    said = without_extra(state, "tune")
    assert said == (
        "hpuwatch: error: hpuwatch tune needs scikit-optimize: pip install "
        "'hpuwatch[tune]'"
    )
    assert not state.exists()
