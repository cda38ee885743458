"""Where the files that ship beside the code are: log rules and dashboards.

A wheel carries them as ``hpuwatch/_data``; a checkout and an editable install have them
beside the package.
"""

from __future__ import annotations

from pathlib import Path

from hpuwatch.errors import ConfigError

_PACKAGE = Path(__file__).parent


def data_dir(name: str) -> Path:
    """Return the folder ``rules`` or ``grafana``.

    Raises:
        ConfigError: the installation lacks it.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"this installation lacks its {name}/ folder: install hpuwatch again"
    )
