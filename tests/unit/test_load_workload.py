"""What is sent and when: traces, drawn lengths, arrivals, prompts; and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.load import key_in, plan_of
from hpuwatch.errors import InputError, MissingFileError, ResourceError, UsageError
from hpuwatch.load.calibrate import calibrated, served_model
from hpuwatch.load.endpoint import endpoint_of
from hpuwatch.load.figures import read_limits
from hpuwatch.load.openfiles import allow_connections
from hpuwatch.load.order import Order, check_order, workload_of
from hpuwatch.load.prompts import TOKEN_IDS, WORDS, Prompts
from hpuwatch.load.target import Route, Target
from hpuwatch.load.workload import Arrivals, Request, Span, read_trace
from hpuwatch.testing.completions import Handler, complete, serving

pytestmark = pytest.mark.unit

COLUMNS = "arrival_s,input_tokens,output_tokens,cached_prefix_tokens"
ROWS = f"{COLUMNS}\n0.5,10,3,0\n1.5,20,4,8\n2.5,30,5,0\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(ROWS)
    return path


def test_a_trace_is_read_row_by_row_packed_or_not(trace: Path, tmp_path: Path) -> None:
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    rows = list(read_trace(trace))
    assert rows[1] == Request(1, 1.5, 20, 4, 8)
    assert list(read_trace(packed)) == rows


def test_a_trace_needs_no_column_of_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,10,3\n")
    assert list(read_trace(path)) == [Request(0, 0.0, 10, 3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t.csv:1: the column arrival_s is missing"),
        (
            f"{COLUMNS},output_tokens\n",
            "t.csv:1: the column output_tokens is there twice",
        ),
        (f"{COLUMNS}\n0,1,1,0,9\n", "t.csv:2: the row has more fields than"),
        (
            f"{COLUMNS}\n0,{'1' * 100_000},1,0\n",
            "t.csv:2: a line of 100,000 characters",
        ),
        (
            "arrival_s,input_tokens\n1,2\n",
            "t.csv:1: the column output_tokens is missing",
        ),
        (f"{COLUMNS}\n", "has no row"),
        (f"{COLUMNS}\n0,1,1,0\nx,1,1,0\n", "t.csv:3: arrival_s is 'x': a number"),
        (f"{COLUMNS}\n-1,1,1,0\n", "t.csv:2: arrival_s is '-1'"),
        (f"{COLUMNS}\ninf,1,1,0\n", "t.csv:2: arrival_s is 'inf'"),
        (f"{COLUMNS}\n0,0,1,0\n", "t.csv:2: input_tokens is '0': a whole number"),
        (f"{COLUMNS}\n0,1.5,1,0\n", "t.csv:2: input_tokens is '1.5'"),
        (f"{COLUMNS}\n0,1\n", "t.csv:2: output_tokens is None"),
        (f"{COLUMNS}\n0,1,1,2\n", "t.csv:2: cached_prefix_tokens 2 is more than"),
        (f"{COLUMNS}\n2,1,1,0\n1,1,1,0\n", "t.csv:3: arrival_s goes back from 2 to 1"),
    ],
)
def test_a_bad_row_is_named_with_file_and_line(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        list(read_trace(path))
    assert words in str(error.value)


@pytest.mark.parametrize("content", [b"\x1f\x8bnonsense", b"\xff\xfe\x00", b"a\x00b"])
def test_a_file_that_is_no_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError):
        list(read_trace(path))


def test_a_trace_may_begin_with_a_mark_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS, encoding="utf-8-sig")
    assert len(list(read_trace(path))) == 3


def test_a_packed_trace_that_is_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(ROWS.encode())[:-12])
    with pytest.raises(InputError, match="is packed, but cut off"):
        list(read_trace(path))


def test_a_trace_that_is_not_there_is_another_matter(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="No such file"):
        list(read_trace(tmp_path / "none"))


def requests(**order: Any) -> list[Request]:
    made = workload_of(Order("http://h:1", **order))
    return list(itertools.islice(made.requests, 5000))


def test_a_warped_trace_begins_at_once_and_goes_faster(trace: Path) -> None:
    assert [each.due_seconds for each in requests(trace=trace, warp=4.0)] == [
        0,
        0.25,
        0.5,
    ]
    assert len(requests(trace=trace, warp=4.0, seconds=0.5)) == 2
    assert len(requests(trace=trace, limit=1)) == 1


def test_a_trace_s_lengths_may_come_at_a_rate_or_in_a_closed_loop(trace: Path) -> None:
    even = requests(trace=trace, rate=2.0, constant=True)
    assert [each.due_seconds for each in even] == [0, 0.5, 1.0]
    assert [each.input_tokens for each in even] == [10, 20, 30]
    assert workload_of(Order("", trace=trace, concurrency=2)).planned == 3


def test_poisson_arrivals_have_the_rate_and_its_spread() -> None:
    due = [each.due_seconds for each in requests(rate=10.0, limit=4000)]
    gaps = [after - before for before, after in itertools.pairwise(due)]
    assert fmean(gaps) == pytest.approx(0.1, rel=0.1)
    assert fmean((gap - 0.1) ** 2 for gap in gaps) == pytest.approx(0.01, rel=0.2)


def test_drawn_lengths_fill_their_ranges_and_are_the_same_by_seed() -> None:
    order = {
        "concurrency": 1,
        "inputs": Span(5, 9),
        "outputs": Span(1, 2),
        "limit": 200,
    }
    drawn = requests(**order)
    assert {each.input_tokens for each in drawn} == set(range(5, 10))
    assert {each.output_tokens for each in drawn} == {1, 2}
    assert requests(**order) == drawn
    assert requests(**order, seed=1) != drawn


def test_a_closed_loop_that_ends_with_the_time_has_no_list() -> None:
    workload = workload_of(Order("", concurrency=2, seconds=3.0))
    assert (workload.planned, workload.arrivals) == (None, Arrivals.CLOSED)
    assert plan_of(Order("", concurrency=2, seconds=3.0))["requests"] is None


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({}, "say when requests are sent"),
        ({"rate": 1.0, "concurrency": 2}, "exclude each other"),
        ({"rate": 1.0, "warp": 2.0}, "--warp is for the arrivals"),
        ({"trace": Path("t"), "rate": 1.0, "warp": 2.0}, "leave it out"),
        ({"trace": Path("t"), "inputs": Span(1, 1)}, "lengths come from the --trace"),
        ({"rate": float("nan")}, "--rate nan is no number"),
        ({"rate": 1.0, "seconds": float("inf")}, "--seconds inf is no number"),
        ({"concurrency": 2, "constant": True}, "--constant is for a --rate"),
        ({"trace": Path("t"), "tool": "vllm"}, "--trace needs --tool own"),
        ({"rate": 1.0, "seconds": 2.0, "tool": "vllm"}, "--seconds needs --tool own"),
    ],
)
def test_what_does_not_go_together_is_refused(
    order: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        check_order(Order("http://h:1", **order))


@pytest.mark.parametrize(
    "word", ["ttft", "ttft:x", "itl:5", "ttft:-1", ":5", "ttft:nan"]
)
def test_what_is_no_limit_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is no limit like ttft:2000"):
        read_limits([word])


def test_limits_may_come_together_or_apart() -> None:
    assert read_limits(["ttft:2000 tpot:50", "e2el:3e4"]) == {
        "ttft": 2000.0, "tpot": 50.0, "e2el": 30000.0,
    }  # fmt: skip


def test_connections_beyond_what_may_be_open_are_refused_before_the_run() -> None:
    with pytest.raises(ResourceError, match="raise that"):
        allow_connections(1 << 40)
    allow_connections(10)


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 10**6))
def test_a_prompt_of_ids_is_exactly_as_long_as_asked_for(
    tokens: int, prefix: int, number: int
) -> None:
    prefix = min(prefix, tokens)
    one = json.loads(IDS.of(number, tokens, prefix))
    other = json.loads(IDS.of(number + 1, tokens, prefix))
    assert len(one) == tokens
    assert one[:prefix] == other[:prefix]
    if tokens > prefix:
        assert one[prefix] != other[prefix]


IDS, SPELT = Prompts(TOKEN_IDS, "s"), Prompts(WORDS, "s")


def test_a_prompt_longer_than_the_pool_goes_round() -> None:
    assert len(json.loads(IDS.of(5, 300_000, 150_000))) == 300_000


def test_a_prompt_of_words_is_plain_text() -> None:
    words = json.loads(SPELT.of(3, 50)).split()
    assert len(words) == 50
    assert {len(word) for word in words} == {4}


def test_another_seed_shares_nothing() -> None:
    other = json.loads(Prompts(TOKEN_IDS, "t").of(1, 100, 100))
    assert other[0] != json.loads(IDS.of(1, 100, 100))[0]


def test_token_ids_are_taken_where_the_server_counts_them_so() -> None:
    with serving() as served:
        target = Target(endpoint_of(served.url), "m")
        assert calibrated(target, "s", None).units is TOKEN_IDS
        asked = calibrated(target, "s", "words").units
    assert (asked.joint, asked.tokens_each, asked.tokens_around) == (" ", 1.0, 0.0)


def templated(handler: Handler, body: dict[str, Any]) -> None:
    """Count a word as one and a half tokens, and add a template of 12."""
    words = len(body["messages"][0]["content"].split())
    usage = {"prompt_tokens": 12 + words * 3 // 2, "completion_tokens": 1}
    handler.page(200, json.dumps({"choices": [{"text": "a"}], "usage": usage}))


def test_words_are_measured_where_a_chat_template_adds_to_them() -> None:
    with serving(templated) as served:
        target = Target(endpoint_of(served.url), "m", Route.CHAT)
        units = calibrated(target, "s", None).units
    assert (units.tokens_each, units.tokens_around) == (1.5, 12.0)
    assert units.count(12 + 300) == 200


def no_ids(handler: Handler, body: dict[str, Any]) -> None:
    if isinstance(body["prompt"], list):
        handler.page(400, '{"error": {"message": "a text, please"}}')
    else:
        complete(handler, body)


def test_words_are_taken_where_ids_are_refused_unless_ids_were_asked_for() -> None:
    with serving(no_ids) as served:
        target = Target(endpoint_of(served.url), "m")
        units = calibrated(target, "s", None).units
        with pytest.raises(ResourceError, match=r"HTTP 400: a text, please.*words"):
            calibrated(target, "s", "ids")
    assert units.joint == " "


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "set VLLM_API_KEY"), (404, "--model and --endpoint"), (500, "server's log")],
)
def test_a_server_that_refuses_a_short_prompt_is_told(status: int, words: str) -> None:
    def refuse(handler: Handler, _: dict[str, Any]) -> None:
        handler.page(status, "no")

    with serving(refuse) as served, pytest.raises(ResourceError, match=words):
        calibrated(Target(endpoint_of(served.url), "m", Route.CHAT), "s", None)


def _named(name: object) -> str:
    return json.dumps({"data": [{"id": name}]})


def test_the_first_model_is_taken_and_a_server_without_one_is_told() -> None:
    with serving() as served:
        assert served_model(endpoint_of(served.url)) == "m"
        bad = ("[]", '{"data": []}', "no", "[" * 100_000, _named("\ud800"), _named(5))
        for page in bad:
            served.pages["/v1/models"] = page
            with pytest.raises(ResourceError, match="names no model"):
                served_model(endpoint_of(served.url))
    with pytest.raises(ResourceError, match="doesn't answer"):
        served_model(endpoint_of(served.url))


def test_the_key_comes_from_the_environment() -> None:
    assert key_in({"OPENAI_API_KEY": "k"}) == "k"
    assert key_in({"VLLM_API_KEY": ""}) is None


def test_the_shared_traces_are_read(shared: Path) -> None:
    for path in sorted((shared / "traces").glob("*.csv.gz")):
        plan = plan_of(Order("http://h:1", trace=path, warp=10.0, limit=500))
        assert plan["requests"] == 500
