"""Following traces event by event: what has been seen, how far matches have come, which traces are hopeless.

Sets of streams and of steps are bits of 64-bit numbers. The arrays of `Rules` say what a query's monitor says
(`ensue.plan.monitor`); those of `Traces` hold one entry per trace, or one per trace and graph.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiled import Codes, Int64s, compiled

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
    condition_offsets: npt.NDArray[np.int64]
    condition_seen: Bits
    condition_unseen: Bits
    ends: np.uint64
    lifetime: int


class Traces(NamedTuple):
    """What is known of each trace. `gained` and `lost` belong to the events at `moment`, whose order is not known."""

    seen: Bits
    reached: Bits
    began: Int64s
    failed: Flags
    closed: Flags
    number: Codes
    gained: Bits
    lost: Bits
    moment: Int64s


@compiled
def is_hopeless(k: int, rules: Rules, traces: Traces) -> bool:
    """Whether every step that the trace has reached has failed, in every graph."""
    seen = traces.seen[k]
    for g in range(rules.starts.size):
        reached = traces.reached[k, g]
        if rules.trails[g] and reached & rules.wholes[g]:
            return False
        reached &= ~rules.wholes[g]
        for step in range(rules.condition_offsets.shape[1] - 1):
            if (reached >> np.uint64(step)) & np.uint64(1):
                fails = False
                for c in range(rules.condition_offsets[g, step], rules.condition_offsets[g, step + 1]):
                    wanted = rules.condition_seen[c]
                    if seen & wanted == wanted and seen & rules.condition_unseen[c] == 0:
                        fails = True
                        break
                if not fails:
                    return False
    return True


@compiled
def settle(k: int, rules: Rules, traces: Traces) -> None:
    """All events of the moment have come: what they lost is gone, what they gained is reached."""
    for g in range(rules.starts.size):
        traces.reached[k, g] = (traces.reached[k, g] & ~traces.lost[k, g]) | traces.gained[k, g]
        traces.gained[k, g] = 0
        traces.lost[k, g] = 0
    if not traces.failed[k]:
        traces.failed[k] = is_hopeless(k, rules, traces)
    traces.closed[k] = traces.seen[k] & rules.ends != 0
    traces.moment[k] = NEVER


@compiled
def begin(k: int, time: int, rules: Rules, traces: Traces) -> None:
    """A trace begins, perhaps another one of a key that has had one."""
    traces.seen[k] = 0
    traces.began[k] = time
    traces.failed[k] = False
    traces.closed[k] = False
    for g in range(rules.starts.size):
        traces.reached[k, g] = rules.starts[g]


@compiled
def follow(
    order: Codes,
    keys: Codes,
    times: Int64s,
    leaves: Bits,
    occurs: Bits,
    rules: Rules,
    traces: Traces,
    skipped: Flags,
    numbers: Codes,
) -> None:
    """Leads the events, in the given order of time, through their traces.

    `leaves` are the leaves of the monitor that an event satisfies, `occurs` the bit of its stream. Sets `skipped` for
    the events of traces that had failed before them, and `numbers` to the number of an event's trace within its key.
    """
    for place in range(order.size):
        i = order[place]
        k = keys[i]
        if k < 0:
            continue
        time = times[i]
        if traces.moment[k] != NEVER and time > traces.moment[k]:
            settle(k, rules, traces)
        expired = traces.began[k] != NEVER and time - rules.lifetime > traces.began[k]
        if traces.began[k] == NEVER:
            begin(k, time, rules, traces)
        elif traces.moment[k] == NEVER and (traces.closed[k] or expired):
            begin(k, time, rules, traces)
            traces.number[k] += 1
        numbers[i] = traces.number[k]
        traces.moment[k] = time
        traces.seen[k] |= occurs[i]
        if traces.failed[k]:
            skipped[i] = True
            continue
        bits = leaves[i]
        if bits == 0:
            continue
        for g in range(rules.starts.size):
            current = traces.reached[k, g] | traces.gained[k, g]
            for leaf in range(rules.leaf_offsets[g], rules.leaf_offsets[g + 1]):
                if (bits >> np.uint64(leaf)) & np.uint64(1):
                    for move in range(rules.move_offsets[leaf], rules.move_offsets[leaf + 1]):
                        if current & rules.move_from[move]:
                            traces.gained[k, g] |= rules.move_to[move]
                    traces.lost[k, g] |= rules.losses[leaf]
    for k in range(traces.moment.size):
        if traces.moment[k] != NEVER:
            settle(k, rules, traces)
