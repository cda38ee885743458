"""What a server will get and see: variables, and files where it will look for them.

A path is opened as the server will open it: relative ones against its working directory, in
a container by the folders that are mapped into it, and ``~`` is no home for the code that
opens a bucket file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hpuwatch.advise.envheader import EnvHeader, read_header
from hpuwatch.advise.lint.configuration import BucketFile, Setting
from hpuwatch.advise.lint.words import of_file
from hpuwatch.errors import InputError, MissingFileError
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.gaudi.warmuptime import RECIPES

_ENVIRONMENT = "environment"
_OPTION = "--env"
_INHERITED = ("VLLM_", "PT_", "HABANA_", "HPU_", "EXPERIMENTAL_")
"""What the server's own variables begin with; a misspelt one does too."""


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


def log_and_command(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Tell a log from a command: a log is a file that can't be run, or ``-``."""
    if not words:
        return None, []
    first = words[0]
    path = Path(first)
    named_like_one = path.suffix in {".log", ".gz", ".txt"}
    is_one = path.is_file() and not os.access(path, os.X_OK)
    if first == "-" or named_like_one or is_one:
        return first, list(words[1:])
    return None, list(words)


def inherited(environ: Mapping[str, str]) -> dict[str, Setting]:
    """Return the variables of our own environment that a server looks at."""
    return {
        name: Setting(name, value, _ENVIRONMENT)
        for name, value in environ.items()
        if name.startswith(_INHERITED) or name in KNOBS
    }


def given_variables(
    texts: Sequence[str],
) -> tuple[EnvHeader | None, dict[str, Setting]]:
    """Read ``NAME=VALUE`` and env files, in their order; the last head counts.

    Raises:
        MissingFileError: a text is neither.
    """
    header, settings = None, {}
    for text in texts:
        name, sign, value = text.partition("=")
        if sign and name.isidentifier():
            settings[name] = Setting(name, value, _OPTION)
            continue
        try:
            content = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MissingFileError(
                f"--env {text!r} is neither NAME=VALUE nor an env file that can be read "
                f"({error})"
            ) from None
        header = read_header(content) or header
        settings |= of_file(content, text)
    return header, settings


def config_of(path: Path) -> dict[str, object]:
    """Return what vLLM's own configuration file holds, flags without their dashes.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no YAML, or no mapping.
    """
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MissingFileError(f"{path} can't be read ({error})") from None
    except yaml.YAMLError as error:
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
        return BucketFile(str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        return BucketFile(str(path), None, error.strerror or str(error))
    except UnicodeDecodeError:
        return BucketFile(str(path), None, "it is no text")


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
