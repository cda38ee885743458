"""A proposal in the forms that people start servers with, drawn from the document alone.

Each form holds what the log says is set now and the changes upon it; what a log doesn't
print (an image, a quantisation, a port) nobody can know here, and a comment says so.  Every
one begins with comments: what to do, and for which server.  A value that is masked as a
secret is named without its value, so that it comes from elsewhere.  Where nothing is to be
changed, the command is that of the log, and a comment says so.

* ``env``: a systemd ``EnvironmentFile``, the changes alone; a shell reads it too.
* ``docker``: ``docker run``; ``compose``: the same as a service.
* ``helm``: values for a chart, with the bucket file as a ConfigMap and its mount.
* ``diff``: what is set now against what is to be set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from hpuwatch.advise.document import ProposalPart, Report, StartReport
from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.render.command import (
    Command,
    command_of,
    is_whole,
    model_of,
    set_now,
    set_then,
)
from hpuwatch.advise.render.escaping import printable
from hpuwatch.advise.render.words import (
    BUCKET_FILE,
    PREDICTED,
    SIMULATED,
    name_of,
)
from hpuwatch.parse.mask import STARS

_PLAIN = re.compile(r"[\w@%+=:,./-]*")
_KEY = re.compile(r"[A-Za-z][\w-]{2,}")
_INCOMPLETE = (
    "what the log doesn't print is missing here: add your own further options to it"
)
_PROBE_SECONDS = 10
_PATIENCE = 2
"""A start-up probe waits so many times the longest start that is expected."""
_NAME = "hpuwatch-buckets"


def one_line(text: str) -> str:
    """Return the text without line ends and control characters, for comments."""
    return " ".join(printable(" ".join(text.split())).split())


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
        proposal = each.proposal
        lines += _comments(each)
        if proposal is None:
            continue
        lines += [one_line(line) for line in _header(each, proposal).lines()]
        if proposal.bucket_file is not None:
            named = proposal.bucket_file
            once = f"once it is there: {named.variable}={named.path}"
            lines += [f"# {BUCKET_FILE}", f"# {one_line(once)}"]
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
        "".join(f"{line}\n" for line in (*_comments(each), *_for_whom(each)))
        + write(each)
        for each in report.reports
    )


def _comments(each: StartReport) -> Iterator[str]:
    """Say what to do, and that no card measured it where none did."""
    yield f"# {one_line(f'{name_of(each.source.file)}: {each.headline.do}')}"
    if each.origin == "simulated":
        yield f"# {SIMULATED}"
    if each.origin == "predicted":
        yield f"# {PREDICTED}"


def _for_whom(each: StartReport) -> Iterator[str]:
    """Say for which server it is, in a line, and what to do with what follows."""
    if each.proposal is not None:
        known = _header(each, each.proposal).known()
        told = ", ".join(f"{name} {value}" for name, value in known.items())
        yield f"# for {one_line(told)}"
    elif is_whole(each):
        yield "# nothing is changed below: it is what the log says is set"
    else:
        yield "# there is nothing to start here"
    if is_whole(each):
        yield f"# {_INCOMPLETE}"
        masked = [
            name
            for name, value in set_then(each).items()
            if name.startswith("-") and STARS in value
        ]
        if masked:
            yield f"# masked as secrets, so give them yourself: {one_line(', '.join(masked))}"


def _header(each: StartReport, proposal: ProposalPart) -> EnvHeader:
    server = each.server
    return EnvHeader(
        release=server.release,
        card=server.card,
        model=model_of(each),
        tp=None if server.tp is None else str(server.tp),
        base=proposal.base,
    )


def _docker(each: StartReport) -> str:
    if not is_whole(each):
        return ""
    command = command_of(each)
    env = {"HABANA_VISIBLE_DEVICES": "all", **command.env}
    options = ["--runtime=habana", "--cap-add=sys_nice", "--ipc=host"]
    options += [f"-p {command.port}:{command.port}"]
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
    return begin + " \\\n  ".join(lines) + "\n"


def _compose(each: StartReport) -> str:
    if not is_whole(each):
        return "services: {}\n"
    command = command_of(each)
    env = {"HABANA_VISIBLE_DEVICES": "all", **command.env}
    service: dict[str, Any] = {
        "image": "${IMAGE}",
        "runtime": "habana",
        "cap_add": ["SYS_NICE"],
        "ipc": "host",
        "ports": [f"{command.port}:{command.port}"],
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
    return _yaml(document)


def _helm(each: StartReport) -> str:
    if not is_whole(each):
        return "{}\n"
    command = command_of(each)
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
    figures = each.proposal.figures if each.proposal else {}
    ready = figures.get("ready_seconds")
    if ready is not None:
        values["startupProbe"] = {
            "httpGet": {"path": "/health", "port": command.port},
            "periodSeconds": _PROBE_SECONDS,
            "failureThreshold": max(1, round(_PATIENCE * ready.high / _PROBE_SECONDS)),
        }
    begin = ""
    if command.model is None:
        begin += "# MODEL stands for your model\n"
    if secret:
        begin += f"# take these from a Secret of yours: {', '.join(secret)}\n"
    return begin + _yaml(values)


def _mounted(command: Command) -> dict[str, Any]:
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


class _Quoting(yaml.SafeDumper):
    """Quotes every text but plain names of keys; several lines stand as a block.

    Readers of YAML differ on what a plain ``n``, ``1e0`` or ``0o17`` is: some read no text.
    """

    def represent_mapping(
        self,
        tag: str,
        mapping: Any,
        flow_style: bool | None = None,  # noqa: FBT001  as yaml has it
    ) -> yaml.MappingNode:
        """Return a mapping whose keys are quoted only where they have to be."""
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            if _KEY.fullmatch(key.value):
                key.style = None
        return node

    def represent_quoted(self, text: str) -> yaml.ScalarNode:
        """Return a text in quotes."""
        style = "|" if "\n" in text else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Quoting.add_representer(str, _Quoting.represent_quoted)


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(
        dict(document),
        Dumper=_Quoting,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )


def _diff(each: StartReport) -> str:
    now, then = set_now(each), set_then(each)
    if each.proposal is not None:
        now = {**each.proposal.now, **now}
    lines = [f"--- now: {one_line(name_of(each.source.file))}", "+++ proposed"]
    for name in (*now, *(name for name in then if name not in now)):
        lines += _diff_lines(name, now.get(name), then.get(name))
    return "\n".join(map(one_line_kept, lines)) + "\n"


def one_line_kept(line: str) -> str:
    """Return a line of a diff without line ends, its sign in place."""
    return printable(line[:1] + line[1:].replace("\r", " ").replace("\n", " "))


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
