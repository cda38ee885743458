"""Bytes to state on one thread, against mtail and ripgrep, in CPU seconds.

Every row is a process of its own and is measured by the system (user and system time).  The
rounds go through all rows in turn and the median counts, so that a busy moment hits all of
them.  mtail reads the first part of the log only: it is slow, and its speed does not depend on the
length.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hpuwatch.app.rules import shipped_rules
from tests.bench import mtail
from tests.bench.busylog import LINES_PER_START, write_busy_log

_ROUNDS = 3
_PART_LINES = LINES_PER_START
_DIGITS = re.compile(r"\d+")
_READ = """
import json, sys, time
from hpuwatch.app.report import state_of
from hpuwatch.app.rules import shipped_rules
rules = shipped_rules()
begun = time.process_time()
state = state_of(sys.argv[1], rules)
newest = state.current
print(json.dumps({
    "seconds": time.process_time() - begun,
    "statistics": sum(start.traffic.lines for start in state.starts),
    "shapes": sum(miss.count > 0 for start in state.starts for miss in start.misses),
}))
"""


@dataclass
class _Row:
    """One program over one file: what it was given, and how long it took."""

    name: str
    command: Sequence[str]
    file: Path
    seconds: list[float] = field(default_factory=list)
    output: str = ""

    def run(self) -> None:
        """Run it once more and note its CPU seconds."""
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(
                self.command, stdout=out, stderr=subprocess.DEVNULL
            )
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.output = out.read().decode("utf-8", "replace")
        if child.returncode:
            raise SystemExit(f"{self.command!r} ended with {child.returncode}")
        self.seconds.append(used.ru_utime + used.ru_stime)

    @property
    def megabytes_per_second(self) -> float:
        return self.file.stat().st_size / 1e6 / statistics.median(self.seconds)


def speed(folder: Path, lines: int) -> None:
    """Print how fast we read a long log, and how fast others do."""
    whole, part = folder / "busy.log", folder / "part.log"
    write_busy_log(whole, lines)
    with whole.open("rb") as log:
        part.write_bytes(b"".join(islice(log, _PART_LINES)))
    print(
        f"speed      {whole.stat().st_size / 1e6:.0f} MB, {lines:,} lines, CPU seconds"
    )
    ours, on_part = _ours(whole), _ours(part)
    references = [*_mtails(folder, part), _ripgrep(folder, whole)]
    reading: list[float] = []
    for _ in range(_ROUNDS):
        for row in (ours, on_part, *references):
            row.run()
        reading.append(json.loads(ours.output)["seconds"])
    _check_alike(on_part, references[0])
    read = whole.stat().st_size / 1e6 / statistics.median(reading)
    print(f"  {'hpuwatch, all of it':44} {ours.megabytes_per_second:8.1f} MB/s")
    print(f"  {'hpuwatch, once it has started':44} {read:8.1f} MB/s")
    for row in references:
        rate = row.megabytes_per_second
        print(
            f"  {row.name:44} {rate:8.1f} MB/s   hpuwatch is "
            f"{ours.megabytes_per_second / rate:.2f} ({read / rate:.2f}) times as fast"
        )


def _ours(log: Path) -> _Row:
    return _Row("hpuwatch", [sys.executable, "-c", _READ, str(log)], log)


def _mtails(folder: Path, part: Path) -> list[_Row]:
    with part.open(encoding="utf-8", errors="replace", newline="\n") as log:
        kinds = {
            _DIGITS.sub("0", line): line for text in log for line in text.split("\r")
        }
    plain, count = mtail.equivalent(kinds.values(), stop=False)
    ordered, _ = mtail.equivalent(kinds.values(), stop=True)
    programs = {
        f"mtail, the same work ({count} patterns)": plain,
        "mtail, the same, access lines end the look": ordered,
        "mtail, three figures only (3 patterns)": mtail.MINIMAL,
    }
    rows = []
    for number, (name, text) in enumerate(programs.items()):
        programs_folder = mtail.write_program(folder / f"mtail{number}", text)
        command = [
            "mtail",
            "--one_shot",
            "--progs",
            str(programs_folder),
            "--logs",
            str(part),
        ]
        rows.append(_Row(name, command, part))
    return rows


def _ripgrep(folder: Path, whole: Path) -> _Row:
    rules = shipped_rules()
    literals = set(rules.endings)
    for rule in rules.rules:
        if not rule.text.files:
            literals.update(rule.text.literals or (t.literal for t in rule.templates))
    path = folder / "literals"
    path.write_text("\n".join(sorted(literals)) + "\n", encoding="utf-8")
    command = ["rg", "-F", "-c", "-j1", "--no-mmap", "-f", str(path), str(whole)]
    return _Row(f"rg -F -c ({len(literals)} literals)", command, whole)


def _check_alike(ours: _Row, reference: _Row) -> None:
    """Stop if mtail took something else out of the log than we did."""
    mine, metrics = json.loads(ours.output), json.loads(reference.output)
    values = {
        name: found[0].get("LabelValues") or [] for name, found in metrics.items()
    }
    theirs = {
        "statistics": sum(
            rows[0]["Value"]["Value"]
            for name, rows in values.items()
            if rows and re.fullmatch(r"m\d+_engine_stats", name)
        ),
        "shapes": sum(
            len(rows)
            for name, rows in values.items()
            if re.fullmatch(rf"m\d+_(?:{'|'.join(mtail.MISSES)})", name)
        ),
    }
    for name, count in theirs.items():
        if count != mine[name]:
            raise SystemExit(f"mtail counts {count} {name}, hpuwatch {mine[name]}")


def need_tools() -> None:
    """Stop if a reference program isn't there."""
    missing = [name for name in ("mtail", "rg") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)} (make bench installs them)")
