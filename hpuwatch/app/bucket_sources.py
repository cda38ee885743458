"""Where a configuration for ``hpuwatch buckets`` comes from: a log, files, words, options.

Everything becomes a :class:`Told`: a plan, and lists where something prints them.  Settings
are laid over it in turn: vLLM's own configuration file, env files, our environment,
``--env`` and options.  Lists that were printed hold only as long as nothing is changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpuwatch.advise.lint.words import of_file, of_mapping
from hpuwatch.app.server_inputs import config_of
from hpuwatch.errors import ConfigError, InputError, MissingFileError, UsageError
from hpuwatch.gaudi.bucketlines import looks_like_a_bucket
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.planning import KNOWN_FLAGS, Change, Plan, applied
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.resolve import Flags
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.state.configured import (
    configured,
    differences,
    printed_buckets,
    release_text,
)
from hpuwatch.state.model import Start

SCHEMA = "hpuwatch.buckets/1"

_UNKNOWN = 0  # stands for a size that has no default, until something tells it
_SPECULATION = "--speculative-config"
_DRAFTS = "--num-speculative-tokens"
_LEFT_TO_VLLM = frozenset({"auto", "-1", "None"})  # it finds the value when it starts


@dataclass(frozen=True, slots=True)
class Told:
    """A configuration, and the lists that were printed for it.

    Attributes:
        plan: its flags hold the KV blocks too; 0 where nothing told them, or the length.
        lists: by phase; they count more than what the rules give.
        notes: what an operator should know of it, a sentence each.
        stands_alone: it came from a log or a saved list, and not as a change.
    """

    plan: Plan = field(default_factory=lambda: Plan(NEWEST, _nothing()))
    lists: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stands_alone: bool = False

    def changed(
        self,
        changes: Iterable[Change] = (),
        release: str | None = None,
        **flags: object,
    ) -> Told:
        """Return it with settings laid over it; printed lists go where one differs.

        Raises:
            ConfigError: a setting can't be read, or the release is unknown.
        """
        plan = applied(self.plan, changes)
        given = {name: value for name, value in flags.items() if value is not None}
        plan = replace(plan, flags=replace(plan.flags, **given))  # type: ignore[arg-type]  # fields of Flags
        if release is not None and release_of(release) != release_of(plan.release_text):
            plan = replace(plan, release_text=release)
        if plan == self.plan:
            return self
        gone = ("predicted: the settings are not those of the printed lists",)
        return Told(plan, {}, gone if self.lists else (), self.stands_alone)

    @property
    def sized(self) -> bool:
        """Whether everything is known that has no default."""
        return _UNKNOWN not in {
            self.plan.flags.max_model_len,
            self.plan.flags.num_blocks,
        }

    def blocks(self) -> int:
        """Return the KV blocks, once everything is known that has no default.

        Raises:
            UsageError: the length or the KV blocks are not known.
        """
        flags = self.plan.flags
        for name, size in (
            ("--max-model-len", flags.max_model_len),
            ("--num-blocks", flags.num_blocks),
        ):
            if size == _UNKNOWN:
                raise UsageError(
                    f"nothing tells {name}: give it, or a log that prints it"
                )
        return flags.num_blocks


def _nothing() -> Flags:
    return Flags(
        max_num_seqs=256,
        max_num_batched_tokens=_UNKNOWN,
        max_model_len=_UNKNOWN,
        num_blocks=_UNKNOWN,
    )


def of_path(path: str) -> Told:
    """Return what a log (``-``: standard input) or a saved ``list`` tells.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is neither, or tells too little.
    """
    if path != "-":
        text = _head(path)
        if text.lstrip().startswith("{") and SCHEMA in text:
            return _of_document(path)
    return _of_log(path)


def _of_log(path: str) -> Told:
    from hpuwatch.app.report import state_of
    from hpuwatch.app.rules import shipped_rules

    start = state_of(path, shipped_rules()).current
    known = configured(start) if start else None
    if start is None or known is None:
        raise InputError(
            f"{path} doesn't tell a version, the model's length and KV blocks: give a "
            "log from the server's start on, or options"
        )
    plan = Plan(
        release_text(start.server) or NEWEST,
        known.flags,
        known.env,
        token_budget=known.flags.max_num_batched_tokens,
    )
    lists = {phase: printed_buckets(start, phase) for phase in (PROMPT, DECODE)}
    shown = {phase: buckets for phase, buckets in lists.items() if buckets}
    return Told(plan, shown, tuple(_log_notes(start, known.assumed)), stands_alone=True)


def _log_notes(start: Start, assumed: Sequence[str]) -> Iterable[str]:
    if assumed:
        yield f"the log doesn't print {', '.join(assumed)}: taken at the default"
    for each in differences(start):
        listed = each.listed.value
        said = (
            f"the log lists {listed.count} {each.phase} buckets where the rules give "
        )
        said += f"{each.predicted}"
        if listed.shapes:
            said += f"; {each.added} stand in the log only"
        if each.like:
            said += f", whose list is that of {', '.join(each.like)}"
        yield f"{said} (finding buckets-differ)"


def _of_document(path: str) -> Told:
    try:
        document = json.loads(_text(path))
        lists = {
            phase: tuple(Bucket(*map(int, each)) for each in buckets)
            for phase, buckets in document["buckets"].items()
        }
        names = {
            *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks"),
            *("block_size", "contiguous_pa"),
        }
        flags = Flags(**{name: document[name] for name in names})
        env = {"VLLM_PROMPT_BS_BUCKET_MAX": str(document["max_num_prefill_seqs"])}
        strategy = document["strategy"]
        if strategy != "file":
            flags = replace(flags, strategy=strategy)
        budget = flags.max_num_batched_tokens
        plan = Plan(document["release"], flags, env, token_budget=budget)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path} is no document of hpuwatch buckets list --format json"
        ) from None
    return Told(plan, lists, stands_alone=True)


def of_operand(text: str, base: Told) -> Told:
    """Return one side of a comparison.

    It is a log, a saved list, a bucket file, an env file, a YAML configuration, a release,
    or settings as ``NAME=VALUE,flag-name=VALUE``; all but the first two change ``base``.

    Raises:
        UsageError: it is none of these.
        MissingFileError: a file can't be read.
    """
    if text == "-" or Path(text).is_file():
        return _of_file(text, base)
    if "=" in text:
        return base.changed(_words(text))
    try:
        release_of(text)
    except ConfigError:
        raise UsageError(
            f"{text!r} is no file, no release, and no NAME=VALUE"
        ) from None
    return base.changed(release=text)


def _of_file(path: str, base: Told) -> Told:
    if Path(path).suffix in {".yaml", ".yml"}:
        return base.changed(changes_of_config(path))
    lines = [] if path == "-" else _statements(_head(path))
    if lines and looks_like_a_bucket(lines[0]):
        return base.changed(bucket_file=read_bucket_file(path))
    if lines and of_file(lines[0], path):
        return base.changed(changes_of_env_file(path))
    return of_path(path)


def _statements(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def _words(text: str) -> list[Change]:
    changes = []
    for word in text.split(","):
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"{word!r} in {text!r} is not NAME=VALUE")
        flag = f"--{name.lstrip('-').replace('_', '-')}"
        changes.append(Change(name if name.isupper() else flag, value))
    return changes


def changes_of_env(given: Sequence[str], *, inherit: bool) -> list[Change]:
    """Return the variables given as KEY=VALUE, behind our own where ``inherit`` says so.

    Raises:
        UsageError: a text holds no ``=``.
    """
    changes = []
    if inherit:
        changes += [
            Change(name, value)
            for name, value in os.environ.items()
            if name.startswith(("VLLM_", "PT_HPU_"))
        ]
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--env {text!r} is not KEY=VALUE")
        changes.append(Change(name, value))
    return changes


def changes_of_env_file(path: str) -> list[Change]:
    """Return the variables of an env file, as a shell, docker or systemd reads it.

    Raises:
        MissingFileError: it can't be read.
    """
    settings = of_file(_text(path), path)
    return [Change(name, each.value) for name, each in settings.items()]


def changes_of_config(path: str) -> list[Change]:
    """Return the flags of vLLM's own configuration file that decide shapes.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no YAML, or no mapping.
    """
    document = config_of(Path(path))
    settings = of_mapping(document, path)
    changes = [
        Change(name, _plain_number(each.value))
        for name, each in settings.items()
        if name in KNOWN_FLAGS and each.value not in _LEFT_TO_VLLM
    ]
    if _SPECULATION in settings:
        value = document.get(_SPECULATION[2:], document.get("speculative_config"))
        changes.append(Change(_DRAFTS, _drafts(path, value)))
    return changes


def _plain_number(text: str) -> str:
    """Return a number without the unit that vLLM's flags allow."""
    number = flag_number(text)
    return text if number is None else str(number)


def _drafts(path: str, value: object) -> str:
    try:
        given = json.loads(value) if isinstance(value, str) else value
        return str(given["num_speculative_tokens"])  # type: ignore[index]  # told below
    except (ValueError, TypeError, KeyError):
        raise InputError(
            f"the speculative-config of {path} names no num_speculative_tokens"
        ) from None


def read_bucket_file(path: str) -> str:
    """Return the text of a bucket file.

    Raises:
        MissingFileError: it can't be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingFileError(
            f"The bucket file {path} can't be read ({error}); name one that exists."
        ) from None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingFileError(f"{path} can't be read ({error})") from None


def _head(path: str) -> str:
    """Return the beginning of a file, by which its kind is told."""
    try:
        with Path(path).open("rb") as file:
            return file.read(64 * 1024).decode("utf-8", "replace")
    except OSError as error:
        raise MissingFileError(f"{path} can't be read ({error})") from None
