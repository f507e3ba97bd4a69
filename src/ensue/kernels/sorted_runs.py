"""Sorts by key and time, and merges sorted runs. Row numbers and keys are int32, times int64."""

import numpy as np

from ensue.kernels.compiler import Codes, Int64s, compiled

RADIX_BITS = 11


@compiled
def is_sorted(values: Int64s) -> bool:
    """Whether no value is smaller than the one before it."""
    for i in range(1, values.size):
        if values[i] < values[i - 1]:
            return False
    return True


@compiled
def order_by_time(times: Int64s) -> Codes:
    """The stable order of int64 values: a least-significant-digit radix sort over the digits that vary."""
    n = times.size
    order = np.empty(n, np.int32)
    for i in range(n):
        order[i] = i
    if n == 0:
        return order
    low = times[0]
    high = times[0]
    for i in range(n):
        low = min(low, times[i])
        high = max(high, times[i])
    spread = np.uint64(high) - np.uint64(low)
    buckets = 1 << RADIX_BITS
    mask = np.uint64(buckets - 1)
    values = np.empty(n, np.uint64)
    for i in range(n):
        values[i] = np.uint64(times[i]) - np.uint64(low)
    other_order = np.empty(n, np.int32)
    other_values = np.empty(n, np.uint64)
    shift = np.uint64(0)
    while spread >> shift > np.uint64(0):
        offsets = np.zeros(buckets + 1, np.int64)
        for i in range(n):
            offsets[np.int64((values[i] >> shift) & mask) + 1] += 1
        for bucket in range(buckets):
            offsets[bucket + 1] += offsets[bucket]
        for i in range(n):
            digit = np.int64((values[i] >> shift) & mask)
            place = offsets[digit]
            offsets[digit] += 1
            other_order[place] = order[i]
            other_values[place] = values[i]
        order, other_order = other_order, order
        values, other_values = other_values, values
        shift += np.uint64(RADIX_BITS)
        if shift >= np.uint64(64):
            break
    return order


@compiled
def group_by_key(keys: Codes, key_count: int) -> tuple[Codes, Int64s]:
    """The stable order by key without keys below 0, and the start of each key's run (`key_count + 1` offsets)."""
    offsets = np.zeros(key_count + 1, np.int64)
    for i in range(keys.size):
        if keys[i] >= 0:
            offsets[keys[i] + 1] += 1
    for key in range(key_count):
        offsets[key + 1] += offsets[key]
    order = np.empty(offsets[key_count], np.int32)
    place = offsets[:key_count].copy()
    for i in range(keys.size):
        key = keys[i]
        if key >= 0:
            order[place[key]] = i
            place[key] += 1
    return order, offsets


@compiled
def offsets_of_runs(keys: Codes, key_count: int) -> Int64s:
    """The start of each key's run in a sorted array of keys."""
    offsets = np.zeros(key_count + 1, np.int64)
    for i in range(keys.size):
        offsets[keys[i] + 1] += 1
    for key in range(key_count):
        offsets[key + 1] += offsets[key]
    return offsets


@compiled
def merge_sorted(
    rows: Codes,
    kinds: Codes,
    keys: Codes,
    starts: Int64s,
    ends: Int64s,
    more: Codes,
    kinds_of: Codes,
    keys_of: Codes,
    starts_of: Int64s,
    ends_of: Int64s,
) -> tuple[Codes, Codes, Codes, Int64s, Int64s]:
    """Merges further rows into a run sorted by kind, key and start; the arrays describe all rows.

    Equal rows of the run come first; rows with a key below 0 are left out.
    """
    order = np.argsort(starts_of[more], kind="mergesort")
    order = order[np.argsort(keys_of[more[order]], kind="mergesort")]
    order = order[np.argsort(kinds_of[more[order]], kind="mergesort")]
    left = 0
    for i in range(more.size):
        left += keys_of[more[i]] < 0
    n = rows.size + more.size - left
    all_rows = np.empty(n, np.int32)
    all_kinds = np.empty(n, np.int32)
    all_keys = np.empty(n, np.int32)
    all_starts = np.empty(n, np.int64)
    all_ends = np.empty(n, np.int64)
    i = 0
    at = 0
    for j in range(more.size):
        row = more[order[j]]
        kind = kinds_of[row]
        key = keys_of[row]
        start = starts_of[row]
        if key < 0:
            continue
        while i < rows.size and (
            kinds[i] < kind or (kinds[i] == kind and (keys[i] < key or (keys[i] == key and starts[i] <= start)))
        ):
            all_rows[at] = rows[i]
            all_kinds[at] = kinds[i]
            all_keys[at] = keys[i]
            all_starts[at] = starts[i]
            all_ends[at] = ends[i]
            i += 1
            at += 1
        all_rows[at] = row
        all_kinds[at] = kind
        all_keys[at] = key
        all_starts[at] = start
        all_ends[at] = ends_of[row]
        at += 1
    all_rows[at:] = rows[i:]
    all_kinds[at:] = kinds[i:]
    all_keys[at:] = keys[i:]
    all_starts[at:] = starts[i:]
    all_ends[at:] = ends[i:]
    return all_rows, all_kinds, all_keys, all_starts, all_ends


@compiled
def keep_sorted(
    rows: Codes, kinds: Codes, keys: Codes, starts: Int64s, ends: Int64s, places: Codes
) -> tuple[Codes, Codes, Codes, Int64s, Int64s]:
    """The rows of a sorted run that have a new place (at least 0), renumbered to that place."""
    kept = 0
    for i in range(rows.size):
        kept += places[rows[i]] >= 0
    new_rows = np.empty(kept, np.int32)
    new_kinds = np.empty(kept, np.int32)
    new_keys = np.empty(kept, np.int32)
    new_starts = np.empty(kept, np.int64)
    new_ends = np.empty(kept, np.int64)
    at = 0
    for i in range(rows.size):
        place = places[rows[i]]
        if place >= 0:
            new_rows[at] = place
            new_kinds[at] = kinds[i]
            new_keys[at] = keys[i]
            new_starts[at] = starts[i]
            new_ends[at] = ends[i]
            at += 1
    return new_rows, new_kinds, new_keys, new_starts, new_ends


@compiled
def offsets_of_kinds(kinds: Codes, keys: Codes, kind_count: int, key_count: int) -> tuple[Int64s, Int64s]:
    """The start of each kind in a run sorted by kind and key, and the start of each key within its kind."""
    begins = np.zeros(kind_count + 1, np.int64)
    offsets = np.zeros((kind_count, key_count + 1), np.int64)
    for i in range(kinds.size):
        begins[kinds[i] + 1] += 1
        offsets[kinds[i], keys[i] + 1] += 1
    for kind in range(kind_count):
        begins[kind + 1] += begins[kind]
        for key in range(key_count):
            offsets[kind, key + 1] += offsets[kind, key]
    return begins, offsets


@compiled
def number_within_runs(keys: Codes, order: Codes, base: Int64s) -> tuple[Int64s, Int64s]:
    """The position of each row within its key, counted from `base[key]`, if rows are visited in `order`."""
    positions = np.full(keys.size, -1, np.int64)
    following = base.copy()
    for i in range(order.size):
        row = order[i]
        key = keys[row]
        if key >= 0:
            positions[row] = following[key]
            following[key] += 1
    return positions, following
