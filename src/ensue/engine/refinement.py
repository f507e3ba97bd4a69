"""The context of events as texts: columns, the hour, the weekday, and what the event before was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.keys import encode_columns
from ensue.engine.sources import one_chunk
from ensue.expr.types import readable

COLUMN, HOUR, WEEKDAY, PREVIOUS = "column", "hour", "weekday", "previous"
CLOCK = (HOUR, WEEKDAY)
"""Features that are read off a clock."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that is known of an event. `name` is what the user calls it; a `column` has this name."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Which columns of a table say what an event was, and in which context; the most telling feature comes first."""

    label: str
    features: tuple[Feature, ...]
    time: str | None
    partition_by: tuple[str, ...]
    zone: str

    @property
    def looks_back(self) -> bool:
        """Whether an event's context depends on another event."""
        return any(feature.kind == PREVIOUS for feature in self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say in which context an event is."""
        of_time = self.time if any(feature.kind != COLUMN for feature in self.features) else None
        own = [feature.name for feature in self.features if feature.kind == COLUMN]
        behind = [self.label, *self.partition_by] if self.looks_back else []
        return tuple(dict.fromkeys([*own, *([of_time] if of_time is not None else []), *behind]))


def text_of(column: pa.ChunkedArray, name: str) -> pa.Array:
    """The values as texts, by which they are compared: 7 and '7' are one."""
    return readable(column, name).cast(pa.string())


def context_of(table: pa.Table, reading: Reading, previous: pa.Array | None) -> list[pa.Array]:
    """The features of each row as texts. `previous` are the labels of the events before, where these are asked for."""
    found = []
    for feature in reading.features:
        if feature.kind == COLUMN:
            found.append(text_of(table.column(feature.name), feature.name))
        elif feature.kind == PREVIOUS:
            found.append(previous)
        else:
            assert reading.time is not None
            found.append(_of_clock(readable(table.column(reading.time), reading.time), feature.kind, reading.zone))
    return found


def _of_clock(times: pa.Array, kind: str, zone: str) -> pa.Array:
    if pa.types.is_null(times.type):
        return times.cast(pa.string())
    if times.type.tz is not None:
        times = pc.local_timestamp(times.cast(pa.timestamp(times.type.unit, zone)))
    return (pc.hour(times) if kind == HOUR else pc.day_of_week(times)).cast(pa.string())


def previous_labels(table: pa.Table, reading: Reading, labels: pa.Array) -> pa.Array:
    """Of each row the last known label of its key at an earlier time; of several at that time, the last by alphabet.

    Null where there is none, and for rows without a time or key.
    """
    assert reading.time is not None
    times = readable(table.column(reading.time), reading.time)
    keys, _ = encode_columns([[one_chunk(table.column(name))] for name in reading.partition_by])
    valid = (keys[0] >= 0) & times.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid)
    ticks = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)[rows]
    words, ranks = _ranked(labels)
    found = np.full(len(labels), -1)
    found[rows] = _previous(keys[0][rows].astype(np.int64), ticks, ranks[rows])
    return words.take(pa.array(found, mask=found < 0))


def _ranked(labels: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The different labels in order, and of each row the place of its own; -1 for none."""
    words = labels.unique().drop_null()
    words = words.take(pc.sort_indices(words))
    return words, codes_in(labels, words)


def codes_in(values: pa.Array, vocabulary: pa.Array) -> np.ndarray:
    """The place of each value in a vocabulary, -1 for those that are not in it; null is a value like any other."""
    places = pc.index_in(values, value_set=vocabulary)
    codes: np.ndarray = places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _previous(keys: np.ndarray, ticks: np.ndarray, labels: np.ndarray) -> np.ndarray:
    order = np.lexsort((labels, ticks, keys))
    places = np.arange(len(order))
    keys, ticks, labels = keys[order], ticks[order], labels[order]
    new_key = np.append(True, keys[1:] != keys[:-1])[: len(order)]
    new_moment = new_key | np.append(True, ticks[1:] != ticks[:-1])[: len(order)]
    known = np.maximum.accumulate(np.where(labels >= 0, places, -1))
    begins = np.maximum.accumulate(np.where(new_moment, places, 0))
    before = np.where(begins > 0, known[begins - 1], -1)
    is_own = before >= np.maximum.accumulate(np.where(new_key, places, 0))
    found = np.empty(len(order), np.int64)
    found[order] = np.where(is_own & (before >= 0), labels[before], -1)
    return found


def feature_columns(number: int) -> list[str]:
    """The columns of counts that hold so many features."""
    return [f"feature_{place}" for place in range(number)]


def count_contexts(context: Sequence[pa.Array], labels: pa.Array) -> pa.Table:
    """How often each context came with each label: a row for each. Rows without a label are not counted."""
    names = feature_columns(len(context))
    rows = pa.table([*context, labels], names=[*names, "label"])
    rows = rows.filter(rows.column("label").is_valid())
    counts = rows.group_by([*names, "label"], use_threads=False).aggregate([([], "count_all")])
    return in_order(counts.rename_columns([*names, "label", "count"]))


def in_order(counts: pa.Table) -> pa.Table:
    """The counts in an order, and of types, that do not depend on how they were counted."""
    *texts, number = counts.column_names
    schema = pa.schema([*((name, pa.string()) for name in texts), (number, pa.int64())])
    return counts.cast(schema).sort_by([(name, "ascending") for name in texts]).combine_chunks()
