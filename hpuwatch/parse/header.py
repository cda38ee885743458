r"""What stands before a message: process prefix, level, time, source file.

Every release writes its own way::

    INFO 03-01 10:00:44 habana_worker.py:12] message
    (EngineCore_DP0 pid=31) INFO 03-01 10:00:44 [hpu_worker.py:12] message
    (Worker_TP1 pid=32) [Warmup][Prompt][1/9] batch_size:1 …
    (APIServer pid=30) INFO:     Application startup complete.
    VLLM_PROMPT_BS_BUCKET_MIN=1 (default:1)

with colours or without.  Several processes share one stream and a progress bar ends with
no line end, so one piece of output may hold a bar and then another process's record:
:func:`read` cuts it into its :class:`Record`\ s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from hpuwatch.events import Speaker
from hpuwatch.parse.clean import clean

_LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_PREFIX = re.compile(
    r"\((?P<process>[A-Za-z]\w*)(?: (?P<part>[A-Z]\w*))?(?: rank=(?P<rank>\d{1,9}))?"
    r" pid=(?P<pid>\d{1,18})(?:, ip=[^)]{1,64})?\) ?"
)
_HEADER = re.compile(
    rf"(?P<level>{_LEVELS}) (?P<at>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?P<file>[\w./+-]+):\d+\] ?"
)
_UVICORN = re.compile(r"(?P<level>INFO|WARNING|ERROR|CRITICAL|DEBUG): +")
_NEURAL_COMPRESSOR = re.compile(
    rf"\d{{4}}-(?P<at>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<level>{_LEVELS})\]"
    r"\[(?P<file>[\w./+-]+):\d+\] ?"
)
_RAY = re.compile(
    rf"\d{{4}}-(?P<at>\d\d-\d\d \d\d:\d\d:\d\d),\d+\s(?P<level>{_LEVELS})"
    r"\s(?P<file>[\w./+-]+):\d+ -- "
)
_RAY_REPEATED = re.compile(r" \[repeated \d+x across cluster\]\S*$")
_BAR = (
    r"(?:(?:Prompt|Decode) warmup processing|Unified Attention warmup"
    r"|Loading [\w ]{1,60}): +\d+%"
)
_NAMED = re.compile(r"[?]P<[a-z]+>")
_START = re.compile(
    # What a message follows …
    rf"(?P<before>{_NAMED.sub('?:', _PREFIX.pattern)}|{_NAMED.sub('?:', _HEADER.pattern)})"
    # … and messages that begin in the middle of a line without either.
    rf"|{_BAR}|\[Warmup\]\[|Traceback \(most recent call last\):"
)
_TENSOR_RANK = re.compile(r"TP(\d{1,9})")
_WORKERS_BY_PID_ONLY = {"VllmWorkerProcess", "RayWorkerWrapper"}
_FAMILIES = ("EngineCore", "APIServer", "ApiServer", "Worker", "VllmWorker")


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
    """

    head: str
    message: str
    speaker: Speaker | None = None
    level: str | None = None
    logged_at: str | None = None
    file: str | None = None

    @property
    def text(self) -> str:
        """Return the record as it stood in the log, clean."""
        return f"{self.head}{self.message}".strip()


def read(text: str) -> list[Record]:
    """Cut a piece of output into records; an empty piece gives an empty list."""
    text = clean(text)
    if "%|" in text or "% Completed" in text or text.count(" pid=") > 1:
        return [_record(part) for part in _parts(text) if part.strip()]
    return [_record(text)] if text.strip() else []


def _parts(text: str) -> list[str]:
    """Cut where a record begins; prefix and header stay with what follows them."""
    cuts, bound = [0], 0
    for found in _START.finditer(text):
        start, end = found.span()
        if text[bound:start].strip():
            cuts.append(start)
        bound = end if found["before"] else start + 1
    cuts.append(len(text))
    return [text[a:b] for a, b in pairwise(cuts)]


def _record(text: str) -> Record:
    at, speaker = 0, None
    while found := _PREFIX.match(text, at):
        at, speaker = found.end(), _speaker(found)
    header = _header(text, at)
    if header is None:
        return Record(text[:at], text[at:].rstrip("\r\n"), speaker)
    end = header.end()
    message = text[end:].rstrip("\r\n")
    if "across cluster]" in message:
        message = _RAY_REPEATED.sub("", message)
    groups = header.groupdict()
    file = groups.get("file")
    return Record(
        text[:end],
        message,
        speaker,
        groups["level"],
        groups.get("at"),
        file.rpartition("/")[2] if file else None,
    )


def _header(text: str, at: int) -> re.Match[str] | None:
    found = _HEADER.match(text, at) or _UVICORN.match(text, at)
    if found is not None:
        return found
    if text[at : at + 1].isdigit():
        return _NEURAL_COMPRESSOR.match(text, at) or _RAY.match(text, at)
    # VLLM_LOGGING_PREFIX puts the operator's own words before the level.
    return _HEADER.search(text, at) if "] " in text[at:] else None


def _speaker(prefix: re.Match[str]) -> Speaker:
    name, part = prefix["process"], prefix["part"] or ""
    rank: int | None = 0
    if prefix["rank"]:
        rank = int(prefix["rank"])
    elif found := _TENSOR_RANK.search(f"{name} {part}"):
        rank = int(found[1])
    elif name in _WORKERS_BY_PID_ONLY:
        rank = None
    family = name.partition("_")[0]
    process = family if family in _FAMILIES else name
    return Speaker(process, int(prefix["pid"]), rank)
