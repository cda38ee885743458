"""What an operator can set by environment (``HPUWATCH_…``); flags override it.

The state directory follows the contract: ``HPUWATCH_STATE_DIR``, else the XDG state
directory, else ``/var/lib/hpuwatch`` for root.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hpuwatch.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:9841"


class Settings(BaseSettings):
    """The settings that hold for every verb."""

    model_config = SettingsConfigDict(env_prefix="HPUWATCH_", extra="ignore")

    state_dir: Path | None = None
    listen: str = DEFAULT_LISTEN
    name: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    stop_wait_seconds: float = Field(default=120.0, gt=0)
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
        ConfigError: a value is wrong; the message names it.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]  # pydantic validates
    except ValidationError as error:
        first = error.errors()[0]
        where = "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(
            f"HPUWATCH_{where} (or its flag) is wrong: {first['msg']}, got {first['input']!r}"
        ) from error
