"""What a plan comes to before a restart is paid for: blocks, buckets, graphs, warm-up.

It rests on a *basis* (``gaudi.basis``).  What a log printed of the running server always
beats what is computed; nothing of another plan is called measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hpuwatch.gaudi.basis import (
    Basis,
    Device,
    Lists,
    Printed,
    blocks_under,
    split_under,
)
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.estimate import Estimate, Origin, exactly
from hpuwatch.gaudi.graphlaw import Verdict, feasible
from hpuwatch.gaudi.kvcache import (
    blocks_per_sequence,
)
from hpuwatch.gaudi.lookup import Prepared, prepare, warmed_prompts
from hpuwatch.gaudi.memory import Split
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.variables import is_true
from hpuwatch.gaudi.warmuptime import (
    Part,
    downtime,
    skips_warmup,
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a plan comes to; None where nothing tells, or where it breaks before.

    Attributes:
        blocks: KV blocks.
        blocks_per_sequence: of a sequence of the model's length.
        split: the card's memory, by the best guess of what is free.
        prepared: ``lists`` for look-ups, with what decided them; None without buckets.
        lists: the buckets; those that a log printed where the plan is the running one.
        counts: how many there are; as printed, even where their list wasn't.
        graphs: those of the lists that warm-up really compiles.
        graph_bytes: what they take.
        room: whether they fit.
        warmup: seconds.
        away: the parts of the down-time.
        broken: why the runtime makes no lists.
        lists_origin: how the lists are known.
    """

    plan: Plan
    blocks: Estimate
    blocks_per_sequence: int
    split: Split | None = None
    prepared: Prepared | None = None
    lists: Lists = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    graphs: Lists = field(default_factory=dict)
    graph_bytes: Estimate | None = None
    room: Verdict | None = None
    warmup: Estimate | None = None
    away: tuple[Part, ...] = ()
    broken: BucketError | None = None
    lists_origin: Origin = "predicted"

    @property
    def num_blocks(self) -> int:
        """Return the best guess of the KV blocks."""
        return int(self.blocks.value)

    @property
    def warms(self) -> bool:
        """Tell whether there are buckets and warm-up prepares them."""
        return self.prepared is not None and not skips_warmup(self.prepared.settings)

    @property
    def deepest(self) -> int:
        """Return the largest context of a decode bucket, in blocks."""
        return max((each.context for each in self.lists.get(DECODE, ())), default=0)


def predict(plan: Plan, basis: Basis) -> Forecast:
    """Return what a plan comes to.

    Raises:
        ConfigError: the release is unknown, heads can't be shared out among the cards, or
            a log can't tell of so many cards.
    """
    layout = basis.device.layout(plan) if basis.device else None
    longest, size = plan.flags.max_model_len, plan.flags.block_size
    own = blocks_per_sequence(longest, layout) if layout else -(-longest // size)
    forecast = Forecast(
        plan=plan,
        blocks=blocks_under(plan, basis),
        blocks_per_sequence=max(1, own),
        split=split_under(plan, basis.device),
    )
    try:
        return _with_lists(forecast, basis)
    except BucketError as error:
        return replace(forecast, broken=error, away=downtime(basis.load_seconds, None))


def _with_lists(forecast: Forecast, basis: Basis) -> Forecast:
    settings = forecast.plan.shapes(max(1, forecast.num_blocks))
    prepared = prepare(settings) if buckets_on(settings) else None
    lists, origin = _lists(forecast, prepared, basis)
    counts = {phase: len(listed) for phase, listed in lists.items()}
    if basis.printed and basis.printed.plan == forecast.plan and basis.printed.counts:
        counts, origin = {**counts, **basis.printed.counts}, "measured"
    graphs = compiled(lists, prepared)
    graph_bytes = _graph_bytes(forecast, lists, basis)
    warmup = _warmup(forecast, graphs, basis)
    if prepared is not None:
        prepared = replace(prepared, prompt=lists[PROMPT], decode=lists[DECODE])
    if skips_warmup(settings):
        warmup = exactly(0.0, "predicted")
    return replace(
        forecast,
        prepared=prepared,
        lists=lists,
        counts=counts,
        lists_origin=origin,
        graphs=graphs,
        graph_bytes=graph_bytes,
        room=_room(forecast.split, graph_bytes, basis.device),
        warmup=warmup,
        away=downtime(basis.load_seconds, warmup),
    )


def buckets_on(settings: BucketSettings) -> bool:
    """Tell whether there are buckets at all (VLLM_ENABLE_BUCKETING)."""
    return is_true(settings.env.get("VLLM_ENABLE_BUCKETING", "true"))


def compiled(lists: Lists, prepared: Prepared | None) -> Lists:
    """Return the graphs that a warm-up of the lists really compiles.

    A prompt bucket that exceeds the model as a whole runs with less context, and is then
    often another bucket; told only where the rules make the very same list.
    """
    if prepared is None or not same(lists.get(PROMPT, ()), prepared.prompt):
        return lists
    return {**lists, PROMPT: tuple(sorted(warmed_prompts(prepared)))}


def _lists(
    forecast: Forecast, prepared: Prepared | None, basis: Basis
) -> tuple[Lists, Origin]:
    printed = basis.printed
    if printed and printed.lists and printed.plan == forecast.plan:
        return printed.lists, "measured"
    if prepared is None:
        return {}, "predicted"
    lists = {PROMPT: prepared.prompt, DECODE: prepared.decode}
    if printed and _only_blocks_differ(prepared.settings, printed):
        made = rules_make(basis) or {}
        for phase in made:
            if not same(made[phase], printed.lists[phase]):
                lists[phase] = printed.lists[phase]  # the rules can't do better
    return lists, "predicted"


def _only_blocks_differ(settings: BucketSettings, printed: Printed) -> bool:
    """Tell whether the running server's buckets have all but the blocks in common."""
    if not printed.lists:
        return False
    try:
        running = printed.plan.shapes(settings.num_blocks)
    except BucketError:
        return False
    return replace(running, env={}) == replace(settings, env={}) and _axes(
        running.env
    ) == _axes(settings.env)


def _axes(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if "_BUCKET_" in name}


def same(one: Iterable[Bucket], other: Iterable[Bucket]) -> bool:
    """Tell whether two lists hold the same buckets, in whatever order."""
    return set(one) == set(other)


def _graph_bytes(forecast: Forecast, lists: Lists, basis: Basis) -> Estimate:
    """Return what the graphs take; the law rests on the listed buckets, cold ones too."""
    if forecast.plan.eager:
        return exactly(0.0, "predicted")
    found = basis.graphs.bytes_of(lists)
    running = basis.printed is not None and basis.printed.plan == forecast.plan
    if found.origin == "measured" and not running:
        return replace(found, origin="predicted")
    return found


def _warmup(forecast: Forecast, graphs: Lists, basis: Basis) -> Estimate:
    printed = basis.printed
    if printed and printed.warmup_seconds is not None and printed.plan == forecast.plan:
        return exactly(printed.warmup_seconds)
    if basis.recipes is None:
        return basis.warmup.seconds(graphs)
    held = basis.recipes.usable(forecast.plan.env, forecast.num_blocks)
    return basis.warmup.seconds(graphs, held)


def _room(
    parts: Split | None, graph_bytes: Estimate, device: Device | None
) -> Verdict | None:
    if parts is None or device is None:
        return None
    # What requests need is an allowance, not a figure: it counts in the upper end alone.
    workspace = Estimate(0.0, 0.0, device.allowance_bytes, "predicted")
    return feasible(graph_bytes, workspace, parts.reserve_bytes, parts.margin_bytes)


def rules_make(basis: Basis) -> Lists | None:
    """Return the lists that the rules make for the running server, None if none."""
    printed = basis.printed
    if printed is None:
        return None
    try:
        made = prepare(printed.plan.shapes(max(1, printed.blocks)))
    except BucketError:
        return None
    return {PROMPT: made.prompt, DECODE: made.decode}
