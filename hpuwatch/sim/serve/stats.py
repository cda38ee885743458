"""The engine's line of every few simulated seconds: throughput, queues and the KV cache.

V1 says nothing at INFO when neither this interval nor the last had a token, the fork from
1.20 on when nothing is running; before that idle servers tell of zeros.
"""

from __future__ import annotations

import asyncio

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.serve.schedule_v0 import OlderScheduler
from hpuwatch.sim.world import World

_OLDER_SECONDS = 5.0  # V0 while it has work; without, its loop wakes up half as often
_LEAST_SECONDS = 1e-9  # no rate is taken over no time at all
_TELLS_WHEN_IDLE = "fork-..1.19"


class Stats:
    """Counts between two lines."""

    def __init__(self, world: World, engine: Engine) -> None:
        """Start counting."""
        self._world = world
        self._engine = engine
        self._is_v0 = isinstance(engine.scheduler, OlderScheduler)
        self._seconds = _OLDER_SECONDS if self._is_v0 else world.knobs.stats_seconds
        self._tells_when_idle = covers(_TELLS_WHEN_IDLE, world.options.point)
        self._at = world.pace.passed
        self._prompt = 0
        self._generation = 0
        self._preemptions = 0
        self._was_busy = False

    async def run(self) -> None:
        """Print for ever."""
        pace = self._world.pace
        while True:
            await asyncio.sleep(pace.real_seconds(self._seconds))
            self._engine.gauges()
            idles = self._is_v0 and not self._engine.scheduler.has_work
            seconds = self._seconds * (2 if idles else 1)
            if pace.passed - self._at >= seconds * 0.95:
                self.tell()

    def tell(self) -> None:
        """Print one line, unless the release is silent now."""
        tally, now = self._engine.tally, self._world.pace.passed
        passed = max(now - self._at, _LEAST_SECONDS)
        prompt = tally.prompt_tokens - self._prompt
        generation = tally.generation_tokens - self._generation
        preemptions = tally.preemptions - self._preemptions
        self._at = now
        self._prompt, self._generation = tally.prompt_tokens, tally.generation_tokens
        self._preemptions = tally.preemptions
        is_busy = bool(prompt or generation)
        if self._is_v0:
            is_busy = is_busy or self._engine.scheduler.has_work
        speaks = is_busy or self._was_busy or self._tells_when_idle
        if self._world.options.log_stats:
            told = "stats_preempted" if preemptions and not self._is_v0 else "stats"
            name = told if speaks else "stats_idle"
            self._say(name, prompt / passed, generation / passed, preemptions)
        self._was_busy = is_busy

    def _say(
        self, name: str, prompt: float, generation: float, preemptions: int
    ) -> None:
        world, scheduler = self._world, self._engine.scheduler
        waiting = len(scheduler.waiting)
        values = {
            "prompt": prompt,
            "generation": generation,
            "running": len(scheduler.running),
            "waiting": waiting,
            "preemptions": preemptions,
            "kv": 100 * scheduler.usage,
            "hit_rate": 100 * scheduler.prefix.recent_rate,
        }
        if not isinstance(scheduler, OlderScheduler):
            world.voice.say(world.speakers.front, name, **values)
            return
        values |= {
            "pending": waiting,
            "swapped": len(scheduler.swapped),
            "cpu_kv": 100 * scheduler.host_usage,
        }
        world.voice.say(world.speakers.front, name, **values)
        if name == "stats_idle":
            return
        if scheduler.pool.caches:
            world.voice.say(
                world.speakers.front, "prefix_hits", gpu=values["hit_rate"], cpu=0.0
            )
