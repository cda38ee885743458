"""The parser against what real servers printed and against the catalogue of their lines."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.values import clock_seconds, phase_name
from hpuwatch.records import Line
from hpuwatch.source.files import read_lines
from hpuwatch.units import Amount, gib_amount, parse_amount

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


@lru_cache
def catalogue(folder: Path) -> tuple[ModuleType, Mapping[str, Any]]:
    """The catalogue and the module that knows how to read it."""
    path = folder / "reference" / "check_catalogue.py"
    spec = importlib.util.spec_from_file_location("check_catalogue", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (folder / "reference" / "log-lines.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return module, yaml.load(text, Loader=loader)  # noqa: S506  a safe loader, in C


BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "int": ("7", "4117", "0"),
    "float": ("0.9", "0", "12.5"),
    "gib": ("14.9889", "0.0000", "0.25"),
    "seconds": ("429", "6.21", "0.5"),
    "percent": ("66.7", "100.0", "0.0"),
    "bytes": ("82.7 GiB", "0 B", "1024 MiB"),
    "str": ("name-1", "a/b.c", "x"),
    "tuple": ("(1, 772, np.int32(1))", "(2, 1, 448)", "(1,)"),
    "bucket_list": ("[(1, 128, 0), (2, 256, 7)]", "[(4, 128)]", "[]"),
    "dims_config": ("[1, 32, 256]", "(1, 2, 8)", "[7]"),
    "tqdm": ("####      ", "\u2588\u2588\u258f       ", "          "),
    "bool": ("True", "False", "True"),
}
BY_PATTERN: Mapping[str, tuple[str, ...]] = {
    r"VLLM_[A-Z0-9_]+": ("VLLM_PROMPT_BS_BUCKET_MIN", "VLLM_X_1", "VLLM_A"),
    r"\[[-+][^\]]*\]": ("[-cpu +gaudi2 -gaudi3]", "[+gaudi3]", "[-gaudi]"),
    r"[A-Za-z_]\w*": ("skip_warmup", "hw", "PT_HPU_WEIGHT_SHARING"),
    r"[A-Z][A-Z0-9_]*": ("PT_HPU_LAZY_MODE", "ABC_1", "PT_X"),
    r"[A-Za-z][A-Za-z0-9_/() ]*": ("Graph/prompt", "Prompt", "Graph/Multimodal(image)"),
    r"\d+:\d\d(?::\d\d)?": ("01:32", "1:02:03", "00:00"),
    r"\d+:\d\d(?::\d\d)?|\?": ("?", "01:22", "1:00:00"),
    r" *[\d.]+(?:s/(?:item|it)|(?:item|it)/s)|\?(?:item|it)/s": (
        "?item/s",
        "  2.94s/item",
        " 1.48it/s",
    ),
    r"default|\d+s": ("default", "0s", "40s"),
}
BY_NAME: Mapping[str, tuple[str, ...]] = {
    "config": (
        "model='m/a', dtype=torch.bfloat16, max_seq_len=8192, enforce_eager=False",
    )
    * 3,
    "args": ("Namespace(host='0.0.0.0', model='m/a', max_num_seqs=256)",) * 3,
    "recipes": ("[]", "[['graph', 12]]", "[]"),
    "ops": ("{'aten::multinomial'}",) * 3,
    "names": ("VLLM_CONTIGUOUS_PA",) * 3,
    "tasks": ("['generate']",) * 3,
    "traceback": ("Traceback (most recent call last):",) * 3,
    "host": ("10.0.0.1", "127.0.0.1", "localhost"),
    "addr": ("http://127.0.0.1:8000",) * 3,
    "resolutions": ("[(864, 480, None), (768, 1024, (1, 20))]",) * 3,
    "what": ("safetensors checkpoint shards",) * 3,
    "model": ("meta-llama/Llama-3.1-8B",) * 3,
}


def sample(field: Mapping[str, Any], which: int) -> str:
    """The text of a field, by its name, choices, pattern, format or type."""
    if field.get("choices"):
        return str(field["choices"][which % len(field["choices"])])
    if field["name"] in BY_NAME and field["type"] in {"str", "bucket_list"}:
        return BY_NAME[field["name"]][which]
    if field.get("pattern"):
        return BY_PATTERN[field["pattern"]][which]
    return formatted(field, BY_TYPE[field["type"]][which], negative=which == 1)


def formatted(field: Mapping[str, Any], text: str, *, negative: bool) -> str:
    shape = field.get("format")
    if shape == ",":
        return f"{int(text) * 40_000:,}"
    if shape:
        return str(shape % float(text))
    if field.get("may_be_negative") and negative and not text.startswith("0"):
        return f"-{text}"
    return text


def expected(field: Mapping[str, Any], text: str, module: ModuleType) -> object:
    """What a field's text must become by the interface between parser and state."""
    special = {"phase": phase_name, "elapsed": clock_seconds}
    typed = {"bytes": parse_amount, "gib": lambda t: (gib_amount(t), float(t))}
    typed |= dict.fromkeys(("str", "tqdm"), str.strip)
    convert = special.get(field["name"]) or typed.get(field["type"])
    if convert is not None:
        return convert(text)
    return as_tuple(module.convert(field, text))


def as_tuple(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(as_tuple(item) for item in value)
    return value


def header(form: str) -> str:
    return {
        "bracket": "(EngineCore pid=9) INFO 11-29 12:29:10 [runtime.py:1] ",
        "nobracket": "INFO 11-29 12:29:10 runtime.py:1] ",
        "uvicorn": "(APIServer pid=9) INFO:     ",
        "none": "",
        "traceback": "",
    }[form]


def renderings(
    module: ModuleType, kind: Mapping[str, Any], variant: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, str]]]:
    fields = module.variant_fields(kind, variant)
    spellings = module.expanded_templates(variant) + list(variant.get("also") or [])
    forms = module.as_list(variant["header"])
    spellings = [text for text in spellings if text not in NAMELESS]
    for template, which, form in itertools.product(spellings, range(3), forms):
        names = module.placeholders(template)
        values = {name: sample(fields[name], which) for name in names}
        yield header(form) + module.render(template, values), values


def wrong(
    module: ModuleType, kind: Mapping[str, Any], variant: Mapping[str, Any]
) -> list[str]:
    """What the parser gets wrong in a variant's renderings and example."""
    fields = module.variant_fields(kind, variant)
    rules, mistakes = shipped_rules_once(), []
    lines = list(renderings(module, kind, variant))
    if variant["example"]:
        found = module.match_line(variant["example"], kind, variant)
        lines.append((variant["example"], found[0]))
    for line, values in lines:
        parser = Parser(rules)
        events = parser.feed(Line(line)) + parser.close()
        sentences = [e for e in events if e.kind != "fault"]
        if [e.kind for e in sentences] != [kind["kind"]]:
            mistakes.append(f"{[e.kind for e in sentences]}: {line!r}")
            continue
        event = sentences[0]
        for name, text in values.items():
            if fields[name]["type"] == "tqdm":
                continue
            want = expected(fields[name], text, module)
            got = event.fields.get(name)
            if got != want and not (isinstance(want, tuple) and got in want):
                mistakes.append(f"{name}: {got!r}, not {want!r}: {line!r}")
    return mistakes


@lru_cache
def shipped_rules_once() -> Any:
    return shipped_rules()


NAMELESS = {"*******************************************************"}
"""Spellings of the catalogue that say nothing by themselves."""


def test_every_variant_of_the_catalogue_is_understood(shared: Path) -> None:
    module, lines = catalogue(shared)
    variants = list(module.iter_variants(lines))
    mistakes = [
        f"{kind['kind']}[{index}] {text}"
        for kind, index, variant in variants
        if not variant.get("absent")
        for text in wrong(module, kind, variant)
    ]
    assert mistakes == []
    assert len(variants) == 280


def test_what_frames_a_warning_is_known_and_means_nothing() -> None:
    parser = Parser(shipped_rules_once())
    for text in NAMELESS:
        line = f"WARNING 10-13 05:58:44 [exponential.py:29] {text}"
        assert parser.feed(Line(line)) == []
    assert parser.unparsed == 0


# Faults that no line tells by itself: they are seen in what many lines say together.
BY_STATE = {
    "device_oom_warmup_hybrid",
    "preemption_storm",
    "recompile_stalls",
    "hang_no_progress",
    "device_lost",
}
ELSEWHERE = {
    "engine_ready_timeout": (
        "TimeoutError: Timed out waiting for engine core processes to start. This is"
    ),
    "kv_short": (
        "ValueError: The model's max seq len (8) is larger than the maximum number of "
        "tokens that can be stored in KV cache (4)."
    ),
    "fork_hang": (
        "On HPU, VLLM_WORKER_MULTIPROC_METHOD=fork might cause application hangs on exit."
    ),
}


def test_every_fault_of_the_reference_is_recognised(shared: Path) -> None:
    text = (shared / "reference" / "faults.yaml").read_text(encoding="utf-8")
    mistakes = []
    for fault in yaml.safe_load(text)["faults"]:
        name = fault["id"]
        if name in BY_STATE:
            continue
        events = Parser(shipped_rules_once()).feed(
            Line(ELSEWHERE.get(name, fault["example"]))
        )
        names = [event.fields["name"] for event in events if event.kind == "fault"]
        if names != [name]:
            mistakes.append(f"{name}: {names}")
    assert mistakes == []


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
