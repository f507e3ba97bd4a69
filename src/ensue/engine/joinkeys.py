"""Equality conditions as join keys: candidates indexed by partition key and the values that must agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.events import Candidates
from ensue.graph.graphs import Equality
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import group_by_key
from ensue.nodes.expressions import Field
from ensue.nodes.names import Name

MOST_PACKED = 2**62
Member = tuple[Name, str]
"""A variable and the name of its field."""


@dataclass(frozen=True, slots=True)
class EqualityClass:
    """Fields that must all be equal (the closure of equality conditions)."""

    members: tuple[Member, ...]

    def member_of(self, variables: Collection[Name]) -> Member | None:
        return next((member for member in self.members if member[0] in variables), None)


def equality_classes(equalities: Sequence[Equality]) -> tuple[EqualityClass, ...]:
    """The classes of fields that the equalities connect."""
    groups: list[dict[Member, None]] = []
    for equality in equalities:
        pair = [_member(equality.left), _member(equality.right)]
        touching = [group for group in groups if any(member in group for member in pair)]
        merged: dict[Member, None] = {member: None for group in touching for member in group}
        merged.update(dict.fromkeys(pair))
        groups = [group for group in groups if group not in touching] + [merged]
    return tuple(EqualityClass(tuple(group)) for group in groups)


def usable_classes(
    equalities: Sequence[Equality],
    outer: Collection[Name],
    transitive: Callable[[EqualityClass], bool],
    sizes: Callable[[EqualityClass], int],
    key_count: int,
) -> tuple[EqualityClass, ...]:
    """The classes that join keys can stand for exactly.

    Each variable has one member at most, so that its step ties it to all the others; at most one member lies outside of
    the graph, where equality is not given; and equality is transitive among them. Partition key and all codes together
    fit into one number.
    """
    chosen: list[EqualityClass] = []
    for group in equality_classes(equalities):
        names = [name for name, _ in group.members]
        simple = len(set(names)) == len(names) and sum(name in outer for name in names) <= 1
        if simple and transitive(group) and fits(key_count, [sizes(each) for each in (*chosen, group)]):
            chosen.append(group)
    return tuple(chosen)


def _member(field: Field) -> Member:
    assert field.variable is not None
    return field.variable, field.name


@dataclass(frozen=True, slots=True)
class KeyedIndex:
    """A variable's candidates by (partition key, codes of the classes), each run sorted by time."""

    order: Codes
    offsets: Int64s
    starts: Int64s
    packed_values: pa.Array
    sizes: tuple[int, ...]

    def segments(self, keys: Codes, codes: Sequence[Codes]) -> Codes:
        """The run of each probe, -1 for none."""
        packed, missing = pack(keys, codes, self.sizes)
        found = pc.index_in(pa.array(packed, mask=missing), value_set=self.packed_values, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False))


def build_index(candidates: Candidates, codes: Sequence[Codes], sizes: tuple[int, ...]) -> KeyedIndex:
    packed, missing = pack(candidates.keys, codes, sizes)
    encoded = pa.array(packed, mask=missing).dictionary_encode()
    dense = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    order, offsets = group_by_key(dense, len(encoded.dictionary))
    return KeyedIndex(order, offsets, candidates.starts[order], encoded.dictionary, sizes)


def pack(keys: Codes, codes: Sequence[Codes], sizes: Sequence[int]) -> tuple[Int64s, np.ndarray]:
    """Partition key and codes in one number, and which rows have a null among them."""
    packed = keys.astype(np.int64)
    missing = keys < 0
    for part, size in zip(codes, sizes, strict=True):
        packed *= max(size, 1)
        packed += part
        missing |= part < 0
    return packed, missing


def fits(key_count: int, sizes: Sequence[int]) -> bool:
    """True if partition key and codes can be packed into one number."""
    total = max(key_count, 1)
    for size in sizes:
        total *= max(size, 1)
    return total < MOST_PACKED
