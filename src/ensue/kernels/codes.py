"""Numbers values and texts in the order in which they first appear."""

import numpy as np

from ensue.kernels.compiler import Bytes, Codes, Int64s, compiled

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 divided by the golden ratio: its multiples differ in their upper bits."""


@compiled
def _mixed(value: np.int64) -> np.uint64:
    """Spreads the bits of a value over the whole word."""
    mixed = np.uint64(value) * SPREAD
    return (mixed ^ (mixed >> np.uint64(32))) * SPREAD


@compiled
def intern_values(values: Int64s, table: Codes, known: Int64s, count: int) -> tuple[Codes, int]:
    """A code for each value: the code of an equal known value, or a new one. `count` values are known.

    `table` has more places than there can be codes; `known` has room for all of them.
    """
    last = table.size - 1
    codes = np.empty(values.size, np.int32)
    for i in range(values.size):
        value = values[i]
        place = np.int64(_mixed(value) & np.uint64(last))
        while table[place] >= 0 and known[table[place]] != value:
            place = (place + 1) & last
        if table[place] < 0:
            table[place] = count
            known[count] = value
            count += 1
        codes[i] = table[place]
    return codes, count


@compiled
def number_values(values: Int64s) -> tuple[Codes, int]:
    """A code for each value, equal for equal values, and the number of codes: a hash table with linear probing."""
    bits = 4
    while (1 << bits) < 2 * values.size:
        bits += 1
    return intern_values(values, np.full(1 << bits, -1, np.int32), np.empty(values.size, np.int64), 0)


@compiled
def number_by_appearance(codes: Codes, count: int) -> tuple[Codes, Int64s]:
    """Renumbers codes below `count` in the order in which they appear; also returns the first place of each.

    Codes below 0 stay unchanged.
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


@compiled
def fill_table(table: Codes, hashes: Int64s, count: int) -> None:
    """Puts codes below `count` into an empty table, whose size is a power of two, by their hashes."""
    last = table.size - 1
    for code in range(count):
        place = np.int64(_mixed(hashes[code]) & np.uint64(last))
        while table[place] >= 0:
            place = (place + 1) & last
        table[place] = code


@compiled
def _hash_of(data: Bytes, begin: int, size: int) -> np.int64:
    mixed = np.uint64(size)
    for byte in range(size):
        mixed = (mixed ^ np.uint64(data[begin + byte])) * SPREAD
        mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed)


@compiled
def _place_of(
    data: Bytes,
    begin: int,
    size: int,
    hashed: np.int64,
    table: Codes,
    hashes: Int64s,
    known_offsets: Int64s,
    known: Bytes,
) -> np.int64:
    """The place of a text's code in the table, or the empty place where it belongs."""
    last = table.size - 1
    place = np.int64(_mixed(hashed) & np.uint64(last))
    while table[place] >= 0:
        code = table[place]
        at = known_offsets[code]
        if hashes[code] == hashed and known_offsets[code + 1] - at == size:
            same = 0
            while same < size and known[at + same] == data[begin + same]:
                same += 1
            if same == size:
                break
        place = (place + 1) & last
    return place


@compiled
def intern_texts(
    offsets: Int64s, data: Bytes, table: Codes, hashes: Int64s, known_offsets: Int64s, known: Bytes, count: int
) -> tuple[Codes, int]:
    """A code for each text, as for values: texts are equal if their bytes are. Text `i` ends where the next begins."""
    codes = np.empty(offsets.size - 1, np.int32)
    for i in range(offsets.size - 1):
        begin = offsets[i]
        size = offsets[i + 1] - begin
        hashed = _hash_of(data, begin, size)
        place = _place_of(data, begin, size, hashed, table, hashes, known_offsets, known)
        if table[place] < 0:
            table[place] = count
            hashes[count] = hashed
            at = known_offsets[count]
            for byte in range(size):
                known[at + byte] = data[begin + byte]
            known_offsets[count + 1] = at + size
            count += 1
        codes[i] = table[place]
    return codes, count


@compiled
def find_texts(
    offsets: Int64s, data: Bytes, table: Codes, hashes: Int64s, known_offsets: Int64s, known: Bytes
) -> Codes:
    """The code of each known text, -1 for the others."""
    codes = np.empty(offsets.size - 1, np.int32)
    for i in range(offsets.size - 1):
        begin = offsets[i]
        size = offsets[i + 1] - begin
        hashed = _hash_of(data, begin, size)
        codes[i] = table[_place_of(data, begin, size, hashed, table, hashes, known_offsets, known)]
    return codes


@compiled
def append_texts(begins: Int64s, data: Bytes, rows: Int64s, offsets: Int64s, known: Bytes, count: int) -> bool:
    """Appends texts after the first `count` ones if there is room; otherwise does nothing and returns False."""
    end = offsets[count]
    needed = 0
    for i in range(rows.size):
        needed += begins[rows[i] + 1] - begins[rows[i]]
    if end + needed > known.size or count + rows.size >= offsets.size:
        return False
    for i in range(rows.size):
        begin = begins[rows[i]]
        size = begins[rows[i] + 1] - begin
        for byte in range(size):
            known[end + byte] = data[begin + byte]
        end += size
        offsets[count + i + 1] = end
    return True
