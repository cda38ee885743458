"""Prefixes and headers of every release, glued records too."""

from __future__ import annotations

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
        ("(VllmWorker PP1_TP2 pid=77)", Speaker("VllmWorker", 77, 2)),
        ("(VllmWorker pid=77)", Speaker("VllmWorker", 77, 0)),
        ("(Worker_TP5 pid=8)", Speaker("Worker", 8, 5)),
        ("(Worker_DP1_TP3_EP7 pid=8)", Speaker("Worker", 8, 3)),
        ("(Worker pid=8)", Speaker("Worker", 8, 0)),
        ("(EngineCore_0 pid=9)", Speaker("EngineCore", 9, 0)),
        ("(EngineCore_DP1 pid=9)", Speaker("EngineCore", 9, 0)),
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
        ("said", None, None, None, "said"),
        ("INFO 11-29 12:29:10 [core.py:1]", "INFO", "11-29 12:29:10", "core.py", ""),
    ],
)
def test_headers(
    text: str, level: str | None, logged_at: str | None, file: str | None, message: str
) -> None:
    record = one(text)
    assert record == Record(record.head, message, None, level, logged_at, file)


def test_rays_note_on_repetition_is_no_part_of_the_message() -> None:
    text = "(RayWorkerWrapper pid=5) INFO 11-29 12:29:10 w.py:1] said [repeated 7x across cluster]"
    assert one(text).message == "said"


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


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for record in read(text):
        assert record.message in clean(text)


@pytest.mark.parametrize(
    "hostile",
    ["(A pid=1) ", "INFO 11-29 12:29:10 a", "(A", "%| Loading ", " [repeated 1x", "] "],
)
def test_a_long_line_takes_no_longer_than_its_length_asks_for(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile))
    assert len(read(f"{text}] pid= pid= %| across cluster]")) > 0


@given(st.lists(st.sampled_from([BAR, "(A pid=1) ", "INFO 11-29 12:41:30 ", "x", " "])))
def test_no_text_is_lost_in_cutting(parts: list[str]) -> None:
    text = "".join(parts)
    assert "".join(r.head + r.message for r in read(text)).split() == text.split()
