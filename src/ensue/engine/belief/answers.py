"""Answers of beliefs: probabilities of conditions, for many beliefs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.engine.belief.conditions import chosen, product_chances, truth
from ensue.engine.belief.model import StatePlan
from ensue.errors import LimitError
from ensue.kernels.joint import Floats
from ensue.nodes.states import (
    Both,
    Constant,
    Counted,
    ExpectedCount,
    Located,
    Measure,
    MostLikely,
    Places,
    ProbabilityOf,
    StateCondition,
)

EQUAL = 1e-12
"""Probabilities that differ by less are equally likely."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Beliefs, one per row, that answer questions; with `given`, as they would be if a condition held."""

    plan: StatePlan
    chances: Floats
    given: StateCondition | None = None

    def under(self, condition: StateCondition) -> Answers:
        """The same beliefs if one more condition held."""
        together = condition if self.given is None else Both(self.given, condition)
        return Answers(self.plan, self.chances, together)

    def probabilities(self, conditions: Sequence[StateCondition]) -> Floats:
        """The probability of each condition, a column for each; NaN where what is given is impossible."""
        if self.given is None:
            return self._unconditional(conditions)
        asked = [Both(condition, self.given) for condition in conditions]
        found = self._unconditional([*asked, self.given])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(found[:, -1:] > 0, found[:, :-1] / found[:, -1:], np.nan)

    def _unconditional(self, conditions: Sequence[StateCondition]) -> Floats:
        statement = self.plan.statement
        if not self.plan.exact:
            columns = [product_chances(condition, statement, self.chances) for condition in conditions]
            return np.stack(columns, axis=1) if columns else np.zeros((len(self.chances), 0))
        digits = self.plan.model.digits
        weights = [truth(condition, statement, digits).astype(np.float64) for condition in conditions]
        return self.chances @ np.stack(weights, axis=1)

    def marginal(self, variable: str) -> Floats:
        """The probability of each value of a variable."""
        return self.probabilities([at(variable, value) for value in self.plan.statement.values])

    def expected_count(self, places: Places) -> Floats:
        """How many variables have one of the values, on average."""
        parts = [Located(Constant(variable), places) for variable in self.plan.statement.variables]
        total: Floats = self.probabilities(parts).sum(axis=1)
        return total

    def count_distribution(self, places: Places) -> Floats:
        """The probability that none, one, two, ... of the variables have one of the values."""
        numbers = range(len(self.plan.statement.variables) + 1)
        return self.probabilities([Counted(places, "=", number) for number in numbers])

    def most_likely(self) -> tuple[np.ndarray, Floats]:
        """The most likely combination of values, as numbers of values, and its probability; of equal ones the first."""
        model = self.plan.model
        if self.plan.exact:
            weights = self.chances
            if self.given is not None:
                held = self.chances * truth(self.given, self.plan.statement, model.digits)
                with np.errstate(divide="ignore", invalid="ignore"):
                    weights = held / held.sum(axis=1, keepdims=True)
            best = first_of_best(weights)
            return model.digits[:, best].T, weights[np.arange(len(best)), best]
        if self.given is not None:
            raise LimitError(
                "state-question",
                "variables are kept apart here, so the most likely combination under a condition is not known",
                "ask for the most likely value of each variable by name",
            )
        marginals = self.chances.reshape(len(self.chances), model.variables, model.values)
        best = np.stack([first_of_best(marginals[:, v]) for v in range(model.variables)], axis=1)
        return best, np.take_along_axis(marginals, best[:, :, None], axis=2)[:, :, 0].prod(axis=1)


def at(variable: str, *values: str) -> Located:
    """`alice IN kitchen`."""
    return Located(Constant(variable), Places(values))


def first_of_best(weights: Floats) -> np.ndarray:
    """The place of the greatest number of each row; of equal ones the first. Rows of NaN give 0."""
    filled = np.nan_to_num(weights)
    close: np.ndarray = np.argmax(filled >= filled.max(axis=1, keepdims=True) - EQUAL, axis=1)
    return close


# Measures: what the kernel adds up at every event, and what becomes of the sums


def weights_of(measure: Measure, plan: StatePlan) -> Floats:
    """The weights by which a measure adds a joint distribution up: one row for each sum."""
    statement, digits = plan.statement, plan.model.digits
    match measure:
        case ProbabilityOf(condition, None):
            return truth(condition, statement, digits)[None].astype(np.float64)
        case ProbabilityOf(condition, given):
            assert given is not None
            both = truth(Both(condition, given), statement, digits)
            return np.stack([both, truth(given, statement, digits)]).astype(np.float64)
        case ExpectedCount(places):
            return np.asarray(chosen(places, statement)[digits].sum(axis=0)[None], np.float64)
        case MostLikely(variable):
            own = digits[statement.variables.index(variable.name)]
            return np.stack([own == value for value in range(plan.model.values)]).astype(np.float64)


def sums_of(measure: Measure, answers: Answers) -> Floats:
    """The same sums from beliefs of any form, a column for each."""
    match measure:
        case ProbabilityOf(condition, None):
            return answers.probabilities([condition])
        case ProbabilityOf(condition, given):
            assert given is not None
            return answers.probabilities([Both(condition, given), given])
        case ExpectedCount(places):
            return answers.expected_count(places)[:, None]
        case MostLikely(variable):
            return answers.marginal(variable.name)


def column_of(measure: Measure, sums: Floats, plan: StatePlan) -> pa.Array:
    """The column that a measure is, from its sums; null where they are missing, or what is given is impossible."""
    missing = np.asarray(np.isnan(sums).any(axis=1))
    match measure:
        case ProbabilityOf(_, given) if given is not None:
            missing |= sums[:, 1] <= 0
            with np.errstate(divide="ignore", invalid="ignore"):
                return pa.array(sums[:, 0] / sums[:, 1], mask=missing)
        case MostLikely():
            return texts(first_of_best(sums), plan.statement.values, missing)
        case _:
            return pa.array(sums[:, 0], mask=missing)


def texts(numbers: np.ndarray, values: Sequence[str], missing: np.ndarray | None = None) -> pa.Array:
    """Values of a domain by their numbers."""
    indices = pa.array(numbers.astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())).dictionary_decode()
