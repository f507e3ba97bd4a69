"""Choosing among matches one after the other: what is used up is gone for the later ones."""

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Int64s, compiled

Flags = npt.NDArray[np.uint8]


@compiled
def take_unused(events: Int64s, used: Flags) -> npt.NDArray[np.bool_]:
    """The rows of `events` (-1: none) that need nothing which an earlier one has used; notes what they use."""
    taken = np.zeros(events.shape[0], np.bool_)
    for row in range(events.shape[0]):
        free = True
        for column in range(events.shape[1]):
            event = events[row, column]
            if event >= 0 and used[event]:
                free = False
        if free:
            taken[row] = True
            for column in range(events.shape[1]):
                if events[row, column] >= 0:
                    used[events[row, column]] = 1
    return taken


@compiled
def close_initiators(terminators: Int64s, initiators: Int64s, only_one: bool, used: Flags) -> npt.NDArray[np.bool_]:
    """The pairs whose initiator is open when its terminator comes; with `only_one`, the first of each terminator.

    The pairs of a terminator lie together, its oldest initiator first. Both are used up. An event has the number
    `2 * n + operand`, and what it is used up for is the bit of that operand in `used[n]`.
    """
    taken = np.zeros(terminators.size, np.bool_)
    row = 0
    while row < terminators.size:
        terminator = terminators[row]
        paired = False
        while row < terminators.size and terminators[row] == terminator:
            bit = np.uint8(1 << (initiators[row] & 1))
            event = initiators[row] >> 1
            if not used[event] & bit and not (only_one and paired):
                taken[row] = True
                paired = True
                used[event] |= bit
            row += 1
        if paired:
            used[terminator >> 1] |= np.uint8(1 << (terminator & 1))
    return taken
