"""Leading events through the beliefs of their keys, all keys at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled
from ensue.kernels.factored import change_factored, entropy_of, wander_factored
from ensue.kernels.joint import Floats, Model, Small, change_joint, copy, wander_one

NEVER = np.iinfo(np.int64).min
STOP, SKIP, RESET = range(3)
FINE, CONTRADICTS, BEGAN_ANEW, CONTRADICTS_START = range(4)


class Responses(NamedTuple):
    """The changes that a state knows: what each is, and its numbers and matrix, where they are no fields of events."""

    codes: Codes
    weights: Floats
    hits: Floats
    misses: Floats
    matrices: Codes


class Changes(NamedTuple):
    """What each event does: row `d` are the changes that come `d`-th; `responses` -1: no more.

    `numbers` are the weight, hit and miss of each change where events have their own; otherwise it is empty.
    `chances` are the probabilities with which the events happened.
    """

    responses: Small
    who: Small
    source: Small
    target: Small
    numbers: Floats
    chances: Floats


class Beliefs(NamedTuple):
    """What is believed of each key: a distribution, the time of its last event, and what was lost by approximation."""

    chances: Floats
    moments: Int64s
    lost: Floats


class Wanted(NamedTuple):
    """What is asked for: `measures` of the belief at every row, and the whole belief at the rows with a place.

    `before`: as it was before the event. `until`: beliefs drift on to this time; NEVER: to no time.
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
    """So many periods pass."""
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
    """One change of an event: whether it was possible, and what was lost by approximation."""
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
    """All changes of an event. One that is impossible leaves the belief as it was."""
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
        if model.factored and (total > 0.0 or changes.responses.shape[0] > 1):
            after, before = entropy_of(x), entropy_of(saved)
            mix(x, saved, 1.0 - chance, 1.0)
            total += max(0.0, entropy_of(x) - chance * after - (1.0 - chance) * before)
        else:
            mix(x, saved, 1.0 - chance, 1.0)
    return True, total


@compiled
def record(x: Floats, lost: float, wanted: Wanted, row: int) -> None:
    """What is wanted of a belief: its measures, a weighted sum for each, and where it has a place, itself."""
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
    wanted: Wanted,
    status: npt.NDArray[np.int8],
) -> None:
    """Leads the events of each key, from `offsets[key]` to `offsets[key + 1]`, through its belief.

    `times` and `changes` are in that order, `order` says which row each event is.
    `status` says of each row whether it contradicted what was believed; with STOP, a key stops there.
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
