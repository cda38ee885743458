"""The pages about the knobs, made from their tables: an index, and a page for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpuwatch.gaudi.conflicts import CONFLICTS
from hpuwatch.gaudi.knob import GROUPS
from hpuwatch.gaudi.knobs import KNOBS, Knob
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import RELEASES, point_of, prose

_NOTE = (
    "<!-- Made from hpuwatch/gaudi/knobs/ by `make docs`; change that instead. -->\n"
)
_HEAD = f"""# Knobs

{_NOTE}
The environment variables and flags of a vLLM server on Gaudi that matter, and a page for each.
`plugin-0.11` and later numbers are vllm-gaudi, `fork-1.17` to `fork-1.23` Gaudi's fork of vLLM, and `vllm-0.6` to
`vllm-0.9` vLLM's own code for Gaudi.
`hpuwatch lint` looks at a configuration with these tables: see [linting](linting.md).
"""
_BAD_HEAD = ("value", "releases", "what becomes of it")
_CONFLICT_HEAD = ("finding", "releases", "what happens", "what to do")
_TRIED = ("nonsense", "1", "2", "-1", "false")
"""Values that are bad for one knob or another; a page shows what becomes of them."""


def knob_pages() -> dict[str, str]:
    """Return the pages by their path below ``docs/``."""
    pages = {"knobs.md": _index()}
    for knob in KNOBS.values():
        pages[f"knobs/{page_name(knob)}"] = _page(knob)
    return pages


def page_name(knob: Knob) -> str:
    """Return the file name of a knob's page."""
    return f"{knob.name.lstrip('-')}.md"


def _index() -> str:
    parts = [_HEAD]
    newest = point_of(NEWEST)
    for group, title in GROUPS.items():
        rows = [
            (
                f"[{knob.name}](knobs/{page_name(knob)})",
                knob.decides,
                _code(knob.default(newest) or ""),
            )
            for knob in KNOBS.values()
            if knob.group == group
        ]
        table = _table(("knob", "decides", f"default of {NEWEST}"), rows)
        parts.append(f"## {title}\n\n{table}")
    return "\n".join(parts)


def _page(knob: Knob) -> str:
    parts = [f"# {knob.name}\n", _NOTE, f"{knob.decides}\n"]
    kind = "a flag" if knob.is_flag else "an environment variable"
    if knob.internal:
        kind += " that the server sets itself"
    facts = [
        f"- kind: {kind}",
        f"- acts in: {prose(knob.honoured)}",
        f"- legal: {knob.legal}",
    ]
    if knob.refused != "none":
        facts.append(f"- refused by: {prose(knob.refused)}")
    if knob.successor:
        newer = KNOBS[knob.successor]
        facts.append(f"- newer name: [{newer.name}]({page_name(newer)})")
    parts.append("\n".join(facts) + "\n")
    if knob.beware:
        parts.append(f"{knob.beware}\n")
    rows = [(prose(spans), _code(value)) for spans, value in knob.rows]
    if knob.honoured != "none":
        parts.append("## Default\n\n" + _table(("releases", "default"), rows))
    bad = list(_bad_values(knob))
    if bad:
        parts.append("## Bad values\n\n" + _table(_BAD_HEAD, bad))
    others = _conflicts(knob)
    if others:
        parts.append("## With other knobs\n\n" + _table(_CONFLICT_HEAD, others))
    return "\n".join(parts)


def _bad_values(knob: Knob) -> Iterable[tuple[str, str, str]]:
    """Yield what becomes of the tried values: values, releases, words."""
    acting = [name for name in RELEASES if knob.acts(point_of(name))]
    told: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for value in _TRIED:
        said: dict[str, list[str]] = {}
        for name in acting:
            judged = knob.judge(value, point_of(name))
            if judged is not None:
                said.setdefault(judged.text, []).append(name)
        for text, names in said.items():
            key = (_runs(names, acting), text.replace(repr(value), "it"))
            told.setdefault(key, (text, []))[1].append(_code(value))
    for (releases, _), (text, values) in told.items():
        yield ", ".join(values), releases, f"{text[0].upper()}{text[1:]}."


def _runs(names: Sequence[str], acting: Sequence[str]) -> str:
    """Return releases as ranges of those that act."""
    if len(names) == len(acting):
        return "all that act"
    runs: list[list[str]] = []
    for name in names:
        family = name.partition("-")[0]
        before = acting[acting.index(name) - 1] if acting.index(name) else ""
        if runs and runs[-1][-1] == before and before.startswith(family):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(
        run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs
    )


def _conflicts(knob: Knob) -> list[tuple[str, str, str, str]]:
    rows = [
        (f"`{each.code}`", prose(each.releases), each.happens, each.cure)
        for each in CONFLICTS
        if knob.name in each.knobs
    ]
    return list(dict.fromkeys(rows))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in lines)
    return "".join(f"| {line} |\n" for line in cells)
