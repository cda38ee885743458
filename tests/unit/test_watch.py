"""One server watched: log and process together, and its last words."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.rules import shipped_rules
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.ending import Output, last_exit_of
from hpuwatch.loop.reason import PHASE_WORDS, reason_of
from hpuwatch.loop.watch import Watch
from hpuwatch.parse.rules import RuleSet
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.last_exit import LastExit
from hpuwatch.state import reduce as module
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import OUT_OF_MEMORY

pytestmark = pytest.mark.unit

AT = "INFO 01-02 03:04:05 [x.py:1]"
VERSION = f"{AT} vLLM API server version 0.26.0\n"
ENGINE = (
    f"{AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
)
LOADING = f"{AT} Starting to load model m...\n"
READY = "INFO:     Application startup complete.\n"
ENDED_0 = ExitRecord(0, None, asked=False, ended_at=1.0)


@functools.cache
def rules() -> RuleSet:
    return shipped_rules()


def bar(done: int, total: int = 4) -> str:
    share = 100 * done // total
    return (
        f"Prompt warmup processing: {share:3d}%|##        | {done}/{total} "
        f"[00:0{done}<00:10,  1.00s/item, {max(0, done - 1)}/{total}]\r"
    )


def watched(*texts: str, owned: bool = True, unwrap: bool = False) -> Watch:
    watch = Watch("ours", rules(), FakeClock(110.0), unwrap=unwrap)
    if owned:
        watch.process(Fact.SPAWNED)
    for second, text in enumerate(texts):
        watch.take(text.encode(), 100.0 + second)
    return watch


def test_before_anything() -> None:
    snapshot = watched(owned=False).snapshot()
    assert snapshot.phase is Phase.STOPPED
    assert snapshot.lines == 0
    assert snapshot.restarts == 0
    assert snapshot.reason == "the server is not running"


def test_the_log_moves_the_phase() -> None:
    watch = watched(VERSION)
    assert watch.snapshot().phase is Phase.STARTING
    watch.take((ENGINE + LOADING).encode(), 101.0)
    assert watch.snapshot().phase is Phase.LOADING
    watch.take((bar(0) + bar(1)).encode(), 102.0)
    snapshot = watch.snapshot()
    assert snapshot.phase is Phase.WARMING
    assert snapshot.reason == "the server warms up: 1 of 4 prompt buckets done"
    watch.take(f"\n{READY}".encode(), 103.0)
    assert watch.snapshot().phase is Phase.READY
    assert watch.snapshot().lines == 5


@pytest.mark.parametrize(
    ("fact", "phase"),
    [
        (Fact.EXITED_UNASKED, Phase.FAILED),
        (Fact.EXITED_AS_ASKED, Phase.STOPPED),
        (Fact.STOP_ASKED, Phase.DRAINING),
    ],
)
def test_the_process_has_the_last_word(fact: Fact, phase: Phase) -> None:
    watch = watched(VERSION, ENGINE, READY)
    watch.process(fact)
    assert watch.snapshot().phase is phase
    watch.take(READY.encode(), 200.0)
    assert watch.snapshot().phase is phase


def test_a_server_that_says_it_stopped_and_was_not_asked() -> None:
    """vLLM leaves with a polite word and exit code 0 when its engine has died."""
    watch = watched(VERSION, ENGINE, READY, "INFO:     Finished server process [7]\n")
    watch.process(Fact.EXITED_UNASKED)
    assert watch.snapshot().phase is Phase.FAILED


def test_a_second_life_in_a_followed_log() -> None:
    watch = watched(VERSION + ENGINE + LOADING + READY, VERSION)
    snapshot = watch.snapshot()
    assert snapshot.phase is Phase.STARTING
    assert snapshot.restarts == 1
    assert len(snapshot.state.starts) == 2


def test_starts_under_the_same_name_before() -> None:
    watch = Watch("ours", rules(), FakeClock(), starts_before=4)
    watch.process(Fact.SPAWNED)
    assert watch.snapshot().restarts == 4


def test_a_line_that_breaks_the_reducer_costs_that_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    watch = watched(VERSION)
    with monkeypatch.context() as patched:
        patched.setattr(module, "reduce", broken)
        watch.take(ENGINE.encode(), 1.0)
    assert watch.snapshot().unparsed_lines == 1
    watch.take(READY.encode(), 2.0)
    assert watch.snapshot().phase is Phase.READY
    assert watch.snapshot().lines == 3


def test_a_traceback_counts_when_output_pauses() -> None:
    watch = watched(VERSION, ENGINE, OUT_OF_MEMORY)
    watch.settle()
    snapshot = watch.snapshot()
    assert snapshot.phase is Phase.FAILED
    assert snapshot.reason.startswith("the server failed: RuntimeError: FATAL ERROR")


def test_the_end_of_the_output_ends_its_last_line() -> None:
    watch = watched(VERSION, ENGINE, READY.rstrip("\n"))
    assert watch.snapshot().phase is not Phase.READY
    watch.close()
    assert watch.snapshot().phase is Phase.READY


def test_envelopes_are_taken_off_where_asked() -> None:
    log = json.dumps({"log": READY, "stream": "stdout", "time": "2026-01-02T03:04:05Z"})
    assert watched(f"{log}\n", unwrap=True).snapshot().phase is Phase.READY
    assert watched(f"{log[:-20]}", unwrap=True).snapshot().phase is Phase.STARTING


def test_the_last_lines_say_something_and_no_secrets() -> None:
    watch = watched(
        "first\nsecond\n\nthird --api-key hunter22222\n",
        'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n',
        bar(1),
        "fourth " + "x" * 1000 + "\n",
    )
    last = watch.last_lines
    assert last[:2] == ("second", "third --api-key ***")
    assert last[2].startswith("fourth")
    assert len(last[2]) <= 300


def test_the_last_lines_say_nothing_to_a_terminal() -> None:
    """They reach stderr, the journal and termination logs; a user's prompt may be in them."""
    hostile = "a\x1b]52;c;ZXZpbA==\x07b\x1b[2Jc\x9b31md\u202ee\x08f\x1bP1;x\x1b\\g"
    assert watched(f"{hostile}\n").last_lines == ("abcdefg",)


@given(st.integers(1, 400), st.randoms())
def test_how_the_output_was_cut_does_not_matter(
    size: int, chance: random.Random
) -> None:
    text = (VERSION + ENGINE + LOADING + bar(1) + bar(2) + "\n" + READY).encode()
    whole = watched(text.decode()).snapshot()
    watch = watched()
    at = 0
    while at < len(text):
        step = chance.randint(1, size)
        watch.take(text[at : at + step], 100.0)
        at += step
    assert replace(watch.snapshot(), state=whole.state) == whole
    assert watch.snapshot().state == whole.state


def test_every_phase_has_a_reason() -> None:
    assert set(PHASE_WORDS) == set(Phase)
    for phase in Phase:
        assert reason_of(phase, None).startswith("the server ")


def ending(
    watch: Watch, end: ExitRecord, spool: Path | None = Path("/s/spool")
) -> LastExit:
    watch.close()
    before: Snapshot = watch.snapshot()
    return last_exit_of(
        before,
        end,
        run="r",
        output=Output(watch.last_lines, spool),
        catalogue=shipped_findings(),
    )


def test_last_words_on_memory_that_ran_out_in_warm_up() -> None:
    watch = watched(VERSION, ENGINE, LOADING, bar(0) + bar(1) + "\n", OUT_OF_MEMORY)
    told = ending(watch, ExitRecord(1, None, asked=False, ended_at=1.0))
    assert told.sentence.startswith(
        "the server ended by itself with exit code 1 in warm-up (prompt bucket 2 of 4): "
        "RuntimeError: FATAL ERROR"
    )
    assert told.phase == "warming"
    assert "VLLM_GRAPH_RESERVED_MEM" in told.next_step
    assert told.next_step.endswith("hpuwatch suggest /s/spool")
    assert told.text().splitlines()[0] == told.sentence
    assert told.text().splitlines()[-1].startswith("next: ")


SPLIT = (
    f"{AT} Free device memory: 80 GiB, 72 GiB usable (gpu_memory_utilization=0.9), 64.8 "
    "GiB reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.9), 16 MiB reserved for KV "
    "cache dummy block 7.184 GiB reserved for usable KV cache\n"
)
SHORT = (
    "ERROR 01-02 03:04:05 [core.py:1] ValueError: To serve at least one request with the "
    "model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than "
    "the available KV cache memory (7.18 GiB). Based on the available memory, the "
    "estimated maximum model length is 58880. Try increasing `gpu_memory_utilization`.\n"
)


def test_last_words_on_a_reserve_that_took_the_kv_cache() -> None:
    """They agree with what ``suggest`` says: the reserve first."""
    watch = watched(VERSION, ENGINE, LOADING, SPLIT, SHORT)
    assert "the graph reserve takes 64.8 GiB" in watch.snapshot().reason
    told = ending(watch, ExitRecord(1, None, asked=False, ended_at=1.0))
    assert told.sentence.endswith(
        ": one request of 131,072 tokens (--max-model-len) needs 16 GiB of KV cache, "
        "7.18 GiB are there: the graph reserve takes 64.8 GiB of the 72 GiB usable "
        "(VLLM_GRAPH_RESERVED_MEM=0.9)"
    )
    assert told.next_step.startswith("Lower VLLM_GRAPH_RESERVED_MEM to 0.10 first")


def test_images_are_warmed_in_steps_not_in_buckets() -> None:
    line = (
        f"{AT} [Warmup][Multimodal][3/36] batch_size:1 seq_len:1600 free_mem:9.1 GiB\n"
    )
    watch = watched(VERSION, ENGINE, LOADING, line)
    assert watch.snapshot().reason == (
        "the server warms up: 2 of 36 multimodal steps done"
    )


def test_last_words_on_an_engine_that_died_and_exit_code_0() -> None:
    watch = watched(VERSION, ENGINE, READY, OUT_OF_MEMORY)
    told = ending(watch, ENDED_0)
    assert "exit code 0 while serving: RuntimeError" in told.sentence


def test_last_words_on_a_stop_that_was_asked_for_are_short() -> None:
    watch = watched(VERSION, ENGINE, READY)
    told = ending(watch, replace(ENDED_0, asked=True))
    assert told.text() == "the server stopped as asked (exit code 0)"


def test_last_words_on_a_kill_from_outside() -> None:
    watch = watched(VERSION, ENGINE, LOADING)
    told = ending(watch, ExitRecord(None, 9, asked=False, ended_at=1.0))
    assert (
        told.sentence == "the server was ended unasked by SIGKILL while loading weights"
    )
    assert "out-of-memory killer" in told.next_step


def test_last_words_on_a_wrong_command_line() -> None:
    watch = watched("vllm: error: unrecognized arguments: --no-such-flag\n")
    told = ending(watch, ExitRecord(2, None, asked=False, ended_at=1.0))
    assert told.lines == ("vllm: error: unrecognized arguments: --no-such-flag",)
    assert told.next_step == "mend the server's command line"


def test_last_words_on_a_command_that_could_not_be_started() -> None:
    end = ExitRecord(69, None, asked=False, ended_at=1.0, error="x: No such file")
    told = ending(watched(), end)
    assert told.sentence == "the server can't be started: x: No such file"
    assert "may be executed" in told.next_step


def test_last_words_where_nobody_knows_the_end() -> None:
    end = ExitRecord(None, None, asked=False, ended_at=1.0)
    told = ending(watched(VERSION, ENGINE, READY), end, spool=None)
    assert (
        told.sentence
        == "the server has ended, and the keeper that would know how is gone"
    )
    assert told.next_step == "read the output above"


def test_the_late_fault_of_the_life_before_is_no_news_of_this_one() -> None:
    dead = (
        "(EngineCore pid=7) Traceback (most recent call last):\n"
        '(EngineCore pid=7)   File "/opt/m.py", line 1, in f\n'
        "(EngineCore pid=7) RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM "
        "Allocation failed for size::1 (1)MB\n"
    )
    again = (
        "(APIServer pid=8) INFO 01-02 03:04:05 [api_utils.py:345]  "
        "\u2584\u2584 \u2584\u2588 \u2588     \u2588     \u2588 \u2580\u2584\u2580 \u2588  version 0.26.0\n"
        "(EngineCore pid=9) INFO 01-02 03:04:06 [core.py:116] Initializing a V1 LLM engine "
        "(v0.26.0) with config: model='m', device_config=hpu\n"
    )
    ready = "INFO:     Application startup complete.\n"
    follow = Watch("x", shipped_rules(), FakeClock())
    follow.take((ready + dead + again).encode(), 1.0)
    begun = follow.snapshot().phase
    follow.take(b"(EngineCore pid=7) gone\n", 2.0)
    follow.close()
    last = follow.snapshot()
    assert [fault.name for fault in last.state.starts[0].faults] == [
        "device_oom_devmem"
    ]
    assert last.state.starts[-1].faults == ()
    assert last.phase is begun is Phase.STARTING
