"""A detector in this process that also delivers the calls of ON statements, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.actions.bindings import DeadLettersLike, PathLike, calls_table, courier_of, resolve_actions
from ensue.actions.delivery import Deliveries
from ensue.actions.receivers import ReceiverLike
from ensue.constraints import ConstraintsLike
from ensue.detector import Advance, Detector
from ensue.lower.phases import LoweredProgram
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.plan.program_plans import ColumnNames
from ensue.programs import QueryLike, program_statements
from ensue.python.values import WindowLike


@dataclass(frozen=True, slots=True)
class Reacted:
    """The result of one step: the deliveries, and the late rows (a table, or one per stream)."""

    deliveries: Deliveries
    late: Any


class _ProgramDetector(Detector):
    """Detects all patterns of a program. `matches` of a step is one Arrow table per pattern."""

    def _meant(self, query: QueryLike, constraints: ConstraintsLike | None) -> LoweredProgram:
        return program_statements(query, constraints)

    def _given(self, tables: Sequence[pa.Table], late: Any) -> Advance:
        return Advance(tuple(tables), late)


class Reactor:
    """Runs a program with ON statements on batches of events and delivers the calls of each step.

    It accepts batches as `Detector` does, and `receivers`, `retries` and other delivery options as `ensue.act` does.
    After a restart, with or without a snapshot, the same events produce the same deliveries. Calls in the journal
    `delivered` are not repeated.

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
        """The current watermark in ticks of the time column; None before the first step."""
        return self._detector.watermark

    def advance(self, events: Any = None, *, watermark: Any) -> Reacted:
        """Processes a batch, advances the watermark, and delivers the calls of completed events."""
        return self._react(self._detector.advance(events, watermark=watermark))

    def finish(self, events: Any = None) -> Reacted:
        """Processes the last batch and delivers all remaining calls. No more events are accepted."""
        return self._react(self._detector.finish(events))

    def snapshot(self) -> pa.Table:
        """Returns the state after the last step as one Arrow table. The calls of this step have been delivered."""
        return self._detector.snapshot()

    def restore(self, saved: pa.Table) -> None:
        """Resumes from a snapshot of the same program."""
        self._detector.restore(saved)

    def _react(self, step: Advance) -> Reacted:
        calls = [calls_table(*pair) for pair in zip(self._courier.routes, step.matches, strict=True)]
        return Reacted(self._courier.deliver(calls), step.late)
