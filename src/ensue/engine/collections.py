"""Collections: the lists of matches in the scope of a match, and values and conditions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ensue.engine.rows import Elements, Lists, Rows
from ensue.engine.sources import Mask
from ensue.engine.workspace import Workspace
from ensue.expr.evaluation import condition_mask, evaluate
from ensue.expr.lists import successive
from ensue.graph.bounds import end_of, start_of
from ensue.kernels.compiler import Int64s
from ensue.nodes.expressions import Elements as ListOf
from ensue.nodes.expressions import Expr, Field, substitute_lists
from ensue.nodes.names import Before, Name, Values
from ensue.plan.plans import CollectionPlan


def lists_of(parts: Sequence[Elements], count: int, names: Sequence[Name]) -> Lists:
    """The lists of `count` rows, each in the order of (start, end, content); `names` as they are written.

    Elements with the same events are ordered by their branches.
    """
    if not parts:
        return Lists((), np.empty(0, np.int32), np.zeros(count + 1, np.int64))
    origins = np.concatenate([_origin(part.rows) for part in parts])
    arrivals = [np.concatenate(column) for column in zip(*(_arrivals(part, names) for part in parts), strict=True)]
    starts = np.concatenate([_extreme(part, "s") for part in parts])
    ends = np.concatenate([_extreme(part, "e") for part in parts])
    order = np.lexsort((*arrivals[::-1], ends, starts, origins)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(origins, minlength=count))])
    return Lists(tuple(parts), order, offsets)


def _origin(rows: Rows) -> np.ndarray:
    assert rows.origin is not None
    return rows.origin


def _arrivals(part: Elements, names: Sequence[Name]) -> list[np.ndarray]:
    """Content and arrival of the events that elements bind; two columns per name."""
    bound = [name for name in names if name in part.rows.places and name not in part.space.moments]
    columns = []
    for name in bound:
        found, places = part.space.candidates[name], part.rows.places[name]
        columns += [part.space.ties(found)[places], found.rows[places].astype(np.int64)]
    missing = np.full(part.rows.length, -1, np.int64)
    return [*columns, *[missing] * (2 * len(names) - len(columns))]


def _extreme(part: Elements, side: str) -> Int64s:
    extent = part.space.plan.graph.extent
    points = map(start_of, extent.starts) if side == "s" else map(end_of, extent.ends)
    combine = np.minimum if side == "s" else np.maximum
    values: Int64s = combine.reduce([part.space.place(point, part.rows) for point in points])
    return values


def fits(plan: CollectionPlan, lists: Lists) -> Mask:
    """The rows with the required number of elements."""
    mask = lists.lengths >= plan.collection.least
    if plan.collection.closing is not None:
        mask &= _has_closing(plan, lists, plan.collection.closing)
    return mask if plan.collection.most is None else mask & (lists.lengths <= plan.collection.most)


def _has_closing(plan: CollectionPlan, lists: Lists, count: int) -> Mask:
    """The rows whose list contains the match that is bound outside: an element of the last `count` graphs."""
    others = {id(graph) for graph in plan.graphs[: len(plan.graphs) - count]}
    first = sum(part.rows.length for part in lists.parts if id(part.space.plan) in others)
    before = np.concatenate([[0], np.cumsum(lists.order >= first)])
    return np.asarray(before[lists.offsets[1:]] > before[lists.offsets[:-1]])


def element_values(lists: Lists, values: Callable[[Elements], pa.Array], kind: pa.DataType) -> pa.Array:
    """The results of `values` for the elements of each part, in the order of the lists."""
    pieces = [values(part) for part in lists.parts]
    found = pa.chunked_array([piece if piece.type == kind else piece.cast(kind) for piece in pieces], kind)
    return found.combine_chunks().take(pa.array(lists.order)) if pieces else pa.nulls(0, kind)


def list_values(lists: Lists, element: Expr, kind: pa.DataType) -> pa.Array:
    """The list of the values of an expression in each row; `kind` is the type of one value."""
    values = element_values(lists, lambda part: evaluate(element, _column(part), part.rows.length), kind)
    return pa.ListArray.from_arrays(pa.array(lists.offsets.astype(np.int32)), values)


def _column(part: Elements) -> Callable[[Field], pa.Array]:
    """The fields of an element and of the match around it; a variable of another branch is null."""
    bound = part.space.column_of(part.rows)

    def column(wanted: Field) -> pa.Array:
        if wanted.variable in part.rows.places or wanted.variable in part.space.moments:
            return bound(wanted)
        return pa.nulls(part.rows.length)

    return column


def with_list_fields(expr: Expr) -> tuple[Expr, dict[Field, ListOf]]:
    """The expression with a field in place of each list, and the lists of these fields."""
    found: dict[Field, ListOf] = {}

    def replaced(part: ListOf) -> Field:
        field = next((known for known, other in found.items() if other == part), None)
        if field is None:
            field = Field(Values(len(found)), "values")
            found[field] = part
        return field

    return substitute_lists(expr, replaced), found


def holds_for_lists(condition: Expr, space: Workspace, rows: Rows, value_type: Callable[[Expr], pa.DataType]) -> Mask:
    """The rows in which a condition with aggregates over collections is true."""
    plain, fields = with_list_fields(condition)
    bound = space.column_of(rows)

    def column(wanted: Field) -> pa.Array:
        if wanted not in fields:
            return bound(wanted)
        element = fields[wanted].element
        return list_values(rows.lists[fields[wanted].of], element, value_type(element))

    return condition_mask(plain, column, rows.length)


def holds_successively(condition: Expr, name: Name, names: Sequence[Name], rows: Rows) -> Mask:
    """The rows in which a condition with PREV is true for every element of a list except the first."""
    lists = rows.lists[name]
    count = len(lists.order)
    between = successive(condition, {}, {own: Before(own) for own in names})
    before = np.maximum(np.arange(count) - 1, 0)

    def column(wanted: Field) -> pa.Array:
        is_before = isinstance(wanted.variable, Before)
        own = replace(wanted, variable=wanted.variable.name) if isinstance(wanted.variable, Before) else wanted
        kinds = [_column(part)(own).type for part in lists.parts]
        kind = next((kind for kind in kinds if not pa.types.is_null(kind)), pa.null())
        values = element_values(lists, lambda part: _column(part)(own), kind)
        return values.take(pa.array(before)) if is_before else values

    holds = condition_mask(between, column, count) if count else np.empty(0, bool)
    holds[lists.offsets[:-1][lists.lengths > 0]] = True
    failed = np.concatenate([[0], np.cumsum(~holds)])
    return np.asarray(failed[lists.offsets[1:]] == failed[lists.offsets[:-1]])
