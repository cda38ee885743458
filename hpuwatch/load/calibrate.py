"""Before the run: whether the server answers, and how it counts the tokens of our prompts.

Token ids are tried first, since their number is exact.  A server that refuses them, or that
counts them otherwise, gets words; two prompts of different lengths then show how many tokens
it makes of a word and how many it adds to each prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from http.client import HTTPException

from hpuwatch.errors import ResourceError
from hpuwatch.load.answer import AnswerReader, shown
from hpuwatch.load.endpoint import MODELS, Endpoint, exchange, model_in
from hpuwatch.load.prompts import TOKEN_IDS, WORDS, Prompts, Units
from hpuwatch.load.target import Route, Target

_SHORT, _LONG = 64, 192
_LIMIT_SECONDS = 300.0  # the first request after a start may compile for minutes
_LIST_SECONDS = 10.0
_UNAUTHORISED = {401, 403}
_KEY_NEEDED = "set VLLM_API_KEY or OPENAI_API_KEY to its key"


@dataclass(frozen=True, slots=True)
class Told:
    """What the server said to one prompt; ``tokens`` is None where it doesn't count."""

    status: int
    failure: str
    tokens: int | None


def calibrated(target: Target, seed: str, kind: str | None) -> Prompts:
    """Return prompts whose lengths fit the server, after asking it up to three times.

    Args:
        target: who is asked.
        seed: chooses the texts.
        kind: ``ids`` or ``words``, None for what the server takes.

    Raises:
        ResourceError: it doesn't answer, or refuses even the plainest prompt.
    """
    if target.route is Route.COMPLETIONS and kind != "words":
        told = _ask(target, Prompts(TOKEN_IDS, seed), _SHORT)
        if not told.failure and told.tokens in {None, _SHORT}:
            return Prompts(TOKEN_IDS, seed)
        if kind == "ids":
            why = told.failure or f"it counts {told.tokens} for {_SHORT} of them"
            raise ResourceError(
                f"{target.endpoint.url} takes no token ids as prompts ({why}): try "
                "`--prompts words`"
            )
    plain = Prompts(WORDS, seed)
    counts = []
    for length in (_SHORT, _LONG):
        told = _ask(target, plain, length)
        if told.failure:
            raise ResourceError(_refusal(target.endpoint, told))
        counts.append(told.tokens)
    return Prompts(_fitted(*counts), seed)


def _fitted(short: int | None, long: int | None) -> Units:
    """Return words with the ratio that two prompts showed; without counts one to one."""
    if short is None or long is None or long <= short:
        return WORDS
    each = (long - short) / (_LONG - _SHORT)
    around = max(0.0, short - each * _SHORT)
    return replace(WORDS, tokens_each=each, tokens_around=around)


def _refusal(endpoint: Endpoint, told: Told) -> str:
    said = f"{endpoint.url} refuses a short completion ({told.failure})"
    if told.status in _UNAUTHORISED:
        return f"{said}: {_KEY_NEEDED}"
    if told.status == 404:
        return f"{said}: look at --model and --endpoint"
    return f"{said}: look at the server's log"


def _ask(target: Target, prompts: Prompts, units: int) -> Told:
    """Ask for one token after a prompt of so many units.

    Raises:
        ResourceError: nobody answers.
    """
    body = target.body(prompts.of(units, units), 1, stream=False)
    return _told(*_exchange(target.endpoint, target.route.path, body, _LIMIT_SECONDS))


def _told(status: int, said: bytes) -> Told:
    """Read an answer in one piece as the run itself does."""
    reader = AnswerReader()
    kind = "Content-Type: application/json"
    head = f"HTTP/1.1 {status} -\r\n{kind}\r\nContent-Length: {len(said)}\r\n\r\n"
    reader.feed(head.encode() + said, math.nan)
    return Told(status, reader.failure, reader.input_tokens)


def served_model(endpoint: Endpoint) -> str:
    """Return the first model that the server has.

    Raises:
        ResourceError: it doesn't answer, or says none.
    """
    status, said = _exchange(endpoint, MODELS, None, _LIST_SECONDS)
    if status in _UNAUTHORISED:
        raise ResourceError(f"{endpoint.url} refuses (HTTP {status}): {_KEY_NEEDED}")
    name = model_in(said) if status == 200 else None
    if name is None:
        raise ResourceError(
            f"{endpoint.url}{MODELS} names no model (HTTP {status}): say which with "
            "--model"
        )
    return name


def _exchange(
    endpoint: Endpoint, path: str, body: bytes | None, limit_seconds: float
) -> tuple[int, bytes]:
    """Return the status and the body of an answer.

    Raises:
        ResourceError: nobody answers.
    """
    try:
        return exchange(endpoint, path, body, limit_seconds)
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ResourceError(
            f"{endpoint.url} doesn't answer ({shown(why)}): is the server ready, and is this its "
            "address?"
        ) from None
