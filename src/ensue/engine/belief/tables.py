"""Answers as tables: the columns of the key, and what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.belief.answers import Answers, at, first_of_best, texts
from ensue.errors import SchemaError
from ensue.kernels.joint import Floats
from ensue.nodes.states import Both, Places, StateCondition

ERROR = "error"
"""The column of what was lost by approximation, where beliefs are not exact."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question: to which state, which one, about what, and what is given."""

    state: int
    what: str
    arguments: tuple[Any, ...] = ()
    given: StateCondition | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Beliefs of a state with what tells them apart: columns of keys, and of times where there are several."""

    keys: pa.Table
    count: int
    answers: Answers
    lost: Floats

    def answer(self, ask: Ask) -> pa.Table:
        """The table that answers a question."""
        known = self if ask.given is None else Known(self.keys, self.count, self.answers.under(ask.given), self.lost)
        table: pa.Table = getattr(known, ask.what)(*ask.arguments)
        return table

    def marginal(self, variable: str) -> pa.Table:
        values = self.answers.plan.statement.values
        return self._listed({"value": pa.array(values)}, self.answers.marginal(variable))

    def joint(self, *variables: str) -> pa.Table:
        values = self.answers.plan.statement.values
        combinations = list(product(values, repeat=len(variables)))
        conditions = []
        for combination in combinations:
            parts: list[StateCondition] = [at(v, value) for v, value in zip(variables, combination, strict=True)]
            together = parts[0]
            for part in parts[1:]:
                together = Both(together, part)
            conditions.append(together)
        named = {v: pa.array([c[place] for c in combinations]) for place, v in enumerate(variables)}
        return self._listed(named, self.answers.probabilities(conditions))

    def probability(self, condition: StateCondition) -> pa.Table:
        return self._columns({"probability": _numbers(self.answers.probabilities([condition])[:, 0])})

    def expected_count(self, places: Places) -> pa.Table:
        return self._columns({"expected": _numbers(self.answers.expected_count(places))})

    def count_distribution(self, places: Places) -> pa.Table:
        chances = self.answers.count_distribution(places)
        return self._listed({"count": pa.array(range(chances.shape[1]), pa.int64())}, chances)

    def most_likely(self, variable: str | None = None) -> pa.Table:
        statement = self.answers.plan.statement
        if variable is not None:
            chances = self.answers.marginal(variable)
            best = first_of_best(chances)
            missing = np.asarray(np.isnan(chances).any(axis=1))
            top = chances[np.arange(len(best)), best]
            return self._columns({variable: texts(best, statement.values, missing), "probability": _numbers(top)})
        places, top = self.answers.most_likely()
        missing = np.isnan(top)
        columns = {v: texts(places[:, n], statement.values, missing) for n, v in enumerate(statement.variables)}
        return self._columns({**columns, "probability": _numbers(top)})

    def errors(self) -> pa.Table:
        keys = self.keys if self.keys.num_columns else pa.table({ERROR: pa.array(self.lost)})
        return keys if not self.keys.num_columns else self._joined(keys, {ERROR: pa.array(self.lost)})

    def _columns(self, columns: dict[str, pa.Array]) -> pa.Table:
        """One row per belief."""
        if not self.answers.plan.exact:
            columns = {**columns, ERROR: pa.array(self.lost)}
        return self._joined(self.keys, columns)

    def _listed(self, named: dict[str, pa.Array], chances: Floats) -> pa.Table:
        """One row per belief and column of `chances`, which `named` tells apart."""
        many = chances.shape[1]
        rows = np.repeat(np.arange(len(chances)), many)
        each = np.tile(np.arange(many), len(chances))
        columns = {name: values.take(pa.array(each)) for name, values in named.items()}
        columns["probability"] = _numbers(chances.ravel())
        if not self.answers.plan.exact:
            columns[ERROR] = pa.array(self.lost[rows])
        return self._joined(self.keys.take(pa.array(rows)) if self.keys.num_columns else self.keys, columns)

    def _joined(self, keys: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
        taken = [name for name in keys.column_names if name in columns]
        if taken:
            said = f"the answer has a column `{taken[0]}` of its own, and so has the key"
            raise SchemaError("reserved-column", said, "rename the column of PARTITION BY")
        arrays = [*(keys.column(name) for name in keys.column_names), *columns.values()]
        return pa.table(arrays, names=[*keys.column_names, *columns])


def _numbers(values: Sequence[float] | Floats) -> pa.Array:
    """Probabilities; null where what is given is impossible."""
    numbers = np.asarray(values, np.float64)
    return pa.array(numbers, mask=np.isnan(numbers))
