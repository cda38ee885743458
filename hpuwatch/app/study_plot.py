"""A study as a picture: output tokens per second by trial, and by graph reserve.

Both panels share their vertical axis.  A failure has no score, so it stands as a cross at
the foot, with its state.  matplotlib comes with the extra ``tune``; it is imported only
where a picture is drawn, and without pyplot, so no display is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpuwatch.app.studies import StoredStudy
from hpuwatch.errors import ExtraMissing, MissingFileError, ResourceError, UsageError
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import score
from hpuwatch.tune.report import is_simulated
from hpuwatch.tune.trial import Trial

FORMS = (".png", ".svg")

_GREY, _BLUE, _GREEN, _RED = "#6b7280", "#2563eb", "#15803d", "#b91c1c"
_PALE_RED = "#fee2e2"
_FOOT = 0.05  # where failures stand, as a share of the axis
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "svg.fonttype": "none",
    "svg.hashsalt": "hpuwatch",
}


def require_matplotlib() -> None:
    """Check that matplotlib is there, without importing it.

    Raises:
        ExtraMissing: it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ExtraMissing(
            "hpuwatch study plot needs matplotlib: pip install 'hpuwatch[tune]'"
        )


def plot_study(stored: StoredStudy, path: Path) -> None:
    """Draw a study into a file, whose name says if it is a PNG or an SVG.

    Raises:
        UsageError: the name ends in something else.
        ExtraMissing: matplotlib is not installed.
        MissingFileError: the study holds no trial that is over.
        ResourceError: the file can't be written.
    """
    form = path.suffix.lower()
    if form not in FORMS:
        raise UsageError(f"--out {str(path)!r} doesn't end in .png or .svg")
    require_matplotlib()
    trials = [trial for trial in stored.trials if trial.state.judged]
    if not trials:
        raise MissingFileError(
            f"study {stored.study.id} holds no trial that is over, so there is nothing "
            "to draw"
        )
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(11, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure, stored, trials)
        undated = {"Date": None} if form == ".svg" else {}
        try:
            figure.savefig(path, format=form[1:], dpi=150, metadata=undated)
        except OSError as error:
            raise ResourceError(
                f"{path} can't be written ({error.strerror}): give another --out"
            ) from error


def _draw(figure: Any, stored: StoredStudy, trials: Sequence[Trial]) -> None:
    by_trial, by_reserve = figure.subplots(1, 2, sharey=True)
    best = _best(stored)
    numbers = {trial.number: float(trial.number) for trial in trials}
    _panel(by_trial, trials, numbers, best)
    _panel(by_reserve, trials, _ratios(trials), best)
    by_trial.set_xlabel("trial")
    by_trial.set_ylabel("output tokens/s, ± half of the windows' spread")
    by_trial.xaxis.get_major_locator().set_params(integer=True)
    by_trial.set_xlim(min(numbers.values()) - 0.6, max(numbers.values()) + 0.6)
    by_reserve.margins(x=0.08)
    by_reserve.set_xlabel(f"{RESERVE} (share of usable memory)")
    _make_room(by_trial, trials)
    for trial in trials:
        if score(trial) is None:
            _name_state(by_trial, trial)
    handles, labels = by_trial.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    figure.suptitle(_title(stored, best), fontsize=12, fontweight="bold")


def _best(stored: StoredStudy) -> Trial | None:
    """Return the trial that beat the original configuration, if one did."""
    verdict = stored.verdict
    return None if verdict is None or verdict.best.is_baseline else verdict.best


def _ratios(trials: Sequence[Trial]) -> dict[int, float]:
    """Return the reserve of each trial: as its log shows it, else as it was set."""
    known = {
        trial.number: trial.facts.reserve_ratio or trial.settings.get(RESERVE)
        for trial in trials
    }
    return {number: float(ratio) for number, ratio in known.items() if ratio}


def _panel(
    axes: Any, trials: Sequence[Trial], places: dict[int, float], best: Trial | None
) -> None:
    """Draw the trials whose place on the horizontal axis is known."""
    shown = [trial for trial in trials if trial.number in places]
    groups = (
        ("the original", "s", _GREY, 8, [t for t in shown if t.is_baseline]),
        ("a trial", "o", _BLUE, 7, [t for t in shown if not t.is_baseline]),
    )
    for label, marker, colour, size, members in groups:
        scored = [trial for trial in members if trial is not best]
        _points(axes, scored, places, (label, marker, colour, size))
    if best is not None:
        _points(axes, [best], places, ("the best", "*", _GREEN, 15))
    lost = [places[trial.number] for trial in shown if score(trial) is None]
    if lost:
        # A strip of its own, so that nobody reads a score there.
        whole_width = {"transform": axes.transAxes, "color": _PALE_RED, "zorder": 0}
        axes.fill_between([0, 1], 0, 2 * _FOOT, linewidth=0, **whole_width)
        axes.plot(
            lost,
            [_FOOT] * len(lost),
            transform=axes.get_xaxis_transform(),
            **_look("failed (no score)", "X", _RED, 9),
        )
    own = next((score(trial) for trial in shown if trial.is_baseline), None)
    if own is not None:
        axes.axhline(own, color=_GREY, linewidth=1, linestyle=(0, (4, 3)), zorder=1)


def _points(
    axes: Any,
    trials: Sequence[Trial],
    places: dict[int, float],
    look: tuple[str, str, str, int],
) -> None:
    """Draw scores with half of what their windows differ by."""
    found = [
        (places[trial.number], trial.measurement) for trial in trials if score(trial)
    ]
    if not found:
        return
    across = [place for place, _ in found]
    rates = [each.tokens_per_second for _, each in found if each]
    either_way = [each.spread / 2 for _, each in found if each]
    axes.plot(across, rates, **_look(*look))
    axes.errorbar(across, rates, yerr=either_way, fmt="none", ecolor=look[2], capsize=4)


def _look(label: str, marker: str, colour: str, size: int) -> dict[str, Any]:
    return {
        "label": label,
        "marker": marker,
        "color": colour,
        "markersize": size,
        "markeredgecolor": "white",
        "linestyle": "none",
        "zorder": 3,
    }


def _make_room(axes: Any, trials: Sequence[Trial]) -> None:
    """Leave room at the foot for failures, and don't blow small differences up."""
    rates = [found for trial in trials if (found := score(trial)) is not None]
    most, least = max(rates, default=1.0), min(rates, default=0.0)
    height = max(most - least, 0.2 * most)
    lost = len(rates) < len(trials)
    axes.set_ylim(max(0.0, least - height * (0.7 if lost else 0.15)), most + height / 6)


def _name_state(axes: Any, trial: Trial) -> None:
    axes.annotate(
        trial.state.value.replace("_", " "),
        (trial.number, _FOOT),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 9),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=9,
        color=_RED,
    )


def _title(stored: StoredStudy, best: Trial | None) -> str:
    model = next((t.facts.model for t in stored.trials if t.facts.model), "")
    simulated = "SIMULATED" if is_simulated(stored.trials) else ""
    head = " · ".join(filter(None, (f"Study {stored.study.id}", model, simulated)))
    verdict = stored.verdict
    if verdict is None:
        said = "nothing was compared"
    elif best is None:
        said = "nothing is proven better than the original configuration"
    else:
        said = f"best: trial {best.number}, {verdict.gain * 100:+.1f} % output tokens/s"
    return f"{head}\n{said}"
