"""What a log tells for a prediction: the plan of the server that runs, and the basis.

The newest start is the running server.  Earlier ones of the same model, card and number of
cards teach what graphs take and how long they compile, be it by their logs or by what was
kept of them (:class:`Lesson`).  A figure is that of the rank whose memory is tightest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.checks.ends import told
from hpuwatch.advise.checks.warmup_time import LONGEST_START_SECONDS
from hpuwatch.advise.figures import (
    ACTIVATION_SHARE,
    activations_unmeasured,
    kv_block_bytes,
    tightest,
)
from hpuwatch.advise.graphmemory import observations_of
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis, Device, Lists, Printed
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.estimate import exactly
from hpuwatch.gaudi.filestrategy import as_file
from hpuwatch.gaudi.graphlaw import fit
from hpuwatch.gaudi.graphseen import Observation
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.planning import RESERVE, Change, Plan, applied
from hpuwatch.gaudi.predict import compiled
from hpuwatch.gaudi.warmuptime import Recipes, TimedStart, learn, recipe_folder
from hpuwatch.parse.header import read
from hpuwatch.state.configured import (
    Configured,
    bucket_of,
    configured,
    printed_lists,
    release_text,
)
from hpuwatch.state.memory import KV_ALLOCATED
from hpuwatch.state.model import Memory, Start, value_of
from hpuwatch.state.times import seconds_between
from hpuwatch.state.warmup_timed import timed_start

_BLOCK_ROUNDING = 0.01
"""The dummy block is one block if it is that near to cache over blocks."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one start teaches of others of its server, without its log.

    Attributes:
        model: as its log named it.
        card: likewise.
        cards: how many it ran on.
        release: which decides what its buckets may be.
        reserve_ratio: VLLM_GRAPH_RESERVED_MEM as printed.
        captured_blocks: of the deepest decode bucket that it captured, 0 for none.
        warmed: its warm-up came to its end.
        observed: what its graphs took.
        timed: how long its warm-up took.
        load_seconds: from its first line to an allocated KV cache.
    """

    model: str | None
    card: str | None
    cards: int | None
    release: str | None = None
    reserve_ratio: float | None = None
    captured_blocks: int = 0
    warmed: bool = False
    observed: tuple[Observation, ...] = ()
    timed: TimedStart | None = None
    load_seconds: float | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what it shares with a start that it teaches."""
        return self.model, self.card, self.cards


def lesson_of(start: Start) -> Lesson:
    """Return what a start teaches."""
    found, graphs = tightest(start), _graphs(start)
    return Lesson(
        *identity_of(start),
        release=release_text(start.server),
        reserve_ratio=value_of(found[1].reserve_ratio) if found else None,
        captured_blocks=captured_blocks(start),
        warmed=start.warmup.seconds is not None,
        observed=observations_of(start, graphs),
        timed=timed_start(start, graphs),
        load_seconds=load_seconds(start),
    )


@dataclass(frozen=True, slots=True)
class Baseline:
    """The running server, and what predictions about it rest on.

    Attributes:
        plan: how it was started.
        basis: what its log and earlier ones tell.
        assumed: sizes that the log doesn't print, taken at their defaults.
        misses: shapes that traffic asked for in vain, with their phase.
        observed_tokens: what a running request held at the peak of the KV cache, at
            least; None without traffic.
        starts: how many starts the laws rest on.
        before: what those before the newest taught, oldest first.
        broke: what broke the running server, None where nothing did.
    """

    plan: Plan
    basis: Basis
    assumed: tuple[str, ...] = ()
    misses: tuple[tuple[str, Bucket], ...] = ()
    observed_tokens: int | None = None
    starts: int = 1
    broke: str | None = None
    before: tuple[Lesson, ...] = ()


def baseline_of(
    starts: Sequence[Start],
    current: Iterable[Change] = (),
    lessons: Sequence[Lesson] = (),
) -> Baseline | None:
    """Return what the starts of a server tell, oldest first; None if too little.

    Args:
        starts: the newest is the running one.
        current: what is known of it beyond its log.
        lessons: of starts before those, whose logs aren't at hand.

    Raises:
        ConfigError: a setting can't be read.
    """
    start = starts[-1]
    known = configured(start)
    if known is None:
        return None
    plan = applied(plan_of(start, known), current)
    same = [each for each in starts if identity_of(each) == identity_of(start)]
    taught = [
        *(each for each in lessons if each.identity == identity_of(start)),
        *map(lesson_of, same),
    ]
    basis = Basis(
        device=_device(start),
        printed=_printed(start, plan, known.flags.num_blocks, _captured(taught)),
        graphs=fit([seen for each in taught for seen in each.observed]),
        warmup=learn(each.timed for each in taught if each.timed),
        recipes=_recipes(start, plan, known.flags.num_blocks),
        load_seconds=tuple(each.load_seconds for each in taught if each.load_seconds),
    )
    fault = root_fault(start)
    misses = [
        (miss.phase, shape)
        for miss in start.misses
        if miss.count and (shape := bucket_of(miss.phase, miss.shape))
    ]
    return Baseline(
        plan,
        basis,
        known.assumed,
        tuple(misses),
        _observed_tokens(start, plan),
        len(taught),
        told(start, fault) if fault else None,
        tuple(taught[:-1]),
    )


def identity_of(start: Start) -> tuple[str | None, str | None, int | None]:
    """Return what two starts share of which one may teach the other: model, card, cards."""
    server = start.server
    cards = value_of(server.tensor_parallel)
    return value_of(server.model), value_of(server.card), cards


def plan_of(start: Start, known: Configured) -> Plan:
    """Return how a start was configured; sizes that its log doesn't print stay open."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    flags = {name: each.value for name, each in start.server.flags.items()}
    ratio = value_of(memory.reserve_ratio)
    env = dict(known.env)
    if ratio is not None:
        env[RESERVE] = f"{ratio:g}"
    if start.warmup.skipped is not None:
        env["VLLM_SKIP_WARMUP"] = "true"
    shapes, lists = known.flags, printed_lists(start)
    if known.bucket_file is not None and {PROMPT, DECODE} <= lists.keys():
        shapes = replace(shapes, bucket_file=as_file(*lists.values()))
    assumed = "max_num_batched_tokens" in known.assumed
    plan = Plan(
        release_text(start.server) or known.release.name,
        shapes,
        env,
        token_budget=None if assumed else shapes.max_num_batched_tokens,
        utilisation_given=value_of(memory.utilisation),
        kv_cache_dtype=flags.get("kv_cache_dtype", "auto"),
        eager=flags.get("enforce_eager") == "True",
        tensor_parallel=value_of(start.server.tensor_parallel) or 1,
    )
    return _without_stand_ins(plan)


def _without_stand_ins(plan: Plan) -> Plan:
    """Drop a printed strategy or attention that the variables give anyway."""
    for name in ("strategy", "contiguous_pa"):
        bare = replace(plan, flags=replace(plan.flags, **{name: None}))  # type: ignore[arg-type]  # each may be None
        try:
            if bare.shapes(1) == plan.shapes(1):
                plan = bare
        except ConfigError:
            continue  # the variables alone would stop the server: keep what was printed
    return plan


def _device(start: Start) -> Device | None:
    found, block = tightest(start), kv_block_bytes(start)
    memory = found[1] if found else Memory()
    free, dummy = memory.free, memory.dummy_block
    if free is None or not block:
        return None
    free_bytes = free.value.bytes
    if dummy and abs(dummy.value.bytes - block) <= block * _BLOCK_ROUNDING:
        block = float(dummy.value.bytes)  # printed to four digits of its own
    return Device(
        exactly(free_bytes),
        round(ACTIVATION_SHARE * free_bytes) if activations_unmeasured(start) else 0,
        block_bytes=block,
        has_dummy=dummy is not None,
    )


def captured_blocks(start: Start) -> int:
    """Return the blocks of the deepest decode bucket that a warm-up captured, 0 for none.

    A phase is warmed from the end of its list on, the largest buckets first.
    """
    listed = printed_lists(start).get(DECODE, ())
    progress = start.warmup.progress.get(DECODE)
    done = progress.done if progress else 0
    if start.warmup.seconds is not None:
        done = len(listed)
    captured = listed[max(0, len(listed) - done) :]
    return max((each.context for each in captured), default=0)


def _captured(taught: Sequence[Lesson]) -> int:
    """Return the same of all starts that have the release of the last one."""
    release = taught[-1].release
    return max(each.captured_blocks for each in taught if each.release == release)


def _printed(start: Start, plan: Plan, blocks: int, captured: int) -> Printed:
    lists = printed_lists(start)
    whole = {PROMPT, DECODE} <= lists.keys()
    return Printed(
        plan,
        blocks,
        lists if whole else {},
        {
            phase: start.buckets[phase].value.count
            for phase in (PROMPT, DECODE)
            if phase in start.buckets
        },
        value_of(start.warmup.seconds),
        captured,
    )


def _graphs(start: Start) -> Lists:
    """Return the graphs that a start compiled: those of its list, or of the rules'."""
    listed = printed_lists(start)
    known = configured(start)
    if known is None:
        return listed
    try:
        made = prepare(plan_of(start, known).shapes(known.flags.num_blocks))
    except ConfigError:
        return listed
    by_rules = {PROMPT: made.prompt, DECODE: made.decode}
    counts = {phase: each.value.count for phase, each in start.buckets.items()}
    if not listed and all(counts.get(name) == len(by_rules[name]) for name in by_rules):
        listed = by_rules
    return compiled(listed, made)


def _recipes(start: Start, plan: Plan, blocks: int) -> Recipes | None:
    folder = recipe_folder(plan.env)
    if folder is None or start.warmup.seconds is None:
        return None
    return Recipes(folder, _graphs(start), blocks)


def load_seconds(start: Start) -> float | None:
    """Return the seconds from the first line to an allocated KV cache."""
    records = read(start.first_line.text)
    began = records[0].logged_at if records else None
    took = seconds_between(began, start.marks.get(KV_ALLOCATED))
    return None if took is None or took > LONGEST_START_SECONDS else took


def _observed_tokens(start: Start, plan: Plan) -> int | None:
    """Return the tokens of a request at the peak of KV use, at least.

    The most that ran at once may have run at another time than that of the peak; then
    there were fewer of them, and each held more.
    """
    traffic, blocks = start.traffic, value_of(start.kv.blocks)
    peak, running = value_of(traffic.kv_use_peak), value_of(traffic.running_peak)
    if not peak or not running or not blocks:
        return None
    return round(peak * blocks * plan.flags.block_size / running) or None
