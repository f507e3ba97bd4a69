"""A STATE as arrays: its start, its transitions, and the tables that changes use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.check.state_problems import TOLERANCE
from ensue.errors import Problem, QueryError, Source
from ensue.expr.kinds import NANOSECONDS_PER_UNIT
from ensue.kernels.beliefs import (
    MISREAD_ONE,
    MOVE_ANYONE,
    MOVE_EVERYONE,
    MOVE_ONE,
    SEE_ANYONE,
    SEE_NOBODY,
    SEE_ONE,
    WANDER_EVERYONE,
    WANDER_ONE,
    Floats,
    Model,
    Responses,
)
from ensue.nodes import states
from ensue.nodes.expressions import Duration, Literal
from ensue.nodes.patterns import Ticks
from ensue.plan.states import LARGEST_JOINT

_POWERS = 62
"""The number of powers of two that represent the periods between any two times."""


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A compiled state, ready to process events."""

    statement: states.StateStatement
    source: Source | None
    model: Model
    responses: Responses

    @property
    def exact(self) -> bool:
        """Whether the joint distribution is kept, or only that of each variable."""
        return not self.model.factored

    @property
    def size(self) -> int:
        """The number of values in the belief of one key."""
        return len(self.model.start)


def plan_state(
    statement: states.StateStatement, source: Source | None, time_type: pa.DataType, limit: int = LARGEST_JOINT
) -> StatePlan:
    """Compiles a state; its joint distribution is kept if it has at most `limit` numbers."""
    variables, values = len(statement.variables), len(statement.values)
    factored = variables * np.log(values) > np.log(limit) + TOLERANCE
    starts = _starts(statement)
    digits = np.zeros((variables, 0), np.int16) if factored else _digits(variables, values)
    matrices = [np.eye(values)]
    responses = _responses([response.change for response in statement.responses], statement, matrices)
    drift = statement.drift
    nodes, shares = np.polynomial.legendre.leggauss(variables // 2 + 1) if factored else (np.zeros(0), np.zeros(0))
    model = Model(
        variables,
        values,
        bool(factored),
        digits,
        np.stack([(digits == value).sum(axis=0) for value in range(values)]).astype(np.int16),
        np.array([values ** (variables - 1 - v) if not factored else 0 for v in range(variables)], np.int64),
        np.stack(matrices),
        np.zeros((0, values, values)) if drift is None else _powers(transition(drift.change.arrows, statement.values)),
        _drifting(statement),
        _period(statement, source, time_type),
        np.concatenate(starts) if factored else _product(starts),
        (nodes + 1) / 2,
        shares / 2,
    )
    return StatePlan(statement, source, model, responses)


def transition(arrows: Iterable[states.Arrow], values: Sequence[str]) -> Floats:
    """The transition matrix of some arrows; the rest of each row stays at its value."""
    matrix = np.zeros((len(values), len(values)))
    for arrow in arrows:
        matrix[values.index(arrow.source), values.index(arrow.target)] = arrow.probability
    left = 1 - matrix.sum(axis=1)
    # Decimals that add to 1 need not do so in floats: then nothing stays.
    left[np.abs(left) <= TOLERANCE] = 0.0
    matrix[np.diag_indices(len(values))] += left
    scaled: Floats = matrix / matrix.sum(axis=1, keepdims=True)
    return scaled


def _digits(variables: int, values: int) -> npt.NDArray[np.int16]:
    """The value of each variable in each combination; the last variable changes fastest."""
    grid = np.indices((values,) * variables).reshape(variables, -1)
    return np.ascontiguousarray(grid.astype(np.int16))


def _starts(statement: states.StateStatement) -> list[Floats]:
    chosen = {start.variable: start for start in statement.starts}
    found = []
    for variable in statement.variables:
        start = chosen.get(variable, chosen.get(None))
        if start is None or start.chances is None:
            found.append(np.full(len(statement.values), 1 / len(statement.values)))
            continue
        own = np.zeros(len(statement.values))
        for chance in start.chances:
            own[statement.values.index(chance.value)] = chance.probability
        found.append(own / own.sum())
    return found


def _product(parts: Sequence[Floats]) -> Floats:
    together = np.ones(1)
    for part in parts:
        together = np.outer(together, part).ravel()
    return together


def _powers(matrix: Floats) -> Floats:
    powers = [matrix]
    while len(powers) < _POWERS:
        powers.append(powers[-1] @ powers[-1])
    return np.stack(powers)


def _drifting(statement: states.StateStatement) -> npt.NDArray[np.bool_]:
    who = statement.drift.change.who if statement.drift is not None else None
    return np.array(
        [
            who is not None and who in (states.Someone(states.EVERYONE), states.Constant(name))
            for name in statement.variables
        ]
    )


def _period(statement: states.StateStatement, source: Source | None, time_type: pa.DataType) -> int:
    if statement.drift is None:
        return 0
    window, unit = statement.drift.window, None if pa.types.is_integer(time_type) else time_type.unit
    if isinstance(window, Ticks) and unit is None:
        return window.count
    problem = None
    if isinstance(window, Duration) and unit is not None:
        ticks, rest = divmod(window.nanoseconds, NANOSECONDS_PER_UNIT[unit])
        if not rest:
            return ticks
        said = f"EVERY must be a multiple of the unit of the time column, which is {unit}"
        problem = Problem("window-size", said, window.span, hint="use a longer duration")
    elif isinstance(window, Duration):
        said = "EVERY must not have a unit, because the time column contains integers"
        hint = "write a plain number such as `EVERY 100`, or convert the column to timestamps"
        problem = Problem("window-unit", said, window.span, hint=hint)
    else:
        said = "EVERY must have a unit, because the time column contains timestamps"
        problem = Problem("window-unit", said, window.span, hint="write for example `EVERY 10m`")
    raise QueryError([problem], source)


def _responses(changes: Sequence[states.Change], statement: states.StateStatement, matrices: list[Floats]) -> Responses:
    """The changes as numbers; their transitions and observation errors are appended to `matrices`."""
    rows = [_response(change, statement, matrices) for change in changes]
    codes, weights, hits, misses, places = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return Responses(
        np.array(codes, np.int32),
        np.array(weights, np.float64),
        np.array(hits, np.float64),
        np.array(misses, np.float64),
        np.array(places, np.int32),
    )


def _response(
    change: states.Change, statement: states.StateStatement, matrices: list[Floats]
) -> tuple[int, float, float, float, int]:
    word = change.who.word if isinstance(change.who, states.Someone) else None
    match change:
        case states.Move():
            code = MOVE_ONE if word is None else MOVE_ANYONE if word == states.ANYONE else MOVE_EVERYONE
            return code, _fixed(change.probability, 1.0), 1.0, 0.0, 0
        case states.Wander():
            matrices.append(transition(change.arrows, statement.values))
            return (WANDER_ONE if word is None else WANDER_EVERYONE), 1.0, 1.0, 0.0, len(matrices) - 1
        case states.Observe(errors=None):
            code = SEE_ONE if word is None else SEE_ANYONE if word == states.ANYONE else SEE_NOBODY
            hit = _fixed(change.reliability, 1.0)
            return code, 1.0, hit, float(miss_of(change, hit, len(statement.values))), 0
        case states.Observe():
            assert change.errors is not None
            matrices.append(transition(change.errors, statement.values))
            return MISREAD_ONE, 1.0, 1.0, 0.0, len(matrices) - 1


def _fixed(number: states.Number | None, otherwise: float) -> float:
    """A number of the declaration; numbers from fields are read with the events."""
    return float(number.value) if isinstance(number, Literal) else otherwise  # type: ignore[arg-type]


def miss_of(change: states.Observe, hit: float | Floats, values: int) -> float | Floats:
    """The probability of an observation if it is wrong: the other values of one variable have equal shares."""
    if isinstance(change.false_alarm, Literal):
        return float(change.false_alarm.value)  # type: ignore[arg-type]
    return 1 - hit if isinstance(change.who, states.Someone) else (1 - hit) / (values - 1)
