"""``hpuwatch suggest`` as people and scripts start it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

HPUWATCH = (sys.executable, "-m", "hpuwatch")


def suggest(
    *arguments: str | Path, text: str | bytes = "", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    given = text.encode() if isinstance(text, str) else text
    return subprocess.run(
        [*HPUWATCH, "suggest", *map(str, arguments)],
        input=given,
        capture_output=True,
        check=False,
        env=os.environ | environ,
    )


@pytest.fixture
def golden(checkout: Path) -> Path:
    return checkout / "tests/data/logs"


def test_a_log_is_read_plain_packed_and_from_a_pipe(
    golden: Path, tmp_path: Path
) -> None:
    plain = golden / "llama8b-gaudi2.log"
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    said = []
    for answer in (
        suggest(plain, "--format", "json"),
        suggest(packed, "--format", "json"),
        suggest("-", "--format", "json", text=plain.read_bytes()),
        suggest("--format", "json", text=plain.read_bytes()),
    ):
        assert answer.returncode == 0, answer.stderr
        assert answer.stderr == b""
        (only,) = json.loads(answer.stdout)["reports"]
        said.append((only["memory"], only["proposal"]))
    assert all(each == said[0] for each in said)


def test_standard_input_is_read_once() -> None:
    answer = suggest("-", "-")
    assert answer.returncode == 2
    assert b"standard input can be read only once" in answer.stderr


def test_several_logs_are_reported_in_their_order(golden: Path) -> None:
    names = ["warmup-out-of-memory.log", "llama8b-gaudi2.log"]
    answer = suggest(*(golden / name for name in names), "--format", "json")
    files = [each["source"]["file"] for each in json.loads(answer.stdout)["reports"]]
    assert [Path(file).name for file in files] == names


def test_an_env_file_can_be_sourced(golden: Path, tmp_path: Path) -> None:
    answer = suggest(golden / "llama8b-gaudi2.log", "--format", "env")
    file = tmp_path / "proposal.env"
    file.write_bytes(answer.stdout)
    shell = subprocess.run(
        ["sh", "-c", f'. {file}; echo "$VLLM_GRAPH_RESERVED_MEM"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == "0.051\n"


def test_markdown_begins_with_a_heading(golden: Path) -> None:
    answer = suggest(golden / "llama8b-gaudi2.log", "--format", "markdown")
    assert answer.stdout.startswith(b"## ")


def test_piped_text_is_plain_and_whole(golden: Path) -> None:
    answer = suggest(golden / "llama70b-tp2-load.log")
    assert b"\x1b" not in answer.stdout
    assert "…" not in answer.stdout.decode()


@pytest.mark.parametrize(
    ("log", "severity", "code"),
    [
        ("llama8b-gaudi2.log", "warning", 0),
        ("warmup-out-of-memory.log", "warning", 1),
        ("llama8b-gaudi2.log", "error", 0),
        ("llama8b-gaudi2.log", "info", 1),
        ("warmup-out-of-memory.log", "error", 1),
    ],
)
def test_fail_on_a_severity(golden: Path, log: str, severity: str, code: int) -> None:
    answer = suggest(golden / log, "--fail-on", severity)
    assert answer.returncode == code
    assert answer.stdout


def test_sharing_leaves_no_path(golden: Path) -> None:
    answer = suggest(golden / "warmup-out-of-memory.log", "--share")
    assert b"/srv/models" not in answer.stdout
    assert str(golden).encode() not in answer.stdout
    assert b"log1:18:" in answer.stdout


SYSLOG = "Jan  2 03:04:05 host systemd[1]: Started Daily apt activities.\n" * 9
FRAGMENT = (
    "INFO 01-02 03:04:05 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV "
    "cache usage: 1.0%, Prefix cache hit rate: 0.0%\n"
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (bytes(range(256)) * 40, ""),
        (SYSLOG.encode(), "no line of a vLLM server on Intel Gaudi"),
        (FRAGMENT.encode(), "from the server's start on"),
        (gzip.compress(SYSLOG.encode() * 200)[:-40], ""),
    ],
)
def test_unusable_input_is_one_sentence_and_65(
    content: bytes, words: str, tmp_path: Path
) -> None:
    log = tmp_path / "some.log"
    log.write_bytes(content)
    answer = suggest(log)
    complaint = answer.stderr.decode()
    assert answer.returncode == 65
    assert answer.stdout == b""
    assert complaint.count("\n") == 1
    assert str(log) in complaint
    assert words in complaint
    assert "Traceback" not in complaint


def test_a_cuda_log_is_called_one(golden: Path) -> None:
    answer = suggest(golden / "cuda.log")
    assert answer.returncode == 65
    assert b"CUDA" in answer.stderr


def test_a_cuda_log_that_only_names_its_platform_is_called_one(tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    log.write_text(
        "INFO 03-01 10:00:00 [__init__.py:1] Automatically detected platform cuda.\n"
        "INFO 03-01 10:00:01 [api_server.py:2] vLLM API server version 0.9.2\n",
        encoding="utf-8",
    )
    answer = suggest(log)
    assert answer.returncode == 65
    assert b"CUDA" in answer.stderr


def test_a_compressed_log_may_come_through_a_pipe(golden: Path) -> None:
    log = golden / "llama8b-gaudi2.log"
    packed = gzip.compress(log.read_bytes())
    piped = subprocess.run(
        [sys.executable, "-m", "hpuwatch", "suggest", "-"],
        input=packed,
        capture_output=True,
        check=True,
    )
    assert b"about 450 KV blocks" in piped.stdout


def test_a_name_that_is_no_text_costs_nothing(golden: Path, tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"n\xff.log")
    shutil.copy(golden / "llama8b-gaudi2.log", log)
    answer = suggest(log, "--format", "json")
    assert (answer.returncode, answer.stderr) == (0, b"")
    (only,) = json.loads(answer.stdout)["reports"]
    assert only["source"]["file"].endswith("n\N{REPLACEMENT CHARACTER}.log")
    assert only["store_read"]


@pytest.mark.parametrize("form", ["html", "text"])
def test_standard_output_may_be_anything(golden: Path, form: str) -> None:
    log = golden / "llama8b-gaudi2.log"
    plain = suggest(log, "--format", form, "--no-store")
    answer = suggest(log, "--format", form, "--no-store", PYTHONIOENCODING="ascii")
    assert (answer.returncode, answer.stderr) == (0, b"")
    said = plain.stdout
    if form == "text":
        said = said.decode().encode("ascii", "replace")
    assert answer.stdout == said


def test_an_unknown_file_is_66(tmp_path: Path) -> None:
    answer = suggest(tmp_path / "none.log")
    assert answer.returncode == 66
    assert answer.stderr.count(b"\n") == 1
    assert b"none.log" in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--format", "yaml"), ("--fail-on", "fatal"), ("--unheard-of",)),
        ("--study", "9" * 5000),
    ],
)
def test_a_wrong_command_line_is_2(golden: Path, arguments: tuple[str, ...]) -> None:
    log = [] if "--study" in arguments else [golden / "llama8b-gaudi2.log"]
    answer = suggest(*log, *arguments)
    assert answer.returncode == 2
    assert b"Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(["--no-store"], []), ([], ["asyncio", "sqlite3"])],
    ids=["--no-store", "remembered"],
)
def test_nothing_heavy_is_imported_for_a_suggestion(
    golden: Path, arguments: list[str], needed: list[str]
) -> None:
    """Only remembering takes a database, and settings that know where it lies."""
    words = ["hpuwatch", "suggest", str(golden / "llama8b-gaudi2.log"), *arguments]
    script = (
        "import sys\n"
        "from hpuwatch.cli import main\n"
        f"sys.argv = {words!r}\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code, ended.code\n"
        "heavy = {'skopt', 'scipy', 'numpy', 'sklearn', 'matplotlib', 'watchdog',\n"
        "         'prometheus_client', 'sqlite3', 'asyncio', 'http.server'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert f"heavy: {needed}" in answer.stderr
