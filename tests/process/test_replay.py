"""``hpuwatch replay`` as a user meets it: it goes on answering until it is asked to stop."""

from __future__ import annotations

import json
from pathlib import Path

from hpuwatch.testing.programs import OURS, Programs, get, until

LOG = (
    "(EngineCore pid=7) INFO 11-29 12:00:00 [hpu_worker.py:1] Starting to load model x...\n"
    "(EngineCore pid=7) INFO 11-29 13:00:00 [hpu_worker.py:1] nobody knows this\n"
    "(APIServer pid=7) INFO:     Application startup complete.\n"
)


def test_it_answers_until_it_is_asked_to_stop(
    programs: Programs, tmp_path: Path
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOG)
    argv = [*OURS, "replay", str(log), "--listen", "127.0.0.1:0"]
    program = programs.program(argv)
    until(program.base)
    until(lambda: program.metric("hpuwatch_log_lines_total") == 1)
    assert program.metric("hpuwatch_replayed") == 1
    assert json.loads(get(f"{program.base()}/readyz")[1])["phase"] == "loading"
    program.ask()  # the next line is an hour away
    assert program.wait() == 0
    assert program.out == b""
