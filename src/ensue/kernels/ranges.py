"""Searching and expanding ranges in runs sorted by time, one run per key."""

import numpy as np

from ensue.kernels.compiler import Codes, Int64s, compiled


@compiled
def _first_at_least(times: Int64s, begin: int, end: int, guess: int, wanted: int) -> int:
    """The first place in times[begin:end] with at least `wanted`; gallops from `guess`: rising searches are cheap."""
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
    """Every pair (probe, place) of the ranges, `total` of them in all."""
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
    """For each probe, `results` at the first place of its key's run that holds at least `wanted`, else `missing`."""
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
    """For each probe, `results` at the last place of its key's run whose value is at most `wanted`, else `missing`."""
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
