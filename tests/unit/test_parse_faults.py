"""Tracebacks become one fault each, and consequences are told from causes."""

from __future__ import annotations

import pytest

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.records import Line
from hpuwatch.units import Amount

pytestmark = pytest.mark.unit

RULES = shipped_rules()
HEAD = "(EngineCore_DP0 pid=9) ERROR 02-06 04:08:44 [core.py:946] "
BARE = "(EngineCore_DP0 pid=9) "
OOM = "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB"


def feed(parser: Parser, *texts: str) -> list[Event]:
    first = parser.lines + 1
    lines = [Line(text, number=number) for number, text in enumerate(texts, first)]
    return [event for line in lines for event in parser.feed(line)]


def faults(*texts: str) -> list[Event]:
    parser = Parser(RULES)
    events = feed(parser, *texts) + parser.close()
    return [event for event in events if event.kind == "fault"]


def traceback(head: str, *exceptions: str) -> list[str]:
    lines = []
    for number, exception in enumerate(exceptions):
        if number:
            lines += [
                head,
                head
                + "During handling of the above exception, another exception occurred:",
                head,
            ]
        lines += [
            head + "Traceback (most recent call last):",
            head + '  File "core.py", line 937, in run',
            head + "    run()",
            head + exception,
        ]
    return lines


def test_a_logged_traceback_is_one_fault() -> None:
    (fault,) = faults(*traceback(HEAD, "KeyError: 0"))
    assert fault.fields["name"] == "unknown_exception"
    assert fault.fields["message"] == "KeyError: 0"
    assert fault.fields["root"] is True
    assert fault.line.number == 4
    assert fault.line.text == HEAD + "KeyError: 0"
    assert fault.context[-1] == "KeyError: 0"
    assert fault.context[0] == "Traceback (most recent call last):"


def test_context_is_the_last_lines() -> None:
    lines = traceback(HEAD, "KeyError: 0")
    lines[1:1] = [HEAD + f"    step {n}" for n in range(50)]
    (fault,) = faults(*lines)
    assert len(fault.context) == 12
    assert fault.context[0] == "    step 41"


def test_out_of_memory_says_how_much_was_wanted() -> None:
    (fault,) = faults(*traceback(BARE, OOM))
    assert fault.fields["name"] == "device_oom_devmem"
    assert fault.fields["wanted"] == Amount(2**28, "256 MiB")
    assert fault.fields["severity"] == "fatal"


def test_an_exception_of_an_engine_that_dies_is_fatal() -> None:
    death, fault = faults(
        HEAD + "EngineCore failed to start.", *traceback(HEAD, "KeyError: 0")
    )
    assert (death.fields["name"], death.fields["root"]) == ("engine_dead_v1", False)
    assert (fault.fields["severity"], fault.fields["root"]) == ("fatal", True)


def test_the_same_exception_on_stderr_is_told_once() -> None:
    found = faults(
        *traceback(HEAD, "KeyError: 0"),
        BARE + "Process EngineCore_DP0:",
        *traceback(BARE, "KeyError: 0"),
    )
    assert len(found) == 1


def test_the_same_exception_later_is_told_again() -> None:
    parser = Parser(RULES)
    lines = traceback(BARE, "KeyError: 0")
    said = BARE + "INFO 02-06 04:09:44 [core.py:1] all is well again"
    events = feed(parser, *lines, said, *lines, said)
    assert len([event for event in events if event.kind == "fault"]) == 2


def test_a_traceback_glued_to_a_bar() -> None:
    bar = "Decode warmup processing:   5%|▌    | 1/19 [00:00<00:12,  1.48item/s, 0/19]"
    for head in ("(EngineCore pid=9) ", ""):
        first, *rest = traceback(head, "KeyError: 0")
        (fault,) = faults(f"{head}{bar}{first.removeprefix(head)}", *rest)
        assert len(fault.context) == 4


def test_processes_interleave() -> None:
    one = traceback("(Worker_TP0 pid=1) ", "KeyError: 1")
    two = traceback("(Worker_TP1 pid=2) ", OOM)
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    found = faults(*mixed)
    assert {(f.speaker.pid, f.fields["message"]) for f in found} == {
        (1, "KeyError: 1"),
        (2, OOM),
    }


def test_a_logged_record_between_the_lines_of_a_bare_traceback() -> None:
    lines = traceback("", "KeyError: 0")
    lines[2:2] = ["INFO 02-06 04:08:44 core.py:5] Skipping warmup..."]
    assert [fault.fields["message"] for fault in faults(*lines)] == ["KeyError: 0"]


def test_a_chain_is_one_fault_named_by_what_is_known() -> None:
    (fault,) = faults(
        *traceback(
            BARE,
            "ValueError: invalid literal for int() with base 10: 'many'",
            "RuntimeError: VLLM_DECODE_BS_BUCKET_STEP: failed to process environment variable",
        )
    )
    assert fault.fields["name"] == "bad_env_value"
    assert fault.fields["variable"] == "VLLM_DECODE_BS_BUCKET_STEP"


def test_the_cause_in_a_chain_beats_the_consequence() -> None:
    (fault,) = faults(
        *traceback(BARE, OOM, "RuntimeError: Engine core initialization failed.")
    )
    assert fault.fields["name"] == "device_oom_devmem"


def test_a_message_of_several_lines_belongs_to_it() -> None:
    lines = [
        *traceback(BARE, "RuntimeError: Graph compile failed."),
        BARE + "[Rank:0] raised from x",
    ]
    (fault,) = faults(*lines, BARE + "INFO 02-06 04:08:45 [a.py:1] next")
    assert fault.fields["name"] == "graph_compile_failed"
    assert fault.context[-1] == "[Rank:0] raised from x"
    (fault,) = faults(*traceback(HEAD, "ValueError: two"), HEAD + "lines")
    assert fault.context[-1] == "lines"


@pytest.mark.parametrize(
    "text",
    [
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack "
            "trace (above) for the root cause."
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
            "proc(s): {}"
        ),
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
        "KeyboardInterrupt: MQLLMEngine terminated",
        "asyncio.exceptions.CancelledError",
        "AssertionError: Finished profiling",
    ],
)
def test_consequences_and_wanted_ends_are_no_cause(text: str) -> None:
    (fault,) = faults(*traceback("(APIServer pid=1) ", text))
    assert fault.fields["root"] is False


def test_a_death_after_shutdown_is_no_cause() -> None:
    head = "(APIServer pid=1) "
    found = faults(
        head
        + "INFO 11-29 12:31:29 [launcher.py:100] [shutdown] API server: shutdown triggered",
        *traceback(
            head + "ERROR 11-29 12:31:29 [async_llm.py:704] ",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        ),
    )
    assert [fault.fields["root"] for fault in found] == [False]


def test_a_group_of_exceptions_is_told_by_the_one_inside() -> None:
    head = "(APIServer pid=1) "
    drawn = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "serve.py", line 7, in main',
        "  |     run()",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "bind.py", line 9, in bind',
        "    |     bind()",
        "    | OSError: [Errno 98] Address already in use",
        "    +------------------------------------",
    ]
    (fault,) = faults(*[head + line for line in drawn])
    assert fault.fields["name"] == "port_in_use"
    assert fault.fields["message"] == "OSError: [Errno 98] Address already in use"


def test_ranks_of_a_launcher_and_of_ray_keep_their_tracebacks_apart() -> None:
    (one, two) = faults(
        *[
            line
            for pair in zip(
                traceback("[rank0]: ", "KeyError: 0"),
                traceback("[rank1]: ", OOM),
                strict=True,
            )
            for line in pair
        ]
    )
    assert {(f.speaker.rank, f.fields["message"]) for f in (one, two)} == {
        (0, "KeyError: 0"),
        (1, OOM),
    }
    text = (
        "ray.exceptions.RayTaskError(KeyError): ray::Worker.run() (pid=7, ip=10.0.0.2)"
    )
    (fault,) = faults(*traceback("(RayWorkerWrapper pid=7) ", text))
    assert fault.fields["message"] == text


def test_a_traceback_that_was_only_noted_is_no_fault() -> None:
    head = "DEBUG 02-06 04:08:44 [plugins.py:5] "
    assert faults(*traceback(head, "ImportError: no such module")) == []


def test_a_complete_traceback_is_told_when_output_pauses() -> None:
    parser = Parser(RULES)
    lines = traceback(HEAD, "KeyError: 0")
    assert feed(parser, *lines[:-1]) == []
    assert parser.settle() == []
    assert feed(parser, lines[-1]) == []
    assert [event.kind for event in parser.settle()] == ["fault"]
    assert parser.close() == []


def test_a_traceback_without_its_end_is_dropped() -> None:
    assert faults(*traceback(HEAD, "KeyError: 0")[:-1]) == []


def test_an_endless_traceback_is_given_up() -> None:
    parser = Parser(RULES)
    feed(parser, HEAD + "Traceback (most recent call last):")
    feed(parser, *[HEAD + "    again"] * 6_000)
    feed(parser, HEAD + "KeyError: 0")
    assert parser.close() == []


def test_an_endless_message_is_cut() -> None:
    parser = Parser(RULES)
    events = feed(parser, *traceback(HEAD, "KeyError: 0"), *[HEAD + "more"] * 6_000)
    assert [event.fields["message"] for event in events] == ["KeyError: 0"]


def test_many_open_tracebacks_are_bounded() -> None:
    parser = Parser(RULES)
    for pid in range(500):
        feed(parser, f"(Worker pid={pid}) Traceback (most recent call last):")
    events = feed(parser, "(Worker pid=0) KeyError: 0", "(Worker pid=499) KeyError: 9")
    events += parser.close()
    assert [event.fields["message"] for event in events] == ["KeyError: 9"]


def test_an_exception_beside_its_sentence() -> None:
    parser = Parser(RULES)
    text = (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of "
        "tokens that can be stored in KV cache (54272). Try increasing it."
    )
    events = feed(parser, *traceback(HEAD, text)) + parser.close()
    assert [event.kind for event in events] == ["kv_too_small", "fault"]
    assert events[0].fields["k"] == 54272
    assert events[1].fields["name"] == "kv_short"


@pytest.mark.parametrize(
    ("text", "name", "severity"),
    [
        (
            "Internal Error: Received signal - Segmentation fault",
            "segfault_native",
            "fatal",
        ),
        (
            (
                "ERROR 10-24 07:57:03 w.py:382] Error executing method execute_model. This might "
                "cause deadlock in distributed execution."
            ),
            "deadlock_warning",
            "error",
        ),
        (
            "hcl_factory.cpp::12(init): The condition [ false ] failed. Invalid server type",
            "hccl_error",
            "fatal",
        ),
        ("OSError: [Errno 98] Address already in use", "port_in_use", "fatal"),
        (
            "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.",
            "device_busy",
            "fatal",
        ),
        (
            "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
            "device_acquire_generic",
            "fatal",
        ),
        (
            (
                "[Rank:0] FATAL ERROR :: MODULE:PT_LAZY Error, ValidateSyncInputTensors tensor_data "
                "is empty. Tensorid:12 and more"
            ),
            "lazy_validate_inputs",
            "fatal",
        ),
        (
            "[Rank:0] FATAL ERROR :: MODULE:PT_SYNHELPER text",
            "bridge_fatal_other",
            "fatal",
        ),
    ],
)
def test_faults_without_a_traceback(text: str, name: str, severity: str) -> None:
    (fault,) = faults(text)
    assert (fault.fields["name"], fault.fields["severity"]) == (name, severity)
    assert fault.fields["message"]
