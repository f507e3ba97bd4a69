"""Kernels on traces: follow them event by event, count stream pairs, and find violations of constraints.

Sets of streams, steps and leaves are bits of 64-bit words, as many as needed. The arrays of `Rules` encode a query's
monitor (`ensue.plan.monitors`); those of `Traces` have one entry per trace, or one per trace and word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled

Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min


class Rules(NamedTuple):
    """A monitor as arrays. The steps of graph `g` are the bits of the words `word_offsets[g]` to `[g + 1]`; moves of a
    leaf and conditions of a step have offsets, too.

    `used_bits` is the number of steps in a word. A step fails if one of its `fatal` streams has occurred, or by one of
    its conditions. `ends` is the bit of all streams that end a trace, in the first word.
    """

    word_offsets: Int64s
    used_bits: Int64s
    move_offsets: Int64s
    move_from: Int64s
    move_to: Int64s
    losses: Bits
    starts: Bits
    wholes: Bits
    trails: Flags
    fatal: Bits
    condition_offsets: Int64s
    condition_seen: Bits
    condition_unseen: Bits
    ends: np.uint64
    lifetime: int


class Traces(NamedTuple):
    """The record of each trace. `gained` and `lost` belong to the events at `moment`, whose order is not known.

    `changed` marks traces to be evaluated again, `completes` traces with a whole match, or with one that trails.
    `failures` is one number: how many traces have failed.
    """

    seen: Bits
    reached: Bits
    began: Int64s
    failed: Flags
    closed: Flags
    number: Codes
    gained: Bits
    lost: Bits
    moment: Int64s
    changed: Flags
    completes: Flags
    failures: Int64s


class Arrivals(NamedTuple):
    """Events with their traces and times, and the new ones in time order.

    `leaves` are the leaves of the monitor that an event satisfies. `bits` is the number of the bit of its stream, or
    -1, and `ends` is whether it ends its trace.
    """

    order: Codes
    keys: Codes
    times: Int64s
    leaves: Bits
    bits: Codes
    ends: Flags


@compiled
def is_hopeless(k: int, g: int, rules: Rules, seen: Bits, reached: Bits) -> bool:
    """Whether every step of a graph that a trace has reached has failed. Larger steps fail later, so they are first."""
    one, nothing = np.uint64(1), np.uint64(0)
    for word in range(rules.word_offsets[g + 1] - 1, rules.word_offsets[g] - 1, -1):
        steps = reached[k, word] & ~rules.wholes[word]
        if steps == nothing:
            continue
        for bit in range(rules.used_bits[word] - 1, -1, -1):
            if not (steps >> np.uint64(bit)) & one:
                continue
            step = 64 * word + bit
            failed = False
            for w in range(seen.shape[1]):
                if seen[k, w] & rules.fatal[step, w]:
                    failed = True
            if failed:
                continue
            for c in range(rules.condition_offsets[step], rules.condition_offsets[step + 1]):
                failed = True
                for w in range(seen.shape[1]):
                    if seen[k, w] & rules.condition_seen[c, w] != rules.condition_seen[c, w]:
                        failed = False
                    elif seen[k, w] & rules.condition_unseen[c, w]:
                        failed = False
                if failed:
                    break
            if not failed:
                return False
    return True


@compiled
def follow(arrivals: Arrivals, rules: Rules, traces: Traces, skipped: Flags, numbers: Codes) -> None:
    """Applies new events to their traces.

    Sets `skipped` for events of traces that failed before them, and `numbers` to the number of an event's trace within
    its key. All events of one moment have reached a trace when a later one comes, or at the end: then lost steps are
    removed, gained steps are added, and the trace is evaluated.
    """
    order, keys, times, leaves = arrivals.order, arrivals.keys, arrivals.times, arrivals.leaves
    seen, reached, began, failed, closed = traces.seen, traces.reached, traces.began, traces.failed, traces.closed
    number, gained, lost, moment = traces.number, traces.gained, traces.lost, traces.moment
    changed, completes, failures = traces.changed, traces.completes, traces.failures
    starts, wholes, trails = rules.starts, rules.wholes, rules.trails
    move_offsets, word_offsets = rules.move_offsets, rules.word_offsets
    move_from, move_to, losses = rules.move_from, rules.move_to, rules.losses
    one, nothing, low = np.uint64(1), np.uint64(0), np.uint64(63)
    graphs, words, events = trails.size, starts.size, order.size
    current = np.empty(words, np.uint64)
    for place in range(events + moment.size):
        i = order[place] if place < events else -1
        k = keys[i] if i >= 0 else place - events
        if k < 0:
            continue
        time = times[i] if i >= 0 else NEVER
        if moment[k] != NEVER and (i < 0 or time > moment[k]):
            moment[k] = NEVER
            if changed[k]:
                changed[k] = False
                ended = seen[k, 0] & rules.ends != nothing
                waits = False
                for g in range(graphs):
                    for word in range(word_offsets[g], word_offsets[g + 1]):
                        if gained[k, word] & wholes[word] or (trails[g] and reached[k, word] & wholes[word]):
                            completes[k] = True
                        reached[k, word] = (reached[k, word] & ~lost[k, word]) | gained[k, word]
                        gained[k, word] = lost[k, word] = nothing
                        waits = waits or (trails[g] and reached[k, word] & wholes[word] != nothing)
                hopeless = not waits
                for g in range(graphs):
                    hopeless = hopeless and (ended or is_hopeless(k, g, rules, seen, reached))
                if hopeless and not failed[k]:
                    failed[k] = True
                    failures[0] += 1
                closed[k] = ended
        if i < 0:
            continue
        if began[k] == NEVER or (moment[k] == NEVER and (closed[k] or time - rules.lifetime > began[k])):
            number[k] += began[k] != NEVER
            seen[k] = nothing
            began[k] = time
            failed[k] = closed[k] = False
            reached[k] = starts
        numbers[i] = number[k]
        moment[k] = time
        bit = arrivals.bits[i]
        if bit >= 0 and not (seen[k, bit >> 6] >> (np.uint64(bit) & low)) & one:
            seen[k, bit >> 6] |= one << (np.uint64(bit) & low)
            changed[k] = True
        if arrivals.ends[i] and not seen[k, 0] & rules.ends:
            seen[k, 0] |= rules.ends
            changed[k] = True
        if failed[k]:
            skipped[i] = True
            continue
        found = False
        for leaf in range(losses.shape[0]):
            if (leaves[i, leaf >> 6] >> (np.uint64(leaf) & low)) & one:
                if not found:
                    found = changed[k] = True
                    for word in range(words):
                        current[word] = reached[k, word] | gained[k, word]
                for move in range(move_offsets[leaf], move_offsets[leaf + 1]):
                    start, goal = move_from[move], move_to[move]
                    if current[start >> 6] >> (np.uint64(start) & low) & one:
                        gained[k, goal >> 6] |= one << (np.uint64(goal) & low)
                for word in range(words):
                    lost[k, word] |= losses[leaf, word]


# --- counts of stream pairs

Matrix = npt.NDArray[np.int64]


@compiled
def count_pairs(
    offsets: Int64s, streams: Codes, firsts: Int64s, lasts: Int64s, together: Matrix, ordered: Matrix
) -> None:
    """Adds the traces to the counts. Trace `k` has the entries `offsets[k]` to `offsets[k + 1]`, in any order.

    An entry tells that its stream occurs from `firsts` to `lasts`; for one event both are its time. A stream may have
    several entries. `together[a, b]` counts the traces with both streams, `ordered[a, b]` those of them in which no `a`
    is later than a `b`. The diagonal has the traces with `a`, and those in which nothing is later than the first `a`.
    """
    first = np.empty(together.shape[0], np.int64)
    last = np.empty(together.shape[0], np.int64)
    present = np.empty(together.shape[0], np.int32)
    trace_of = np.full(together.shape[0], -1, np.int64)
    for trace in range(offsets.size - 1):
        count = 0
        latest = NEVER
        for i in range(offsets[trace], offsets[trace + 1]):
            stream = streams[i]
            latest = max(latest, lasts[i])
            if trace_of[stream] == trace:
                first[stream] = min(first[stream], firsts[i])
                last[stream] = max(last[stream], lasts[i])
            else:
                trace_of[stream] = trace
                present[count] = stream
                count += 1
                first[stream] = firsts[i]
                last[stream] = lasts[i]
        for one in range(count):
            a = present[one]
            until = last[a]
            for other in range(count):
                b = present[other]
                together[a, b] += 1
                if (until <= first[b]) if a != b else (first[a] == latest):
                    ordered[a, b] += 1


# --- violations of constraints: each constraint once per trace

Times = npt.NDArray[np.int64]


class Checks(NamedTuple):
    """The constraints by number. Streams are numbered too. Clause `c` has the body `members[offsets[c]:offsets[c +
    1]]`.

    `prior` has rows (earlier stream, later stream, number). A clause has its head, or -1 if its body must not occur as
    a whole. `ends` is, per stream, the number of the constraint by which it ends a trace, or -1.
    """

    prior: Times
    offsets: Int64s
    members: Int64s
    heads: Int64s
    numbers: Int64s
    ends: Int64s
    lifetime: int


class TraceTimes(NamedTuple):
    """The times of the first and the last event of each stream in a trace, by trace and stream.

    `judged` is whether the ended trace was evaluated.
    """

    first: Times
    last: Times
    judged: npt.NDArray[np.bool_]


@compiled
def add(
    found: Times, count: int, trace: int, constraint: int, stream: int, time: int, other: int, other_time: int
) -> Times:
    """Appends a row after the first `count` rows."""
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
    """The stream of the body of a clause that came last in a trace; -1 if one of them has not come."""
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
    """Whether streams of a constraint have clashed before: one clashing pair is enough."""
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
    """The latest earlier stream that clashes with `code`; -2 if not all streams of the body have come, or `code` is not
    in it."""
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
    seen: TraceTimes,
    until: int,
    open_ends: bool,
) -> Times:
    """Rows of (trace, constraint, stream, time, other stream or -1, its time), in the order in which they are found.

    A trace is checked for missing streams when it has ended: by an ending event at or before `until`, by its lifetime,
    or, if `open_ends`, now. A trace that continues after its end violates ENDS and counts as a new one.
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
