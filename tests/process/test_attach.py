"""``hpuwatch attach``: somebody else's log, by what collectors and rotation do to it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from hpuwatch.testing.programs import OURS, Program, Programs, get, until

LOADING = "(EngineCore pid=7) INFO 11-29 12:00:00 [hpu_worker.py:1] Starting to load model x...\n"
READY = "(APIServer pid=7) INFO:     Application startup complete.\n"
STOPPED = (
    "(APIServer pid=7) INFO:     Shutting down\n"
    "(APIServer pid=7) INFO:     Finished server process [7]\n"
)


def attached(
    programs: Programs, log: Path | str, stdin: int = subprocess.DEVNULL
) -> Program:
    argv = [*OURS, "attach", "--log", str(log), "--listen", "127.0.0.1:0"]
    return programs.program(argv, stdin=stdin)


def lines(program: Program) -> float:
    return program.metric("hpuwatch_log_lines_total")


def phase(program: Program) -> str:
    return str(
        json.loads(get(f"{program.base()}/readyz")[1] or '{"phase": ""}')["phase"]
    )


def test_a_log_that_grows(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOADING)
    program = attached(programs, log)
    until(program.base)
    assert phase(program) == "loading"
    assert get(f"{program.base()}/readyz")[0] == 503
    with log.open("a") as file:
        file.write(READY[:20])
        file.flush()
        until(lambda: lines(program) == 1)
        file.write(READY[20:])
    until(lambda: get(f"{program.base()}/readyz")[0] == 200)
    program.ask()
    assert program.wait() == 0
    assert program.out == b""


def test_an_old_start_in_the_log_is_not_the_one_that_runs(
    programs: Programs, tmp_path: Path
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOADING + READY + STOPPED + LOADING)
    program = attached(programs, log)
    until(program.base)
    assert phase(program) != "ready"


def test_rotation_by_rename(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOADING)
    program = attached(programs, log)
    until(program.base)
    with log.open("a") as old:
        log.rename(tmp_path / "vllm.log.1")
        log.touch()
        old.write("the writer has not looked yet\n")
        old.flush()
        until(lambda: lines(program) == 2)
    log.write_text(READY)
    until(lambda: lines(program) == 3)
    assert phase(program) == "ready"


def test_rotation_by_copy_and_truncate(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("a line of before\n" * 100)
    program = attached(programs, log)
    until(program.base)
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write(READY)
    until(lambda: phase(program) == "ready")
    assert lines(program) == 101


def test_a_docker_log_file(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "abc-json.log"
    program_lines = [
        {"log": text, "stream": "stderr", "time": "2026-11-29T12:00:00.5Z"}
        for text in (LOADING, READY)
    ]
    log.write_text("".join(json.dumps(each) + "\n" for each in program_lines))
    program = attached(programs, log)
    until(program.base)
    assert phase(program) == "ready"


def test_a_container_log_of_kubernetes_behind_its_link(
    programs: Programs, tmp_path: Path
) -> None:
    """The kubelet points the link at the next container's file."""
    (tmp_path / "pod").mkdir()
    for number, text in enumerate((LOADING, READY)):
        (tmp_path / "pod" / f"{number}.log").write_text(
            f"2026-11-29T12:00:00.5Z stderr F {text}"
        )
    link = tmp_path / "container.log"
    link.symlink_to(tmp_path / "pod" / "0.log")
    program = attached(programs, link)
    until(program.base)
    assert phase(program) == "loading"
    new = tmp_path / "new"
    new.symlink_to(tmp_path / "pod" / "1.log")
    new.rename(link)
    until(lambda: phase(program) == "ready")


def test_a_pipe_ends(programs: Programs) -> None:
    """``docker logs -f NAME | hpuwatch attach --log -``."""
    program = attached(programs, "-", subprocess.PIPE)
    pipe = program.child.stdin
    assert pipe is not None
    until(program.base)
    pipe.write(READY.encode())
    pipe.flush()
    until(lambda: phase(program) == "ready")
    pipe.close()
    assert program.wait() == 0
    assert "no longer followed" in program.err


def test_a_file_on_standard_input(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(READY)
    with log.open("rb") as file:
        program = attached(programs, "-", file.fileno())
        assert program.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(programs: Programs, tmp_path: Path, number: int) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(READY)
    program = attached(programs, log)
    until(program.base)
    program.ask(number)
    assert program.wait() == 0


def rule(sentence: str) -> str:
    return f'config_version: 1\nrules:\n  - event: mine\n    patterns: ["{sentence}"]\n'


def test_rules_are_loaded_again_while_it_follows(
    programs: Programs, tmp_path: Path
) -> None:
    log, own = tmp_path / "vllm.log", tmp_path / "rules"
    own.mkdir()
    warning = "WARNING 11-29 12:00:00 [x.py:1] something of ours\n"
    log.write_text(READY + warning)
    argv = [*OURS, "attach", "--log", str(log), "--listen", "127.0.0.1:0"]
    program = programs.program([*argv, "--rules", str(own)])
    until(program.base)
    assert program.metric("hpuwatch_unparsed_lines_total") == 1
    shipped = program.metric("hpuwatch_rules_loaded")
    (own / "a.yaml").write_text(rule("something of ours"))
    until(lambda: program.metric("hpuwatch_rules_loaded") == shipped + 1)
    (own / "b.yaml").write_text("rules: [")
    until(lambda: program.metric("hpuwatch_rule_reload_failures_total") == 1)
    assert f"{own}/b.yaml:2: no YAML" in program.err
    assert program.metric("hpuwatch_rules_loaded") == shipped + 1
    with log.open("a") as file:
        file.write(warning)
    until(lambda: lines(program) == 3)
    assert program.metric("hpuwatch_unparsed_lines_total") == 1
    assert phase(program) == "ready"
    program.ask()
    assert program.wait() == 0


def test_other_logs_are_quoted_when_the_server_fails(
    programs: Programs, tmp_path: Path
) -> None:
    log, logs = tmp_path / "vllm.log", tmp_path / "habana"
    logs.mkdir()
    log.write_text(LOADING)
    argv = [*OURS, "attach", "--log", str(log), "--listen", "127.0.0.1:0"]
    program = programs.program(argv, env={**os.environ, "HABANA_LOGS": str(logs)})
    until(program.base)
    (logs / "hcl.txt").write_text("[12:00:00.000001][HCL][error][tid:1] link lost\n")
    with log.open("a") as file:
        file.write(
            "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n"
        )
    until(lambda: "link lost" in program.err)
    assert "if it ran on this machine" in program.err


def test_a_missing_file_and_a_folder(programs: Programs, tmp_path: Path) -> None:
    missing = attached(programs, tmp_path / "nothing.log")
    assert missing.wait() == 66
    assert missing.err.startswith(f"hpuwatch: error: {tmp_path / 'nothing.log'} can't")
    assert missing.err.count("\n") == 1
    folder = attached(programs, tmp_path)
    assert folder.wait() == 65
    assert "is a folder" in folder.err


@pytest.mark.parametrize("piped", [False, True])
def test_a_compressed_log_is_refused(
    programs: Programs, tmp_path: Path, *, piped: bool
) -> None:
    """Its bytes were once read as a log that says nothing."""
    log = tmp_path / "vllm.log.gz"
    log.write_bytes(gzip.compress((LOADING + READY).encode()))
    with log.open("rb") as file:
        program = (
            attached(programs, "-", file.fileno()) if piped else attached(programs, log)
        )
        assert program.wait() == 65
    name, path = ("standard input", "-") if piped else (str(log), str(log))
    told = program.err.splitlines()[-1]
    assert told.startswith(f"hpuwatch: error: {name} is compressed")
    assert told.endswith(f"with hpuwatch suggest {path}")
    assert "Traceback" not in program.err


def test_a_binary_file_is_refused(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_bytes(bytes(range(256)) * 20)
    program = attached(programs, log)
    assert program.wait() == 65
    assert "is binary, not a log" in program.err


def test_a_port_in_use(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(READY)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        argv = [*OURS, "attach", "--log", str(log), "--listen", listen]
        program = programs.program(argv)
        assert program.wait() == 69
    assert "port in use" in program.err
