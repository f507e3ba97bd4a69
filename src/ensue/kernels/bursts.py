"""Bursts: after one item of a group is taken, those that follow within a span of time are only counted."""

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Int64s, compiled


@compiled
def take_first_of_bursts(
    groups: Int64s, times: Int64s, span: int, last: Int64s, counts: Int64s, known: npt.NDArray[np.bool_]
) -> Int64s:
    """For each item, the number of items that were left out before it if it is taken, and -1 if it is left out.

    The items are sorted by group and time. For each group, `last` is the time of the item that was taken last, if it is
    `known`, and `counts` the number of those left out since; they are updated.
    """
    found = np.full(groups.size, -1, np.int64)
    for i in range(groups.size):
        group = groups[i]
        if known[group] and times[i] - span <= last[group]:
            counts[group] += 1
            continue
        found[i] = counts[group]
        counts[group] = 0
        last[group] = times[i]
        known[group] = True
    return found
