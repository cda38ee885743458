"""A proposal in the forms that people start servers with, drawn from the document alone.

Each form holds what the log says is set now and the changes upon it; what a log doesn't
print (an image, a quantisation, a port) nobody can know here, and a comment says so.  Every
one begins with comments: what to do, for which server, and what is expected.  A value that
is masked as a secret is named without its value, so that it comes from elsewhere.

* ``env``: a systemd ``EnvironmentFile``, the changes alone; a shell reads it too.
* ``docker``: ``docker run``; ``compose``: the same as a service.
* ``helm``: values for a chart, with the bucket file as a ConfigMap and its mount.
* ``diff``: what is set now against what is to be set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from hpuwatch.advise.document import ProposalPart, Report, StartReport
from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.lint.words import MODEL
from hpuwatch.advise.render.words import (
    PREDICTED,
    SIMULATED,
    expected_rows,
    name_of,
    proposal_lines,
)
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.parse.mask import STARS

_PLAIN = re.compile(r"[\w@%+=:,./-]*")
_SWITCHES = frozenset({"true", "false"})
_INCOMPLETE = (
    "what the log doesn't print is missing here: add your own further options to it"
)
_PORT = 8000
_PROBE_SECONDS = 10
_PATIENCE = 2
"""A start-up probe waits so many times the longest start that is expected."""
_NAME = "hpuwatch-buckets"


def one_line(text: str) -> str:
    """Return the text without line ends, for comments."""
    return " ".join(text.split())


def quoted_for_env(value: str) -> str:
    """Return a value as systemd's EnvironmentFile and a shell both read it."""
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = re.sub(r'([\\"$`])', r"\\\1", value)
    return f'"{escaped}"'


def render_env(report: Report) -> str:
    """Return the proposals as ``KEY=VALUE`` lines with comments, or comments only."""
    lines: list[str] = []
    for each in report.reports:
        lines += _comments(each)
        proposal = each.proposal
        if proposal is None:
            continue
        lines += [f"# {one_line(line)}" for line in proposal_lines(proposal)]
        if proposal.bucket_file is not None:
            named = proposal.bucket_file
            lines.append(f"# once it is there: {named.variable}={named.path}")
        if proposal.unset:
            lines.append(f"# unset: {one_line(' '.join(proposal.unset))}")
        if proposal.flags:
            lines.append(f"# flags: {one_line(shlex.join(proposal.flags))}")
        lines += [
            f"{name}={quoted_for_env(value)}" for name, value in proposal.env.items()
        ]
    return "\n".join(lines) + "\n"


def render_docker(report: Report) -> str:
    """Return a ``docker run`` for each proposal, or comments only."""
    return _each(report, _docker, "\n")


def render_compose(report: Report) -> str:
    """Return a compose file for each proposal, as YAML documents."""
    return _each(report, _compose, "---\n")


def render_helm(report: Report) -> str:
    """Return values of a Helm chart for each proposal, as YAML documents."""
    return _each(report, _helm, "---\n")


def render_diff(report: Report) -> str:
    """Return what is set now against what is to be set, as a unified diff of settings."""
    return _each(report, _diff, "\n")


def _each(report: Report, write: Callable[[StartReport], str], between: str) -> str:
    return between.join(
        "".join(f"{line}\n" for line in _comments(each)) + write(each)
        for each in report.reports
    )


def _comments(each: StartReport) -> list[str]:
    """Say what to do and why, for which server, and what is expected."""
    lines = [f"# {name_of(each.source.file)}: {one_line(each.headline.why)}"]
    if each.origin == "simulated":
        lines.append(f"# {SIMULATED}")
    if each.origin == "predicted":
        lines.append(f"# {PREDICTED}")
    if each.proposal is None:
        return [*lines, f"# {one_line(each.headline.do)}"]
    lines.append(f"# {one_line(each.headline.do)}")
    lines += [one_line(line) for line in _header(each, each.proposal).lines()]
    for name, amount, between in expected_rows(each.proposal):
        lines.append(f"# expected {name}: {amount} ({between})")
    return lines


def _header(each: StartReport, proposal: ProposalPart) -> EnvHeader:
    server = each.server
    return EnvHeader(
        release=server.release,
        card=server.card,
        model=_model(each),
        tp=None if server.tp is None else str(server.tp),
        base=proposal.base,
    )


def _model(each: StartReport) -> str | None:
    """Return what the server serves; a first configuration may know a kind of model only."""
    named = {setting.name: setting.value for setting in each.settings}.get(MODEL)
    return named if each.origin == "predicted" else named or each.server.model


@dataclass(frozen=True, slots=True)
class _Command:
    """What a server is started with.

    Attributes:
        env: variables; None where the value is a secret that comes from elsewhere.
        flags: with their dashes; ``true`` and ``false`` are switches.
        model: what it serves, None where nobody knows.
        bucket_file: (path, text) of the file of its buckets, where both are known.
    """

    env: Mapping[str, str | None]
    flags: Mapping[str, str]
    model: str | None
    bucket_file: tuple[str, str] | None = None

    def arguments(self) -> list[str]:
        """Return what follows the model on the server's command line."""
        words: list[str] = []
        for name, value in self.flags.items():
            if value not in _SWITCHES:
                words += [name, value]
            elif value == "true":
                words.append(name)
            else:
                words.append(f"--no-{name.removeprefix('--')}")
        return words


_NOTHING: Mapping[str, str] = MappingProxyType({})


def _now(each: StartReport) -> dict[str, str]:
    return {setting.name: setting.value for setting in each.settings}


def _then(each: StartReport) -> dict[str, str]:
    """Return everything that is set once the proposal is followed."""
    settings, proposal = _now(each), each.proposal
    if proposal is None:
        return settings
    words = iter(proposal.flags)
    settings |= {**proposal.env, **{name: next(words) for name in words}}
    if proposal.bucket_file is not None:
        settings[proposal.bucket_file.variable] = proposal.bucket_file.path
    return {
        name: value for name, value in settings.items() if name not in proposal.unset
    }


def _command(each: StartReport) -> _Command:
    settings = _then(each)
    settings.pop(MODEL, None)
    path = settings.get(FILE_VARIABLE)
    proposed = each.proposal.bucket_file if each.proposal else None
    text = proposed.text if proposed else each.bucket_file
    file = (path, text) if path and text else None
    return _Command(
        env={
            name: None if STARS in value else value
            for name, value in settings.items()
            if not name.startswith("-")
        },
        flags={
            name: value
            for name, value in settings.items()
            if name.startswith("-") and STARS not in value
        },
        model=_model(each),
        bucket_file=file,
    )


def _docker(each: StartReport) -> str:
    if each.proposal is None:
        return ""
    command = _command(each)
    env = {"HABANA_VISIBLE_DEVICES": "all", **command.env}
    options = ["--runtime=habana", "--cap-add=sys_nice", "--ipc=host"]
    options += [f"-p {_PORT}:{_PORT}"]
    options += [
        "-e " + shlex.quote(name if value is None else f"{name}={value}")
        for name, value in env.items()
    ]
    begin = ""
    if command.bucket_file is not None:
        path, text = command.bucket_file
        begin = f"cat > {_NAME}.txt <<'END'\n{text}\nEND\n"
        options.append(f'-v "$PWD"/{_NAME}.txt:{shlex.quote(path)}:ro')
    model = '"$MODEL"' if command.model is None else shlex.quote(command.model)
    server = f"vllm serve {model} {shlex.join(command.arguments())}".rstrip()
    lines = ["docker run", *options, '"$IMAGE"', server]
    return f"# {_INCOMPLETE}\n{begin}" + " \\\n  ".join(lines) + "\n"


def _compose(each: StartReport) -> str:
    if each.proposal is None:
        return "services: {}\n"
    command = _command(each)
    env = {"HABANA_VISIBLE_DEVICES": "all", **command.env}
    service: dict[str, Any] = {
        "image": "${IMAGE}",
        "runtime": "habana",
        "cap_add": ["SYS_NICE"],
        "ipc": "host",
        "ports": [f"{_PORT}:{_PORT}"],
        "environment": {
            name: None if value is None else value.replace("$", "$$")
            for name, value in env.items()
        },
        "command": [
            *("vllm", "serve"),
            "${MODEL}" if command.model is None else command.model.replace("$", "$$"),
            *(word.replace("$", "$$") for word in command.arguments()),
        ],
    }
    document: dict[str, Any] = {"services": {"vllm": service}}
    if command.bucket_file is not None:
        path, text = command.bucket_file
        service["configs"] = [{"source": _NAME, "target": path}]
        document["configs"] = {_NAME: {"content": f"{text}\n".replace("$", "$$")}}
    return f"# {_INCOMPLETE}\n{_yaml(document)}"


def _helm(each: StartReport) -> str:
    if each.proposal is None:
        return "{}\n"
    command = _command(each)
    secret = [name for name, value in command.env.items() if value is None]
    values: dict[str, Any] = {
        "env": [
            {"name": name, "value": value}
            for name, value in command.env.items()
            if value is not None
        ],
        "args": [command.model or "MODEL", *command.arguments()],
        "resources": {"limits": {"habana.ai/gaudi": each.server.tp or 1}},
    }
    values |= _mounted(command)
    ready = each.proposal.figures.get("ready_seconds")
    if ready is not None:
        values["startupProbe"] = {
            "httpGet": {"path": "/health", "port": _PORT},
            "periodSeconds": _PROBE_SECONDS,
            "failureThreshold": max(1, round(_PATIENCE * ready.high / _PROBE_SECONDS)),
        }
    begin = f"# {_INCOMPLETE}\n"
    if command.model is None:
        begin += "# MODEL stands for your model\n"
    if secret:
        begin += f"# take these from a Secret of yours: {', '.join(secret)}\n"
    return begin + _yaml(values)


def _mounted(command: _Command) -> dict[str, Any]:
    """Return the bucket file as a ConfigMap, and where the server finds it."""
    if command.bucket_file is None:
        return {}
    path, text = command.bucket_file
    folder, _, name = path.rpartition("/")
    return {
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": _NAME},
                "data": {name: f"{text}\n"},
            }
        ],
        "volumes": [{"name": _NAME, "configMap": {"name": _NAME}}],
        "volumeMounts": [
            {
                "name": _NAME,
                "mountPath": f"{folder}/{name}",
                "subPath": name,
                "readOnly": True,
            }
        ],
    }


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(
        dict(document), sort_keys=False, allow_unicode=True, width=10_000
    )


def _diff(each: StartReport) -> str:
    now, then = _now(each), _then(each)
    lines = [f"--- now: {one_line(name_of(each.source.file))}", "+++ proposed"]
    for name in (*now, *(name for name in then if name not in now)):
        lines += _diff_lines(name, now.get(name), then.get(name))
    return "\n".join(map(one_line_kept, lines)) + "\n"


def one_line_kept(line: str) -> str:
    """Return a line of a diff without line ends, its sign in place."""
    return line[:1] + line[1:].replace("\r", " ").replace("\n", " ")


def _diff_lines(name: str, now: str | None, then: str | None) -> Iterator[str]:
    if now == then:
        yield f" {_typed(name, now)}"
        return
    if now is not None:
        yield f"-{_typed(name, now)}"
    if then is not None:
        yield f"+{_typed(name, then)}"


def _typed(name: str, value: str | None) -> str:
    joint = " " if name.startswith("-") else "="
    return f"{name}{joint}{value}"
