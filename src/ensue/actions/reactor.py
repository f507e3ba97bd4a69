"""Reacting in this process, step by step: what a detector finds is delivered at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.actions.bindings import DeadLettersLike, PathLike, calls_table, courier_of, resolve_actions
from ensue.actions.delivery import Deliveries
from ensue.actions.receivers import ReceiverLike
from ensue.constraints import ConstraintsLike
from ensue.detector import Detector, DetectorStep
from ensue.lower.phases import LoweredProgram
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.plan.program_plans import ColumnNames
from ensue.programs import QueryLike, program_statements
from ensue.python.values import WindowLike


@dataclass(frozen=True, slots=True)
class Reacted:
    """What one step gave: what became of its calls, and the rows that came too late (a table, or one per stream)."""

    deliveries: Deliveries
    late: Any


class _ProgramDetector(Detector):
    """Looks for all patterns of a program: `matches` of a step are their tables, as Arrow."""

    def _meant(self, query: QueryLike, constraints: ConstraintsLike | None) -> LoweredProgram:
        return program_statements(query, constraints)

    def _given(self, tables: Sequence[pa.Table], late: Any) -> DetectorStep:
        return DetectorStep(tuple(tables), late)


class Reactor:
    """A program with ON statements over events that arrive in batches. Each step delivers the calls of what completed.

    It takes batches as a `Detector` does, and `receivers`, `retries` and the like as `ensue.act`. After a restart, from
    an earlier snapshot or none, the same events give the same deliveries again; those in the journal `delivered` are
    not called again.

    >>> program = "STREAM late FROM PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS at; ON late l DO tell(l.at)"
    >>> told = []
    >>> reactor = Reactor(program, {"tell": told.append}, time="t", type="type")
    >>> reactor.advance(pa.table({"t": [1, 3, 4], "type": ["A", "A", "B"]}), watermark=8).deliveries.delivered
    0
    >>> reactor.advance(pa.table({"t": [9], "type": ["A"]}), watermark=20).deliveries.delivered
    1
    >>> told
    [9]
    """

    def __init__(
        self,
        program: QueryLike,
        receivers: Mapping[str, ReceiverLike],
        *,
        time: ColumnNames,
        type: str | None = None,
        end: ColumnNames | None = None,
        tables: Mapping[str, Any] | None = None,
        limit: int | None = DEFAULT_LIMIT,
        retries: int = 5,
        backoff: WindowLike = "1 second",
        patience: WindowLike = "1 minute",
        dead_letters: DeadLettersLike | None = None,
        delivered: PathLike | None = None,
    ) -> None:
        reactions = resolve_actions(program, receivers)
        self._courier = courier_of(reactions.routes, retries, backoff, patience, dead_letters, delivered)
        self._detector = _ProgramDetector(
            reactions.program, time=time, type=type, end=end, tables=tables, limit=limit, match_id=True
        )

    @property
    def watermark(self) -> int | None:
        """How far time has come, in ticks of the time column; None before the first step."""
        return self._detector.watermark

    def advance(self, events: Any = None, *, watermark: Any) -> Reacted:
        """Takes a batch, moves the watermark, and delivers the calls of the events that completed."""
        return self._react(self._detector.advance(events, watermark=watermark))

    def finish(self, events: Any = None) -> Reacted:
        """Takes a last batch and delivers every call that is still open: no event comes any more."""
        return self._react(self._detector.finish(events))

    def snapshot(self) -> pa.Table:
        """The kept events as one Arrow table for safekeeping, as of the last step, whose calls have been delivered."""
        return self._detector.snapshot()

    def restore(self, saved: pa.Table) -> None:
        """Goes on where a snapshot of the same program was taken."""
        self._detector.restore(saved)

    def _react(self, step: DetectorStep) -> Reacted:
        calls = [calls_table(*pair) for pair in zip(self._courier.routes, step.matches, strict=True)]
        return Reacted(self._courier.deliver(calls), step.late)
