"""What a server prepared, as its log lists it, with the settings that decide look-ups.

Checks of buckets ask it which shapes find one.  The lists are those that the log prints,
never those of the rules; sizes that the log doesn't print are named, so that no check says
anything that hangs on one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.filestrategy import as_file
from hpuwatch.gaudi.grammar import PairDialect
from hpuwatch.gaudi.lookup import Prepared
from hpuwatch.gaudi.model import DECODE, PROMPT, BucketSettings
from hpuwatch.gaudi.resolve import resolve
from hpuwatch.state.configured import configured, printed_lists
from hpuwatch.state.model import Start


@dataclass(frozen=True, slots=True)
class Made:
    """The printed lists and what decides who finds which bucket.

    Attributes:
        prepared: the lists, sorted, with the settings.
        assumed: the names of sizes that no line prints.
    """

    prepared: Prepared
    assumed: frozenset[str]

    @property
    def settings(self) -> BucketSettings:
        """Return what decides look-ups."""
        return self.prepared.settings

    @property
    def is_of_pairs(self) -> bool:
        """Tell whether the release pads each axis by itself and asks no list."""
        return isinstance(dialect_of(self.settings.dialect), PairDialect)

    def knows(self, phase: str) -> bool:
        """Tell whether the size that bounds what a phase may ask for is printed."""
        bound = "max_num_seqs" if phase == DECODE else "max_num_batched_tokens"
        return bound not in self.assumed


def made_of(start: Start) -> Made | None:
    """Return what a start prepared, None where its log lacks a list or a size."""
    known, lists = configured(start), printed_lists(start)
    if known is None or not {PROMPT, DECODE} <= lists.keys():
        return None
    flags = known.flags
    if known.bucket_file is not None:
        flags = replace(flags, bucket_file=as_file(lists[PROMPT], lists[DECODE]))
    try:
        settings = resolve(known.release.dialect, flags, known.env)
    except ConfigError:
        return None  # what the server makes of it is told elsewhere
    prompt, decode = (tuple(sorted(lists[phase])) for phase in (PROMPT, DECODE))
    deepest = max(each.context for each in decode)
    prepared = Prepared(settings, prompt, decode, decode, deepest)
    return Made(prepared, frozenset(known.assumed))


_DRAFTS = re.compile(r"speculative_(?:config|model)['\"]?\s*[=:]\s*(?!None\b)\S")


def speculates(start: Start) -> bool:
    """Tell whether decodes carry speculative tokens, which make rows beyond a batch.

    The engine's own line or the arguments say so; the state keeps no figure of it.
    """
    server = start.server
    said = [server.engine.line] if server.engine else []
    said += [server.arguments] if server.arguments else []
    return any(_DRAFTS.search(line.text) for line in said)
