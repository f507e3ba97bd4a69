"""Computes declared streams: events from matches, sets of equal events, table look-ups, and recursive rules in
rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.declarations import END, LINEAGE, START
from ensue.engine.compiled_graph import CompiledGraphs
from ensue.engine.evaluation import Frontier, evaluate
from ensue.engine.events import Candidates, request_of
from ensue.engine.identity import united_members
from ensue.engine.keys import encode_columns, encode_values
from ensue.engine.order import in_ties, joined_bytes, lengths_of, value_ranks
from ensue.engine.output import collect_ordered
from ensue.engine.sources import EventSource, Mask, Report, load_sources, one_chunk
from ensue.engine.traces import WatchedEvents, watch
from ensue.errors import LimitError, citing, counted
from ensue.expr.types import element_type
from ensue.kernels.codes import number_values
from ensue.kernels.compiler import Codes
from ensue.kernels.sorted_runs import group_by_key
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Lookup
from ensue.plan.derivations import Derivation, Way
from ensue.plan.inputs import InputTable
from ensue.plan.plans import Options, QueryPlan

# --- sets of events: rows that are equal in every column are one event


def distinct_events(table: pa.Table) -> pa.Table:
    """Each event once, in the order of first appearance; its lineage is that of all equal events."""
    tied = np.sort(_tied(table))
    if len(tied) == 0:
        return table
    attributes = [name for name in table.column_names if name != LINEAGE]
    among = table.select(attributes).take(pa.array(tied))
    codes, count = row_codes([one_chunk(among.column(name)) for name in attributes])
    if count == len(tied):
        return table
    # Codes are numbered as values appear, so a row is the first of its like iff no code before is as great.
    first = np.append(True, codes[1:] > np.maximum.accumulate(codes)[:-1])
    kept = np.ones(table.num_rows, bool)
    kept[tied] = first
    events = table.filter(pa.array(kept))
    if LINEAGE not in table.column_names:
        return events
    equals = np.cumsum(kept) - 1
    equals[tied] = equals[tied[first]][codes]
    place = table.schema.get_field_index(LINEAGE)
    united = united_members(one_chunk(table.column(LINEAGE)), equals.astype(np.int32), events.num_rows)
    return events.set_column(place, LINEAGE, united)


def _tied(table: pa.Table) -> np.ndarray:
    """The rows that share their interval with another row: only these can be equal."""
    ends, starts = (_ticks(table, name) for name in (END, START))
    order = np.lexsort((starts, ends))
    return order[in_ties(ends[order], starts[order])]


def row_codes(columns: Sequence[pa.Array]) -> tuple[Codes, int]:
    """A code for each row, equal for rows with equal columns, numbered by appearance; null equals null.

    There is at least one column.
    """
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        others, other_count = _codes(column)
        codes, count = number_values(codes.astype(np.int64) * other_count + others)
    return (codes, count) if len(columns) > 1 else number_values(codes.astype(np.int64))


def _codes(column: pa.Array) -> tuple[Codes, int]:
    """A code for each value, including null, and an upper bound of their number."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int32), 1
    if pa.types.is_struct(column.type):
        return row_codes([column.is_valid(), *column.flatten()])
    if element_type(column.type) is not None:
        column = _as_bytes(column)
    (codes,), count = encode_values([column])
    return codes + np.int32(1), count + 1


def _as_bytes(lists: pa.Array) -> pa.Array:
    """Lists as bytes that are equal iff the lists are: the codes of their elements."""
    whole = joined_bytes(_codes(lists.flatten())[0], lengths_of(lists))
    return pc.if_else(lists.is_valid(), whole, None) if lists.null_count else whole


def in_settled_order(events: pa.Table) -> pa.Table:
    """The events by (end, start, attributes): an order that does not depend on how they were derived."""
    ends, starts = (_ticks(events, name) for name in (END, START))
    order = np.lexsort((starts, ends))
    tied = in_ties(ends[order], starts[order])
    if tied.any():
        rows = events.take(pa.array(order[tied]))
        order[tied] = order[tied][_by_attributes(rows)]
    return events.take(pa.array(order))


def _ticks(events: pa.Table, name: str) -> np.ndarray:
    return np.asarray(one_chunk(events.column(name)).view(pa.int64()))


def _by_attributes(events: pa.Table) -> np.ndarray:
    """The order of rows by (end, start, attributes), null first."""
    columns = {"end": events.column(END), "start": events.column(START)}
    for place, field in enumerate(events.schema):
        if field.name not in (START, END, LINEAGE) and not pa.types.is_null(field.type):
            column = events.column(place)
            if column.null_count:
                columns[f"{place} is there"] = column.is_valid()
            columns[str(place)] = value_ranks(one_chunk(column)) if pa.types.is_nested(field.type) else column
    table = pa.table(columns)
    return np.asarray(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))


# --- look-up in static tables


def look_up(matches: pa.Table, lookup: Lookup, table: pa.Table, check: Callable[[int], None]) -> pa.Table:
    """Each match once for every matching row of the table, in the order of both, with the columns added.

    `check` receives their number before they are built.
    """
    places, rows = _pairs(matches, lookup, table, check)
    found = matches.take(pa.array(places))
    for column, name in lookup.columns:
        found = found.append_column(name, table.column(column).take(pa.array(rows)))
    return found


def _pairs(
    matches: pa.Table, lookup: Lookup, table: pa.Table, check: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """The places of matches and of their rows."""
    keys, codes, count = _key_codes(matches, lookup, table)
    order, offsets = group_by_key(codes, count)
    known = np.maximum(keys, 0)
    lengths = np.where(keys >= 0, offsets[known + 1] - offsets[known], 0)
    check(int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    within = np.arange(lengths.sum()) - np.repeat(begins, lengths)
    return np.repeat(np.arange(len(keys)), lengths), order[np.repeat(offsets[known], lengths) + within]


def _key_codes(matches: pa.Table, lookup: Lookup, table: pa.Table) -> tuple[Codes, Codes, int]:
    """The values that must agree, as codes of the matches and of the rows; -1 agrees with nothing."""
    if not lookup.on:
        return np.zeros(matches.num_rows, np.int32), np.zeros(table.num_rows, np.int32), 1
    columns = [(one_chunk(matches.column(left)), one_chunk(table.column(right))) for left, right in lookup.on]
    (keys, codes), count = encode_columns(columns)
    return keys, codes, max(count, 1)


# --- derivation

MOST_ROUNDS = 10_000
"""The maximum number of rounds of recursive rules, unless the limit is removed."""


def matches_of(way: Way, watched: WatchedEvents, frontier: Frontier, options: Options) -> pa.Table:
    """The matches of a statement whose matches are events."""
    with citing(way.plan.source):
        chunks = evaluate(way.plan, watched.store, frontier, options, watched.completing)
        return collect_ordered(chunks, way.output, options.limit, options.chunk_rows)


def as_events(derivation: Derivation, way: Way, matches: pa.Table, limit: int | None) -> pa.Table:
    """The matches of a statement as events, with all columns."""
    lookup = way.plan.query.lookup
    if lookup is not None:
        assert way.table is not None
        matches = look_up(matches, lookup, way.table, lambda rows: _check_limit(derivation, rows, limit))
    return matches.select(derivation.schema.names).cast(derivation.schema, safe=False)


def together(derivation: Derivation, parts: Sequence[pa.Table], limit: int | None) -> pa.Table:
    """The events of all statements, with all columns; each once if they form a set."""
    joined = pa.concat_tables([derivation.schema.empty_table(), *parts]).combine_chunks()
    events = distinct_events(joined) if derivation.is_set else joined
    _check_limit(derivation, events.num_rows, limit)
    return events


def settled(derivation: Derivation, events: pa.Table) -> pa.Table:
    """The events as their users see them."""
    return (in_settled_order(events) if derivation.is_set else events).select(derivation.used)


def _check_limit(derivation: Derivation, rows: int, limit: int | None) -> None:
    if limit is not None and rows > limit:
        raise LimitError(
            "too-many-events",
            f"stream `{derivation.name}` has more than {counted(limit, 'event', 'events')}",
            "narrow the condition; a rule that depends on itself needs a condition that ends it; "
            "`limits=ensue.Limits(matches=...)` raises the limit",
        )


def sources_of(plan: QueryPlan, sources: Sequence[EventSource]) -> tuple[EventSource, ...]:
    """The tables that a plan reads: the given ones, and the derived ones that it uses."""
    return tuple(source for source in sources if not source.input.derived or any(map(source.input.holds, plan.streams)))


@dataclass(frozen=True, slots=True)
class Growth:
    """The events of a stream found so far; `is_new` marks those that the last round found or changed."""

    table: pa.Table
    is_new: Mask


@dataclass(frozen=True, slots=True)
class Search:
    """Searches for matches with events of growing streams.

    `sources` are those of all other streams, `earlier` the known events of the growing ones from previous steps.
    """

    sources: tuple[EventSource, ...]
    earlier: Mapping[Stream, pa.Table]
    frontier: Frontier
    options: Options
    compiled: CompiledGraphs

    def __call__(self, way: Way, growing: Mapping[Stream, Growth], items: Mapping[Stream, InputTable]) -> pa.Table:
        """The matches of a statement that contain a new event.

        If only one item can be new, one search suffices; with several, each in turn is the first new one.
        """
        own = [name for name in growing if name in way.plan.streams]
        only_new = way.items_of(growing) == 1
        tables, is_new = [], []
        for name in own:
            used, growth = items[name].table.column_names, growing[name]
            table = growth.table.select(used)
            if only_new:
                tables.append(table.filter(pa.array(growth.is_new)))
                continue
            before = self.earlier[name].select(used) if name in self.earlier else table.slice(0, 0)
            tables.append(pa.concat_tables([before, table]).combine_chunks())
            is_new.append(np.append(np.zeros(before.num_rows, bool), growth.is_new))
        inputs = [replace(items[name], table=table) for name, table in zip(own, tables, strict=True)]
        grown, _ = load_sources(inputs, way.plan.catalog.time_type)
        frontier = self.frontier if only_new else replace(self.frontier, fresh=_new_among(grown, is_new))
        sources = sources_of(way.plan, (*self.sources, *grown))
        request = replace(request_of(way.plan), compiled=self.compiled)
        return matches_of(way, watch(way.plan, sources, request, Report()), frontier, self.options)


def _new_among(sources: Sequence[EventSource], is_new: Sequence[Mask]) -> Callable[[Candidates], Mask]:
    """The new candidates: none for streams that do not grow."""

    def is_fresh(found: Candidates) -> Mask:
        for source, mask in zip(sources, is_new, strict=True):
            if source is found.source.origin:
                return mask[found.rows]
        return np.zeros(len(found), bool)

    return is_fresh


def grow(group: Sequence[Derivation], first: Mapping[Stream, pa.Table], search: Search) -> dict[Stream, pa.Table]:
    """All events of streams that use each other, starting from the `first` ones, with all columns.

    Semi-naive evaluation: each round searches for what follows from the events of the previous round, until there are
    none. An event whose lineage has grown counts as new, because the events derived from it get a longer lineage too.
    """
    growing = {name: Growth(table, np.ones(table.num_rows, bool)) for name, table in first.items()}
    items: dict[Stream, InputTable] = {derivation.name: derivation.item for derivation in group}
    for number in count():
        changed = {name for name, growth in growing.items() if growth.is_new.any()}
        if not changed:
            break
        _check_rounds(number, changed, search.options.limit)
        found: dict[Stream, list[pa.Table]] = {derivation.name: [] for derivation in group}
        for derivation in group:
            for way in derivation.ways:
                if not changed.isdisjoint(way.plan.streams):
                    matches = search(way, growing, items)
                    found[derivation.name].append(as_events(derivation, way, matches, search.options.limit))
        growing = {
            made.name: _grown(made, growing[made.name].table, found[made.name], search.options.limit) for made in group
        }
    return {name: growth.table for name, growth in growing.items()}


def _check_rounds(number: int, changed: Collection[Stream], limit: int | None) -> None:
    """Stops rules that never end before they reach the limit by a few events per round."""
    if limit is not None and number >= MOST_ROUNDS:
        raise LimitError(
            "too-many-rounds",
            f"stream `{min(map(str, changed))}` still has new events after {MOST_ROUNDS:,} rounds of its rules",
            "add a condition that ends the rule; `limits=ensue.Limits(matches=None)` removes the limit",
        )


def _grown(derivation: Derivation, known: pa.Table, found: Sequence[pa.Table], limit: int | None) -> Growth:
    table = together(derivation, [known, *found], limit)
    is_new = np.arange(table.num_rows) >= known.num_rows
    if LINEAGE in table.column_names:
        before, after = (_lineagelengths_of(rows) for rows in (known, table.slice(0, known.num_rows)))
        is_new[: known.num_rows] = after > before
    return Growth(table, is_new)


def _lineagelengths_of(events: pa.Table) -> np.ndarray:
    return np.diff(one_chunk(events.column(LINEAGE)).offsets.to_numpy())
