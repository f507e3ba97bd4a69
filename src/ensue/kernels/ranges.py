"""Kernels on runs sorted by time, one run per key: range searches, running minima, and choosing matches one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Codes, Int64s, compiled


@compiled
def _first_at_least(times: Int64s, begin: int, end: int, guess: int, wanted: int) -> int:
    """The first place in times[begin:end] with at least `wanted`; gallops from `guess`, so increasing searches are
    cheap."""
    low = begin
    high = end
    if begin <= guess < end:
        step = 1
        if times[guess] < wanted:
            low = guess + 1
            while guess + step < end and times[guess + step] < wanted:
                low = guess + step + 1
                step *= 2
            if guess + step < end:
                high = guess + step
        else:
            high = guess
            while guess - step >= begin and times[guess - step] >= wanted:
                high = guess - step
                step *= 2
            if guess - step >= begin:
                low = guess - step + 1
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def find_ranges(keys: Codes, lows: Int64s, highs: Int64s, offsets: Int64s, times: Int64s) -> tuple[Codes, Codes]:
    """For each probe, the places [first, last) of its key's run with `low <= time <= high`; none for keys below 0."""
    n = keys.size
    first = np.empty(n, np.int32)
    last = np.empty(n, np.int32)
    guess = 0
    for i in range(n):
        key = keys[i]
        low = lows[i]
        high = highs[i]
        if key < 0 or low > high:
            first[i] = 0
            last[i] = 0
            continue
        begin = offsets[key]
        end = offsets[key + 1]
        found = _first_at_least(times, begin, end, guess, low)
        guess = found
        stop = found
        while stop < end and stop < found + 4 and times[stop] <= high:
            stop += 1
        if stop == found + 4 and stop < end and times[stop] <= high:
            stop = _first_at_least(times, begin, end, stop, high + 1) if high < np.iinfo(np.int64).max else end
        first[i] = found
        last[i] = stop
    return first, last


@compiled
def expand_ranges(first: Codes, last: Codes, total: int) -> tuple[Codes, Codes]:
    """Every pair (probe, place) of the ranges, `total` in all."""
    probes = np.empty(total, np.int32)
    places = np.empty(total, np.int32)
    at = 0
    for i in range(first.size):
        for place in range(first[i], last[i]):
            probes[at] = i
            places[at] = place
            at += 1
    return probes, places


@compiled
def value_from(
    keys: Codes, wanted: Int64s, offsets: Int64s, sorted_values: Int64s, results: Int64s, missing: int
) -> Int64s:
    """For each probe, `results` at the first place of its key's run with at least `wanted`, otherwise `missing`."""
    n = keys.size
    found = np.empty(n, np.int64)
    guess = 0
    for i in range(n):
        key = keys[i]
        begin = offsets[key]
        end = offsets[key + 1]
        place = _first_at_least(sorted_values, begin, end, guess, wanted[i])
        guess = place
        found[i] = results[place] if place < end else missing
    return found


@compiled
def value_until(
    keys: Codes, wanted: Int64s, offsets: Int64s, sorted_values: Int64s, results: Int64s, missing: int
) -> Int64s:
    """For each probe, `results` at the last place of its key's run with at most `wanted`, otherwise `missing`."""
    n = keys.size
    found = np.empty(n, np.int64)
    guess = 0
    for i in range(n):
        key = keys[i]
        begin = offsets[key]
        end = offsets[key + 1]
        limit = wanted[i]
        place = end if limit == np.iinfo(np.int64).max else _first_at_least(sorted_values, begin, end, guess, limit + 1)
        guess = place
        found[i] = results[place - 1] if place > begin else missing
    return found


# --- running minima and maxima within runs of one key


@compiled
def suffix_minimum(values: Int64s, offsets: Int64s) -> Int64s:
    """At each place, the minimum from there to the end of its run."""
    result = np.empty(values.size, np.int64)
    for run in range(offsets.size - 1):
        least = np.iinfo(np.int64).max
        for i in range(offsets[run + 1] - 1, offsets[run] - 1, -1):
            least = min(least, values[i])
            result[i] = least
    return result


@compiled
def sliding_minimum(values: Int64s, first: Codes, last: Codes, missing: int) -> Int64s:
    """The minimum of values[first:last] for each range; both ends must not decrease within a run of probes.

    A decreasing end starts a new run of probes (another key) and resets the queue.
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


# --- choice of matches one by one: used events are not available to later matches

Flags = npt.NDArray[np.uint8]


@compiled
def take_unused(events: Int64s, used: Flags) -> npt.NDArray[np.bool_]:
    """The rows of `events` (-1: none) that need no event used by an earlier row; marks the events they use."""
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
    """The pairs whose initiator is open when its terminator comes; with `only_one`, the first pair of each terminator.

    The pairs of a terminator are consecutive, with its oldest initiator first. Both events are used up. An event has
    the number `2 * n + operand`; the bit of that operand in `used[n]` marks it as used.
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
