"""How durations become ticks of the time column at hand."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.algebra.nodes import Events, Ticks, Window
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.expr.nodes import Duration, Expr, Literal
from ensue.graph.bounds import FAR


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The resolution of time: an Arrow timestamp unit, or None for integer time, where a tick is 1."""

    unit: str | None = "us"

    def ticks(self, window: Window) -> int:
        """The length of a window of time."""
        match window:
            case Ticks():
                return min(FAR, window.count)
            case Duration():
                return min(FAR, self.floor(window.nanoseconds))
            case Events():
                raise AssertionError("positions have no ticks")

    def literal(self, ticks: int) -> Expr:
        """A length of time in an expression."""
        return Literal(ticks) if self.unit is None else Duration(ticks * self._tick)

    def floor(self, nanoseconds: int) -> int:
        """The most whole ticks that fit: `x <= d` over ticks is `x <= floor(d)`."""
        return nanoseconds // self._tick

    def ceil(self, nanoseconds: int) -> int:
        """The fewest whole ticks that cover: `x < d` over ticks is `x < ceil(d)`."""
        return -(-nanoseconds // self._tick)

    @property
    def _tick(self) -> int:
        return 1 if self.unit is None else NANOSECONDS_PER_UNIT[self.unit]
