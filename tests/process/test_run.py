"""``hpuwatch run`` from the outside, by disaster."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from hpuwatch.clock import SystemClock
from hpuwatch.testing.programs import (
    OURS,
    PLAIN_PYTHON,
    Program,
    Programs,
    alive,
    children,
    get,
    until,
)

FOREVER = "import time\nwhile True: time.sleep(60)"
POLITE = f"""
import signal, sys
signal.signal(15, lambda *_: sys.exit(0))
print('up')
{FOREVER}
"""
READY = "print('(APIServer pid=7) INFO:     Application startup complete.')\n"


def server(code: str) -> list[str]:
    return [*PLAIN_PYTHON, code]


def said(program: Program) -> str:
    """What it said on stderr but where it listens."""
    return "\n".join(ln for ln in program.err.splitlines() if "http://" not in ln)


def test_the_output_passes_through_byte_for_byte(programs: Programs) -> None:
    code = """
import os
os.write(1, bytes(range(256)) * 300 + b'no line end')
os.write(2, b'\\r\\n\\xff and stderr\\n\\n')
raise SystemExit(3)
"""
    run = programs.run(server(code))
    assert run.wait() == 3
    expected = bytes(range(256)) * 300 + b"no line end\r\n\xff and stderr\n\n"
    assert run.out == expected
    assert run.spool.read_bytes() == expected


def test_the_server_gets_exactly_its_arguments_and_environment(
    programs: Programs, tmp_path: Path
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "A": "b c"}
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environb)], default=str))"
    code = code.replace("dict(os.environb)", "dict(os.environ)")
    words = ["--name", "mine", "--", "--listen", "x", "$A"]
    run = programs.run([*PLAIN_PYTHON, code, *words], env=env)
    assert run.wait() == 70
    arguments, environment = json.loads(run.out)
    assert arguments == words
    locale = {"LC_CTYPE"}  # the server's own interpreter may set it, as it would have
    run_id = environment.pop("HPUWATCH_RUN_ID")
    assert run_id == run.facts.run
    assert {k: v for k, v in environment.items() if k not in locale} == {
        **env,
        "PYTHONUNBUFFERED": "1",
    }


def test_what_is_set_stays_set(programs: Programs) -> None:
    code = "import os; print(repr(os.environ['PYTHONUNBUFFERED']))"
    run = programs.run(server(code), env={**os.environ, "PYTHONUNBUFFERED": ""})
    run.wait()
    assert run.out == b"''\n"


def test_kill_9_of_the_watcher_under_load(programs: Programs) -> None:
    """The server goes on, and the next watcher knows what the last one knew."""
    lines = 6000
    code = f"""
import time
for n in range({lines}):
    shape = 'prompt', 1, 128 * (n % 50), 0
    print("WARNING 11-29 12:00:00 [x.py:1] Configuration: %s was not warmed-up! %d" % (shape, n))
    if n % 10 == 0: time.sleep(0.005)
{READY}
{POLITE}
"""
    run = programs.run(server(code))
    until(lambda: run.metric("hpuwatch_log_lines_total") > 0)
    os.kill(run.watcher(), signal.SIGKILL)
    until(lambda: run.err.count("http://") == 2)
    until(lambda: run.metric("hpuwatch_log_lines_total") == lines + 2)
    assert run.metric("hpuwatch_watcher_starts_total") == 2
    assert run.metric("hpuwatch_echo_dropped_bytes_total") == 0
    before = metrics(run)
    assert any("bucket_misses" in each and not each.endswith(" 0.0") for each in before)
    os.kill(run.watcher(), signal.SIGKILL)
    until(lambda: run.err.count("http://") == 3)
    until(lambda: metrics(run) == before)  # or it still catches up
    run.ask()
    assert run.wait() == 0
    assert len(run.spool.read_bytes().splitlines()) == lines + 2
    # Nothing is lost; a piece may be repeated for each watcher that was killed.
    numbers = [int(n) for n in re.findall(rb"warmed-up! (\d+)", run.out)]
    assert sorted(set(numbers)) == list(range(lines))
    assert len(numbers) < lines + 2 * 1000


def metrics(run: Program) -> set[str]:
    """All that it exports but the number of watchers."""
    lines = get(f"{run.base()}/metrics")[1].splitlines()
    return {each for each in lines if "watcher_starts" not in each}


def test_a_server_that_ends_with_0_unasked(programs: Programs) -> None:
    run = programs.run(server(READY))
    assert run.wait() == 70
    assert "the server ended by itself with exit code 0 while serving" in said(run)
    assert f"next: hpuwatch suggest {run.spool}" in said(run)


def test_a_server_that_is_killed(programs: Programs) -> None:
    run = programs.run(server("import os; os.kill(os.getpid(), 9)"))
    assert run.wait() == 137
    assert "the server was ended unasked by SIGKILL while starting" in said(run)
    assert "out-of-memory killer" in said(run)


def test_a_server_that_dies_of_what_its_log_says(programs: Programs) -> None:
    code = """
print('(EngineCore pid=7) INFO 11-29 12:00:00 [hpu_worker.py:1] Starting to load model x...')
print('(EngineCore pid=7) ERROR 11-29 12:00:01 [core.py:1] Traceback (most recent call last):')
print('(EngineCore pid=7) ERROR 11-29 12:00:01 [core.py:1]   File "x.py", line 1, in load')
print('(EngineCore pid=7) ERROR 11-29 12:00:01 [core.py:1] RuntimeError: FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB')
raise SystemExit(1)
"""
    run = programs.run(server(code))
    assert run.wait() == 1
    assert "exit code 1 while loading weights: RuntimeError: FATAL ERROR" in said(run)
    assert "--tensor-parallel-size" in said(run)


def test_sigterm_while_serving(programs: Programs) -> None:
    run = programs.run(server(READY + POLITE))
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    assert json.loads(get(f"{run.base()}/readyz")[1])["phase"] == "ready"
    assert get(f"{run.base()}/livez")[0] == 200
    run.ask()
    assert run.wait() == 0
    assert said(run) == "hpuwatch: the server stopped as asked (exit code 0)"


def test_while_it_stops_it_is_not_ready(programs: Programs) -> None:
    code = READY + f"import signal\nsignal.signal(15, signal.SIG_IGN)\n{FOREVER}"
    run = programs.run(server(code), "--stop-wait", "600")
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    run.ask()
    until(lambda: get(f"{run.base()}/readyz")[0] == 503)
    assert json.loads(get(f"{run.base()}/readyz")[1])["phase"] == "draining"
    run.ask(signal.SIGINT)
    assert run.wait() == 137
    assert "was asked to stop and had to be killed (SIGKILL)" in said(run)


def test_the_next_run_tells_how_the_one_before_ended(programs: Programs) -> None:
    """Nobody can scrape a dead server's phase: its endpoint is gone with it."""
    first = programs.run(server(READY + "import os; os.kill(os.getpid(), 9)"))
    assert first.wait() == 137
    second = programs.run(server(READY + POLITE))
    until(second.base)
    text = get(f"{second.base()}/metrics")[1]
    told = 'hpuwatch_last_exit_info{asked="false",code="137",phase="ready"} 1.0'
    assert told in text.splitlines()
    ended_at = second.metric("hpuwatch_last_exit_timestamp_seconds")
    assert ended_at == pytest.approx(SystemClock().now(), abs=60)
    os.kill(second.watcher(), signal.SIGKILL)
    until(lambda: second.err.count("http://") == 2)
    assert told in get(f"{second.base()}/metrics")[1].splitlines()
    second.ask()
    assert second.wait() == 0


def test_a_first_run_tells_of_none_before(programs: Programs) -> None:
    run = programs.run(server(READY + POLITE))
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    assert run.metric("hpuwatch_last_exit_info") == -1


def test_a_port_in_use_costs_the_metrics_not_the_server(programs: Programs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = programs.run(server(READY + POLITE), "--listen", f"127.0.0.1:{port}")
        until(lambda: "port in use" in run.err)
        until(lambda: run.out.endswith(b"up\n"))
    # It was only for a while: the port is tried again.
    until(lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 200)
    assert run.err.count("port in use") == 1
    run.ask()
    assert run.wait() == 0


@pytest.mark.parametrize("state", ["/dev/null/nowhere", "/proc/nowhere"])
def test_a_state_directory_that_cannot_be_written(
    programs: Programs, state: str
) -> None:
    run = programs.run(server(READY + POLITE), "--state-dir", state)
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    assert run.metric("hpuwatch_log_lines_total") == 2
    run.ask()
    assert run.wait() == 0
    assert run.out.endswith(b"complete.\nup\n")
    assert run.err.count("can't be written") == 1
    assert "kept in memory" in run.err
    assert "the server stopped as asked" in run.err


def test_a_state_directory_that_cannot_be_written_and_a_dead_watcher(
    programs: Programs,
) -> None:
    run = programs.run(server(READY + POLITE), "--state-dir", "/proc/nowhere")
    until(run.base)
    os.kill(
        until(lambda: [p for p in _tree(run) if b"_watch" in _cmdline(p)])[0],
        signal.SIGKILL,
    )
    until(lambda: run.err.count("http://") == 2)
    assert run.metric("hpuwatch_log_lines_total") == 2
    run.ask()
    assert run.wait() == 0


def _tree(run: Program) -> list[int]:
    return children(run.child.pid)


def _cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_its_spool_is_removed(programs: Programs) -> None:
    """The last words don't send people to a file that is gone."""
    run = programs.run(server(f"{READY}\n{POLITE}"))
    until(lambda: run.metric("hpuwatch_log_lines_total") > 0)
    run.spool.unlink()
    os.kill(run.server(), signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL
    assert "hpuwatch suggest" not in said(run)


def test_its_folder_is_removed_and_another_run_takes_the_name(
    programs: Programs,
) -> None:
    """Both servers run on, each watcher knows its own, and so does the next one."""
    first = programs.run(server(READY + POLITE))
    until(first.base)
    until(lambda: get(f"{first.base()}/readyz")[0] == 200)
    shutil.rmtree(programs.folder / "state")
    until(lambda: "was removed or belongs to another run" in first.err)
    second = programs.run(server("print('other')\n" + POLITE))
    until(second.base)
    os.kill(
        until(lambda: [p for p in _tree(first) if b"_watch" in _cmdline(p)])[0],
        signal.SIGKILL,
    )
    until(lambda: first.err.count("http://") == 2)
    until(lambda: get(f"{first.base()}/readyz")[0] == 200)
    assert "is gone" not in first.err
    assert "bug" not in first.err
    first.ask()
    assert first.wait() == 0
    assert "the server stopped as asked" in first.err
    assert alive(second.server())
    second.ask()
    assert second.wait() == 0


def test_a_disk_that_fills_up(programs: Programs, tmp_path: Path) -> None:
    """80 MB on a disk of 56: a server that can't print would die of it."""
    apart = ["unshare", "--mount"]
    if os.geteuid() != 0:
        apart += ["--user", "--map-root-user"]
    mount = f'mount -t tmpfs -o size=56m tmpfs {tmp_path} && exec "$@"'
    apart += ["/bin/sh", "-c", mount, "sh"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mounts of our own")
    # On a busy machine the watcher may need longer to come up than the disk lasts.
    code = f"""
import os, time
while not os.path.exists({str(tmp_path / "state/default/marks")!r}): time.sleep(0.02)
for _ in range(80):
    print(('x' * 99 + '\\n') * 10_000, end='')
    time.sleep(0.02)
raise SystemExit(3)
"""
    argv = [*OURS, "run", "--no-echo", "--listen", "127.0.0.1:0"]
    argv += ["--state-dir", str(tmp_path / "state"), "--", *server(code)]
    run = programs.program([*apart, *argv])
    assert run.wait() == 3
    assert run.err.count("is full: output after the start is given up") == 1


def test_a_reader_of_our_output_that_stalls(programs: Programs) -> None:
    """12 MB nobody reads: the server never waits, and what was dropped is counted."""
    code = f"""
for n in range(120_000): print('%099d' % n)
{READY}
{POLITE}
"""
    run = programs.run(server(code), stdout=subprocess.PIPE)
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    assert run.metric("hpuwatch_log_lines_total") == 120_002
    assert run.metric("hpuwatch_echo_dropped_bytes_total") > 1_000_000
    run.ask()
    assert run.wait() == 0
    assert run.spool.stat().st_size > 12_000_000


def test_a_reader_of_our_output_that_leaves(programs: Programs) -> None:
    code = f"{READY}\n{POLITE.replace('print', 'n = 0; print')}"
    ticking = code.replace("time.sleep(60)", "time.sleep(0.05); print('tick')")
    run = programs.run(server(ticking), stdout=subprocess.PIPE)
    assert run.child.stdout is not None
    run.child.stdout.read(10)
    run.child.stdout.close()
    until(lambda: "nobody reads our output any more" in run.err)
    size = run.spool.stat().st_size
    until(lambda: run.spool.stat().st_size > size)
    run.ask()
    assert run.wait() == 0


def test_without_echo_our_stdout_is_silent(programs: Programs) -> None:
    run = programs.run(server("print('hello'); raise SystemExit(3)"), "--no-echo")
    assert run.wait() == 3
    assert run.out == b""
    assert run.printed == "hello\n"


def test_a_second_run_under_the_same_name(programs: Programs) -> None:
    first = programs.run(server(POLITE))
    until(first.server)
    same = programs.run(server(POLITE))
    assert same.wait() == 75
    other = programs.run(server("pass"))
    assert other.wait() == 75
    mine = first.facts.fingerprint[:12]
    for told in (same.err, other.err):
        assert f"belongs to keeper {first.child.pid}" in told
        assert f"server pid {first.server()}" in told
        assert mine in told
    assert "the same" in same.err
    assert "the same" not in other.err
    assert alive(first.server())


def test_kill_9_of_the_keeper(programs: Programs) -> None:
    """Outside of a container the server lives on, watched, and its name stays taken."""
    run = programs.run(server(READY + POLITE))
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    watcher = run.watcher()
    run.child.kill()
    run.wait()
    until(lambda: "is gone; the server goes on" in run.err)
    assert get(f"{run.base()}/readyz")[0] == 200
    second = programs.run(server(POLITE))
    assert second.wait() == 75
    assert "has lost its keeper" in second.err
    os.kill(run.server(), signal.SIGKILL)
    until(lambda: not alive(watcher))
    assert "the keeper that would know how is gone" in run.err
    third = programs.run(server("raise SystemExit(3)"))
    assert third.wait() == 3


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-program", "there is no program 'no-such-program' on the PATH"),
        ("/no/such/program", "there is no program /no/such/program"),
        ("/etc/passwd", "/etc/passwd may not be executed"),
    ],
)
def test_a_command_that_does_not_exist(
    programs: Programs, command: str, words: str
) -> None:
    run = programs.run([command, "--flag"])
    assert run.wait() == 69
    assert run.err.startswith(f"hpuwatch: error: {words}")
    assert run.err.count("\n") == 1
    assert not run.facts_path.exists()


def test_a_command_whose_interpreter_does_not_exist(
    programs: Programs, tmp_path: Path
) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    run = programs.run([str(script)])
    assert run.wait() == 69
    assert f"the server can't be started: {script}: No such file" in said(run)


def test_a_new_run_puts_the_spool_of_the_last_one_aside(programs: Programs) -> None:
    for word in ("first", "second", "third"):
        run = programs.run(server(f"print('{word}'); raise SystemExit(3)"))
        assert run.wait() == 3
        assert run.printed == f"{word}\n"
    spool = programs.folder / "state/default/spool"
    assert spool.with_name("spool.1").read_text() == "second\n"
    last = programs.run(server(POLITE))
    until(last.base)
    until(lambda: last.metric("hpuwatch_restarts_total") == 3)


def test_systemd_is_told(programs: Programs) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
    ):
        systemd.bind(f"{folder}/notify")
        systemd.settimeout(30)
        env = {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}
        run = programs.run(server(READY + POLITE), env=env)
        told = ""
        while "READY=1" not in told:
            told += systemd.recv(4096).decode() + "\n"
        assert "STATUS=the server answers requests" in told
        run.ask()
        assert run.wait() == 0
        while "STATUS=the server stopped as asked" not in told:
            told += systemd.recv(4096).decode() + "\n"


def test_the_simulated_server_from_start_to_stop(programs: Programs) -> None:
    sim = [*OURS, "sim", "--model", "llama-3.1-8b", "--card", "gaudi2"]
    run = programs.run([*sim, "--port", "0", "--speed", "500"])
    until(run.base)
    until(lambda: get(f"{run.base()}/readyz")[0] == 200)
    ready = json.loads(get(f"{run.base()}/readyz")[1])
    assert ready["done"] == ready["total"] > 0
    assert run.metric("hpuwatch_kv_cache_blocks") > 0
    run.ask()
    assert run.wait() == 0


def test_broken_rules_cost_the_server_nothing(
    programs: Programs, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("config_version: 1\nrules:\n  - event: mine\n")
    run = programs.run([*PLAIN_PYTHON, FOREVER], "--rules", str(own))
    until(run.base)
    until(lambda: run.metric("hpuwatch_rule_reload_failures_total") == 1)
    assert f"hpuwatch:   {own}:3: rules.0.patterns: Field required" in run.err
    shipped = run.metric("hpuwatch_rules_loaded")
    own.write_text(
        'config_version: 1\nrules:\n  - event: m\n    patterns: ["of ours"]\n'
    )
    until(lambda: run.metric("hpuwatch_rules_loaded") == shipped + 1)
    assert alive(run.server())
