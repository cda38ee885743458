"""Where a configuration for ``hpuwatch buckets`` comes from: a log, files, words, options.

Everything becomes a :class:`Told`: a plan, and lists where something prints them.  Settings
are laid over it in turn: vLLM's own configuration file, env files, our environment,
``--env`` and options.  Lists that were printed hold only as long as nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpuwatch.advise.baseline import plan_of
from hpuwatch.advise.lint.configuration import Setting
from hpuwatch.advise.lint.words import of_command, of_file, of_mapping
from hpuwatch.app.server_inputs import (
    change_of,
    changes_of_variables,
    config_of,
    is_file,
    read_text,
)
from hpuwatch.errors import ConfigError, InputError, MissingFileError, UsageError
from hpuwatch.gaudi.bucketlines import looks_like_a_bucket
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.planning import KNOWN_FLAGS, Change, Plan, applied
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.resolve import FILE_VARIABLE, MAX_NUM_SEQS, Flags
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.state.configured import configured, differences, printed_lists
from hpuwatch.state.model import Start

SCHEMA = "hpuwatch.buckets/1"

UNKNOWN = 0  # stands for a size that has no default, until something tells it
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
        return UNKNOWN not in {
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
            if size == UNKNOWN:
                raise UsageError(
                    f"nothing tells {name}: give it, or a log that prints it"
                )
        return flags.num_blocks


def _nothing() -> Flags:
    return Flags(
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=UNKNOWN,
        max_model_len=UNKNOWN,
        num_blocks=UNKNOWN,
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
    from hpuwatch.app.report import starts_of

    start = starts_of(path)[-1]
    known = configured(start)
    if known is None:
        raise InputError(
            f"{path} doesn't tell a version, the model's length and KV blocks: give a "
            "log from the server's start on, or options"
        )
    notes = tuple(_log_notes(start, known.assumed))
    return Told(plan_of(start, known), printed_lists(start), notes, stands_alone=True)


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
        document = json.loads(read_text(path))
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
    if text == "-" or is_file(text):
        return _of_file(text, base)
    if "=" in text:
        return base.changed(change_of(each, "setting") for each in text.split(","))
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
        return base.changed(changes_of_variables((), [path]))
    return of_path(path)


def _statements(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def changes_of_config(path: str) -> list[Change]:
    """Return the flags of vLLM's own configuration file that decide shapes.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no YAML, or no mapping.
    """
    document = config_of(Path(path))
    speculation = document.get(_SPECULATION[2:], document.get("speculative_config"))
    return _of_flags(of_mapping(document, path), path, speculation)


def changes_of_command(words: Sequence[str]) -> list[Change]:
    """Return the variables of a command line, and its flags that decide shapes.

    Raises:
        UsageError: the script of a shell can't be read.
        MissingFileError, InputError: as :func:`changes_of_config`, of its ``--config``.
    """
    found = of_command(words)
    changes = changes_of_config(found["--config"].value) if "--config" in found else []
    for name, each in found.items():
        if not name.startswith("-"):
            changes.append(Change(name, each.value or None))
    speculation = found[_SPECULATION].value if _SPECULATION in found else None
    return changes + _of_flags(found, "the command line", speculation)


def _of_flags(
    settings: Mapping[str, Setting], where: str, speculation: object
) -> list[Change]:
    changes = [
        Change(name, _plain_number(each.value))
        for name, each in settings.items()
        if name in KNOWN_FLAGS and each.value not in _LEFT_TO_VLLM
    ]
    if _SPECULATION in settings:
        changes.append(Change(_DRAFTS, _drafts(where, speculation)))
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


def with_file(plan: Plan) -> Plan:
    """Read the bucket file that the plan names, where its release reads one.

    Raises:
        MissingFileError: it can't be read.
    """
    path = plan.env.get(FILE_VARIABLE)
    reads = "file" in dialect_of(plan.release.dialect).strategies
    if not path or not reads or plan.flags.bucket_file is not None:
        return plan
    return replace(plan, flags=replace(plan.flags, bucket_file=read_bucket_file(path)))


def read_bucket_file(path: str) -> str:
    """Return the text of a bucket file.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no text.
    """
    try:
        return read_text(path)
    except (MissingFileError, InputError) as error:
        raise type(error)(
            f"the bucket file {error}; it holds lines such as (1, 128, 0)"
        ) from None


def _head(path: str) -> str:
    """Return the beginning of a file, by which its kind is told; of a pipe, nothing."""
    if not is_file(path):
        return ""  # whoever reads it says what it is instead
    try:
        with Path(path).open("rb") as file:
            return file.read(64 * 1024).decode("utf-8", "replace")
    except OSError as error:
        raise MissingFileError(f"{path} can't be read ({error.strerror})") from None
