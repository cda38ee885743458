"""A configuration to look at: who set what, and what was seen on the machine.

Everything is a recorded fact.  Files and folders were looked at before, so that the same
configuration always gets the same findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.gaudi import checks
from hpuwatch.gaudi.basis import Printed
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.knobs import Knob, named
from hpuwatch.gaudi.releases import NEWEST, Release, release_of
from hpuwatch.gaudi.spans import Point, point_of
from hpuwatch.gaudi.variables import flag_number, is_true
from hpuwatch.gaudi.warmuptime import WarmupLaw, learn

_YES = frozenset({"on", "true", "1"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What somebody set.

    Attributes:
        name: a variable, or a flag as ``--max-num-seqs``; ``--no-…`` is the flag, false.
        value: as it was written; ``true`` for a flag without a value.
        where: as ``command line``, ``environment``, ``best.env:7`` or ``server.log:12``.
    """

    name: str
    value: str
    where: str


@dataclass(frozen=True, slots=True)
class BucketFile:
    """The bucket file, opened as the server will.

    Attributes:
        path: what was opened on this machine.
        text: what it holds, None where it can't be read.
        trouble: why not.
    """

    path: str
    text: str | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WarmupTime:
    """How long warm-up takes, in seconds, and who says so.

    Attributes:
        value: the best guess; ``low`` and ``high`` are its bounds.
        origin: as ``measured: server.log:90``.
    """

    value: float
    low: float
    high: float
    origin: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that the checks look at.

    Attributes:
        release_text: the release as it was given, with its patch.
        settings: what is set, by name.
        command: whether a command line was given, so that what it lacks is known.
        bucket_file: where one is named.
        recipe_cache: what is wrong with the recipe cache's folder, if anything.
        warmup: what warm-up takes, where it was timed with these very settings.
        law: what the graphs of a warm-up cost, of this server's log or of public ones.
        num_blocks: KV blocks, where known.
        printed: what the log of the running server tells of its buckets.
        strategy: by which the log's buckets were made; settings that choose one outweigh it.
        mamba_chunk_size: of a Mamba model, else 0.
        header: of the env file that is to be used.
        server: what machine and server really are, as far as known.
    """

    release_text: str = NEWEST
    settings: Mapping[str, Setting] = field(default_factory=dict)
    command: bool = False
    bucket_file: BucketFile | None = None
    recipe_cache: str = ""
    warmup: WarmupTime | None = None
    law: WarmupLaw = field(default_factory=lambda: learn(()))
    num_blocks: int | None = None
    printed: Printed | None = None
    strategy: str | None = None
    mamba_chunk_size: int = 0
    header: EnvHeader | None = None
    server: EnvHeader = field(default_factory=EnvHeader)

    @property
    def release(self) -> Release:
        """The release, by the one table."""
        return release_of(self.release_text)

    @property
    def at(self) -> Point:
        """The same, to compare with ranges of releases."""
        return point_of(self.release_text)

    def value(self, name: str) -> str | None:
        """Return what is set, else the default of the release, else None."""
        if name in self.settings:
            return self.settings[name].value
        knob = named(name)
        return knob.plain(self.at) if knob else None

    def is_on(self, name: str) -> bool:
        """Tell whether a knob comes to yes under the release, by default too."""
        value = self.value(name)
        if value is None:
            return False
        if name not in self.settings:
            return value in _YES
        return reads_true(named(name), value, self.at)

    def number(self, name: str) -> int | None:
        """Return a whole number that is set or a default, None for anything else."""
        return flag_number(self.value(name) or "")

    def count(self, name: str) -> int | None:
        """Return the size that somebody set, None where it is left to the server.

        So it is without the flag, with ``auto`` and with -1.
        """
        setting = self.settings.get(name)
        number = flag_number(setting.value) if setting else None
        return number if number is not None and number > 0 else None

    @property
    def env(self) -> dict[str, str]:
        """The variables that are set."""
        return {
            name: setting.value
            for name, setting in self.settings.items()
            if not name.startswith("-")
        }

    def known(self) -> Iterator[tuple[Setting, Knob]]:
        """Yield each setting that the table of knobs knows, by name."""
        for name, setting in sorted(self.settings.items()):
            knob = named(name)
            if knob is not None:
                yield setting, knob


def reads_true(knob: Knob | None, value: str, at: Point) -> bool:
    """Tell whether the runtime takes a value for yes."""
    if knob is None:
        return is_true(value)
    if knob.check is checks.not_zero:
        return value != "0"
    found = knob.judge(value, at)
    if found is not None and found.outcome is Outcome.FALSE:
        return False
    return is_true(value)
