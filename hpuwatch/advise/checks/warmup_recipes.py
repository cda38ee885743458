"""Checks of the recipe cache, which keeps compiled graphs over a restart.

Its folder is known from the bridge's banner (``PT_HPU_RECIPE_CACHE_CONFIG``).  Graphs that
read the KV cache are compiled for its number of blocks, so a start that gets another number
finds its decode graphs of no use.
"""

from __future__ import annotations

import re

from hpuwatch.advise.changed import last_good
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.warmuptime import RECIPES, learn, recipe_folder
from hpuwatch.state.configured import acting_variables, printed_lists
from hpuwatch.state.model import DECODE, PROMPT, Known, Start, value_of
from hpuwatch.state.warmup_timed import timed_start

_REMOTE = re.compile(
    r"(?i)(?:^|/)(?:nfs|efs|cephfs|ceph|lustre|gpfs|beegfs|gluster(?:fs)?|smb|cifs|pvc"
    r"|s3fs|gcsfuse|fuse|juicefs|weka(?:fs)?|vast|netapp|nas|shared[_-]?storage)"
    r"(?:[\d_.-][^/]*)?(?=/|$)"
    r"|^/net/|^//|^\w+://|^[\w.-]+:/"
)
"""What folders on a network file system are called; a name proves nothing, so it is said
that it looks like one."""


def unset(case: Case) -> Sighting | None:
    """Look for a long warm-up whose graphs no cache keeps for the next one."""
    start = case.start
    said = start.server.flags.get(RECIPES)
    seconds = start.warmup.seconds
    if said is None or seconds is None or start.warmup.skipped is not None:
        return None
    if said.value or seconds.value < case.limits["worth_seconds"]:
        return None
    then = _with_recipes(start)
    return Sighting(
        why=("why", "why_then") if then else ("why",),
        numbers={"warmup_seconds": seconds.value},
        figures={"warmup_seconds_then": then} if then else {},
        words={"variable": RECIPES},
        lines=(said.line, seconds.line),
    )


def _with_recipes(start: Start) -> Estimate | None:
    """Return what the same warm-up takes from a full cache, None without its lists."""
    timed, lists = timed_start(start), printed_lists(start)
    if timed is None or not {PROMPT, DECODE} <= lists.keys():
        return None
    held = {phase: frozenset(buckets) for phase, buckets in lists.items()}
    told = learn([timed]).seconds(lists, held)
    if told.value >= timed.total_seconds:
        return None  # its times make no sense, as where two servers stand in one log
    # Two published warm-ups are all that the share rests on.
    return Estimate(told.value, told.low, told.high, "prior")


def recompiled(case: Case) -> Sighting | None:
    """Look for a cache whose decode graphs another number of KV blocks made useless."""
    start = case.start
    before = last_good(start, case.history)
    if before is None:
        return None
    folders = {_folder(before), _folder(start)}
    blocks, then = start.kv.blocks, before.kv.blocks
    if None in folders or len(folders) > 1 or blocks is None or then is None:
        return None
    if blocks.value == then.value:
        return None
    told = [then.line, blocks.line]
    seconds = before.warmup.seconds, start.warmup.seconds
    told += [each.line for each in seconds if each is not None]
    numbers: dict[str, float | str] = {
        "kv_blocks": blocks.value,
        "kv_blocks_before": then.value,
    }
    for name, each in zip(
        ("warmup_seconds_before", "warmup_seconds"), seconds, strict=True
    ):
        if each is not None:
            numbers[name] = each.value
    took = all(each is not None for each in seconds)
    return Sighting(
        why=("why", "why_took") if took else ("why",),
        numbers=numbers,
        lines=tuple(dict.fromkeys(told)),
    )


def remote(case: Case) -> Sighting | None:
    """Look for a cache in a folder that looks like one of a network file system."""
    said = _known(case.start)
    folder = _folder(case.start)
    if said is None or folder is None or not _REMOTE.search(folder):
        return None
    return Sighting(
        words={"folder": folder, "variable": RECIPES},
        lines=(said.line,),
        severity=INFO if value_of(case.start.warmup.seconds) is None else None,
    )


def _known(start: Start) -> Known[str] | None:
    return acting_variables(start.server).get(RECIPES)


def _folder(start: Start) -> str | None:
    said = _known(start)
    return None if said is None else recipe_folder({RECIPES: said.value})
