"""Progress bars as tqdm draws them: glyphs, times and a smoothed rate."""

from __future__ import annotations

from dataclasses import dataclass, field

_EIGHTHS = " ▏▎▍▌▋▊▉"
_WIDTH = 10
_SMOOTHING = 0.3


def glyphs(share: float) -> str:
    """Draw a share between 0 and 1 in ten columns of eighths."""
    filled, part = divmod(int(share * _WIDTH * 8), 8)
    if filled >= _WIDTH:
        return "█" * _WIDTH
    return ("█" * filled + _EIGHTHS[part]).ljust(_WIDTH)


def interval(seconds: float) -> str:
    """Print a duration as ``mm:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


@dataclass(slots=True)
class Bar:
    """How far something is; ``unit`` is what it counts."""

    total: int
    unit: str = "item"
    done: int = 0
    elapsed: float = 0.0
    _began_this: float = field(default=0.0, repr=False)
    _seconds_each: float | None = field(default=None, repr=False)

    def wait(self, seconds: float) -> None:
        """Let time pass without finishing anything."""
        self.elapsed += seconds

    def advance(self) -> None:
        """Finish one more."""
        self.done += 1
        latest = self.elapsed - self._began_this
        self._began_this = self.elapsed
        older = self._seconds_each
        self._seconds_each = (
            latest if older is None else _SMOOTHING * latest + (1 - _SMOOTHING) * older
        )

    def settle(self) -> None:
        """End it: what is drawn last has the rate over all of the time."""
        if self.done:
            self._seconds_each = self.elapsed / self.done

    def fields(self) -> dict[str, object]:
        """Return the values of a bar's template, as they stand now."""
        share = self.done / self.total if self.total else 1.0
        each = self._seconds_each
        return {
            "percent": 100 * share,
            "bar": glyphs(share),
            "done": self.done,
            "total": self.total,
            "elapsed": interval(self.elapsed),
            "left": "?" if each is None else interval(each * (self.total - self.done)),
            "rate": self._rate(each),
        }

    def _rate(self, each: float | None) -> str:
        if not each:
            return f"?{self.unit}/s"
        if each > 1:
            return f"{each:5.2f}s/{self.unit}"
        return f"{1 / each:5.2f}{self.unit}/s"
