"""Running minima and maxima within runs of one key."""

import numpy as np

from ensue.kernels.compiler import Codes, Int64s, compiled


@compiled
def suffix_minimum(values: Int64s, offsets: Int64s) -> Int64s:
    """At each place the least value from there to the end of its run."""
    result = np.empty(values.size, np.int64)
    for run in range(offsets.size - 1):
        least = np.iinfo(np.int64).max
        for i in range(offsets[run + 1] - 1, offsets[run] - 1, -1):
            least = min(least, values[i])
            result[i] = least
    return result


@compiled
def sliding_minimum(values: Int64s, first: Codes, last: Codes, missing: int) -> Int64s:
    """The least of values[first:last] for each range, where both ends of the ranges never fall within a run of probes.

    A falling end starts a new run of probes (another key), and the queue anew.
    """
    n = first.size
    result = np.empty(n, np.int64)
    queue = np.empty(values.size + 1, np.int64)
    head = 0
    tail = 0
    reached = np.int64(0)
    previous = np.int64(0)
    for i in range(n):
        begin = np.int64(first[i])
        end = np.int64(last[i])
        if begin >= end:
            result[i] = missing
            continue
        if begin < previous or end < reached or begin > reached:
            head = 0
            tail = 0
            reached = begin
        previous = begin
        while reached < end:
            while tail > head and values[queue[tail - 1]] >= values[reached]:
                tail -= 1
            queue[tail] = reached
            tail += 1
            reached += 1
        while queue[head] < begin:
            head += 1
        result[i] = values[queue[head]]
    return result


@compiled
def lower_to(target: Int64s, places: Codes, values: Int64s) -> None:
    """target[place] = min(target[place], value), for each pair."""
    for i in range(places.size):
        if values[i] < target[places[i]]:
            target[places[i]] = values[i]
