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
from itertools import pairwise

from hpuwatch.advise.lint.configuration import Setting
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.knobs import ALIASES, KNOBS
from hpuwatch.state.configured import acting_variables
from hpuwatch.state.model import Start

COMMAND = "command line"
MODEL = "--model"

_SKIP = "VLLM_SKIP_WARMUP"

_ASSIGNMENT = re.compile(r"(?:--env=)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"serve|.*api_server(?:\.py)?")
_SEPARATORS = ";&|()"
_REDIRECTION = re.compile(r"\d*[<>]{1,3}(.*)", re.DOTALL)
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


def env_files_of(words: Sequence[str]) -> list[str]:
    """Return the files that ``docker run --env-file`` names before the server's word."""
    found = []
    for word, following in pairwise([*words, ""]):
        if _SERVER.fullmatch(word):
            break
        name, equals, value = word.partition("=")
        if name == "--env-file":
            found.append(value if equals else following)
    return found


def _without_shell(words: list[str]) -> list[str]:
    """Open ``bash -c '…'``: what it sets, and the words of the server's own command."""
    for number, word in enumerate(words[:-1]):
        is_script = re.fullmatch(r"-\w*c", words[number + 1])
        if word in _SHELLS and is_script and len(words) > number + 2:
            try:
                inner = _script(words[number + 2])
            except ValueError as error:
                raise UsageError(
                    f"the script of {word} can't be read ({error}): quote it as a shell "
                    "would"
                ) from None
            return words[:number] + inner
    return words


def _script(text: str) -> list[str]:
    """Return the words of a shell's script up to the end of the server's command.

    Separators end a command, so they are no part of a value; redirections are left out.

    Raises:
        ValueError: a quotation isn't closed.
    """
    lexer = shlex.shlex(
        text.replace("\\\n", " "), posix=True, punctuation_chars=f"{_SEPARATORS}\n"
    )
    lexer.whitespace_split = True
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    found: list[str] = []
    redirected = False
    for word in lexer:
        if word.strip(_SEPARATORS + "\n") == "":
            if any(_SERVER.fullmatch(each) for each in found):
                break
            redirected = False
        elif redirected:
            redirected = False
        elif redirection := _REDIRECTION.fullmatch(word):
            redirected = not redirection[1]
        elif word != "exec":
            found.append(word)
    return found


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
    found = {
        variable: Setting(variable, known.value, f"{name}:{known.line.number}")
        for variable, known in acting_variables(server).items()
    }
    sizes = {
        "--max-model-len": server.max_model_len,
        "--max-num-seqs": server.max_num_seqs,
        "--max-num-batched-tokens": server.max_num_batched_tokens,
        "--block-size": server.block_size,
        "--tensor-parallel-size": server.tensor_parallel,
        MODEL: server.model,
    }
    skipped = start.warmup.skipped
    if skipped is not None:
        where = f"{name}:{skipped.line.number}"
        found.setdefault(_SKIP, Setting(_SKIP, "true", where))
    for flag, printed in sizes.items():
        if printed is not None:
            where = f"{name}:{printed.line.number}"
            found[flag] = Setting(flag, str(printed.value), where)
    return found


def of_mapping(values: Mapping[str, object], name: str) -> dict[str, Setting]:
    """Return what vLLM's own configuration file sets."""
    found = {}
    for key, value in values.items():
        flag, is_on = flag_name("--" + str(key))
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[flag] = Setting(flag, text if is_on else "false", name)
    return found
