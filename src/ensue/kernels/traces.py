"""Following traces event by event: what has been seen, how far matches have come, which traces are hopeless.

Sets of streams and of steps are bits of 64-bit numbers. The arrays of `Rules` say what a query's monitor says
(`ensue.plan.monitors`); those of `Traces` hold one entry per trace, or one per trace and graph.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled

Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min


class Rules(NamedTuple):
    """Leaves of graph `g` are `leaf_offsets[g]` to `[g + 1]`; the moves of a leaf and the conditions of a step alike.

    Step `s` of graph `g` has the conditions `condition_offsets[g, s]` to `[g, s + 1]`.
    """

    leaf_offsets: Int64s
    move_offsets: Int64s
    move_from: Bits
    move_to: Bits
    losses: Bits
    starts: Bits
    wholes: Bits
    trails: Flags
    step_counts: Int64s
    condition_offsets: npt.NDArray[np.int64]
    condition_seen: Bits
    condition_unseen: Bits
    ends: np.uint64
    lifetime: int


class Traces(NamedTuple):
    """What is known of each trace. `gained` and `lost` belong to the events at `moment`, whose order is not known.

    `changed` says that it has to be judged anew, `completes` that it has come to a whole match, or that one trails.
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
    """Events with their traces and times, and those of them that are new in the order of time.

    `leaves` are the leaves of the monitor that an event satisfies, `occurs` the bit of its stream.
    """

    order: Codes
    keys: Codes
    times: Int64s
    leaves: Bits
    occurs: Bits


@compiled
def follow(arrivals: Arrivals, rules: Rules, traces: Traces, skipped: Flags, numbers: Codes) -> None:
    """Leads new events through their traces.

    Sets `skipped` for those of traces that had failed before them, and `numbers` to the number of an event's trace
    within its key. All events of one moment have come to a trace when a later one comes, or at the end: then what they
    lost is gone, what they gained is reached, and the trace is judged. This is one function, because calling another
    with all these arrays would take longer than what it does, and inlining it makes it five times as slow.
    """
    order, keys, times, leaves, occurs = arrivals
    seen, reached, began, failed, closed = traces.seen, traces.reached, traces.began, traces.failed, traces.closed
    number, gained, lost, moment = traces.number, traces.gained, traces.lost, traces.moment
    changed, completes, failures = traces.changed, traces.completes, traces.failures
    starts, wholes, trails, step_counts = rules.starts, rules.wholes, rules.trails, rules.step_counts
    leaf_offsets, move_offsets = rules.leaf_offsets, rules.move_offsets
    move_from, move_to, losses = rules.move_from, rules.move_to, rules.losses
    offsets, wanted, unwanted = rules.condition_offsets, rules.condition_seen, rules.condition_unseen
    one, nothing = np.uint64(1), np.uint64(0)
    graphs, events = starts.size, order.size
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
                hopeless = True
                for g in range(graphs):
                    if gained[k, g] & wholes[g] or (trails[g] and reached[k, g] & wholes[g]):
                        completes[k] = True
                    steps = (reached[k, g] & ~lost[k, g]) | gained[k, g]
                    reached[k, g] = steps
                    gained[k, g] = lost[k, g] = nothing
                    if trails[g] and steps & wholes[g]:
                        hopeless = False
                    steps &= ~wholes[g]
                    for step in range(step_counts[g]):
                        if not hopeless:
                            break
                        if (steps >> np.uint64(step)) & one:
                            hopeless = seen[k] & rules.ends != nothing
                            for c in range(offsets[g, step], offsets[g, step + 1]):
                                if seen[k] & wanted[c] == wanted[c] and seen[k] & unwanted[c] == nothing:
                                    hopeless = True
                                    break
                if hopeless and not failed[k]:
                    failed[k] = True
                    failures[0] += 1
                closed[k] = seen[k] & rules.ends != nothing
        if i < 0:
            continue
        if began[k] == NEVER or (moment[k] == NEVER and (closed[k] or time - rules.lifetime > began[k])):
            number[k] += began[k] != NEVER
            seen[k] = nothing
            began[k] = time
            failed[k] = closed[k] = False
            for g in range(graphs):
                reached[k, g] = starts[g]
        numbers[i] = number[k]
        moment[k] = time
        if occurs[i] & ~seen[k]:
            seen[k] |= occurs[i]
            changed[k] = True
        if failed[k]:
            skipped[i] = True
            continue
        if leaves[i] == nothing:
            continue
        changed[k] = True
        for g in range(graphs):
            current = reached[k, g] | gained[k, g]
            for leaf in range(leaf_offsets[g], leaf_offsets[g + 1]):
                if (leaves[i] >> np.uint64(leaf)) & one:
                    for move in range(move_offsets[leaf], move_offsets[leaf + 1]):
                        if current & move_from[move]:
                            gained[k, g] |= move_to[move]
                    lost[k, g] |= losses[leaf]
