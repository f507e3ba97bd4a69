"""What a change does to a joint distribution: one number for each combination of the values of all variables.

Combination `s` gives variable `v` the value `digits[v, s]`; another value of it lies `strides[v]` combinations further
per value. `counts[j, s]` is how many variables have value `j`. Every function writes into `y` what becomes of `x`
and gives the probability that the change was possible at all, by which `y` is still to be divided.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Int64s, compiled

Floats = npt.NDArray[np.float64]
Small = npt.NDArray[np.int16]

MOVE_ONE, MOVE_ANYONE, MOVE_EVERYONE, WANDER_ONE, WANDER_EVERYONE, SEE_ONE, MISREAD_ONE, SEE_ANYONE, SEE_NOBODY = range(
    9
)


class Model(NamedTuple):
    """A state as arrays. `matrices` are transitions and errors of reading, `powers[k]` the drift of 2**k periods.

    `start` is the distribution at the beginning. With `factored` distributions are those of each variable, one behind
    the other, and `digits` and `counts` are empty; `nodes` and `shares` then integrate from 0 to 1.
    """

    variables: int
    values: int
    factored: bool
    digits: Small
    counts: Small
    strides: Int64s
    matrices: Floats
    powers: Floats
    drifting: npt.NDArray[np.bool_]
    period: int
    start: Floats
    nodes: Floats
    shares: Floats


@compiled
def clear(y: Floats) -> None:
    """Every number becomes zero."""
    for s in range(y.size):
        y[s] = 0.0


@compiled
def copy(source: Floats, target: Floats) -> None:
    """`target` becomes what `source` is."""
    for s in range(source.size):
        target[s] = source[s]


@compiled
def move_one(x: Floats, y: Floats, model: Model, who: int, source: int, target: int) -> float:
    """One variable goes from `source`, or from wherever (-1), to `target`."""
    clear(y)
    total = 0.0
    stride = model.strides[who]
    for s in range(x.size):
        digit = model.digits[who, s]
        if source < 0 or digit == source:
            y[s + (target - digit) * stride] += x[s]
            total += x[s]
    return total


@compiled
def move_anyone(x: Floats, y: Floats, model: Model, source: int, target: int) -> float:
    """One of those at `source`, each equally likely, goes to `target`; -1: one of all."""
    clear(y)
    total = 0.0
    for s in range(x.size):
        there = model.variables if source < 0 else model.counts[source, s]
        if there == 0 or x[s] == 0.0:
            continue
        total += x[s]
        share = x[s] / there
        for v in range(model.variables):
            digit = model.digits[v, s]
            if source < 0 or digit == source:
                y[s + (target - digit) * model.strides[v]] += share
    return total


@compiled
def move_everyone(x: Floats, y: Floats, model: Model, source: int, target: int) -> float:
    """All of those at `source`, which may be none, go to `target`; -1: all."""
    clear(y)
    total = 0.0
    for s in range(x.size):
        place = s
        for v in range(model.variables):
            digit = model.digits[v, s]
            if source < 0 or digit == source:
                place += (target - digit) * model.strides[v]
        y[place] += x[s]
        total += x[s]
    return total


@compiled
def wander_one(x: Floats, y: Floats, model: Model, who: int, matrix: Floats) -> float:
    """One variable changes by a transition matrix."""
    clear(y)
    total = 0.0
    stride = model.strides[who]
    for s in range(x.size):
        if x[s] == 0.0:
            continue
        total += x[s]
        digit = model.digits[who, s]
        for j in range(model.values):
            if matrix[digit, j] > 0.0:
                y[s + (j - digit) * stride] += x[s] * matrix[digit, j]
    return total


@compiled
def see_one(x: Floats, y: Floats, model: Model, who: int, target: int, hit: float, miss: float) -> float:
    """One variable is read as `target`: with probability `hit` where it is so, otherwise `miss`."""
    total = 0.0
    for s in range(x.size):
        y[s] = x[s] * (hit if model.digits[who, s] == target else miss)
        total += y[s]
    return total


@compiled
def misread_one(x: Floats, y: Floats, model: Model, who: int, target: int, matrix: Floats) -> float:
    """One variable is read as `target`, with the probability that its value is read so."""
    total = 0.0
    for s in range(x.size):
        y[s] = x[s] * matrix[model.digits[who, s], target]
        total += y[s]
    return total


@compiled
def see_some(x: Floats, y: Floats, model: Model, target: int, some: float, none: float) -> float:
    """A sign that has probability `some` where a variable has the value, and `none` where none has."""
    total = 0.0
    for s in range(x.size):
        y[s] = x[s] * (some if model.counts[target, s] > 0 else none)
        total += y[s]
    return total


@compiled
def change_joint(
    x: Floats,
    y: Floats,
    z: Floats,
    model: Model,
    code: int,
    who: int,
    source: int,
    target: int,
    hit: float,
    miss: float,
    matrix: int,
) -> float:
    """Writes what one change makes of `x` into `y`; gives the probability that it is possible, which is their sum."""
    total = 0.0
    if code == MOVE_ONE:
        total = move_one(x, y, model, who, source, target)
    elif code == MOVE_ANYONE:
        total = move_anyone(x, y, model, source, target)
    elif code == MOVE_EVERYONE:
        total = move_everyone(x, y, model, source, target)
    elif code == WANDER_ONE:
        total = wander_one(x, y, model, who, model.matrices[matrix])
    elif code == WANDER_EVERYONE:
        copy(x, z)
        for v in range(model.variables):
            total = wander_one(z, y, model, v, model.matrices[matrix])
            copy(y, z)
    elif code == SEE_ONE:
        total = see_one(x, y, model, who, target, hit, miss)
    elif code == MISREAD_ONE:
        total = misread_one(x, y, model, who, target, model.matrices[matrix])
    elif code == SEE_ANYONE:
        total = see_some(x, y, model, target, hit, miss)
    elif code == SEE_NOBODY:
        total = see_some(x, y, model, target, miss, hit)
    return total
