"""``hpuwatch lint``: gather what a server would be given and see, and judge it.

Variables come, the later the stronger, from a log, from our own environment, from env files
and from ``--env``; flags from a log, from vLLM's own configuration file and from the command
line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.lint.configuration import (
    Configuration,
    Setting,
    WarmupTime,
)
from hpuwatch.advise.lint.kinds import lint
from hpuwatch.advise.lint.remark import LintFinding
from hpuwatch.advise.lint.words import (
    MODEL,
    env_files_of,
    of_command,
    of_log,
    of_mapping,
)
from hpuwatch.app.server_inputs import (
    View,
    bucket_file_of,
    config_of,
    given_variables,
    inherited,
    log_and_command,
    overlaid,
    recipe_cache_trouble,
)
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.basis import Printed
from hpuwatch.gaudi.cards import card_called
from hpuwatch.gaudi.knobs import named
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.gaudi.warmuptime import WarmupLaw, learn
from hpuwatch.parse.mask import mask, mask_value
from hpuwatch.state.model import Start, value_of
from hpuwatch.tune.study import fingerprint

SCHEMA = "hpuwatch.lint/1"

_LOOKED_AT = frozenset({MODEL, "--config", "--host", "--api-key"})
"""Flags that are no knobs, and that something is told of all the same."""
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


def _plain(found: LintFinding) -> dict[str, object]:
    about = found.remark.about
    return {
        "code": found.code,
        "severity": found.severity,
        "knob": about.name,
        "value": mask_value(about.name, about.value),
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
        ConfigError: the release or the card is unknown.
    """
    from hpuwatch.app.report import starts_of

    if order.card is not None:
        card_called(order.card)
    log, command = log_and_command(order.words)
    start = None if log is None else starts_of(log)[-1]
    printed = {} if start is None or log is None else of_log(start, log)
    settings = dict(printed)
    if order.inherit:
        settings |= inherited(environ)
    header, given = given_variables(order.env)
    settings = overlaid(settings, given)
    settings |= _on_command_line(command, order.view)
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
        num_blocks=order.num_blocks or _override(settings) or _blocks(start),
        printed=_printed(start) if order.num_blocks is None else None,
        strategy=_strategy(order, start),
        mamba_chunk_size=order.mamba_chunk_size,
        header=header,
        server=_server(
            order,
            start,
            settings,
            _base(order, command, environ, start),
            wants_release=header is not None and header.release is not None,
        ),
    )
    found = lint(configuration)
    told = {each.remark.about.name for each in found}
    notes = (*_notes(configuration, note), *_passed_over(command, told))
    return Verdict(configuration, found, notes)


def _on_command_line(command: Sequence[str], view: View) -> dict[str, Setting]:
    """Return the flags of a command, over those of the file that its ``--config`` names."""
    flags = of_command(command)
    if "--config" not in flags:
        return flags
    path = view.find(flags["--config"].value)
    return of_mapping(config_of(path), str(path)) | flags


def _release(
    order: Order, start: Start | None, header: EnvHeader | None
) -> tuple[str, str]:
    """Return the release to judge by, and a note on where it is from."""
    from hpuwatch.state.configured import release_text

    if order.release is not None:
        return order.release, ""
    known = _printed_release(start)
    if known is not None:
        return known, f"the log says {known}"
    printed = release_text(start.server) if start else None
    why = f"the log says {printed}, which names no release" if printed else ""
    if header is not None and header.release is not None:
        said = f"the env file says {header.release}"
        return header.release, f"{why}; {said}" if why else said
    why = why or "no release is known"
    return NEWEST, f"{why}, so {NEWEST} is taken: --release says which"


def _printed_release(start: Start | None) -> str | None:
    """Return the version that a log prints, None where no release is called so."""
    from hpuwatch.state.configured import release, release_text

    if start is None or release(start.server) is None:
        return None
    return release_text(start.server)


def _strategy(order: Order, start: Start | None) -> str | None:
    """Return how the log's buckets were made, None where another release will make them."""
    from hpuwatch.state.configured import printed_strategy

    return printed_strategy(start) if start and order.release is None else None


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


def _override(settings: Mapping[str, Setting]) -> int | None:
    setting = settings.get("--num-gpu-blocks-override")
    blocks = flag_number(setting.value) if setting else None
    return blocks if blocks is not None and blocks > 0 else None


def _printed(start: Start | None) -> Printed | None:
    from hpuwatch.advise.baseline import baseline_of

    found = baseline_of([start]) if start else None
    return found.basis.printed if found else None


def _blocks(start: Start | None) -> int | None:
    return value_of(start.kv.blocks) if start else None


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

    card = value_of(start.server.card) if start else None
    release = order.release or _printed_release(start)
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


def _base(
    order: Order,
    command: Sequence[str],
    environ: Mapping[str, str],
    start: Start | None,
) -> str | None:
    """Return the fingerprint of what the server is started with, None where none tells."""
    if command and order.inherit:
        return fingerprint(command, environ)
    if start is None or command:
        return None
    from hpuwatch.advise.plan.parts import base_of, settings_of

    return base_of(settings_of(start))


def _passed_over(command: Sequence[str], told: Collection[str]) -> Iterator[str]:
    """Say what of the command was not looked at; ``told`` has findings."""
    unknown = [
        name
        for name in of_command(command)
        if name not in told and not _is_looked_at(name)
    ]
    if unknown:
        yield f"not looked at: {', '.join(unknown)} (hpuwatch has no table of such flags)"
    for path in env_files_of(command):
        yield f"not read: {path}, which the command names: say --env-file {path}"


def _is_looked_at(name: str) -> bool:
    return not name.startswith("-") or name in _LOOKED_AT or named(name) is not None


def _notes(found: Configuration, about_release: str) -> list[str]:
    release = release_of(found.release_text)
    notes = [about_release] if about_release else []
    if release.assumption:
        notes.append(release.assumption)
    wanted = found.header.known() if found.header else {}
    untold = [name for name in wanted if name not in found.server.known()]
    if untold:
        notes.append(
            f"not compared with the env file: {', '.join(untold)} (nothing tells what "
            "this server has)"
        )
    return notes
