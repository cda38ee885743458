"""Lives of a server as logs: from the front end's first word to its readiness or its end.

What a test cares about is an argument, all else has a value that belongs to no real server.
The form is that of vllm-gaudi under V1.  The clock runs by itself: each step takes the
seconds that its figures say, and the headers print it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

Bucket = tuple[int, int, int]

PROMPT: tuple[Bucket, ...] = ((1, 256, 0), (1, 512, 0), (1, 1024, 0), (1, 2048, 0))
DECODE: tuple[Bucket, ...] = tuple(
    (batch, 1, blocks) for batch in (1, 2, 4, 8) for blocks in (64, 128, 256)
)
_ENDS = {
    "sigterm": "[shutdown] EngineCore: trigger received signal=SIGTERM",
    "stopped": "[shutdown] API server: shutdown triggered",
}


@dataclass(slots=True)
class Told:
    """One start, as far as it comes; :meth:`text` is its log.

    Attributes:
        version: of vLLM.
        pid: of the front end; ``engine_pid`` of the engine.
        env: what the runtime's dump lists under its user flags.
        args: what repeats the command line, by name.
        address: where it listens.
        recipes: the bridge's line of the recipe cache, None for no line.
        free: GiB after weights and profile run, as ``weights`` and ``profile`` are GiB.
        utilisation: a share of ``free``; ``reserve`` is one of what that makes usable.
        prompt_seconds: of a bucket, as ``decode_seconds``.
        used: GiB that graphs took.
        stops_in: ``loading``, ``sizing``, ``prompt``, ``decode``, or "" for a whole start.
        stops_after: buckets of that phase that are done.
    """

    version: str = "0.26.0"
    model: str = "acme/small-7b"
    card: str = "gaudi3"
    pid: int = 11
    engine_pid: int = 30
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)
    address: str = "http://127.0.0.1:8000"
    recipes: str | None = None
    free: float = 80.0
    weights: float = 14.5
    profile: float = 4.0
    utilisation: float = 0.9
    reserve: float = 0.1
    blocks: int = 4146
    prompt: Sequence[Bucket] = PROMPT
    decode: Sequence[Bucket] = DECODE
    strategy: str = "lin"
    load_seconds: float = 60.0
    prompt_seconds: float = 2.0
    decode_seconds: float = 1.0
    used: float = 6.5
    compile_only: bool = False
    stops_in: str = ""
    stops_after: int = 0
    began: datetime = datetime(2026, 3, 4, 10, 0, 0, tzinfo=timezone.utc)
    _now: datetime = field(init=False)
    _lines: list[str] = field(init=False, default_factory=list)

    def text(self) -> str:
        """Return the log of the start."""
        self._now, self._lines = self.began, []
        self._front()
        if self._loaded() and self._sized() and self._warmed():
            self._served()
        return "".join(self._lines)

    def then(self, *messages: str) -> str:
        """Return the log with more of the engine's words behind it."""
        text, self._lines = self.text(), []
        for message in messages:
            self._say(message)
        return text + "".join(self._lines)

    def ended(self, how: str = "sigterm") -> str:
        """Return the log with a stop from outside at its end."""
        return self.then(_ENDS[how])

    def dies(self, exception: str) -> str:
        """Return the log with an exception of the engine at its end."""
        text, self._lines = self.text(), []
        for message in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            '  File "/opt/x/core.py", line 12, in run',
            exception,
        ):
            self._say(message, level="ERROR")
        return text + "".join(self._lines)

    @property
    def seconds(self) -> float:
        """Return the age at the last line; known once there is a text."""
        return (self._now - self.began).total_seconds()

    def _say(self, message: str, place: str = "core.py:1", level: str = "INFO") -> None:
        header = f"{level} {self._now:%m-%d %H:%M:%S} [{place}]"
        self._lines.append(f"(EngineCore pid={self.engine_pid}) {header} {message}\n")

    def _front_says(self, message: str) -> None:
        header = f"INFO {self._now:%m-%d %H:%M:%S} [api.py:1]"
        self._lines.append(f"(APIServer pid={self.pid}) {header} {message}\n")

    def _wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def _front(self) -> None:
        self._front_says(f"█ ▀▄▀ █ version {self.version}")
        args = {"model": self.model, **self.args}
        self._front_says(f"non-default args: {args}")
        if self.recipes is not None:
            self._lines.append("= HPU PT BRIDGE CONFIGURATION ON RANK = 0 =\n")
            self._lines.append(f" PT_HPU_RECIPE_CACHE_CONFIG = {self.recipes}\n")

    def _loaded(self) -> bool:
        self._wait(5)
        self._say(
            f"Initializing a V1 LLM engine (v{self.version}) with config: "
            f"model='{self.model}', max_seq_len=8192, tensor_parallel_size=1, "
            "device_config=hpu"
        )
        self._dump()
        self._say(f"Starting to load model {self.model}...")
        return self.stops_in != "loading"

    def _dump(self) -> None:
        parts: Mapping[str, Mapping[str, str]] = {
            "Environment": {
                "hw": self.card,
                "engine_version": "v1",
                "bridge_mode": "lazy",
            },
            "Features": {"bucketing_strategy": self.strategy},
            "User flags": self.env,
        }
        for title, rows in parts.items():
            self._say(f"{title}:", "runtime.py:28")
            for name, value in rows.items():
                self._say(f"    {name}: {value}", "runtime.py:32")

    def _sized(self) -> bool:
        self._wait(self.load_seconds)
        self._say(f"Loading model weights took {self.weights:.4f} GB")
        self._say("Wrapping in HPUGraph took 0.0000 GB")
        if self.stops_in == "sizing":
            return False
        usable = self.free * self.utilisation
        reserve = usable * self.reserve
        self._say(
            f"Model profiling run took {self.profile:g} GiB of device memory "
            f"({self.weights + self.profile:g} GiB/126.5 GiB used) and 12.5 MiB of host "
            "memory (61.2 GiB/1007 GiB used)"
        )
        self._say(
            f"Free device memory: {self.free:.4g} GiB, {usable:.4g} GiB usable "
            f"(gpu_memory_utilization={self.utilisation:g}), {reserve:.4g} GiB reserved "
            f"for HPUGraphs (VLLM_GRAPH_RESERVED_MEM={self.reserve:g}), 16 MiB reserved "
            f"for KV cache dummy block {usable - reserve - 0.016:.4g} GiB reserved for "
            "usable KV cache"
        )
        self._say(
            f"Usable num_blocks: {self.blocks}, actual allocated num_blocks: "
            f"{self.blocks + 1} (_PAD_BLOCK_ID=0, _PAD_SLOT_ID=-1)"
        )
        return True

    def _warmed(self) -> bool:
        for phase, listed in (("prompt", self.prompt), ("decode", self.decode)):
            shapes = ", ".join(map(str, listed))
            self._say(
                f"Generated {len(listed)} {phase} buckets [bs, query, num_blocks]: "
                f"[{shapes}]"
            )
        if self.compile_only:
            self._say("Using PT_COMPILE_ONLY_MODE.")
        return self._bar("prompt", len(self.prompt), self.prompt_seconds) and self._bar(
            "decode", len(self.decode), self.decode_seconds
        )

    def _bar(self, phase: str, count: int, each: float) -> bool:
        """Draw the bar of a phase; return whether it came to its end."""
        stops = self.stops_in == phase
        last = self.stops_after if stops else count
        drawn = []
        for done in range(last + 1):
            minutes, seconds = divmod(round(done * each), 60)
            hours, minutes = divmod(minutes, 60)
            clock = f"{hours}:{minutes:02d}" if hours else f"{minutes:02d}"
            drawn.append(
                f"{phase.title()} warmup processing: {100 * done // count:3d}%|#  | "
                f"{done}/{count} [{clock}:{seconds:02d}<00:09,  {each:.2f}s/item, "
                f"{done}/{count}]"
            )
        self._lines.append("\r".join(drawn) + "\n")
        self._wait(each * last)
        if stops:
            return False
        self._say(
            f"Graph/{phase.title()} captured:{count} used_mem:{self.used / 2:.4g} GiB"
        )
        return True

    def _served(self) -> None:
        seconds = (
            len(self.prompt) * self.prompt_seconds
            + len(self.decode) * self.decode_seconds
        )
        self._say(
            f"Warmup finished in {seconds:.0f} secs, allocated {self.used:.4g} GiB of "
            "device memory"
        )
        self._say(
            "init engine (profile, create kv cache, warmup model) took "
            f"{seconds + 8:.2f} s"
        )
        self._front_says(f"Starting vLLM server on {self.address}")
        self._lines.append(
            f"(APIServer pid={self.pid}) INFO:     Application startup complete.\n"
        )
