"""``suggest`` without a log: a first configuration, a run's own log, a study."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.document import Report, StartReport
from hpuwatch.advise.plan.first import FirstPlan, first_plan
from hpuwatch.advise.plan.first_report import first_report
from hpuwatch.advise.plan.traffic import ExpectedTraffic, read_traffic
from hpuwatch.advise.plan.wish import Wish, device_of
from hpuwatch.advise.render.text import render_markdown, render_text
from hpuwatch.app.first import first_report_of
from hpuwatch.app.report import report_of, spool_of
from hpuwatch.app.studies import StoredStudy
from hpuwatch.app.study_report import report_of_study
from hpuwatch.errors import ConfigError, InputError, MissingFileError, UsageError
from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.cards import CARDS
from hpuwatch.gaudi.graphlaw import prior
from hpuwatch.gaudi.handset import HAND_SET, first_reserve
from hpuwatch.gaudi.modelshape import read_model
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE
from hpuwatch.gaudi.predict import predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.testing.trials import failed, measured
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

USUAL = read_traffic("1k in, 2k out, 64 at once")


MODELS: Mapping[str, Mapping[str, object]] = yaml.safe_load(
    (Path(__file__).parents[1] / "data/models.yaml").read_text(encoding="utf-8")
)


def wish(
    config: Mapping[str, object],
    tensor_parallel: int = 1,
    traffic: ExpectedTraffic | None = USUAL,
    card: str = "gaudi3",
) -> Wish:
    return Wish(
        read_model(config), CARDS[card], tensor_parallel, "plugin-0.26", traffic
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1k in, 2k out, 64 at once", ExpectedTraffic(1024, 2048, 64)),
        ("8 users; 300 tokens out; 1.5k prompt", ExpectedTraffic(1536, 300, 8)),
        ("1K INPUT,2 generated , 3 in parallel,", ExpectedTraffic(1024, 2, 3)),
    ],
)
def test_traffic_is_read_in_words(text: str, wanted: ExpectedTraffic) -> None:
    assert read_traffic(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1k in, 2k out", "how many requests run"),
        ("", "how long prompts are"),
        ("1k in, 2k out, many at once", "'many at once' can't be read"),
        ("1k in, 2k out, 0 at once", "not a whole number from 1"),
        ("1.0001k in, 2k out, 1 at once", "not a whole number"),
        ("1..5k in, 2k out, 1 at once", "is no number"),
        ("1k in, 3 in, 2k out, 1 at once", "a second time"),
        ("99m in, 2k out, 1 at once", "from 1 to 16,777,216"),
        (f"{'9' * 400} in, 1 out, 1 at once", "can't be read"),
    ],
)
def test_what_traffic_can_not_be_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_traffic(text)


@given(st.text(max_size=40))
def test_any_words_are_traffic_or_a_usage_error(text: str) -> None:
    said = ""
    try:
        found = read_traffic(text)
    except UsageError as error:
        said = str(error)
    else:
        assert found.tokens > 1
        assert found.at_once > 0
    assert said.count("\n") == 0


def test_a_first_configuration_is_sized_by_traffic_and_all_prior() -> None:
    plan = first_plan(wish(MODELS["Llama-3.1-8B"]))
    proposal = plan.proposal
    assert proposal is not None
    flags = dict(zip(proposal.flags[::2], proposal.flags[1::2], strict=True))
    # 1,024 + 2,048 tokens are 24 whole blocks.
    assert flags["--max-model-len"] == "3072"
    assert flags["--max-num-seqs"] == "64"
    assert float(proposal.env[RESERVE]) == pytest.approx(median(HAND_SET["gaudi3"]))
    figures = proposal.figures
    for name in ("kv_blocks", "sequences_at_once", "reserve_bytes", "warmup_seconds"):
        figure = figures[name]
        assert figure.origin == "prior", name
        assert figure.low < figure.high, name
        assert figure.low <= figure.value <= figure.high, name
    assert figures["sequences_at_once"].value == figures["kv_blocks"].value // 24
    assert int(proposal.env[READY_TIMEOUT]) > 600
    assert (
        "as wide as other people's"
        in first_report(wish(MODELS["Llama-3.1-8B"]), plan, "config.json").headline.why
    )


def test_too_much_traffic_for_the_cache_is_told() -> None:
    heavy = read_traffic("30k in, 2k out, 200 at once")
    plan = first_plan(wish(MODELS["Llama-3.1-8B"], traffic=heavy))
    assert plan.proposal is not None
    held = plan.proposal.figures["sequences_at_once"].value
    assert held < 200
    assert any("not 200" in each for each in plan.proposal.cautions)


def test_a_model_too_large_for_a_card_asks_for_more() -> None:
    asked = wish(MODELS["Llama-3.1-70B"])
    plan = first_plan(asked)
    assert plan.proposal is None
    assert plan.cards_needed == 2
    report = first_report(asked, plan, "config.json")
    assert report.headline.do == (
        "Take 2 cards: vLLM's --tensor-parallel-size 2, here --tp 2."
    )
    assert "weights need" in report.headline.why
    assert first_plan(wish(MODELS["Llama-3.1-70B"], 2)).proposal is not None
    rendered = render_text(Report(reports=[report]), wrap=80)
    assert "PREDICTED" in rendered
    assert "-" not in rendered.partition("free after both")[2].partition("\n")[0]


def test_requests_longer_than_the_model_are_refused() -> None:
    long = read_traffic("200k in, 1k out, 1 at once")
    with pytest.raises(ConfigError, match="131,072"):
        first_plan(wish(MODELS["Llama-3.1-8B"], traffic=long))


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(("Llama-3.1-8B", "Mistral-7B-v0.1", "Llama-3.1-70B")),
    card=st.sampled_from(("gaudi2", "gaudi3")),
    cards=st.sampled_from((1, 2, 8)),
    prompt=st.integers(1, 20_000),
    output=st.integers(1, 8_000),
    at_once=st.integers(1, 400),
    release=st.sampled_from(("plugin-0.26", "plugin-0.13", "fork-1.21")),
    data=st.data(),
)
def test_a_first_configuration_is_never_refused(
    name: str,
    card: str,
    cards: int,
    prompt: int,
    output: int,
    at_once: int,
    release: str,
    data: st.DataObject,
) -> None:
    traffic = data.draw(
        st.sampled_from((None, ExpectedTraffic(prompt, output, at_once)))
    )
    asked = replace(wish(MODELS[name], cards, traffic, card), release=release)
    plan: FirstPlan = first_plan(asked)
    if plan.proposal is None:
        assert plan.refused is not None
        return
    basis = Basis(
        device=device_of(asked.model, asked.card, cards),
        graphs=prior(asked.model.hidden_size),
    )
    assert not refusals(predict(plan.forecast.plan, basis), basis)
    assert plan.proposal.figures["kv_blocks"].value > 0


def test_hand_set_reserves_span_what_others_chose() -> None:
    found = first_reserve("gaudi2", 100, 60 * GIB)
    assert found.value == pytest.approx(median(HAND_SET["gaudi2"]), abs=0.001)
    assert found.high == 0.5
    assert found.low <= 0.08
    # Of the first kind of card nothing is public.
    assert first_reserve("gaudi", 100, 60 * GIB) == found


def test_a_folder_and_a_wrong_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        first_report_of(str(tmp_path), "gaudi3")
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match=r"no config\.json"):
        first_report_of(str(tmp_path), "gaudi3")


def run_suggest(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hpuwatch", "suggest", *arguments],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_verb_plans_a_first_start_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(MODELS["Llama-3.1-8B"]), encoding="utf-8"
    )
    answer = run_suggest(
        *("--model", str(tmp_path), "--card", "gaudi3", "--format", "helm"),
        *("--traffic", "1k in, 2k out, 64 at once"),
    )
    assert answer.returncode == 0, answer.stderr
    assert b"PREDICTED" in answer.stdout
    values = yaml.safe_load(answer.stdout)
    assert {"name": RESERVE, "value": "0.13"} in values["env"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "x"), b"--card"),
        (("x.log", "--tp", "4"), b"--tp tells nothing without --model"),
        (("x.log", "--model", "x", "--card", "gaudi3"), b"not both"),
        (("x.log", "--name", "a"), b"one or the other"),
        (("--study", "soon"), b"neither a number nor newest"),
    ],
)
def test_options_that_contradict_each_other_are_2(
    arguments: tuple[str, ...], said: bytes
) -> None:
    answer = run_suggest(*arguments)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert answer.stderr.count(b"\n") == 1


def test_a_runs_own_log_is_found_by_its_name(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="check --name"):
        spool_of("mine", str(tmp_path))
    log = (checkout / "tests/data/logs/llama8b-gaudi2.log").read_bytes()
    spool = tmp_path / "mine" / "spool"
    spool.parent.mkdir()
    spool.write_bytes(log)
    (only,) = report_of([spool_of("mine", str(tmp_path))]).reports
    assert only.proposal is not None


STUDY = Study(
    fingerprint="0123456789abcdef",
    command=("vllm", "serve", "a-model"),
    knobs=("reserve",),
    seed=7,
    trials=3,
    load=LoadPlan(),
    url="http://127.0.0.1:8000",
    created_at=1000.0,
    id=4,
)


def test_a_study_is_evidence_for_what_its_best_trial_set() -> None:
    trials = (
        measured(0, {}, 1000, 1010),
        measured(1, {RESERVE: "0.1"}, 1500, 1510),
        failed(2, {RESERVE: "0.01"}),
    )
    (only,) = report_of_study(StoredStudy("mine", STUDY, trials)).reports
    proposal = only.proposal
    assert proposal is not None
    assert proposal.env == {RESERVE: "0.1"}
    assert proposal.proven
    assert proposal.base == STUDY.fingerprint
    rate = proposal.figures["tokens_per_second"]
    assert rate.origin == "measured"
    assert rate.low < 1505 < rate.high
    assert only.origin == "simulated"
    assert [each.outcome for each in only.trials] == ["ok", "ok", "out of memory"]
    check_rendered(only, "VLLM_GRAPH_RESERVED_MEM=0.01: out of memory: it failed")


def test_a_study_without_a_better_trial_changes_nothing() -> None:
    trials = (measured(0, {}, 1000, 1010), measured(1, {RESERVE: "0.1"}, 1001, 1012))
    (only,) = report_of_study(StoredStudy("mine", STUDY, trials)).reports
    assert only.proposal is None
    assert only.headline.do == "Change nothing."
    (alone,) = report_of_study(StoredStudy("mine", STUDY, ())).reports
    assert alone.headline.do == "Change nothing."
    check_rendered(only, "the original: ok, 1,005.0 output tokens/s")


def check_rendered(report: StartReport, said: str) -> None:
    whole = Report(reports=[report])
    text = render_text(whole, wrap=80)
    assert said in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert said in render_markdown(whole)
