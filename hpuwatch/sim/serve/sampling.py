"""Which parameters of an answer vLLM refuses, in its words.

Most of them change nothing here: simulated tokens are not sampled.  They are looked at all
the same, since a client that sends what a real server refuses should be told so.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.sim.config.options import Options
from hpuwatch.sim.serve.fields import Fields
from hpuwatch.sim.serve.question import Question
from hpuwatch.sim.serve.refusals import Refused

_MOST_SEQUENCES = 16384
_MOST_PENALTY = 2.0
_WHOLES = ("seed", "priority", "prompt_logprobs", "truncate_prompt_tokens")
_REALS = ("length_penalty",)
_TYPED: dict[str, type] = {
    "user": str,
    "logit_bias": dict,
    "response_format": dict,
    "tools": list,
}


def check_sampling(fields: Fields, question: Question, options: Options) -> None:
    """Check the parameters of an answer.

    Raises:
        Refused: one of them has a wrong type or is out of bounds.
    """
    for name in _WHOLES:
        fields.number(name, None)
    for name in _REALS:
        fields.real(name)
    for name, kind in _TYPED.items():
        fields.typed(name, kind)
    if fields.get("stop_token_ids") is not None:
        fields.token_ids("stop_token_ids")
    is_v0 = options.point.is_v0
    wrong = (
        *_wrong_lengths(fields, question, is_v0=is_v0),
        *_wrong_odds(fields, is_v0=is_v0),
    )
    most = question.logprobs or 0
    if most > options.max_logprobs:
        message = (
            f"Requested sample logprobs of {most}, which is greater than max allowed:"
            f" {options.max_logprobs}"
        )
        wrong = (*wrong, message)
    if wrong:
        raise Refused(wrong[0])


def _wrong_lengths(fields: Fields, question: Question, *, is_v0: bool) -> Iterator[str]:
    """Yield what is wrong with how many answers of which length are asked for."""
    n, limit, least = question.n, question.max_tokens, question.min_tokens
    best_of = fields.number("best_of", None)
    if n < 1:
        yield f"n must be at least 1, got {n}."
    if n * len(question.prompts) > _MOST_SEQUENCES:
        yield f"n must be at most {_MOST_SEQUENCES}, got {n}."
    if limit is not None and limit < (0 if question.echo else 1):
        yield f"max_tokens must be at least 1, got {limit}."
    if least < 0:
        yield f"min_tokens must be greater than or equal to 0, got {least}."
    if limit is not None and least > max(1, limit):
        bound = f"less than or equal to max_tokens={limit}"
        yield f"min_tokens must be {bound}, got {least}."
    if is_v0 and best_of is not None and best_of < n:
        yield f"best_of must be greater than or equal to n, got n={n} and best_of={best_of}."


def _wrong_odds(fields: Fields, *, is_v0: bool) -> Iterator[str]:
    """Yield what is wrong with how tokens are to be chosen."""
    for name in ("presence_penalty", "frequency_penalty"):
        value = fields.real(name)
        if value is not None and not -_MOST_PENALTY <= value <= _MOST_PENALTY:
            yield f"{name} must be in [-2, 2], got {value}."
    repetition, top_k = fields.real("repetition_penalty"), fields.number("top_k", None)
    if repetition is not None and not repetition > 0:
        yield f"repetition_penalty must be greater than zero, got {repetition}."
    temperature, top_p = fields.real("temperature"), fields.real("top_p")
    if temperature is not None and temperature < 0:
        yield f"temperature must be non-negative, got {temperature}."
    if top_p is not None and not 0 < top_p <= 1:
        yield f"top_p must be in (0, 1], got {top_p}."
    if top_k is not None and (top_k < -1 or (is_v0 and top_k == 0)):
        off = -1 if is_v0 else 0
        yield f"top_k must be {off} (disable), or at least 1, got {top_k}."
    min_p = fields.real("min_p")
    if min_p is not None and not 0 <= min_p <= 1:
        yield f"min_p must be in [0, 1], got {min_p}."
