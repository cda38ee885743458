"""Our answers to the inputs of Intel's calculator, beside what the plugin's code makes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def calculator() -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "calculator.py"
    spec = importlib.util.spec_from_file_location("calculator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_counts_and_blocks_are_the_real_ones(
    shared: Path, calculator: ModuleType
) -> None:
    rows = list(calculator.rows(shared))
    assert len(rows) == 70
    compared = [row for row in rows if row.real is not None]
    assert len(compared) == 66
    for row in compared:
        check = row.record["check"]
        blocks = check.get("plugin_blocks_if_free_equals_autocalc_usable")
        assert (row.ours.prompt, row.ours.decode) == row.real, row.record["inputs"]
        assert row.ours.blocks == (blocks or check["plugin_blocks"])


def test_every_input_gets_an_answer_or_a_sentence(
    shared: Path, calculator: ModuleType
) -> None:
    crashed = [row for row in calculator.rows(shared) if not row.emitted]
    assert len(crashed) == 4
    heavy, short, works, unknown = (row.ours for row in crashed)
    assert heavy.refusal.startswith("Weights and profile run need ")
    assert "needs 34 KV blocks" in short.refusal
    assert unknown.refusal.startswith("there is no card 'GAUDI2D'")
    assert works.refusal == ""
    assert works.blocks is not None
    assert works.blocks > 1000


def test_the_page_has_the_table(
    shared: Path, checkout: Path, calculator: ModuleType
) -> None:
    text = (checkout / "docs" / "calculator.md").read_text(encoding="utf-8")
    assert calculator.page(shared, text) == text
