"""Detection on a stream of batches: what has completed since the last watermark, each match once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.catalog import inferred_catalog
from ensue.algebra.check import check_query
from ensue.api import (
    ColumnNames,
    QueryLike,
    checked_limit,
    single_query,
    streams_of,
    warn_set_aside,
)
from ensue.engine.session import Session
from ensue.engine.snapshot import read_header, restore, saved_schemas, snapshot
from ensue.engine.sources import Report
from ensue.errors import QueryError, SchemaError, StateError
from ensue.graph.timescale import NANOSECONDS_PER_TICK
from ensue.kernels.warm import warm_up
from ensue.plan.build import plan_query
from ensue.plan.model import DEFAULT_LIMIT, Options
from ensue.runtimes.local import catalog_of, input_tables
from ensue.runtimes.tables import ARROW, arrow_tables, conform


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
        self._options = Options(limit=checked_limit(limit))
        self._session: Session | None = None
        self._per_stream = False
        self._kind = ARROW
        self._finished = False

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
        tables = self._receive(events)
        assert self._session is not None
        until = ticks_of(watermark, self._session.plan.catalog.time_type)
        if self._session.watermark is not None and until < self._session.watermark:
            raise StateError("watermark-backwards", "the watermark moves only forwards", "pass one not before the last")
        return self._step(tables, until)

    def finish(self, events: Any = None) -> Advance:
        """Takes a last batch and gives every match that is still open: no event comes any more."""
        step = self._step(self._receive(events), None)
        self._finished = True
        return step

    def snapshot(self) -> pa.Table:
        """The kept events with version, query and watermark, as one Arrow table for safekeeping."""
        if self._session is None:
            raise StateError("no-state", "nothing has been read yet, so there is no state to save", "advance first")
        return snapshot(self._session, self._per_stream)

    def restore(self, saved: pa.Table) -> None:
        """Goes on where a snapshot of the same query was taken."""
        header = read_header(saved)
        tables = {name: schema.empty_table() for name, schema in saved_schemas(saved).items()}
        per_stream = {name: table for name, table in tables.items() if name is not None}
        session = self._start(per_stream if header["per_stream"] else next(iter(tables.values())))
        restore(session, saved)
        self._session = session
        self._finished = False

    def _receive(self, events: Any) -> Mapping[str, pa.Table] | pa.Table | None:
        """The batch as Arrow; the first one starts the session."""
        if self._finished:
            raise StateError("finished", "the detector was told that no event comes any more", "make a new one")
        if events is None:
            if self._session is None:
                raise SchemaError("no-tables", "the first step needs a table, if only an empty one", "pass its columns")
            return None
        self._kind, tables = arrow_tables(events)
        if self._session is None:
            self._session = self._start(tables)
        return tables

    def _step(self, tables: Mapping[str, pa.Table] | pa.Table | None, until: int | None) -> Advance:
        assert self._session is not None
        before = replace(self._session.report)
        matches, late = self._session.advance(self._fresh(tables), until)
        warn_set_aside(self._session.report.since(before))
        give = self._kind.from_arrow
        if self._per_stream:
            names = [item.stream for item in self._session.inputs]
            return Advance(give(matches), {name: give(table) for name, table in zip(names, late, strict=True)})
        return Advance(give(matches), give(late[0]))

    def _start(self, tables: Mapping[str, pa.Table] | pa.Table) -> Session:
        time, type_column, end = self._columns
        inputs = input_tables(tables, streams_of([self._query]), time, type_column, end)
        self._per_stream = isinstance(tables, Mapping)
        catalog = catalog_of(inputs, inferred_catalog(self._query).time_type)
        plan = plan_query(self._query, catalog, self._source)
        warm_up()
        return Session.start(plan, inputs, self._options)

    def _fresh(self, tables: Mapping[str, pa.Table] | pa.Table | None) -> list[pa.Table]:
        assert self._session is not None
        if tables is not None and isinstance(tables, Mapping) != self._per_stream:
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
    """A watermark in ticks of the time column; a moment without a zone is UTC.

    >>> ticks_of("1970-01-01T00:00:01", pa.timestamp("ms"))
    1000
    """
    if pa.types.is_integer(time_type):
        if isinstance(moment, bool) or not hasattr(moment, "__index__"):
            raise SchemaError("watermark-type", f"time is integer, so a watermark is one too, not {moment!r}")
        return int(moment)
    scalar = _moment(moment)
    if scalar is None or not scalar.is_valid:
        raise SchemaError(
            "watermark-type", f"time holds timestamps, so a watermark is a moment, not {moment!r}", "pass a datetime"
        )
    nanoseconds = scalar.value * NANOSECONDS_PER_TICK[scalar.type.unit]
    return int(nanoseconds // NANOSECONDS_PER_TICK[time_type.unit])


def _moment(moment: Any) -> Any:
    """A timestamp scalar in UTC, or None for what is no moment."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    if isinstance(moment, np.datetime64) and np.datetime_data(moment.dtype)[0] not in ("s", "ms", "us", "ns"):
        moment = moment.astype("datetime64[us]")
    try:
        scalar = pa.scalar(moment)
    except (ValueError, TypeError, NotImplementedError):
        return None
    if pa.types.is_date(scalar.type):
        return scalar.cast(pa.timestamp("us"))
    return scalar if pa.types.is_timestamp(scalar.type) else None
