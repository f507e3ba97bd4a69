"""Rows that a detector receives one by one: they wait until a match can complete with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.engine.events import FOREVER
from ensue.engine.machine import Machine, State, completing_streams
from ensue.engine.sources import SAFE_TIME
from ensue.expr.kinds import NANOSECONDS_PER_UNIT, Kind
from ensue.expr.types import kind_of
from ensue.nodes.names import Stream

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Kinds: TypeAlias = tuple[type, ...]
"""Python types of values."""


@dataclass(slots=True)
class PushedRows:
    """Rows that a detector has received one by one and not evaluated yet, because no match can complete with them.

    `wanted` are the streams of the query, `completing` those whose events complete matches; `due` is the earliest end
    of a row of these that is not evaluated yet. Rows of other streams are only counted (`skipped`); `latest` is the
    latest end of any row.
    """

    time: str
    type: str
    unit: str | None
    wanted: frozenset[Stream]
    completing: frozenset[Stream]
    watermark: int | None
    due: int | None
    nothing_waited: bool
    """Whether no row was waiting for the watermark before the first of these."""
    accepted: Mapping[str, Kinds]
    """The Python types of each column; a row with another type is evaluated at once, so that errors appear at once."""
    rows: list[Mapping[str, Any]]
    skipped: int = 0
    latest: int | None = None
    furthest: int | None = None
    """The latest end of a row of a wanted stream."""

    @classmethod
    def of(cls, machine: Machine, state: State) -> PushedRows | None:
        """The buffer of a machine; None if rows cannot wait: it needs one table, and matches that events complete."""
        item, completing, reached = machine.inputs[0], completing_streams(machine.plan), state.watermark
        if completing is None or len(machine.inputs) > 1 or item.type is None or item.end is not None:
            return None
        if pa.null() in item.table.schema.types or item.all_views:
            return None
        if kind_of(item.table.schema.field(item.type).type) is not Kind.TEXT:
            return None
        accepted = {field.name: _accepted(field.type) for field in item.table.schema}
        if not all(accepted.values()):
            return None
        unit = None if pa.types.is_integer(machine.time_type) else machine.time_type.unit
        due = FOREVER
        for kept in (kept for stage in state.stages for kept in stage.kept if len(kept)):
            waiting = kept.ends if reached is None else kept.ends[kept.ends > reached]
            due = min(due, int(waiting.min(initial=FOREVER)))
        wanted = frozenset(stream for plan in machine.plans for stream in plan.streams)
        first = None if due == FOREVER else due
        return cls(item.time, item.type, unit, wanted, completing, reached, first, first is None, accepted, [])

    def emptied(self) -> PushedRows | None:
        """The empty buffer after a step with these rows; None if one of them waits for the watermark."""
        if self.furthest is None or self.watermark is None or self.furthest > self.watermark or not self.nothing_waited:
            return None
        return replace(self, due=None, rows=[], skipped=0, latest=None, furthest=None)

    @property
    def is_due(self) -> bool:
        return self.due is not None and self.watermark is not None and self.due <= self.watermark

    def takes(self, event: Mapping[str, Any], watermark: Any) -> bool:
        """Takes a row and moves the watermark; False if it must be evaluated at once: it is late, or has no time."""
        moment, kind = self._ticks(event.get(self.time)), event.get(self.type)
        until = self._ticks(watermark)
        if moment is None or until is None or type(kind) is not str or not -SAFE_TIME < moment < SAFE_TIME:
            return False
        if self.watermark is not None and (moment <= self.watermark or until < self.watermark):
            return False
        if kind in self.wanted and not all(map(self._fits, self.accepted.items(), repeat(event))):
            return False
        self.latest = moment if self.latest is None or moment > self.latest else self.latest
        if kind in self.wanted:
            self.rows.append(event)
            self.furthest = moment if self.furthest is None or moment > self.furthest else self.furthest
            if kind in self.completing and (self.due is None or moment < self.due):
                self.due = moment
        else:
            self.skipped += 1
        self.watermark = until
        return True

    @staticmethod
    def _fits(column: tuple[str, Kinds], event: Mapping[str, Any]) -> bool:
        """Whether the row's value fits its column, or is missing."""
        name, kinds = column
        value = event.get(name)
        fits = value is None or type(value) in kinds
        return fits and (type(value) is not int or -(2**53) <= value <= 2**53)

    def _ticks(self, moment: Any) -> int | None:
        """A time in ticks of the time column; None if it is not an integer, or not a datetime of whole ticks."""
        if self.unit is None:
            return moment if type(moment) is int else None
        if type(moment) is not datetime:
            return None
        since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        nanoseconds, length = microseconds * 1000, NANOSECONDS_PER_UNIT[self.unit]
        return None if nanoseconds % length else nanoseconds // length


def _accepted(kind: pa.DataType) -> Kinds:
    """The Python types that a column accepts without conversion; none for columns of other types."""
    if pa.types.is_int64(kind):
        return (int,)
    if pa.types.is_float64(kind):
        return (float, int)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (str,)
    if pa.types.is_timestamp(kind):
        return (datetime,)
    return (bool,) if pa.types.is_boolean(kind) else ()
