"""What a change does to variables that are taken as independent: one distribution for each, one behind the other.

A change is worked out exactly on the product of the distributions; of the result only the distribution of each variable
is kept (assumed density filtering; Boyen and Koller, "Tractable inference for complex stochastic processes", 1998).
What is lost by that is the total correlation of the result, in nats: the sum of the entropies of the variables less
the entropy of all together. The functions give the latter, or a lower bound of it.
"""

import numpy as np

from ensue.kernels.compiler import compiled
from ensue.kernels.joint import (
    MISREAD_ONE,
    MOVE_ANYONE,
    MOVE_EVERYONE,
    MOVE_ONE,
    SEE_ANYONE,
    SEE_NOBODY,
    SEE_ONE,
    WANDER_ONE,
    Floats,
    Model,
    copy,
)


@compiled
def entropy_of(x: Floats) -> float:
    """The sum of the entropies of distributions that lie one behind the other."""
    total = 0.0
    for i in range(x.size):
        if x[i] > 0.0:
            total -= x[i] * np.log(x[i])
    return total


@compiled
def cross_entropy(p: Floats, x: Floats) -> float:
    """Less than infinite wherever `p` is possible only where `x` is."""
    total = 0.0
    for i in range(x.size):
        if p[i] > 0.0:
            total -= p[i] * np.log(x[i])
    return total


@compiled
def none_elsewhere(x: Floats, values: int, variables: int, value: int) -> Floats:
    """The logarithm of the probability that no *other* variable has the value, for each; the last: none at all."""
    before = np.zeros(variables + 1)
    for v in range(variables):
        q = x[v * values + value]
        before[v + 1] = before[v] + (np.log1p(-q) if q < 1.0 else -np.inf)
    logs = np.empty(variables + 1)
    logs[variables] = before[variables]
    after = 0.0
    for v in range(variables - 1, -1, -1):
        logs[v] = before[v] + after
        q = x[v * values + value]
        after += np.log1p(-q) if q < 1.0 else -np.inf
    return logs


@compiled
def mean_log_count(x: Floats, values: int, variables: int, value: int) -> float:
    """The mean of log(N) over the combinations with N > 0 variables at the value, not divided by their probability."""
    chances = np.zeros(variables + 1)
    chances[0] = 1.0
    for v in range(variables):
        q = x[v * values + value]
        for k in range(v + 1, 0, -1):
            chances[k] = chances[k] * (1.0 - q) + chances[k - 1] * q
        chances[0] *= 1.0 - q
    total = 0.0
    for k in range(2, variables + 1):
        total += chances[k] * np.log(k)
    return total


@compiled
def one_of_all(x: Floats, y: Floats, model: Model, target: int) -> float:
    """Any one of the variables goes to `target`; gives the entropy when it is known which one."""
    share = 1.0 / model.variables
    for v in range(model.variables):
        for j in range(model.values):
            y[v * model.values + j] = x[v * model.values + j] * (1.0 - share)
        y[v * model.values + target] += share
    return entropy_of(x) * (1.0 - share)


@compiled
def one_of_those(x: Floats, y: Floats, model: Model, source: int, target: int) -> tuple[float, float]:
    """One of those at `source` goes to `target`; gives the probability that there is one, and the entropy.

    A variable that is there is chosen with the mean of 1 / (1 + others there), the integral from 0 to 1 of
    the product of (1 - q + q z) over the others.
    """
    values, variables = model.values, model.variables
    logs = none_elsewhere(x, values, variables, source)
    possible = -np.expm1(logs[variables])
    if possible <= 0.0:
        return 0.0, 0.0
    chosen = np.zeros(variables)
    for k in range(model.nodes.size):
        z = model.nodes[k]
        product = model.shares[k]
        for v in range(variables):
            q = x[v * values + source]
            product *= 1.0 - q + q * z
        for v in range(variables):
            q = x[v * values + source]
            chosen[v] += product / (1.0 - q + q * z) * q
    mixing = 0.0
    for v in range(variables):
        first = v * values
        for j in range(values):
            others = 1.0 if j == source else -np.expm1(logs[v])
            y[first + j] = x[first + j] * others / possible
        moved = min(chosen[v] / possible, y[first + source])
        if moved > 0.0:
            mixing -= moved * np.log(moved)
    # What lies at the source before the move is known by now, and so is its entropy.
    known = cross_entropy(y, x) + np.log(possible) + mean_log_count(x, values, variables, source) / possible - mixing
    for v in range(variables):
        first = v * values
        moved = min(chosen[v] / possible, y[first + source])
        y[first + source] -= moved
        y[first + target] += moved
    return possible, known


@compiled
def see_some_factored(x: Floats, y: Floats, model: Model, target: int, some: float, none: float) -> tuple[float, float]:
    """A sign that has probability `some` where a variable has the value; gives its probability, and the entropy."""
    values, variables = model.values, model.variables
    logs = none_elsewhere(x, values, variables, target)
    empty, filled = np.exp(logs[variables]), -np.expm1(logs[variables])
    total = some * filled + none * empty
    if total <= 0.0:
        return 0.0, 0.0
    for v in range(variables):
        first = v * values
        others = some * -np.expm1(logs[v]) + none * np.exp(logs[v])
        for j in range(values):
            y[first + j] = x[first + j] * (some if j == target else others) / total
    entropy = cross_entropy(y, x) + np.log(total)
    if some > 0.0 and filled > 0.0:
        entropy -= some * filled / total * np.log(some)
    if none > 0.0 and empty > 0.0:
        entropy -= none * empty / total * np.log(none)
    return total, entropy


@compiled
def wander_factored(x: Floats, y: Floats, values: int, who: int, matrix: Floats) -> None:
    """One variable changes by a transition matrix; the others in `y` are left as they are."""
    first = who * values
    for j in range(values):
        y[first + j] = 0.0
    for i in range(values):
        if x[first + i] > 0.0:
            for j in range(values):
                y[first + j] += x[first + i] * matrix[i, j]


@compiled
def change_factored(
    x: Floats,
    y: Floats,
    model: Model,
    code: int,
    who: int,
    source: int,
    target: int,
    hit: float,
    miss: float,
    matrix: int,
) -> tuple[float, float, bool]:
    """Writes what one change makes of each variable into `y`; gives the probability that it is possible, the entropy
    of all together, and whether it tied variables to each other.
    """
    values = model.values
    first = who * values
    total = 0.0
    if code == MOVE_ANYONE:
        if source < 0:
            return 1.0, one_of_all(x, y, model, target), True
        possible, entropy = one_of_those(x, y, model, source, target)
        return possible, entropy, True
    if code == SEE_ANYONE or code == SEE_NOBODY:
        some, none = (hit, miss) if code == SEE_ANYONE else (miss, hit)
        total, entropy = see_some_factored(x, y, model, target, some, none)
        return total, entropy, True
    copy(x, y)
    if code == MOVE_ONE:
        total = 1.0 if source < 0 else x[first + source]
        for j in range(values):
            y[first + j] = 1.0 if j == target else 0.0
        return total, 0.0, False
    if code == SEE_ONE or code == MISREAD_ONE:
        for j in range(values):
            share = (hit if j == target else miss) if code == SEE_ONE else model.matrices[matrix, j, target]
            y[first + j] = x[first + j] * share
            total += y[first + j]
        if total > 0.0:
            for j in range(values):
                y[first + j] /= total
        return total, 0.0, False
    if code == MOVE_EVERYONE:
        for v in range(model.variables):
            for j in range(values):
                if j != target and (source < 0 or j == source):
                    y[v * values + target] += y[v * values + j]
                    y[v * values + j] = 0.0
        return 1.0, entropy_of(y), True
    if code == WANDER_ONE:
        wander_factored(x, y, values, who, model.matrices[matrix])
        return 1.0, 0.0, False
    for v in range(model.variables):
        wander_factored(x, y, values, v, model.matrices[matrix])
    return 1.0, entropy_of(y), True
