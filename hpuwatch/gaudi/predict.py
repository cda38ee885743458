"""What a plan comes to before a restart is paid for: blocks, buckets, graphs, warm-up.

It rests on a *basis* (``gaudi.basis``).  What a log printed of the running server always
beats what is computed; nothing of another plan is called measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hpuwatch.gaudi.alike import dialects_making
from hpuwatch.gaudi.basis import (
    Basis,
    Device,
    Lists,
    Printed,
    blocks_under,
    split_under,
)
from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.gaudi.estimate import Estimate, Origin, exactly
from hpuwatch.gaudi.graphlaw import Verdict, feasible
from hpuwatch.gaudi.kvcache import blocks_per_sequence, scale_bytes_per_block
from hpuwatch.gaudi.lookup import Prepared, prepare, warmed_prompts
from hpuwatch.gaudi.memory import Split
from hpuwatch.gaudi.model import TOO_MANY, UNKNOWN
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
        holds: the card holds the weights; else there is nothing to tell of the rest.
        blocks: KV blocks.
        blocks_per_sequence: of a sequence of the model's length.
        split: the card's memory, by the best guess of what is free.
        prepared: ``lists`` for look-ups, with what decided them; None without buckets.
        lists: the buckets; those that a log printed where the plan is the running one.
        counts: how many there are; as printed, even where their list wasn't.
        graphs: those of the lists that warm-up really compiles.
        graph_bytes: what they take.
        scale_bytes: scales of an FP8 cache, which are taken from the memory beside it.
        room: whether they fit.
        warmup: seconds.
        away: the parts of the down-time.
        broken: why there are no lists: the runtime makes none, or hpuwatch can't tell.
        is_open: the latter, so that the server may well start.
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
    scale_bytes: int = 0
    room: Verdict | None = None
    warmup: Estimate | None = None
    away: tuple[Part, ...] = ()
    broken: BucketError | None = None
    is_open: bool = False
    lists_origin: Origin = "predicted"
    holds: bool = True

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
    if basis.device is not None and basis.device.free.value <= 0:
        away = downtime(basis.load_seconds, None)
        return replace(forecast, split=None, holds=False, away=away)
    try:
        return _with_lists(forecast, basis)
    except BucketError as error:
        return replace(
            forecast,
            broken=error,
            is_open=_is_open(forecast, error),
            away=downtime(basis.load_seconds, None),
        )


def _is_open(forecast: Forecast, error: BucketError) -> bool:
    """Tell whether a server without known lists may start."""
    if error.raised == TOO_MANY:  # no trouble where nothing of the list is warmed up
        return skips_warmup(forecast.plan.shapes(max(1, forecast.num_blocks)))
    return error.raised == UNKNOWN


def _with_lists(forecast: Forecast, basis: Basis) -> Forecast:
    settings = forecast.plan.shapes(max(1, forecast.num_blocks))
    prepared = prepare(settings) if buckets_on(settings) else None
    lists, origin = _lists(forecast, prepared, basis)
    counts = {phase: len(listed) for phase, listed in lists.items()}
    if basis.printed and basis.printed.plan == forecast.plan and basis.printed.counts:
        counts, origin = {**counts, **basis.printed.counts}, "measured"
    graphs = compiled(lists, prepared)
    graph_bytes = _graph_bytes(forecast, lists, basis)
    scale_bytes = _scale_bytes(forecast, basis.device)
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
        scale_bytes=scale_bytes,
        room=_room(forecast.split, graph_bytes, scale_bytes, basis.device),
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
    return {**lists, PROMPT: warmed_prompts(prepared)}


def _lists(
    forecast: Forecast, prepared: Prepared | None, basis: Basis
) -> tuple[Lists, Origin]:
    printed = basis.printed
    if printed and printed.lists and printed.plan == forecast.plan:
        return printed.lists, "measured"
    if prepared is None:
        return {}, "predicted"
    lists = {PROMPT: prepared.prompt, DECODE: prepared.decode}
    if printed and printed.lists:
        for phase, made in (rules_make(basis) or {}).items():
            if not same(made, printed.lists[phase]):
                lists[phase] = _beyond_rules(forecast, prepared, basis, phase)
    return lists, "predicted"


def _beyond_rules(
    forecast: Forecast, prepared: Prepared, basis: Basis, phase: str
) -> tuple[Bucket, ...]:
    """Return the list of a server whose printed list is not what its release's rules give.

    Where one other release's rules give the printed one, it follows those.  Else the
    printed list stays as long as the rules see no reason for another.
    """
    printed, by_rules = basis.printed, prepared.of(phase)
    like = made_like(basis, phase)
    if printed is None:
        return by_rules
    if like is not None:
        return generate(forecast.plan.shapes(prepared.settings.num_blocks, like), phase)
    before = (rules_make(basis) or {}).get(phase, ())
    if same(before, by_rules) or _only_blocks_differ(prepared.settings, printed):
        return printed.lists[phase]
    return by_rules


def made_like(basis: Basis, phase: str) -> str | None:
    """Return the only dialect that gives the printed list of a phase, None without one."""
    printed = basis.printed
    if printed is None or phase not in printed.lists:
        return None
    flags = printed.plan.sized(max(1, printed.blocks))
    listed = frozenset(printed.lists[phase])
    like = dialects_making(listed, phase, flags, printed.plan.env)
    return like[0] if len(like) == 1 else None


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
    return one is other or set(one) == set(other)


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


def _scale_bytes(forecast: Forecast, device: Device | None) -> int:
    """Return what the scales of all blocks take; told only where the model is known."""
    plan = forecast.plan
    layout = device.layout(plan) if device else None
    is_on = is_true(plan.env.get("VLLM_DYNAMIC_KV_QUANT", ""))
    if layout is None or not is_on or not plan.kv_cache_dtype.startswith("fp8"):
        return 0
    return forecast.num_blocks * scale_bytes_per_block(layout)


def _room(
    parts: Split | None, graph_bytes: Estimate, scale_bytes: int, device: Device | None
) -> Verdict | None:
    if parts is None or device is None:
        return None
    # What requests need is an allowance, not a figure: it counts in the upper end alone.
    most = scale_bytes + device.allowance_bytes
    workspace = Estimate(scale_bytes, scale_bytes, most, "predicted")
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
