"""Detection on a stream of batches: what has completed since the last watermark, each match once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.algebra.check import check_query
from ensue.api import DEFAULT_LIMIT, ColumnNames, QueryLike, arrow_tables, single_query, streams_of
from ensue.engine.session import Session
from ensue.engine.snapshot import restore, saved_schemas, snapshot
from ensue.engine.sources import Report
from ensue.errors import QueryError, SchemaError, StateError
from ensue.graph.timescale import NANOSECONDS_PER_TICK
from ensue.kernels.warm import warm_up
from ensue.plan.build import plan_query
from ensue.plan.model import Options
from ensue.runtimes.local import catalog_of, conform, input_tables


@dataclass(frozen=True, slots=True)
class Advance:
    """What one step gave: the matches that completed, and the rows that came too late (a table, or one per stream)."""

    matches: Any
    late: Any


class Detector:
    """A query over events that arrive in batches. Each match is given once, when the watermark reaches its completion.

    The watermark promises that no event ending at or before it is still to come; one that comes all the same is late.

    >>> detector = Detector("PATTERN SEQ(A a, NOT B b) WITHIN 5 RETURN a.t AS at", time="t", type="type")
    >>> detector.advance(pa.table({"t": [1, 3, 4], "type": ["A", "A", "B"]}), watermark=4).matches.to_pylist()
    []
    >>> detector.advance(pa.table({"t": [9], "type": ["A"]}), watermark=10).matches.to_pylist()
    []
    >>> detector.finish().matches.to_pylist()
    [{'at': 9}]
    """

    def __init__(
        self,
        query: QueryLike,
        *,
        time: ColumnNames,
        type: str | None = None,
        end: ColumnNames | None = None,
        limit: int | None = DEFAULT_LIMIT,
    ) -> None:
        self._query, self._source = single_query(query)
        problems = check_query(self._query)
        if problems:
            raise QueryError(problems, self._source)
        self._columns = (time, type, end)
        self._options = Options(limit=limit)
        self._session: Session | None = None
        self._keyed = False

    @property
    def report(self) -> Report:
        """What was read and set aside so far."""
        return self._session.report if self._session else Report()

    @property
    def watermark(self) -> int | None:
        """How far time has come, in ticks of the time column; None before the first step."""
        return self._session.watermark if self._session else None

    @property
    def kept_rows(self) -> int:
        """How many events are kept."""
        return sum(table.num_rows for table in self._session.state) if self._session else 0

    @property
    def kept_bytes(self) -> int:
        """The size of the kept events in memory."""
        return sum(table.nbytes for table in self._session.state) if self._session else 0

    def advance(self, events: Any = None, *, watermark: Any) -> Advance:
        """Takes a batch (a table, or a mapping of streams to tables; None: no events) and moves the watermark.

        `watermark` is an integer for integer time, otherwise a datetime, a timestamp of pandas or numpy, or ISO text.
        """
        return self._step(events, watermark)

    def finish(self, events: Any = None) -> Advance:
        """Takes a last batch and gives every match that is still open: no event comes any more."""
        return self._step(events, None)

    def snapshot(self) -> pa.Table:
        """The kept events with version, query and watermark, as one Arrow table for safekeeping."""
        if self._session is None:
            raise StateError("no-state", "nothing has been read yet, so there is no state to save", "advance first")
        return snapshot(self._session)

    def restore(self, saved: pa.Table) -> None:
        """Goes on where a snapshot of the same query was taken."""
        shapes = saved_schemas(saved)
        tables = {name: schema.empty_table() for name, schema in shapes.items()}
        keyed = {name: table for name, table in tables.items() if name is not None}
        session = self._start(keyed if len(keyed) == len(tables) else tables[None])
        restore(session, saved)
        self._session = session

    def _step(self, events: Any, watermark: Any) -> Advance:
        if events is None and self._session is None:
            raise SchemaError(
                "no-tables", "the first step needs a table, if only an empty one", "pass one with its columns"
            )
        kind, tables = arrow_tables(events) if events is not None else (None, None)
        if self._session is None:
            assert tables is not None
            self._session = self._start(tables)
        session = self._session
        until = None if watermark is None else ticks_of(watermark, session.plan.catalog.time_type)
        if until is not None and session.watermark is not None and until < session.watermark:
            raise StateError("watermark-backwards", "the watermark moves only forwards", "pass one not before the last")
        matches, late = session.advance(self._fresh(tables), until)
        give = kind.from_arrow if kind is not None else (lambda table: table)
        if self._keyed:
            return Advance(
                give(matches), {item.stream: give(table) for item, table in zip(session.inputs, late, strict=True)}
            )
        return Advance(give(matches), give(late[0]))

    def _start(self, tables: Mapping[str, pa.Table] | pa.Table) -> Session:
        time, type_column, end = self._columns
        inputs = input_tables(tables, streams_of([self._query]), time, type_column, end)
        self._keyed = isinstance(tables, Mapping)
        plan = plan_query(self._query, catalog_of(inputs), self._source)
        warm_up()
        return Session.start(plan, inputs, self._options)

    def _fresh(self, tables: Mapping[str, pa.Table] | pa.Table | None) -> list[pa.Table]:
        assert self._session is not None
        if tables is not None and isinstance(tables, Mapping) != self._keyed:
            raise SchemaError("table-shape", "batches come as one table or as one per stream, the same way each time")
        given: dict[str | None, pa.Table] = {}
        if isinstance(tables, Mapping):
            given.update(tables)
        elif tables is not None:
            given[self._session.inputs[0].stream] = tables
        known = [item.stream for item in self._session.inputs]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise SchemaError("unknown-stream", f"stream `{unknown[0]}` was not among the tables of the first step")
        return [
            conform(given[item.stream], schema, item.label) if item.stream in given else schema.empty_table()
            for item, schema in zip(self._session.inputs, self._session.schemas, strict=True)
        ]


def ticks_of(moment: Any, time_type: pa.DataType) -> int:
    """A watermark in ticks of the time column; a moment without a zone is UTC."""
    if pa.types.is_integer(time_type):
        if isinstance(moment, bool) or not hasattr(moment, "__index__"):
            raise SchemaError("watermark-type", f"time is integer, so a watermark is one too, not {moment!r}")
        return int(moment)
    try:
        scalar = pa.scalar(moment)
        if pa.types.is_string(scalar.type):
            scalar = scalar.cast(pa.timestamp("us", "UTC" if _names_zone(moment) else None))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError("watermark-type", f"a watermark is a moment in time, not {moment!r}") from error
    if not pa.types.is_timestamp(scalar.type):
        raise SchemaError("watermark-type", f"time holds timestamps, so a watermark is a moment, not {moment!r}")
    nanoseconds = scalar.value * NANOSECONDS_PER_TICK[scalar.type.unit]
    return int(nanoseconds // NANOSECONDS_PER_TICK[time_type.unit])


def _names_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text[10:] or "-" in text[10:]
