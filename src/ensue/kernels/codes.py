"""Numbering values in the order in which they first appear."""

import numpy as np

from ensue.kernels.compiled import Codes, Int64s, compiled

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 divided by the golden ratio: multiples of it fall far apart in their upper bits."""


@compiled
def number_values(values: Int64s) -> tuple[Codes, int]:
    """A code for each value, equal for equal ones, and how many there are: a hash table with linear probing."""
    bits = 4
    while (1 << bits) < 2 * values.size:
        bits += 1
    shift = np.uint64(64 - bits)
    last = (1 << bits) - 1
    table = np.full(last + 1, -1, np.int32)
    distinct = np.empty(values.size, np.int64)
    codes = np.empty(values.size, np.int32)
    count = 0
    for i in range(values.size):
        value = values[i]
        mixed = np.uint64(value) * SPREAD
        mixed = (mixed ^ (mixed >> np.uint64(32))) * SPREAD
        place = np.int64(mixed >> shift)
        while table[place] >= 0 and distinct[table[place]] != value:
            place = (place + 1) & last
        if table[place] < 0:
            table[place] = count
            distinct[count] = value
            count += 1
        codes[i] = table[place]
    return codes, count


@compiled
def number_by_appearance(codes: Codes, count: int) -> tuple[Codes, Int64s]:
    """Codes below `count` numbered anew in the order in which they appear, and where each appears first.

    Those below 0 stay as they are.
    """
    new = np.full(count, -1, np.int32)
    first = np.empty(min(count, codes.size), np.int64)
    numbers = np.empty(codes.size, np.int32)
    found = 0
    for i in range(codes.size):
        code = codes[i]
        if code < 0:
            numbers[i] = code
            continue
        if new[code] < 0:
            new[code] = found
            first[found] = i
            found += 1
        numbers[i] = new[code]
    return numbers, first[:found]
