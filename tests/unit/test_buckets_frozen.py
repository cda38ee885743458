"""Our own configurations still make the lists that agreed with the runtime's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketError, generate
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.fingerprint import fingerprint
from hpuwatch.gaudi.resolve import Flags, resolve

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def frozen() -> dict[str, list[dict[str, Any]]]:
    path = Path(__file__).resolve().parent.parent / "data" / "buckets.json"
    cases: dict[str, list[dict[str, Any]]] = json.loads(path.read_text("utf-8"))
    return cases


def test_every_dialect_has_its_cases(frozen: dict[str, list[dict[str, Any]]]) -> None:
    assert list(frozen) == list(DIALECTS)
    assert all(len(cases) >= 20 for cases in frozen.values())


def outcome(name: str, case: dict[str, Any], phase: str) -> dict[str, object]:
    given = {k: v for k, v in case.items() if k not in {"env", PROMPT, DECODE}}
    try:
        made = generate(resolve(name, Flags(**given), case["env"]), phase)
    except BucketError as error:
        return {"error": error.raised}
    return {"count": len(made), "sha256": fingerprint(made)}


@pytest.mark.parametrize("phase", [PROMPT, DECODE])
@pytest.mark.parametrize("name", DIALECTS)
def test_counts_and_hashes_stay(
    frozen: dict[str, list[dict[str, Any]]], name: str, phase: str
) -> None:
    for case in frozen[name]:
        assert outcome(name, case, phase) == case[phase], case
