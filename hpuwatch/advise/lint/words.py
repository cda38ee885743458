"""From the words of a command line, and from a log, to settings.

A server is started in many ways: ``vllm serve MODEL …``, ``python -m
vllm.entrypoints.openai.api_server …``, with ``env NAME=VALUE`` before it, in ``bash -c '…'``
or in ``docker run -e NAME=VALUE IMAGE vllm serve …``.  Variables stand before the server's
own word, its flags behind it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from hpuwatch.advise.lint.configuration import Setting
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.knobs import ALIASES, KNOBS
from hpuwatch.state.configured import echoes_default
from hpuwatch.state.model import Known, Start

COMMAND = "command line"
MODEL = "--model"

_ASSIGNMENT = re.compile(r"(?:--env=)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"serve|.*api_server(?:\.py)?")
_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash"})
_NUMBER = re.compile(r"-\d+(\.\d+)?")
_SWITCHES = frozenset(
    {"--enforce-eager", "--trust-remote-code", "--enable-prefix-caching"}
    | {"--enable-chunked-prefill", "--use-padding-aware-scheduling"}
)


def of_command(words: Sequence[str]) -> dict[str, Setting]:
    """Return what a command line sets, by name; the last of two wins.

    The model, where it is given without a flag, comes as ``--model``.

    Raises:
        UsageError: the script of a shell can't be read.
    """
    flat = _without_shell(list(words))
    begin = next(
        (n for n, word in enumerate(flat) if _SERVER.fullmatch(word)), len(flat) - 1
    )
    if not flat or not _SERVER.fullmatch(flat[begin]):
        begin = next((n for n, w in enumerate(flat) if not _ASSIGNMENT.fullmatch(w)), 0)
    found: dict[str, Setting] = {}
    for word in flat[:begin]:
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned:
            found[assigned[1]] = Setting(assigned[1], assigned[2], COMMAND)
    for name, value in _flags(flat[begin + 1 :]):
        found[name] = Setting(name, value, COMMAND)
    return found


def _without_shell(words: list[str]) -> list[str]:
    """Open ``bash -c '…'``."""
    for number, word in enumerate(words[:-1]):
        is_script = re.fullmatch(r"-\w*c", words[number + 1])
        if word in _SHELLS and is_script and len(words) > number + 2:
            try:
                inner = shlex.split(words[number + 2])
            except ValueError as error:
                raise UsageError(
                    f"the script of {word} can't be read ({error}): quote it as a shell "
                    "would"
                ) from None
            return words[:number] + [each for each in inner if each != "exec"]
    return words


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            yield MODEL, word
            continue
        written, equals, value = word.partition("=")
        name, is_on = flag_name(written)
        if equals:
            yield name, value
        elif not is_on:
            yield name, "false"
        elif name in _SWITCHES or not waiting or _is_flag(waiting[-1]):
            yield name, "true"
        else:
            yield name, waiting.pop()


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)


def flag_name(written: str) -> tuple[str, bool]:
    """Return a flag's full name, and False where it is negated.

    vLLM takes underscores for dashes, and a beginning for the whole where it is the only
    flag that begins so.
    """
    if not written.startswith("--"):
        return ALIASES.get(written, written), True
    name = written.replace("_", "-")
    positive = "--" + name.removeprefix("--no-")
    if name.startswith("--no-") and (positive in KNOBS or "-enable-" in name):
        return positive, False
    if name in KNOBS or name == MODEL:
        return name, True
    longer = [knob for knob in KNOBS if knob.startswith(name) and len(name) > 5]
    return (longer[0], True) if len(longer) == 1 else (name, True)


def of_file(text: str, name: str) -> dict[str, Setting]:
    """Return what an env file sets, as a shell, docker or systemd reads it."""
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip().removeprefix("export ").strip()
        assigned = _ASSIGNMENT.fullmatch(stripped)
        if assigned and not stripped.startswith("#"):
            value = _unquoted(assigned[2].strip())
            found[assigned[1]] = Setting(assigned[1], value, f"{name}:{number}")
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def of_log(start: Start, name: str) -> dict[str, Setting]:
    """Return what a log says that its server was given."""
    server = start.server
    variables = {
        variable: known
        for variable, known in server.flags.items()
        if variable.isupper() and known.value not in {"", "None"}
    }
    found = {
        variable: Setting(variable, known.value, f"{name}:{known.line.number}")
        for variable, known in variables.items()
        if not echoes_default(known) and not _stands_for_seq(variable, variables)
    }
    sizes = {
        "--max-model-len": server.max_model_len,
        "--max-num-seqs": server.max_num_seqs,
        "--max-num-batched-tokens": server.max_num_batched_tokens,
        "--block-size": server.block_size,
        "--tensor-parallel-size": server.tensor_parallel,
        MODEL: server.model,
    }
    for flag, printed in sizes.items():
        if printed is not None:
            where = f"{name}:{printed.line.number}"
            found[flag] = Setting(flag, str(printed.value), where)
    return found


def _stands_for_seq(name: str, variables: Mapping[str, Known[str]]) -> bool:
    """Tell whether a bound was not set, but came from its older spelling.

    A release prints what each bound came to as ``NAME=value (default:value)``.
    """
    older = variables.get(name.replace("_QUERY_", "_SEQ_"))
    newer = variables[name]
    return (
        older is not None
        and older is not newer
        and older.value == newer.value
        and "(default:" in newer.line.text
    )


def of_mapping(values: Mapping[str, object], name: str) -> dict[str, Setting]:
    """Return what vLLM's own configuration file sets."""
    found = {}
    for key, value in values.items():
        flag, is_on = flag_name("--" + str(key))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[flag] = Setting(flag, text if is_on else "false", name)
    return found
