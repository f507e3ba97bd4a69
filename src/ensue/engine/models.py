"""Models that say how probable each label is in a context: smoothed counts, and logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.refinement import codes_in, feature_columns
from ensue.kernels.compiler import Int64s

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Distributions over the labels, one a line, and of each event which of them is its own."""

    distributions: Floats
    lines: Int64s


class Model(Protocol):
    """What tells the labels of events from their context."""

    @property
    def vocabularies(self) -> tuple[pa.Array, ...]:
        """The values that each feature had in the archive."""
        ...

    def predict(self, codes: Sequence[Int64s]) -> Prediction:
        """The distributions for contexts, given as places in the vocabularies; -1 for a value that is not there."""
        ...


def predict(model: Model, context: Sequence[pa.Array]) -> Prediction:
    """The distributions for the contexts of events."""
    pairs = zip(context, model.vocabularies, strict=True)
    return model.predict([codes_in(values, vocabulary) for values, vocabulary in pairs])


@dataclass(frozen=True, slots=True)
class SmoothedCounts:
    """Counts, each smoothed with the distribution of the context that has one feature less.

    With `n` counts of a label among `N` in a context of `k` features, and smoothing `s`:
    `p_k(label) = (n + s * p_(k-1)(label)) / (N + s)`, where the context of `k-1` features lacks the last one, and
    before the context of none all labels are equally likely. So a context that never came has the distribution of the
    one with a feature less (interpolated back-off; Jelinek and Mercer's, with the weights of a Dirichlet prior).
    """

    vocabularies: tuple[pa.Array, ...]
    levels: tuple[Int64s, ...]
    """Of each number of features the contexts that came: `parent * size of the vocabulary + code`, in order."""
    distributions: Floats
    """Of the context of no feature, then of those of each level."""

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
    """For each place the sum of the numbers that belong there."""
    return np.bincount(places, numbers, length).astype(np.float64, copy=False)


def _smoothed(tally: Floats, coarser: Floats, smoothing: float) -> Floats:
    smoothed: Floats = (tally + smoothing * coarser) / (tally.sum(axis=1, keepdims=True) + smoothing)
    return smoothed


@dataclass(frozen=True, slots=True)
class Logistic:
    """Multinomial logistic regression: a weight for each value of each feature and each label.

    A value that never came has no weight, so that the other features decide.
    """

    vocabularies: tuple[pa.Array, ...]
    weights: tuple[Floats, ...]
    """Of each feature a line for each value, with a weight for each label."""
    intercepts: Floats

    def predict(self, codes: Sequence[Int64s]) -> Prediction:
        contexts, lines = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
        scores = np.tile(self.intercepts, (len(contexts), 1))
        for place, weights in enumerate(self.weights):
            own = contexts[:, place]
            scores += np.where((own >= 0)[:, None], weights[own], 0.0)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return Prediction(odds / odds.sum(axis=1, keepdims=True), lines.ravel().astype(np.int64))
