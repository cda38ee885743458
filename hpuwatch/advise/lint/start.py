"""What spoils a start or leaves it open to others: time-outs, cards, caches, secrets."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.lint.configuration import Configuration, Setting, WarmupTime
from hpuwatch.advise.lint.remark import Remark, unset
from hpuwatch.advise.lint.shapes import prepared
from hpuwatch.advise.lint.words import COMMAND
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.planning import (
    READY_LIMIT,
    READY_TIMEOUT,
    patient_seconds,
    ready_seconds,
)
from hpuwatch.gaudi.warmuptime import RECIPES
from hpuwatch.parse.mask import mask_value

_NEAR = 0.8
"""A warm-up that takes more than this share of the time-out is told of."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", "[::]", ""})  # noqa: S104  what is looked for
_KEYS = ("--api-key", "VLLM_API_KEY")


def ready_timeout(found: Configuration) -> Iterator[Remark]:
    """Compare the engine's start time-out with what warm-up will take."""
    warmup = found.warmup or _by_its_buckets(found)
    seconds = ready_seconds(found.env, found.at)
    if warmup is None or seconds is None or warmup.value <= seconds * _NEAR:
        return
    acts = KNOBS[READY_TIMEOUT].acts(found.at)
    setting = found.settings.get(READY_TIMEOUT) if acts else None
    took = f"{warmup.value:.0f} s"
    if warmup.low < warmup.high:
        took += f" ({warmup.low:.0f} to {warmup.high:.0f})"
    yield Remark(
        setting or unset(READY_TIMEOUT, str(seconds)),
        f"Warm-up takes about {took}, {warmup.origin}, and the front end's limit is "
        f"{seconds} s, loading included. {READY_LIMIT}",
        f"To be sure, set {READY_TIMEOUT} to {patient_seconds(warmup.value)} or more."
        if acts
        else "Have one API server, or fewer buckets: this release has no longer limit.",
    )


def _by_its_buckets(found: Configuration) -> WarmupTime | None:
    """Return what so many buckets make one expect: from a log, else from public ones."""
    is_asked = found.command or found.law.newest is not None
    if not is_asked or found.is_on("VLLM_SKIP_WARMUP"):
        return None
    made = prepared(found)
    if made is None:
        return None
    told = found.law.seconds({PROMPT: made.prompt, DECODE: made.decode})
    source = "the log's" if found.law.newest else "public logs'"
    count = len(made.prompt) + len(made.decode)
    origin = f"{told.origin}: {count} buckets at {source} pace"
    return WarmupTime(told.value, told.low, told.high, origin)


def too_few_cards(found: Configuration) -> Iterator[Remark]:
    """Compare the cards that are named with those that the flags want."""
    wanted = 1
    for name in ("--tensor-parallel-size", "--pipeline-parallel-size"):
        wanted *= found.number(name) or 1
    for name in ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"):
        setting = found.settings.get(name)
        if setting is None:
            continue
        cards = [part for part in setting.value.split(",") if part.strip().isdigit()]
        if cards and len(cards) < wanted:
            yield Remark(
                setting,
                f"{len(cards)} cards are named and {wanted} are wanted; the server does "
                "not get through its start.",
                "Name more cards, or lower --tensor-parallel-size.",
            )


def recipe_cache(found: Configuration) -> Iterator[Remark]:
    """See a recipe cache that can't do its work, or that there is none."""
    setting = found.settings.get(RECIPES)
    if setting is not None and found.recipe_cache:
        yield Remark(
            setting,
            f"{found.recipe_cache}.",
            "Name a folder on a local disk that the server may write and that outlives "
            "it.",
        )
    elif setting is None and found.command:
        yield Remark(
            unset(RECIPES),
            "Every start compiles all graphs anew.",
            f"Set {RECIPES}=DIRECTORY,false,MEGABYTES.",
            "info",
        )


def secrets(found: Configuration) -> Iterator[Remark]:
    """See secrets on the command line, which every process of the machine can read."""
    for name, setting in sorted(found.settings.items()):
        is_shown = name.startswith("--") or setting.where == COMMAND
        if is_shown and mask_value(name, setting.value) != setting.value:
            yield Remark(
                setting,
                "Everybody on the machine can read the command line of a process.",
                "Hand it over as a variable (VLLM_API_KEY, HF_TOKEN) or in a file."
                if name.startswith("--")
                else f"Hand it over in a file, or export it and name it alone: -e {name}.",
            )


def open_to_all(found: Configuration) -> Iterator[Remark]:
    """See a server that answers everybody who reaches the machine."""
    if not found.command or any(name in found.settings for name in _KEYS):
        return
    setting = found.settings.get("--host")
    if setting is not None and setting.value not in _EVERYWHERE:
        return
    yield Remark(
        setting or Setting("--host", "", "default"),
        "It listens on every address of the machine, and asks nobody for a key.",
        "Say --host 127.0.0.1, or set VLLM_API_KEY.",
        None if setting else "info",
    )
