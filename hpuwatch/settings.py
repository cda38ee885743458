"""What an operator can set by environment (``HPUWATCH_…``); flags override it.

The state directory follows the contract: ``HPUWATCH_STATE_DIR``, else the XDG state
directory, else ``/var/lib/hpuwatch`` for root.  A wrong value is told in a sentence of our
own that names where it came from: a flag is the command line's mistake, a variable the
configuration's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hpuwatch.errors import ConfigError, HpuwatchError, UsageError
from hpuwatch.listen import FORMS, parse_listen

DEFAULT_LISTEN = "127.0.0.1:9841"

_WORDS = {
    "state_dir": "is no folder's path: name a folder",
    "listen": f"is not an address to listen on: write {FORMS}",
    "name": (
        "is not a name: use up to 64 letters, digits, dots, dashes and underscores, and a "
        "letter or a digit first"
    ),
    "stop_wait_seconds": "is not a time to wait: give a number of seconds above 0",
    "echo": "is neither yes nor no: write true or false",
}
_FLAGS = {"stop_wait_seconds": "--stop-wait", "echo": "--no-echo"}


def _address(text: str) -> str:
    try:
        parse_listen(text)
    except ConfigError as error:
        raise ValueError from error
    return text


class Settings(BaseSettings):
    """The settings that hold for every verb."""

    model_config = SettingsConfigDict(
        env_prefix="HPUWATCH_", extra="ignore", env_ignore_empty=True
    )

    state_dir: Path | None = None
    listen: Annotated[str, AfterValidator(_address)] = DEFAULT_LISTEN
    name: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    stop_wait_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    echo: bool = True

    def state_root(self) -> Path:
        """Return the folder that holds one folder per instance; it may not exist yet."""
        if self.state_dir is not None:
            return self.state_dir
        xdg = os.environ.get("XDG_STATE_HOME")
        if xdg:
            return Path(xdg) / "hpuwatch"
        if os.geteuid() == 0:
            return Path("/var/lib/hpuwatch")
        return Path(os.environ.get("HOME", "/nonexistent")) / ".local/state/hpuwatch"


def load_settings(**overrides: object) -> Settings:
    """Read the settings; an override that is None counts as not given.

    Raises:
        UsageError: a flag's value is wrong; the message names it.
        ConfigError: a variable's value is wrong; likewise.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic validates
    except ValidationError as error:
        first = error.errors()[0]
        setting = str(first["loc"][0])
        raise _wrong(setting, first["input"], flag=setting in given) from error


def _wrong(setting: str, value: object, *, flag: bool) -> HpuwatchError:
    words = f"{str(value)!r} {_WORDS[setting]}"
    if flag:
        name = _FLAGS.get(setting, f"--{setting.replace('_', '-')}")
        return UsageError(f"{name} {words}")
    return ConfigError(f"HPUWATCH_{setting.upper()}={words}")
