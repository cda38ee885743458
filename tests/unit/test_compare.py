"""Two starts beside each other: what differs, and which change explains how much of it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hpuwatch.advise.compare.document import Comparison, compared
from hpuwatch.advise.compare.figures import Difference
from hpuwatch.advise.compare.text import render_markdown, render_text
from hpuwatch.app.compare import comparison_of
from hpuwatch.cli.main import build
from hpuwatch.errors import InputError, MissingFileError, UsageError
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.store.starts import FILE_NAME, StartStore
from hpuwatch.testing.kept import divided, kept_of_text, record_of_text
from hpuwatch.testing.lives import DECODE, Told
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

PLAIN = Told(args={"max_model_len": 8192, "max_num_seqs": 8})
COMPILE_FAILED = (
    "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
)


def between(a: str | Told, b: str | Told) -> Comparison:
    texts = [each if isinstance(each, str) else each.text() for each in (a, b)]
    return compared(("old", "new"), *map(record_of_text, texts))


def difference(found: Comparison, figure: str) -> Difference:
    return next(each for each in found.differences if each.figure == figure)


def shares(each: Difference) -> dict[str, float]:
    return {part.by: part.amount for part in each.explained}


def test_nothing_differs_between_a_start_and_itself() -> None:
    found = between(PLAIN, PLAIN)
    assert found.said == ("Nothing that the two logs show differs.",)
    assert (found.changes, found.differences, found.faults) == ((), (), ())
    assert "kv_cache_bytes" in found.same


def test_the_reserve_explains_the_split() -> None:
    """A reserve of 0.4 instead of 0.1 takes 0.3 of what is usable from the KV cache."""
    found = between(divided(PLAIN), divided(replace(PLAIN, reserve=0.4)))
    (change,) = found.changes
    assert (change.kind, change.name) == ("setting", "VLLM_GRAPH_RESERVED_MEM")
    cache = difference(found, "kv_cache_bytes")
    assert cache.unexplained == 0
    assert shares(cache) == {
        "VLLM_GRAPH_RESERVED_MEM 0.1 → 0.4": pytest.approx(-0.3 * 72 * GIB)
    }
    blocks = difference(found, "kv_blocks")
    assert blocks.unexplained == 0
    assert sum(shares(blocks).values()) == pytest.approx(-0.3 * 72 * 64, abs=2)
    assert difference(found, "reserve_bytes").unexplained == 0
    assert not cache.suspects


def test_two_changes_share_a_difference() -> None:
    """Utilisation 0.9 to 0.8 makes 8 GiB less usable; of the rest the reserve takes 0.2."""
    after = divided(replace(PLAIN, utilisation=0.8, reserve=0.2))
    found = between(divided(PLAIN), after)
    usable = difference(found, "usable_bytes")
    assert shares(usable) == {
        "--gpu-memory-utilization 0.9 → 0.8": pytest.approx(-8 * GIB)
    }
    cache = difference(found, "kv_cache_bytes")
    by = shares(cache)
    assert by["--gpu-memory-utilization 0.9 → 0.8"] == pytest.approx(
        -7.2 * GIB, rel=1e-3
    )
    assert by["VLLM_GRAPH_RESERVED_MEM 0.1 → 0.2"] == pytest.approx(
        -6.4 * GIB, rel=1e-3
    )
    assert cache.unexplained == 0


def test_case_7_an_upgrade_that_took_memory_before_the_profile_run() -> None:
    """Weights and profile run are the same; 1 GiB more is gone, under another release."""
    old = divided(replace(PLAIN, version="0.13.0", free=23.6, weights=90.0))
    new = divided(replace(old, version="0.14.0", free=22.6))
    found = between(old, new)
    assert {"weights_bytes", "profile_run_bytes"} <= set(found.same)
    free = difference(found, "free_bytes")
    assert free.change == pytest.approx(-1 * GIB)
    cache = difference(found, "kv_cache_bytes")
    (share,) = cache.explained
    assert share.by.startswith("memory that the log doesn't explain")
    assert share.amount == pytest.approx(-0.81 * GIB, rel=0.01)  # of 0.9, without 0.1
    elsewhere = next(
        each for each in found.differences if each.figure.startswith("elsewhere")
    )
    assert elsewhere.change == pytest.approx(1 * GIB, rel=0.01)
    assert "release" in elsewhere.suspects
    assert any("The KV cache lost" in each for each in found.said)


def test_case_14_the_same_configuration_served_under_the_release_before() -> None:
    old = replace(PLAIN, version="0.24.0")
    new = replace(PLAIN, version="0.26.0", stops_in="decode", stops_after=2)
    found = between(old.text(), new.dies(COMPILE_FAILED))
    said = " ".join(found.said)
    assert "A served; B died in the phase warming (graph_compile_failed)." in said
    assert (
        "exactly this configuration served under 0.24.0 and died under 0.26.0" in said
    )
    (fault,) = (each for each in found.faults if "compile" in each.fault_class)
    assert fault.where == "b"


def test_a_death_under_another_setting_is_not_blamed_on_the_release() -> None:
    old = replace(PLAIN, version="0.24.0")
    new = replace(PLAIN, version="0.26.0", stops_in="decode", reserve=0.3)
    said = " ".join(between(old.text(), new.dies(COMPILE_FAILED)).said)
    assert "A served; B died" in said
    assert "exactly this configuration" not in said


def test_case_19_seconds_per_bucket_rose_as_two_variables_went() -> None:
    """18 minutes of decode buckets became hours: fifteen times as long each."""
    many = tuple((batch, 1, 64 * n) for batch in (1, 2, 4, 8) for n in range(1, 31))
    parallel = {
        "RUNTIME_SCALE_PATCHING": "1",
        "FUSER_ENABLE_MULTI_THREADED_INVOCATIONS": "1",
    }
    old = replace(PLAIN, env=parallel, decode=many, decode_seconds=9.0)
    new = replace(old, env={}, decode_seconds=135.0, stops_in="decode", stops_after=7)
    found = between(old, new)
    pace = difference(found, "decode_bucket_seconds")
    assert pace.b == pytest.approx(15 * (pace.a or 0), rel=0.02)
    assert set(parallel) <= set(pace.suspects)
    warmup = difference(found, "warmup_seconds")
    assert warmup.note.startswith("B did not finish")
    (share,) = warmup.explained
    assert share.by == "seconds per decode bucket 9 s → 135 s"
    assert share.amount == pytest.approx(120 * 126, rel=0.02)
    (sentence,) = (each for each in found.said if "times as long" in each)
    assert "15.0 times as long each in B" in sentence
    assert "120 buckets would take 4.5 h" in sentence
    assert "FUSER_ENABLE_MULTI_THREADED_INVOCATIONS" in sentence


def test_case_20_other_blocks_make_cached_recipes_useless() -> None:
    cached = replace(PLAIN, recipes="/cache/recipes,false,16384")
    old = divided(cached)
    new = divided(replace(cached, profile=4.5, free=79.5))
    found = between(old, new)
    said = " ".join(found.said)
    assert "Both use the recipe cache, yet the KV blocks differ" in said
    assert "--num-gpu-blocks-override" in said
    blocks = difference(found, "kv_blocks")
    assert shares(blocks) == {
        "profile run 4 GiB → 4.5 GiB": pytest.approx(-0.5 * 0.81 * 64, abs=2)
    }
    assert "recipe cache" not in " ".join(between(old, old).said)
    other = replace(new, recipes="/elsewhere,false,16384")
    assert "recipe cache" not in " ".join(between(old, other).said)


def lists_by_rules(told: Told) -> Told:
    """The life with the lists that its release's rules give."""
    plan = record_of_text(told.text()).plan
    assert plan is not None
    made = prepare(plan.shapes(told.blocks))
    return replace(
        told,
        prompt=tuple((b.batch, b.query, b.context) for b in made.prompt),
        decode=tuple((b.batch, b.query, b.context) for b in made.decode),
    )


def test_a_bucket_setting_explains_the_lists_and_they_the_warm_up() -> None:
    narrow = {"VLLM_DECODE_BLOCK_BUCKET_MAX": "128"}
    sizes = {"max_model_len": 8192, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    plain = replace(PLAIN, args=sizes, strategy="lin")
    plain = replace(plain, prompt_seconds=0.1, decode_seconds=10.0)
    old, new = map(lists_by_rules, (plain, replace(plain, env=narrow)))
    found = between(old, new)
    buckets = difference(found, "decode_buckets")
    assert shares(buckets) == {
        "VLLM_DECODE_BLOCK_BUCKET_MAX unset → 128": len(new.decode) - len(old.decode)
    }
    assert buckets.unexplained == 0
    assert "prompt_buckets" in found.same
    warmup = difference(found, "warmup_seconds")
    (share,) = warmup.explained
    assert share.by == f"decode buckets {len(old.decode):,} → {len(new.decode):,}"
    assert share.amount == pytest.approx(10 * (len(new.decode) - len(old.decode)))
    (row,) = (each for each in found.lists if each.phase == "decode")
    assert row.same is False


def test_other_list_rules_are_the_releases_doing() -> None:
    """The same settings under another dialect make other lists."""
    sizes = {"max_model_len": 8192, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    plain = replace(PLAIN, args=sizes, strategy="exp")
    releases = [replace(plain, version=each) for each in ("0.10.1", "0.26.0")]
    old, new = map(lists_by_rules, releases)
    buckets = difference(between(old, new), "prompt_buckets")
    assert shares(buckets) == {
        "the list rules of plugin-0.26": len(new.prompt) - len(old.prompt)
    }
    assert buckets.unexplained == 0


def test_other_blocks_make_other_lists() -> None:
    sizes = {"max_model_len": 8192, "max_num_seqs": 8, "max_num_batched_tokens": 2048}
    paged = {"VLLM_CONTIGUOUS_PA": "true"}
    plain = replace(PLAIN, args=sizes, env=paged, blocks=4000)
    old, new = map(lists_by_rules, (plain, replace(plain, blocks=200)))
    buckets = difference(between(old, new), "decode_buckets")
    assert shares(buckets) == {
        "KV blocks 4,000 → 200": len(new.decode) - len(old.decode)
    }


def test_what_no_rule_gives_is_not_explained() -> None:
    """The log's own list isn't what its rules give, so arithmetic keeps silent."""
    found = between(PLAIN, replace(PLAIN, decode=DECODE[:-1]))
    buckets = difference(found, "decode_buckets")
    assert buckets.explained == ()
    assert buckets.unexplained is None
    text = render_text(found)
    assert "nothing that the two logs show was changed that could move it" in text


def test_a_release_changes_defaults_that_nobody_set() -> None:
    found = between(replace(PLAIN, version="0.10.1"), replace(PLAIN, version="0.26.0"))
    kinds = {each.kind for each in found.changes}
    assert "default" in kinds
    assert all(
        each.name not in {"VLLM_GRAPH_RESERVED_MEM", "--gpu-memory-utilization"}
        for each in found.changes
        if each.kind == "default"
    )


def test_quantised_weights_are_explained_down_to_half() -> None:
    old = record_of_text(replace(PLAIN, weights=16.0, free=80.0).text())
    new = record_of_text(replace(PLAIN, weights=9.0, free=87.0).text())
    new = new.model_copy(update={"settings": {**new.settings, "--quantization": "inc"}})
    found = compared(("old", "new"), old, new)
    weights = difference(found, "weights_bytes")
    assert shares(weights) == {"quantisation none → inc": pytest.approx(-7 * GIB)}
    assert weights.unexplained == 0
    less = new.model_copy(
        update={"memory": new.memory.model_copy(update={"weights": 7 * GIB})}
    )
    weights = difference(compared(("old", "new"), old, less), "weights_bytes")
    assert shares(weights) == {"quantisation none → inc": pytest.approx(-8 * GIB)}
    assert weights.unexplained == pytest.approx(-1 * GIB)


def test_the_text_is_80_columns_wide_and_the_document_can_be_read_back() -> None:
    found = between(divided(PLAIN), divided(replace(PLAIN, reserve=0.4, weights=15.0)))
    assert max(map(len, render_text(found).splitlines())) <= 80
    again = Comparison.model_validate_json(found.model_dump_json(by_alias=True))
    assert again == found
    assert "### Changed" in render_markdown(found)
    assert "VLLM_GRAPH_RESERVED_MEM 0.1 → 0.4" in render_markdown(found)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A log with two starts."""
    log = tmp_path / "server.log"
    later = replace(PLAIN, began=PLAIN.began.replace(hour=14), reserve=0.2)
    log.write_text(divided(PLAIN).ended() + divided(later).text())
    return log


def test_starts_are_found_in_logs_and_in_the_store(two: Path, tmp_path: Path) -> None:
    root = tmp_path / "state"
    (root / "mine").mkdir(parents=True)
    store = StartStore(root / "mine" / FILE_NAME)
    store.keep(*kept_of_text(divided(PLAIN).text()), 1.0)
    store.keep(*kept_of_text(divided(replace(PLAIN, reserve=0.3)).text()), 2.0)
    store.close()

    def reserves(a: str, b: str, name: str | None = None) -> list[str | None]:
        found = comparison_of(a, b, root, name)
        (change,) = (e for e in found.changes if e.name == "VLLM_GRAPH_RESERVED_MEM")
        return [change.a, change.b]

    assert reserves(f"{two}@1", str(two)) == ["0.1", "0.2"]
    assert reserves("mine@1", "mine") == ["0.1", "0.3"]
    assert reserves("2", str(two)) == ["0.3", "0.2"]
    assert reserves("1", f"{two}@2", "mine") == ["0.1", "0.2"]


@pytest.mark.parametrize(
    ("which", "error", "words"),
    [
        ("gone.log", MissingFileError, "no such start is remembered"),
        ("./gone.log", MissingFileError, "there is no log ./gone.log"),
        ("{two}@3", MissingFileError, "has no start 3: it has 1 to 2"),
        ("mine@9", MissingFileError, "no such start is remembered"),
        ("1", UsageError, "1 is of several names: write mine@1 or other@1"),
        ("{empty}", InputError, "empty"),
    ],
)
def test_what_is_not_there_is_said(
    two: Path, tmp_path: Path, which: str, error: type[Exception], words: str
) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        store = StartStore(tmp_path / name / FILE_NAME)
        store.keep(*kept_of_text(PLAIN.text()), 1.0)
        store.close()
    with pytest.raises(error, match=words):
        comparison_of(which.format(two=two, empty=empty), str(two), tmp_path)


def test_the_verb(two: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(two.read_bytes()))
    words = ["compare", f"{two}@1", str(packed), "--format", "json", "--share"]
    result = CliRunner().invoke(build(), words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["schema"] == "hpuwatch.compare/1"
    assert found["a"]["file"] == "log1"
    assert str(tmp_path) not in result.stdout


def test_real_starts_can_be_compared(shared: Path) -> None:
    """Two public starts of one model: the one died in warm-up, the other served."""
    logs = shared / "corpus"
    found = comparison_of(
        str(logs / "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz"),
        str(logs / "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz"),
        logs,
    )
    assert any("A served; B died in the phase warming" in each for each in found.said)
    for each in found.differences:
        if each.unexplained is not None and each.change is not None:
            total = sum(part.amount for part in each.explained) + each.unexplained
            assert total == pytest.approx(each.change, rel=0.02, abs=1.5)
