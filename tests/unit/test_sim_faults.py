"""Faults on demand, each by its disaster's name, in this process and in no time."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError, ResourceError
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.faults.cards import Cards
from hpuwatch.sim.faults.case import Case, Reading
from hpuwatch.sim.faults.errors import ERRORS, text_of
from hpuwatch.sim.faults.fault import Fault, When
from hpuwatch.sim.faults.live import LiveFaults
from hpuwatch.sim.faults.scenario import read_fault, read_scenario
from hpuwatch.sim.hooks import Faults, Moment, Phase
from hpuwatch.sim.serve.stats import Stats
from hpuwatch.sim.server import Server, run
from hpuwatch.sim.signals import Signals
from hpuwatch.sim.talk.script import load_script
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.testing.clock import FakeClock
from hpuwatch.units import GIB, MIB

pytestmark = pytest.mark.unit

_SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048", "--noise", "0")
_COLD = {"VLLM_SKIP_WARMUP": "true"}


@dataclass
class Life:
    """A whole server that lives in this process."""

    server: Server
    clock: FakeClock
    printed: io.StringIO
    ended: asyncio.Task[int]

    @property
    def text(self) -> str:
        return self.printed.getvalue()

    @property
    def faults(self) -> LiveFaults:
        assert isinstance(self.server.faults, LiveFaults)
        return self.server.faults

    @property
    def port(self) -> int:
        return int(
            re.findall(r"Starting vLLM server on http://[\d.]+:(\d+)", self.text)[0]
        )

    async def till(self, true: Callable[[], bool]) -> None:
        for _ in range(3000):
            if true() or self.ended.done():
                break
            await asyncio.sleep(0.001)
        assert true(), self.text

    async def until(self, words: str) -> None:
        await self.till(lambda: words in self.text)

    async def ready(self) -> None:
        await self.until("Application startup complete")

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        return await _ask(self.port, method, path, body)

    async def complete(self, tokens: int = 4) -> tuple[int, str]:
        asked = {"prompt": "a b c", "max_tokens": tokens, "ignore_eos": True}
        return await self.ask("POST", "/v1/completions", asked)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.server.signals.take(number)
        return await asyncio.wait_for(self.ended, 5)


async def _ask(port: int, method: str, path: str, body: object) -> tuple[int, str]:
    """Send one request on a connection of its own and read until it is closed."""
    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(data)}"
        "\r\nContent-Type: application/json"
    )
    try:
        writer.write(head.encode() + b"\r\n\r\n" + data)
        answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    finally:
        writer.close()
    top, _, rest = answer.partition("\r\n\r\n")
    return int(top.split(" ")[1]), rest


def _scenario(folder: Path, *faults: Mapping[str, object]) -> str:
    path = folder / "faults.yaml"
    path.write_text(yaml.safe_dump({"faults": list(faults)}), encoding="utf-8")
    return str(path)


@asynccontextmanager
async def _living(
    folder: Path,
    *faults: Mapping[str, object],
    more: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Life]:
    words = [*_SMALL, "--port", "0", "--speed", "1e12", *more]
    words += ["--faults", _scenario(folder, *faults)]
    printed, clock = io.StringIO(), FakeClock()
    options = parse_options(words, dict(env or {}))
    server = Server(options, clock, {"stdout": printed, "stderr": printed})
    life = Life(server, clock, printed, asyncio.ensure_future(server.run()))
    try:
        yield life
    finally:
        life.ended.cancel()
        await asyncio.gather(life.ended, return_exceptions=True)


def _whole(folder: Path, *faults: Mapping[str, object], **env: str) -> tuple[int, str]:
    """Live until the end and return the exit code and what was printed."""

    async def live() -> tuple[int, str]:
        async with _living(folder, *faults, env=env) as life:
            code = await asyncio.wait_for(life.ended, 10)
            return code, life.text

    return asyncio.run(live())


# The scenario file.


def test_every_mistake_of_a_scenario_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        """\
faults:
  - fault: hang
    how: never
  - fault: die
    signal: SIGNOPE
  - fault: engine-fails
    error: bad-luck
  - fault: silent
    when: {index: 3}
  - fault: leak
  - fault: earthquake
  - fault: flood
    when: {seconds: 3, requests: 2}
  - fault: bad-bytes
    hex: xyz
  - fault: slow-stop
    seconds: -1
  - fault: hang
    loudly: true
  - fault: hang
    when: {phase: prompt, times: 2}
  - fault: hang
    when: {every: 2}
  - fault: silent
    when: {since: ready}
  - fault: die
    exit: 3
    process: engine
  - fault: hang
    for_seconds: 1
    for_real_seconds: 1
""",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        read_scenario(str(path))
    told = str(caught.value)
    lines = {int(line) for line in re.findall(rf"{path}:(\d+): ", told)}
    assert lines == {3, 5, 7, 9, 10, 11, 13, 15, 17, 19, 21, 23, 25, 26, 29}
    for words in ("'SIGNOPE' is no signal", "index belongs to a phase", "keep one"):
        assert words in told
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "can't be read"),
        ("faults: [", "faults.yaml:1: no YAML"),
        ("- hang", "faults.yaml:1: Input should be a valid"),
        ("fault: []", "faults: Field required"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "faults.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(words)):
        read_scenario(str(path))


def test_the_documented_faults_are_those_that_exist(checkout: Path) -> None:
    page = (checkout / "docs" / "faults.md").read_text(encoding="utf-8")
    table = page.partition("## The faults")[2].partition("## ")[0]
    told = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    mistake = re.search(r"expected tags: (.*)", str(_refusal({"fault": "?"})))
    assert mistake is not None
    assert told == set(re.findall(r"'([a-z-]+)'", mistake[1]))


def test_the_documented_scenario_is_one(checkout: Path, tmp_path: Path) -> None:
    page = (checkout / "docs" / "faults.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        path = tmp_path / "example.yaml"
        path.write_text(example, encoding="utf-8")
        assert read_scenario(str(path))


def _refusal(value: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_fault(value)
    return caught.value


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "flood", "lines_per_second": 10**9},
        {"fault": "clock-jump", "seconds": float("inf")},
        {"fault": "memory-taken", "leave_gib": 1e300},
        {"fault": "leak", "mib_per_second": 1e300},
        {"fault": "hang", "when": {"seconds": float("nan")}},
        {"fault": "refuse-answer", "status": 499},
    ],
)
def test_amounts_that_nothing_could_bear_are_refused(fault: object) -> None:
    assert "Input should be" in str(_refusal(fault))


def test_faults_that_would_do_nothing_are_refused() -> None:
    for name in ("SIGWINCH", "SIGSTOP", "SIGPIPE"):
        assert f"nobody dies of {name}" in str(
            _refusal({"fault": "die", "signal": name})
        )
    mild = {"fault": "refuse-answer", "status": 204}
    assert "204 refuses nothing" in str(_refusal(mild))


# When faults strike.


def _strikes(when: Mapping[str, object], readings: Sequence[Reading]) -> list[int]:
    """Return at which of the readings a fault strikes."""
    case = Case(1, Fault(fault="any", when=When.model_validate(when)))
    struck, ready = [], None
    for number, reading in enumerate(readings):
        if ready is None and reading.now.phase == "serve":
            ready = reading
        if case.is_due(reading, ready):
            case.begin(reading)
            struck.append(number)
    return struck


def _at(phase: str, index: int = 0, seconds: float = 0.0, requests: int = 0) -> Reading:
    return Reading(Moment(phase, index), seconds, seconds / 100, requests)


def test_a_fault_without_a_moment_strikes_at_once_and_once() -> None:
    assert _strikes({}, [_at("import"), _at("engine")]) == [0]


def test_a_fault_strikes_at_its_bucket_or_the_next_one_that_comes() -> None:
    walk = [_at("load"), *(_at("prompt", i) for i in (1, 2, 4, 5)), _at("decode", 1)]
    assert _strikes({"phase": "prompt"}, walk) == [1]
    assert _strikes({"phase": "prompt", "index": 3}, walk) == [3]
    assert _strikes({"phase": "decode", "index": 2}, walk) == []


def test_seconds_since_ready_begin_when_it_is_ready() -> None:
    walk = [_at("load", 0, 50), _at("serve", 0, 100), _at("serve", 1, 109)]
    walk.append(_at("serve", 2, 110))
    assert _strikes({"seconds": 10, "since": "ready"}, walk) == [3]
    assert _strikes({"seconds": 10}, walk) == [0]
    assert _strikes({"real_seconds": 1}, walk) == [1]


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 5)),
    st.lists(st.integers(1, 4), max_size=30),
)
def test_every_so_many_requests_never_more_often_than_asked(
    first: int, every: int, times: int | None, steps: list[int]
) -> None:
    counts = [sum(steps[: i + 1]) for i in range(len(steps))]
    when = {"requests": first, "every": every}
    when |= {} if times is None else {"times": times}
    struck = _strikes(when, [_at("serve", 1, requests=n) for n in counts])
    thresholds = {(n - first) // every for n in counts if n >= first}
    assert len(struck) == min(len(thresholds), times or len(thresholds))
    assert all(counts[at] >= first for at in struck)


# A start that goes wrong.


@pytest.mark.parametrize(
    "phase", ["engine", "load", "profile", "kv", "prompt", "decode"]
)
def test_the_card_runs_out_in_each_phase(tmp_path: Path, phase: str) -> None:
    fault = {"fault": "engine-fails", "error": "device-oom", "when": {"phase": phase}}
    code, text = _whole(tmp_path, fault)
    assert code == 1
    assert "PT_DEVMEM Allocation failed for size::268435456 (256)MB" in text
    assert "Engine core initialization failed" in text.splitlines()[-1]


@pytest.mark.parametrize("error", ERRORS)
def test_a_start_fails_in_the_words_of_real_ones(tmp_path: Path, error: str) -> None:
    when = {"phase": "prompt", "index": 3}
    code, text = _whole(
        tmp_path, {"fault": "engine-fails", "error": error, "when": when}
    )
    assert code == 1
    voice = Voice(load_script(), lambda: 0.0, {})
    assert text_of(error, voice, 256 * MIB) in text
    assert re.search(r"Prompt warmup processing: .* 2/\d+ ", text)


def test_the_texts_are_those_of_real_logs(shared: Path) -> None:
    catalogue = yaml.safe_load((shared / "reference/faults.yaml").read_text("utf-8"))
    known = "\n".join(str(fault["example"]) for fault in catalogue["faults"])
    voice = Voice(load_script(), lambda: 0.0, {})
    for error in ERRORS:
        text = text_of(error, voice, 256 * MIB)
        assert text in known or text.removeprefix("RuntimeError: ") in known, error


def test_a_cache_too_small_for_one_request_by_somebody_elses_memory(
    tmp_path: Path,
) -> None:
    taken = {"fault": "memory-taken", "leave_gib": 0.2, "when": {"phase": "profile"}}
    code, text = _whole(tmp_path, taken)
    assert code == 1
    assert "KV cache is needed, which is larger than the available KV cache" in text
    nothing = {"fault": "memory-taken", "when": {"phase": "profile"}}
    assert "No available memory for the cache blocks" in _whole(tmp_path, nothing)[1]


@pytest.mark.parametrize("phase", ["load", "kv", "prompt"])
def test_what_comes_next_does_not_fit_on_a_card_that_others_filled(
    tmp_path: Path, phase: str
) -> None:
    code, text = _whole(tmp_path, {"fault": "memory-taken", "when": {"phase": phase}})
    assert code == 1
    assert "PT_DEVMEM Allocation failed for size::" in text


def test_a_device_that_a_killed_server_left_is_busy_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    env = {"HABANA_VISIBLE_DEVICES": "0,1"}
    folder, dead, lives = str(tmp_path), [2**22 + 1], [1]
    killed = Cards(env, folder, clock, dead)
    assert killed.take(10)
    clock.seconds += 5
    killed.touch()  # and then it is killed
    clock.seconds += 9
    one = {"HABANA_VISIBLE_DEVICES": "1"}
    assert not Cards(one, folder, clock, lives).take(10)
    assert Cards({"HABANA_VISIBLE_DEVICES": "2"}, folder, clock, lives).take(10)
    clock.seconds += 2
    orderly = Cards(one, folder, clock, dead)
    assert orderly.take(10)
    orderly.release()
    assert Cards(one, folder, clock, lives).take(10)


def test_a_start_on_a_busy_device_fails(tmp_path: Path) -> None:
    clock = FakeClock()
    Cards({}, str(tmp_path), clock, [2**22 + 1]).take(10)
    busy = {
        "fault": "device-busy",
        "folder": str(tmp_path),
        "when": {"phase": "engine"},
    }
    code, text = _whole(tmp_path, busy)
    assert code == 1
    assert "synStatus=20 [Device already acquired] Device acquire failed." in text
    assert (tmp_path / "card-all").exists()  # it belongs to the other one


def test_a_hang_in_warmup_lasts_as_long_as_it_was_told_to(tmp_path: Path) -> None:
    async def seconds(*faults: Mapping[str, object]) -> float:
        async with _living(tmp_path, *faults) as life:
            await life.ready()
            return life.server.world.pace.passed

    hang = {
        "fault": "hang",
        "when": {"phase": "prompt", "index": 2},
        "for_seconds": 500,
    }
    usual = asyncio.run(seconds())
    assert asyncio.run(seconds(hang)) == pytest.approx(usual + 500, rel=0.01)


def test_a_hang_that_blocks_the_whole_process(tmp_path: Path) -> None:
    hang = {"fault": "hang", "how": "blocks", "for_real_seconds": 5}

    async def live() -> None:
        async with _living(tmp_path, hang | {"when": {"phase": "kv"}}) as life:
            await life.ready()
            assert sum(life.clock.waits) == pytest.approx(5, abs=0.05)

    asyncio.run(live())


def test_a_hang_without_an_end_is_one_until_it_is_lifted(tmp_path: Path) -> None:
    async def live() -> None:
        hang = {"fault": "hang", "when": {"phase": "decode", "index": 1}}
        async with _living(tmp_path, hang) as life:
            await life.until("Graph/Prompt captured")
            for _ in range(100):
                await asyncio.sleep(0)
            before = life.text
            await asyncio.sleep(0.02)
            assert life.text == before
            assert life.faults.now == Moment("decode", 1)
            life.clock.seconds += 10  # it waited for real, the clock didn't know
            assert life.faults.drop(1)
            await life.ready()

    asyncio.run(live())


def test_each_fault_gives_back_what_it_took_itself(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    busy: list[dict[str, object]] = [
        {"fault": "device-busy", "folder": str(folder)} for folder in folders
    ]
    taken = [{"fault": "memory-taken", "leave_gib": gib} for gib in (9, 4, 1)]

    async def live() -> None:
        more = ("--serving-speed", "1")
        async with _living(tmp_path, *busy, busy[0], more=more, env=_COLD) as life:
            await life.ready()
            memory, faults = life.server.world.memory, life.faults
            faults.leak(GIB)
            used_bytes = memory.used_bytes
            for fault in taken:
                faults.add(read_fault(fault))
            faults.look()
            assert memory.free_bytes == GIB
            for number, gib in ((5, 6), (4, None), (6, None)):
                assert faults.drop(number)
                assert gib is None or memory.free_bytes == gib * GIB
            assert memory.used_bytes == used_bytes
            assert faults.drop(1)
            assert [any(folder.iterdir()) for folder in folders] == [False, True]
            life.clock.seconds += 1
            faults.look()  # the third keeps them, too
            assert [any(folder.iterdir()) for folder in folders] == [True, True]
            assert await life.stop() == 0

    asyncio.run(live())
    assert not any(path.is_file() for folder in folders for path in folder.iterdir())


# A fault or a task that fails is heard of.


def test_a_fault_that_can_not_strike_is_the_end_of_a_server(tmp_path: Path) -> None:
    class Broken(Fault):
        def strike(self, _: LiveFaults) -> None:
            raise ZeroDivisionError

    async def idle() -> None:
        async with _living(tmp_path, env=_COLD) as life:
            await life.ready()
            life.faults.add(Broken(fault="broken"))
            await asyncio.wait_for(life.ended, 5)

    async def starting() -> None:
        async with _living(tmp_path) as life:
            life.faults.add(Broken(fault="broken"))
            await asyncio.wait_for(life.ended, 5)

    for live in (idle, starting):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(live())


def test_statistics_that_can_not_be_told_are_the_end_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_stats: Stats) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Stats, "tell", broken)

    async def live() -> None:
        async with _living(tmp_path, env=_COLD) as life:
            await life.ready()
            life.clock.seconds += 1
            await asyncio.wait_for(life.ended, 5)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(live())


def test_cards_without_a_place_for_stamps_are_refused(tmp_path: Path) -> None:
    busy = {"fault": "device-busy", "folder": "/proc/nowhere"}
    told = str(_refusal(busy))
    assert "folder: '/proc/nowhere': no stamps can be kept there" in told
    with pytest.raises(ConfigError, match=r"faults.yaml:3: device-busy.folder: '/proc"):
        read_scenario(_scenario(tmp_path, busy))
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    kept = read_fault({"fault": "device-busy", "folder": str(occupied)})
    occupied.rmdir()
    occupied.touch()

    async def live() -> None:
        async with _living(tmp_path, env=_COLD) as life:
            await life.ready()
            life.faults.add(kept)
            await asyncio.wait_for(life.ended, 5)

    with pytest.raises(ConfigError, match="occupied: no stamps can be kept there"):
        asyncio.run(live())


# Output that goes wrong.


def test_it_stops_printing_and_lives_on(tmp_path: Path) -> None:
    silent = {"fault": "silent", "when": {"phase": "prompt", "index": 2}}

    async def live() -> str:
        async with _living(tmp_path, silent) as life:
            await life.till(lambda: life.faults.now.phase == "serve")
            return life.text

    text = asyncio.run(live())
    assert "Prompt warmup processing" in text
    assert "Decode warmup processing" not in text


def test_half_a_line_and_then_silence(tmp_path: Path) -> None:
    half = {"fault": "half-line", "when": {"phase": "load"}}

    async def live() -> str:
        async with _living(tmp_path, half) as life:
            await life.till(lambda: life.faults.now.phase == "serve")
            return life.text

    whole = asyncio.run(_text_of_a_start(tmp_path))
    text = asyncio.run(live())
    cut = whole.splitlines()[len(text.splitlines()) - 1]
    last = text.splitlines()[-1]
    assert not text.endswith("\n")
    assert cut.startswith(last)
    assert 0 < len(last) < len(cut)


async def _text_of_a_start(folder: Path, *faults: Mapping[str, object]) -> str:
    async with _living(folder, *faults) as life:
        await life.ready()
        return life.text


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    bad = {"fault": "bad-bytes", "hex": "ff00fe", "when": {"phase": "kv"}}
    assert "\xff\x00\xfe" in asyncio.run(_text_of_a_start(tmp_path, bad))


def test_text_that_the_output_can_not_encode_is_printed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.TextIOWrapper(io.BytesIO(), "ascii")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", printed)
    fails = {
        "fault": "engine-fails",
        "text": "Error: é \ud800",
        "when": {"phase": "kv"},
    }
    place = tmp_path / "faults.yaml"
    place.write_text(json.dumps({"faults": [fails]}), encoding="ascii")
    words = [*_SMALL, "--port", "0", "--speed", "1e12", "--faults", str(place)]
    assert run(words, {}) == 1
    printed.seek(0)
    assert "Error: \\xe9 \\ud800" in printed.read()


def test_a_flood_of_lines(tmp_path: Path) -> None:
    flood = {"fault": "flood", "line": "drip", "when": {"phase": "load"}}

    async def live() -> int:
        async with _living(tmp_path, flood) as life:
            await life.ready()
            life.clock.seconds += 0.5
            life.faults.look()
            return life.text.count("drip\n")

    assert asyncio.run(live()) == 50_000


def test_a_flood_does_not_make_up_for_a_pause(tmp_path: Path) -> None:
    flood = {"fault": "flood", "line": "drip", "lines_per_second": 1000}

    async def live() -> int:
        async with _living(tmp_path, flood) as life:
            await life.ready()
            life.clock.seconds += 1e6
            life.faults.look()
            return life.text.count("drip\n")

    assert asyncio.run(live()) == 1000


def test_a_leap_over_all_years_is_no_crash(tmp_path: Path) -> None:
    leap = {"fault": "clock-jump", "seconds": 1e10, "when": {"phase": "kv"}}
    assert "Application startup complete" in asyncio.run(
        _text_of_a_start(tmp_path, leap)
    )


def test_the_clock_leaps_back_and_forth_again(tmp_path: Path) -> None:
    leap = {"fault": "clock-jump", "seconds": -86_400.0, "for_seconds": 60}
    text = asyncio.run(
        _text_of_a_start(tmp_path, leap | {"when": {"phase": "prompt", "index": 2}})
    )
    days = re.findall(r"INFO (\d\d-\d\d) ", text)
    assert len(set(days)) == 2
    assert days[0] == days[-1]


# A server that goes wrong while it serves.


def test_the_engine_dies_while_the_api_lives(tmp_path: Path) -> None:
    fails = {"fault": "engine-fails", "error": "graph-compile", "when": {"requests": 2}}

    async def live() -> None:
        async with _living(tmp_path, fails, env=_COLD) as life:
            await life.ready()
            assert (await life.complete())[0] == 200
            status, body = await life.complete(2000)
            assert status == 500
            assert "EngineCore" in body
            assert await asyncio.wait_for(life.ended, 5) == 0
            assert "Graph compile failed. synStatus" in life.text
            assert "EngineDeadError" in life.text

    asyncio.run(live())


def test_an_idle_engine_dies_too_and_health_says_so(tmp_path: Path) -> None:
    killed = {"fault": "die", "process": "engine", "when": {"real_seconds": 5}}

    async def live() -> None:
        more = ("--serving-speed", "10")
        async with _living(tmp_path, killed, more=more, env=_COLD) as life:
            await life.ready()
            assert (await life.ask("GET", "/health"))[0] == 200
            life.clock.seconds += 5
            await life.until("engine core exited unexpectedly")
            assert (await life.ask("GET", "/health"))[0] == 503
            assert await asyncio.wait_for(life.ended, 5) == 0

    asyncio.run(live())


def test_a_leak_ends_in_out_of_memory(tmp_path: Path) -> None:
    leak = {"fault": "leak", "mib_per_second": 1000, "when": {"phase": "serve"}}

    async def live() -> None:
        async with _living(tmp_path, leak, env=_COLD) as life:
            await life.ready()
            await life.complete(2000)
            for _ in range(3):
                life.clock.seconds += 1e-6  # simulated time runs far ahead of it
                await asyncio.sleep(0.03)
            assert await asyncio.wait_for(life.ended, 5) == 0
            assert "PT_DEVMEM Allocation failed" in life.text

    asyncio.run(live())


def test_the_engine_hangs_and_health_stays_well(tmp_path: Path) -> None:
    hang = {"fault": "hang", "when": {"phase": "serve", "index": 2}}

    async def live() -> None:
        async with _living(tmp_path, hang, env=_COLD) as life:
            await life.ready()
            asked = asyncio.ensure_future(life.complete(2000))
            await life.till(lambda: life.faults.now == Moment("serve", 2))
            assert (await life.ask("GET", "/health"))[0] == 200
            first = await life.ask("GET", "/metrics")
            second = await life.ask("GET", "/metrics")
            name = r"vllm:generation_tokens_total\{.*\} (\S+)"
            assert re.findall(name, first[1]) == re.findall(name, second[1])
            assert not asked.done()
            life.clock.seconds += 10
            life.faults.drop(1)
            assert (await asked)[0] == 200

    asyncio.run(live())


def test_health_is_refused_and_metrics_give_no_answer(tmp_path: Path) -> None:
    refuses = {"fault": "refuse-answer", "path": "/health", "when": {"phase": "ready"}}
    mute = {"fault": "no-answer", "path": "/metrics", "when": {"phase": "ready"}}

    async def live() -> None:
        async with _living(tmp_path, refuses, mute, env=_COLD) as life:
            await life.ready()
            assert (await life.ask("GET", "/health"))[0] == 503
            waiting = asyncio.ensure_future(life.ask("GET", "/metrics"))
            assert (await life.complete())[0] == 200
            assert not waiting.done()
            assert life.faults.drop(2)
            assert (await waiting)[0] == 200

    asyncio.run(live())


def test_metrics_come_late(tmp_path: Path) -> None:
    slow = {"fault": "slow-answer", "path": "/metrics", "real_seconds": 0.05}

    async def live() -> None:
        async with _living(tmp_path, slow, env=_COLD) as life:
            await life.ready()
            late = asyncio.ensure_future(life.ask("GET", "/metrics"))
            assert (await life.ask("GET", "/health"))[0] == 200
            assert not late.done()
            assert (await late)[0] == 200

    asyncio.run(live())


# Stops.


def test_a_lost_abort_race_waits_until_the_clients_hang_up(tmp_path: Path) -> None:
    async def live() -> None:
        more = ("--serving-speed", "200")
        lost = {"fault": "abort-race-lost"}
        async with _living(tmp_path, lost, more=more, env=_COLD) as life:
            await life.ready()
            asked = asyncio.ensure_future(life.complete(2000))
            await life.till(lambda: life.faults.reading().requests > 0)
            running = {str(task.get_coro()) for task in asyncio.all_tasks()}
            assert any("Engine.run" in each for each in running)
            life.server.signals.take(signal.SIGTERM)
            await life.until("Waiting for connections to close")
            running = {str(task.get_coro()) for task in asyncio.all_tasks()}
            assert not any("Engine.run" in each for each in running)
            assert not asked.done()
            assert not life.ended.done()
            life.server.signals.take(signal.SIGTERM)
            await asyncio.sleep(0.02)
            assert not life.ended.done()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            life.server.signals.take(signal.SIGINT)
            assert await asyncio.wait_for(life.ended, 5) == 0

    asyncio.run(live())


def test_sigterm_is_ignored_for_good(tmp_path: Path) -> None:
    async def live() -> None:
        async with _living(tmp_path, {"fault": "ignore-sigterm"}, env=_COLD) as life:
            await life.ready()
            life.server.signals.take(signal.SIGTERM)
            await asyncio.sleep(0.02)
            assert (await life.ask("GET", "/health"))[0] == 200
            assert await life.stop(signal.SIGINT) == 0

    asyncio.run(live())


def test_an_engine_that_is_slow_to_end(tmp_path: Path) -> None:
    async def seconds(*faults: Mapping[str, object]) -> float:
        async with _living(tmp_path, *faults, env=_COLD) as life:
            await life.ready()
            before = life.server.world.pace.passed
            assert await life.stop() == 0
            return life.server.world.pace.passed - before

    assert asyncio.run(seconds()) == pytest.approx(0.7)
    slow = {"fault": "slow-stop", "seconds": 40}
    assert asyncio.run(seconds(slow)) == pytest.approx(40.7)


@pytest.mark.parametrize(
    ("phase", "signals", "dies_of"),
    [
        ("import", [signal.SIGTERM], signal.SIGTERM),
        ("import", [signal.SIGINT], signal.SIGINT),
        ("load", [signal.SIGTERM, signal.SIGTERM], None),
        ("prompt", [signal.SIGINT], None),
        ("prompt", [signal.SIGINT, signal.SIGINT], signal.SIGINT),
    ],
)
def test_signals_before_it_is_ready(
    phase: str, signals: list[signal.Signals], dies_of: signal.Signals | None
) -> None:
    died: list[signal.Signals] = []
    faults = Faults()
    faults.now = Moment(phase)
    heard = Signals(faults, died.append)
    for number in signals:
        heard.take(number)
    assert died == ([dies_of] if dies_of else [])
    assert not heard.asked.is_set()


@pytest.mark.parametrize(
    "release",
    [
        "fork-1.18",
        "fork-1.21",
        "fork-1.22",
        "plugin-0.11",
        "plugin-0.19",
        "plugin-head",
    ],
)
def test_every_release_fails_dies_and_stops(tmp_path: Path, release: str) -> None:
    more = ("--release", release)

    async def end(fault: Mapping[str, object], *, stops: bool) -> tuple[int, str]:
        async with _living(tmp_path, fault, more=more, env=_COLD) as life:
            if stops:
                await life.ready()
                return await life.stop(), life.text
            return await asyncio.wait_for(life.ended, 10), life.text

    fails = {"fault": "engine-fails", "error": "graph-compile", "when": {"phase": "kv"}}
    code, text = asyncio.run(end(fails, stops=False))
    assert code == 1
    assert "Graph compile failed. synStatus" in text
    fails["when"] = {"seconds": 0, "since": "ready"}
    code, text = asyncio.run(end(fails, stops=False))
    assert code == 0
    assert "Graph compile failed. synStatus" in text
    killed = {"fault": "die", "process": "worker", "when": {"phase": "load"}}
    assert asyncio.run(end(killed, stops=False))[0] == 1
    code, text = asyncio.run(end({"fault": "slow-stop", "seconds": 1}, stops=True))
    assert code == 0
    assert "Application shutdown complete." in text


# The control endpoint.


def test_the_control_endpoint_shows_gives_and_lifts_faults(tmp_path: Path) -> None:
    async def live() -> None:
        async with _living(tmp_path, more=("--control", "0"), env=_COLD) as life:
            await life.ready()
            port = int(
                re.findall(r"simulated server on http://[\d.]+:(\d+)", life.text)[0]
            )
            status, state = await _ask(port, "GET", "/", None)
            assert status == 200
            assert json.loads(state) | {"seconds": 0} == {
                "simulated": True,
                "phase": "serve",
                "index": 0,
                "seconds": 0,
                "requests": 0,
                "faults": [],
            }
            fault = {"fault": "refuse-answer", "status": 500}
            status, told = await _ask(port, "POST", "/faults", fault)
            assert (status, json.loads(told)["number"]) == (201, 1)
            assert (await life.ask("GET", "/version"))[0] == 500
            assert (await _ask(port, "DELETE", "/faults/1", None))[0] == 200
            assert (await life.ask("GET", "/version"))[0] == 200
            for gone in ("1", "9" * 5000, "²"):
                path = f"/faults/{gone}"
                assert (await _ask(port, "DELETE", path, None))[0] in {400, 404}
            assert (await _ask(port, "POST", "/faults", {"fault": "x"}))[0] == 400
            assert (await _ask(port, "PUT", "/", {}))[0] == 404
            dies: dict[str, Any] = {"fault": "die", "process": "engine"}
            assert (await _ask(port, "POST", "/faults", dies))[0] == 201
            assert await asyncio.wait_for(life.ended, 5) == 0

    asyncio.run(live())


def test_the_control_endpoint_leaves_no_socket_behind(tmp_path: Path) -> None:
    place = tmp_path / "control"

    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(place))  # and its file stays

    async def live() -> None:
        async with _living(tmp_path, more=("--control", str(place)), env=_COLD) as life:
            await life.ready()
            assert place.is_socket()
            with pytest.raises(ResourceError, match="another server listens there"):
                async with _living(tmp_path, more=("--control", str(place))) as second:
                    await second.ended
            assert place.is_socket()
            assert await life.stop() == 0

    asyncio.run(live())
    assert not place.exists()


@pytest.mark.parametrize("place", ["99999", "missing/control", "faults.yaml"])
def test_a_control_endpoint_that_can_not_listen_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async def live() -> None:
        async with _living(tmp_path, more=("--control", place)) as life:
            await life.ended

    with pytest.raises(ResourceError, match=f"can't listen on {place}"):
        asyncio.run(live())


# Without a scenario.


def test_a_server_without_faults_names_every_phase() -> None:
    seen: list[str] = []

    class Watching(Faults):
        async def at(self, moment: Moment) -> None:
            await super().at(moment)
            seen.append(moment.phase)

    options = parse_options([*_SMALL, "--speed", "1e12"], {})
    printed = io.StringIO()
    server = Server(options, FakeClock(), {"stdout": printed, "stderr": printed})
    server.world.faults = Watching()
    asyncio.run(server.start())
    phases = [
        phase for phase in get_args(Phase) if phase not in {"multimodal", "serve"}
    ]
    assert list(dict.fromkeys(seen)) == phases
