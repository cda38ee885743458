"""What a server will get and see: variables, and files where it will look for them.

A path is opened as the server will open it: relative ones against its working directory, in
a container by the folders that are mapped into it, and ``~`` is no home for the code that
opens a bucket file.
"""

from __future__ import annotations

import codecs
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hpuwatch.advise.envheader import EnvHeader, read_header
from hpuwatch.advise.lint.configuration import BucketFile, Setting
from hpuwatch.advise.lint.words import of_file
from hpuwatch.errors import InputError, MissingFileError, UsageError
from hpuwatch.gaudi.knob import PREFIXES
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import Change
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.gaudi.warmuptime import RECIPES
from hpuwatch.units import MIB, format_bytes

_ENVIRONMENT = "environment"
_OPTION = "--env"
_MOST_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class View:
    """How the server sees files.

    Attributes:
        folder: its working directory, on this machine or in its container.
        mapped: (folder in the container, folder here), the longest first.
    """

    folder: str = "."
    mapped: tuple[tuple[str, str], ...] = ()

    def find(self, path: str) -> Path:
        """Return where a path of the server's lies on this machine."""
        inside = PurePosixPath(self.folder) / path
        for container, here in self.mapped:
            if inside.is_relative_to(container):
                return Path(here) / inside.relative_to(container)
        return Path(inside)


def is_file(text: str) -> bool:
    """Tell whether a word names a regular file; one too long for a name doesn't."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def log_and_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Tell a log from a command: a log is a file that can't be run, or ``-``."""
    if not words:
        return None, []
    first = words[0]
    path = Path(first)
    named_like_one = path.suffix in {".log", ".gz", ".txt"}
    is_one = is_file(first) and not os.access(path, os.X_OK)
    # Words are a command where the first can be run, or flags or ``serve`` follow it.
    runs = any(word.startswith("-") or word == "serve" for word in words[1:])
    is_one = is_one or not (runs or shutil.which(first))
    if first == "-" or named_like_one or is_one:
        return first, list(words[1:])
    return None, list(words)


def logs_and_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell any number of logs from the command behind them."""
    logs: list[str] = []
    log, rest = log_and_command(words)
    while log is not None:
        logs.append(log)
        log, rest = log_and_command(rest)
    return logs, rest


def inherited(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Return the variables of our own environment that a server looks at."""
    return {
        name: Setting(name, value, _ENVIRONMENT)
        for name, value in environ.items()
        if name.startswith(PREFIXES) or name in KNOBS
    }


def given_variables(
    texts: Sequence[str], files: Sequence[str] = ()
) -> tuple[EnvHeader | None, dict[str, Setting]]:
    """Read env files, then ``NAME=VALUE`` and more env files; the last head counts.

    Raises:
        MissingFileError: a text is neither, or a file can't be read.
        InputError: a file is none of text.
    """
    header: EnvHeader | None = None
    settings: dict[str, Setting] = {}
    for path in files:
        content = read_text(path)
        header = read_header(content) or header
        settings |= of_file(content, path)
    for text in texts:
        name, sign, value = text.partition("=")
        if sign and name.isidentifier():
            settings[name] = Setting(name, value, _OPTION)
            continue
        try:
            content = read_text(text)
        except MissingFileError as error:
            raise MissingFileError(
                f"--env {text!r} is neither NAME=VALUE nor an env file: {error}"
            ) from None
        header = read_header(content) or header
        settings |= of_file(content, text)
    return header, settings


def overlaid(
    settings: Mapping[str, Setting], given: Mapping[str, Setting]
) -> dict[str, Setting]:
    """Return the settings with variables on top; one that is given empty is unset."""
    both = {**settings, **given}
    return {
        name: each for name, each in both.items() if each.value or name not in given
    }


def changes_of_variables(
    texts: Sequence[str],
    files: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[Change]:
    """Return variables as changes: ``environ``'s, then those given; there no value unsets.

    Raises:
        MissingFileError, InputError: as :func:`given_variables`.
    """
    return headed_changes(texts, files, environ)[1]


def headed_changes(
    texts: Sequence[str],
    files: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[EnvHeader | None, list[Change]]:
    """Return the head of the env files, and :func:`changes_of_variables`."""
    ours = inherited(environ or {})
    header, given = given_variables(texts, files)
    return header, [
        *(Change(each.name, each.value) for each in ours.values()),
        *(Change(each.name, each.value or None) for each in given.values()),
    ]


def change_of(text: str, said: str) -> Change:
    """Read ``NAME=VALUE``, where a name that isn't in capitals is a flag; no value unsets.

    Raises:
        UsageError: it is something else; begins with ``said``.
    """
    name, sign, value = text.partition("=")
    if not sign:
        name, sign, value = text.strip().partition(" ")
    name = name.strip()
    if not sign or not name:
        raise UsageError(f"{said} {text!r} is not NAME=VALUE")
    if not name.isupper():
        name = f"--{name.lstrip('-').replace('_', '-')}"
    return Change(name, value.strip() or None)


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is a folder, no regular file, too large, or no text.
    """
    try:
        return _text_of(path, encoding)
    except OSError as error:
        raise MissingFileError(
            f"{path} can't be read ({error.strerror}): check the name and its permissions"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} {error}") from None


def _text_of(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, never waiting for a pipe or reading a device on and on.

    Raises:
        OSError: it can't be read.
        ValueError: it isn't what it should be; says what it is, to be read after its name.
    """
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        is_folder = stat.S_ISDIR(mode)
        raise ValueError("is a folder" if is_folder else "is no regular file")
    with Path(path).open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"is larger than {format_bytes(_MOST_BYTES)}")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        told = "UTF-16" if utf16 else f"byte {error.start + 1:,}: {error.reason}"
        raise ValueError(f"is no text in UTF-8 ({told})") from None


def config_of(path: Path) -> dict[str, object]:
    """Return what vLLM's own configuration file holds, flags without their dashes.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no text, no YAML, or no mapping.
    """
    import yaml

    text = read_text(path)
    try:
        document = yaml.safe_load(text)
    # A date like 2024-13-45 or a number of 5,000 digits is a ValueError.
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{path} is no YAML: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} holds no settings: one NAME: VALUE a line")
    return {str(name): value for name, value in document.items()}


def bucket_file_of(settings: Mapping[str, Setting], view: View) -> BucketFile | None:
    """Return the bucket file that is set, opened or not; None where none is."""
    setting = settings.get(FILE_VARIABLE)
    if setting is None or not setting.value:
        return None
    path = view.find(setting.value)
    try:
        return BucketFile(str(path), _text_of(path))
    except OSError as error:
        return BucketFile(str(path), None, error.strerror or str(error))
    except ValueError as error:
        return BucketFile(str(path), None, f"it {error}")


def recipe_cache_trouble(settings: Mapping[str, Setting], view: View) -> str:
    """Return what is wrong with the folder of the recipe cache."""
    from hpuwatch.app.doctor import WARNING, mounts, recipe_cache

    setting = settings.get(RECIPES)
    if setting is None or not setting.value:
        return ""
    folder = setting.value.split(",")[0].strip()
    if not folder:
        return ""
    seen = recipe_cache(str(view.find(folder)), mounts())
    return seen.text if seen.status == WARNING else ""
