"""Input tables: their times as numbers, and columns that are converted when they are first used."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.uncertainty import Uncertainty, arrange_blocks, read_probabilities
from ensue.errors import SchemaError, counted
from ensue.expr.types import has_dates, readable, without_dates
from ensue.kernels.compiler import Codes, Int64s
from ensue.nodes.names import Stream
from ensue.nodes.uncertainty import Hierarchy
from ensue.plan.inputs import InputTable

MOST_ROWS = 2**31 - 1
SAFE_TIME = 2**61
"""The limit of times and windows, so that adding them cannot overflow."""

LONG_TEXT = 4096
"""Columns with longer texts than this (in bytes, on average) get 64-bit offsets, so that a chunk of candidates fits."""

Mask = npt.NDArray[np.bool_]


MANY_ROWS = 4
"""If more than one in this many rows of a column is used, the whole column is converted."""


SEARCHED_FOR_TIES = 1 << 11
"""The number of events and of matches that are searched for ties at once, so that this takes little time."""

COMPARED_PAIRS = 1 << 9
"""The number of pairs of events at the same time that are compared with the conditions of a query in a step."""


UNORDERED = "on the order of events at the same time; use `order=` or ALLOWING TIES"


class Tie(NamedTuple):
    """Events of two streams at the same time, where a query requires one before the other.

    If `forbidden`, an event of the first is forbidden next to one of the second, and matches are counted that have
    both. Otherwise, pairs are counted that are no match because they are at the same time.
    """

    pattern: str
    one: str
    other: str
    forbidden: bool = False

    @property
    def label(self) -> str:
        """Its name among the counts of a stream.

        >>> Tie("p", "C", "A", forbidden=True).label, Tie("", "A", "B").label
        ('p: matches with C at the time of A', 'pairs of A and B at the same time')
        """
        where = f"{self.pattern}: " if self.pattern else ""
        if self.forbidden:
            return f"{where}matches with {self.one} at the time of {self.other}"
        return f"{where}pairs of {self.one} and {self.other} at the same time"


@dataclass(slots=True)
class Report:
    """The numbers of rows that a run read and ignored.

    With constraints also the number of failed traces and of events skipped in them. `peak_held` is the maximum number
    of events kept between two steps; `peak_without` is a lower bound of what it would have been without constraints;
    `evaluated` counts the rows that the steps evaluated, repeatedly if kept.
    """

    rows: int = 0
    null_times: int = 0
    null_types: int = 0
    null_keys: int = 0
    reversed_intervals: int = 0
    late: int = 0
    matches: int = 0
    traces_failed: int = 0
    events_skipped: int = 0
    peak_held: int = 0
    peak_without: int = 0
    evaluated: int = 0
    ties: Counter[Tie] = field(default_factory=Counter, repr=False)
    """How often the result depends on the order of events at the same time, which nothing defines."""

    def copy(self) -> Report:
        return Report(*_counts(self))

    def saved(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {**asdict(self), "ties": [[*tie, count] for tie, count in self.ties.items()]}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Report:
        """The report of saved counts."""
        ties = Counter({Tie(*tie): count for *tie, count in saved.get("ties", ())})
        return cls(**{**saved, "ties": ties})

    def with_added(self, other: Report) -> Report:
        """The sum of both counts; for peaks the maximum."""
        added = Report(*map(operator.add, _counts(self), _counts(other)))
        added.peak_held = max(self.peak_held, other.peak_held)
        added.peak_without = max(self.peak_without, other.peak_without)
        return added

    def since(self, earlier: Report) -> Report:
        """The counts since an earlier state of the same report."""
        return Report(*map(operator.sub, _counts(self), _counts(earlier)))

    def tie_words(self, told: Collection[object] = ()) -> list[str]:
        """What depends on the order of events at the same time, and what to do about it, except for some ties."""
        return [notice_of_ties([words]) for words in self.ties_in_words(told)]

    def ties_in_words(self, told: Collection[object] = ()) -> list[str]:
        """What depends on the order of events at the same time, except for ties that have been told."""
        said = []
        for tie, count in self.ties.items():
            verb = "has" if count == 1 else "have"
            where = f"pattern `{tie.pattern}`: " if tie.pattern else ""
            if tie in told:
                continue
            if count and tie.forbidden:
                total = counted(self.matches, "match", "matches") if self.matches >= count else "the matches"
                least = "at least " if self.matches > SEARCHED_FOR_TIES else ""
                said.append(f"{where}{least}{count} of {total} {verb} a `{tie.one}` at the very time of `{tie.other}`")
            elif count:
                least = "at least " if self.rows > SEARCHED_FOR_TIES or count >= COMPARED_PAIRS else ""
                pairs = f"{least}{counted(count, 'pair', 'pairs')} of `{tie.one}` and `{tie.other}`"
                said.append(f"{where}{pairs} {verb} the same time, so neither event is before the other")
        return said

    @property
    def ignored(self) -> dict[str, int]:
        """The ignored rows, by reason."""
        counts = {
            "no timestamp": self.null_times,
            "no type": self.null_types,
            "no key": self.null_keys,
            "end before start": self.reversed_intervals,
        }
        return {reason: count for reason, count in counts.items() if count}


_counts = operator.attrgetter(*(item.name for item in fields(Report)))


def notice_of_ties(words: Sequence[str]) -> str:
    """One notice of everything in a run that depends on the order of events at the same time."""
    if len(words) == 1:
        return f"{words[0]}; use `order=` or ALLOWING TIES"
    return "\n  ".join((f"results depend {UNORDERED}", *words))


@dataclass(slots=True)
class EventSource:
    """A table with its times as numbers; columns are converted when they are first used."""

    input: InputTable
    starts: Int64s
    ends: Int64s
    valid: Mask | None
    readable_columns: dict[str, pa.Array] = field(default_factory=dict)
    raw_columns: dict[str, pa.Array] = field(default_factory=dict)
    uncertainty: Uncertainty | None = None
    """The probability of each row; None: all are certain."""
    pieces: dict[str, pa.Array] = field(default_factory=dict)
    """Columns of the whole table, if only some of its rows are used."""
    places: Int64s | None = None
    """The places of the rows in the table; None: they are all its rows, in order."""
    views: dict[Stream, EventSource] = field(default_factory=dict)
    """The streams of rows in the table that were used."""

    @property
    def origin(self) -> EventSource:
        """The table whose rows these are. Events with the same origin and row number are the same event."""
        return self

    @property
    def names(self) -> list[str]:
        """The columns of its events."""
        found: list[str] = self.input.table.column_names
        return found

    @property
    def table(self) -> pa.Table:
        """The rows with all their columns."""
        return self.input.table if self.places is None else self.input.table.take(pa.array(self.places))

    def column(self, name: str) -> pa.Array:
        """The readable values of a column; decimals stay decimals."""
        if name not in self.readable_columns:
            values = readable(self.raw_column(name), name, exact=True)
            values = without_dates(values) if pa.types.is_date(values.type) else values
            if pa.types.is_string(values.type) and values.nbytes > LONG_TEXT * len(values):
                values = values.cast(pa.large_string())
            self.readable_columns[name] = values
        return self.readable_columns[name]

    def taken(self, names: Iterable[str], rows: Codes) -> list[pa.Array]:
        """Columns of some rows, in their original types."""
        if self.places is None:
            places = pa.array(rows)
            return [self.raw_column(name).take(places) for name in names]
        places = pa.array(self.places[rows])
        return [self._piece(name).take(places) for name in names]

    def values(self, name: str, rows: Codes) -> pa.Array:
        """The values of a column in some rows, for expressions: decimals stay decimals, and dates stay dates."""
        if has_dates(self.input.table.schema.field(name).type):
            return readable(self.taken([name], rows)[0], name, exact=True)
        if self.places is None or name in self.readable_columns or MANY_ROWS * len(rows) > len(self.starts):
            return self.column(name).take(pa.array(rows))
        return readable(self._piece(name).take(pa.array(self.places[rows])), name, exact=True)

    def _piece(self, name: str) -> pa.Array:
        """A column of the whole table."""
        if name not in self.pieces:
            self.pieces[name] = one_chunk(self.input.table.column(name))
        return self.pieces[name]

    def raw_column(self, name: str) -> pa.Array:
        if name not in self.raw_columns:
            if self.places is None:
                self.raw_columns[name] = one_chunk(self.input.table.column(name))
            else:
                self.raw_columns[name] = self._piece(name).take(pa.array(self.places))
        return self.raw_columns[name]


def load_sources(inputs: Sequence[InputTable], time_type: pa.DataType) -> tuple[tuple[EventSource, ...], Report]:
    """Reads the times of all tables; rows without a usable time are marked and counted."""
    report = Report()
    sources = []
    for table in inputs:
        if table.table.num_rows > MOST_ROWS:
            raise SchemaError(
                "too-many-rows", f"the {table.label} has more than {MOST_ROWS} rows", "split it into batches"
            )
        report.rows += table.table.num_rows
        report.null_types += table.table.column(table.type).null_count if table.type is not None else 0
        starts, valid = read_times(table, table.time, time_type)
        ends = starts
        if table.end is not None:
            ends, ends_valid = read_times(table, table.end, time_type)
            valid = _both(valid, ends_valid)
        report.null_times += 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
        if table.end is not None:
            ordered = starts <= ends
            report.reversed_intervals += int(np.count_nonzero(~ordered if valid is None else valid & ~ordered))
            valid = _both(valid, None if ordered.all() else ordered)
        sources.append(EventSource(table, starts, ends, valid))
    if any(table.probability is not None or table.hierarchy.parts for table in inputs):
        read_uncertainty(sources)
    return tuple(sources), report


def read_uncertainty(sources: Sequence[EventSource]) -> None:
    """Reads the probabilities of the rows; a row with probability 0 is not an event."""
    uncertain = [source for source in sources if source.input.probability is not None or source.input.hierarchy.parts]
    probabilities, kinds = [], []
    for source in uncertain:
        item, name = source.input, source.input.probability
        ones = np.ones(len(source.starts))
        probabilities.append(ones if name is None else read_probabilities(item.table.column(name), name, item.label))
        kinds.append(_kinds(item) if item.hierarchy.parts else None)
    groups = [[source.column(name) for name in source.input.alternatives] for source in uncertain]
    coarse = [
        None if found is None else _are_coarse(found, source.input.hierarchy)
        for found, source in zip(kinds, uncertain, strict=True)
    ]
    arranged = arrange_blocks(probabilities, groups, coarse)
    for source, uncertainty, found in zip(uncertain, arranged, kinds, strict=True):
        source.uncertainty = replace(uncertainty, kind=found)
        possible = uncertainty.probability > 0
        source.valid = _both(source.valid, None if possible.all() else possible)


def _kinds(item: InputTable) -> Codes:
    """The stream of the hierarchy of each row; -1: none of them."""
    assert item.type is not None
    names = pa.array(item.hierarchy.names)
    found = pc.index_in(item.table.column(item.type).cast(pa.string()), value_set=names)
    return np.asarray(one_chunk(pc.fill_null(found, -1)).to_numpy(zero_copy_only=False)).astype(np.int32, copy=False)


def _are_coarse(kinds: Codes, hierarchy: Hierarchy) -> Mask:
    """The rows that may belong to a finer stream than their type."""
    coarser = np.array([*map(hierarchy.is_coarser, hierarchy.names), False])
    mask: Mask = coarser[kinds]
    return mask


def read_times(table: InputTable, name: str, time_type: pa.DataType) -> tuple[Int64s, Mask | None]:
    """A time column as int64 ticks, and the rows that have a time (None: all)."""
    column = table.table.column(name)
    try:
        if column.type != time_type or time_type.bit_width != 64:
            column = _as_time(column, time_type)
        array = one_chunk(column)
    except pa.ArrowInvalid as error:
        raise _out_of_range(table, name) from error
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(array.type))
    numbers: Int64s = array.view(pa.int64()).to_numpy()
    if len(numbers) and not -SAFE_TIME < int(numbers.min()) <= int(numbers.max()) < SAFE_TIME:
        raise _out_of_range(table, name)
    return numbers, valid


def _as_time(column: pa.ChunkedArray, time_type: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(time_type):
        return column if column.type == pa.int64() else column.cast(pa.int64())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(column.type.unit))
    return column.cast(pa.timestamp(time_type.unit))


def _out_of_range(table: InputTable, name: str) -> SchemaError:
    return SchemaError(
        "time-range",
        f"column `{name}` of the {table.label} contains times outside the supported range",
        "use a coarser unit, or smaller integers",
    )


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece, without a copy if it already is."""
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = column.cast(pa.large_string()).combine_chunks()
    return joined


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def latest_end(sources: Iterable[EventSource]) -> int | None:
    """The end of the last event of the input, without those of declared streams."""
    given = [source for source in sources if not source.input.derived]
    ends = [source.ends if source.valid is None else source.ends[source.valid] for source in given]
    return max((int(found.max()) for found in ends if len(found)), default=None)


def latest_of(*moments: int | None) -> int | None:
    """The latest of the known moments."""
    return max((moment for moment in moments if moment is not None), default=None)
