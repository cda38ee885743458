"""The parser against the catalogue of what every release prints, in every form it takes.

Each variant of a line is filled with values and printed behind every process prefix, in every
form of header and with every way of colouring; it must come out as its kind, with its values
and its speaker.  Which prefix a release really has doesn't matter: all must be understood.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event, Speaker
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.parse.values import clock_seconds, phase_name
from hpuwatch.records import Line
from hpuwatch.source.assemble import Assembler
from hpuwatch.source.envelope import Unwrapper
from hpuwatch.units import gib_amount, parse_amount


@lru_cache
def rules() -> RuleSet:
    return shipped_rules()


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


PREFIXES: Mapping[str, Speaker | None] = {
    "": None,
    "(VllmWorkerProcess pid=879) ": Speaker("VllmWorkerProcess", 879, None),
    "(RayWorkerWrapper pid=5) ": Speaker("RayWorkerWrapper", 5, None),
    "(RayWorkerWrapper pid=5, ip=10.0.0.2) ": Speaker("RayWorkerWrapper", 5, None),
    "(pid=5, ip=10.0.0.2) ": Speaker("", 5, None),
    "(VllmWorker rank=3 pid=77) ": Speaker("VllmWorker", 77, 3),
    "(VllmWorker TP2 pid=77) ": Speaker("VllmWorker", 77, 2),
    "(VllmWorker PP1_TP2 pid=77) ": Speaker("VllmWorker", 77, 2, 0, 1),
    "(Worker_PP3_TP1 pid=8) ": Speaker("Worker", 8, 1, 0, 3),
    "(Worker_TP5 pid=8) ": Speaker("Worker", 8, 5),
    "(Worker_DP1_TP3_EP7 pid=8) ": Speaker("Worker", 8, 3, 1),
    "(Worker pid=8) ": Speaker("Worker", 8),
    "(EngineCore_0 pid=9) ": Speaker("EngineCore", 9),
    "(EngineCore_DP0 pid=9) ": Speaker("EngineCore", 9),
    "(EngineCore_DP3 pid=9) ": Speaker("EngineCore", 9, 0, 3),
    "(EngineCore pid=9) ": Speaker("EngineCore", 9),
    "(APIServer pid=1) ": Speaker("APIServer", 1),
    "(ApiServer_2 pid=1) ": Speaker("ApiServer", 1),
    "(DPCoordinator pid=4) ": Speaker("DPCoordinator", 4),
    "6: ": Speaker(rank=6),
    "[6] ": Speaker(rank=6),
    "[rank6]: ": Speaker(rank=6),
    "[1,6]<stdout>:": Speaker(rank=6),
    "(EngineCore_DP1 pid=9) (RayWorkerWrapper pid=5) ": Speaker(
        "RayWorkerWrapper", 5, None, 1
    ),
    "6: (EngineCore_DP0 pid=9) ": Speaker("EngineCore", 9),
}
REPEATED = " [repeated 7x across cluster]"

AT = "11-29 12:29:10"
HEADERS: Mapping[str, tuple[str, ...]] = {
    "bracket": (
        f"{{level}} {AT} [runtime.py:1] ",
        f"{{level}} {AT} [extension/.../runtime.py:1] ",
        f"myhost [a] {{level}} {AT} [runtime.py:1] ",
        f"2026-{AT},123 - vllm.runtime - {{level}} - ",
        f"2026-{AT}.123 | {{level:<8}} | vllm.runtime:run:12 - ",
        f"[{{level}}] 2026-{AT} vllm.runtime: ",
    ),
    "nobracket": (
        f"{{level}} {AT} runtime.py:1] ",
        f"myhost {{level}} {AT} runtime.py:1] ",
    ),
    "uvicorn": ("{colon:<9} ",),
    "none": ("",),
    "traceback": ("", f"ERROR {AT} [runtime.py:1] "),
}
"""Forms of header by the catalogue's words for them; what people configure is one too."""


def plain(prefix: str, header: str, message: str) -> str:
    return prefix + header + message


def coloured_prefix(prefix: str, header: str, message: str) -> str:
    return f"\x1b[1;36m{prefix}\x1b[0;0m{header}{message}"


def coloured_header(prefix: str, header: str, message: str) -> str:
    level, space, rest = header.partition(" ")
    return f"{prefix}\x1b[32m{level}\x1b[0m{space}\x1b[90m{rest.rstrip()}\x1b[0m{' ' * rest.endswith(' ')}{message}"


def pasted(prefix: str, header: str, message: str) -> str:
    return f"^[[1;36m{prefix}^[[0;0m{header}{message}^M"


LOOKS: tuple[Callable[[str, str, str], str], ...] = (
    plain,
    coloured_prefix,
    coloured_header,
    pasted,
)


class Printed(NamedTuple):
    """A line, and what it must come out as."""

    line: str
    values: Mapping[str, str]
    speaker: Speaker | None


def renderings(
    module: ModuleType, kind: Mapping[str, Any], variant: Mapping[str, Any]
) -> Iterator[Printed]:
    """Every spelling with every set of values, and every prefix with every header.

    They are paired, not multiplied: each list goes round while the longest one lasts, looks
    taking turns.
    """
    fields = module.variant_fields(kind, variant)
    texts = module.expanded_templates(variant) + list(variant.get("also") or [])
    said = list(itertools.product((t for t in texts if t not in NAMELESS), range(3)))
    forms = [
        form for name in module.as_list(variant["header"]) for form in HEADERS[name]
    ]
    places = list(itertools.product(PREFIXES, forms))
    levels = [name for name in module.as_list(variant["level"]) if name in LEVELS]
    for turn in range(max(len(said), len(places))):
        template, which = said[turn % len(said)]
        prefix, form = places[turn % len(places)]
        level = levels[turn % len(levels)] if levels else "INFO"
        head = form.format(level=level, colon=f"{level}:")
        names = module.placeholders(template)
        values = {name: sample(fields[name], which) for name in names}
        message = module.render(template, values)
        look = LOOKS[(turn + turn // len(LOOKS)) % len(LOOKS)]
        line = look(prefix, head, message) + REPEATED * ("(Ray" in prefix)
        yield Printed(line, values, PREFIXES[prefix])


LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}
NAMELESS = {"*******************************************************"}
"""Spellings of the catalogue that say nothing by themselves."""


def wrong(
    module: ModuleType, kind: Mapping[str, Any], variant: Mapping[str, Any]
) -> Iterator[str]:
    """What the parser gets wrong in a variant's renderings and example."""
    fields = module.variant_fields(kind, variant)
    lines = list(renderings(module, kind, variant))
    if variant["example"]:
        found = module.match_line(variant["example"], kind, variant)
        lines.append(Printed(variant["example"], found[0], None))
    for line, values, speaker in lines:
        sentences = [event for event in events_of(line) if event.kind != "fault"]
        if [event.kind for event in sentences] != [kind["kind"]]:
            yield f"{[event.kind for event in sentences]}: {line!r}"
            continue
        (event,) = sentences
        if speaker is not None and event.speaker != speaker:
            yield f"{event.speaker}: {line!r}"
        for name, text in values.items():
            if fields[name]["type"] == "tqdm":
                continue
            want = expected(fields[name], text, module)
            got = event.fields.get(name)
            if got != want and not (isinstance(want, tuple) and got in want):
                yield f"{name}: {got!r}, not {want!r}: {line!r}"


def events_of(line: str) -> list[Event]:
    parser = Parser(rules())
    return parser.feed(Line(line)) + parser.close()


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
    parser = Parser(rules())
    for text in NAMELESS:
        line = f"WARNING {AT} [exponential.py:29] {text}"
        assert parser.feed(Line(line)) == []
    assert parser.unparsed == 0


STAMP = "2026-11-29T12:29:10.123456789Z"


def journald(line: str) -> str:
    """As ``journalctl -o json`` prints it: bytes where the text isn't plain."""
    message = line if line.isprintable() else list(line.encode())
    return json.dumps({"MESSAGE": message, "__REALTIME_TIMESTAMP": "1795955350123456"})


ENVELOPES: Mapping[str, Callable[[str], str]] = {
    "line ends of a terminal": "{}\r".format,
    "docker": lambda line: json.dumps(
        {"log": f"{line}\n", "stream": "stdout", "time": STAMP}
    ),
    "cri": f"{STAMP} stdout F {{}}".format,
    "cri parts": lambda line: (
        f"{STAMP} stdout P {line[:40]}\n{STAMP} stdout F {line[40:]}"
    ),
    "kubectl --timestamps": f"{STAMP} {{}}".format,
    "kubectl --prefix": f"[pod/vllm-0/server] {STAMP} {{}}".format,
    "compose": "vllm-1  | {}".format,
    "journald short": "Nov 29 12:29:10 host-1 vllm[123]: {}".format,
    "journald short-iso": "2026-11-29T12:29:10+0000 host-1 vllm[123]: {}".format,
    "journald json": journald,
    "rsyslog": "2026-11-29T12:29:10.123456+00:00 host-1 vllm[123]: {}".format,
    "syslog": "<14>1 2026-11-29T12:29:10.123456Z host-1 vllm 123 - - {}".format,
}


def told(text: str) -> list[tuple[object, ...]]:
    """What a log's events say, whatever lines they stand in."""
    parser, assembler, unwrapper = Parser(rules()), Assembler(), Unwrapper()
    lines = [*assembler.feed(text.encode()), *assembler.close()]
    pieces = [piece for line in lines for piece in unwrapper.feed(line)]
    events = [event for p in pieces + unwrapper.close() for event in parser.feed(p)]
    return [
        (e.kind, e.fields, e.speaker, e.level, e.logged_at)
        for e in events + parser.close()
    ]


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_an_envelope_changes_nothing(
    shared: Path, envelope: Callable[[str], str]
) -> None:
    module, lines = catalogue(shared)
    examples = [v["example"] for _, _, v in module.iter_variants(lines) if v["example"]]
    bare = told("\n".join(examples))
    assert len(bare) > 200
    assert told("\n".join(map(envelope, examples))) == bare


def as_json(line: str, module: ModuleType) -> str | None:
    """A line with a header, as a configuration for JSON lines prints its record."""
    for form in ("bracket", "nobracket", "uvicorn"):
        found = module.strip_header(line, form)
        if found is not None:
            break
    else:
        return None
    message, level, file = found
    prefix = line[: line.index(level)]
    record = {"asctime": "2026-11-29 12:29:10,123", "levelname": level}
    place = {"filename": file} if file else {"name": "uvicorn.error"}
    return prefix + json.dumps({**record, **place, "message": message})


def test_json_lines_are_records(shared: Path) -> None:
    module, lines = catalogue(shared)
    examples = [v["example"] for _, _, v in module.iter_variants(lines) if v["example"]]
    pairs = [(line, as_json(line, module)) for line in examples]
    pairs = [(line, text) for line, text in pairs if text is not None]
    assert len(pairs) > 150
    for line, text in pairs:
        bare = [event[:4] for event in told(line)]
        assert [event[:4] for event in told(str(text))] == bare, text
