"""Printed values become typed ones, fast and without harm."""

from __future__ import annotations

import warnings
from contextlib import suppress
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.parse.template import compile_template
from hpuwatch.parse.values import TYPES, clock_seconds, phase_name, shapes
from hpuwatch.units import Amount

pytestmark = pytest.mark.unit

COUNTS = st.integers(-(2**63) + 1, 2**63 - 1)
BUCKETS = st.lists(st.tuples(st.integers(0, 512), COUNTS, COUNTS))


@given(BUCKETS)
def test_bucket_lists(buckets: list[tuple[int, ...]]) -> None:
    assert shapes(str(buckets)) == tuple(buckets)


def test_a_very_long_list() -> None:
    buckets = [(bs, 1, blocks) for bs in range(140) for blocks in range(100)]
    assert shapes(str(buckets)) == tuple(buckets)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1, 772, np.int32(1))", (1, 772, 1)),
        ("[(1,), (2,)]", ((1,), (2,))),
        ("[]", ()),
        ("()", ()),
        (
            "[(864, 480, None), (768, 1024, (1, 20))]",
            ((864, 480, None), (768, 1024, (1, 20))),
        ),
        ("[(8, 0, True)]", ((8, 0, True),)),
        ("('prompt', 4, 1.5)", ("prompt", 4, 1.5)),
    ],
)
def test_lists(text: str, value: object) -> None:
    assert shapes(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "(1, 2",
        "[(1, 2), (3",
        "{}",
        "[{1: 2}]",
        "[x]",
        "[(1, 2)" + "x" * 30_000,
        "[(1, 9223372036854775808)]",
        f"[{'9' * 5_000}]",
        "[None, 9223372036854775808]",
        "(" * 9 + ")" * 9,
        "[(None,), [[[[[[[[1]]]]]]]]]",
    ],
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        shapes(text)


LETTERS = "[](), 0123456789-npit.x'"
RUNS = st.builds(
    mul, st.sampled_from([*LETTERS, "(1,", "[-", "1e9"]), st.integers(1, 5_000)
)


@given(st.lists(st.text(alphabet=LETTERS, max_size=60) | RUNS, max_size=4).map("".join))
def test_other_text_is_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(shapes(text), tuple)


@pytest.mark.parametrize("text", ["[1if x else 2]", "[(1, '\\d')]", "[0x1for x in y]"])
def test_what_a_log_spells_oddly_warns_nobody(text: str) -> None:
    with warnings.catch_warnings(record=True) as told, suppress(ValueError):
        warnings.simplefilter("always")
        shapes(text)
    assert told == []


@pytest.mark.parametrize(
    ("spec", "text", "value"),
    [
        ("int", "162,801,408", 162_801_408),
        ("int", "-5", -5),
        ("float", "inf", None),
        ("seconds", "-nan", None),
        ("percent", "9e999", None),
        ("bytes", "-31.65 GiB", Amount(-33_983_928_730, "-31.65 GiB")),
        ("bytes", "0 B", Amount(0, "0 B")),
        ("gib", "1.5000", Amount(3 * 2**29, "1.5000 GiB")),
        ("count_bytes", "268435456", Amount(2**28, "256 MiB")),
        ("bool", "False", False),
        ("clock", "1:02:03", 3723.0),
        ("phase", "Graph/Multimodal(image)", "multimodal"),
        ("dims_config", "(1, 2, 8)", (1, 2, 8)),
        ("bucket_list", "[(1, 128), (2, 1", ()),
        ("tuple", "(1, np.int32(4), 7)", (1, 4, 7)),
    ],
)
def test_types(spec: str, text: str, value: object) -> None:
    template = compile_template(f"value {{x:{spec}}}", whole=True)
    assert template.match(f"value {text}") == (len(text) + 6, {"x": value})


@pytest.mark.parametrize("spec", sorted(TYPES))
@given(text=st.text(max_size=20) | st.from_regex(r"\A-?\d{1,400}(e\d{1,5})? GiB\Z"))
def test_a_value_that_cannot_be_converted_is_no_match(spec: str, text: str) -> None:
    compile_template(f"x{{x:{spec}}}").match(f"x{text}")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("bytes", "9e999 GiB"),
        ("bytes", "9e9 TiB"),
        ("gib", "9e99"),
        ("int", "9223372036854775808"),
        ("int", "9" * 5_000),
        ("count_bytes", "9" * 20),
        ("clock", f"{'9' * 20}:00"),
        ("dims_config", f"(1, {'9' * 20})"),
    ],
)
def test_a_number_beyond_bounds_is_no_match(spec: str, text: str) -> None:
    assert compile_template(f"took {{x:{spec}}} of").match(f"took {text} of") is None


def test_clock() -> None:
    assert clock_seconds("01:32") == 92.0


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("Prompt", "prompt"),
        ("Graph/Decode", "decode"),
        ("Graph/mix/prompt", "prompt"),
        ("prefix_prefill", "prompt"),
        ("Unified CFG", "unified"),
        ("Graph/Other", "other"),
    ],
)
def test_phases(printed: str, name: str) -> None:
    assert phase_name(printed) == name
