"""The simulator's lines are those of the catalogue of real lines, or of real logs."""

from __future__ import annotations

import re
import string
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.sim.talk.script import Script, Template, load_script

pytestmark = pytest.mark.unit

_FORMS = {"header": "bracket", "bare": "none", "uvicorn": "uvicorn"}
_SEEN_ELSEWHERE = {"trace", "trace_engine", "trace_worker", "trace_front"}
"""Lines of a traceback: any text; their last lines are compared on their own."""

_SAMPLES: dict[str, object] = {
    "arguments": {"port": 1},
    "batches": [1, 2],
    "buckets": [(1, 128, 0)],
    "changed": True,
    "config": "model='m', seed=0",
    "phase": "Prompt",
    "rate": " 1.25item/s",
    "added": (1, 960, 1),
    "address": "http://127.0.0.1:8000",
    "architecture": "LlamaForCausalLM",
    "bar": "█▎        ",
    "client": "127.0.0.1:9",
    "elapsed": "00:01",
    "key": "hw",
    "left": "00:59",
    "method": "GET",
    "methods": "GET",
    "mode": "abort",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "name": "VLLM_DECODE_BS_BUCKET_STEP",
    "new_strategy": "lin",
    "path": "/health",
    "section": "Features",
    "signal": "SIGTERM",
    "status": "200 OK",
    "strategy": "exp",
    "version": "0.26.0",
    "wanted": (1, 772, 1),
}
_AMOUNTS = {"device", "used", "total", "host", "host_used", "host_total", "free"}
_AMOUNTS |= {"usable", "reserve", "dummy", "cache"}
_NUMBERS = {"percent", "seconds", "gib", "prompt", "generation", "kv", "times"}
_NUMBERS |= {"needed", "available"}
_AXES = {"bs", "query", "blocks"}


@pytest.fixture(scope="module")
def checker(shared: Path) -> Any:
    """The catalogue's own checker, which knows how to match a line."""
    module = types.ModuleType("check_catalogue")
    file = shared / "reference" / "check_catalogue.py"
    source = file.read_text(encoding="utf-8")
    code = compile(source, str(file), "exec")
    exec(code, module.__dict__)  # noqa: S102  it lies beside the data that it checks
    return module


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> Any:
    file = shared / "reference" / "log-lines.yaml"
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


@pytest.fixture(scope="module")
def real_messages(shared: Path) -> list[str]:
    """Messages of the real plugin 0.26, without prefix and header."""
    header = re.compile(r"^(?:\([^)]*\) )?(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] )?")
    folder = shared / "corpus" / "plugin-on-stand-in"
    return [
        header.sub("", line)
        for file in sorted(folder.glob("plugin-0.26-*.log"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def _sample(name: str) -> object:
    if name in _AMOUNTS:
        return "79.22 GiB"
    if name in _NUMBERS:
        return 12.5
    return _SAMPLES.get(name, 7)


def _rendered(name: str, text: str) -> str:
    values = {
        field: _sample(field)
        for _, field, _, _ in string.Formatter().parse(text)
        if field
    }
    if "config (min, step" in text:
        values |= {axis: [1, 2, 3] for axis in _AXES if axis in values}
    if "warmup processing" in text or "Completed" in text or "[Warmup]" in text:
        values |= {"total": 70}
    if name == "not_warmed":
        values["phase"] = "decode"
    if name == "seq_for_query":
        values["query"] = "VLLM_PROMPT_QUERY_BUCKET_MIN"
        values["seq"] = "VLLM_PROMPT_SEQ_BUCKET_MIN"
    return text.format(**values)


def _variants(checker: Any, catalogue: Any) -> Iterator[tuple[Any, Any]]:
    for kind, _, variant in checker.iter_variants(catalogue):
        # What only the fork or upstream prints is no line of the plugin.
        where = str(variant["where"])
        if not re.match(r"(fork|upstream|V0)\b(?!.*(vllm-gaudi|core))", where):
            yield kind, variant


def _is_known(
    checker: Any, catalogue: Any, message: str, fits: Callable[[Any], bool]
) -> bool:
    for kind, variant in _variants(checker, catalogue):
        if not fits(variant):
            continue
        fields = checker.variant_fields(kind, variant)
        also = list(variant.get("also") or [])
        for template in checker.expanded_templates(variant) + also:
            if checker.template_regex(template, fields).fullmatch(message):
                return True
    return False


def _fits(checker: Any, template: Template) -> Callable[[Any], bool]:
    def fit(variant: Any) -> bool:
        return (
            _FORMS[template.form] in checker.as_list(variant["header"])
            and template.stream in checker.as_list(variant["stream"])
            and (
                template.form == "bare"
                or template.level in checker.as_list(variant["level"])
            )
        )

    return fit


def _is_seen(template: Template, real_messages: list[str]) -> bool:
    pieces = string.Formatter().parse(template.text)
    pattern = "".join(
        re.escape(literal) + ("" if field is None else ".*")
        for literal, field, _, _ in pieces
    )
    shape = re.compile(pattern)
    return any(shape.fullmatch(message) for message in real_messages)


def _names() -> list[str]:
    script = load_script()
    return [
        name
        for name, template in script.lines.items()
        if not template.ours and name not in _SEEN_ELSEWHERE
    ]


@pytest.mark.parametrize("name", _names())
def test_every_line_is_one_that_real_servers_print(
    name: str, checker: Any, catalogue: Any, real_messages: list[str]
) -> None:
    template = load_script().lines[name]
    message = _rendered(name, template.text)
    assert _is_known(checker, catalogue, message, _fits(checker, template)) or _is_seen(
        template, real_messages
    ), message


@pytest.mark.parametrize("name", [*load_script().errors])
def test_every_exception_is_one_that_real_servers_raise(
    name: str, checker: Any, catalogue: Any, shared: Path
) -> None:
    text = load_script().errors[name]
    message = _rendered(name, text).replace("Prompt", "prompt")
    faults = (shared / "reference" / "faults.yaml").read_text(encoding="utf-8")
    is_known = _is_known(
        checker, catalogue, message, lambda v: "traceback" in str(v["header"])
    )
    numberless = re.sub(r"\d+", "", message)
    assert is_known or numberless in re.sub(r"\d+", "", faults), message


def test_lines_of_our_own_are_few_and_say_so() -> None:
    script: Script = load_script()
    ours = [name for name, line in script.lines.items() if line.ours]
    assert ours == ["simulated"]
    assert "simulated" in script.lines["simulated"].text
