"""What the parser makes of lines, in the forms that real servers print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event, Speaker
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.unmatched import Counter
from hpuwatch.records import Line
from hpuwatch.source.assemble import Assembler

pytestmark = pytest.mark.unit

RULES = shipped_rules()
CORE = "(EngineCore pid=9) INFO 11-29 12:29:10 [hpu_worker.py:432] "


def parse(*texts: str) -> list[Event]:
    parser = Parser(RULES)
    lines = [Line(text, number=number) for number, text in enumerate(texts, 1)]
    events = [event for line in lines for event in parser.feed(line)]
    return events + parser.close()


def one(text: str) -> Event:
    (event,) = parse(text)
    return event


def test_an_event_says_who_when_and_where() -> None:
    text = "(Worker_TP3 pid=991) INFO 10-13 05:58:39 [runner.py:3188] Bucketing is ON."
    (event,) = Parser(RULES).feed(Line(text, 700, 12, 5.0))
    assert event.kind == "bucketing_switch"
    assert event.speaker == Speaker("Worker", 991, 3)
    assert (event.level, event.logged_at) == ("INFO", "10-13 05:58:39")
    assert event.line == Line(text, 700, 12, 5.0)


def test_time_and_memory_of_loading_are_told_apart() -> None:
    memory = one(CORE + "Loading model weights took 14.5000 GB")
    time = one(CORE + "Loading weights took 14.50 seconds")
    assert memory.kind == time.kind == "weights_total"
    assert "seconds" not in memory.fields
    assert "gb" not in time.fields
    assert time.fields["seconds"] == 14.5


def test_blocks_of_v0_and_v1_are_told_apart() -> None:
    assert one(
        "INFO 12-09 23:53:56 e.py:57] # GPU blocks: 48, # CPU blocks: 4"
    ).kind == ("kv_blocks_v0")
    assert one("INFO 12-09 23:53:56 e.py:57] # GPU blocks: 48").kind == "kv_capacity"


def test_bars_of_one_line_are_so_many_events_of_its_speaker() -> None:
    stream = (
        "(Worker_TP1 pid=2) \rPrompt warmup processing:   0%|          | 0/2 [00:00<?, ?item/s]"
        "\rPrompt warmup processing:  50%|█████     | 1/2 [00:11<00:11, 11.2s/item, 0/2]"
        "Prompt warmup processing: 100%|██████████| 2/2 [1:00:11<00:00, 11.2s/item, 1/2]\n"
        "(EngineCore pid=9) Decode warmup processing: 100%|####| 8/8 [00:09<00:00, 1.04item/s]\n"
    )
    parser = Parser(RULES)
    events = [
        e for line in Assembler().feed(stream.encode()) for e in parser.feed(line)
    ]
    assert [event.fields["i"] for event in events] == [0, 1, 2, 8]
    assert [event.fields["phase"] for event in events] == ["prompt"] * 3 + ["decode"]
    assert events[2].fields["elapsed"] == 3611.0
    assert [event.speaker.rank for event in events] == [1, 1, 1, 0]
    assert parser.lines == 2


def test_developer_mode_line_glued_to_bars_of_another_process() -> None:
    bar = "Prompt warmup processing:   6%|▋     | 1/16 [00:01<00:26,  1.78s/item, 0/16]"
    said = "[Warmup][Prompt][2/16] batch_size:1 query_len:512 num_blocks:2 free_mem:16.06 GiB"
    events = parse(f"(Worker_TP0 pid=1) {bar}      (Worker_TP1 pid=2) {said}")
    assert [event.kind for event in events] == ["warmup_progress", "warmup_bucket"]
    assert [event.speaker.pid for event in events] == [1, 2]
    assert events[1].fields["i"] == 2
    assert events[1].line.text == f"(Worker_TP1 pid=2) {said}"


def test_settings_know_their_section() -> None:
    head = "(EngineCore pid=9) INFO 11-29 12:29:00 [extension/runtime.py:32]"
    other = "(Worker_TP1 pid=5) INFO 11-29 12:29:00 [runtime.py:28]"
    events = parse(
        f"{head} Environment:",
        f"{head}     hw: gaudi3",
        f"{other} Features:",
        f"{other}     moe_chunk: ",
        f"{head}     build: 1.24.0.460",
    )
    assert [dict(event.fields) for event in events] == [
        {"section": "Environment"},
        {"section": "Environment", "key": "hw", "value": "gaudi3"},
        {"section": "Features"},
        {"section": "Features", "key": "moe_chunk", "value": ""},
        {"section": "Environment", "key": "build", "value": "1.24.0.460"},
    ]


def test_bridge_lines_have_no_header() -> None:
    events = parse(
        "============================= HPU PT BRIDGE CONFIGURATION ON RANK = 1 ============= ",
        " PT_HPU_LAZY_MODE = 0",
        " PT_RECIPE_CACHE_PATH = ",
        "CPU RAM       : 1056374408 KB",
    )
    assert [event.kind for event in events] == ["bridge_banner"] * 4
    assert events[0].fields["rank"] == 1
    assert (events[2].fields["name"], events[2].fields["value"]) == (
        "PT_RECIPE_CACHE_PATH",
        "",
    )


def test_a_list_of_many_buckets() -> None:
    buckets = tuple((bs, 1, blocks) for bs in range(1, 141) for blocks in range(100))
    text = f"Generated {len(buckets)} decode buckets [bs, query, num_blocks]: {list(buckets)}"
    event = one(CORE + text)
    assert event.fields["tuples"] == buckets
    assert event.fields["phase"] == "decode"
    assert len(event.line.text) < 3_000


def test_a_list_that_a_collector_cut_keeps_its_count() -> None:
    event = one(
        CORE
        + "Generated 500 prompt buckets [bs, query, num_blocks]: [(1, 128, 0), (1, 2"
    )
    assert (event.fields["n"], event.fields["tuples"]) == (500, ())


def test_traffic_is_read_by_name() -> None:
    event = one(
        "(APIServer pid=1) INFO 08-06 09:10:00 [loggers.py:311] Engine 000: Avg prompt "
        "throughput: 310.0 tokens/s, Avg generation throughput: 612.4 tokens/s, Running: 32 "
        "reqs, Waiting: 6 reqs, Preemptions: 4, New: 5 reqs, CPU KV cache usage: 66.7%, "
        "MM cache hit rate: 7.5%, Prefix cache hit rate: 12.5%"
    )
    wanted = {"engine": 0, "pt": 310.0, "gt": 612.4, "r": 32, "w": 6, "preemptions": 4}
    assert dict(event.fields) == wanted | {"kv": 66.7, "mm": 7.5, "h": 12.5}


def test_misses() -> None:
    events = parse(
        CORE + "Prompt bucket for (1, 772, np.int32(1)) was not prepared. "
        "Adding new bucket: (1, 960, np.int32(1))",
        CORE + "Configuration: ('decode', 6, 1, 8) was not warmed-up!",
        CORE + "Configuration: (prefix_prefill, 6, 128) was not warmed-up!",
    )
    assert events[0].fields["added"] == (1, 960, 1)
    assert [event.fields["phase"] for event in events] == ["prompt", "decode", "prompt"]


def test_known_noise_gives_nothing() -> None:
    unknown = Counter()
    parser = Parser(RULES, unmatched=unknown)
    texts = [
        'INFO:     10.0.0.7:50000 - "POST /v1/completions HTTP/1.1" 200 OK',
        "WARNING 11-29 12:29:10 [nixl_utils.py:58] NIXL is not available",
    ]
    assert [parser.feed(Line(text)) for text in texts] == [[], []]
    assert (parser.unparsed, unknown.templates()) == (0, [])


def test_what_matters_and_nobody_knows_is_counted() -> None:
    unknown = Counter()
    parser = Parser(RULES, unmatched=unknown)
    for number, text in enumerate(
        [
            "WARNING 11-29 12:29:10 [new.py:58] Something new: 5",
            "WARNING 11-29 12:29:10 [new.py:58] Something new: 7",
            CORE + "Kept aside 5.5 GiB",
            "INFO 11-29 12:29:10 [new.py:5] All is well",
            "DEBUG 11-29 12:29:10 [new.py:5]     12 GiB in a dump",
            "Invented 12 buckets",
            "Invented 12 hats",
            "WARNING: odd 1",
            "ERROR:    odd 2",
            "[WARNING] odd 3",
            '{"levelname": "ERROR", "message": "odd 4"}',
        ],
        1,
    ):
        parser.feed(Line(text, number=number))
    assert parser.unparsed == 8
    rows = [(row.count, row.level, row.template) for row in unknown.templates()]
    assert rows == [
        (2, "WARNING", "Something new: <n>"),
        (2, "WARNING", "odd <n>"),
        (2, "ERROR", "odd <n>"),
        (1, "DEBUG", "<n> GiB in a dump"),
        (1, "INFO", "All is well"),
        (1, "", "Invented <n> buckets"),
        (1, "", "Invented <n> hats"),
        (1, "INFO", "Kept aside <n> GiB"),
    ]


def test_templates_are_bounded() -> None:
    unknown = Counter()
    parser = Parser(RULES, unmatched=unknown)
    for number in [*range(5_000), *[4_999] * 5]:
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        parser.feed(Line(f"WARNING 11-29 12:29:10 [n.py:5] {word}", number=number + 1))
    assert len(unknown.templates()) == 2_000
    assert unknown.rest.count == 3_005
    assert parser.unparsed == 5_005


def test_the_simulated_server_is_known() -> None:
    text = "hpuwatch sim: this server is simulated, none of its figures was measured on a Gaudi"
    assert one(text).kind == "simulated_server"


PIECES = st.sampled_from(
    [
        "(Worker_TP1 pid=2) ",
        "INFO 11-29 12:29:10 [runtime.py:432] ",
        "ERROR 11-29 12:29:10 core.py:432] ",
        "Traceback (most recent call last):",
        "KeyError: 0",
        "    x: y",
        "During handling of the above exception, another",
        "Prompt warmup processing:   6%|▋     | 1/16 [00:01<00:26,  1.78s/item, 0/16]",
        "Generated 5 prompt buckets [bs, seq]: [(1, 2), (3",
        "Free device memory: 9e999 GiB, ",
        "Configuration: ('prompt', 1, ",
        "Warmup finished in nan secs, allocated inf of device memory",
        "\x1b[0m",
        "\0",
        "{<<>>}",
    ]
)


@given(st.lists(st.lists(PIECES | st.text(max_size=30), max_size=6).map("".join)))
def test_no_text_makes_it_raise(texts: list[str]) -> None:
    parser = Parser(RULES)
    for number, text in enumerate(texts, 1):
        for event in parser.feed(Line(text, number=number)):
            assert event.line.number <= number
    parser.settle()
    parser.close()
