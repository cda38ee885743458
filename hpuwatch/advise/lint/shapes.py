"""What is wrong with the buckets that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hpuwatch.advise.lint import values
from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.remark import Remark, unset
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.bucketcheck import check_file, check_lines
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.heeded import heeded
from hpuwatch.gaudi.lookup import Prepared, prepare
from hpuwatch.gaudi.model import UNKNOWN, BucketError, BucketSettings
from hpuwatch.gaudi.resolve import (
    EXPONENTIAL,
    FILE_VARIABLE,
    STRATEGY,
    Flags,
    default_sizes,
    resolve,
)

_PREFILLS = "VLLM_PROMPT_BS_BUCKET_MAX"
_DECODES = "VLLM_DECODE_BLOCK_BUCKET_MAX"
_CHOOSERS = frozenset({STRATEGY, EXPONENTIAL, FILE_VARIABLE})
_LEAST_DECODES = "VLLM_DECODE_BLOCK_BUCKET_MIN"

_SIZES = {
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_model_len": "--max-model-len",
    "block_size": "--block-size",
}
_LENGTH_UNKNOWN = 131072
"""Stands in for the model's length where nobody says it: no complaint is due to it."""


def flags_of(found: Configuration) -> Flags:
    """Return the sizes that are set, with vLLM's defaults for the others."""
    longest = found.count("--max-model-len") or _LENGTH_UNKNOWN
    dialect = dialect_of(found.release.dialect)
    sizes = default_sizes(dialect, longest)
    for name in sizes:
        sizes[name] = found.count(_SIZES[name]) or sizes[name]
    caching = found.settings.get("--enable-prefix-caching")
    listed = found.bucket_file
    is_chosen = not _CHOOSERS.isdisjoint(found.settings)
    printed = found.strategy if found.strategy in dialect.strategies else None
    return Flags(
        max_num_seqs=sizes["max_num_seqs"],
        max_num_batched_tokens=sizes["max_num_batched_tokens"],
        block_size=sizes["block_size"],
        max_model_len=longest,
        # More than any batch can need: no complaint is then due to a small pool.
        num_blocks=found.num_blocks
        or sizes["max_num_seqs"] * -(-longest // sizes["block_size"]),
        max_num_prefill_seqs=found.count("--max-num-prefill-seqs"),
        prefix_caching=None
        if caching is None
        else found.is_on("--enable-prefix-caching"),
        strategy=None if is_chosen else printed,
        mamba_chunk_size=found.mamba_chunk_size,
        bucket_file=listed.text if listed else None,
    )


def _resolved(found: Configuration) -> BucketSettings:
    return resolve(found.release.dialect, flags_of(found), found.env)


def unheeded_axes(found: Configuration) -> Iterator[Remark]:
    """See bucket variables that only another strategy of the release asks for."""
    try:
        settings = _resolved(found)
    except ConfigError:
        return
    acting = {
        strategy: heeded(replace(settings, strategy=strategy))
        for strategy in (settings.strategy, *dialect_of(settings.dialect).strategies)
    }
    for setting, knob in found.known():
        asked = [each for each, names in acting.items() if knob.name in names]
        if knob.acts(found.at) and asked and settings.strategy not in asked:
            yield Remark(
                setting,
                f"The strategy {settings.strategy} makes its ranges without it.",
                f"Unset it, or choose a strategy that asks for it: {', '.join(asked)}.",
            )


def acting_batch(found: Configuration) -> Iterator[Remark]:
    """See the one bound that acts although the log says that it doesn't."""
    setting = found.settings.get(_PREFILLS)
    if setting is None or not isinstance(
        dialect_of(found.release.dialect), PluginDialect
    ):
        return
    try:
        strategy = _resolved(found).strategy
    except ConfigError:
        return
    if strategy == "exp":
        yield Remark(
            setting,
            "It sets how many prompts a prefill takes, under every strategy: the warning "
            "in the log that it will be overwritten is wrong.",
            "Unset it for single prompts.",
        )


def capped_decodes(found: Configuration) -> Iterator[Remark]:
    """See decode contexts that contiguous attention cuts at the pool."""
    setting, blocks = found.settings.get(_DECODES), found.num_blocks
    top = found.number(_DECODES)
    if setting is None or blocks is None or top is None or top <= blocks:
        return
    if found.is_on("VLLM_CONTIGUOUS_PA"):
        yield Remark(
            setting,
            f"Contiguous attention cuts it at the {blocks} KV blocks that there are.",
            f"Set {blocks} or less, or unset it.",
        )


def minimum_above_maximum(found: Configuration) -> Iterator[Remark]:
    """See an axis whose minimum exceeds its maximum, which is mostly an AssertionError."""
    try:
        settings = _resolved(found)
    except ConfigError:
        return
    for name in sorted(heeded(settings)):
        if not name.endswith("_MIN"):
            continue
        least, top = name, name.removesuffix("MIN") + "MAX"
        setting = found.settings.get(least) or found.settings.get(top)
        low, high = _size(found, least), _size(found, top)
        if setting is None or low is None or high is None or low <= high:
            continue
        exceeds = f"The minimum ({low}) exceeds the maximum ({high})"
        cure = f"Set {least} to at most {top}."
        if name == _LEAST_DECODES and _pulls_down(settings):
            happens = "so the server takes a step less than the maximum instead"
            yield Remark(setting, f"{exceeds}, {happens}.", cure, "warning")
            continue
        yield Remark(
            setting,
            f"{exceeds}; the server does not start (AssertionError), and its advice to skip "
            "warm-up is no cure.",
            cure,
        )


def _pulls_down(settings: BucketSettings) -> bool:
    """Tell whether the least context of a decode gives way to the largest."""
    dialect = dialect_of(settings.dialect)
    return (
        isinstance(dialect, PluginDialect)
        and settings.strategy == "lin"
        and not dialect.pool_bounds_lin
    )


def _size(found: Configuration, name: str) -> int | None:
    """Return the number that a knob comes to, also where its default is another knob's."""
    value = found.value(name) or ""
    return found.number(_SIZES.get(value, name))


def no_buckets(found: Configuration) -> Iterator[Remark]:
    """See settings from which the server makes no buckets, but stops.

    Without the model's length only what doesn't depend on it is told.
    """
    told = (*minimum_above_maximum(found), *values.stops(found))
    if any(_stops_by_variable(each) for each in told):
        return
    try:
        settings = _resolved(found)
        if settings.strategy != "file" and found.count("--max-model-len"):
            prepare(settings)
    except BucketError as error:
        if error.raised == UNKNOWN:
            return
        blamed = (each for name, each in found.settings.items() if name in str(error))
        yield Remark(
            next(blamed, unset("buckets")),
            f"The server {error.end}.",
            str(error),
        )


def _stops_by_variable(remark: Remark) -> bool:
    return remark.severity is None and remark.about.name.startswith("VLLM_")


def prepared(found: Configuration) -> Prepared | None:
    """Return the buckets of a configuration whose sizes are known, None of another."""
    if not sizes_are_known(found):
        return None
    try:
        return prepare(_resolved(found))
    except ConfigError:
        return None


def bucket_file(found: Configuration) -> Iterator[Remark]:
    """See what the release makes of the bucket file, line by line.

    Without the sizes of the server nothing is said of filters and of what is left out.
    """
    setting, listed = found.settings.get(FILE_VARIABLE), found.bucket_file
    dialect = dialect_of(found.release.dialect)
    if setting is None or listed is None or not isinstance(dialect, PluginDialect):
        return
    if listed.text is None:
        return
    try:
        checked = (
            check_file(_resolved(found))
            if sizes_are_known(found)
            else check_lines(listed.text, dialect.name)
        )
    except ConfigError:
        return  # another setting stops the server first
    for each in checked.remarks:
        if each.line is None and each.severity == "info":
            continue  # that sizes are missing is no fault of the file
        place = listed.path if each.line is None else f"{listed.path}:{each.line}"
        yield Remark(
            replace(setting, where=place),
            each.text,
            "Mend the file: hpuwatch buckets check tells what it comes to.",
            each.severity,
        )


def sizes_are_known(found: Configuration) -> bool:
    """Tell whether the model's length and the KV blocks are known."""
    return found.num_blocks is not None and found.count("--max-model-len") is not None


def unreadable_file(found: Configuration) -> Iterator[Remark]:
    """See a bucket file that the server won't be able to open."""
    listed, setting = found.bucket_file, found.settings.get(FILE_VARIABLE)
    if listed is None or setting is None or listed.text is not None:
        return
    if "file" not in dialect_of(found.release.dialect).strategies:
        return  # it is passed over, which is told elsewhere
    home = " No ~ is replaced." if setting.value.startswith("~") else ""
    yield Remark(
        setting,
        f"{listed.path} can't be read ({listed.trouble}), and the server does not start."
        f"{home}",
        "Name a text file that exists where the server runs, by its absolute path (--cwd "
        "and --map say how it sees files).",
    )
