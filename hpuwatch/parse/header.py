r"""Pieces of output to records: who speaks, and what stands before the message.

Every release writes its own way::

    INFO 03-01 10:00:44 habana_worker.py:12] message
    (EngineCore_DP0 pid=31) INFO 03-01 10:00:44 [hpu_worker.py:12] message
    (Worker_TP1 pid=32) [Warmup][Prompt][1/9] batch_size:1 …
    (APIServer pid=30) INFO:     Application startup complete.
    VLLM_PROMPT_BS_BUCKET_MIN=1 (default:1)
    [rank1]: Traceback (most recent call last):
    {"levelname": "INFO", "message": "Skipping warmup...", …}

with colours or without.  Several processes share one stream and a progress bar ends with
no line end, so one piece of output may hold a bar and then another process's record:
:func:`read` cuts it into its :class:`Record`\ s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from hpuwatch.events import Speaker
from hpuwatch.parse.clean import clean
from hpuwatch.parse.forms import OWN, header
from hpuwatch.parse.mask import REQUEST, RESPONSE
from hpuwatch.parse.structured import Told, told_by

_CARETS = re.compile(r"\^M|\^\[\[[0-?]*[ -/]*[@-~]")
"""Returns and colours as ``cat -v`` and pasted reports show them."""
_TAG = re.compile(
    # PyTorch, torchrun
    r"(?:\[(?:rank)?(\d{1,5})\](?::| )|\[(?:default|worker)(\d{1,5})\]:"
    # srun -l pads to the width of its last task's; four wide it may be a frame of Rust's
    r"|(\d{1,5}| [ \d]?\d):(?= )"
    # mpirun --tag-output
    r"|\[\d{1,5},(\d{1,5})\]<std(?:out|err)>:) ?"
)
_TAG_BEGINS = frozenset("[ 0123456789")
_NAME = r"(?P<process>[A-Za-z]\w*)(?: (?P<part>[A-Z]\w*))?(?: rank=(?P<rank>\d{1,9}))? "
_PID = r"pid=(?P<pid>\d{1,18})(?:, ip=[^)]{1,64})?\) ?"
_PREFIX = re.compile(rf"\((?:{_NAME})?{_PID}")
_RAY_REPEATED = re.compile(r" \[repeated \d+x across cluster\](?: \(Ray .*|\S*)$")
_BAR = (
    r"(?:(?:Prompt|Decode) warmup processing|Unified Attention warmup"
    r"|Loading [\w ]{1,60}): +\d+%"
)
_START = re.compile(
    # What a message follows …
    rf"(?P<who>{re.sub('[?]P<[a-z]+>', '?:', rf'[(]{_NAME}{_PID}')})|(?P<header>{OWN})"
    # … and messages that begin in the middle of a line without either.
    rf'|{_BAR}|\[Warmup\]\[|Traceback \(most recent call last\):|{{"\w'
)
_USERS = re.compile(f"{REQUEST}|{RESPONSE}")
"""Behind this stand the words of users, whatever they look like."""
_TENSOR_RANK = re.compile(r"TP(\d{1,9})")
_STAGE = re.compile(r"PP(\d{1,9})")
_ENGINE = re.compile(r"_DP(\d{1,9})|^EngineCore_(\d{1,9})")
_BY_PID_ONLY = {"VllmWorkerProcess", "RayWorkerWrapper", ""}
_FAMILIES = ("EngineCore", "APIServer", "ApiServer", "Worker", "VllmWorker")
_PROCESS_NAME = re.compile(
    r"(?:EngineCore|APIServer|ApiServer|Worker|VllmWorker|DPCoordinator)"
    r"(?:Process|_\w+|-(?P<rank>\d{1,9}))?"
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of one process.

    Attributes:
        head: process prefix and header, clean.
        message: what was said.
        speaker: the process, or None where no prefix stands.
        level: ``INFO`` …, or None without a header.
        logged_at: ``MM-DD HH:MM:SS``, or None.
        file: base name of the source file, or None.
        foreign: its header is one that somebody configured, or it stood in an object.
    """

    head: str
    message: str
    speaker: Speaker | None = None
    level: str | None = None
    logged_at: str | None = None
    file: str | None = None
    foreign: bool = False

    @property
    def text(self) -> str:
        """Return the record as it stood in the log, clean, and out of its object."""
        return f"{self.head}{self.message}".strip()


def read(text: str) -> list[Record]:
    """Cut a piece of output into records; an empty piece gives an empty list."""
    text = clean(text)
    if "^" in text:
        text = _CARETS.sub("", text)
    if not text or text.isspace():
        return []
    at, speaker = _who(text)
    if "%|" in text or "% Completed" in text or text.find("pid=", at) >= 0:
        parts = [text] if text.startswith("{", at) else _parts(text, at)
        return [record for part in parts if part.strip() for record in _records(part)]
    return _records_of(text, at, speaker)


def _who(text: str) -> tuple[int, Speaker | None]:
    """Return where the message or its header begins, and who speaks."""
    at, speaker = 0, None
    if text[0] in _TAG_BEGINS and (tag := _TAG.match(text)):
        at, speaker = tag.end(), Speaker(rank=int(tag[tag.lastindex or 0]))
    while text.startswith("(", at) and (found := _PREFIX.match(text, at)):
        at, speaker = found.end(), _inner(speaker, _speaker(*found.groups()))
    return at, speaker


def _parts(text: str, at: int) -> list[str]:
    """Cut where a record begins; prefix and header stay with what follows them."""
    cuts, bound, headed = [0], at, False
    users = _USERS.search(text)
    for found in _START.finditer(text, at, users.start() if users else len(text)):
        start, end = found.span()
        is_head = found["who"] or found["header"]
        if text[bound:start].strip() or (headed and is_head):
            cuts.append(start)
        bound = end if is_head else start + 1
        headed = bool(found["header"])
    cuts.append(len(text))
    return [text[a:b] for a, b in pairwise(cuts)]


def _records(part: str) -> list[Record]:
    return _records_of(part, *_who(part))


def _records_of(text: str, at: int, speaker: Speaker | None) -> list[Record]:
    """Return the record of a part, or those that one JSON object holds."""
    if text.startswith("{", at) and (told := told_by(text[at:])):
        return list(_told(text[:at], speaker, told))
    return [_record(text, at, speaker)]


def _record(text: str, at: int, speaker: Speaker | None) -> Record:
    head = header(text, at)
    end = at if head is None else head.end
    message = text[end:].rstrip("\r\n")
    if "across cluster]" in message:
        message = _RAY_REPEATED.sub("", message)
    if head is None:
        return Record(text[:at], message, speaker)
    return Record(text[:end], message, speaker, *head[1:])


def _told(before: str, speaker: Speaker | None, told: Told) -> Iterator[Record]:
    """Yield an object's lines as the records that vLLM's own form would make of them.

    What only carries the log, as a shipper of containers does, holds a line with a header.
    """
    known = _PROCESS_NAME.fullmatch(told.process)
    if speaker is None and known is not None and told.pid is not None:
        speaker = _speaker(told.process, None, known["rank"], str(told.pid))
    place = " ".join(filter(None, (told.level, told.place)))
    head = f"{before}{place} " if place else before
    rest = (told.level, told.logged_at, told.file)
    for record in _records(told.first) if told.first else [Record("", "")]:
        who = record.speaker or speaker
        if record.level is None:
            yield Record(head, record.message, who, *rest, foreign=True)
        else:
            yield replace(record, speaker=who)
    for line in told.more:
        yield Record(head, line, speaker, *rest, foreign=True)


def _inner(outer: Speaker | None, inner: Speaker) -> Speaker:
    """Return a process whose output another one passes on, as an engine does for Ray's."""
    if outer is None or not outer.engine or inner.engine:
        return inner
    return replace(inner, engine=outer.engine)


@lru_cache(maxsize=1024)
def _speaker(name: str | None, part: str | None, rank: str | None, pid: str) -> Speaker:
    """Return who a prefix names; its groups come as texts."""
    name = name or ""
    if rank is None and (found := _TENSOR_RANK.search(f"{name} {part or ''}")):
        rank = found[1]
    engine = _ENGINE.search(f"{name} {part or ''}")
    stage = _STAGE.search(f"{name} {part or ''}")
    family = name.partition("_")[0].partition("-")[0]
    by_pid = rank is None and name in _BY_PID_ONLY
    return Speaker(
        family if family in _FAMILIES else name,
        int(pid),
        None if by_pid else int(rank or 0),
        int(engine[1] or engine[2]) if engine else 0,
        int(stage[1]) if stage else 0,
    )
