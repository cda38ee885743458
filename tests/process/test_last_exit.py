"""``hpuwatch last-exit``: what people ask when they come too late."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from hpuwatch.clock import SystemClock
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.kept import find_kept, start_kept
from hpuwatch.runtime.kernel_log import FILES, KMSG
from hpuwatch.testing.programs import OURS, PLAIN_PYTHON, Programs, until

DIES = [*PLAIN_PYTHON, "print('the last line'); raise SystemExit(3)"]


def last_exit(state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [*OURS, "last-exit", "--state-dir", str(state), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_it_says_again_what_was_said(programs: Programs, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    run = programs.run(DIES, env={**os.environ, "HABANA_LOGS": str(logs)})
    assert run.wait() == 3
    told = last_exit(tmp_path / "state")
    assert told.returncode == 0
    assert [
        line for line in told.stdout.splitlines() if "kernel's log" not in line
    ] == [
        "the server ended by itself with exit code 3 while starting",
        "  | the last line",
        f"not looked into: {logs} (it is not there)",
        f"next: hpuwatch suggest {run.spool}",
    ]
    for line in told.stdout.splitlines():
        assert f"hpuwatch: {line}" in run.err.splitlines()
    document = json.loads(last_exit(tmp_path / "state", "--format", "json").stdout)
    assert document["schema"] == "hpuwatch.last-exit/1"
    assert document["run"] == run.facts.run
    assert (document["code"], document["signal"]) == (3, None)
    assert document["asked"] is False
    assert document["phase"] == "starting"


LOGS_AND_DIES = """
import os, sys
os.mkdir(sys.argv[1])
os.mkdir(sys.argv[1] + "/0")
with open(sys.argv[1] + "/0/synapse_log.txt", "w") as file:
    file.write("[10:00:00.000001][SYN_API][info][tid:1] up\\n")
    file.write("[10:00:00.000002][SYN_API][error][tid:1] lost the link, token=abc1234\\n")
print("(EngineCore pid=1) INFO 11-29 12:29:10 [x.py:1] Starting to load model x...")
print("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.")
raise SystemExit(1)
"""


def test_the_device_logs_are_quoted(programs: Programs, tmp_path: Path) -> None:
    """Into the last words, their document, and the report over the spool."""
    logs = tmp_path / "logs"
    server = [*PLAIN_PYTHON, LOGS_AND_DIES, str(logs)]
    run = programs.run(server, env={**os.environ, "HABANA_LOGS": str(logs)})
    assert run.wait() == 1
    said = "[10:00:00.000002][SYN_API][error][tid:1] lost the link, token=***"
    told = last_exit(tmp_path / "state").stdout
    assert f"{logs}/0/synapse_log.txt:\n  | {said}\n" in told
    document = json.loads(last_exit(tmp_path / "state", "--format", "json").stdout)
    first, kernel = document["elsewhere"]
    assert (first["source"], first["lines"]) == (f"{logs}/0/synapse_log.txt", [said])
    # Whether this machine lets us read it is told by the source.
    assert kernel["source"] in {str(KMSG), *map(str, FILES)} | {
        "the kernel's log",
        f"the kernel's log, {KMSG}",
    }
    assert bool(kernel["unread"]) == kernel["source"].endswith(f", {KMSG}")
    shared = last_exit(tmp_path / "state", "--share").stdout
    assert "lost the link" in shared
    assert str(tmp_path) not in shared
    argv = [*OURS, "suggest", str(run.spool), "--format", "json"]
    report = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    (start,) = json.loads(report)["reports"]
    assert said in [each["text"] for each in start["findings"][0]["evidence"]]


def test_where_nothing_has_ended(tmp_path: Path) -> None:
    told = last_exit(tmp_path, "--name", "other")
    assert told.returncode == 66
    assert told.stderr.startswith("hpuwatch: error: no server named 'other' has ended")
    assert told.stderr.count("\n") == 1


def test_a_wrong_format(tmp_path: Path) -> None:
    told = last_exit(tmp_path, "--format", "yaml")
    assert told.returncode == 2
    assert "'yaml' is not text or json" in told.stderr


def test_without_a_watcher_the_bare_end_is_known(tmp_path: Path) -> None:
    instance = Instance(tmp_path, "bare")
    instance.acquire(DIES)
    kept = start_kept(instance, DIES, {}, stop_wait_seconds=5)
    end = until(kept.exit)
    assert (end.code, end.signal, end.asked) == (3, None, False)
    told = last_exit(tmp_path, "--name", "bare")
    assert told.stdout == "the server ended by itself with exit code 3\n"
    instance.release()


def test_a_kept_server_outlives_its_owner(programs: Programs, tmp_path: Path) -> None:
    """A killed ``tune`` leaves a server behind; who resumes finds and stops it."""
    code = f"""
import sys
from pathlib import Path
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.kept import start_kept
instance = Instance(Path({str(tmp_path)!r}), "trial")
instance.acquire()
command = [sys.executable, "-c", "import time; time.sleep(600)"]
start_kept(instance, command, {{}}, stop_wait_seconds=5)
import os
os.kill(os.getpid(), 9)
"""
    owner = programs.program([OURS[0], "-c", code], facts=tmp_path / "trial" / "facts")
    assert owner.wait() == -9
    until(owner.server)
    instance = Instance(tmp_path, "trial")
    kept = find_kept(instance, SystemClock())
    assert kept is not None
    assert kept.exit() is None
    kept.stop()
    end = until(kept.exit)
    assert (end.code, end.signal, end.asked) == (None, 15, True)
    assert find_kept(instance) is None
    instance.acquire()
    instance.release()


def test_a_kept_server_can_be_killed(tmp_path: Path) -> None:
    deaf = [
        *PLAIN_PYTHON,
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\ntime.sleep(600)",
    ]
    instance = Instance(tmp_path, "deaf")
    instance.acquire()
    kept = start_kept(instance, deaf, {}, stop_wait_seconds=600)
    until(lambda: instance.spool.exists() and instance.spool.read_text())
    kept.stop()
    until(lambda: instance.read().stop_asked_at)
    assert kept.exit() is None
    kept.kill()
    end = until(kept.exit)
    assert (end.signal, end.asked) == (9, True)
    instance.release()
