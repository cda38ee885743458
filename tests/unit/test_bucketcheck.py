"""What a release makes of a bucket file, line by line, before it starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.bucketcheck import (
    FileCheck,
    FileRemark,
    check_file,
    check_lines,
)
from hpuwatch.gaudi.buckets import BucketError
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.model import BucketSettings

pytestmark = pytest.mark.unit

WHOLE = "(1, [128, 512, 1024], [0, 8])\n(16, 1, [64, 128])\n"


def settings(
    text: str, dialect: str = "gaudi-plugin-0.26", **more: bool
) -> BucketSettings:
    return BucketSettings(
        max_num_seqs=16,
        max_num_batched_tokens=1024,
        max_model_len=1024,
        num_blocks=128,
        dialect=dialect,
        strategy="file",
        bucket_file=text,
        **more,  # type: ignore[arg-type]  # only booleans are asked for here
    )


def checked(text: str, dialect: str = "gaudi-plugin-0.26", **more: bool) -> FileCheck:
    return check_file(settings(text, dialect, **more))


def of_line(check: FileCheck, line: int | None) -> list[FileRemark]:
    return [remark for remark in check.remarks if remark.line == line]


def test_a_file_that_holds_everything() -> None:
    check = checked(WHOLE)
    assert (check.starts, check.prompt, check.decode) == (True, 6, 2)
    assert check.remarks == ()


def test_the_line_that_stops_the_server_is_named() -> None:
    text = WHOLE + "# mine\n(1, 2 * 128, 0)\n(1, None, 0)\n"
    check = checked(text)
    assert not check.starts
    assert (check.prompt, check.decode) == (0, 0)
    assert [(r.line, r.severity) for r in check.remarks] == [(4, "error"), (5, "error")]
    assert "(AttributeError)" in check.remarks[0].text
    assert "(TypeError)" in check.remarks[1].text


def test_an_older_release_passes_over_it() -> None:
    check = checked(WHOLE + "nonsense\n(1, 2 * 128, 0)\n", "gaudi-plugin-0.16")
    assert check.starts
    (skipped,) = of_line(check, 3)
    assert (skipped.severity, skipped.text.endswith("passed over.")) == (
        "warning",
        True,
    )
    assert of_line(check, 4) == []
    # Three of the first line exceed the model together with their context.
    assert check.prompt == 4


@pytest.mark.parametrize(
    ("line", "severity", "said"),
    [
        ("(2, 1024, 0)", "warning", "dropped, with a warning"),
        ("(1, 128, 9)", "warning", "(1, 128, 9): dropped, with a warning"),
        ("(8, 1, 4)", "warning", "a block for each"),
        ("(1, 1, 50)", "info", "cut at what their sequences can reach, 8 blocks"),
        ("(20, 1, 64)", "warning", "above max_num_seqs (16)"),
        ("(4, 128, 0)", "warning", "above the prefill batch (1)"),
        ("(1, 512, 8)", "info", "named by line 1 already"),
        ("(1, 128, range(5, 5))", "warning", "A range is empty"),
        ("(4, [1, 128], [64])", "warning", "names both phases"),
    ],
)
def test_what_becomes_of_a_bucket(line: str, severity: str, said: str) -> None:
    remarks = of_line(checked(f"{WHOLE}{line}\n"), 3)
    assert any(r.severity == severity and said in r.text for r in remarks), remarks


def test_many_buckets_of_a_line_are_not_all_named() -> None:
    (remark,) = of_line(checked(WHOLE + "([2, 3, 4, 5, 6], 1024, 0)\n"), 3)
    assert "(4, 1024, 0) and 2 more" in remark.text


def test_a_phase_without_a_bucket_stops_the_server() -> None:
    check = checked("(1, 128, 0)\n")
    assert not check.starts
    assert "no line for decode" in check.remarks[0].text


def test_prompts_near_the_model_s_length_without_a_bucket_are_holes() -> None:
    check = checked("(1, [128, 512], [0, 3])\n(16, 1, 128)\n", prefix_caching=True)
    assert check.starts
    spans = {(hole.first, hole.last, hole.above, hole.up_to) for hole in check.holes}
    assert (513, 1024, -1, 4) in spans
    assert any(first == 1 and above == 3 for first, _, above, _ in spans)
    said = [remark.text for remark in of_line(check, None)]
    assert len(said) == len(check.holes)
    assert all("has no bucket" in text for text in said)


def test_decodes_without_a_bucket_are_holes() -> None:
    check = checked("(1, 1024, 8)\n(4, 1, 32)\n")
    (hole,) = [hole for hole in check.holes if hole.phase == "decode"]
    assert (hole.first, hole.last, hole.above) == (5, 16, -1)


def test_contiguous_attention_wants_the_pool_for_every_batch() -> None:
    text = "(1, 1024, 8)\n([4, 8], 1, 64)\n(16, 1, 128)\n"
    remarks = of_line(checked(text, contiguous_pa=True), None)
    assert any("Batch 4, 8 has no decode bucket of all 128" in r.text for r in remarks)
    closed = checked(f"{text}([4, 8], 1, 128)\n", contiguous_pa=True)
    assert of_line(closed, None) == []


def test_a_release_that_reads_no_file() -> None:
    for check in (checked(WHOLE, "fork-1.22"), check_lines(WHOLE, "fork-1.22")):
        (remark,) = check.remarks
        assert remark.severity == "warning"
        assert "takes no buckets from a file" in remark.text
        assert (check.prompt, check.decode) == (0, 0)


def test_without_sizes_only_lines_are_judged() -> None:
    check = check_lines(WHOLE + "(1, 512, 8)\n(1, 999999, 0)\n", "gaudi-plugin-0.26")
    assert (check.starts, check.prompt, check.decode) == (True, 7, 2)
    assert [remark.severity for remark in check.remarks] == ["info", "info"]
    bad = check_lines("(1, 128, 0)\n(1, 2 * 2, 0)\n", "gaudi-plugin-0.26")
    assert not bad.starts
    assert [remark.line for remark in bad.remarks] == [2]
    lacking = check_lines("(1, 128, 0)\n", "gaudi-plugin-0.26")
    assert not lacking.starts
    assert [remark.line for remark in lacking.remarks] == [None]
    assert "for decode" in lacking.remarks[0].text


members = st.sampled_from(["1", "128", "[1, 4]", "range(0, 9, 4)", "'x'", "2*3", "-1"])
lines = st.one_of(
    st.builds("({}, {}, {})".format, members, members, members),
    st.sampled_from(["", "# no", "nonsense", "(1, 128, 0)", "(4, 1, 64)"]),
)
plugins = [name for name in DIALECTS if "plugin" in name and name[-4:] != "0.10"]


@given(st.lists(lines, max_size=5), st.sampled_from(plugins))
def test_the_check_says_whether_the_server_starts(
    given_lines: list[str], dialect: str
) -> None:
    text = "\n".join(given_lines)
    check = checked(text, dialect)
    try:
        made = prepare(settings(text, dialect))
    except BucketError:
        assert not check.starts
    else:
        assert check.starts
        assert (check.prompt, check.decode) == (len(made.prompt), len(made.decode))
