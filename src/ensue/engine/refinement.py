"""Refines coarse events: reads their context, predicts their labels, and expands them into alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.identity import row_ids
from ensue.engine.keys import encode_columns
from ensue.engine.sources import one_chunk
from ensue.engine.uncertainty import Floats, read_probabilities
from ensue.expr.types import readable
from ensue.kernels.compiler import Int64s

COLUMN, HOUR, WEEKDAY, PREVIOUS = "column", "hour", "weekday", "previous"
CLOCK = (HOUR, WEEKDAY)
"""Features that are derived from the time."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of an event. `name` is its name for users; a `column` has this name."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class ContextColumns:
    """The columns of a table with the label and the context of an event; the most significant feature comes first."""

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
        """The columns with the context of an event."""
        of_time = self.time if any(feature.kind != COLUMN for feature in self.features) else None
        own = [feature.name for feature in self.features if feature.kind == COLUMN]
        behind = [self.label, *self.partition_by] if self.looks_back else []
        return tuple(dict.fromkeys([*own, *([of_time] if of_time is not None else []), *behind]))


def text_of(column: pa.ChunkedArray, name: str) -> pa.Array:
    """The values as texts, by which they are compared: 7 and '7' are equal."""
    return readable(column, name).cast(pa.string())


def context_of(table: pa.Table, reading: ContextColumns, previous: pa.Array | None) -> list[pa.Array]:
    """The features of each row as texts. `previous` are the labels of the previous events, if needed."""
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


def previous_labels(table: pa.Table, reading: ContextColumns, labels: pa.Array) -> pa.Array:
    """For each row, the last known label of its key at an earlier time; among several at that time, the alphabetically
    last.

    Null if there is none, and for rows without a time or key.
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
    """The distinct labels in order, and the place of each row's label; -1 for none."""
    words = labels.unique().drop_null()
    words = words.take(pc.sort_indices(words))
    return words, codes_in(labels, words)


def codes_in(values: pa.Array, vocabulary: pa.Array) -> np.ndarray:
    """The place of each value in a vocabulary, -1 if it is unknown; null is a value like any other."""
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
    """The columns of counts for this number of features."""
    return [f"feature_{place}" for place in range(number)]


def count_contexts(context: Sequence[pa.Array], labels: pa.Array) -> pa.Table:
    """The number of times each context came with each label, a row for each. Rows without a label are not counted."""
    names = feature_columns(len(context))
    rows = pa.table([*context, labels], names=[*names, "label"])
    rows = rows.filter(rows.column("label").is_valid())
    counts = rows.group_by([*names, "label"], use_threads=False).aggregate([([], "count_all")])
    return in_order(counts.rename_columns([*names, "label", "count"]))


def in_order(counts: pa.Table) -> pa.Table:
    """The counts with an order and types that do not depend on how they were counted."""
    *texts, number = counts.column_names
    schema = pa.schema([*((name, pa.string()) for name in texts), (number, pa.int64())])
    return counts.cast(schema).sort_by([(name, "ascending") for name in texts]).combine_chunks()


# --- models of the label probabilities in a context: smoothed counts and logistic regression


@dataclass(frozen=True, slots=True)
class Prediction:
    """Distributions over the labels, one per row, and the distribution of each event."""

    distributions: Floats
    lines: Int64s


class Model(Protocol):
    """Predicts the labels of events from their context."""

    @property
    def vocabularies(self) -> tuple[pa.Array, ...]:
        """The values of each feature in the training data."""
        ...

    def predict(self, codes: Sequence[Int64s]) -> Prediction:
        """The distributions for contexts, given as places in the vocabularies; -1 for an unknown value."""
        ...


def predict(model: Model, context: Sequence[pa.Array]) -> Prediction:
    """The distributions for the contexts of events."""
    pairs = zip(context, model.vocabularies, strict=True)
    return model.predict([codes_in(values, vocabulary) for values, vocabulary in pairs])


@dataclass(frozen=True, slots=True)
class SmoothedCounts:
    """Counts, each smoothed with the distribution of the context with one feature less.

    With `n` counts of a label among `N` in a context of `k` features, and smoothing `s`: `p_k(label) = (n + s *
    p_(k-1)(label)) / (N + s)`, where the context of `k-1` features lacks the last one; with no features left, all
    labels are equally likely. So an unseen context has the distribution of the context with one feature less
    (interpolated back-off; Jelinek and Mercer's, with the weights of a Dirichlet prior).
    """

    vocabularies: tuple[pa.Array, ...]
    levels: tuple[Int64s, ...]
    """For each number of features, the known contexts, sorted: `parent * size of the vocabulary + code`."""
    distributions: Floats
    """The distributions of the context without features, then those of each level."""

    def predict(self, codes: Sequence[Int64s]) -> Prediction:
        length = len(codes[0])
        lines, parent, seen = np.zeros(length, np.int64), np.zeros(length, np.int64), np.ones(length, bool)
        first = 1
        for own, vocabulary, contexts in zip(codes, self.vocabularies, self.levels, strict=True):
            wanted = parent * len(vocabulary) + own
            parent = np.minimum(np.searchsorted(contexts, wanted), len(contexts) - 1)
            seen &= (own >= 0) & (contexts[parent] == wanted)
            lines = np.where(seen, first + parent, lines)
            first += len(contexts)
        return Prediction(self.distributions, lines)


def smoothed_counts(counts: pa.Table, labels: pa.Array, smoothing: float) -> SmoothedCounts:
    """The model of some counts."""
    numbers = counts.column("count").to_numpy().astype(np.float64)
    own_labels = codes_in(_column(counts, "label"), labels)
    vocabularies, codes = encoded_context(counts)
    group = np.zeros(len(numbers), np.int64)
    uniform = np.full((1, len(labels)), 1 / len(labels))
    tables = [_smoothed(_tally(group, own_labels, numbers, (1, len(labels))), uniform, smoothing)]
    levels = []
    for vocabulary, own in zip(vocabularies, codes, strict=True):
        contexts, group = np.unique(group * len(vocabulary) + own, return_inverse=True)
        tally = _tally(group, own_labels, numbers, (len(contexts), len(labels)))
        tables.append(_smoothed(tally, tables[-1][contexts // len(vocabulary)], smoothing))
        levels.append(contexts)
    return SmoothedCounts(vocabularies, tuple(levels), np.concatenate(tables))


def encoded_context(counts: pa.Table) -> tuple[tuple[pa.Array, ...], list[Int64s]]:
    """The vocabulary of each feature of some counts, and the places of their values in it."""
    columns = [_column(counts, name) for name in feature_columns(counts.num_columns - 2)]
    vocabularies = tuple(column.unique() for column in columns)
    return vocabularies, [codes_in(column, words) for column, words in zip(columns, vocabularies, strict=True)]


def _column(counts: pa.Table, name: str) -> pa.Array:
    return counts.column(name).combine_chunks().cast(pa.string())


def _tally(group: Int64s, labels: Int64s, numbers: Floats, shape: tuple[int, int]) -> Floats:
    return sums_by_place(group * shape[1] + labels, numbers, shape[0] * shape[1]).reshape(shape)


def sums_by_place(places: Int64s, numbers: Floats, length: int) -> Floats:
    """For each place, the sum of its numbers."""
    return np.bincount(places, numbers, length).astype(np.float64, copy=False)


def _smoothed(tally: Floats, coarser: Floats, smoothing: float) -> Floats:
    smoothed: Floats = (tally + smoothing * coarser) / (tally.sum(axis=1, keepdims=True) + smoothing)
    return smoothed


@dataclass(frozen=True, slots=True)
class Logistic:
    """Multinomial logistic regression: a weight for each value of each feature and each label.

    An unknown value has no weight, so the other features decide.
    """

    vocabularies: tuple[pa.Array, ...]
    weights: tuple[Floats, ...]
    """For each feature, a row per value with a weight for each label."""
    intercepts: Floats

    def predict(self, codes: Sequence[Int64s]) -> Prediction:
        contexts, lines = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
        scores = np.tile(self.intercepts, (len(contexts), 1))
        for place, weights in enumerate(self.weights):
            own = contexts[:, place]
            scores += np.where((own >= 0)[:, None], weights[own], 0.0)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return Prediction(odds / odds.sum(axis=1, keepdims=True), lines.ravel().astype(np.int64))


# --- alternatives: a row for each possible label of an event


@dataclass(frozen=True, slots=True)
class Expansion:
    """How coarse events become alternatives. `coarse` are the types to refine; None: all."""

    reading: ContextColumns
    labels: pa.Array
    model: Model
    type: str
    coarse: tuple[str, ...] | None
    probability: str | None
    alternatives: str | None
    id: tuple[str, ...] | None
    minimum: float

    @property
    def probability_column(self) -> str:
        return self.probability or "probability"

    @property
    def alternatives_column(self) -> str:
        return self.alternatives or "alternatives"

    def known_labels(self, table: pa.Table) -> pa.Array:
        """The label of each row, null if it is coarse."""
        label = self.reading.label
        if label not in table.column_names:
            return pa.nulls(table.num_rows, pa.string())
        found = text_of(table.column(label), label)
        if label != self.type or self.coarse is None:
            return found
        return pc.if_else(pc.is_in(found, value_set=pa.array(self.coarse)), pa.scalar(None, pa.string()), found)

    def expand(self, table: pa.Table, previous: pa.Array | None = None, numbers: Int64s | None = None) -> pa.Table:
        """The table with a row for each alternative.

        `previous` are the labels of the previous events, by default computed from this table. `numbers` distinguish
        equal rows, by default counted here.
        """
        known = self.known_labels(table)
        if self.reading.looks_back and previous is None:
            previous = previous_labels(table, self.reading, known)
        types = self._types(table)
        in_question = self._in_question(types)
        refined = in_question & known.is_null().to_numpy(zero_copy_only=False)
        rows, labels, shares = self._alternatives(table, previous, refined)
        certain = pc.if_else(pa.array(in_question), pc.coalesce(known, types), types)
        is_refined = pa.array(refined[rows])
        new_types = pc.if_else(is_refined, self.labels.take(pa.array(labels)), certain.take(pa.array(rows)))
        result = table.take(pa.array(rows))
        result = _with_column(result, self.type, new_types)
        result = _with_column(result, self.probability_column, pa.array(shares * self._own(table)[rows]))
        return _with_column(
            result, self.alternatives_column, self._groups(table, refined, numbers).take(pa.array(rows))
        )

    def _types(self, table: pa.Table) -> pa.Array:
        if self.type in table.column_names:
            return text_of(table.column(self.type), self.type)
        return pa.nulls(table.num_rows, pa.string())

    def _in_question(self, types: pa.Array) -> np.ndarray:
        if self.coarse is None:
            return np.ones(len(types), bool)
        found: np.ndarray = pc.is_in(types, value_set=pa.array(self.coarse)).to_numpy(zero_copy_only=False)
        return found

    def _own(self, table: pa.Table) -> Floats:
        """The probabilities of the events themselves."""
        if self.probability is None:
            return np.ones(table.num_rows)
        return read_probabilities(table.column(self.probability), self.probability, "table")

    def _alternatives(
        self, table: pa.Table, previous: pa.Array | None, refined: np.ndarray
    ) -> tuple[Int64s, Int64s, Floats]:
        """For each row of the result: its source row, its label, and the label's probability for that row."""
        places = np.flatnonzero(refined)
        chosen = table.take(pa.array(places))
        context = context_of(chosen, self.reading, None if previous is None else previous.take(pa.array(places)))
        prediction = predict(self.model, context)
        lengths, begins, labels = _listed(prediction, self.minimum)
        number = np.ones(table.num_rows, np.int64)
        number[places] = lengths[prediction.lines]
        line = np.full(table.num_rows, -1)
        line[places] = prediction.lines
        rows = np.repeat(np.arange(table.num_rows), number)
        inside = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
        is_refined, own_line = refined[rows], line[rows]
        found = np.zeros(len(rows), np.int64)
        found[is_refined] = labels[begins[own_line[is_refined]] + inside[is_refined]]
        shares = np.ones(len(rows))
        shares[is_refined] = prediction.distributions[own_line[is_refined], found[is_refined]]
        return rows, found, shares

    def _groups(self, table: pa.Table, refined: np.ndarray, numbers: Int64s | None) -> pa.Array:
        """Groups of rows that exclude each other: those of one event, and those that were alternatives before."""
        names = table.column_names if self.id is None else self.id
        columns = {name: _hashable(table.column(name), name) for name in names}
        given = None if numbers is None else numbers.view(np.uint64)
        if self.id is not None:
            given = np.zeros(table.num_rows, np.uint64)
        ids = pc.if_else(pa.array(refined), row_ids(columns, given), pa.scalar(None, pa.string()))
        if self.alternatives is None:
            return ids
        return pc.coalesce(text_of(table.column(self.alternatives), self.alternatives), ids)


def _hashable(column: pa.ChunkedArray, name: str) -> pa.Array:
    """The values without dictionary encoding; decimals are kept, because some would be equal as floats."""
    return one_chunk(column) if pa.types.is_decimal(column.type) else readable(column, name)


def _listed(prediction: Prediction, minimum: float) -> tuple[Int64s, Int64s, Int64s]:
    """The labels of each distribution that are probable enough: their number, their distribution, and their label."""
    lines, labels = np.nonzero(prediction.distributions >= minimum)
    lengths = np.bincount(lines, minlength=len(prediction.distributions))
    return lengths, np.cumsum(lengths) - lengths, labels


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)
