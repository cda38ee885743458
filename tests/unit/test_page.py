"""The report as an HTML page: whole, closed in itself, true to the document."""

from __future__ import annotations

import base64
import errno
import hashlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.advise.document import (
    AccountabilityPart,
    AgainstPart,
    BucketsPart,
    Evidence,
    FigurePart,
    Headline,
    LeftPart,
    LeverPart,
    ProposalPart,
    Report,
    SettingPart,
    StartReport,
    StepPart,
    WarmedPart,
)
from hpuwatch.advise.page.charts import Frame, ticks
from hpuwatch.advise.page.drawing import Box, Dot, Drawing, Stroke, Words, svg
from hpuwatch.advise.page.glossary import WORDS, Prose
from hpuwatch.advise.page.markup import Markup, element
from hpuwatch.advise.page.page import pictures, render_page
from hpuwatch.advise.page.palette import DARK, LIGHT, contrast, ink_on, own_style
from hpuwatch.advise.page.picture import NARROW, WIDE, Picture
from hpuwatch.advise.page.quantities import (
    duration,
    interval,
    known_as,
    name_of,
    told,
)
from hpuwatch.advise.page.style import STYLE
from hpuwatch.advise.report import build_report
from hpuwatch.app import page as files
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.errors import ExtraMissing, ResourceError
from hpuwatch.testing.logs import state_of_text
from hpuwatch.units import GIB, MIB

pytestmark = pytest.mark.unit

LOGS = Path(__file__).resolve().parent.parent
SIMULATION = "hpuwatch sim: this server is simulated, none of its figures was measured on a Gaudi\n"
HOSTILE = (
    "</style><script>alert('\"&')</script><img src=x onerror=alert(1)>\x00\x1b[31m"
)
VOID = {"meta", "link", "hr", "wbr"}


@cache
def report_on(log: str) -> Report:
    path = LOGS / log
    text = path.read_text("utf-8", "replace")
    return build_report([(path.name, state_of_text(text))], shipped_findings())


def start_on(log: str) -> StartReport:
    (only,) = report_on(log).reports
    return only


SAMPLE = "data/logs/llama8b-gaudi2.log"
LOADED = "data/logs/llama70b-tp2-load.log"
DEAD = "data/logs/warmup-out-of-memory.log"
STEPS = "golden/developer-mode/log"
IMAGES = "golden/multimodal-warmup/log"
SKIPPED = "golden/skip-warmup/log"


class Reader(HTMLParser):
    """Reads a page as a strict browser would, and keeps what it found."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attrs for name, attrs in self.tags if name == tag)


def read(*starts: StartReport) -> Reader:
    return Reader(render_page(Report(reports=list(starts))))


def picture(start: StartReport, name: str) -> Picture:
    (found,) = (each for each in pictures(start) if each.name == name)
    return found


def drawn(start: StartReport, name: str, width: float = WIDE) -> Drawing:
    draw = picture(start, name).draw
    assert draw is not None
    return draw(width)


def changed(start: StartReport, **parts: object) -> StartReport:
    return start.model_copy(update=parts)


GOLDENS = sorted(f"golden/{path.parent.name}/log" for path in LOGS.glob("golden/*/log"))


@pytest.mark.parametrize("log", [SAMPLE, LOADED, DEAD, *GOLDENS])
def test_a_page_is_sound_and_closed_in_itself(log: str) -> None:
    page = render_page(report_on(log))
    reader = Reader(page)
    ids = [str(attrs["id"]) for _, attrs in reader.tags if "id" in attrs]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    for tag, attrs in reader.tags:
        assert tag not in {"script", "img", "iframe", "object", "form", "base"}
        assert not [key for key in attrs if key.startswith("on") or key == "style"]
        assert "src" not in attrs
        href = attrs.get("href")
        if href is not None:
            assert href == "data:," or href.removeprefix("#") in ids, href
    assert "url(" not in page
    assert "@import" not in page
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    tags = {tag for tag, _ in reader.tags}
    assert {"header", "main", "footer", "nav"} <= tags
    for attrs in reader.all("svg"):
        named = str(attrs.get("aria-labelledby") or "").split()
        assert attrs.get("aria-hidden") == "true" or set(named) <= set(ids)
    assert render_page(report_on(log)) == page


@pytest.mark.parametrize("log", [SAMPLE, LOADED, STEPS, IMAGES, *GOLDENS[:3]])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_picture_is_sound_xml_and_stays_on_its_canvas(
    log: str, width: float
) -> None:
    for each in pictures(start_on(log)):
        if each.draw is None:
            assert each.description.startswith("Not drawn: ")
            assert each.table is None
            continue
        assert each.table is not None
        drawing = each.draw(width)
        name = {"title": each.title, "description": each.description, "name": "p"}
        tree = ET.fromstring(svg(drawing, style=own_style(), **name))  # noqa: S314  our own
        assert tree.tag == "{http://www.w3.org/2000/svg}svg"
        texts = {child.tag.rpartition("}")[2]: child.text for child in tree}
        assert (texts["title"], texts["desc"]) == (each.title, each.description)
        for shape in drawing.shapes:
            assert shape.role in LIGHT
            if isinstance(shape, Box):
                assert -0.1 <= shape.x <= shape.x + shape.width <= width + 0.1
                assert -0.1 <= shape.y <= shape.y + shape.height <= drawing.height
            if isinstance(shape, Stroke):
                assert all(0 <= x <= width + 0.1 for x, _ in shape.points)
                assert all(0 <= y <= drawing.height for _, y in shape.points)


def test_the_policy_lets_nothing_in_but_the_page_s_own_style() -> None:
    reader = read(start_on(SAMPLE))
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    (policy,) = (
        attrs["content"]
        for attrs in reader.all("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert str(policy).split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_what_a_log_says_stays_text() -> None:
    sample = start_on(SAMPLE)
    assert sample.proposal is not None
    evil = sample.model_copy(
        update={
            "source": sample.source.model_copy(update={"file": HOSTILE}),
            "headline": Headline(do=HOSTILE, why=HOSTILE),
            "server": sample.server.model_copy(update={"model": HOSTILE}),
            "findings": [
                sample.findings[0].model_copy(
                    update={
                        "title": HOSTILE,
                        "why": HOSTILE,
                        "evidence": [Evidence(file=HOSTILE, line=1, text=HOSTILE)],
                    }
                )
            ],
            "proposal": sample.proposal.model_copy(
                update={"env": {"X": HOSTILE}, "flags": ["--x", HOSTILE]}
            ),
            "settings": [SettingPart(name="X", value=HOSTILE)],
            "left": [LeftPart(name=HOSTILE, value=HOSTILE, why=HOSTILE)],
        }
    )
    reader = read(evil)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in reader.tags)
    assert [tag for tag, _ in reader.tags].count("style") == 1
    assert reader.text.count("<img src=x onerror=alert(1)>") >= 10
    assert "\x00" not in render_page(Report(reports=[evil]))


@given(st.text(max_size=40), st.text(max_size=40))
def test_markup_is_sound_xml_whatever_it_holds(text: str, value: str) -> None:
    tree = ET.fromstring(  # noqa: S314  our own
        element("p", text, Markup("<b>1</b>"), title=value)
    )
    assert [child.tag for child in tree] == ["b"]
    shown = re.sub("[\r\n\t ]+", " ", "".join(tree.itertext()))
    kept = "".join(c for c in text if c.isalnum())
    assert kept in "".join(c for c in shown if c.isalnum())


def test_what_to_do_first_can_be_copied_and_undone() -> None:
    """The public sample: 0.051 in place of 0.1."""
    page = render_page(report_on(SAMPLE))
    boxes = re.findall(r"<pre[^>]*>(.*?)</pre>", page)
    assert boxes == ["VLLM_GRAPH_RESERVED_MEM=0.051", "VLLM_GRAPH_RESERVED_MEM=0.1"]
    text = Reader(page).text
    order = (
        "What to do first",
        "What it costs",
        "What it will bring",
        "What not to touch",
        "What was found",
    )
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def proposing(**parts: object) -> StartReport:
    sample = start_on(SAMPLE)
    assert sample.proposal is not None
    bare = ProposalPart(env={}, why="Because.")
    return changed(sample, proposal=bare.model_copy(update=parts))


def test_each_figure_has_its_interval_and_how_it_is_known() -> None:
    blocks = FigurePart(value=4300, low=4200, high=4400, origin="learned")
    same = FigurePart(value=4107, low=4107, high=4107, origin="predicted")
    start = proposing(
        figures={"kv_blocks": blocks}, expected={"reserve_bytes": 2 * GIB}
    )
    assert start.kv.blocks == 4107
    text = read(start).text
    assert (
        "KV blocks 4,107 4,300 (+4.7 %) 4,200 to 4,400 arithmetic on this log" in text
    )
    assert "graph reserve 7.13 GiB 2 GiB (-71.9 %) not told arithmetic" in text
    text = read(proposing(figures={"kv_blocks": same})).text
    assert "No figure that this log prints is expected to change." in text
    assert "4,107, as now exactly that arithmetic on this log" in text


def test_settings_that_were_not_set_are_taken_away_again() -> None:
    start = proposing(
        env={"A_B": "two words", "VLLM_GRAPH_RESERVED_MEM": "0.2"},
        flags=["--max-model-len", "4096"],
        unset=["OLD_ONE"],
    )
    start = changed(
        start,
        settings=[
            SettingPart(name="OLD_ONE", value="7 $(x)"),
            SettingPart(name="--max-model-len", value="8192"),
        ],
    )
    page = render_page(Report(reports=[start]))
    boxes = [
        each.split("\n")
        for each in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    ]
    assert boxes == [
        ["A_B=&#x27;two words&#x27;", "VLLM_GRAPH_RESERVED_MEM=0.2"],
        ["--max-model-len 4096"],
        ["OLD_ONE"],
        [
            "VLLM_GRAPH_RESERVED_MEM=0.1",
            "--max-model-len 8192",
            "OLD_ONE=&#x27;7 $(x)&#x27;",
        ],
    ]
    assert "Then also take away what wasn't set: A_ B ." in Reader(page).text


def test_the_parts_of_a_proposal_name_the_findings_that_they_answer() -> None:
    steps = [
        StepPart(settings=["A=1"], answers="HPW101", gain="more", why="Because."),
        StepPart(settings=["B=2"], gain="less", why="As well."),
    ]
    start = proposing(env={"A": "1", "B": "2"}, steps=steps)
    assert start.findings[0].code == "HPW101"
    links = [attrs["href"] for attrs in read(start).all("a")]
    assert "#r1-HPW101" in links


def test_what_helps_and_what_the_log_could_not_tell_is_shown() -> None:
    start = start_on(SAMPLE)
    finding = start.findings[0].model_copy(
        update={
            "helps": [LeverPart(change="lower", knob="--max-num-seqs", why="Fewer.")],
            "cannot_help": [LeverPart(change="raise", knob="A_B", why="Too late.")],
        }
    )
    told_all = changed(start, not_established=[])
    assert "What this log could not tell" not in read(told_all).text
    told_less = changed(start, findings=[finding], not_established=["The card."])
    text = read(told_less).text
    assert "Can help: lower --max-num-seqs : Fewer." in text
    assert "Can't help: raise A_B : Too late." in text
    assert "What this log could not tell The card." in text


def test_a_bucket_file_can_be_copied_too() -> None:
    start = changed(proposing(env={"A": "1"}), bucket_file="(1, 128, 0)\n(1, 256, 0)\n")
    page = render_page(Report(reports=[start]))
    assert ">(1, 128, 0)\n(1, 256, 0)</pre>" in page


def test_nothing_to_change_is_said_so() -> None:
    reader = read(changed(start_on(SAMPLE), proposal=None))
    for words in ("What it will bring", "What it costs", "One restart"):
        assert words not in reader.text
    links = {attrs["href"] for attrs in reader.all("a")}
    assert {"#r1-brings", "#r1-costs"}.isdisjoint(links)


def test_the_last_good_start_stands_under_why() -> None:
    part = AgainstPart(start="suggest@2", said=["Memory ran out here and not there."])
    text = read(changed(start_on(SAMPLE), against=part)).text
    assert "Memory ran out here" not in read(start_on(SAMPLE)).text
    assert text.index("Why") < text.index("Memory ran out here")
    assert text.index("Memory ran out here") < text.index("What not to touch")


def test_what_the_plan_keeps_is_no_bullet_of_what_not_to_touch() -> None:
    text = read(start_on(SAMPLE)).text
    kept = text.index("The reserve keeps")
    assert text.index("Why") < kept < text.index("What it will bring")


def test_lines_of_mere_information_are_folded() -> None:
    start = start_on(SAMPLE)
    (finding, *_) = start.findings
    told = finding.model_copy(update={"severity": "info"})
    page = render_page(Report(reports=[changed(start, findings=[told])]))
    count = len(told.evidence)
    assert f"<details><summary>{count} lines of the log</summary>" in page
    grave = finding.model_copy(update={"severity": "error"})
    page = render_page(Report(reports=[changed(start, findings=[grave])]))
    assert "lines of the log</summary>" not in page


def test_what_helps_is_not_told_twice() -> None:
    start = start_on(SAMPLE)
    levers = [
        LeverPart(change="lower", knob=knob, why="Fewer.")
        for knob in ("--max-num-seqs", "--max-model-len")
    ]
    finding = start.findings[0].model_copy(
        update={"cure": "Lower --max-num-seqs.", "helps": levers}
    )
    text = read(changed(start, findings=[finding])).text
    assert "Can help: lower --max-model-len" in text
    assert "lower --max-num-seqs" not in text


def test_the_origin_of_the_figures_is_named_before_anything_else() -> None:
    sim = build_report(
        [("s.log", state_of_text(SIMULATION + (LOGS / SAMPLE).read_text("utf-8")))],
        shipped_findings(),
    )
    text = Reader(render_page(sim)).text
    assert text.index("SIMULATED : none of these") < text.index("What to do first")
    text = read(changed(start_on(SAMPLE), origin="predicted")).text
    assert "PREDICTED : no server has been started" in text
    assert "How to start this server" in text
    assert "One restart" not in text
    assert "Measured" in read(start_on(SAMPLE)).text


def test_several_servers_share_a_page() -> None:
    reader = read(start_on(SAMPLE), start_on(DEAD))
    assert "What to change on these 2 servers, and why" in reader.text
    ids = {attrs.get("id") for _, attrs in reader.tags}
    assert {"r1", "r2", "r1-do", "r2-do"} <= ids
    assert "no start of a server" in read().text


def test_memory_before_and_after_is_one_and_the_same_card() -> None:
    start = start_on(SAMPLE)
    table = picture(start, "memory").table
    assert table is not None
    assert table.head == ("", "now", "with the proposal", "change")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["weights"][2] == rows["held back by utilisation"][2] == "none"
    assert rows["KV cache"][2].startswith("+")
    assert rows["reserve, idle"][2].startswith("-")
    bars = [each for each in drawn(start, "memory").shapes if isinstance(each, Box)]
    ends: dict[float, float] = {}
    for bar in (each for each in bars if each.tip):
        ends[bar.y] = max(ends.get(bar.y, 0), bar.x + bar.width)
    now, after = ends.values()
    assert now == pytest.approx(after, abs=1)


def test_a_proposal_that_moves_the_weights_has_no_bar_of_after() -> None:
    start = start_on(SAMPLE)
    assert start.proposal is not None
    moved = start.proposal.model_copy(update={"flags": ["--tensor-parallel-size", "2"]})
    shown = picture(changed(start, proposal=moved), "memory")
    assert "doesn't tell how the memory is split then" in shown.description
    assert shown.table is not None
    assert shown.table.head == ("", "now")


def test_the_free_memory_is_that_of_the_log() -> None:
    start = start_on(STEPS)
    shown = picture(start, "free-memory")
    free = [part.free_bytes for part in start.warmup.steps["prompt"]]
    assert len(free) == 4
    assert f"{free[0] / GIB:.4g} GiB before the first one" in shown.description
    strokes = [
        each
        for each in drawn(start, "free-memory").shapes
        if isinstance(each, Stroke) and each.role in {"prompt", "decode"}
    ]
    assert [len(each.points) for each in strokes] == [2 * 4, 2 * 5]
    # Less free memory stands lower.
    falls = [y for _, y in strokes[0].points]
    assert falls == sorted(falls)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (SKIPPED, "warm-up was skipped"),
        (LOADED, "doesn't print what was free before each bucket"),
        ("golden/oom-weights/log", "the log holds no warm-up"),
    ],
)
def test_a_picture_without_figures_says_what_lacks(log: str, said: str) -> None:
    shown = picture(start_on(log), "free-memory")
    assert shown.draw is None
    assert said in shown.description


def with_steps(*free: float) -> StartReport:
    start = start_on(STEPS)
    parts = [
        WarmedPart(shape=(1, 128 * (n + 1), 0), free_bytes=round(each * GIB))
        for n, each in enumerate(free)
    ]
    warmup = start.warmup.model_copy(update={"steps": {"prompt": parts}, "pace": {}})
    return changed(start, warmup=warmup)


def test_a_graph_costs_what_was_free_before_it_and_not_after() -> None:
    shown = picture(with_steps(10, 9.5, 9.25), "warmup-cost")
    assert "The graphs of 2 buckets took 768 MiB together" in shown.description
    assert "largest 512 MiB: prompt (1, 128, 0)" in shown.description
    assert shown.table is not None
    assert ("graph of prompt (1, 128, 0)", "512 MiB") in shown.table.rows


def test_memory_that_comes_back_is_no_cost() -> None:
    """Between images memory goes down and up again."""
    shown = picture(with_steps(10, 9, 10, 9, 10), "warmup-cost")
    assert "took" not in shown.description.partition("together")[2]
    assert "together" not in shown.description


def test_seconds_of_a_bucket_follow_from_the_bar() -> None:
    start = start_on(STEPS)
    warmup = start.warmup.model_copy(
        update={"steps": {}, "pace": {"prompt": [(1, 4.0), (4, 10.0)]}}
    )
    shown = picture(changed(start, warmup=warmup), "warmup-cost")
    assert "4 prompt buckets took 10 s, 2.5 s each, 4 s where it was slowest" in (
        shown.description
    )
    tips = [
        each.tip
        for each in drawn(changed(start, warmup=warmup), "warmup-cost").shapes
        if isinstance(each, Box) and each.tip
    ]
    assert tips[:2] == [
        "prompt buckets 1 to 1: 4 s: 4 seconds a bucket",
        "prompt buckets 2 to 4: 6 s: 2 seconds a bucket",
    ]


def test_phases_without_room_for_their_names_have_a_legend() -> None:
    start = start_on(STEPS)
    few = [WarmedPart(shape=(1, 128, 0), free_bytes=n * GIB) for n in (9, 8)]
    many = [WarmedPart(shape=(n, 1, 1), free_bytes=7 * GIB) for n in range(1, 200)]
    steps = {"prompt": few, "decode": many}
    warmup = start.warmup.model_copy(update={"steps": steps, "pace": {}})
    crowded = changed(start, warmup=warmup)
    for width in (NARROW, WIDE):
        swatches = [
            each.role
            for each in drawn(crowded, "free-memory", width).shapes
            if isinstance(each, Box) and each.role != "band"
        ]
        assert swatches == ["prompt", "decode"]
    alone = drawn(start, "free-memory").shapes
    assert {each.role for each in alone if isinstance(each, Box)} == {"band"}


def mapped(phase: str, shapes: Sequence[tuple[int, ...]]) -> StartReport:
    return changed(start_on(LOADED), buckets=BucketsPart(shapes={phase: list(shapes)}))


def cells(start: StartReport) -> list[Box]:
    shapes = drawn(start, "buckets").shapes
    return [each for each in shapes if isinstance(each, Box) and each.tip]


def test_a_map_has_a_cell_for_each_place_with_buckets() -> None:
    start = mapped("prompt", [(1, 128, 0), (1, 128, 4), (2, 128, 4), (1, 256, 0)])
    tips = [cell.tip for cell in cells(start)]
    assert tips == [
        "query (new tokens) 128, context (KV blocks) 0: 1 bucket",
        "query (new tokens) 128, context (KV blocks) 4: 2 buckets",
        "query (new tokens) 256, context (KV blocks) 0: 1 bucket",
    ]
    darkness = [cell.role for cell in cells(start)]
    assert darkness[1] > darkness[0] == darkness[2]


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_colours_of_a_map_are_explained_whatever_they_are(
    colours: dict[str, str],
) -> None:
    """In the dark more is lighter, so no word of light or dark would hold."""
    start = mapped("prompt", [(1, 128, 0), (1, 128, 4), (2, 128, 4), (1, 256, 0)])
    shown = picture(start, "buckets")
    shapes = drawn(start, "buckets").shapes
    keys = [
        each for each in shapes if isinstance(each, Box) and each.role[:4] == "heat"
    ]
    assert [each.role for each in keys if not each.tip] == ["heat3", "heat6"]
    assert {each.role for each in keys if each.tip} == {"heat3", "heat6"}
    assert contrast(colours["heat6"], colours["back"]) > contrast(
        colours["heat1"], colours["back"]
    )
    said = [each.text for each in shapes if isinstance(each, Words)]
    assert {"1 bucket", "2 buckets"} <= set(said)
    assert "arker" not in shown.description
    one = drawn(mapped("prompt", [(1, 128, 0), (1, 256, 0)]), "buckets").shapes
    assert all(
        each.tip for each in one if isinstance(each, Box) and "heat" in each.role
    )


def test_neighbours_share_a_cell_where_there_are_too_many() -> None:
    shapes = [(batch, 1, 128 * batch) for batch in range(1, 101)]
    start = mapped("decode", shapes)
    counts = [int(cell.tip.rpartition(": ")[2].split()[0]) for cell in cells(start)]
    assert sum(counts) == 100
    assert len(counts) <= 24
    assert "1\N{EN DASH}5" in cells(start)[0].tip


def test_buckets_beyond_the_cache_stand_above_a_line() -> None:
    start = mapped("decode", [(1, 1, blocks) for blocks in (1, 512, 100_000)])
    assert start.kv.blocks is not None
    said = picture(start, "buckets").description
    assert (
        "1 of the decode buckets, above the dashed line, have more blocks than the "
        f"{start.kv.blocks:,}" in said
    )
    (line,) = (
        each for each in drawn(start, "buckets").shapes if isinstance(each, Stroke)
    )
    above = [cell for cell in cells(start) if cell.y < line.points[0][1]]
    assert [cell.tip.partition(":")[0][-7:] for cell in above] == ["100,000"]


def test_old_buckets_have_two_sizes() -> None:
    start = start_on(SAMPLE)
    tips = [cell.tip for cell in cells(start)]
    assert "batch (sequences) 2, length (tokens) 128: 1 bucket" in tips[-2] or any(
        "batch (sequences) 2, length (tokens) 128: 1 bucket" in tip for tip in tips
    )


def accounted(*parts: AccountabilityPart) -> StartReport:
    return changed(start_on(SAMPLE), accountability=list(parts))


def test_what_came_stands_beside_what_was_predicted() -> None:
    blocks = AccountabilityPart(
        figure="kv_blocks",
        predicted=1000,
        low=900,
        high=1100,
        observed=1050,
        inside=True,
    )
    time = AccountabilityPart(
        figure="warmup_seconds",
        predicted=100,
        low=90,
        high=110,
        observed=150,
        inside=False,
    )
    never = AccountabilityPart(
        figure="kv_tokens", predicted=10, low=9, high=11, observed=None, inside=False
    )
    start = accounted(blocks, time, never)
    shown = picture(start, "predictions")
    assert "1 of 3 figures came out within" in shown.description
    assert "KV blocks: 1,000 predicted, 1,050 came, inside." in shown.description
    assert (
        "Warm-up: 1 min 40 s predicted, 2 min 30 s came, outside." in shown.description
    )
    assert shown.table is not None
    assert [row[3] for row in shown.table.rows] == [
        "1,050 (inside)",
        "2 min 30 s (outside)",
        "never came: the server died first",
    ]
    dots = [e for e in drawn(start, "predictions").shapes if isinstance(e, Dot)]
    assert [dot.role for dot in dots] == ["inside", "outside"]
    assert dots[0].x < dots[1].x
    unread = picture(start_on(SAMPLE), "predictions")
    assert unread.draw is None
    assert "earlier reports was not read" in unread.description
    read_ = picture(changed(start_on(SAMPLE), store_read=True), "predictions")
    assert "no start with suggested settings has been seen yet" in read_.description


def test_each_word_is_explained_where_it_comes_first_and_only_there() -> None:
    prose = Prose()
    first = prose.paragraph("Graphs of a bucket take the graph reserve at warm-up.")
    again = prose.paragraph("Buckets and graphs: see the reserve.")
    explained = re.findall("<dt>(.*?)</dt>", first)
    assert explained == ["graph", "bucket", "graph reserve", "warm-up"]
    assert "<dt>" not in again
    assert again == "<p>Buckets and graphs: see the reserve.</p>"


def test_settings_in_sentences_are_code_and_no_word_of_the_glossary() -> None:
    text = "Set VLLM_GRAPH_RESERVED_MEM=0.2, or --max-model-len 5."
    said, new = Prose().sentence(text)
    assert re.findall("<code.*?>(.*?)</code>", said) == [
        "VLLM_GRAPH_RESERVED_MEM=0.2",
        "--max-model-len",
    ]
    assert re.sub("<.*?>", "", said) == text
    assert new == []


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_every_word_is_found_under_its_own_name(word: object) -> None:
    name = str(getattr(word, "name", ""))
    _, new = Prose().sentence(f"This is about {name}.")
    assert [each.name for each in new] == [name]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kv_cache_bytes", 3 * GIB, "3 GiB"),
        ("graph_bytes", 1.5 * MIB, "1.5 MiB"),
        ("warmup_seconds", 7.25, "7.25 s"),
        ("warmup_seconds", 429, "7 min 9 s"),
        ("warmup_seconds", 1200, "20 min"),
        ("ready_seconds", 5 * 3600, "5 h"),
        ("ready_seconds", 3725, "1 h 2 min"),
        ("prompt_padding_percent", 12.345, "12.3 %"),
        ("kv_blocks", 12345.0, "12,345"),
        ("kv_tokens", 128.0, "128 tokens"),
        ("sequences_at_once", 2.5, "2.5"),
        ("warmup_seconds_then", 88.2, "1 min 28 s"),
        ("tokens_per_second", 250.4, "250"),
    ],
)
def test_figures_have_the_unit_of_their_name(
    name: str, value: float, words: str
) -> None:
    assert told(name, value) == words


def test_names_and_intervals_are_in_words() -> None:
    assert name_of("peak_step_bytes") == "peak step"
    assert name_of("kv_blocks") == "KV blocks"
    assert interval("kv_blocks", 5, 5) == "exactly that"
    assert interval("graph_bytes", 2 * GIB, 3 * GIB) == "2 to 3 GiB"
    assert interval("graph_bytes", 2 * MIB, 3 * GIB) == "2 MiB to 3 GiB"
    assert interval("warmup_seconds", 65, 190) == "1 min 5 s to 3 min 10 s"
    assert known_as("kv_blocks", "predicted") == "arithmetic on this log"
    assert known_as("kv_blocks", "prior") == "prior: from other servers"
    assert duration(59.99) != "60 s"


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9), st.integers(1, 9))
def test_ticks_are_round_and_within(low: float, span: float, most: int) -> None:
    high = low + span
    found = ticks(low, high, most)
    assert len(found) <= most + 1
    edge = 1e-6 * (high - low) + 1e-9 * high
    assert all(low - edge <= place <= high + edge for place in found)


def test_a_frame_turns_figures_into_places() -> None:
    frame = Frame(10, 20, 100, 50, (0, 10), (0, 5))
    assert (frame.x(5), frame.y(5), frame.y(0)) == (60, 20, 70)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
@pytest.mark.parametrize("role", ["text", "soft", "limit", "outside"])
def test_words_can_be_read(colours: dict[str, str], role: str) -> None:
    assert contrast(colours[role], colours["back"]) >= 4.5
    assert contrast(colours[role], colours["band"]) >= 4.5


@pytest.mark.parametrize(
    "piece", ["weights", "profile", "graphs", "idle", "kv", "held"]
)
def test_words_on_a_piece_of_memory_can_be_read(piece: str) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for colours in (LIGHT, DARK):
        assert contrast(colours[ink_on(piece)], colours[piece]) >= 4.5


def test_pictures_are_written_with_a_text_beside_each(tmp_path: Path) -> None:
    report = report_on(STEPS)
    said = list(files.write_plots(report, tmp_path / "new", ("svg",)))
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    drawn_names = [each.name for each in pictures(report.reports[0]) if each.draw]
    assert len(drawn_names) == 4
    assert names == sorted(
        f"{n}.{form}" for n in drawn_names for form in ("svg", "txt")
    )
    assert [line for line in said if line.startswith("predictions: Not drawn: ")]
    for path in (tmp_path / "new").glob("*.svg"):
        tree = ET.parse(path).getroot()  # noqa: S314  our own
        assert any("Measured" in (each.text or "") for each in tree)
    words = (tmp_path / "new/memory.txt").read_text("utf-8")
    assert "Measured: read from the log of a real server." in words
    assert re.search(r"^KV cache +[\d.]+ GiB", words, re.MULTILINE)


def test_several_servers_have_numbered_pictures(tmp_path: Path) -> None:
    both = Report(reports=[start_on(STEPS), start_on(SAMPLE)])
    list(files.write_plots(both, tmp_path, ("svg",)))
    names = {path.name for path in tmp_path.iterdir()}
    assert {"1-memory.svg", "2-memory.svg"} <= names


def test_a_png_has_the_same_shapes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    list(files.write_plots(report_on(STEPS), tmp_path, ("png",)))
    data = (tmp_path / "memory.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"Where the memory of a card goes" in data
    assert int.from_bytes(data[16:20], "big") == 2 * WIDE


def test_without_matplotlib_only_svg_is_written_and_png_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert files.plot_forms("svg") == ("svg",)
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    assert files.plot_forms(None) == ("svg",)
    with pytest.raises(
        ExtraMissing, match=r"pip install 'hpuwatch\[tune\]', or take svg"
    ):
        files.plot_forms("png")


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(ResourceError, match="give another --plots"):
        list(files.write_plots(report_on(SAMPLE), tmp_path / "file", ("svg",)))
    with pytest.raises(ResourceError, match="give another --output"):
        files.write_text(tmp_path / "none" / "page.html", "x")


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "old.html"
    page.write_text("old", encoding="utf-8")
    page.chmod(0o640)

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:1])
        raise OSError(errno.EFBIG, "File too large")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_bytes", full)
        with pytest.raises(ResourceError, match="File too large"):
            files.write_text(page, "new")
    assert page.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [page]
    link = tmp_path / "link.html"
    link.symlink_to(page)
    files.write_text(link, "new")
    assert link.is_symlink()
    assert page.read_text("utf-8") == "new"
    assert page.stat().st_mode & 0o777 == 0o640


def suggest(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "hpuwatch",
            "suggest",
            "--no-store",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_verb_writes_page_and_pictures_where_it_is_told(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "plots"
    answer = suggest(
        LOGS / SAMPLE,
        *("--format", "html", "--output", page),
        *("--plots", folder, "--plot-format", "svg"),
    )
    assert (answer.returncode, answer.stdout) == (0, "")
    assert Reader(page.read_text("utf-8")).text.startswith("What to change")
    assert answer.stderr.splitlines()[0] == f"memory: {folder}/memory.{{svg,txt}}"
    assert (folder / "memory.svg").exists()


def test_a_plot_format_needs_a_folder() -> None:
    answer = suggest(LOGS / SAMPLE, "--plot-format", "svg")
    assert answer.returncode == 2
    assert "--plot-format tells nothing without --plots DIR" in answer.stderr
