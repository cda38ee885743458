"""Prefixes and headers of every release, glued records too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.events import Speaker
from hpuwatch.parse.clean import clean
from hpuwatch.parse.header import Record, read

pytestmark = pytest.mark.unit


def one(text: str) -> Record:
    (record,) = read(text)
    return record


@pytest.mark.parametrize(
    ("prefix", "speaker"),
    [
        ("(VllmWorkerProcess pid=879)", Speaker("VllmWorkerProcess", 879, None)),
        ("(RayWorkerWrapper pid=5)", Speaker("RayWorkerWrapper", 5, None)),
        ("(RayWorkerWrapper pid=5, ip=10.0.0.2)", Speaker("RayWorkerWrapper", 5, None)),
        ("(VllmWorker rank=3 pid=77)", Speaker("VllmWorker", 77, 3)),
        ("(VllmWorker TP2 pid=77)", Speaker("VllmWorker", 77, 2)),
        ("(VllmWorker PP1_TP2 pid=77)", Speaker("VllmWorker", 77, 2, 0, 1)),
        ("(Worker_PP3_TP1 pid=8)", Speaker("Worker", 8, 1, 0, 3)),
        ("(Worker_DP2_PP3_TP1_EP5 pid=8)", Speaker("Worker", 8, 1, 2, 3)),
        (
            "(EngineCore_DP1 pid=9) (RayWorkerWrapper pid=5, ip=10.0.0.2)",
            Speaker("RayWorkerWrapper", 5, None, 1),
        ),
        ("(VllmWorker pid=77)", Speaker("VllmWorker", 77, 0)),
        ("(Worker_TP5 pid=8)", Speaker("Worker", 8, 5)),
        ("(Worker_DP1_TP3_EP7 pid=8)", Speaker("Worker", 8, 3, 1)),
        ("(Worker pid=8)", Speaker("Worker", 8, 0)),
        ("(EngineCore_0 pid=9)", Speaker("EngineCore", 9, 0)),
        ("(EngineCore_DP1 pid=9)", Speaker("EngineCore", 9, 0, 1)),
        ("(EngineCore pid=9)", Speaker("EngineCore", 9, 0)),
        ("(APIServer pid=1)", Speaker("APIServer", 1, 0)),
        ("(ApiServer_2 pid=1)", Speaker("ApiServer", 1, 0)),
        ("(DPCoordinator pid=4)", Speaker("DPCoordinator", 4, 0)),
        ("\x1b[1;36m(Worker_TP1 pid=8)\x1b[0;0m", Speaker("Worker", 8, 1)),
    ],
)
def test_process_prefixes(prefix: str, speaker: Speaker) -> None:
    record = one(f"{prefix} INFO 11-29 12:29:10 [core.py:1] said")
    assert (record.speaker, record.message) == (speaker, "said")
    assert one(f"{prefix} said").speaker == speaker


TIMED = ("11-30 10:00:00", "core.py")
TIMED_AND_PLACED = (
    "2026-11-30 10:00:00,123 - vllm.core - INFO - said",
    "2026-11-30 10:00:00.123 | INFO     | vllm.core:run:12 - said",
    "2026-11-30 10:00:00,123 [77] INFO core.py:12: said",
    "2026-11-30T10:00:00.123Z INFO vllm.core: said",
    "2026-11-30 10:00:00 vllm.core INFO said",
    "[2026-11-30 10:00:00,123] [INFO] [vllm.core] said",
    "[2026-11-30 10:00:00,123][vllm.core][INFO] - said",
    "INFO 2026-11-30 10:00:00,123 [core.py:12] said",
    "2026/11/30 10:00:00+01:00 INFO [vllm/core.py:12] said",
)
TIMED_ONLY = (
    "2026-11-30 10:00:00 [info     ] said",
    "2026-11-30 10:00:00,123 INFO said",
    "[2026-11-30 10:00:00] INFO: said",
    "11-30 10:00:00 INFO said",
)
LEVELLED_ONLY = ("[INFO] said", "[INFO ] said", "INFO - said", "INFO:root:said")
FOREIGN = {
    *(*TIMED_AND_PLACED, *TIMED_ONLY, *LEVELLED_ONLY, "INFO:vllm.core:said"),
    *("10:00:00 WARN said", "I1130 10:00:00.123 core.py:12] said"),
    "F1130 10:00:00.123456  77 core.py:12] said",
    "2024-11-12 21:00:57 [INFO][runner.py:711] said",
    "2024-11-12 21:00:57,123\tINFO worker.py:1749 -- said",
}


@pytest.mark.parametrize(
    ("text", "level", "logged_at", "file", "message"),
    [
        (
            "INFO 09-24 17:31:39 habana_worker.py:590] said",
            "INFO",
            "09-24 17:31:39",
            "habana_worker.py",
            "said",
        ),
        (
            "WARNING 07-07 19:27:37 [exponential.py:36] said",
            "WARNING",
            "07-07 19:27:37",
            "exponential.py",
            "said",
        ),
        (
            "DEBUG 08-09 20:55:03 [distributed/.../state.py:1563]   said",
            "DEBUG",
            "08-09 20:55:03",
            "state.py",
            "  said",
        ),
        (
            "\x1b[32mINFO\x1b[0m \x1b[90m07-07 19:27:37\x1b[0m \x1b[90m[file.py:36]\x1b[0m said",
            "INFO",
            "07-07 19:27:37",
            "file.py",
            "said",
        ),
        (
            "myhost INFO 02-04 12:00:00 worker.py:5] said",
            "INFO",
            "02-04 12:00:00",
            "worker.py",
            "said",
        ),
        (
            "2024-11-12 21:00:57 [INFO][runner.py:711] said",
            "INFO",
            "11-12 21:00:57",
            "runner.py",
            "said",
        ),
        (
            "2024-11-12 21:00:57,123\tINFO worker.py:1749 -- said",
            "INFO",
            "11-12 21:00:57",
            "worker.py",
            "said",
        ),
        ("INFO:     said", "INFO", None, None, "said"),
        *((text, "INFO", *TIMED, "said") for text in TIMED_AND_PLACED),
        *((text, "INFO", TIMED[0], None, "said") for text in TIMED_ONLY),
        *((text, "INFO", None, None, "said") for text in LEVELLED_ONLY),
        ("INFO:vllm.core:said", "INFO", None, "core.py", "said"),
        ("10:00:00 WARN said", "WARNING", None, None, "said"),
        ("I1130 10:00:00.123 core.py:12] said", "INFO", *TIMED, "said"),
        ("F1130 10:00:00.123456  77 core.py:12] said", "CRITICAL", *TIMED, "said"),
        ("said", None, None, None, "said"),
        ("INFO 11-29 12:29:10 [core.py:1]", "INFO", "11-29 12:29:10", "core.py", ""),
    ],
)
def test_headers(
    text: str, level: str | None, logged_at: str | None, file: str | None, message: str
) -> None:
    record = one(text)
    assert record.foreign is (text in FOREIGN)
    read_as = (record.message, record.level, record.logged_at, record.file)
    assert read_as == (message, level, logged_at, file)
    assert record.text == clean(text).strip()


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30 10:00:00 the connection gave ERROR 5",
        "[Warmup][Prompt][1/2] batch_size:1",
        "[Rank:0] FATAL ERROR :: MODULE:PT_EAGER",
        "INFO",
        "ERROR in a sentence",
        "Started at 10:00:00, no ERROR",
    ],
)
def test_a_sentence_is_no_header(text: str) -> None:
    assert one(text) == Record("", text)


def test_blanks_that_a_message_begins_with_are_its_own() -> None:
    assert (
        one("2026-11-30 10:00:00 - INFO -     hw: gaudi3").message == "    hw: gaudi3"
    )


@pytest.mark.parametrize(
    "tag",
    [
        *("6: ", " 6: ", "  6: ", "[6] ", "[rank6]: ", "[rank6]:", "[default6]:"),
        *("[worker6]: ", "[1,6]<stdout>:", "[1,6]<stderr>: "),
    ],
)
def test_ranks_that_a_launcher_puts_before_a_line(tag: str) -> None:
    assert one(f"{tag}said") == Record(tag, "said", Speaker(rank=6))
    assert one(f"{tag}INFO 11-29 12:29:10 [core.py:1] said").speaker == Speaker(rank=6)
    speaker = Speaker("Worker", 8, 3, 1)
    assert one(f"{tag}(Worker_DP1_TP3_EP7 pid=8) said").speaker == speaker


@pytest.mark.parametrize(
    "text",
    [
        *("6 of 7", "[1/6] said", "6:7", "[6]", "[1,6] said"),
        *(
            "   6: std::panicking",
            "  16: std::rt",
            "    6: 'x',",
            " 6:7",
            "[hpu6]: said",
        ),
    ],
)
def test_other_numbers_are_no_rank(text: str) -> None:
    assert one(text) == Record("", text)


@pytest.mark.parametrize("tail", ["", " (Ray deduplicates logs by default. Set X=0 …)"])
@pytest.mark.parametrize("head", ["", "INFO 11-29 12:29:10 w.py:1] "])
def test_rays_note_on_repetition_is_no_part_of_the_message(
    head: str, tail: str
) -> None:
    text = f"(RayWorkerWrapper pid=5) {head}said [repeated 7x across cluster]{tail}"
    assert one(text).message == "said"


def test_what_a_paste_shows_for_returns_and_colours() -> None:
    record = one("^[[1;36m(Worker pid=8)^[[0;0m INFO 11-29 12:29:10 [core.py:1] said^M")
    assert (record.speaker, record.message) == (Speaker("Worker", 8), "said")
    assert [record.message for record in read(f"{BAR}^M{BAR}^M")] == [BAR, BAR]


BAR = "Prompt warmup processing:   6%|▋     | 1/16 [00:01<00:26,  1.78s/item, 0/16]"


def test_bars_and_another_process_in_one_piece() -> None:
    records = read(
        f"(Worker_TP0 pid=1) {BAR}{BAR}"
        "(Worker_TP1 pid=2) INFO 11-29 12:41:30 [runner.py:1] Sampler warmup completed"
    )
    assert [record.speaker for record in records] == [
        Speaker("Worker", 1, 0),
        None,
        Speaker("Worker", 2, 1),
    ]
    assert [record.message for record in records] == [
        BAR,
        BAR,
        "Sampler warmup completed",
    ]


def test_a_record_without_prefix_behind_a_bar() -> None:
    records = read(f"{BAR}INFO 11-29 12:41:30 [runner.py:1] said")
    assert [record.message for record in records] == [BAR, "said"]


def test_developer_mode_line_behind_a_bar_and_blanks() -> None:
    records = read(
        f"{BAR}        (EngineCore pid=9) [Warmup][Prompt][1/16] batch_size:1"
    )
    assert records[1].message == "[Warmup][Prompt][1/16] batch_size:1"


@pytest.mark.parametrize(
    "said",
    ["[Warmup][Prompt][1/16] batch_size:1", "Traceback (most recent call last):"],
)
def test_bare_text_behind_a_bar(said: str) -> None:
    assert [record.message for record in read(f"(Worker pid=1) {BAR}{said}")] == [
        BAR,
        said,
    ]
    head = "(EngineCore pid=9) ERROR 11-29 12:41:30 [core.py:1] "
    assert [record.message for record in read(f"{BAR}{head}{said}")] == [BAR, said]
    assert [record.head for record in read(f"{BAR}{head}{said}")] == ["", head]


def test_text_of_a_library_before_a_bar() -> None:
    records = read(f"/lib/x.py:76: UserWarning: beta {BAR}")
    assert records[1].message == BAR


def test_nothing_but_blanks_is_no_record() -> None:
    assert read("   ") == read("") == read("\0\0") == read("\x1b[0m") == []


def told(**entry: object) -> list[Record]:
    return read(json.dumps(entry))


ENTRY = {
    "asctime": "2026-11-30 10:00:00,123",
    "levelname": "WARNING",
    "message": "said",
}
OTHERS = (
    {"timestamp": "2026-11-30T10:00:00Z", "level": "warning", "event": "said"},
    {"@timestamp": "2026-11-30T10:00:00Z", "log.level": "warn", "message": "said"},
    {"@timestamp": "2026-11-30T10:00:00Z", "log": {"level": "WARN"}, "msg": "said"},
    {"ts": 1796032800.5, "lvl": 30, "msg": "said"},
    {"time": 1796032800500, "severity": "Warning", "message": "said"},
)


@pytest.mark.parametrize("entry", [ENTRY, *OTHERS])
def test_json_lines(entry: dict[str, object]) -> None:
    (record,) = read(json.dumps(entry))
    assert record.message == "said"
    assert (record.level, record.logged_at) == ("WARNING", "11-30 10:00:00")


@pytest.mark.parametrize(
    "entry",
    [
        {"filename": "core.py", "lineno": 12},
        {"pathname": "/opt/vllm/core.py"},
        {"module": "core"},
        {"name": "vllm.core"},
        {"logger": "vllm.core"},
        {"log": {"origin": {"file": {"name": "core.py", "line": 12}}}},
    ],
)
def test_the_source_file_of_a_json_line(entry: dict[str, object]) -> None:
    (record,) = told(**ENTRY, **entry)
    assert record.file == "core.py"
    assert "core.py" in record.head


def test_who_wrote_a_json_line() -> None:
    entry = {**ENTRY, "processName": "EngineCore_DP1", "process": 9}
    assert told(**entry)[0].speaker == Speaker("EngineCore", 9, 0, 1)
    entry = {**ENTRY, "processName": "VllmWorker-3", "process": 9}
    assert told(**entry)[0].speaker == Speaker("VllmWorker", 9, 3)
    (record,) = told(**{**ENTRY, "processName": "MainProcess", "process": 9})
    assert record.speaker is None
    (record,) = read(f"(Worker_TP1 pid=8) {json.dumps(entry)}")
    assert record.speaker == Speaker("Worker", 8, 1)


def test_a_json_line_with_a_traceback_and_lines() -> None:
    raised = "Traceback (most recent call last):\n  File x\nKeyError: 0"
    records = told(**{**ENTRY, "message": "one\ntwo"}, exc_info=raised)
    assert [record.message for record in records] == [
        *("one", "two"),
        *("Traceback (most recent call last):", "  File x", "KeyError: 0"),
    ]
    assert len({record.head for record in records}) == 1
    raised_by_name = [{"exc_type": "KeyError", "exc_value": "0", "frames": []}]
    assert told(**ENTRY, exception=raised_by_name)[-1].message == "KeyError: 0"


def test_a_json_line_that_carries_vllms_own() -> None:
    (record,) = told(
        message="(Worker_TP1 pid=8) INFO 11-29 12:29:10 [core.py:1] said",
        level="error",
        time="2026-11-30T10:00:00Z",
    )
    assert (record.level, record.logged_at) == ("INFO", "11-29 12:29:10")
    assert (record.message, record.speaker) == ("said", Speaker("Worker", 8, 1))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{"message": 5, "level": "INFO"}',
        '{"message": "x"}',
        "{",
        "{'a': 1}",
    ],
)
def test_other_objects_are_text(text: str) -> None:
    assert one(text) == Record("", text)


def test_nothing_else_of_a_json_line_is_shown() -> None:
    (record,) = told(**ENTRY, prompt="what a user asked", token="hunter2")  # noqa: S106  it is to be dropped
    assert record.text == "WARNING 2026-11-30 10:00:00,123 said"


def test_a_json_line_behind_a_bar() -> None:
    records = read(f"{BAR}{json.dumps(ENTRY)}")
    assert [record.message for record in records] == [BAR, "said"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    st.sampled_from(["message", "level", "time", "exc_info", "process", "lineno"]),
)
def test_any_json_can_be_read(value: object, key: str) -> None:
    read(json.dumps({**ENTRY, key: value}))


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for record in read(text):
        assert record.message in clean(text) or "^" in text


@pytest.mark.parametrize(
    "hostile",
    [
        *("(A pid=1) ", "INFO 11-29 12:29:10 a", "(A", "%| Loading ", " [repeated 1x"),
        *("] ", "10:00:00 - a ", "10:00:00 [a] ", "[INFO ", "INFO a.b", "^[[", "6: "),
    ],
)
def test_a_long_line_takes_no_longer_than_its_length_asks_for(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile))
    assert len(read(f"{text}] pid= pid= %| across cluster]")) > 0


@given(st.lists(st.sampled_from([BAR, "(A pid=1) ", "INFO 11-29 12:41:30 ", "x", " "])))
def test_no_text_is_lost_in_cutting(parts: list[str]) -> None:
    text = "".join(parts)
    assert "".join(r.head + r.message for r in read(text)).split() == text.split()
