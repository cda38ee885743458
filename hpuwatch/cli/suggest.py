"""``hpuwatch suggest LOG…``: what a server's log says, and what to change."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpuwatch.cli.options import OWN_RULES, SHARE, Release, check_choice, fail_at

if TYPE_CHECKING:
    from hpuwatch.advise.document import Report

_FORMATS = (
    *("text", "markdown", "html", "json"),
    *("env", "docker", "compose", "helm", "diff"),
)
_UTF_8 = frozenset({"html", "json", "compose", "helm"})
_MOST_DIGITS = 18  # of a number that anybody gives to anything
_COLUMNS = 80
"""Where sentences are broken for whoever reads a pipe; quoted lines never are."""
_PLOT_FORMATS = ("svg", "png")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_NEWEST = "newest"


_Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG]...",
        help="Server logs, plain or .gz; - is standard input.",
        show_default=False,
    ),
]
_Format = Annotated[
    str, typer.Option("--format", help=f"One of {', '.join(_FORMATS)}.")
]
_FailOn = Annotated[
    str | None,
    typer.Option(help="Exit 1 at this severity or worse: info, warning, error."),
]
_Name = Annotated[
    str | None, typer.Option(help="Read the log of the server that run started so.")
]
_Study = Annotated[
    str | None,
    typer.Option(metavar="NUMBER|newest", help="Go by a study of tune (of --name)."),
]
_StateDir = Annotated[str | None, typer.Option(help="Where runs and studies are kept.")]
_Model = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Without a log: a model's config.json, for a first configuration.",
    ),
]
_Card = Annotated[str | None, typer.Option(help="gaudi2 or gaudi3, for that.")]
_Cards = Annotated[
    int | None,
    typer.Option(
        "--tp",
        min=1,
        help="Cards that the model is divided among [1]; vLLM's tensor-parallel-size.",
    ),
]
_Traffic = Annotated[
    str | None, typer.Option(help='As "1k in, 2k out, 64 at once"; k is 1,024.')
]
_NoStore = Annotated[
    bool, typer.Option("--no-store", help="Keep nothing of this for later reports.")
]
_Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report there.")
]
_Plots = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write the pictures there, too.")
]
_PlotFormat = Annotated[
    str | None,
    typer.Option(
        help="svg or png (needs the extra tune); else both, where that is there."
    ),
]


def suggest(
    logs: _Logs = None,
    form: _Format = "text",
    fail_on: _FailOn = None,
    rules: Path | None = OWN_RULES,
    share: bool = SHARE,
    name: _Name = None,
    study: _Study = None,
    state_dir: _StateDir = None,
    model: _Model = None,
    card: _Card = None,
    cards: _Cards = None,
    traffic: _Traffic = None,
    release: Release = None,
    no_store: _NoStore = False,
    output: _Output = None,
    plots: _Plots = None,
    plot_format: _PlotFormat = None,
) -> None:
    """Say what a Gaudi server's log means: memory, warm-up, troubles, and what to change.

    Without a log it suggests a first configuration for a model and a card.
    """
    from hpuwatch.advise.finding import SEVERITIES

    check_choice("--format", form, _FORMATS)
    check_choice("--fail-on", fail_on, SEVERITIES)
    pictures = _Pictures(plots, plot_format)
    pictures.check()
    asked = _Asked(
        logs=tuple(logs or ()),
        name=name,
        study=study,
        state_dir=state_dir,
        model=model,
        card=card,
        cards=cards,
        traffic=traffic,
        release=release,
        keeps=not no_store,
    )
    report = _shared(asked.report(rules), share=share)
    _write(report, form, output)
    pictures.write(report)
    findings = (each for start in report.reports for each in start.findings)
    fail_at(fail_on, (each.severity for each in findings))


def _shared(report: Report, *, share: bool) -> Report:
    from hpuwatch.advise.render.share import without_site

    return without_site(report) if share else report


def _write(report: Report, form: str, output: Path | None) -> None:
    if output is None:
        _put(_rendered(report, form, to_file=False), form)
        return
    from hpuwatch.app.page import write_text

    write_text(output, _rendered(report, form, to_file=True))


def _put(text: str, form: str) -> None:
    """Write to standard output: files for programs in UTF-8, texts as it takes them."""
    encoding = "utf-8" if form in _UTF_8 else sys.stdout.encoding
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode(encoding, "replace"))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Pictures:
    """Where pictures are to be written, and as what."""

    folder: Path | None
    form: str | None

    def check(self) -> None:
        """Refuse what can't be drawn before a log is read.

        Raises:
            UsageError: there is no such format, or no folder for it.
            ExtraMissing: PNG is wanted, and matplotlib is not installed.
        """
        from hpuwatch.errors import UsageError

        check_choice("--plot-format", self.form, _PLOT_FORMATS)
        if self.form and self.folder is None:
            raise UsageError("--plot-format tells nothing without --plots DIR")
        if self.folder is not None:
            from hpuwatch.app.page import plot_forms

            plot_forms(self.form)

    def write(self, report: Report) -> None:
        """Write them, and say on standard error what there is and what lacks."""
        if self.folder is None:
            return
        from hpuwatch.app.page import plot_forms, write_plots

        for sentence in write_plots(report, self.folder, plot_forms(self.form)):
            sys.stderr.write(f"{sentence}\n")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the report is to be about."""

    logs: Sequence[str]
    name: str | None
    study: str | None
    state_dir: str | None
    model: str | None
    card: str | None
    cards: int | None
    traffic: str | None
    release: str | None
    keeps: bool = True

    def report(self, rules: Path | None) -> Report:
        """Return the report, from whatever there is.

        Raises:
            UsageError: options contradict each other, or something is missing.
        """
        self._check()
        if self.model is not None:
            return self._first(self.model)
        if self.study is not None:
            return self._of_study(self.study)
        from hpuwatch.app.otherlogs import with_other_logs
        from hpuwatch.app.remember import memory_of
        from hpuwatch.app.report import report_of, spool_of
        from hpuwatch.clock import SystemClock

        paths = _paths(self.logs) if self.name is None else None
        paths = paths or [spool_of(self.name, self.state_dir)]
        memory = memory_of(SystemClock(), self.state_dir) if self.keeps else None
        return with_other_logs(report_of(paths, rules, memory), SystemClock())

    def _check(self) -> None:
        from hpuwatch.errors import UsageError

        ways = {
            "a log": bool(self.logs),
            "--model": self.model is not None,
            "--study": self.study is not None,
        }
        given = [way for way, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise UsageError(f"give either {' or '.join(given)}, not both")
        if self.logs and self.name is not None:
            raise UsageError("--name stands in for a log: give one or the other")
        of_model = {
            "--card": self.card,
            "--tp": self.cards,
            "--traffic": self.traffic,
            "--release": self.release,
        }
        lone = [option for option, value in of_model.items() if value is not None]
        if lone and self.model is None:
            raise UsageError(f"{lone[0]} tells nothing without --model")
        if self.model is not None and self.card is None:
            raise UsageError("--model needs --card: gaudi2 or gaudi3")

    def _first(self, model: str) -> Report:
        from hpuwatch.app.first import first_report_of

        return first_report_of(
            model, self.card or "", self.cards or 1, self.traffic, self.release
        )

    def _of_study(self, study: str) -> Report:
        from hpuwatch.app.studies import one_study
        from hpuwatch.app.study_report import report_of_study
        from hpuwatch.errors import UsageError
        from hpuwatch.settings import load_settings

        is_number = study.isdecimal() and len(study) <= _MOST_DIGITS
        if study != _NEWEST and not is_number:
            raise UsageError(
                f"--study {study[:40]!r} is neither a number nor {_NEWEST}"
            )
        settings = load_settings(name=self.name, state_dir=self.state_dir)
        number = None if study == _NEWEST else int(study)
        return report_of_study(one_study(settings.state_root(), settings.name, number))


def _paths(logs: Sequence[str]) -> list[str]:
    from hpuwatch.errors import UsageError

    if logs.count("-") > 1:
        raise UsageError("standard input can be read only once: give - a single time")
    if logs:
        return list(logs)
    if sys.stdin.isatty():
        raise UsageError(
            "name a log, or pipe one in: docker logs NAME 2>&1 | hpuwatch suggest -; "
            "--name takes the log of a run, --model plans a first start"
        )
    return ["-"]


def _rendered(report: Report, form: str, *, to_file: bool) -> str:
    from hpuwatch.advise.render.text import render_markdown

    if form == "json":
        return report.model_dump_json(by_alias=True, indent=2) + "\n"
    if form == "text":
        return _text(report, to_file=to_file)
    if form == "html":
        from hpuwatch.advise.page.page import render_page

        return render_page(report)
    if form == "markdown":
        return render_markdown(report)
    return _of_settings(form)(report)


def _of_settings(form: str) -> Callable[[Report], str]:
    from hpuwatch.advise.render import settings as render_settings

    renders: dict[str, Callable[[Report], str]] = {
        "env": render_settings.render_env,
        "docker": render_settings.render_docker,
        "compose": render_settings.render_compose,
        "helm": render_settings.render_helm,
        "diff": render_settings.render_diff,
    }
    return renders[form]


def _text(report: Report, *, to_file: bool) -> str:
    from hpuwatch.advise.render.text import render_text

    if to_file or not sys.stdout.isatty():
        return render_text(report, wrap=_COLUMNS)
    width = shutil.get_terminal_size().columns
    if os.environ.get("NO_COLOR"):
        return render_text(report, width=width, wrap=width)
    return render_text(
        report,
        width=width,
        wrap=width,
        emphasis=lambda text: f"{_BOLD}{text}{_PLAIN}",
    )
