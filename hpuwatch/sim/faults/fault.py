"""What a fault is: when it strikes, how long it lasts, and what it does meanwhile.

Faults are data that a scenario file or the control endpoint gives.  Some only *are there*
for a while, and whom they concern asks for them (``live.on(Hang)``); some do something when
they strike, while they last, or when they are lifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hpuwatch.sim.hooks import Phase

if TYPE_CHECKING:
    from typing_extensions import Self

    from hpuwatch.sim.faults.live import LiveFaults


class When(BaseModel):
    """When a fault strikes: at a phase, after seconds, after requests; else at once.

    Attributes:
        phase: at the first moment of this phase, or at its bucket or step ``index``.
        seconds: simulated seconds after the start of the server.
        real_seconds: the same on the clock.
        since: what seconds are counted from.
        requests: after so many completions were asked for.
        every: strikes again after as many buckets, seconds or requests.
        times: how often in all, without end if not given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    phase: Phase | None = None
    index: int = Field(default=0, ge=0)
    seconds: float | None = Field(default=None, ge=0)
    real_seconds: float | None = Field(default=None, ge=0)
    since: Literal["start", "ready"] = "start"
    requests: int | None = Field(default=None, ge=1)
    every: float | None = Field(default=None, gt=0)
    times: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        triggers = ("phase", "seconds", "real_seconds", "requests")
        given = [name for name in triggers if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: keep one")
        told = self.model_fields_set
        if "index" in told and self.phase is None:
            raise ValueError("index belongs to a phase: add one, such as phase: prompt")
        if "since" in told and self.seconds is None and self.real_seconds is None:
            raise ValueError("since belongs to seconds or real_seconds: add one")
        if self.every is not None and not given:
            raise ValueError(f"every needs one of {', '.join(triggers)} to count in")
        if self.times is not None and self.every is None:
            raise ValueError("times needs every: say after how much it strikes again")
        return self

    @property
    def threshold(self) -> float:
        """What has to be reached for the first strike."""
        given = (self.seconds, self.real_seconds, self.requests)
        return next((float(each) for each in given if each is not None), self.index)


class Fault(BaseModel):
    """A fault as it is asked for.

    Attributes:
        fault: its name.
        when: when it strikes.
        for_seconds: simulated seconds after which it is lifted; without, it stays.
        for_real_seconds: the same on the clock.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    fault: str
    when: When = When()
    for_seconds: float | None = Field(default=None, gt=0)
    for_real_seconds: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        if self.for_seconds is not None and self.for_real_seconds is not None:
            raise ValueError("for_seconds and for_real_seconds exclude each other")
        return self

    def strike(self, live: LiveFaults) -> None:
        """Begin."""

    def go_on(self, live: LiveFaults) -> None:
        """Do what it does while it lasts; called many times a second."""

    def lift(self, live: LiveFaults) -> None:
        """End."""
