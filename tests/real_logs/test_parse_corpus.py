"""The parser against what real servers printed."""

from __future__ import annotations

from pathlib import Path

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.source.files import read_lines
from hpuwatch.units import Amount

TRAFFIC = "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz"
DIES = "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz"
FORK = "gaudi2-llama70b-tp4-fork-0.6.3-skip-warmup.log.gz"


def parsed(path: Path) -> tuple[list[Event], Parser]:
    parser = Parser(shipped_rules())
    events = [event for line in read_lines(str(path)) for event in parser.feed(line)]
    return events + parser.close(), parser


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def printed(event: Event, field: str) -> str:
    value = event.fields[field]
    assert isinstance(value, Amount)
    return value.printed


def test_a_start_with_traffic(shared: Path) -> None:
    events, parser = parsed(shared / "corpus" / TRAFFIC)
    assert (parser.lines, parser.unparsed) == (3606, 0)
    (split,) = of_kind(events, "memory_split")
    assert [printed(split, f) for f in ("free", "usable", "graphs", "dummy", "kv")] == [
        "82.7 GiB",
        "62.03 GiB",
        "24.81 GiB",
        "32 MiB",
        "37.18 GiB",
    ]
    assert (split.fields["gmu"], split.fields["grm"]) == (0.75, 0.4)
    (run,) = of_kind(events, "model_profiling_run")
    assert printed(run, "device_delta") == "9.042 GiB"
    assert [e.fields.get("n") for e in of_kind(events, "buckets_generated")] == [
        48,
        162,
        None,
    ]
    assert [printed(e, "mem") for e in of_kind(events, "graph_summary")] == [
        "11.11 GiB",
        "0 B",
    ]
    assert [e.fields["s"] for e in of_kind(events, "warmup_finished")] == [429.0]
    assert [e.fields["s"] for e in of_kind(events, "engine_init_time")] == [467.97]
    assert of_kind(events, "kv_alloc_v1")[0].fields["usable"] == 1189
    assert len(of_kind(events, "bucket_fallback")) == 1
    assert len(of_kind(events, "warmup_bucket")) == 36
    assert max(e.fields["kv"] for e in of_kind(events, "engine_stats")) == 66.7  # type: ignore[type-var]  # floats all
    steps = [e.fields["step"] for e in of_kind(events, "server_lifecycle")]
    assert "ready" in steps
    assert of_kind(events, "fault") == []


def test_bars_are_seen_though_they_share_lines(shared: Path) -> None:
    events, _ = parsed(shared / "corpus" / TRAFFIC)
    bars = of_kind(events, "warmup_progress")
    for phase, total in (("prompt", 48), ("decode", 162)):
        done = [e.fields["i"] for e in bars if e.fields["phase"] == phase]
        assert set(done) == set(range(total + 1))


def test_a_start_that_dies_in_warm_up(shared: Path) -> None:
    events, parser = parsed(shared / "corpus" / DIES)
    assert parser.unparsed == 0
    faults = of_kind(events, "fault")
    assert [(e.fields["name"], e.fields["root"]) for e in faults] == [
        ("engine_dead_v1", False),
        ("unknown_exception", True),
        ("engine_dead_v1", False),
    ]
    assert faults[1].fields["message"] == "KeyError: 0"
    assert any("get_attention_context" in line for line in faults[1].context)


def test_a_fork_with_four_ranks(shared: Path) -> None:
    events, parser = parsed(shared / "corpus" / FORK)
    assert parser.unparsed == 0
    splits = of_kind(events, "memory_split")
    assert [e.speaker.rank for e in splits].count(None) == 3
    assert {printed(e, "kv") for e in splits} == {"47.17 GiB"}
    assert of_kind(events, "kv_blocks_v0")[0].fields == {"hpu": 4830, "cpu": 409}
    assert of_kind(events, "kv_capacity")[0].fields["x"] == 4.72
    assert len(of_kind(events, "bucket_env_echo")) == 48
    assert len(of_kind(events, "bridge_banner")) == 52
    assert len(of_kind(events, "warmup_skipped")) == 4
    assert of_kind(events, "runtime_config_dump")[0].fields["hw"] == "gaudi2"


def test_the_plugin_on_a_stand_in(shared: Path) -> None:
    folder = shared / "corpus" / "plugin-on-stand-in"
    for path in sorted(folder.glob("*.log")):
        events, parser = parsed(path)
        assert parser.unparsed == 0, path.name
        severe = [e for e in of_kind(events, "fault") if e.fields["root"]]
        assert all(e.fields["severity"] == "warning" for e in severe)
        assert len(of_kind(events, "engine_init_time")) == 1
    events, _ = parsed(folder / "plugin-0.26-tp2.log")
    for kind, count in (
        ("memory_split", 2),
        ("warmup_finished", 2),
        ("warmup_bucket", 48),
    ):
        found = of_kind(events, kind)
        assert len(found) == count
        assert {e.speaker.rank for e in found} == {0, 1}
