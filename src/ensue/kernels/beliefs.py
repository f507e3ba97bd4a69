"""Applies events to the beliefs of their keys, for all keys at once: joint distributions, and one distribution per
variable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled

# --- joint distributions: one number for each combination of the values of all variables

Floats = npt.NDArray[np.float64]
Small = npt.NDArray[np.int16]

MOVE_ONE, MOVE_ANYONE, MOVE_EVERYONE, WANDER_ONE, WANDER_EVERYONE, SEE_ONE, MISREAD_ONE, SEE_ANYONE, SEE_NOBODY = range(
    9
)


class Model(NamedTuple):
    """A state as arrays. `matrices` are transitions and observation errors; `powers[k]` is the drift of 2**k periods.

    `start` is the initial distribution. With `factored`, there is one distribution per variable, stored consecutively,
    and `digits` and `counts` are empty; `nodes` and `shares` are then used to integrate from 0 to 1.
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
    """Sets every number to zero."""
    for s in range(y.size):
        y[s] = 0.0


@compiled
def copy(source: Floats, target: Floats) -> None:
    """Copies `source` to `target`."""
    for s in range(source.size):
        target[s] = source[s]


@compiled
def move_one(x: Floats, y: Floats, model: Model, who: int, source: int, target: int) -> float:
    """Moves one variable from `source`, or from any value (-1), to `target`."""
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
    """Moves one of the variables at `source`, each equally likely, to `target`; -1: one of all."""
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
    """Moves all variables at `source`, possibly none, to `target`; -1: all."""
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
    """Changes one variable by a transition matrix."""
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
    """Observes one variable as `target`: with probability `hit` if it has this value, otherwise `miss`."""
    total = 0.0
    for s in range(x.size):
        y[s] = x[s] * (hit if model.digits[who, s] == target else miss)
        total += y[s]
    return total


@compiled
def misread_one(x: Floats, y: Floats, model: Model, who: int, target: int, matrix: Floats) -> float:
    """Observes one variable as `target`, with the probability that its value is read as such."""
    total = 0.0
    for s in range(x.size):
        y[s] = x[s] * matrix[model.digits[who, s], target]
        total += y[s]
    return total


@compiled
def see_some(x: Floats, y: Floats, model: Model, target: int, some: float, none: float) -> float:
    """An observation with probability `some` if any variable has the value, and `none` if none has."""
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
    """Writes the result of one change of `x` to `y`; returns the probability that it is possible, which is their
    sum."""
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


# --- independent variables: one distribution each, stored consecutively


@compiled
def entropy_of(x: Floats) -> float:
    """The sum of the entropies of consecutively stored distributions."""
    total = 0.0
    for i in range(x.size):
        if x[i] > 0.0:
            total -= x[i] * np.log(x[i])
    return total


@compiled
def cross_entropy(p: Floats, x: Floats) -> float:
    """The cross entropy of `p` and `x`; finite if `x` is possible wherever `p` is."""
    total = 0.0
    for i in range(x.size):
        if p[i] > 0.0:
            total -= p[i] * np.log(x[i])
    return total


@compiled
def none_elsewhere(x: Floats, values: int, variables: int, value: int) -> Floats:
    """For each variable, the logarithm of the probability that no *other* variable has the value; the last entry: none
    at all."""
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
    """Moves any one of the variables to `target`; returns the entropy when it is known which one."""
    share = 1.0 / model.variables
    for v in range(model.variables):
        for j in range(model.values):
            y[v * model.values + j] = x[v * model.values + j] * (1.0 - share)
        y[v * model.values + target] += share
    return entropy_of(x) * (1.0 - share)


@compiled
def one_of_those(x: Floats, y: Floats, model: Model, source: int, target: int) -> tuple[float, float]:
    """Moves one of the variables at `source` to `target`; returns the probability that there is one, and the entropy.

    A variable at `source` is chosen with the mean of 1 / (1 + others there), which is the integral from 0 to 1 of the
    product of (1 - q + q z) over the others.
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
    # The variables at the source before the move are known here, and so is their entropy.
    known = cross_entropy(y, x) + np.log(possible) + mean_log_count(x, values, variables, source) / possible - mixing
    for v in range(variables):
        first = v * values
        moved = min(chosen[v] / possible, y[first + source])
        y[first + source] -= moved
        y[first + target] += moved
    return possible, known


@compiled
def see_some_factored(x: Floats, y: Floats, model: Model, target: int, some: float, none: float) -> tuple[float, float]:
    """An observation with probability `some` if any variable has the value; returns its probability, and the
    entropy."""
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
    """Changes one variable by a transition matrix; the others in `y` stay unchanged."""
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
    """Writes the result of one change of each variable to `y`; returns the probability that it is possible, the joint
    entropy, and whether the change made variables dependent."""
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


# --- beliefs

NEVER = np.iinfo(np.int64).min
STOP, SKIP, RESET = range(3)
FINE, CONTRADICTS, BEGAN_ANEW, CONTRADICTS_START = range(4)


class Responses(NamedTuple):
    """The changes of a state: what each does, and its numbers and matrix, unless these are fields of events."""

    codes: Codes
    weights: Floats
    hits: Floats
    misses: Floats
    matrices: Codes


class Changes(NamedTuple):
    """What each event does: row `d` has the `d`-th change of each event; `responses` -1: no more.

    `numbers` are the weight, hit and miss of each change if events have their own; otherwise it is empty. `chances` are
    the probabilities that the events happened.
    """

    responses: Small
    who: Small
    source: Small
    target: Small
    numbers: Floats
    chances: Floats


class Beliefs(NamedTuple):
    """The belief of each key: a distribution, the time of its last event, and the loss by approximation."""

    chances: Floats
    moments: Int64s
    lost: Floats


class BeliefRequest(NamedTuple):
    """The requested output: `measures` of the belief at every row, and the whole belief at the rows with a place.

    `before`: the belief before the event. `until`: beliefs drift to this time; NEVER: no drift.
    """

    measures: Floats
    values: Floats
    places: Codes
    chances: Floats
    lost: Floats
    before: bool
    until: int


@compiled
def mix(x: Floats, y: Floats, weight: float, total: float) -> None:
    """`x` becomes `weight` parts of `y`, whose sum is `total`, and the rest of itself."""
    share = weight / total
    if weight >= 1.0:
        for s in range(x.size):
            x[s] = y[s] * share
        return
    for s in range(x.size):
        x[s] = share * y[s] + (1.0 - weight) * x[s]


@compiled
def drift(x: Floats, y: Floats, model: Model, periods: int) -> None:
    """Applies the drift of a number of periods."""
    bit = 0
    while periods > 0:
        if periods & 1:
            for v in range(model.variables):
                if model.drifting[v]:
                    if model.factored:
                        copy(x, y)
                        wander_factored(x, y, model.values, v, model.powers[bit])
                    else:
                        wander_one(x, y, model, v, model.powers[bit])
                    copy(y, x)
        periods >>= 1
        bit += 1


@compiled
def apply_change(
    x: Floats, y: Floats, z: Floats, model: Model, responses: Responses, changes: Changes, depth: int, row: int
) -> tuple[bool, float]:
    """Applies one change of an event; returns whether it was possible, and the loss by approximation."""
    response = changes.responses[depth, row]
    weight, hit, miss = responses.weights[response], responses.hits[response], responses.misses[response]
    if changes.numbers.shape[2] > 0:
        weight, hit, miss = (
            changes.numbers[0, depth, row],
            changes.numbers[1, depth, row],
            changes.numbers[2, depth, row],
        )
    if weight <= 0.0:
        return True, 0.0
    code, matrix = responses.codes[response], responses.matrices[response]
    who, source, target = changes.who[depth, row], changes.source[depth, row], changes.target[depth, row]
    lost = 0.0
    if not model.factored:
        possible = change_joint(x, y, z, model, code, who, source, target, hit, miss, matrix)
        if possible > 0.0:
            mix(x, y, weight, possible)
    else:
        possible, entropy, ties = change_factored(x, y, model, code, who, source, target, hit, miss, matrix)
        if possible > 0.0:
            before = entropy_of(x)
            mix(x, y, weight, 1.0)
            if ties:
                lost = max(0.0, entropy_of(x) - weight * entropy - (1.0 - weight) * before)
    return possible > 0.0 or weight < 1.0, lost


@compiled
def apply_event(
    x: Floats, saved: Floats, y: Floats, z: Floats, model: Model, responses: Responses, changes: Changes, row: int
) -> tuple[bool, float]:
    """Applies all changes of an event. An impossible event leaves the belief unchanged."""
    chance = changes.chances[row]
    if changes.responses[0, row] < 0 or chance <= 0.0:
        return True, 0.0
    # A single change that is certain leaves the belief alone where it is impossible.
    kept = chance < 1.0 or changes.responses.shape[0] > 1
    if kept:
        copy(x, saved)
    total = 0.0
    for depth in range(changes.responses.shape[0]):
        if changes.responses[depth, row] < 0:
            break
        possible, lost = apply_change(x, y, z, model, responses, changes, depth, row)
        if not possible:
            if kept:
                copy(saved, x)
            return chance < 1.0, 0.0
        total += lost
    if chance < 1.0:
        # A change of one variable leaves the others independent of it, whether or not it happened.
        code = responses.codes[changes.responses[0, row]]
        of_one = code == MOVE_ONE or code == WANDER_ONE or code == SEE_ONE or code == MISREAD_ONE
        if model.factored and (not of_one or changes.responses.shape[0] > 1):
            after, before = entropy_of(x), entropy_of(saved)
            mix(x, saved, 1.0 - chance, 1.0)
            total += max(0.0, entropy_of(x) - chance * after - (1.0 - chance) * before)
        else:
            mix(x, saved, 1.0 - chance, 1.0)
    return True, total


@compiled
def record(x: Floats, lost: float, wanted: BeliefRequest, row: int) -> None:
    """Records the requested output of a belief: its measures, a weighted sum each, and the belief itself if it has a
    place."""
    for m in range(wanted.measures.shape[0]):
        total = 0.0
        for s in range(x.size):
            total += wanted.measures[m, s] * x[s]
        wanted.values[row, m] = total
    place = wanted.places[row]
    if place >= 0:
        copy(x, wanted.chances[place])
        wanted.lost[place] = lost


@compiled
def follow_beliefs(
    order: Codes,
    offsets: Int64s,
    times: Int64s,
    changes: Changes,
    model: Model,
    responses: Responses,
    beliefs: Beliefs,
    policy: int,
    wanted: BeliefRequest,
    status: npt.NDArray[np.int8],
) -> None:
    """Applies the events of each key, from `offsets[key]` to `offsets[key + 1]`, to its belief.

    `times` and `changes` are in that order; `order` maps each event to its row. `status` tells for each row whether it
    contradicted the belief; with STOP, a key stops there.
    """
    size = beliefs.chances.shape[1]
    saved, y, z = np.empty(size), np.empty(size), np.empty(size)
    for key in range(offsets.size - 1):
        x = beliefs.chances[key]
        for place in range(offsets[key], offsets[key + 1]):
            row = order[place]
            moment = beliefs.moments[key]
            if moment != NEVER and model.period > 0:
                drift(x, y, model, times[place] // model.period - moment // model.period)
            if moment != NEVER or changes.responses[0, place] >= 0:
                beliefs.moments[key] = times[place]
            if wanted.before:
                record(x, beliefs.lost[key], wanted, row)
            for attempt in range(2):
                possible, lost = apply_event(x, saved, y, z, model, responses, changes, place)
                beliefs.lost[key] += lost
                if possible:
                    status[row] = FINE if attempt == 0 else BEGAN_ANEW
                    break
                status[row] = CONTRADICTS if attempt == 0 else CONTRADICTS_START
                if policy != RESET or attempt == 1:
                    break
                copy(model.start, x)
                beliefs.lost[key] = 0.0
            if status[row] == CONTRADICTS and policy == STOP:
                break
            if not wanted.before:
                record(x, beliefs.lost[key], wanted, row)
        moment = beliefs.moments[key]
        if wanted.until != NEVER and moment != NEVER and wanted.until > moment:
            if model.period > 0:
                drift(x, y, model, wanted.until // model.period - moment // model.period)
            beliefs.moments[key] = wanted.until
