"""Bucket files: what a line may hold, and what the releases make of a bad one."""

from __future__ import annotations

import pytest

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)

pytestmark = pytest.mark.unit


def made(text: str, phase: str, dialect: str = "gaudi-plugin-0.26") -> list[Bucket]:
    settings = BucketSettings(
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        max_model_len=4096,
        num_blocks=2000,
        contiguous_pa=True,
        dialect=dialect,
        strategy="file",
        bucket_file=text,
    )
    return list(generate(settings, phase))


def test_a_line_stands_for_every_combination() -> None:
    text = "# ours\n\n  (1, [128, 192], range(0, 6, 2))  # all of them\n(2, 1, 30)\n"
    assert made(text, PROMPT) == [
        Bucket(1, query, context) for query in (128, 192) for context in (0, 2, 4)
    ]
    assert made(text, DECODE) == [Bucket(2, 1, 30)]


def test_a_query_of_one_makes_decode_buckets_member_by_member() -> None:
    text = "(1, range(1, 200, 100), 3)"
    assert made(text, PROMPT) == [Bucket(1, 101, 3)]
    assert made(text, DECODE) == [Bucket(1, 1, 3)]


@pytest.mark.parametrize(
    ("line", "bucket"),
    [
        ("(1, 300.9, 0)", Bucket(1, 300, 0)),
        ("(1, '300', 0)", Bucket(1, 300, 0)),
        ("(1, 300, True)", Bucket(1, 300, 1)),
        ("(+1, 300, -1)", Bucket(1, 300, -1)),
    ],
)
def test_values_become_whole_numbers(line: str, bucket: Bucket) -> None:
    assert made(line, PROMPT) == [bucket]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "(4, 1)",
        "[4, 1, 40]",
        "(1, 2 * 128, 0)",
        "(1, 128, 0),",
        "(1, 128, range(0, 4, 0))",
        "(1, 128, range(4))",
        "(1, 128, range(0, 10001))",
        "(1, 128, open('x'))",
        "(1, 128, -'x')",
        "(1, 128, range(0, 0x10))",
        "(1, range (128, 512, 128), 0)",
        "(1, range(128, 512, 128,), 0)",
        "(1, range(+128, 512), 0)",
        "(1, range(1_000, 2_000), 0)",
        "(1, range(128, *[512]), 0)",
        "(1, -True, 0)",
        "(1, --128, 0)",
        "(1, ~-129, 0)",
        "(1, not 1, 0)",
        "(1, [128][0], 0)",
        "(1, 128, " + "(" * 300 + "0" + ")" * 300 + ")",
        "(1, 128",
    ],
)
def test_a_bad_line_stops_newer_releases_and_not_older_ones(line: str) -> None:
    text = f"(1, 256, 0)\n{line}\n"
    with pytest.raises(BucketError, match="Line 2 of the bucket file") as caught:
        made(text, PROMPT)
    assert caught.value.raised == "AttributeError"
    if "[" not in line:  # that one hpuwatch doesn't evaluate
        assert Bucket(1, 256, 0) in made(text, PROMPT, "gaudi-plugin-0.16")


@pytest.mark.parametrize(
    ("line", "contexts"),
    [
        ("(1, 2 * 64, 6 - 2)", [4]),
        ("(1, 128, 9 // 2)", [4]),
        ("(1, 128, range(2))", [0, 1]),
        ("(1, 128, 8 / 2 + 9 % 2)", [5]),
        ("(1, 128, 1 / 0)", [7]),
        ("(1, 128, 2 ** 3)", [8]),
        ("(1, 128, blocks * 2)", [7]),
        ("(1, 128, range (0, 4, 2,))", [0, 2]),
        ("(1, 128, -True)", [-1]),
        ("(1, 128, +[5])", [7]),
    ],
)
def test_older_releases_compute(line: str, contexts: list[int]) -> None:
    text = f"{line}\n" + ("(1, 128, 7)\n" if contexts == [7] else "")
    buckets = made(text, PROMPT, "gaudi-plugin-0.11")
    assert [bucket.context for bucket in buckets] == contexts


@pytest.mark.parametrize(
    ("line", "query"), [("(1, ~128, 0)", -129), ("(1, not 1, 0)", 0)]
)
def test_older_releases_know_every_sign(line: str, query: int) -> None:
    assert made(line, PROMPT, "gaudi-plugin-0.16") == [Bucket(1, query, 0)]


def test_newer_releases_find_ranges_in_the_text() -> None:
    assert made("(1, range( 128 , 512 , 128 ), range(-1,1))", PROMPT) == [
        Bucket(1, query, context) for query in (128, 256, 384) for context in (-1, 0)
    ]
    # So they find one in a comment too.
    with pytest.raises(BucketError, match="more than 10000 values"):
        made("(1, 128, 0)  # not range(0, 99999)", PROMPT)


@pytest.mark.parametrize(
    ("line", "raised"),
    [
        ("(1, None, 0)", "TypeError"),
        ("(1, (128, 256), 0)", "TypeError"),
        ("(1, [128, [256]], 0)", "TypeError"),
        ("(1, 128, {0})", "TypeError"),
        ("(1 + 2j, 128, 0)", "TypeError"),
        ("(1, 'many', 0)", "ValueError"),
        ("(1, 128, 1e999)", "OverflowError"),
    ],
)
def test_a_value_that_is_no_number_stops_every_release(line: str, raised: str) -> None:
    for dialect in ("gaudi-plugin-0.11", "gaudi-plugin-head"):
        with pytest.raises(BucketError, match="no number") as caught:
            made(line, PROMPT, dialect)
        assert caught.value.raised == raised


@pytest.mark.parametrize(
    ("dialect", "raised"),
    [("gaudi-plugin-0.13", "RuntimeError"), ("gaudi-plugin-0.14", "ValueError")],
)
def test_a_phase_without_a_line_stops_the_server(dialect: str, raised: str) -> None:
    with pytest.raises(BucketError) as caught:
        made("(1, 128, 0)", DECODE, dialect)
    assert caught.value.raised == raised


def test_a_file_that_nobody_could_list_is_refused() -> None:
    line = "(range(0, 9999), range(0, 9999), 3)"  # each axis is short enough
    with pytest.raises(BucketError, match="more than 1,000,000 buckets") as caught:
        made(line, PROMPT)
    assert caught.value.raised == "TOO_MANY"
    for endless in ("range(10 ** 9)", f"range(0, {'9' * 30})"):
        with pytest.raises(BucketError) as caught:
            made(f"(1, 128, {endless})", PROMPT, "gaudi-plugin-0.16")
        assert caught.value.raised == "TOO_MANY"


@pytest.mark.parametrize(
    "line",
    [
        "(1, 128, [2 ** i for i in range(4)])",
        "(1, 128, [1] * 4)",
        "(1, 128, 9 ** 99)",
        "(1, 128, 0 if 1 else nothing)",
        f"(1, 128, {'9' * 900} * {'9' * 900})",
    ],
)
def test_what_an_older_release_may_understand_is_not_guessed(line: str) -> None:
    with pytest.raises(BucketError) as caught:
        made(line, PROMPT, "gaudi-plugin-0.16")
    assert caught.value.raised == "unknown"
    # Another line that stops the server for certain counts more.
    with pytest.raises(BucketError) as caught:
        made(f"{line}\n(1, None, 0)", PROMPT, "gaudi-plugin-0.16")
    assert caught.value.raised == "TypeError"


def test_a_set_is_a_literal_to_newer_releases_alone() -> None:
    with pytest.raises(BucketError) as caught:
        made("(1, 128, set())", PROMPT)
    assert caught.value.raised == "TypeError"
    text = "(1, 128, set())\n(1, 128, 0)"
    assert made(text, PROMPT, "gaudi-plugin-0.16") == [Bucket(1, 128, 0)]


def test_only_a_line_feed_ends_a_line() -> None:
    text = "(1, 128, 0)  # one\u2028line, for the runtime too\n(1, 256, 0)\r\n"
    assert made(text, PROMPT) == [Bucket(1, 128, 0), Bucket(1, 256, 0)]
