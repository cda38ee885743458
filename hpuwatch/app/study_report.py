"""A study of ``tune`` as a report: its trials are the evidence, measured under one load."""

from __future__ import annotations

from hpuwatch.advise.document import (
    BucketsPart,
    FigurePart,
    GraphsPart,
    Headline,
    KvPart,
    MemoryPart,
    ProposalPart,
    Report,
    ServerPart,
    SettingPart,
    SourcePart,
    StartReport,
    StepPart,
    TrafficPart,
    TrialPart,
    WarmupPart,
)
from hpuwatch.app.studies import StoredStudy
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import Verdict, score
from hpuwatch.tune.report import is_simulated, nothing_compared, verdict_lines
from hpuwatch.tune.trial import Facts, Trial

_LEAST_CHANCE = 0.05
"""Starts of one configuration differ by so much at least (see ``tune.objective``)."""


def report_of_study(stored: StoredStudy) -> Report:
    """Return the report over a study: what its best trial set, and all that was tried."""
    verdict, trials = stored.verdict, stored.trials
    subject = verdict.best if verdict else next(iter(trials), None)
    facts = subject.facts if subject else Facts()
    best = verdict.best if verdict and not verdict.best.is_baseline else None
    start = StartReport(
        source=SourcePart(file=f"study {stored.study.id} of {stored.name}", start=0),
        origin="simulated" if is_simulated(trials) else "measured",
        headline=_headline(stored, verdict, best),
        server=_server(facts),
        memory=MemoryPart(
            usable=facts.usable_bytes,
            reserve=facts.reserve_bytes,
            reserve_ratio=facts.reserve_ratio,
            kv_cache=facts.kv_bytes,
        ),
        kv=KvPart(blocks=facts.kv_blocks, block_size=facts.block_size),
        buckets=BucketsPart(
            prompt=facts.buckets.get("prompt"), decode=facts.buckets.get("decode")
        ),
        graphs=GraphsPart(),
        warmup=WarmupPart(
            seconds=facts.warmup_seconds, finished=facts.warmup_seconds is not None
        ),
        traffic=TrafficPart(),
        faults=[],
        findings=[],
        proposal=_proposal(stored, verdict, best) if verdict and best else None,
        settings=_settings(trials[0].facts) if trials else [],
        trials=[_trial(each) for each in trials],
    )
    return Report(reports=[start])


def _headline(
    stored: StoredStudy, verdict: Verdict | None, best: Trial | None
) -> Headline:
    if verdict is None:
        return Headline(do="Change nothing.", why=nothing_compared(stored.trials))
    why = " ".join(verdict_lines(verdict))
    if best is None:
        return Headline(do="Change nothing.", why=why)
    typed = " and ".join(f"{name}={value}" for name, value in best.settings.items())
    return Headline(do=f"Set {typed}.", why=why)


def _server(facts: Facts) -> ServerPart:
    return ServerPart(
        release=facts.release or None,
        model=facts.model or None,
        card=facts.card or None,
        tp=facts.tensor_parallel,
        max_model_len=facts.max_model_len,
        phase="measured in trials",
    )


def _settings(facts: Facts) -> list[SettingPart]:
    settings = dict(facts.flags)
    if facts.reserve_ratio is not None:
        settings.setdefault(RESERVE, f"{facts.reserve_ratio:g}")
    return [
        SettingPart(name=name, value=value) for name, value in sorted(settings.items())
    ]


def _proposal(stored: StoredStudy, verdict: Verdict, best: Trial) -> ProposalPart:
    why = verdict_lines(verdict)[0]
    settings = [f"{name}={value}" for name, value in best.settings.items()]
    return ProposalPart(
        env=dict(best.settings),
        figures=_figures(best),
        steps=[
            StepPart(
                settings=settings,
                gain=f"{100 * verdict.gain:.1f} % more output tokens/s",
                why=f"Trial {best.number} was measured under the study's load.",
            )
        ],
        base=stored.study.fingerprint or None,
        proven=True,
        why=why,
    )


def _figures(best: Trial) -> dict[str, FigurePart]:
    rate, found = score(best), best.measurement
    if rate is None or found is None:
        return {}
    half = max(found.spread / 2, _LEAST_CHANCE * rate)
    figures = {
        "tokens_per_second": FigurePart(
            value=rate, low=rate - half, high=rate + half, origin="measured"
        )
    }
    blocks = best.facts.kv_blocks
    if blocks is not None:
        figures["kv_blocks"] = FigurePart(
            value=blocks, low=blocks, high=blocks, origin="measured"
        )
    return figures


def _trial(trial: Trial) -> TrialPart:
    found, rate = trial.measurement, score(trial)
    return TrialPart(
        number=trial.number,
        settings=dict(trial.settings),
        outcome=trial.state.value.replace("_", " "),
        tokens_per_second=rate,
        plus_minus=found.spread / 2 if found and rate is not None else None,
        kv_blocks=trial.facts.kv_blocks,
        cause=trial.outcome.cause if trial.outcome else "",
    )
