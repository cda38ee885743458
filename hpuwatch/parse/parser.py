"""Lines to events.

:class:`Parser` is fed pieces of output in order and says what they mean.  It keeps only what
one line can't know: tracebacks under way, the section of a settings dump, who began a
physical line.  It never raises on any text.

A line with one of the rules' endings means nothing.  While nothing is under way it changes
nothing either, so whoever reads may step over it (:mod:`hpuwatch.source.lines`).  What is under
way is therefore given up once nothing has been added to it for a while: a flood of access
lines behind one broken engine is then as cheap as any other.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from math import inf

from hpuwatch.events import Event, Speaker, Value
from hpuwatch.parse.blocks import CONTEXT_LINES, Traceback, Tracebacks
from hpuwatch.parse.habits import Habits
from hpuwatch.parse.header import Record, read
from hpuwatch.parse.mask import REQUEST, is_open_request, mask
from hpuwatch.parse.rules import FAULT, NOISE, Match, RuleSet
from hpuwatch.parse.tally import Tally
from hpuwatch.parse.template import skeleton
from hpuwatch.parse.unmatched import Counter, Row
from hpuwatch.records import Line

UNKNOWN_EXCEPTION = "unknown_exception"
_CONFIG_DUMP = "runtime_config_dump"
_ENGINE_DEATH = "engine_death"
_CHANGING = {_CONFIG_DUMP, _ENGINE_DEATH, FAULT}
"""Events that the parser remembers something of, or adds to."""

_EVIDENCE_LENGTH = 2_000  # characters of a line that an event carries along
_LINES_BEFORE = 32  # records among which those before a fault are looked for
_NOBODY = Speaker()
_PATIENCE_LINES = 200
"""Lines after which what is under way is given up, if nothing is added to it."""

ODD_SIGNS = ("%|", REQUEST)
"""Where one of these stands, an ending says nothing: a progress bar that has swallowed its
line end, a request whose text goes on behind the line."""

_SHAPELESS = re.compile(r"[\w .]+")
"""What differs between the heads of one form."""

_GRAVE = {"WARNING", "ERROR", "CRITICAL"}
_QUIET = {"DEBUG", "INFO"}
_OURS_SIGNS = ("iB", "ucket", "arm", "HPU")  # the cheap look before the exact one
_OURS = re.compile(r" [KMGT]iB\b|\bbuckets?\b|[Ww]arm(?:ed)?[- ]?up\b|HPU ?Graph")


class Parser:
    """Turns lines into events, by the rules.

    Attributes:
        endings: endings of lines that mean nothing, unless one of ``ODD_SIGNS`` is in them.
        in_prompt: what comes next may still be what a user asked.
        lines: physical lines seen or stepped over.
        unparsed: lines that matter by their looks (a header of WARNING or above, or, but
            for DEBUG, talk of memory, buckets or warm-up) and that no rule knew.
    """

    def __init__(
        self,
        rules: RuleSet,
        tally: Tally | None = None,
        unmatched: Counter | None = None,
    ) -> None:
        """Begin before the first line.

        Args:
            rules: what to read by.
            tally: counts every record, so that none is stepped over.
            unmatched: counts what no rule knows, whether it matters or not.
        """
        self.use(rules)
        self._tally = tally
        self._tracebacks = Tracebacks()
        self._unmatched = unmatched
        self._line_number = 0
        self._line_speaker: Speaker | None = None
        self._sections: dict[Speaker, Value] = {}
        self._dying: set[Speaker] = set()
        self._told: dict[Speaker, str] = {}
        self._patient_until = inf  # the last line that what is under way is kept for
        self.in_prompt = False  # a request's line ended within what a user asked
        self._asked_by = ""  # the head of that line
        self._before: deque[tuple[Speaker, str]] = deque(maxlen=_LINES_BEFORE)
        self.lines = 0
        self.unparsed = 0

    def use(self, rules: RuleSet) -> None:
        """Read by other rules from the next line on; what is under way stays so."""
        self._rules = rules
        self._habits = Habits()
        self.endings = rules.endings

    @property
    def busy(self) -> bool:
        """Return whether even a line that means nothing would change something now."""
        return bool(self.in_prompt or self._told or self._tracebacks.under_way)

    def passed(self, number: int) -> None:
        """Take note that all physical lines before this one have been read."""
        if number - 1 > self._line_number:
            self._begin_line(number - 1)

    def feed(self, line: Line) -> list[Event]:
        """Return the events of one piece of output."""
        events: list[Event] = []
        known = False
        text = line.text
        if line.number != self._line_number:
            self._begin_line(line.number)
            if line.number > self._patient_until:
                self._patient_until = inf
                self._told.clear()
                events = self.close()
            known = self._is_noise(text)
            if known and not self.busy and self._tally is None:
                return events
        plain = not known and not self.busy and self._tally is None
        if plain and (recalled := self._recall(line)) is not None:
            return events + recalled
        records = read(text)
        for record in records:
            events += self._take(record, line, known=known)
        if plain and len(records) == 1 and not self.busy:
            self._learn(text, records[0])
        return events

    def _recall(self, line: Line) -> list[Event] | None:
        """Return the events of a line that is said over and over, or None."""
        recalled = self._habits.recall(line.text)
        if recalled is None:
            return None
        habit, found = recalled
        fields = habit.fields(found)
        if fields is None:
            return None
        if habit.speaker is not None:
            self._line_speaker = habit.speaker
        speaker = self._line_speaker or _NOBODY
        self._before.append((speaker, line.text[habit.begin :]))
        if habit.match is None:
            self.unparsed += habit.matters
            if habit.row is not None:
                habit.row.count += 1
            return []
        kind = habit.match.rule.event
        if kind == NOISE:
            return []
        return [Event(kind, fields, line, speaker, habit.level, found[1])]

    def _learn(self, text: str, record: Record) -> None:
        """Remember how a line was read, where that is all there is to it."""
        if not self._habits.wants(text, record) or mask(record.head) != record.head:
            return
        matches = self._rules.find(record.message, record.file)
        if not matches:
            letters = skeleton(record.message)
            row, matters = self._row(record, letters), _matters(record, letters)
            self._habits.form(record, None, row=row, matters=matters)
        elif matches[0].is_all and matches[0].rule.event not in _CHANGING:
            self._habits.form(record, matches[0])

    def settle(self) -> list[Event]:
        """Return the faults whose traceback is complete; call it when output pauses."""
        return [e for block in self._tracebacks.settle() for e in self._fault(block)]

    def close(self) -> list[Event]:
        """Return what was still under way; call it at the end of the output."""
        return [e for block in self._tracebacks.close() for e in self._fault(block)]

    def _begin_line(self, number: int) -> None:
        # Of blank lines on end only the first comes here.
        self.lines += max(0, number - self._line_number)
        self._line_number = number
        self._line_speaker = None

    def _is_noise(self, text: str) -> bool:
        if not text.endswith(self.endings):
            return False
        return not any(sign in text for sign in ODD_SIGNS)

    def _take(self, record: Record, line: Line, *, known: bool) -> list[Event]:
        if self.in_prompt and self._is_users(record):
            self._count(record, belongs=True)
            return []  # a user's words, whatever they look like
        self.in_prompt = is_open_request(record.message)
        self._asked_by = record.head
        if record.speaker is not None:
            self._line_speaker = record.speaker
        speaker = self._line_speaker or _NOBODY
        belongs, ended = self._tracebacks.take(record, speaker, line)
        events = [event for block in ended for event in self._fault(block)]
        if belongs:
            self._patient_until = line.number + _PATIENCE_LINES
        # "EngineCore hit an exception: Traceback …" is the start of a block and a sentence.
        if belongs and record.message.startswith(("Traceback", " ", "\t")):
            self._count(record, belongs=True)
            return events
        matches = () if known else self._rules.find(record.message, record.file)
        if belongs:
            matches = tuple(m for m in matches if m.rule.event != FAULT)
        elif record.level is not None:
            self._told.pop(speaker, None)
        self._count(record, matches, noise=known, belongs=belongs)
        if not (matches or belongs or known):
            self._note_unmatched(record)
        return events + self._said(record, matches, line, speaker, known=known)

    def _said(
        self,
        record: Record,
        matches: tuple[Match, ...],
        line: Line,
        speaker: Speaker,
        *,
        known: bool,
    ) -> list[Event]:
        """Return the events of a record; it is then one of those before the next."""
        events = [
            self._event(match, record, line, speaker)
            for match in matches
            if match.rule.event != NOISE
        ]
        if not known:
            self._before.append((speaker, record.message))
        return events

    def _count(
        self,
        record: Record,
        matches: tuple[Match, ...] = (),
        *,
        noise: bool = False,
        belongs: bool,
    ) -> None:
        if self._tally is not None:
            self._tally.count(record, matches, noise=noise, belongs=belongs)

    def _is_users(self, record: Record) -> bool:
        """Tell whether a record behind an open request goes on with what a user asked.

        A user may write what looks like some header or a rank; so what isn't vLLM's own
        must look like the request's head, and must not be the same record.
        """
        if record.foreign:
            return record.head == self._asked_by or (
                _SHAPELESS.sub("", record.head) != _SHAPELESS.sub("", self._asked_by)
            )
        speaker = record.speaker
        return record.level is None and (speaker is None or speaker.pid is None)

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
                "message": match.message.strip()[:_EVIDENCE_LENGTH],
                **fields,
            }
        text = _shown(record, match.message)
        return Event(
            kind,
            fields,
            _retold(line, text),
            speaker,
            record.level,
            record.logged_at,
            self._context(speaker) if kind == FAULT else (),
        )

    def _context(self, speaker: Speaker) -> tuple[str, ...]:
        """Return what a process said last, masked: what a fault may be understood by."""
        said = [message for who, message in self._before if who == speaker]
        return tuple(mask(text[:_EVIDENCE_LENGTH]) for text in said[-CONTEXT_LINES:])

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
        self._patient_until = self._line_number + _PATIENCE_LINES
        return [replace(chosen, context=tuple(map(mask, block.context)))]

    def _exception(
        self, record: Record, line: Line, speaker: Speaker, block: Traceback
    ) -> Event:
        for match in self._rules.find(record.message, record.file):
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
        text = _shown(record, message)
        return Event(
            FAULT,
            fields,
            _retold(line, text),
            speaker,
            record.level,
            record.logged_at,
        )

    def _note_unmatched(self, record: Record) -> None:
        letters = skeleton(record.message)
        self.unparsed += _matters(record, letters)
        row = self._row(record, letters)
        if row is not None:
            row.count += 1

    def _row(self, record: Record, letters: str) -> Row | None:
        """Return where a record that no rule knows is counted, if anybody asked for it."""
        if self._unmatched is None:
            return None

        def shown() -> tuple[str, str]:
            message = mask(record.message)
            return message, _shown(record, message)

        return self._unmatched.row(record.level, record.message, letters, shown)


def _matters(record: Record, letters: str) -> bool:
    if record.level in _GRAVE:
        return True
    if record.level == "DEBUG":
        return False
    for sign in _OURS_SIGNS:
        if sign in letters:
            return _OURS.search(letters) is not None
    return False


def _shown(record: Record, message: str) -> str:
    """Return a record with its masked message; an operator's own words may precede it."""
    return f"{mask(record.head)}{message}".strip()[:_EVIDENCE_LENGTH]


def _retold(line: Line, text: str) -> Line:
    if text == line.text:
        return line
    return Line(text, line.offset, line.number, line.received_at)


def _rank(event: Event) -> int:
    """Say how much of a cause an exception of a chain is: a known one, any, none."""
    if not event.fields["root"]:
        return 0
    return 1 if event.fields["name"] == UNKNOWN_EXCEPTION else 2
