"""Our bucket rules against the runtime's own results, where those lie beside us.

Everything that the oracle records is compared: lists by their hash, errors by type and
words, look-ups one by one (independent and in sequence), ranges and fall-back values.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
    seeds,
)
from hpuwatch.gaudi.dialects import DIALECTS, dialect_of
from hpuwatch.gaudi.filestrategy import phase_of, read_file
from hpuwatch.gaudi.fingerprint import fingerprint
from hpuwatch.gaudi.grammar import Dialect, PairDialect, PluginDialect
from hpuwatch.gaudi.lookup import (
    Prepared,
    fall_back_value,
    look_up,
    look_up_seed,
    pad_axis,
    prepare,
)
from hpuwatch.gaudi.ranges import (
    Axis,
    PaddedAxis,
    exponential,
    filled,
    linear,
    padded,
)
from hpuwatch.gaudi.resolve import Flags, resolve

Record = dict[str, Any]
# No data exist for this one; it is plugin-0.17 with one field changed.
NAMES = [name for name in DIALECTS if name != "gaudi-plugin-0.18"]


def records(shared: Path, name: str, *kinds: str) -> Iterator[Record]:
    path = shared / "oracle" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if record["kind"] in kinds:
                yield record


def settings_of(record: Record, dialect: str) -> BucketSettings:
    flags = Flags(
        max_num_seqs=record["max_num_seqs"],
        max_num_batched_tokens=record["max_num_batched_tokens"],
        max_model_len=record["max_model_len"],
        num_blocks=record["num_hpu_blocks"],
        block_size=record["block_size"],
        max_num_prefill_seqs=record.get("max_num_prefill_seqs"),
        prefix_caching=record["prefix_caching"],
        num_speculative_tokens=record["num_speculative_tokens"],
        mamba_chunk_size=record.get("mamba_chunk_size", 0),
        mamba_chunk_is_explicit=record.get("mamba_chunk_size_is_explicit", False),
        skip_decode_block_clamp=record.get("skip_decode_block_clamp", False),
        bucket_file=record.get("bucket_file"),
    )
    return resolve(dialect, flags, record["env"])


def as_kept(buckets: tuple[Bucket, ...], name: str, phase: str) -> list[list[int]]:
    return [as_listed(bucket, name, phase) for bucket in buckets]


def as_listed(bucket: Bucket, name: str, phase: str) -> list[int]:
    if not isinstance(dialect_of(name), PairDialect):
        return list(bucket)
    return [bucket.batch, bucket.query if phase == PROMPT else bucket.context]


def outcome(make: Callable[[], tuple[Bucket, ...]], name: str, phase: str) -> str:
    try:
        return fingerprint(as_kept(make(), name, phase))
    except BucketError as error:
        return last_line(error)


def last_line(error: BucketError) -> str:
    return f"{error.raised}: {error.words}" if error.words else error.raised


def recorded_line(error: Record) -> str:
    if error["type"] in {"RuntimeError", "HANG"}:
        return str(error["type"])  # its words hang on the release, or nothing is raised
    return f"{error['type']}: {error['message']}"


def wanted(record: Record, phase: str) -> str | None:
    errors = record.get("error", {})
    error = errors.get("init") or errors.get(phase)
    if error:
        return recorded_line(error)
    made = record.get(f"{phase}_buckets")
    return str(made["sha256"]) if made else None


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_list_and_error_is_ours_too(shared: Path, name: str) -> None:
    wrong: list[object] = []
    compared = 0
    for record in records(shared, name, "config"):
        for phase in (PROMPT, DECODE):
            want = wanted(record, phase)
            if want is None:
                continue  # the runtime stopped in the other phase before it came here
            compared += 1
            got = outcome(
                lambda: generate(settings_of(record, name), phase),  # noqa: B023  called at once
                name,
                phase,
            )
            if got != want:
                wrong.append((record["id"], phase, want, got))
        if "seed_decode_buckets" in record:
            compared += 1
            got = outcome(
                lambda: seeds(settings_of(record, name), DECODE),  # noqa: B023  called at once
                name,
                DECODE,
            )
            if got != record["seed_decode_buckets"]["sha256"]:
                wrong.append((record["id"], "seeds", "", got))
    assert not wrong
    assert compared > 250


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_look_up_is_ours_too(shared: Path, name: str) -> None:
    wrong: list[object] = []
    compared = 0
    for record in records(shared, name, "lookup"):
        fresh = prepare(settings_of(record["config"], name))
        for query in record["independent"]:
            compared += 1
            got, _ = answer(fresh, query, name, fresh)
            if got != recorded(query):
                wrong.append((record["id"], query, got))
        lists = fresh
        for query in record["sequence"]:
            compared += 1
            got, lists = answer(lists, query, name, fresh)
            if got != recorded(query):
                wrong.append((record["id"], "sequence", query, got))
    assert not wrong
    assert compared > 400


def recorded(query: Record) -> Record:
    keys = ("bucket", "in_prepared_list", "list_grew")
    return {key: query[key] for key in keys if key in query}


def answer(
    lists: Prepared, query: Record, name: str, fresh: Prepared
) -> tuple[Record, Prepared]:
    phase = query["phase"]
    context = query["ctx"] if "ctx" in query else query.get("num_blocks", 0)
    want = Bucket(query["batch"], query.get("query", 1), context)
    if query.get("seed_buckets"):
        found = look_up_seed(lists, want)
    else:
        found = look_up(lists, phase, want)
    got: Record = {
        "bucket": as_listed(found.bucket, name, phase),
        "in_prepared_list": found.bucket in fresh.of(phase),
    }
    if "list_grew" in query:
        got["list_grew"] = len(found.after.of(phase)) > len(lists.of(phase))
    return got, found.after


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_range_and_fall_back_is_ours_too(
    shared: Path, name: str
) -> None:
    kinds = ("linear", "exponential", "padding-aware")
    ranges = [f"range-{kind}" for kind in kinds]
    wrong: list[object] = []
    compared = 0
    for record in records(shared, name, *ranges, "fallback-value", "find-linear"):
        compared += 1
        failed = "error" in record
        want = recorded_line(record["error"]) if failed else record["result"]
        if (got := unit(record, name)) != want:
            wrong.append((record, got))
    assert not wrong
    assert compared > 100


def unit(record: Record, name: str) -> object:
    dialect = dialect_of(name)
    if record["kind"] == "fallback-value":
        return fall_back_value(record["n"], record["base_step"])
    if record["kind"] == "find-linear":
        assert isinstance(dialect, PairDialect)
        return pad_axis(dialect, Axis(*record["config"]), record["value"])
    try:
        return ranged(record, dialect)
    except BucketError as error:
        return last_line(error)


def ranged(record: Record, dialect: Dialect) -> list[int]:
    numbers = record["config"]
    if record["kind"] == "range-padding-aware":
        return padded(PaddedAxis(*numbers))
    axis = Axis(*numbers[:3])
    if record["kind"] == "range-linear":
        return linear(axis, zero_ends=isinstance(dialect, PluginDialect))
    count, exact = numbers[3], record["contiguous_pa"]
    if isinstance(dialect, PluginDialect):
        return exponential(
            axis, count, exact_end=exact, kept=dialect.kept, clipped=dialect.clipped
        )
    return filled(axis, count, exact_end=exact, long=record.get("long_context", False))


def published(shared: Path) -> Iterator[tuple[Record, str, Record]]:
    """Yield each list of the public documentation with a dialect that makes it."""
    text = (shared / "oracle" / "published.yaml").read_text(encoding="utf-8")
    for entry in yaml.safe_load(text)["lists"]:
        for name, verdict in entry["verified"].items():
            if verdict != "equal" or name not in DIALECTS:
                continue
            configuration = entry["configuration"]
            if "env" not in configuration:
                old = name == "fork-1.18"
                configuration = configuration["fork_1_18" if old else "fork_1_20_1_21"]
            yield entry, name, configuration


def test_the_lists_of_the_public_documentation_are_ours_too(shared: Path) -> None:
    compared = 0
    for entry, name, configuration in published(shared):
        record = {
            "prefix_caching": False,
            "num_speculative_tokens": 0,
            **configuration,
        }
        made = generate(settings_of(record, name), entry["phase"])
        listed = sorted(as_kept(made, name, entry["phase"]))
        assert listed == entry["buckets"], (entry["id"], name)
        compared += 1
    assert compared >= 10


def test_the_ranges_and_files_of_the_public_documentation_are_ours_too(
    shared: Path,
) -> None:
    text = (shared / "oracle" / "published.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    kinds = {
        "linear": lambda numbers: linear(Axis(*numbers)),
        "padding-aware": lambda numbers: padded(PaddedAxis(*numbers)),
        "exponential": lambda numbers: exponential(
            Axis(*numbers[:3]), numbers[3], exact_end=False
        ),
        "exponential with filling": lambda numbers: filled(
            Axis(*numbers[:3]), numbers[3], exact_end=False
        ),
    }
    for entry in document["ranges"]:
        made = kinds[entry["kind"]](entry["config"])
        assert made == entry["oracle"], entry["id"]
    counts = {"file-precise": (1, 1), "file-list": (6, 0), "file-range": (0, 2)}
    head = dialect_of("gaudi-plugin-head")
    assert isinstance(head, PluginDialect)
    for entry in document["files"]:
        named = read_file("\n".join(entry["lines"]), head)
        decodes = sum(phase_of(bucket) == DECODE for bucket in named)
        assert (len(named) - decodes, decodes) == counts[entry["id"]]
