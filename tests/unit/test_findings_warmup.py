"""What the warm-up's findings say of starts that are slow, ended from outside, or repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.advise.ages import lasting
from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit

SLOW = Told(stops_in="decode", stops_after=5, decode_seconds=80.0)
CACHED = "/var/cache/recipes,false,1024"


def found(text: str) -> dict[str, Finding]:
    starts = state_of_text(text).starts
    findings = findings_of(starts[-1], shipped_findings(), starts[:-1])
    assert all(each.lines for each in findings), "a finding without evidence"
    return {each.name: each for each in findings}


def test_a_stop_in_warm_up_is_no_ordinary_one() -> None:
    findings = found(SLOW.ended())
    seen = findings["stopped-early"]
    assert seen.title == (
        "The server was stopped from outside after 473 s in warm-up (decode 5 of 12), "
        "before it was ready"
    )
    after = seen.figures["ready_seconds"]
    assert after.origin == "predicted"
    # 5 s, 60 s of weights, four prompts of 2 s, five decodes of 80 s: seven are to come.
    assert after.value == pytest.approx(473 + 7 * 80)
    assert after.low < after.value < after.high
    probe = seen.numbers["probe_seconds"]
    assert isinstance(probe, int)
    assert probe > after.high
    assert "stopped" not in findings
    assert "No setting of vLLM's memory" in seen.cure
    assert "shutdown" in seen.lines[-1].text


def test_a_stop_while_loading_leaves_open_how_long_it_would_have_taken() -> None:
    seen = found(Told(stops_in="loading").ended())["stopped-early"]
    assert "while loading weights" in seen.title
    assert not seen.figures
    assert "failureThreshold" in seen.cure


def test_a_stop_of_a_server_that_was_ready_is_an_ordinary_one() -> None:
    findings = found(Told().ended("stopped"))
    assert set(findings) == {"stopped"}
    assert "shutdown triggered" in findings["stopped"].lines[0].text


@pytest.mark.parametrize(("starts", "told"), [(2, False), (3, True), (5, True)])
def test_starts_that_always_end_at_one_age_are_ended_by_a_limit(
    starts: int, told: bool
) -> None:
    lives = [replace(SLOW, pid=100 + n, engine_pid=200 + n) for n in range(starts)]
    findings = found("".join(each.ended() for each in lives))
    assert ("restart-loop" in findings) is told
    if told:
        seen = findings["restart-loop"]
        assert seen.severity == "error"
        assert seen.numbers["starts"] == starts
        assert "time limit outside of vLLM" in seen.why
        assert len(seen.lines) == 3


def test_starts_that_end_by_one_fault_are_told_by_it() -> None:
    lives = [replace(SLOW, pid=100 + n, engine_pid=200 + n) for n in range(3)]
    text = "".join(each.dies("KeyError: 7") for each in lives)
    seen = found(text)["restart-loop"]
    assert "KeyError: 7" in seen.title
    assert seen.why == "Each ended by the same cause."
    assert "Mend the cause" in seen.cure


def test_a_start_that_may_still_come_up_is_not_in_the_row() -> None:
    assert "restart-loop" not in found(SLOW.ended() * 2 + SLOW.text())
    assert found(SLOW.ended() * 3 + SLOW.text())["restart-loop"].numbers["starts"] == 3


def test_a_log_without_its_head_tells_no_age() -> None:
    text = "".join(SLOW.ended().splitlines(keepends=True)[12:])
    seen = found(text)["stopped-early"]
    assert seen.title.startswith("The server was stopped from outside in warm-up")
    assert not seen.figures


def test_a_ready_start_breaks_the_row() -> None:
    text = SLOW.ended() + Told().text() + SLOW.ended() + SLOW.ended()
    assert "restart-loop" not in found(text)


@pytest.mark.parametrize(
    ("version", "env", "said"),
    [
        ("0.26.0", {}, "Set VLLM_ENGINE_READY_TIMEOUT_S to 2100 or more"),
        ("0.26.0", {"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}, "the startup probe wait"),
        ("0.13.0", {}, "this release waits no longer"),
    ],
)
def test_a_warm_up_that_outlasts_the_front_end(
    version: str, env: dict[str, str], said: str
) -> None:
    seen = found(replace(SLOW, version=version, env=env).text())["warmup-long"]
    assert said in seen.cure


def test_the_ready_time_is_known_from_a_bar_alone() -> None:
    """The last header stands before the bar; what the bar says has gone by counts too."""
    seen = found(SLOW.text())["not-ready"]
    assert seen.numbers["age_seconds"] == pytest.approx(5 + 60 + 8 + 400)
    assert "about 17 min" in seen.why


def test_a_start_that_took_most_of_the_limit_is_information() -> None:
    seen = found(Told(decode_seconds=38.0).text())["warmup-long"]
    assert seen.severity == "info"
    assert "of the 600 s" in seen.title
    assert "warmup-long" not in found(Told().text())


def test_a_ready_server_that_outlasted_the_limit_was_given_another_one() -> None:
    """The log need not print the variable: what happened proves that it was set."""
    seen = found(Told(decode_seconds=100.0).text())["warmup-long"]
    assert "startup probes" in seen.title
    assert seen.severity == "info"
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in seen.cure


def test_the_last_good_start_tells_how_long_the_next_one_takes() -> None:
    before = Told(decode_seconds=90.0, env={"VLLM_ENGINE_READY_TIMEOUT_S": "3600"})
    seen = found(before.text() + Told(stops_in="loading").text())["not-ready"]
    after = seen.figures["ready_seconds"]
    assert after.origin == "learned"
    assert after.value == pytest.approx(before.seconds)


def test_a_front_end_that_gave_up_is_told_how_long_it_should_have_waited() -> None:
    gave_up = (
        "TimeoutError: Timed out waiting for engine core processes to start. This is "
        "often caused by slow weight loading for large models. Waited 600s (configured "
        "by VLLM_ENGINE_READY_TIMEOUT_S)."
    )
    findings = found(SLOW.dies(gave_up))
    assert ("VLLM_ENGINE_READY_TIMEOUT_S", "raise") in {
        (each.knob, each.change) for each in findings["warmup-timeout"].helps
    }
    seen = findings["warmup-long"]
    assert seen.figures["ready_seconds"].value == pytest.approx(473 + 7 * 80)
    assert seen.numbers["advised_seconds"] == 2100


def test_buckets_with_lines_of_their_own_are_timed_by_their_headers() -> None:
    """A developer's log has no bars, and read from a file no times but the headers'."""
    head = Told(stops_in="prompt").text().splitlines(keepends=True)[:-1]
    lines = [
        f"(EngineCore pid=30) INFO 03-04 10:{2 + n:02d}:00 [r.py:1] "
        f"[Warmup][Decode][{n + 1}/12] batch_size:8 query_len:1 num_blocks:{256 - n} "
        "free_mem:20 GiB\n"
        for n in range(6)
    ]
    seen = found("".join((*head, *lines)))["not-ready"]
    after = seen.figures["ready_seconds"]
    # 7 min have gone by, and of twelve decodes of a minute each seven are to come.
    assert after.value == pytest.approx(7 * 60 + 7 * 60)
    assert after.low < after.value < after.high


def test_slower_buckets_name_the_setting_that_differs() -> None:
    before = Told(env={"RUNTIME_SCALE_PATCHING": "1"})
    now = Told(stops_in="decode", stops_after=6, decode_seconds=15.0)
    seen = found(before.text() + now.text())["warmup-slow"]
    assert "15 times" in seen.title
    assert "RUNTIME_SCALE_PATCHING 1 → unset" in seen.cure
    assert any("RUNTIME_SCALE_PATCHING: 1" in line.text for line in seen.lines)
    assert "to stop it now saves" in seen.why


def test_slower_buckets_without_a_difference_point_at_what_no_log_prints() -> None:
    text = Told().text() + Told(decode_seconds=15.0).text()
    assert "FUSER_ENABLE_MULTI_THREADED_INVOCATIONS" in found(text)["warmup-slow"].cure


@pytest.mark.parametrize(
    "now",
    [
        Told(decode_seconds=2.0),  # not three times
        Told(decode_seconds=15.0, model="acme/other"),  # another server
        Told(decode_seconds=4.0, decode=((1, 1, 64),) * 3),  # not felt
    ],
)
def test_what_is_not_slow(now: Told) -> None:
    assert "warmup-slow" not in found(Told().text() + now.text())


def test_a_long_warm_up_without_a_recipe_cache() -> None:
    findings = found(Told(recipes="", decode_seconds=30.0).text())
    seen = findings["recipes-unset"]
    then = seen.figures["warmup_seconds_then"]
    assert then.origin == "prior"
    assert then.high < 368
    assert seen.lines[0].number == 4
    # Without the bridge's line nobody knows, and a short warm-up needs none.
    assert "recipes-unset" not in found(Told(decode_seconds=30.0).text())
    assert "recipes-unset" not in found(Told(recipes="").text())
    assert "recipes-unset" not in found(
        Told(recipes=CACHED, decode_seconds=30.0).text()
    )


def test_other_blocks_make_cached_decodes_useless() -> None:
    before, now = Told(recipes=CACHED), Told(recipes=CACHED, blocks=4000)
    seen = found(before.text() + now.text())["recipes-recompiled"]
    assert "from 4,146 to 4,000" in seen.title
    assert "--num-gpu-blocks-override" in seen.cure
    assert "recipes-recompiled" not in found(before.text() + before.text())
    assert "recipes-recompiled" not in found(Told().text() + Told(blocks=4000).text())


@pytest.mark.parametrize(
    ("folder", "is_remote"),
    [
        ("/mnt/nfs/recipes", True),
        ("/data/pvc-7f/recipes", True),
        ("//filer/share", True),
        ("/net/filer/recipes", True),
        ("/var/cache/recipes", False),
        ("/tmp/confuse/x", False),  # noqa: S108  a folder's name
    ],
)
def test_a_cache_on_what_looks_like_a_network(folder: str, is_remote: bool) -> None:
    findings = found(Told(recipes=f"{folder},false,1024").text())
    assert ("recipes-remote" in findings) is is_remote
    if is_remote:
        assert folder in findings["recipes-remote"].title


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (599, "599 s"),
        (1033, "17 min"),
        (18_000, "5.0 h"),
        (3e5, "3.5 days"),
    ],
)
def test_times_as_people_say_them(seconds: float, said: str) -> None:
    assert lasting(seconds) == said
