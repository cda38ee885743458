"""Remembering starts and suggestions, and telling what became of earlier ones.

Whoever reads a log (``suggest``) or lives with a server (``run``, ``attach``) keeps its
starts in ``STATE_DIR/NAME/starts.sqlite``; logs given by hand go under the name ``suggest``.
The store serves the report and never costs it: where it can't be used, that is said in one
sentence, and the report is the same without it.  Its database is loaded only when something
is remembered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hpuwatch.advise.account.outcome import (
    is_tried,
    outcomes,
    parts_of,
    suggestion_of,
)
from hpuwatch.advise.account.record import StartRecord, proof_of, record_of
from hpuwatch.advise.account.score import Scored, widenings
from hpuwatch.advise.baseline import Lesson
from hpuwatch.advise.compare.said import Pair, regressions
from hpuwatch.advise.compare.settings import given
from hpuwatch.advise.document import (
    AccountabilityPart,
    AgainstPart,
    Report,
    StartReport,
)
from hpuwatch.advise.report import build_report, identity_in_reports
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.clock import Clock
from hpuwatch.errors import ConfigError, HpuwatchError
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase
from hpuwatch.runtime.announce import say
from hpuwatch.runtime.instance import Instance, before_of
from hpuwatch.state.model import Start, State
from hpuwatch.state.snapshot import Snapshot

if TYPE_CHECKING:
    from hpuwatch.store.starts import StartStore

BY_HAND = "suggest"
"""The name under which starts of logs are kept that somebody gave by hand."""
PATIENCE_SECONDS = 2.0
"""How long a store that somebody else writes to is waited for."""
LAST_PATIENCE_SECONDS = 4.0
"""How long the end of a watch waits for what is being stored; its keeper waits 10 s."""

_TELLING = frozenset((Phase.READY, Phase.FAILED, Phase.STOPPING, Phase.STOPPED))
"""Phases whose beginning makes a start worth keeping: its warm-up or it itself is over."""

_CONSEQUENCE = "hpuwatch goes on without remembering starts"

Say = Callable[[str], None]


class Memory:
    """What is known of earlier starts, while a report is made and after it."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        tell: Say,
        folder: Path | None = None,
        given_now: Callable[[], Mapping[str, str] | None] = lambda: None,
    ) -> None:
        """Remember nothing yet; nothing is touched.

        Args:
            root: the state directory.
            clock: where time comes from.
            tell: tells people, once, why nothing is remembered.
            folder: of the instance, where we live with its server; else it follows from
                a log's path.
            given_now: the settings that the server's process got, None where nobody knows.
        """
        self._root = root.absolute()
        self._clock = clock
        self._say = tell
        self._folder = folder
        self._given = given_now
        self._told = False
        self._factors: Mapping[str, float] = {}

    def widenings(self, logs: Sequence[tuple[str, State]]) -> Mapping[str, float]:
        """Return by how much intervals grow for what earlier predictions were worth."""
        simulated = [
            state.starts[-1].server.simulated for _, state in logs if state.starts
        ]
        origin = "simulated" if simulated and all(simulated) else "measured"
        found: list[Scored] = []
        with self._unless_unusable():
            for folder in dict.fromkeys(self._folder_of(file) for file, _ in logs):
                found += self._outcomes(folder, origin)
        self._factors = widenings(found)
        return self._factors

    def lessons(self, logs: Sequence[tuple[str, State]]) -> list[Lesson]:
        """Return what remembered starts of the last log's server teach, oldest first."""
        from hpuwatch.store.starts import FILE_NAME

        told = [(file, state) for file, state in logs if state.starts]
        if not told:
            return []
        last = told[-1][1].starts[-1]
        proofs = [proof_of(each) for _, state in told for each in state.starts]
        with self._unless_unusable():
            folder = self._folder_of(told[-1][0])
            if (folder / FILE_NAME).is_file():
                with closing(self._opened(folder, read_only=True)) as store:
                    return store.lessons(identity_in_reports(last)[1:], proofs)
        return []

    def keep(self, report: Report, logs: Sequence[tuple[str, State]]) -> Report:
        """Store the starts of a report; return it with what became of suggestions.

        Args:
            report: over just these logs, in their order.
            logs: by file name; those without a start have no report.
        """
        told = [(file, state) for file, state in logs if state.starts]
        pairs = zip(report.reports, told, strict=True)
        return report.model_copy(
            update={
                "reports": [
                    self._kept(each, self._folder_of(file), state)
                    for each, (file, state) in pairs
                ]
            }
        )

    def _kept(self, report: StartReport, folder: Path, state: State) -> StartReport:
        with self._unless_unusable():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(self._opened(folder)) as store:
                *earlier, last = [
                    self._keep_start(store, start, each)
                    for start, each in zip(
                        state.starts, [*report.earlier, report], strict=True
                    )
                ]
            return last.model_copy(update={"earlier": earlier})
        return report

    def _keep_start(
        self, store: StartStore, start: Start, report: StartReport
    ) -> StartReport:
        """Store a start and its suggestion; return its report with what is known of both."""
        now = self._clock.now()
        record = record_of(start, report, self._given())
        number = store.keep(proof_of(start), record, now)
        parts = _accounted(store, number, record, now)
        if report.proposal is None:
            store.suggest(number, None, now)
        elif report.proposal.figures:  # a start of long ago is not predicted anew
            made = suggestion_of(report.proposal, self._factors)
            store.suggest(number, made, now)
        against = _against(store, number, record)
        known = {"accountability": parts, "against": against, "store_read": True}
        return report.model_copy(update=known)

    def _outcomes(self, folder: Path, origin: str) -> list[Scored]:
        from hpuwatch.store.starts import FILE_NAME

        if not (folder / FILE_NAME).is_file():
            return []
        with closing(self._opened(folder, read_only=True)) as store:
            return [scored for _, scored in store.outcomes(origin)]

    def _opened(self, folder: Path, *, read_only: bool = False) -> StartStore:
        from hpuwatch.store.starts import FILE_NAME, StartStore

        return StartStore(
            folder / FILE_NAME, read_only=read_only, patience_seconds=PATIENCE_SECONDS
        )

    def _folder_of(self, file: str) -> Path:
        if self._folder is not None:
            return self._folder
        log = Path(file).absolute()
        instance = Instance(log.parent.parent, log.parent.name)
        is_spool = log in (instance.spool, before_of(instance.spool))
        if is_spool and instance.facts.exists():
            return instance.dir
        return self._root / BY_HAND

    @contextmanager
    def _unless_unusable(self) -> Iterator[None]:
        """Go on without a store that can't be used."""
        try:
            yield
        except (HpuwatchError, OSError, ValueError) as error:
            self.tell(error)

    def tell(self, error: Exception) -> None:
        """Say once why nothing is remembered."""
        if not self._told:
            self._told = True
            reason = getattr(error, "strerror", None) or str(error)
            where = getattr(error, "filename", None)
            self._say(f"{f'{where}: ' if where else ''}{reason}; {_CONSEQUENCE}")


def memory_of(clock: Clock, state_dir: str | None = None) -> Memory | None:
    """Return the memory of the state directory; None where a setting is wrong."""
    from hpuwatch.settings import load_settings

    try:
        root = load_settings(state_dir=state_dir).state_root()
    except ConfigError as error:
        say(f"{error}; {_CONSEQUENCE}")
        return None
    return Memory(root, clock, say)


def reported(memory: Memory, logs: Sequence[tuple[str, State]]) -> Report:
    """Return the report over logs, by what is remembered, and remember what is new.

    Where a start of these logs was predicted badly, that counts for what is now predicted.
    """
    lessons, factors = memory.lessons(logs), memory.widenings(logs)
    catalogue = shipped_findings()
    kept = memory.keep(build_report(logs, catalogue, factors, lessons), logs)
    learned = memory.widenings(logs)
    if learned == factors:
        return kept
    return memory.keep(build_report(logs, catalogue, learned, lessons), logs)


def _accounted(
    store: StartStore, number: int, record: StartRecord, now: float
) -> list[AccountabilityPart]:
    """Find the newest suggestion that a start tried, and note its outcomes."""
    for made, before in store.suggested_before(number, record):
        if not is_tried(made.suggestion, before, record):
            continue
        parts = parts_of(made.suggestion, before, record)
        if parts:
            seen = outcomes(made.suggestion, before, record)
            store.try_out(made.id, number, seen, now)
        return parts
    return []


def _against(store: StartStore, number: int, record: StartRecord) -> AgainstPart | None:
    """Return what became worse since the last good start that is remembered."""
    good = store.last_served(number, record)
    if good is None:
        return None
    name = f"{store.path.parent.name}@{good.id}"
    worse = regressions(Pair(good.record, record, (name, "this start")))
    if not worse:
        return None
    ratio, read = good.record.memory.reserve_ratio, time.localtime(good.read_at)
    known = [f"{RESERVE} {ratio:g}"] if ratio is not None else []
    known.append(f"read {read.tm_mday} {time.strftime('%b %H:%M', read)}")
    return AgainstPart(start=name, known=", ".join(known), said=list(worse))


class LiveStarts:
    """Keeps the starts of a server that is being watched, on a thread of its own.

    A report may take a second, and whoever watches has output to pass on meanwhile.
    """

    def __init__(self, file: str, memory: Memory) -> None:
        """Keep nothing yet.

        Args:
            file: where the output can be found, for people.
            memory: where starts go.
        """
        self._file = file
        self._memory = memory
        self._moment: tuple[int, Phase] | None = None
        self._waiting: State | None = None
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def look(self, snapshot: Snapshot) -> None:
        """Keep what a snapshot tells if its start has come to a telling moment."""
        current = snapshot.state.current
        if current is None or snapshot.catching_up:
            return
        moment = (snapshot.state.begun, current.phase)
        if moment != self._moment and current.phase in _TELLING:
            self._moment = moment
            self.keep(snapshot.state)

    def keep(self, state: State) -> None:
        """Keep all starts of a state, as soon as what is being stored is."""
        with self._lock:
            self._waiting = state
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._work, name="starts", daemon=True
                )
                self._worker.start()

    def close(self, state: State) -> None:
        """Keep the starts as they ended, and wait for that, though not for ever."""
        if state.starts:
            self.keep(state)
        worker = self._worker
        if worker is not None:
            worker.join(LAST_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                state, self._waiting = self._waiting, None
                if state is None:
                    self._worker = None
                    return
            self._store(state)

    def _store(self, state: State) -> None:
        try:
            reported(self._memory, [(self._file, state)])
        except Exception as error:  # noqa: BLE001  a report must not cost the watch
            self._memory.tell(error)


def settings_of_process(pid: int) -> dict[str, str]:
    """Return the settings that a server's process was given, masked; nothing if unseen.

    It may change: a command like ``env NAME=VALUE vllm serve`` becomes the server.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in entries)
    env = {name: value for name, equals, value in pairs if equals}
    return given([word.decode("utf-8", "replace") for word in words if word], env)
