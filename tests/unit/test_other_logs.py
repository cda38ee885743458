"""What device logs and the kernel's log say of a failure, and why they sometimes can't."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.otherlogs import with_other_logs
from hpuwatch.runtime import elsewhere
from hpuwatch.runtime.device_logs import device_errors, device_log_folder
from hpuwatch.runtime.elsewhere import OtherLogs, log_environment
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.kernel_log import kernel_errors
from hpuwatch.runtime.last_exit import LastExit, write_last_exit
from hpuwatch.runtime.quote import Quote
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import OUT_OF_MEMORY, state_of_text

pytestmark = pytest.mark.unit

NOW = FakeClock().now()
BOOTED = NOW - FakeClock().boottime()
SECRET = "Zq7wB1xK9mT4"  # noqa: S105  made up, and meant to be found


def record(at: float, level: str, text: str) -> str:
    """A record as the native libraries write it: time of day, library, level, thread."""
    clock = time.strftime("%H:%M:%S", time.gmtime(at))
    return f"[{clock}.123456][SYN_API       ][{level}][tid:1F] {text}\n"


def written(path: Path, text: str, at: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def test_the_environment_of_the_server_names_the_folder() -> None:
    assert device_log_folder({"HABANA_LOGS": "/x", "HOME": "/h"}) == Path("/x")
    assert device_log_folder({"HOME": "/h"}) == Path("/h/.habana_logs")
    assert device_log_folder({}) is None
    assert log_environment(os.getpid()).get("HOME") == os.environ.get("HOME")
    assert log_environment(2**30) == {}


def test_the_last_errors_since_the_start_are_quoted(tmp_path: Path) -> None:
    texts = [
        record(NOW - 500, "error", "of the run before"),
        record(NOW - 90, "info", "a good sign"),
        *(record(NOW - 80 + n, "error", f"error {n}") for n in range(5)),
        record(NOW - 10, "critical", f"the last, password={SECRET}"),
        "  its continuation\n",
        record(NOW, "warning", "no error"),
    ]
    file = written(tmp_path / "0" / "synapse_log.txt", "".join(texts), NOW)
    (quote,) = device_errors(tmp_path, NOW - 100)
    assert quote.source == str(file)
    assert [line.split("] ")[-1] for line in quote.lines] == [
        "error 3",
        "error 4",
        "the last, password=***",
    ]


def test_a_log_over_midnight_and_in_another_zone(tmp_path: Path) -> None:
    """Only the distances between times count, whatever zone they are in."""
    midnight = NOW - NOW % 86_400
    texts = [
        record(midnight - 700, "error", "too old"),
        record(midnight - 20, "error", "before midnight"),
        record(midnight + 5, "error", "after it"),
        record(midnight + 4, "error", "a moment late"),
    ]
    written(tmp_path / "hcl.txt", "".join(texts), NOW)
    (quote,) = device_errors(tmp_path, NOW - 60)
    assert len(quote.lines) == 3
    assert "before midnight" in quote.lines[0]


def test_files_of_before_and_of_other_kinds_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path / "old.txt", record(NOW, "error", "old"), NOW - 200)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/")
    written(tmp_path / "empty.txt", "", NOW)
    written(tmp_path / "fine.txt", record(NOW, "info", "all is well"), NOW)
    assert device_errors(tmp_path, NOW - 100) == []


def test_only_so_much_is_read_and_quoted(tmp_path: Path) -> None:
    line = record(NOW, "error", "a word " * 800)
    for number in range(30):
        written(tmp_path / f"{number:02}.txt", line * 100, NOW + number)
    quotes = device_errors(tmp_path, NOW - 100)
    assert [Path(quote.source).stem for quote in quotes] == ["29", "28", "27", "26"]
    assert all(len(text) == 300 for quote in quotes for text in quote.lines)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    (quote,) = device_errors(tmp_path / "none", NOW)
    assert quote.unread == "it is not there"
    assert quote.text() == f"not looked into: {tmp_path}/none (it is not there)"


def test_a_folder_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    (quote,) = device_errors(tmp_path, NOW)
    assert quote.unread == "no permission"


def kmsg(at: float, text: str) -> str:
    return f"4,1234,{round((at - BOOTED) * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


KERNEL = (
    (NOW - 500, "habanalabs hl0: an old reset"),
    (NOW - 50, "eth0: link is up"),
    (NOW - 40, "habanalabs hl0: device is in reset"),
    (NOW - 30, "Out of memory: Killed process 77 (python3) total-vm:1kB"),
    (NOW - 20, "python3[77]: segfault at 0 ip 00007f sp 00007f error 4"),
    (NOW - 10, "usb 1-1: new device"),
)


def test_what_the_kernel_keeps(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("".join(kmsg(at, text) for at, text in KERNEL))
    quote = kernel_errors(NOW - 100, FakeClock(), path, [])
    assert quote.source == "the kernel's log"
    assert quote.lines == tuple(text for _, text in KERNEL[2:5])


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S.000000+00:00", "%b %e %H:%M:%S"])
def test_the_file_of_a_system_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    path = tmp_path / "kern.log"
    path.write_text(
        "".join(
            f"{time.strftime(form, time.gmtime(at))} node kernel: [ 1.5] {text}\n"
            for at, text in KERNEL
        )
    )
    files = [tmp_path / "none", path]
    quote = kernel_errors(NOW - 100, FakeClock(), tmp_path / "kmsg", files)
    assert quote.source == str(path)
    assert [line.partition("] ")[2] for line in quote.lines] == [
        text for _, text in KERNEL[2:5]
    ]


def test_a_kernel_log_that_can_not_be_read(tmp_path: Path) -> None:
    quote = kernel_errors(NOW, FakeClock(), tmp_path / "kmsg", [tmp_path / "none"])
    assert quote.text().startswith("not looked into: the kernel's log, ")
    assert quote.unread == "it is not there"


def test_a_disk_that_stalls_costs_the_quotes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = threading.Event()
    monkeypatch.setattr(elsewhere, "PATIENCE_SECONDS", 0.01)

    def stall(folder: Path, since: float) -> list[Quote]:
        stalled.wait(10)
        return device_errors(folder, since)

    monkeypatch.setattr(elsewhere, "device_errors", stall)
    env = {"HABANA_LOGS": str(tmp_path)}
    (quote,) = OtherLogs(env, NOW, FakeClock()).quotes()
    stalled.set()
    assert "no answer within" in quote.unread


QUOTES = (
    Quote(source="/logs/hcl.txt", lines=("[03:04:05][HCL][error] link lost",)),
    Quote(source="the kernel's log, /dev/kmsg", unread="no permission"),
    Quote(source="/logs/none", lines=()),
)


def ended_run(root: Path) -> Instance:
    """A run that has ended: its spool, its facts and its last words."""
    instance = Instance(root, "ours")
    instance.acquire()
    run = instance.begin(["x"], FakeClock())
    instance.release()
    instance.spool.write_text(OUT_OF_MEMORY)
    document = LastExit(
        name="ours",
        run=run,
        sentence="it ended",
        code=1,
        signal=None,
        asked=False,
        ended_at=NOW,
        elsewhere=QUOTES,
    )
    write_last_exit(instance.last_exit, document)
    return instance


def evidence(log: Path) -> list[tuple[str, int, str]]:
    report = build_report(
        [(str(log), state_of_text(OUT_OF_MEMORY))], shipped_findings()
    )
    told = with_other_logs(report, FakeClock()).reports[0].findings[0].evidence
    return [(each.file, each.line, each.text) for each in told if not each.line]


def test_a_report_over_our_own_spool_has_them_as_evidence(tmp_path: Path) -> None:
    assert evidence(ended_run(tmp_path).spool) == [
        ("/logs/hcl.txt", 0, "[03:04:05][HCL][error] link lost"),
        ("the kernel's log, /dev/kmsg", 0, "not looked into: no permission"),
    ]


def test_any_other_log_may_come_from_anywhere(tmp_path: Path) -> None:
    instance = ended_run(tmp_path)
    assert evidence(instance.dir / "copy.log") == []
    assert evidence(Path("-")) == []


def test_the_words_of_another_run_are_not_this_ones(tmp_path: Path) -> None:
    instance = ended_run(tmp_path)
    told = json.loads(instance.last_exit.read_text())
    instance.last_exit.write_text(json.dumps(told | {"run": "another"}))
    assert evidence(instance.spool) == []
