"""``hpuwatch lint``: gather what a server would be given and see, and judge it.

Variables come, the later the stronger, from a log, from our own environment, from env files
and from ``--env``; flags from a log, from vLLM's own configuration file and from the command
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.lint.configuration import (
    Configuration,
    Setting,
    WarmupTime,
)
from hpuwatch.advise.lint.kinds import lint
from hpuwatch.advise.lint.remark import LintFinding
from hpuwatch.advise.lint.words import MODEL, of_command, of_log, of_mapping
from hpuwatch.app.server_inputs import (
    View,
    bucket_file_of,
    config_of,
    given_variables,
    inherited,
    log_and_command,
    recipe_cache_trouble,
)
from hpuwatch.errors import InputError, UsageError
from hpuwatch.gaudi.knobs import named
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.warmuptime import WarmupLaw, learn
from hpuwatch.parse.mask import mask
from hpuwatch.tune.study import fingerprint

if TYPE_CHECKING:
    from hpuwatch.state.model import Start

SCHEMA = "hpuwatch.lint/1"

_WARM_GROUPS = ("memory", "buckets", "attention", "graphs", "warm-up")
"""Knobs that may make a warm-up longer or shorter."""


@dataclass(frozen=True, slots=True)
class Order:
    """What ``lint`` is asked to look at; None or empty where nothing was said.

    Attributes:
        words: a log, the server's command line, or both in this order.
        release: as the user names it.
        env: ``NAME=VALUE``, or the path of an env file.
        inherit: the server gets our own environment.
        view: how it sees files.
    """

    words: Sequence[str] = ()
    release: str | None = None
    env: Sequence[str] = ()
    inherit: bool = False
    view: View = field(default_factory=View)
    card: str | None = None
    num_blocks: int | None = None
    mamba_chunk_size: int = 0
    warmup_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; ``notes`` tell on what it rests."""

    configuration: Configuration
    findings: tuple[LintFinding, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return ``lint/1``; no secret is in it."""
        release = self.configuration.release
        return {
            "schema": SCHEMA,
            "release": release.name,
            "dialect": release.dialect,
            "assumed_like": release.assumed_like,
            "settings": len(self.configuration.settings),
            "findings": [_plain(each) for each in self.findings],
            "notes": list(self.notes),
        }


def masked(setting: Setting) -> str:
    """Return the value of a setting without a secret."""
    told = mask(f"{setting.name}={setting.value}")
    if mask(f"{setting.name} {setting.value}") != f"{setting.name} {setting.value}":
        return "***"
    return told.partition("=")[2]


def _plain(found: LintFinding) -> dict[str, object]:
    about = found.remark.about
    return {
        "code": found.code,
        "severity": found.severity,
        "knob": about.name,
        "value": masked(about),
        "where": about.where,
        "happens": mask(found.remark.happens),
        "do": mask(found.remark.cure),
    }


def judge(order: Order, environ: Mapping[str, str]) -> Verdict:
    """Return the findings over a configuration.

    Args:
        order: what to look at.
        environ: our own environment.

    Raises:
        UsageError: there is nothing to look at, or an option makes no sense.
        MissingFileError: a log, an env file or a configuration file can't be opened.
        InputError: a log is not of a server on Gaudi, or a configuration file is no mapping.
        ConfigError: the release is unknown.
    """
    log, command = log_and_command(order.words)
    start = None if log is None else _last_start(log)
    printed = {} if start is None or log is None else of_log(start, log)
    settings = dict(printed)
    if order.inherit:
        settings |= inherited(environ)
    header, given = given_variables(order.env)
    settings |= given
    on_line = of_command(command)
    if "--config" in on_line:
        path = order.view.find(on_line["--config"].value)
        settings |= of_mapping(config_of(path), str(path))
    settings |= on_line
    if not settings and header is None:
        raise UsageError(
            "there is nothing to look at: give a log, --env, --inherit, or -- and the "
            "server's command"
        )
    release, note = _release(order, start, header)
    configuration = Configuration(
        release_text=release,
        settings=settings,
        command=bool(command),
        bucket_file=bucket_file_of(settings, order.view),
        recipe_cache=recipe_cache_trouble(settings, order.view),
        warmup=_warmup(
            order, start, log, is_changed=_warms_otherwise(printed, settings)
        ),
        law=_law(start),
        num_blocks=order.num_blocks or _blocks(start),
        mamba_chunk_size=order.mamba_chunk_size,
        header=header,
        server=_server(
            order,
            start,
            settings,
            fingerprint(command, environ) if command and order.inherit else None,
            wants_release=header is not None and header.release is not None,
        ),
    )
    found = lint(configuration)
    return Verdict(configuration, found, tuple(_notes(configuration, note)))


def _last_start(log: str) -> Start:
    from hpuwatch.app.report import state_of
    from hpuwatch.app.rules import shipped_rules

    start = state_of(log, shipped_rules()).current
    if start is None:
        raise InputError(f"{log} holds no start of a server")
    return start


def _release(
    order: Order, start: Start | None, header: EnvHeader | None
) -> tuple[str, str]:
    """Return the release to judge by, and a note on where it is from."""
    from hpuwatch.state.configured import release_text

    if order.release is not None:
        return order.release, ""
    printed = release_text(start.server) if start else None
    if printed is not None:
        return printed, f"the log says {printed}"
    if header is not None and header.release is not None:
        return header.release, f"the env file says {header.release}"
    return NEWEST, f"taken for {NEWEST}: --release names another"


def _warmup(
    order: Order, start: Start | None, log: str | None, *, is_changed: bool
) -> WarmupTime | None:
    """Return what warm-up takes where it is given, or was timed with these settings."""
    given = order.warmup_seconds
    if given is not None:
        return WarmupTime(given, given, given, "as --warmup-seconds says")
    known = start.warmup.seconds if start else None
    if start is None or known is None or known.value <= 0 or is_changed:
        return None
    word = "simulated" if start.server.simulated else "measured"
    took = known.value
    return WarmupTime(took, took, took, f"{word}: {log}:{known.line.number}")


def _warms_otherwise(
    printed: Mapping[str, Setting], settings: Mapping[str, Setting]
) -> bool:
    """Tell whether settings that a warm-up depends on are not those of the log."""
    for name, setting in settings.items():
        knob = named(name)
        matters = name == MODEL or (knob is not None and knob.group in _WARM_GROUPS)
        if matters and (name not in printed or printed[name].value != setting.value):
            return True
    return False


def _law(start: Start | None) -> WarmupLaw:
    from hpuwatch.state.warmup_timed import timed_start

    timed = timed_start(start) if start else None
    return learn([timed] if timed else [])


def _blocks(start: Start | None) -> int | None:
    return start.kv.blocks.value if start and start.kv.blocks else None


def _server(
    order: Order,
    start: Start | None,
    settings: Mapping[str, Setting],
    base: str | None,
    *,
    wants_release: bool,
) -> EnvHeader:
    """Return what the server and its machine really are, as far as anything tells."""
    from hpuwatch.app.doctor import installed_release
    from hpuwatch.state.configured import release_text

    card = start.server.card.value if start and start.server.card else None
    release = order.release or (release_text(start.server) if start else None)
    if release is None and wants_release:
        release = installed_release()
    model, cards = settings.get(MODEL), settings.get("--tensor-parallel-size")
    tp = "1" if order.words and start is None and model is not None else None
    return EnvHeader(
        release=release,
        card=order.card or card,
        model=model.value if model else None,
        tp=cards.value if cards else tp,
        base=base,
    )


def _notes(found: Configuration, about_release: str) -> list[str]:
    release = release_of(found.release_text)
    notes = [about_release] if about_release else []
    if release.assumed_like:
        notes.append(f"assumed like {release.assumed_like}; nobody has compared them")
    wanted = found.header.known() if found.header else {}
    untold = [name for name in wanted if name not in found.server.known()]
    if untold:
        notes.append(
            f"not compared with the env file: {', '.join(untold)} (nothing tells what "
            "this server has)"
        )
    return notes
