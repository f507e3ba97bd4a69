"""Coarse events as alternatives: a row for each label that an event may have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.identity import row_ids
from ensue.engine.models import Model, Prediction, predict
from ensue.engine.refinement import Reading, context_of, previous_labels, text_of
from ensue.engine.sources import one_chunk
from ensue.engine.uncertainty import Floats, read_probabilities
from ensue.expr.types import readable
from ensue.kernels.compiler import Int64s


@dataclass(frozen=True, slots=True)
class Expansion:
    """How coarse events become alternatives. `coarse` are the types to refine; None: all."""

    reading: Reading
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
        """The label of each row, null where it is coarse."""
        label = self.reading.label
        if label not in table.column_names:
            return pa.nulls(table.num_rows, pa.string())
        found = text_of(table.column(label), label)
        if label != self.type or self.coarse is None:
            return found
        return pc.if_else(pc.is_in(found, value_set=pa.array(self.coarse)), pa.scalar(None, pa.string()), found)

    def expand(self, table: pa.Table, previous: pa.Array | None = None, numbers: Int64s | None = None) -> pa.Table:
        """The table with a row for each alternative.

        `previous` are the labels of the events before, which are looked for in this table unless given. `numbers` tell
        equal rows apart; unless given, they are counted here.
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
        """How probable the events are by themselves."""
        if self.probability is None:
            return np.ones(table.num_rows)
        return read_probabilities(table.column(self.probability), self.probability, "table")

    def _alternatives(
        self, table: pa.Table, previous: pa.Array | None, refined: np.ndarray
    ) -> tuple[Int64s, Int64s, Floats]:
        """Of each row of the result: the row it comes from, its label, and how probable this is for that row."""
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
        """Which rows exclude each other: those of one event, and those that did so before."""
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
    """The values without a coding; decimals stay what they are, because as floats some would be equal."""
    return one_chunk(column) if pa.types.is_decimal(column.type) else readable(column, name)


def _listed(prediction: Prediction, minimum: float) -> tuple[Int64s, Int64s, Int64s]:
    """The labels of each distribution that are probable enough, one behind the other: how many, from where, which."""
    lines, labels = np.nonzero(prediction.distributions >= minimum)
    lengths = np.bincount(lines, minlength=len(prediction.distributions))
    return lengths, np.cumsum(lengths) - lengths, labels


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, values)
    return table.set_column(table.column_names.index(name), name, values)
