"""The table of findings: each kind has a stable code, and is declared only here.

:func:`findings_of` runs every check over a start and returns what was seen, the gravest
first.  ``docs/findings.md`` is compared with :func:`documentation` by a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hpuwatch.advise import ends, gaps, listed, reserve, warmup
from hpuwatch.advise.finding import (
    ERROR,
    INFO,
    SEVERITIES,
    WARNING,
    Finding,
    Sighting,
)
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Start


class Kind(NamedTuple):
    """A kind of finding.

    Attributes:
        code: stable, for scripts.
        severity: the usual one; a check may say otherwise for one case.
        when: what makes it appear.
        then: what helps.
        check: looks for it in a start.
    """

    code: str
    severity: str
    when: str
    then: str
    check: Callable[[Start], Sighting | None]


KINDS: tuple[Kind, ...] = (
    Kind(
        "weights-oom",
        ERROR,
        "The card's memory ran out while the weights were loaded.",
        "More cards or FP8 weights; the graph reserve can't help.",
        ends.ended_by("weights-oom"),
    ),
    Kind(
        "sizing-oom",
        ERROR,
        "The card's memory ran out in the profile run, or as the KV cache was allocated.",
        "Fewer tokens or sequences at once, or more cards; the reserve can't help. For the "
        "KV cache, a lower utilisation.",
        ends.ended_by("sizing-oom"),
    ),
    Kind(
        "kv-none",
        ERROR,
        "Nothing was left for the KV cache; or the log prints no usable memory, or no "
        "KV block.",
        "A smaller reserve where that is what took the memory (proposed), else more cards "
        "or FP8, or a higher utilisation if it is unusual.",
        ends.nothing_left,
    ),
    Kind(
        "kv-short",
        ERROR,
        "The KV cache can't hold one request of the maximal length.",
        "A smaller reserve where one that still is sane for graphs is enough, or where "
        "it holds more than half of what is usable (proposed); else a lower "
        "--max-model-len (proposed where vLLM prints one that fits).",
        ends.ended_by("kv-short"),
    ),
    Kind(
        "warmup-oom",
        ERROR,
        "The card's memory ran out in warm-up.",
        "A larger reserve (proposed), or fewer and smaller buckets.",
        ends.ended_by("warmup-oom"),
    ),
    Kind(
        "warmup-failed",
        ERROR,
        "Warm-up failed for another reason than memory; the root cause is named.",
        "What the cause says; no memory setting.",
        ends.ended_by("warmup-failed"),
    ),
    Kind(
        "warmup-timeout",
        ERROR,
        "The front end gave up waiting for an engine that was still warming.",
        "A larger VLLM_ENGINE_READY_TIMEOUT_S, or fewer buckets.",
        ends.ended_by("warmup-timeout"),
    ),
    Kind(
        "start-failed",
        ERROR,
        "The server broke before warm-up, for another reason than memory.",
        "What the cause says.",
        ends.ended_by("start-failed"),
    ),
    Kind(
        "serving-oom",
        ERROR,
        "The card's memory ran out under load.",
        "A larger reserve (proposed), or a lower utilisation.",
        ends.ended_by("serving-oom"),
    ),
    Kind(
        "server-died",
        ERROR,
        "The engine broke under load, for another reason than memory.",
        "What the cause says.",
        ends.ended_by("server-died"),
    ),
    Kind(
        "reserve-short",
        WARNING,
        "Graphs took more than the reserve, from memory that requests may need.",
        "A larger reserve (proposed).",
        reserve.short,
    ),
    Kind(
        "graphs-incomplete",
        WARNING,
        "The graph budget ran out before all graphs were captured (up to fork 1.21).",
        "A larger VLLM_GRAPH_PROMPT_RATIO or reserve.",
        reserve.incomplete,
    ),
    Kind(
        "reserve-idle",
        WARNING,
        "Much of the reserve lies idle after warm-up. It is information only where the "
        "log's load shows that the KV cache is not short.",
        "A first step of at most half of what lies idle (proposed), then real load.",
        reserve.idle,
    ),
    Kind(
        "kv-tight",
        WARNING,
        "Under the log's load the KV cache was full, requests were preempted or waited "
        "for long.",
        "More KV cache, or fewer requests at once.",
        reserve.kv_tight,
    ),
    Kind(
        "memory-thin",
        WARNING,
        "Less than 2 % of the card is free after warm-up.",
        "A lower utilisation, or fewer buckets.",
        reserve.thin,
    ),
    Kind(
        "warmup-skipped",
        WARNING,
        "Warm-up was switched off.",
        "Switch it on for service.",
        warmup.skipped,
    ),
    Kind(
        "bucket-miss",
        WARNING,
        "Traffic asked for shapes that warm-up had not prepared; the range that they "
        "miss is named. It is information only where warm-up was skipped: then every "
        "shape had to be missed.",
        "A wider bucket range by what the strategy heeds (a variable, a flag or a bucket "
        "file), or limits on the requests.",
        warmup.misses,
    ),
    Kind(
        "buckets-above-kv",
        INFO,
        "Decode buckets have more blocks than the KV cache.",
        "Where requests share little: under the linear and padding-aware strategies a "
        "lower VLLM_DECODE_BLOCK_BUCKET_MAX; under the exponential one, which ignores it, "
        "a lower --max-num-seqs or --max-model-len, another strategy, or a bucket file.",
        warmup.above_kv,
    ),
    Kind(
        "buckets-differ",
        INFO,
        "The log lists other buckets than the rules of its release give; where another "
        "release's rules give exactly that list, it is named.",
        "The log is right; predictions for this server are to be doubted.",
        listed.differ,
    ),
    Kind(
        "card-mismatch",
        INFO,
        "The card's memory is that of another card than the log names.",
        "A look at hl-smi.",
        reserve.other_card,
    ),
    Kind(
        "fault-noted",
        WARNING,
        "The log has faults that ended nothing. Mere warnings are information.",
        "What the cause says.",
        ends.noted,
    ),
    Kind(
        "log-incomplete",
        WARNING,
        "The server was ready, yet the log lacks lines of its start: the split of "
        "memory, the KV blocks, the end of warm-up or what graphs took. It is information where the server was "
        "stopped.",
        "The log from the server's start on (docker logs without --tail), with no gap.",
        gaps.incomplete,
    ),
    Kind(
        "not-ready",
        WARNING,
        "The log ends before the server was ready, and shows no fault.",
        "A look at probes, time limits and the kernel log, if the server is gone.",
        ends.not_ready,
    ),
    Kind(
        "stopped",
        INFO,
        "The server was stopped in the ordinary way.",
        "Nothing.",
        ends.stopped,
    ),
    Kind(
        "all-good",
        INFO,
        "The server reached ready, the log has all figures of its start, and nothing "
        "else was found.",
        "Nothing.",
        lambda _start: None,
    ),
)

CODES = tuple(kind.code for kind in KINDS)


def findings_of(start: Start) -> tuple[Finding, ...]:
    """Return what was found, the gravest first, else in the table's order."""
    found = []
    for kind in KINDS:
        seen = kind.check(start)
        if seen is not None:
            found.append(Finding(kind.code, seen.severity or kind.severity, seen))
    if not found and start.phase is Phase.READY:
        return (Finding("all-good", INFO, _ALL_GOOD),)
    return tuple(sorted(found, key=lambda each: -SEVERITIES.index(each.severity)))


_ALL_GOOD = Sighting(
    title="The server reached ready, and there is nothing to say",
    why="No fault, no missed bucket, no idle or short memory stands in the log.",
)


def documentation() -> str:
    """Return the table as markdown, for the documentation."""
    rows = ["| code | severity | when | what helps |", "|---|---|---|---|"]
    rows += [
        f"| `{kind.code}` | {kind.severity} | {kind.when} | {kind.then} |"
        for kind in KINDS
    ]
    return "\n".join(rows) + "\n"
