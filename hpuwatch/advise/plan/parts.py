"""A plan as parts of the document: the headline, the proposal, what stays, what is set now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from hpuwatch.advise.document import (
    BucketFilePart,
    FigurePart,
    Headline,
    LeftPart,
    ProposalPart,
    SettingPart,
    StepPart,
)
from hpuwatch.advise.envheader import LOG_BASE
from hpuwatch.advise.figures import kv_is_short, tightest
from hpuwatch.advise.finding import Finding, gravest
from hpuwatch.advise.lint.words import MODEL, of_log
from hpuwatch.advise.plan.arguments import arguments_of
from hpuwatch.advise.plan.desk import Dropped
from hpuwatch.advise.plan.left import Left
from hpuwatch.advise.plan.reserve import Proposal
from hpuwatch.advise.plan.steps import PROMPT_RATIO, SKIP
from hpuwatch.advise.plan.whole import Planned
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE, UTILISATION
from hpuwatch.gaudi.remedies import MAX_LEN, MAX_SEQS, TOKENS
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.life.phases import Phase
from hpuwatch.parse.mask import mask, mask_value
from hpuwatch.state.model import Memory, Start, value_of
from hpuwatch.units import in_a_row

_NOTHING = "Change nothing."
_PLANNED = frozenset(
    {
        *(RESERVE, UTILISATION, PROMPT_RATIO, READY_TIMEOUT, SKIP),
        *(MAX_LEN, MAX_SEQS, TOKENS, "--num-gpu-blocks-override"),
    }
)
"""What a plan may change, beside the variables of buckets."""


def settings_of(start: Start) -> list[SettingPart]:
    """Return what the log says that its server was given, secrets masked.

    The reserve and the utilisation are named even where nobody set them: every log prints
    what they came to.
    """
    parts = {
        name: SettingPart(
            name=name, value=mask_value(name, each.value), line=_line_number(each.where)
        )
        for name, each in of_log(start, "log").items()
    }
    arguments = start.server.arguments
    for name, value in arguments_of(start).items():
        masked, at = mask_value(name, value), arguments.number if arguments else 0
        parts.setdefault(name, SettingPart(name=name, value=masked, line=at))
    found = tightest(start)
    memory = found[1] if found else Memory()
    for name, known in (
        (RESERVE, memory.reserve_ratio),
        (UTILISATION, memory.utilisation),
    ):
        if known is not None:
            value, number = f"{known.value:g}", known.line.number
            parts.setdefault(name, SettingPart(name=name, value=value, line=number))
    return [parts[name] for name in sorted(parts, key=_flags_last)]


def _line_number(where: str) -> int:
    return int(where.rpartition(":")[2])


def _flags_last(name: str) -> tuple[bool, bool, str]:
    return name.startswith("--"), name != MODEL, name


def base_of(settings: Iterable[SettingPart]) -> str:
    """Return the fingerprint of the settings that a proposal comes on top of.

    What a plan may change is no part of it, so that a later log, of a server that follows
    the proposal, has the same base.
    """
    plain = {each.name: each.value for each in settings if not _is_planned(each.name)}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return LOG_BASE + digest[:16]


def _is_planned(name: str) -> bool:
    return name in _PLANNED or "_BUCKET" in name


def headline(start: Start, findings: Sequence[Finding], plan: Planned) -> Headline:
    """Say what to do and why, from the proposal's finding, else from the gravest."""
    proposal = plan.proposal
    about = gravest(findings)
    if proposal is not None:
        answered = [each for each in findings if each.name == proposal.answers]
        about = next(iter(answered), None if proposal.answers == "" else about)
    why = _why(about, proposal)
    if proposal is None:
        return _without_proposal(about, why, plan.dropped)
    return Headline(do=f"{_typed(start, plan)}{_then(start, proposal)}", why=why)


def _without_proposal(
    about: Finding | None, why: str, dropped: Sequence[Dropped]
) -> Headline:
    """Say what to do where nothing is proposed, and what was left out.

    A cure that names a reserve to be proposed would promise what isn't there.
    """
    do = (about and about.cure) or _NOTHING
    for each in dropped:
        if about is not None and each.step.answers == about.name:
            do = each.instead or do
            typed = " ".join(map(str, each.step.changes))
            why = f"{why} {typed} was looked at and left out: {each.why}"
            changed = {change.name for change in each.step.changes}
            if RESERVE in changed and not each.instead:
                do = f"Leave {RESERVE} as it is."
    return Headline(do=do, why=why)


def _why(about: Finding | None, proposal: Proposal | None) -> str:
    if about is not None:
        return f"{about.title.removesuffix('.')}. {about.why}"
    return proposal.why if proposal is not None else "Nothing was found."


def _then(start: Start, proposal: Proposal) -> str:
    """Say what a change is for, where that is only room, and what comes after it."""
    if start.phase is Phase.FAILED:
        return ", then start again."
    if SKIP in proposal.unset:
        return ", then look at the log of that start."
    if RESERVE not in proposal.env:
        return "."
    won = proposal.expected.get("kv_blocks_won_percent", 0)
    if won <= 0:
        return ", then run normal traffic and hpuwatch suggest on that log."
    gain = f": room for {won:.{0 if won >= 10 else 1}f} % more tokens at once."
    only_room = all(step.answers == "reserve-idle" for step in proposal.steps)
    if only_room and not kv_is_short(start):
        kind = "gpu" if value_of(start.server.engine) == "V0" else "kv"
        gain += (
            " Worth a restart only if the KV cache fills up "
            f"(vllm:{kind}_cache_usage_perc near 1, or preemptions)."
        )
    return f"{gain} Then run normal traffic, and hpuwatch suggest on that log."


def _typed(start: Start, plan: Planned) -> str:
    """Return what to set and what to unset in a row, each with what it is now."""
    now = {name: f"{value}, the default" for name, value in defaults_of(plan).items()}
    now |= {each.name: each.value for each in settings_of(start)}
    changes = plan.proposal.changes if plan.proposal else ()
    sets = [
        f"{each} (now {now[each.name]})" if each.name in now else str(each)
        for each in changes
        if each.value is not None
    ]
    unset = [each.name for each in changes if each.value is None]
    parts = [
        *([f"set {in_a_row(sets)}"] if sets else []),
        *([f"unset {in_a_row(unset)}"] if unset else []),
    ]
    text = ", and ".join(parts)
    return f"{text[:1].upper()}{text[1:]}"


def defaults_of(plan: Planned) -> dict[str, str]:
    """Return what holds now of the settings to be changed that nobody gave."""
    if plan.proposal is None or plan.now is None:
        return {}
    known = plan.now.plan
    sizes = {
        MAX_SEQS: known.flags.max_num_seqs,
        MAX_LEN: known.flags.max_model_len,
        TOKENS: known.tokens,
        UTILISATION: f"{known.utilisation:g}",
        READY_TIMEOUT: known.ready_seconds,
    }
    return {
        each.name: str(sizes[each.name])
        for each in plan.proposal.changes
        if sizes.get(each.name) is not None
    }


def proposal_part(
    proposal: Proposal | None,
    findings: Sequence[Finding],
    settings: Sequence[SettingPart],
    usual: Mapping[str, str] = MappingProxyType({}),
) -> ProposalPart | None:
    """Return the proposal as the document has it, None for "change nothing".

    Args:
        proposal: what to set and why.
        findings: those that its steps answer.
        settings: what is set now.
        usual: what holds now of the changed settings that nobody may have given.
    """
    if proposal is None:
        return None
    codes = {each.name: each.code for each in findings}
    given = {each.name: each.value for each in settings}
    file = _file_part(proposal)
    env = {
        name: value
        for name, value in proposal.env.items()
        if file is None or name != file.variable
    }
    return ProposalPart(
        env=env,
        unset=list(proposal.unset),
        flags=list(proposal.flags),
        expected=dict(proposal.expected),
        figures=figure_parts(proposal.figures),
        steps=[
            StepPart(
                settings=[str(change) for change in step.changes],
                answers=codes.get(step.answers),
                gain=step.gain,
                why=mask(step.why),
            )
            for step in proposal.steps
        ],
        checked=proposal.checked,
        cautions=[mask(each) for each in proposal.cautions],
        base=base_of(settings) if settings else None,
        bucket_file=file,
        margin=dict(proposal.margin),
        proven=proposal.proven,
        why=proposal.why,
        kept=list(proposal.kept),
        now={
            each.name: {**usual, **given}[each.name]
            for each in proposal.changes
            if each.name in usual or each.name in given
        },
    )


def _file_part(proposal: Proposal) -> BucketFilePart | None:
    path = proposal.env.get(FILE_VARIABLE)
    if proposal.bucket_file is None or path is None:
        return None
    return BucketFilePart(variable=FILE_VARIABLE, path=path, text=proposal.bucket_file)


def left_parts(left: Iterable[Left]) -> list[LeftPart]:
    """Return what stays, as the document has it."""
    return [
        LeftPart(name=each.name, value=each.value, why=mask(each.why)) for each in left
    ]


def figure_parts(figures: Mapping[str, Estimate]) -> dict[str, FigurePart]:
    """Return figures with their intervals, as the document has them."""
    return {
        name: FigurePart(
            value=each.value, low=each.low, high=each.high, origin=each.origin
        )
        for name, each in figures.items()
    }
