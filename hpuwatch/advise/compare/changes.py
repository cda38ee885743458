"""What differs between two starts before anything is measured: who, and how it was set.

A setting that only one of two logs shows may be unset in the other, or unprinted; where the
release has a default, that is what held then.  Another release also changes what nobody set:
its defaults, and which settings it heeds at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.compare.settings import same_value
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.knob import BUCKETS, PREFIXES
from hpuwatch.gaudi.knobs import KNOBS, named
from hpuwatch.gaudi.spans import Point, point_of
from hpuwatch.gaudi.warmuptime import RECIPES

ChangeKind = Literal["identity", "setting", "default", "heed"]


class ChangePart(BaseModel):
    """A change from A to B.

    Attributes:
        kind: ``identity`` (release, model, card …), ``setting``, ``default`` (the release
            has another one, and nobody set it), or ``heed`` (set alike, but only one of
            the releases acts on it).
        name: ``release``, ``model`` …, a variable or a flag.
        a: its value in A; null where A's log doesn't show it.
        b: likewise.
        note: what is to be known of it, in a clause.
    """

    model_config = ConfigDict(frozen=True)

    kind: ChangeKind
    name: str
    a: str | None
    b: str | None
    note: str = ""

    def __str__(self) -> str:
        """Return it in a few words: ``NAME 0.1 → 0.4``."""
        return f"{self.name} {self.a or 'unset'} → {self.b or 'unset'}"


_IDENTITY = (
    "release",
    "version",
    "build",
    "engine",
    "model",
    "card",
    "tp",
    "bridge_mode",
)


def changes_between(a: StartRecord, b: StartRecord) -> tuple[ChangePart, ...]:
    """Return every change, who it was first."""
    return (*_identity(a, b), *_settings(a, b), *_of_releases(a, b))


def _identity(a: StartRecord, b: StartRecord) -> Iterator[ChangePart]:
    for name in _IDENTITY:
        one, other = getattr(a.server, name), getattr(b.server, name)
        if one is not None and other is not None and one != other:
            yield ChangePart(kind="identity", name=name, a=str(one), b=str(other))
    if a.origin != b.origin:
        yield ChangePart(kind="identity", name="origin", a=a.origin, b=b.origin)


def _settings(a: StartRecord, b: StartRecord) -> Iterator[ChangePart]:
    points = point_in(a), point_in(b)
    for name in sorted(a.settings.keys() | b.settings.keys()):
        one, other = a.settings.get(name), b.settings.get(name)
        if name == "--tensor-parallel-size" or (
            one is not None and other is not None and same_value(one, other)
        ):
            continue
        lone = one if other is None else other
        missing = points[1] if other is None else points[0]
        default = _default(name, missing) if None in (one, other) else None
        is_flag = name.startswith("--")
        if is_flag and default and lone is not None and same_value(lone, default):
            continue  # a flag that isn't given; a variable's default may have conditions
        note = f"its default is {default}" if default else ""
        yield ChangePart(kind="setting", name=name, a=one, b=other, note=note)


def _default(name: str, at: Point | None) -> str | None:
    knob = named(name)
    return knob.plain(at) if knob is not None and at is not None else None


def _of_releases(a: StartRecord, b: StartRecord) -> Iterator[ChangePart]:
    one, other = point_in(a), point_in(b)
    if one is None or other is None or one == other:
        return
    for name, knob in sorted(KNOBS.items()):
        if knob.internal:
            continue
        value = a.settings.get(name)
        if name not in a.settings and name not in b.settings:
            defaults = knob.plain(one), knob.plain(other)
            if None not in defaults and defaults[0] != defaults[1]:
                yield ChangePart(
                    kind="default", name=name, a=defaults[0], b=defaults[1]
                )
            continue
        is_alike = value is not None and value == b.settings.get(name)
        if is_alike and knob.acts(one) != knob.acts(other):
            only = a if knob.acts(one) else b
            note = f"only {only.server.release} acts on it"
            yield ChangePart(kind="heed", name=name, a=value, b=value, note=note)


def point_in(record: StartRecord) -> Point | None:
    """Return where a start's release stands, None where it is unknown."""
    text = record.plan.release_text if record.plan else record.server.release
    try:
        return point_of(text) if text else None
    except ConfigError:
        return None


_SIZES = frozenset(
    {"--max-num-batched-tokens", "--max-num-seqs", "--max-model-len", "--block-size"}
)
_OF_RELEASE = frozenset({"version", "build", "engine"})
_ALWAYS = _OF_RELEASE | frozenset(
    {"release", "bridge_mode", "model", "card", "tp", "--quantization"}
)
"""What may move any figure."""
_COMPILES = frozenset({"graphs", "warm-up", "attention"})
_SIZED = frozenset({"profile_run_bytes", "free_bytes", "elsewhere_bytes"})
_SPLIT = frozenset(
    {"usable_bytes", "reserve_bytes", "kv_cache_bytes", "kv_blocks", "kv_tokens"}
)
_COUNTS = frozenset({"prompt_buckets", "decode_buckets"})


def suspects(changes: Iterable[ChangePart], figure: str) -> tuple[str, ...]:
    """Return the names of changes that can move a figure, nobody can say by how much.

    What comes with another release stands for itself only where the releases are one.
    """
    names = dict.fromkeys(each.name for each in changes if _can_move(each.name, figure))
    implied = _OF_RELEASE if "release" in names else frozenset()
    return tuple(name for name in names if name not in implied)


def _can_move(name: str, figure: str) -> bool:
    if name in _ALWAYS:
        return True
    knob = named(name)
    group = knob.group if knob is not None else ""
    if figure in _SIZED or figure == "weights_bytes":
        return name in _SIZES and figure in _SIZED
    if figure in _SPLIT:
        return group == "memory" or name in _SIZES
    if figure in _COUNTS:
        other = "DECODE" if figure == "prompt_buckets" else "PROMPT"
        return (group == BUCKETS and other not in name) or name in _SIZES
    unknown = knob is None and name.startswith(PREFIXES)
    compiles = (
        group in {BUCKETS, *_COMPILES}
        if figure == "graph_bytes"
        else (group in _COMPILES or name == RECIPES or unknown)
    )
    return compiles or name in _SIZES
