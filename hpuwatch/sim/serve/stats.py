"""The engine's line of every ten simulated seconds, while there is traffic."""

from __future__ import annotations

import asyncio

from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.world import World

_STATS_SECONDS = 10.0


class Stats:
    """Counts between two lines."""

    def __init__(self, world: World, engine: Engine) -> None:
        """Start counting."""
        self._world = world
        self._engine = engine
        self._at = world.pace.passed
        self._prompt = 0
        self._generation = 0
        self._preemptions = 0
        self._was_busy = False

    async def run(self) -> None:
        """Print for ever."""
        pace = self._world.pace
        while True:
            await asyncio.sleep(pace.real_seconds(_STATS_SECONDS))
            self._engine.gauges()
            if pace.passed - self._at >= _STATS_SECONDS * 0.95:
                self.tell()

    def tell(self) -> None:
        """Print one line, unless nothing has happened since the last but one."""
        tally, now = self._engine.tally, self._world.pace.passed
        passed = now - self._at
        prompt = tally.prompt_tokens - self._prompt
        generation = tally.generation_tokens - self._generation
        preemptions = tally.preemptions - self._preemptions
        self._at = now
        self._prompt, self._generation = tally.prompt_tokens, tally.generation_tokens
        self._preemptions = tally.preemptions
        scheduler = self._engine.scheduler
        is_busy = bool(prompt or generation or scheduler.has_work)
        if (is_busy or self._was_busy) and self._world.options.log_stats:
            self._world.voice.say(
                self._world.speakers.front,
                "stats_preempted" if preemptions else "stats",
                prompt=prompt / passed,
                generation=generation / passed,
                running=len(scheduler.running),
                waiting=len(scheduler.waiting),
                preemptions=preemptions,
                kv=100 * scheduler.usage,
            )
        self._was_busy = is_busy
