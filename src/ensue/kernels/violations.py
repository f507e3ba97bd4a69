"""Finding where traces break constraints, event by event; each constraint once in a trace."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled

NEVER = np.iinfo(np.int64).min
Times = npt.NDArray[np.int64]


class Checks(NamedTuple):
    """The constraints by number. Streams are numbered too. Clause `c` has `members[offsets[c]:offsets[c + 1]]` as body.

    `prior` has rows (earlier stream, later stream, number); a clause has its head, -1 if its body cannot all occur.
    `ends` is, per stream, the number of the constraint by which it ends a trace, or -1.
    """

    prior: Times
    offsets: Int64s
    members: Int64s
    heads: Int64s
    numbers: Int64s
    ends: Int64s
    lifetime: int


class Seen(NamedTuple):
    """Per trace and stream the time of the first and the last event; whether the ended trace was judged."""

    first: Times
    last: Times
    judged: npt.NDArray[np.bool_]


@compiled
def add(
    found: Times, count: int, trace: int, constraint: int, stream: int, time: int, other: int, other_time: int
) -> Times:
    """The rows with one more behind the first `count`."""
    if count == found.shape[0]:
        found = np.concatenate((found, np.empty_like(found)))
    found[count, 0] = trace
    found[count, 1] = constraint
    found[count, 2] = stream
    found[count, 3] = time
    found[count, 4] = other
    found[count, 5] = other_time
    return found


@compiled
def last_of_body(c: int, k: int, checks: Checks, first: Times) -> int:
    """The stream of the body of a clause that came last to a trace; -1 if one of them has not come."""
    latest = -1
    for m in range(checks.offsets[c], checks.offsets[c + 1]):
        member = checks.members[m]
        if first[k, member] == NEVER:
            latest = -1
            break
        if latest < 0 or first[k, member] > first[k, latest]:
            latest = member
    return latest


@compiled
def is_reported(number: int, code: int, k: int, checks: Checks, first: Times) -> bool:
    """Whether streams of a constraint have clashed before: they clash in pairs, and one of them is enough."""
    reported = False
    for other in range(checks.heads.size):
        if checks.numbers[other] == number:
            known = True
            for m in range(checks.offsets[other], checks.offsets[other + 1]):
                member = checks.members[m]
                known = known and member != code and first[k, member] != NEVER
            reported = reported or known
    return reported


@compiled
def clash_with(c: int, code: int, k: int, checks: Checks, first: Times) -> int:
    """The stream that came last before `code` of those that cannot all occur; -2 if they have not, or without it."""
    takes_part, latest = False, -1
    for m in range(checks.offsets[c], checks.offsets[c + 1]):
        member = checks.members[m]
        if first[k, member] == NEVER:
            takes_part = False
            break
        if member == code:
            takes_part = True
        elif latest < 0 or first[k, member] > first[k, latest]:
            latest = member
    return latest if takes_part else -2


@compiled
def find_violations(
    order: Codes,
    keys: Codes,
    times: Int64s,
    codes: Codes,
    checks: Checks,
    seen: Seen,
    until: int,
    open_ends: bool,
) -> Times:
    """Rows of (trace, constraint, stream, time, other stream or -1, its time), in the order in which they are found.

    A trace that lacks something is judged when it has ended: with an ending event at or before `until`, by its
    lifetime, or, if `open_ends`, now. One that goes on after its end breaks ENDS and counts as a new one.
    """
    first, last, judged = seen.first, seen.last, seen.judged
    streams, events = first.shape[1], order.size
    found = np.empty((16, 6), np.int64)
    count = 0
    for place in range(events + first.shape[0]):
        i = order[place] if place < events else -1
        k = keys[i] if i >= 0 else place - events
        if k < 0:
            continue
        time = times[i] if i >= 0 else until
        began, ended, ending = NEVER, NEVER, -1
        for s in range(streams):
            if first[k, s] != NEVER and (began == NEVER or first[k, s] < began):
                began = first[k, s]
            if checks.ends[s] >= 0 and first[k, s] != NEVER and (ended == NEVER or first[k, s] < ended):
                ended, ending = first[k, s], s
        expired = began != NEVER and (time - checks.lifetime > began if i >= 0 else time - checks.lifetime >= began)
        over = ending >= 0 and (time > ended if i >= 0 else time >= ended)
        if began != NEVER and not judged[k] and (over or expired or (i < 0 and open_ends)):
            judged[k] = True
            for c in range(checks.heads.size):
                if checks.heads[c] >= 0 and first[k, checks.heads[c]] == NEVER:
                    latest = last_of_body(c, k, checks, first)
                    if latest >= 0:
                        found = add(found, count, k, checks.numbers[c], latest, first[k, latest], -1, NEVER)
                        count += 1
        if i < 0:
            continue
        code = codes[i]
        if over or expired:
            if over and not expired:
                found = add(found, count, k, checks.ends[ending], code, time, ending, ended)
                count += 1
            judged[k] = False
            first[k] = NEVER
            last[k] = NEVER
        is_first = first[k, code] == NEVER
        if is_first:
            first[k, code] = time
        for p in range(checks.prior.shape[0]):
            if checks.prior[p, 0] == code:
                since = first[k, checks.prior[p, 1]]
                if since != NEVER and time > since and (last[k, code] == NEVER or last[k, code] <= since):
                    found = add(found, count, k, checks.prior[p, 2], code, time, checks.prior[p, 1], since)
                    count += 1
        last[k, code] = time
        reported = -1
        for c in range(checks.heads.size if is_first else 0):
            if checks.heads[c] >= 0 or checks.numbers[c] == reported:
                continue
            latest = clash_with(c, code, k, checks, first)
            if latest > -2:
                reported = checks.numbers[c]
                if not is_reported(reported, code, k, checks, first):
                    found = add(found, count, k, reported, code, time, latest, first[k, latest])
                    count += 1
    return found[:count]
