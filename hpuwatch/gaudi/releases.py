"""From any version string to the dialect of its buckets, by one table.

A *release* is what the user runs.  Where nobody has compared a release with the dialect
that we use for it, the release says what it is *assumed like*.  Gaudi's fork of vLLM is
named after the Gaudi software (1.18 to 1.23); the plugin carries vLLM's own numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpuwatch.errors import ConfigError

NEWEST = "plugin-0.26"


@dataclass(frozen=True, slots=True)
class Release:
    """A release and the rules that hold for it.

    Attributes:
        name: as we spell it: ``plugin-0.26``, ``fork-1.22`` or ``plugin-head``.
        dialect: the name of the bucket rules, for ``gaudi.dialects``.
        assumed_like: the release whose rules are used without proof, else None.
    """

    name: str
    dialect: str
    assumed_like: str | None = None

    @property
    def assumption(self) -> str | None:
        """What is taken without proof, as a clause; None where nothing is."""
        if self.assumed_like is None:
            return None
        return f"assumed like {self.assumed_like}; nobody has compared them"


# The minor number of a plugin → the minor number whose dialect holds, and the one that it
# is assumed like where the two were never compared.
_PLUGINS: dict[int, tuple[int, int | None]] = {
    10: (10, None),
    11: (11, None),
    12: (13, 13),
    13: (13, None),
    14: (14, None),
    15: (16, None),
    16: (16, None),
    17: (17, None),
    18: (18, 17),
    19: (19, None),
    20: (20, None),
    21: (21, None),
    22: (21, 21),
    23: (26, 26),
    24: (26, None),
    25: (26, 26),
    26: (26, None),
    27: (26, 26),
}
# The same for the fork, by the minor number of the Gaudi software 1.x.
_FORKS: dict[int, tuple[int, int | None]] = {
    16: (18, 18),
    17: (18, 18),
    18: (18, None),
    19: (20, 20),
    20: (20, None),
    21: (21, None),
    22: (22, None),
    23: (22, 22),
}
# vLLM before the plugin → the Gaudi software of its time.  It says nothing of the patch
# release, and the in-tree code of that vLLM, which begins with 0.6.4, was never compared.
_BEFORE_PLUGIN = {4: 16, 5: 18, 6: 19, 7: 21, 8: 21, 9: 22}
_FORK_ALONE = re.compile(r"0\.(?:[45]|6\.[0-3])(?!\d)")

# These two ran older bucket code than the releases that were compared.
_OLDER_CODE = re.compile(r"1\.21\.[01](?!\d)")
_NUMBER = re.compile(r"(\d+)\.(\d+)")
_GAUDI = re.compile(r"gaudi-(\d+)\.(\d+)", re.IGNORECASE)


def release_of(text: str) -> Release:
    """Return the release that ``text`` names.

    ``text`` may be ``plugin-0.26``, ``fork-1.22``, ``plugin-head``, or a version as a
    package or a log has it: ``0.26.0``, ``v0.19.1``, ``0.9.0.1+Gaudi-1.22.0``.

    Raises:
        ConfigError: it holds no version, or one that never ran on Gaudi.
    """
    word = text.strip().lower()
    if word.endswith(("head", "main")):
        return Release("plugin-head", "gaudi-plugin-head")
    gaudi = _GAUDI.search(word) if "plugin" not in word else None
    number = gaudi or _NUMBER.search(word)
    if number is None:
        raise _unknown(text)
    major, minor = int(number[1]), int(number[2])
    if "fork" in word or gaudi or major == 1:
        found = _fork(minor, word) if major == 1 else _before_plugin(major, minor, word)
    elif major == 0 and minor < min(_PLUGINS) and "plugin" not in word:
        found = _before_plugin(major, minor, word)
    else:
        found = _plugin(major, minor, exact="0.27.0rc0" in word)
    if found is None:
        raise _unknown(text)
    return found


def _unknown(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} names no release that runs on Gaudi; say something like "
        "plugin-0.26, fork-1.22 or plugin-head.",
    )


def _plugin(major: int, minor: int, *, exact: bool) -> Release | None:
    if major > 1 or (major == 0 and minor > max(_PLUGINS)):
        name = f"plugin-{major}.{minor}"
        return Release(name, "gaudi-plugin-head", "plugin-head")
    if minor not in _PLUGINS:
        return None
    dialect, like = _PLUGINS[minor]
    return Release(
        f"plugin-0.{minor}",
        f"gaudi-plugin-0.{dialect}",
        None if exact or like is None else f"plugin-0.{like}",
    )


def _fork(minor: int, word: str) -> Release | None:
    if minor > max(_FORKS):
        # The fork ended with 1.23: this is the Gaudi software of a plugin.
        return Release(f"gaudi-1.{minor}", f"gaudi-{NEWEST}", NEWEST)
    if minor not in _FORKS:
        return None
    dialect, like = _FORKS[minor]
    if _OLDER_CODE.search(word):
        like = dialect
    return Release(
        f"fork-1.{minor}",
        f"fork-1.{dialect}",
        None if like is None else f"fork-1.{like}",
    )


def _before_plugin(major: int, minor: int, word: str) -> Release | None:
    if major != 0 or minor not in _BEFORE_PLUGIN:
        return None
    gaudi = _BEFORE_PLUGIN[minor]
    name = f"fork-1.{gaudi}" if _FORK_ALONE.search(word) else f"vllm-0.{minor}"
    like = f"fork-1.{_FORKS[gaudi][0]}"
    return Release(name, like, like)
