"""Probabilities over blocks: each block draws one number, and a row is real if the number is in its stretch."""

import numpy as np
import numpy.typing as npt

from ensue.kernels.compiler import Int64s, compiled


@compiled
def chances_of_none(
    owner: Int64s, block: Int64s, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.float64]:
    """For each owner, the probability that no block draws a number in any of its stretches.

    The stretches are sorted by (owner, block, low); those of one block may overlap.
    """
    result = np.ones(count, np.float64)
    n = owner.size
    i = 0
    while i < n:
        covered = 0.0
        reached = 0.0
        j = i
        while j < n and owner[j] == owner[i] and block[j] == block[i]:
            begin = max(low[j], reached)
            if high[j] > begin:
                covered += high[j] - begin
                reached = high[j]
            j += 1
        result[owner[i]] *= max(0.0, 1.0 - covered)
        i = j
    return result


@compiled
def components(first: Int64s, second: Int64s, count: int) -> Int64s:
    """For each of `count` numbers, the smallest member of its connected component; `first` and `second` are edges."""
    parent = np.arange(count)
    for i in range(first.size):
        x = first[i]
        y = second[i]
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        while parent[y] != y:
            parent[y] = parent[parent[y]]
            y = parent[y]
        if x < y:
            parent[y] = x
        else:
            parent[x] = y
    for i in range(count):
        root = i
        while parent[root] != root:
            root = parent[root]
        parent[i] = root
    return parent
