"""The recipe cache on disk: what it keeps, what it gives up, and what can't break it."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import re
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.server import Server
from hpuwatch.sim.truth.recipes import CacheSetting, Recipes
from hpuwatch.testing.clock import FakeClock
from hpuwatch.units import MIB

pytestmark = pytest.mark.unit

_FRESH, _DEEP, _DECODE = Bucket(1, 128, 0), Bucket(1, 128, 4), Bucket(8, 1, 32)
_SHAPES = ((PROMPT, _FRESH), (PROMPT, _DEEP), (DECODE, _DECODE))


def _compiled(recipes: Recipes) -> list[bool]:
    return [recipes.compiles(phase, bucket) for phase, bucket in _SHAPES]


def _files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.recipe"))


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    setting = f"{tmp_path}/deep/cache,false,1024"
    assert _compiled(Recipes(setting, "model")) == [True] * 3
    assert len(_files(tmp_path / "deep/cache")) == 3
    assert _compiled(Recipes(setting, "model")) == [False] * 3


def test_one_server_compiles_a_shape_once() -> None:
    recipes = Recipes("", "model")
    assert _compiled(recipes) == [True] * 3
    assert _compiled(recipes) == [False] * 3


def test_without_a_folder_every_start_compiles() -> None:
    for text in ("", ",false,1024", " "):
        assert _compiled(Recipes(text, "model")) == [True] * 3
        assert _compiled(Recipes(text, "model")) == [True] * 3


def test_other_software_cards_and_types_need_their_own(tmp_path: Path) -> None:
    setting = f"{tmp_path},false,"
    made_by = ("plugin-0.26", "gaudi2", "model", 1, "bfloat16")
    Recipes(setting, *made_by).compiles(PROMPT, _FRESH)
    for place in range(len(made_by)):
        other = [*made_by]
        other[place] = "another"
        assert Recipes(setting, *other).compiles(PROMPT, _FRESH)


def test_another_number_of_blocks_makes_what_reads_the_cache_new(
    tmp_path: Path,
) -> None:
    for blocks, expected in ((4107, [True] * 3), (4106, [False, True, True])):
        recipes = Recipes(f"{tmp_path},false,1024", "model")
        recipes.kv_blocks = blocks
        assert _compiled(recipes) == expected


def test_delete_empties_the_cache_at_every_start_and_nothing_else(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "weights.safetensors"
    mine.write_text("dear")
    _compiled(Recipes(f"{tmp_path},True,1024", "model"))
    assert _compiled(Recipes(f"{tmp_path},TRUE,1024", "model")) == [True] * 3
    assert _compiled(Recipes(f"{tmp_path},false,1024", "model")) == [False] * 3
    assert mine.read_text() == "dear"


def _filled(folder: Path, count: int, megabytes: int) -> Recipes:
    """Keep ``count`` recipes of one MiB, each a second younger than the one before."""
    recipes = Recipes(f"{folder},false,{megabytes}", "model", recipe_bytes=MIB)
    known: set[str] = set()
    for index in range(count):
        recipes.compiles(PROMPT, Bucket(1, 128 * (index + 1), 0))
        for name in set(_files(folder)) - known:
            os.utime(folder / name, (index, index))
            known.add(name)
    return recipes


def test_beyond_the_limit_the_oldest_go(tmp_path: Path) -> None:
    _filled(tmp_path, count=12, megabytes=10)
    kept = len(_files(tmp_path))
    assert kept == 9  # 0.99 of ten
    again = Recipes(f"{tmp_path},false,10", "model", recipe_bytes=MIB)
    fresh = [again.compiles(PROMPT, Bucket(1, 128 * n, 0)) for n in range(12, 3, -1)]
    assert fresh == [False] * kept


def test_a_recipe_above_the_limit_is_never_kept(tmp_path: Path) -> None:
    recipes = Recipes(f"{tmp_path},false,1", "model", recipe_bytes=2 * MIB)
    assert recipes.compiles(PROMPT, _FRESH)
    assert _files(tmp_path) == []


def test_who_finds_the_eviction_locked_leaves_it_to_the_other(tmp_path: Path) -> None:
    with (tmp_path / "simulated-eviction.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _filled(tmp_path, count=4, megabytes=2)
    assert len(_files(tmp_path)) == 4
    _filled(tmp_path, count=5, megabytes=2)
    assert len(_files(tmp_path)) == 1


def test_two_servers_that_share_a_folder_compile_each_shape_once(
    tmp_path: Path,
) -> None:
    one, other = (Recipes(f"{tmp_path},false,1024", "model") for _ in range(2))
    shapes = [(PROMPT, Bucket(1, 128 * n, 0)) for n in range(1, 9)]
    first = [(one if n % 2 else other).compiles(*s) for n, s in enumerate(shapes)]
    second = [(other if n % 2 else one).compiles(*s) for n, s in enumerate(shapes)]
    assert first == [True] * 8
    assert second == [False] * 8


@pytest.mark.parametrize("folder", ["file/cache", "file", "a\0b"])
def test_a_folder_that_cannot_be_is_told_once_and_done_without(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    told: list[str] = []
    recipes = Recipes(f"{tmp_path}/{folder},false,1024", "model", complain=told.append)
    assert _compiled(recipes) == [True] * 3
    assert len(told) == 1
    assert "graphs are compiled without it" in told[0]
    assert (tmp_path / "file").read_text() == "no folder"


def test_a_folder_that_vanishes_is_told_and_done_without(tmp_path: Path) -> None:
    told: list[str] = []
    folder = tmp_path / "cache"
    recipes = Recipes(f"{folder},false,1024", "model", complain=told.append)
    assert recipes.compiles(PROMPT, _FRESH)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert recipes.compiles(PROMPT, _DEEP)
    assert recipes.compiles(DECODE, _DECODE)
    assert len(told) == 1
    assert "No such file or directory" in told[0]


def test_a_full_disk_is_told_and_leaves_no_half_recipe(tmp_path: Path) -> None:
    told: list[str] = []
    recipes = Recipes(f"{tmp_path},false,1024", "model", complain=told.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        compiled = _compiled(recipes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert compiled == [True] * 3
    assert len(told) == 1
    assert _files(tmp_path) == []


@pytest.mark.parametrize("item", ["perhaps,1024", "false,lots", "false,-3", "false,0"])
def test_an_item_that_makes_no_sense_is_told_and_left_out(
    item: str, tmp_path: Path
) -> None:
    told: list[str] = []
    recipes = Recipes(f"{tmp_path},{item}", "model", complain=told.append)
    assert _compiled(recipes) == [True] * 3
    assert _compiled(Recipes(f"{tmp_path},false", "model")) == [False] * 3
    assert len(told) == 1
    assert item in told[0]


def test_a_fourth_item_is_no_matter() -> None:
    setting = CacheSetting.read("/cache,true,16384,false")
    assert setting == CacheSetting(
        Path("/cache"), empties=True, limit_bytes=16384 * MIB
    )


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=20))
def test_any_text_is_read(text: str) -> None:
    CacheSetting.read(text)


_SMALL = ("--max-num-seqs", "4", "--max-model-len", "1024", "--noise", "0")


def _start(*words: str, **env: str) -> tuple[float, str]:
    """Start a server and return the seconds of its warm-up, and what it printed."""
    output = io.StringIO()
    options = parse_options([*_SMALL, *words, "--speed", "1e12"], env)
    server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
    asyncio.run(server.start())
    (seconds,) = re.findall(r"Warmup finished in (\d+) secs", output.getvalue())
    return float(seconds), output.getvalue()


@pytest.mark.parametrize("release", ["plugin-0.26", "fork-1.21"])
def test_the_second_start_is_faster_and_other_blocks_cost_the_decodes(
    release: str, tmp_path: Path
) -> None:
    cache = {"PT_HPU_RECIPE_CACHE_CONFIG": f"{tmp_path}/cache,false,1024"}
    words = ("--release", release)
    first, _ = _start(*words, **cache)
    second, _ = _start(*words, **cache)
    other, _ = _start(*words, **cache, VLLM_GRAPH_RESERVED_MEM="0.3")
    again, _ = _start(*words, **cache, VLLM_GRAPH_RESERVED_MEM="0.3")
    assert second < 0.8 * first
    assert second < other < first
    assert again < 0.8 * other


def test_a_start_survives_a_cache_that_cannot_be_and_tells_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no folder")
    setting = f"{tmp_path}/file/cache,perhaps,lots"
    _, output = _start(PT_HPU_RECIPE_CACHE_CONFIG=setting)
    told = [line for line in output.splitlines() if "hpuwatch sim: " in line]
    assert sum("PT_HPU_RECIPE_CACHE_CONFIG" in line for line in told) == 2
    assert sum("can't be used (Not a directory)" in line for line in told) == 1
