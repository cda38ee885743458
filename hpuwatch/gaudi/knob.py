"""What is told about a knob: an environment variable or a flag of the server."""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.checks import Check, Judgement
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import Point, covers, point_of

YES = "true, t, 1, yes, y or on; everything else is false"
ONE_YES = "true; up to fork-1.21 no other word, later also t, 1, yes, y or on"
WHOLE = "a whole number"
COUNT = "a whole number, 1 or more"

PREFIXES = ("VLLM_", "PT_", "HABANA_", "HPU_", "EXPERIMENTAL_")
"""What the server's own variables begin with; a misspelt one does too."""

BUCKETS = "buckets"
GROUPS = {
    "memory": "Memory",
    "buckets": "Buckets",
    "attention": "Attention",
    "graphs": "Graphs and compilation",
    "warm-up": "Warm-up",
    "restart": "Restart",
    "logs": "Logs and profiles",
    "other": "Cards and host",
}


@dataclass(frozen=True, slots=True)
class Knob:
    """One environment variable or flag.

    Attributes:
        name: as it is set: ``VLLM_…``, ``PT_HPU_…`` or ``--flag``.
        group: a key of ``GROUPS``.
        decides: what it decides, one or two sentences.
        honoured: the releases that act on it, as ``gaudi.spans`` writes them.
        defaults: (releases, value or formula) for each default that it has had, newest
            first; a single text where there was only one.  After a semicolon stands what
            else it is, and when.
        legal: what may be set, in words.
        check: returns what is wrong with a value under a release, or None.
        beware: what surprises people, and what it has to do with other knobs.
        successor: the name that took its place.
        refused: the releases in whose vLLM the flag is unknown, so that it doesn't start.
        internal: the server sets it itself; people don't.
    """

    name: str
    group: str
    decides: str
    honoured: str
    defaults: str | tuple[tuple[str, str], ...]
    legal: str
    check: Check = checks.anything
    beware: str = ""
    successor: str = ""
    refused: str = "none"
    internal: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether it stands on the command line, not in the environment."""
        return self.name.startswith("--")

    def default(self, at: Point) -> str | None:
        """Return the default of a release, None where it doesn't act."""
        if not self.acts(at):
            return None
        return next((value for spans, value in self.rows if covers(spans, at)), None)

    def plain(self, at: Point) -> str | None:
        """Return the default without what stands after its semicolon."""
        default = self.default(at)
        return None if default is None else default.partition(";")[0]

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The defaults with their releases, newest first."""
        if isinstance(self.defaults, str):
            return ((self.honoured, self.defaults),)
        return self.defaults

    def acts(self, at: Point) -> bool:
        """Tell whether the release acts on it."""
        return covers(self.honoured, at)

    def is_refused(self, at: Point) -> bool:
        """Tell whether the release's command line doesn't know the flag."""
        return covers(self.refused, at)

    def judge(self, value: str, at: Point) -> Judgement | None:
        """Return what is wrong with a value under a release, or None."""
        return self.check(value, at)

    def complaint(self, value: str, release: str = NEWEST) -> str | None:
        """Return what is wrong with ``value`` under a release, in a sentence, or None."""
        found = self.judge(value, point_of(release))
        return None if found is None else f"{self.name}: {found.text}."
