"""Answers questions about beliefs: probabilities of conditions, distributions and expected counts, as arrays and as
tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.belief.model import StatePlan
from ensue.errors import LimitError, SchemaError
from ensue.kernels.beliefs import Floats
from ensue.nodes import states

# --- conditions on a state

MOST_CASES = 20_000
"""The maximum number of cases of a condition on independent variables."""

_COMPARE: dict[str, Callable[[Any, int], Any]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

Flags = npt.NDArray[np.bool_]


def chosen(places: states.Places, statement: states.StateStatement) -> Flags:
    """The values of the domain that are selected."""
    named = np.isin(np.array(statement.values, object), list(places.values))
    return ~named if places.negated else named


def holds(condition: states.StateCondition, found: Callable[[states.Location | states.CountTest], Any]) -> Any:
    """Whether a condition holds, given the truth of its atoms."""
    match condition:
        case states.Location() | states.CountTest():
            return found(condition)
        case states.NotSo():
            return np.logical_not(holds(condition.item, found))
        case states.Both():
            return np.logical_and(holds(condition.left, found), holds(condition.right, found))
        case states.Either():
            return np.logical_or(holds(condition.left, found), holds(condition.right, found))


def _of_count(atom: states.Location | states.CountTest, count: Any, variables: int) -> Any:
    """Whether an atom without a named variable holds for this number of variables."""
    if isinstance(atom, states.CountTest):
        return _COMPARE[atom.operator](count, atom.number)
    assert not isinstance(atom.who, states.Constant)
    if atom.who.word == states.ANYONE:
        return np.greater(count, 0)
    return np.equal(count, 0 if atom.who.word == states.NOBODY else variables)


def truth(condition: states.StateCondition, statement: states.StateStatement, digits: npt.NDArray[np.int16]) -> Flags:
    """The combinations of values in which a condition holds."""

    def found(atom: states.Location | states.CountTest) -> Flags:
        mask = chosen(atom.places, statement)
        if isinstance(atom, states.Location) and isinstance(atom.who, states.Constant):
            return np.asarray(mask[digits[statement.variables.index(atom.who.name)]])
        return np.asarray(_of_count(atom, mask[digits].sum(axis=0), len(statement.variables)))

    return np.asarray(holds(condition, found))


def product_chances(condition: states.StateCondition, statement: states.StateStatement, chances: Floats) -> Floats:
    """The probability of a condition on independent variables; `chances` has rows with one distribution per variable.

    Variables are added one by one. A case is what is known of the atoms so far: the truth of those that name a
    variable, and a count for the others. Each case has its probability in every row.
    """
    parts = list(dict.fromkeys(states.atoms(condition)))
    masks = [chosen(atom.places, statement) for atom in parts]
    names = [
        atom.who.name if isinstance(atom, states.Location) and isinstance(atom.who, states.Constant) else None
        for atom in parts
    ]
    values = len(statement.values)
    cases: dict[tuple[int, ...], Floats] = {(0,) * len(parts): np.ones(len(chances))}
    for number, variable in enumerate(statement.variables):
        own = chances[:, number * values : (number + 1) * values]
        concerned = np.array([name in (None, variable) for name in names])
        kinds = np.array(masks, int).T * concerned
        steps = {
            tuple(int(part) for part in kind): own[:, (kinds == kind).all(axis=1)].sum(axis=1)
            for kind in np.unique(kinds, axis=0)
        }
        cases = _joined_cases(cases, steps)
    total = np.zeros(len(chances))
    for case, probability in cases.items():
        if _holds_in(condition, parts, names, case, len(statement.variables)):
            total += probability
    return total


def _joined_cases(
    cases: dict[tuple[int, ...], Floats], steps: dict[tuple[int, ...], Floats]
) -> dict[tuple[int, ...], Floats]:
    joined: dict[tuple[int, ...], Floats] = {}
    for case, probability in cases.items():
        for step, own in steps.items():
            together = tuple(a + b for a, b in zip(case, step, strict=True))
            joined[together] = joined.get(together, 0.0) + probability * own
    if len(joined) > MOST_CASES:
        raise LimitError(
            "state-question",
            f"the condition has more than {MOST_CASES} cases, which is too many for a state of this size",
            "use fewer variables or counts in one condition",
        )
    return joined


def _holds_in(
    condition: states.StateCondition,
    parts: Sequence[states.Location | states.CountTest],
    names: Sequence[str | None],
    case: tuple[int, ...],
    variables: int,
) -> bool:
    def found(atom: states.Location | states.CountTest) -> Any:
        place = parts.index(atom)
        return case[place] > 0 if names[place] is not None else _of_count(atom, case[place], variables)

    return bool(holds(condition, found))


# --- answers

EQUAL = 1e-12
"""Probabilities that differ by less than this count as equal."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Beliefs, one per row, that answer questions; with `given`, conditional on a condition."""

    plan: StatePlan
    chances: Floats
    given: states.StateCondition | None = None

    def under(self, condition: states.StateCondition) -> Answers:
        """The same beliefs, conditional on one more condition."""
        together = condition if self.given is None else states.Both(self.given, condition)
        return Answers(self.plan, self.chances, together)

    def probabilities(self, conditions: Sequence[states.StateCondition]) -> Floats:
        """The probability of each condition, a column each; NaN if the given condition is impossible."""
        if self.given is None:
            return self._unconditional(conditions)
        asked = [states.Both(condition, self.given) for condition in conditions]
        found = self._unconditional([*asked, self.given])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(found[:, -1:] > 0, found[:, :-1] / found[:, -1:], np.nan)

    def _unconditional(self, conditions: Sequence[states.StateCondition]) -> Floats:
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

    def expected_count(self, places: states.Places) -> Floats:
        """The expected number of variables that have one of the values."""
        parts = [states.Location(states.Constant(variable), places) for variable in self.plan.statement.variables]
        total: Floats = self.probabilities(parts).sum(axis=1)
        return total

    def count_distribution(self, places: states.Places) -> Floats:
        """The probability that none, one, two, ... of the variables have one of the values."""
        numbers = range(len(self.plan.statement.variables) + 1)
        return self.probabilities([states.CountTest(places, "=", number) for number in numbers])

    def most_likely(self) -> tuple[np.ndarray, Floats]:
        """The most likely combination of values, as numbers of values, and its probability; the first of equal ones."""
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
                "the most likely combination under a condition is only available for exact states",
                "query the most likely value of each variable by name",
            )
        marginals = self.chances.reshape(len(self.chances), model.variables, model.values)
        best = np.stack([first_of_best(marginals[:, v]) for v in range(model.variables)], axis=1)
        return best, np.take_along_axis(marginals, best[:, :, None], axis=2)[:, :, 0].prod(axis=1)


def at(variable: str, *values: str) -> states.Location:
    """The condition that a variable has a value: `alice IN kitchen`."""
    return states.Location(states.Constant(variable), states.Places(values))


def first_of_best(weights: Floats) -> np.ndarray:
    """The place of the largest number of each row; the first of equal ones. Rows of NaN give 0."""
    filled = np.nan_to_num(weights)
    close: np.ndarray = np.argmax(filled >= filled.max(axis=1, keepdims=True) - EQUAL, axis=1)
    return close


# Measures: what the kernel adds up at every event, and what becomes of the sums


def weights_of(measure: states.Measure, plan: StatePlan) -> Floats:
    """The weights with which a measure sums a joint distribution: one row for each sum."""
    statement, digits = plan.statement, plan.model.digits
    match measure:
        case states.ProbabilityOf(condition, None):
            return truth(condition, statement, digits)[None].astype(np.float64)
        case states.ProbabilityOf(condition, given):
            assert given is not None
            both = truth(states.Both(condition, given), statement, digits)
            return np.stack([both, truth(given, statement, digits)]).astype(np.float64)
        case states.ExpectedCount(places):
            return np.asarray(chosen(places, statement)[digits].sum(axis=0)[None], np.float64)
        case states.MostLikely(variable):
            own = digits[statement.variables.index(variable.name)]
            return np.stack([own == value for value in range(plan.model.values)]).astype(np.float64)


def sums_of(measure: states.Measure, answers: Answers) -> Floats:
    """The same sums from beliefs of any form, a column each."""
    match measure:
        case states.ProbabilityOf(condition, None):
            return answers.probabilities([condition])
        case states.ProbabilityOf(condition, given):
            assert given is not None
            return answers.probabilities([states.Both(condition, given), given])
        case states.ExpectedCount(places):
            return answers.expected_count(places)[:, None]
        case states.MostLikely(variable):
            return answers.marginal(variable.name)


def column_of(measure: states.Measure, sums: Floats, plan: StatePlan) -> pa.Array:
    """The column of a measure, computed from its sums; null if they are missing or the given condition is
    impossible."""
    missing = np.asarray(np.isnan(sums).any(axis=1))
    match measure:
        case states.ProbabilityOf(_, given) if given is not None:
            missing |= sums[:, 1] <= 0
            with np.errstate(divide="ignore", invalid="ignore"):
                return pa.array(sums[:, 0] / sums[:, 1], mask=missing)
        case states.MostLikely():
            return texts(first_of_best(sums), plan.statement.values, missing)
        case _:
            return pa.array(sums[:, 0], mask=missing)


def texts(numbers: np.ndarray, values: Sequence[str], missing: np.ndarray | None = None) -> pa.Array:
    """Values of a domain as texts, by their numbers."""
    indices = pa.array(numbers.astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())).dictionary_decode()


# --- answers as tables

ERROR = "error"
"""The column with the loss by approximation, if beliefs are not exact."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question: its state, its kind, what it is about, and the given condition."""

    state: int
    what: str
    arguments: tuple[Any, ...] = ()
    given: states.StateCondition | None = None


@dataclass(frozen=True, slots=True)
class KnownBeliefs:
    """Beliefs of a state with their key columns, and time columns if there are several."""

    keys: pa.Table
    count: int
    answers: Answers
    lost: Floats

    def answer(self, ask: Ask) -> pa.Table:
        """The table that answers a question."""
        known = (
            self if ask.given is None else KnownBeliefs(self.keys, self.count, self.answers.under(ask.given), self.lost)
        )
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
            parts: list[states.StateCondition] = [at(v, value) for v, value in zip(variables, combination, strict=True)]
            together = parts[0]
            for part in parts[1:]:
                together = states.Both(together, part)
            conditions.append(together)
        named = {v: pa.array([c[place] for c in combinations]) for place, v in enumerate(variables)}
        return self._listed(named, self.answers.probabilities(conditions))

    def probability(self, condition: states.StateCondition) -> pa.Table:
        return self._columns({"probability": _numbers(self.answers.probabilities([condition])[:, 0])})

    def expected_count(self, places: states.Places) -> pa.Table:
        return self._columns({"expected": _numbers(self.answers.expected_count(places))})

    def count_distribution(self, places: states.Places) -> pa.Table:
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
        """One row per belief and column of `chances`, identified by the columns `named`."""
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
            said = f"key `{taken[0]}` has the name of a column of the answer"
            raise SchemaError("reserved-column", said, "rename the PARTITION BY column")
        arrays = [*(keys.column(name) for name in keys.column_names), *columns.values()]
        return pa.table(arrays, names=[*keys.column_names, *columns])


def _numbers(values: Sequence[float] | Floats) -> pa.Array:
    """Probabilities; null if the given condition is impossible."""
    numbers = np.asarray(values, np.float64)
    return pa.array(numbers, mask=np.isnan(numbers))
