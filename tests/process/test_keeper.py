"""The keeper alone, with real children, by disaster."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hpuwatch.runtime.kept import KEEPER
from hpuwatch.testing.programs import (
    PLAIN_PYTHON,
    Program,
    Programs,
    alive,
    children,
    until,
)

FOREVER = "import time\nwhile True: time.sleep(60)"
DEAF = f"import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\n{FOREVER}"
POLITE = f"""
import signal, sys
signal.signal(15, lambda *_: (print('drained'), sys.exit(0)))
print('up')
{FOREVER}
"""


def server(code: str, *words: str) -> list[str]:
    return [*PLAIN_PYTHON, code, *words]


def test_it_is_slim_and_takes_its_command_as_it_is(programs: Programs) -> None:
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    words = ["--spool", "x y", "--", "$HOME", "*", "", "--watcher", "[]"]
    kept = programs.keeper(server(code + "\n" + FOREVER, *words))
    until(lambda: kept.printed)
    assert json.loads(kept.printed) == words
    status = Path(f"/proc/{kept.child.pid}/status").read_text()
    resident_kib = int(status.partition("VmRSS:")[2].split()[0])
    assert resident_kib < 20_000
    kept.ask()
    assert kept.wait() == 128 + signal.SIGTERM


def test_the_server_has_a_session_no_input_and_no_signals_of_ours(
    programs: Programs,
) -> None:
    code = """
import os, signal, sys
status = open('/proc/self/status').read()
for name in ('SigBlk', 'SigIgn'):
    print(name, status.partition(name + ':')[2].split()[0])
print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), os.environ['PATH'] != '')
"""
    kept = programs.keeper(["/bin/sh", "-c", 'exec "$@"', "sh", *server(code)])
    assert kept.wait() == 70
    lines = kept.printed.splitlines()
    assert lines[0] == "SigBlk 0000000000000000"
    ignored = int(lines[1].split()[1], 16)
    # Python ignores two by itself; what nohup or a shell made us ignore goes on being so.
    ours = Path("/proc/self/status").read_text("ascii").partition("SigIgn:")[2]
    by_python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert ignored == int(ours.split()[0], 16) | by_python
    assert lines[2] == "True '' True"


def test_both_streams_keep_their_order_in_a_private_spool(programs: Programs) -> None:
    code = "import os\nfor n in range(200): os.write(1 + n % 2, b'%d\\n' % n)"
    kept = programs.keeper(server(code))
    assert kept.wait() == 70
    assert kept.printed == "".join(f"{n}\n" for n in range(200))
    assert stat.S_IMODE(kept.spool.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.facts_path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(0)", 70),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit(255)", 255),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_an_end_that_nobody_asked_for_is_never_0(
    programs: Programs, code: str, expected: int
) -> None:
    kept = programs.keeper(server(code))
    assert kept.wait() == expected
    end = kept.facts.exit
    assert end is not None
    assert not end.asked
    assert (end.code, end.signal) in {
        (0, None),
        (expected, None),
        (None, expected - 128),
    }


def test_asked_to_stop_it_waits_for_the_drain(programs: Programs) -> None:
    kept = programs.keeper(server(POLITE))
    until(lambda: "up" in kept.printed)
    kept.ask()
    assert kept.wait() == 0
    assert kept.printed == "up\ndrained\n"
    facts = kept.facts
    assert facts.exit is not None
    assert facts.exit.asked
    assert facts.stop_asked_at is not None


def test_only_the_main_process_is_asked(programs: Programs) -> None:
    """A drain needs its workers: SIGTERM to the group would destroy it."""
    worker = "import signal, sys\nsignal.signal(15, lambda *_: print('worker hit'))\n"
    code = f"""
import signal, subprocess, sys
worker = subprocess.Popen({server(worker + FOREVER)!r})
def stop(*_):
    print('worker alive', worker.poll() is None)
    worker.kill(); worker.wait(); sys.exit(0)
signal.signal(15, stop)
print('up')
{FOREVER}
"""
    kept = programs.keeper(server(code))
    until(lambda: "up" in kept.printed)
    kept.ask()
    assert kept.wait() == 0
    assert kept.printed == "up\nworker alive True\n"


def test_a_swallowed_sigterm_is_insisted_on(programs: Programs) -> None:
    kept = programs.keeper(server(DEAF), stop_wait=0.5)
    until(lambda: "up" in kept.printed)
    kept.ask()
    assert kept.wait() == 128 + signal.SIGKILL
    end = kept.facts.exit
    assert end is not None
    assert end.asked


def test_a_second_sigterm_insists_at_once(programs: Programs) -> None:
    kept = programs.keeper(server(DEAF), stop_wait=3600)
    until(lambda: "up" in kept.printed)
    kept.ask()
    until(lambda: kept.facts.stop_asked_at)
    assert alive(kept.server())
    kept.ask()
    assert kept.wait() == 128 + signal.SIGKILL


def test_sigquit_insists_at_once(programs: Programs) -> None:
    kept = programs.keeper(server(DEAF), stop_wait=3600)
    until(lambda: "up" in kept.printed)
    kept.ask(signal.SIGQUIT)
    assert kept.wait() == 128 + signal.SIGKILL


def test_orphaned_workers_are_found_and_killed(programs: Programs) -> None:
    """Dead front end, live engine: it would hold the card for ever."""
    engine = "import os\nos.setsid()\n" + DEAF
    code = f"""
import subprocess, os
engine = subprocess.Popen({server(engine)!r}, stdout=subprocess.PIPE)
engine.stdout.readline()
print(engine.pid)
os.kill(os.getpid(), 9)
"""
    kept = programs.keeper(server(code))
    engine_pid = int(until(lambda: kept.printed))
    until(lambda: engine_pid in children(kept.child.pid))
    kept.ask()  # no need to wait until the orphans' time is up
    assert kept.wait() == 137
    assert not alive(engine_pid)


def test_a_wrapper_that_dies_leaves_its_server_time_to_drain(
    programs: Programs,
) -> None:
    """``bash -c`` without exec dies of the SIGTERM that was meant for the server."""
    wrapper = ["/bin/sh", "-c", '"$@"; true', "sh", *server(POLITE)]
    kept = programs.keeper(wrapper)
    until(lambda: "up" in kept.printed)
    kept.ask()
    assert kept.wait() == 128 + signal.SIGTERM
    assert kept.printed == "up\ndrained\n"


def test_other_signals_are_passed_on(programs: Programs) -> None:
    code = f"""
import signal
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda n, _: print('heard', n))
print('up')
{FOREVER}
"""
    kept = programs.keeper(server(code))
    until(lambda: "up" in kept.printed)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        kept.ask(number)
        until(lambda: f"heard {int(number)}" in kept.printed)  # noqa: B023  used at once


def test_under_nohup_a_hangup_means_nothing(programs: Programs) -> None:
    kept = programs.keeper(server(POLITE), first=["nohup"])
    until(lambda: "up" in kept.printed)
    kept.ask(signal.SIGHUP)
    kept.ask(signal.SIGUSR1)  # heard later: when the server dies of it, HUP is over
    assert kept.wait() == 128 + signal.SIGUSR1
    assert kept.facts.stop_asked_at is None


def test_a_command_that_cannot_be_executed(programs: Programs, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    kept = programs.keeper([str(script)])
    assert kept.wait() == 69
    end = kept.facts.exit
    assert end is not None
    assert "No such file" in end.error


FULL = """
import os, runpy, sys
forks, fork = [int(word) for word in sys.argv[1].split(",")], os.fork
def limited():
    count[0] += 1
    if count[0] in forks: raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
count, os.fork, sys.argv = [0], limited, sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the keeper where some of its forks fail, as under a limit of processes."""


def crowded(programs: Programs, forks: str, *words: str) -> Program:
    facts = programs.folder / "facts"
    argv = [*PLAIN_PYTHON, FULL, forks, str(KEEPER)]
    argv += ["--spool", str(programs.folder / "spool"), "--facts", str(facts)]
    return programs.program([*argv, "--stop-wait", "inf", *words], facts=facts)


def test_no_process_to_be_had_for_the_next_watcher(programs: Programs) -> None:
    """A limit of processes costs the watcher for a while, never the server."""
    watcher = json.dumps(server("raise SystemExit(1)"))
    command = ["--watcher", watcher, "--", *server(DEAF)]
    kept = crowded(programs, "3", *command)
    until(lambda: kept.facts.watcher_starts >= 3)
    assert "the watcher ended (69), the next one starts in 2 s" in kept.err
    assert alive(kept.server())
    kept.ask(signal.SIGQUIT)  # at once, though it would wait for ever
    assert kept.wait() == 128 + signal.SIGKILL
    assert "Traceback" not in kept.err


def test_processes_that_cannot_be_listed(programs: Programs) -> None:
    code = """
import os, runpy, sys
def listdir(path): raise OSError(23, "Too many open files in system")
os.listdir, sys.argv = listdir, sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    facts = programs.folder / "facts"
    argv = [*PLAIN_PYTHON, code, str(KEEPER), "--spool", str(programs.folder / "spool")]
    argv += ["--facts", str(facts), "--stop-wait", "1", "--"]
    kept = programs.program([*argv, *server("raise SystemExit(3)")], facts=facts)
    assert kept.wait() == 3
    assert "Traceback" not in kept.err


def test_no_process_to_be_had_for_the_server(programs: Programs) -> None:
    kept = crowded(programs, "1", "--", *server(FOREVER))
    assert kept.wait() == 69
    end = kept.facts.exit
    assert end is not None
    assert "Resource temporarily unavailable" in end.error
    assert kept.err == "hpuwatch: the server ended unasked (69)\n"


def test_the_watcher_is_started_again_later_each_time(programs: Programs) -> None:
    watcher = json.dumps(server("raise SystemExit(1)"))
    kept = programs.keeper(server(FOREVER), watcher=watcher)
    until(lambda: kept.facts.watcher_starts >= 3)
    assert "starts in 1 s" in kept.err
    assert "starts in 2 s" in kept.err
    assert alive(kept.server())


def test_the_watcher_gets_a_session_our_output_and_its_last_words(
    programs: Programs, tmp_path: Path
) -> None:
    """It lives on when the server is gone, until it has said why."""
    code = f"""
import os, time
while 'exit' not in open({str(tmp_path / "facts")!r}).read(): time.sleep(0.02)
print('last words', os.getsid(0) == os.getpid())
"""
    kept = programs.keeper(
        server("raise SystemExit(5)"), watcher=json.dumps(server(code))
    )
    assert kept.wait() == 5
    assert kept.out == b"last words True\n"
    assert kept.err == ""


def test_a_watcher_that_hangs_at_the_end_is_left_behind_by_a_second_signal(
    programs: Programs,
) -> None:
    kept = programs.keeper(server(POLITE), watcher=json.dumps(server(DEAF)))
    until(lambda: "up" in kept.printed and b"up" in kept.out)
    watcher = kept.watcher()
    kept.ask()
    until(lambda: kept.facts.exit)
    assert alive(watcher)
    kept.ask()
    assert kept.wait() == 0
    until(lambda: not alive(watcher))
    assert kept.err == "hpuwatch: the server ended as asked (0)\n"


def test_a_stalled_or_closed_stderr_does_not_hold_it_up(programs: Programs) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    argv = [sys.executable, "-I", "-S", str(KEEPER)]
    argv += ["--spool", str(programs.folder / "spool")]
    argv += ["--facts", str(programs.folder / "facts"), "--stop-wait", "1"]
    with subprocess.Popen(
        [*argv, "--", *server("raise SystemExit(3)")], stderr=write
    ) as child:
        assert child.wait(30) == 3
    os.close(read)
    with subprocess.Popen(
        [*argv, "--", *server("raise SystemExit(4)")], stderr=write
    ) as child:
        assert child.wait(30) == 4
    os.close(write)


def test_as_process_1_of_a_container(programs: Programs) -> None:
    """Process 1 has no default actions for signals, and inherits everybody's orphans."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        apart += ["--user", "--map-root-user"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no process namespaces")
    daemon = f"(setsid {sys.executable} -I -S -c 'import time; time.sleep(600)' &)"
    kept = programs.keeper(
        ["/bin/sh", "-c", f'{daemon}; exec "$@"', "sh", *server(POLITE)], first=apart
    )
    until(lambda: "up" in kept.printed)
    (inside,) = children(kept.child.pid)
    assert kept.facts.keeper is not None
    assert kept.facts.keeper.pid == 1
    os.kill(inside, signal.SIGTERM)
    assert kept.wait() == 0
    assert "drained" in kept.printed
