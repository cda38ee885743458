"""A plan as parts of the document: the headline, the proposal, what stays, what is set now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

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
from hpuwatch.advise.figures import tightest
from hpuwatch.advise.finding import Finding
from hpuwatch.advise.lint.words import MODEL, of_log
from hpuwatch.advise.plan.desk import Dropped
from hpuwatch.advise.plan.left import Left
from hpuwatch.advise.plan.reserve import Proposal
from hpuwatch.advise.plan.steps import PROMPT_RATIO
from hpuwatch.advise.plan.whole import Planned
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE, UTILISATION
from hpuwatch.gaudi.remedies import MAX_LEN, MAX_SEQS, TOKENS
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.life.phases import Phase
from hpuwatch.parse.mask import mask, mask_value
from hpuwatch.state.model import Memory, Start

_NOTHING = "Change nothing."
_PLANNED = frozenset(
    {
        *(RESERVE, UTILISATION, PROMPT_RATIO, READY_TIMEOUT, "VLLM_SKIP_WARMUP"),
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
    found = tightest(start)
    memory = found[1] if found else Memory()
    for name, known in (
        (RESERVE, memory.reserve_ratio),
        (UTILISATION, memory.utilisation),
    ):
        if known is not None:
            value, line = f"{known.value:g}", known.line.number
            parts.setdefault(name, SettingPart(name=name, value=value, line=line))
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
    about = findings[0] if findings else None
    if proposal is not None:
        answered = [each for each in findings if each.name == proposal.answers]
        about = next(iter(answered), None if proposal.answers == "" else about)
    why = _why(about, proposal)
    if proposal is None:
        return _without_proposal(about, why, plan.dropped)
    if RESERVE not in proposal.env:
        return Headline(do=f"Set {_typed(start, proposal)}{_then(start)}.", why=why)
    then = "start again" if start.phase is Phase.FAILED else "run real load"
    do = f"Set {_typed(start, proposal)} as a first step, then {then}."
    return Headline(do=do, why=why)


def _without_proposal(
    about: Finding | None, why: str, dropped: Sequence[Dropped]
) -> Headline:
    """Say what to do where nothing is proposed, and what was left out.

    A cure that names a reserve to be proposed would promise what isn't there.
    """
    do = (about and about.cure) or _NOTHING
    for each in dropped:
        if about is not None and each.step.answers == about.name:
            typed = " ".join(map(str, each.step.changes))
            why = f"{why} {typed} was looked at and left out: {each.why}"
            if any(change.name == RESERVE for change in each.step.changes):
                do = f"Leave {RESERVE} as it is."
    return Headline(do=do, why=why)


def _why(about: Finding | None, proposal: Proposal | None) -> str:
    if about is not None:
        return f"{about.title.removesuffix('.')}. {about.why}"
    return proposal.why if proposal is not None else "Nothing was found."


def _then(start: Start) -> str:
    return ", then start again" if start.phase is Phase.FAILED else ""


def _typed(start: Start, proposal: Proposal) -> str:
    """Return the settings in a row, the reserve with what it is now."""
    now = {each.name: each.value for each in settings_of(start)}
    typed = []
    for change in proposal.changes:
        is_variable = not change.name.startswith("--") and change.value is not None
        was = f" (now {now[change.name]})" if is_variable and change.name in now else ""
        typed.append(f"{change}{was}")
    *most, last = typed
    return f"{', '.join(most)} and {last}" if most else last


def proposal_part(
    proposal: Proposal | None,
    findings: Sequence[Finding],
    settings: Sequence[SettingPart],
) -> ProposalPart | None:
    """Return the proposal as the document has it, None for "change nothing"."""
    if proposal is None:
        return None
    codes = {each.name: each.code for each in findings}
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
