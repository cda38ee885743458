"""Lines to events.

:class:`Parser` is fed pieces of output in order and says what they mean.  It keeps only what
one line can't know: tracebacks under way, the section of a settings dump, who began a
physical line.  It never raises on any text.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hpuwatch.events import Event, Speaker, Value
from hpuwatch.parse.blocks import Traceback, Tracebacks
from hpuwatch.parse.header import Record, read
from hpuwatch.parse.mask import is_open_request, mask
from hpuwatch.parse.rules import FAULT, NOISE, Match, RuleSet
from hpuwatch.parse.unmatched import Counter, Unmatched
from hpuwatch.records import Line

UNKNOWN_EXCEPTION = "unknown_exception"
_CONFIG_DUMP = "runtime_config_dump"
_ENGINE_DEATH = "engine_death"

_EVIDENCE_LENGTH = 2_000  # characters of a line that an event carries along
_GRAVE = {"WARNING", "ERROR", "CRITICAL"}
_QUIET = {"DEBUG", "INFO"}
_OURS = re.compile(r"\d [KMGT]iB\b|\bbuckets?\b|[Ww]arm(?:ed)?[- ]?up\b|HPU ?Graph")


class Parser:
    """Turns lines into events, by the rules.

    Attributes:
        lines: physical lines seen.
        unparsed: lines that matter by their looks (a vLLM header of WARNING or above, or
            talk of memory, buckets or warm-up) and that no rule knew.
    """

    def __init__(self, rules: RuleSet) -> None:
        """Begin before the first line."""
        self._rules = rules
        self._tracebacks = Tracebacks()
        self._unmatched = Counter()
        self._line_number = 0
        self._line_speaker: Speaker | None = None
        self._sections: dict[Speaker, Value] = {}
        self._dying: set[Speaker] = set()
        self._told: dict[Speaker, str] = {}
        self._in_prompt = False  # a request's line ended within what a user asked
        self.lines = 0
        self.unparsed = 0

    def feed(self, line: Line) -> list[Event]:
        """Return the events of one piece of output."""
        if line.number != self._line_number:
            # Of blank lines on end only the first comes here; a new stream begins at 1.
            self.lines += max(1, line.number - self._line_number)
            self._line_number = line.number
            self._line_speaker = None
        events: list[Event] = []
        for record in read(line.text):
            events += self._take(record, line)
        return events

    def settle(self) -> list[Event]:
        """Return the faults whose traceback is complete; call it when output pauses."""
        return [e for block in self._tracebacks.settle() for e in self._fault(block)]

    def close(self) -> list[Event]:
        """Return what was still under way; call it at the end of the output."""
        return [e for block in self._tracebacks.close() for e in self._fault(block)]

    def templates(self) -> list[Unmatched]:
        """Return what no rule knew, the most frequent first."""
        return self._unmatched.templates()

    def _take(self, record: Record, line: Line) -> list[Event]:
        if self._in_prompt and record.level is None and record.speaker is None:
            return []  # a user's words, whatever they look like
        self._in_prompt = is_open_request(record.message)
        if record.speaker is not None:
            self._line_speaker = record.speaker
        speaker = self._line_speaker or Speaker()
        belongs, ended = self._tracebacks.take(record, speaker, line)
        events = [event for block in ended for event in self._fault(block)]
        # "EngineCore hit an exception: Traceback …" is the start of a block and a sentence.
        if belongs and record.message.startswith(("Traceback", " ", "\t")):
            return events
        matches, record = self._match(record)
        if belongs:
            matches = tuple(m for m in matches if m.rule.event != FAULT)
        elif record.level is not None:
            self._told.pop(speaker, None)
        events += [
            self._event(match, record, line, speaker)
            for match in matches
            if match.rule.event != NOISE
        ]
        if not matches and not belongs:
            self._note_unmatched(record)
        return events

    def _match(self, record: Record) -> tuple[tuple[Match, ...], Record]:
        """Match a record, masked; a record that no rule could match isn't masked."""
        candidates = self._rules.candidates(record.message, record.file)
        if not candidates:
            return (), record
        masked = replace(record, message=mask(record.message))
        return self._rules.match(masked.message, candidates), masked

    def _event(
        self, match: Match, record: Record, line: Line, speaker: Speaker
    ) -> Event:
        kind, fields = match.rule.event, match.fields
        if kind == _CONFIG_DUMP:
            fields = self._with_section(fields, speaker)
        elif kind == _ENGINE_DEATH:
            self._dying.add(speaker)
        elif kind == FAULT:
            fields = {
                "root": True,
                "wanted": None,
                "severity": match.rule.text.severity,
                "message": record.message.strip()[:_EVIDENCE_LENGTH],
                **fields,
            }
        return Event(
            kind,
            fields,
            replace(line, text=record.text[:_EVIDENCE_LENGTH]),
            speaker,
            record.level,
            record.logged_at,
        )

    def _with_section(
        self, fields: dict[str, Value], speaker: Speaker
    ) -> dict[str, Value]:
        if "section" in fields:
            self._sections[speaker] = fields["section"]
        elif "key" in fields:
            return {"section": self._sections.get(speaker), **fields}
        return fields

    def _fault(self, block: Traceback) -> list[Event]:
        """Turn a finished traceback into its one fault."""
        speaker = block.speaker
        chosen: Event | None = None
        for record, line in reversed(block.exceptions):
            event = self._exception(record, line, speaker, block)
            if chosen is None or (_rank(event) > _rank(chosen)):
                chosen = event
        if chosen is None or chosen.level in _QUIET:
            return []
        # A process that dies tells its exception twice: to the logger, then to stderr.
        message = str(chosen.fields["message"])
        if self._told.get(speaker) == message:
            return []
        self._told[speaker] = message
        return [replace(chosen, context=tuple(map(mask, block.context)))]

    def _exception(
        self, record: Record, line: Line, speaker: Speaker, block: Traceback
    ) -> Event:
        matches, record = self._match(record)
        for match in matches:
            if match.rule.event == FAULT:
                return self._event(match, record, line, speaker)
        severity = "warning" if block.level == "WARNING" else "error"
        if speaker in self._dying:
            severity = "fatal"
        message = mask(record.message)
        fields: dict[str, Value] = {
            "name": UNKNOWN_EXCEPTION,
            "severity": severity,
            "root": True,
            "wanted": None,
            "message": message.strip()[:_EVIDENCE_LENGTH],
        }
        text = f"{record.head}{message}".strip()[:_EVIDENCE_LENGTH]
        return Event(
            FAULT,
            fields,
            replace(line, text=text),
            speaker,
            record.level,
            record.logged_at,
        )

    def _note_unmatched(self, record: Record) -> None:
        level = record.level
        if level == "DEBUG":
            return
        grave = level in _GRAVE and record.logged_at is not None
        if grave or _OURS.search(record.message):
            self.unparsed += 1
        elif record.logged_at is None:
            return
        message = mask(record.message)
        text = f"{record.head}{message}".strip()[:_EVIDENCE_LENGTH]
        self._unmatched.add(level, message, text)


def _rank(event: Event) -> int:
    """Say how much of a cause an exception of a chain is: a known one, any, none."""
    if not event.fields["root"]:
        return 0
    return 1 if event.fields["name"] == UNKNOWN_EXCEPTION else 2
