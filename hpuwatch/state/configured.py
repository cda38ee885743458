"""What a log tells of a server's configuration, in the words of ``gaudi.resolve``.

From here the rules can be asked what the server should have prepared.  What the log prints
of its buckets always counts more than that: see :attr:`Start.buckets`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.alike import dialects_making
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.releases import Release, release_of
from hpuwatch.gaudi.resolve import FILE_VARIABLE, Flags, default_sizes, resolve
from hpuwatch.state.model import (
    DECODE,
    PROMPT,
    BucketList,
    Known,
    Server,
    Shape,
    Start,
    value_of,
)

_STRATEGIES = re.compile(r"(exp|lin|pad)\w*")
_UNSET = frozenset({"", "None"})
_SWITCHES = {
    "VLLM_MERGED_PREFILL": "merged_prefill",
    "VLLM_SKIP_WARMUP": "skip_warmup",
    "VLLM_ENABLE_BUCKETING": "use_bucketing",
}
"""Variables whose outcome the newer releases print among their features.

An outcome stands in for a variable that isn't printed; that one was set it doesn't tell.
"""


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration, as far as a log shows it.

    Attributes:
        release: what runs there.
        flags: sizes that the log doesn't print are vLLM's defaults.
        env: the variables that act; those that only echo a default are left out.
        assumed: the names of the sizes that are defaults here.
        bucket_file: the path of the file that the server reads its buckets from, if any;
            ``flags`` doesn't hold its text.
    """

    release: Release
    flags: Flags
    env: Mapping[str, str]
    assumed: tuple[str, ...] = ()
    bucket_file: str | None = None


def configured(start: Start) -> Configured | None:
    """Return what the log tells, None without a release, a length or KV blocks."""
    server = start.server
    found, length = release(server), value_of(server.max_model_len)
    blocks = value_of(start.kv.blocks)
    if found is None or not length or not blocks:
        return None
    env = {
        variable: server.features[feature]
        for variable, feature in _SWITCHES.items()
        if feature in server.features
    }
    env |= {name: known.value for name, known in acting_variables(server).items()}
    sizes = {
        "max_num_seqs": value_of(server.max_num_seqs),
        "max_num_batched_tokens": value_of(server.max_num_batched_tokens),
        "block_size": value_of(server.block_size)
        or start.kv.block_size
        or value_of(server.range_block_size),
    }
    known = {name: size for name, size in sizes.items() if size}
    paged = server.features.get("use_contiguous_pa")
    caching = server.flags.get("enable_prefix_caching")
    file = env.get(FILE_VARIABLE) or None
    dialect = dialect_of(found.dialect)
    all_sizes = default_sizes(dialect, length) | known
    return Configured(
        found,
        Flags(
            max_num_seqs=all_sizes["max_num_seqs"],
            max_num_batched_tokens=all_sizes["max_num_batched_tokens"],
            max_model_len=length,
            num_blocks=blocks,
            block_size=all_sizes["block_size"],
            prefix_caching=None if caching is None else caching.value == "True",
            strategy=printed_strategy(start),
            contiguous_pa=None if paged is None else paged == "True",
        ),
        env,
        tuple(name for name in sizes if name not in known),
        file if "file" in dialect.strategies else None,
    )


def release_text(server: Server) -> str | None:
    """Return the version as ``gaudi.releases`` takes it, None where the log tells none."""
    version, build = value_of(server.version), value_of(server.build)
    if server.plugin and version:
        return f"plugin-{version}"
    if not server.plugin and build:
        return f"fork-{build}"
    return version


def release(server: Server) -> Release | None:
    """Return the release that the log's versions point to, or None."""
    text = release_text(server)
    try:
        return release_of(text) if text is not None else None
    except ConfigError:
        return None


def printed_strategy(start: Start) -> str | None:
    """Return the strategy as the log says it: in its features, or by the ranges' form."""
    features = start.server.features
    known = _STRATEGIES.fullmatch(features.get("bucketing_strategy", "").strip())
    if known:
        return known[1]
    if (is_exponential := features.get("exponential_bucketing")) is not None:
        return "exp" if is_exponential.lower() == "true" else "lin"
    return value_of(start.server.strategy)


def printed_lists(start: Start) -> dict[str, tuple[Bucket, ...]]:
    """Return the bucket lists by phase, of the phases whose list the log has in full."""
    lists = {
        phase: buckets_of(phase, start.buckets[phase].value.shapes)
        for phase in (PROMPT, DECODE)
        if phase in start.buckets
    }
    return {phase: buckets for phase, buckets in lists.items() if buckets}


def buckets_of(phase: str, shapes: Sequence[Shape]) -> tuple[Bucket, ...]:
    """Return the buckets of a printed list, none where one of its shapes is none."""
    buckets = [bucket_of(phase, shape) for shape in shapes]
    whole = tuple(bucket for bucket in buckets if bucket is not None)
    return whole if len(whole) == len(shapes) else ()


def bucket_of(phase: str, shape: Shape) -> Bucket | None:
    """Return a bucket as the log printed it, None where it is none.

    Up to fork-1.21 it has two numbers: a batch with a length, or with blocks.
    """
    if len(shape) == 3:
        return Bucket(*shape)
    if len(shape) != 2:
        return None
    batch, other = shape
    return Bucket(batch, 1, other) if phase == DECODE else Bucket(batch, other, 0)


def predicted_count(start: Start, phase: str) -> int | None:
    """Return how many buckets the configuration should make, None where it isn't known."""
    known = configured(start)
    if known is None or known.bucket_file is not None:
        return None
    env = tuple(sorted(known.env.items()))
    return _count(known.release.dialect, known.flags, env, phase)


@lru_cache(maxsize=8)  # whoever follows a warm-up asks ten times a second
def _count(
    dialect: str, flags: Flags, env: tuple[tuple[str, str], ...], phase: str
) -> int | None:
    try:
        return len(generate(resolve(dialect, flags, dict(env)), phase))
    except ConfigError:
        return None


@dataclass(frozen=True, slots=True)
class Difference:
    """A list that the log prints, where the rules of its release give another.

    Attributes:
        listed: as printed.
        predicted: how many buckets the rules give.
        added: buckets that only the log has; 0 where it doesn't print them all.
        removed: buckets that only the rules give; likewise.
        like: the dialects whose rules give exactly what is printed.
    """

    phase: str
    listed: Known[BucketList]
    predicted: int
    added: int
    removed: int
    like: tuple[str, ...] = ()


def differences(start: Start) -> tuple[Difference, ...]:
    """Compare the printed lists with the rules.

    Nothing is compared where a list hangs on a size that the log doesn't print, where the
    rules refuse the configuration, or where the buckets come from a file.
    """
    known = configured(start)
    if known is None or known.bucket_file is not None:
        return ()
    found = (_difference(start, known, phase) for phase in (PROMPT, DECODE))
    return tuple(each for each in found if each is not None)


def _difference(start: Start, known: Configured, phase: str) -> Difference | None:
    listed = start.buckets.get(phase)
    if listed is None or _hangs_on_assumptions(known, phase):
        return None
    made = _made(known, known.release.dialect, phase)
    if made is None:
        return None
    shown = frozenset(printed_lists(start).get(phase, ()))
    if not shown:
        same = listed.value.count == len(made)
        return None if same else Difference(phase, listed, len(made), 0, 0)
    if shown == made:
        return None
    like = dialects_making(shown, phase, known.flags, known.env)
    return Difference(
        phase, listed, len(made), len(shown - made), len(made - shown), like
    )


def _hangs_on_assumptions(known: Configured, phase: str) -> bool:
    """Tell whether another value of a size that was assumed makes another list."""
    made = _made(known, known.release.dialect, phase)
    for name in known.assumed:
        size = getattr(known.flags, name)
        for other in (size // 2, size * 2):
            flags = replace(known.flags, **{name: other})
            varied = replace(known, flags=flags)
            if _made(varied, known.release.dialect, phase) != made:
                return True
    return False


def _made(known: Configured, dialect: str, phase: str) -> frozenset[Bucket] | None:
    try:
        settings = resolve(dialect, known.flags, known.env)
        return frozenset(generate(settings, phase))
    except ConfigError:
        return None


def acting_variables(server: Server) -> dict[str, Known[str]]:
    """Return the variables that the log shows to be set.

    To some releases a variable that is set acts otherwise than one that isn't, so those are
    left out that have no value, that only echo a default, or that came from an older name.
    """
    printed = {
        name: known
        for name, known in server.flags.items()
        if name.isupper() and known.value not in _UNSET
    }
    return {
        name: known
        for name, known in printed.items()
        if not _echoes_default(known) and not _stands_for_seq(name, printed)
    }


def _echoes_default(known: Known[str]) -> bool:
    """Tell whether a line says ``NAME=value (default:value)`` with the same value twice."""
    return known.line.text.rstrip().endswith(f"={known.value} (default:{known.value})")


def _stands_for_seq(name: str, printed: Mapping[str, Known[str]]) -> bool:
    """Tell whether a bound was not set, but came from its older spelling.

    A release prints what each bound came to as ``NAME=value (default:value)``.
    """
    older = printed.get(name.replace("_QUERY_", "_SEQ_"))
    newer = printed[name]
    return (
        older is not None
        and older is not newer
        and older.value == newer.value
        and "(default:" in newer.line.text
    )
