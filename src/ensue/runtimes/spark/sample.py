"""Count matches and events of Spark DataFrames and collect a sample of their keys, for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import TimestampNTZType, TimestampType

from ensue.nodes.names import in_words
from ensue.plan.program_plans import Columns, ProgramPlan

MOST_ROWS = 200_000
"""The maximum number of rows to collect from each DataFrame."""

EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """Keys, starts and ends of the matches of one result; `keys` are the event columns that form the key."""

    name: str
    keys: tuple[str, ...]
    frame: DataFrame

    @property
    def key_columns(self) -> list[str]:
        return [f"key_{place}" for place in range(len(self.keys))]


def found_frame(name: str, keys: tuple[str, ...], is_head: bool, frame: DataFrame) -> FoundFrame:
    """Select keys, start and end from a result of `ensue.run` without RETURN.

    A pattern has the columns keys, start, end, events; a rule has start, end, attributes.
    """
    columns = frame.columns
    places = [columns.index(key) for key in keys] if is_head else list(range(len(keys)))
    start = 0 if is_head else len(keys)
    wanted = [_named(columns[place]).alias(f"key_{number}") for number, place in enumerate(places)]
    times = [_named(columns[start]).alias("start"), _named(columns[start + 1]).alias("end")]
    return FoundFrame(name, keys, frame.select(*wanted, *times))


@dataclass
class Sampler:
    """Samples events and matches. The caller bounds the size of every answer, however large the tables are."""

    events: Mapping[str, DataFrame] | DataFrame
    columns: Columns
    planned: ProgramPlan
    streams: Sequence[str] | None
    """The streams that the program uses; None for all."""
    found: Sequence[FoundFrame]
    kept: list[DataFrame] = field(default_factory=list)

    @contextmanager
    def keeping(self) -> Iterator[Sampler]:
        """Cache the matches in Spark while they are queried."""
        self.kept = [one.frame.persist() for one in self.found]
        try:
            yield self
        finally:
            for frame in self.kept:
                frame.unpersist()

    # --- events

    def _frames(self) -> dict[str | None, DataFrame]:
        if isinstance(self.events, Mapping):
            return dict(self.events.items())
        return {None: self.events}

    def _time(self, stream: str | None) -> str:
        time = self.columns.time
        return time if isinstance(time, str) else time[str(stream)]

    def _end(self, stream: str | None) -> str:
        end = self.columns.end
        named = end if isinstance(end, str) or end is None else end.get(str(stream))
        return named or self._time(stream)

    def rows(self) -> tuple[int, dict[str, int], int | None, int | None]:
        """Count all rows and the rows of each stream of the program; also return first start and last end in ticks."""
        total, by_stream, firsts, lasts = 0, {}, [], []
        for stream, frame in self._frames().items():
            bounds = [sql.min(_named(self._time(stream))), sql.max(_named(self._end(stream)))]
            answer = frame.agg(sql.count(sql.lit(1)), *bounds).toArrow()
            total += answer.column(0)[0].as_py()
            firsts += self._ticks(answer.column(1))
            lasts += self._ticks(answer.column(2))
            if stream is not None or self.columns.type is None:
                named = stream or in_words(self.planned.inputs[0].stream or "")
                by_stream[named] = answer.column(0)[0].as_py()
            else:
                by_stream |= self._rows_by_type(frame)
        return total, by_stream, min(firsts, default=None), max(lasts, default=None)

    def _rows_by_type(self, frame: DataFrame) -> dict[str, int]:
        kind = str(self.columns.type)
        counts = self._of_streams(frame, None).groupBy(_named(kind)).count().limit(1000).toArrow()
        names, numbers = counts.column(0).to_pylist(), counts.column(1).to_pylist()
        return {str(name): number for name, number in zip(names, numbers, strict=True) if name is not None}

    def _of_streams(self, frame: DataFrame, stream: str | None) -> DataFrame:
        """Keep only rows of streams that the program uses."""
        if self.streams is None or stream in self.streams or (stream is None and self.columns.type is None):
            return frame
        if stream is not None:
            return frame.limit(0)
        return frame.where(_named(str(self.columns.type)).isin([*self.streams]))

    def _ticks(self, column: pa.ChunkedArray) -> list[int]:
        kind = self.planned.plans[0].catalog.time_type
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp(column.type.unit)).cast(pa.timestamp(kind.unit))
        return [tick for tick in column.cast(pa.int64()).to_pylist() if tick is not None]

    def first_keys(self, keys: Sequence[str], most: int) -> tuple[list[Key], int]:
        """Return the keys of the earliest events, and the number of all keys."""
        parts = [
            self._of_streams(frame, stream).select(
                *(_named(key).alias(f"key_{place}") for place, key in enumerate(keys)),
                _named(self._time(stream)).alias("time"),
            )
            for stream, frame in self._frames().items()
            if {*keys} <= {*frame.columns}
        ]
        if not parts:
            return [], 0
        names = [f"key_{place}" for place in range(len(keys))]
        whole = reduce(and_, (sql.col(name).isNotNull() for name in names))
        present = reduce(DataFrame.unionByName, parts).where(whole)
        grouped = present.groupBy(*names).agg(sql.min("time").alias("time"))
        first = grouped.orderBy("time", *names).limit(most).toArrow()
        return _rows(first.select(names)), grouped.count()

    def collected(self, shown: Mapping[tuple[str, ...], Sequence[Key]], matched: Mapping[str, int]) -> Any:
        """Collect the events of these keys as Arrow tables, the first rows of each DataFrame.

        `matched` maps each pattern to the start of its first match: for patterns without a key, events from then on.
        """
        tables: dict[str | None, pa.Table] = {}
        for stream, frame in self._frames().items():
            own = self._of_streams(frame, stream)
            parts = [_has_key(keys, values) for keys, values in shown.items() if keys and {*keys} <= {*own.columns}]
            if () in shown:
                since = sql.lit(min(matched.values())) if matched else None
                ends = self._tick_column(own, self._end(stream))
                parts.append(sql.lit(True) if since is None else ends >= since)
            wanted = own.where(reduce(or_, parts, sql.lit(False)))
            tables[stream] = wanted.orderBy(_named(self._time(stream))).limit(MOST_ROWS).toArrow()
        return tables.get(None, tables)

    def _tick_column(self, frame: DataFrame, name: str) -> Column:
        """Return a time in ticks: microseconds, or the integer itself."""
        kind = frame.schema[name].dataType
        if isinstance(kind, TimestampType):
            return sql.unix_micros(_named(name))
        if isinstance(kind, TimestampNTZType):
            return sql.expr(f"timestampdiff(MICROSECOND, {EPOCH}, {_quoted(name)})")
        return _named(name).cast("long")

    # --- matches

    def matched_keys(self, one: FoundFrame, most: int) -> list[Key]:
        """Return the keys of the first matches."""
        names = one.key_columns
        first = one.frame.groupBy(*names).agg(sql.min("start").alias("start")).orderBy("start", *names).limit(most)
        return _rows(first.toArrow().select(names))

    def bars(self, one: FoundFrame, first: int, step: int, most: int) -> list[int]:
        """Count the matches that end in each of `most` steps from `first` on; others count at the first or last."""
        ticks = self._tick_column(one.frame, "end").alias("ticks")
        place = sql.expr(f"least(greatest((ticks - {first}) div {step}, 0), {most - 1})").alias("place")
        counts = one.frame.select(ticks).select(place).groupBy("place").count().toArrow()
        bars = [0] * most
        for number, value in zip(counts.column(0).to_pylist(), counts.column(1).to_pylist(), strict=True):
            bars[number] = value
        return bars

    def first_matches(self, one: FoundFrame, keys: Sequence[Key], most: int) -> list[tuple[Key, int, int]]:
        """Return the first matches of these keys: key, start and end in ticks."""
        names = one.key_columns
        fits = one.frame.where(_has_key(names, keys)) if names else one.frame
        times = [self._tick_column(fits, name).alias(f"{name}_ticks") for name in ("start", "end")]
        chosen = fits.select(*names, *times).orderBy("start_ticks", "end_ticks", *names).limit(most)
        return [(row[:-2], row[-2], row[-1]) for row in _rows(chosen.toArrow())]


def _has_key(keys: Sequence[str], values: Sequence[Key]) -> Column:
    """Return the condition that a row has one of these keys."""
    pairs = [zip(keys, own, strict=True) for own in values]
    fits = [reduce(and_, (_named(key) == sql.lit(part) for key, part in pair)) for pair in pairs]
    return reduce(or_, fits, sql.lit(False))


def _rows(table: pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _named(name: str) -> Column:
    return sql.col(_quoted(name))
