"""Runs drawn queries on the engine and gives back matches in the form of the oracle, for comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ensue import QueryError
from inside import (
    FOREVER,
    EventStore,
    Frontier,
    InputTable,
    MatchChunk,
    Operation,
    Options,
    OutputSchema,
    PatternQuery,
    QueryPlan,
    Round,
    catalog_of,
    checked,
    completion_times,
    end_of,
    load_events,
    load_sources,
    output_schema,
    parse_statements,
    plan_query,
    positive_names,
    raw_types,
    render_chunk,
    render_query,
    request_of,
)
from inside import evaluate_plan as evaluate
from oracle.model import Bound
from oracle.oracle import OracleEvent, matches
from oracle.tree import Path, part_at

Shape = tuple[tuple[tuple[str, Bound], ...], tuple[int, ...], int, int, float]
Found = Counter[Shape]
"""How often each (named bindings, moments of PERIODIC, start, end, completion) was found.

The moments in a repetition are left out: the oracle does not show them.
"""

Shown = dict[str, Any] | list[dict[str, Any] | None]
"""An event in a result, or a list of them."""

FIELD_TYPES = {"x": pa.int64(), "y": pa.int64(), "k": pa.int64(), "g": pa.int64(), "name": pa.string()}


def events_table(events: Sequence[OracleEvent]) -> pa.Table:
    """One table of all events, in the order given; `id` is the oracle's."""
    columns: dict[str, pa.Array] = {
        "id": pa.array([event.id for event in events], pa.int64()),
        "type": pa.array([event.stream for event in events], pa.string()),
        "time": pa.array([event.s for event in events], pa.int64()),
        "until": pa.array([event.e for event in events], pa.int64()),
    }
    for name, kind in FIELD_TYPES.items():
        columns[name] = pa.array([event.fields.get(name) for event in events], kind)
    return pa.table(columns)


def input_of(events: Sequence[OracleEvent], intervals: bool, order: tuple[str, ...] = ()) -> InputTable:
    return InputTable(events_table(events), "time", "until" if intervals else None, type="type", order=order)


ORDERS: tuple[tuple[str, ...], ...] = ((), (), ("y",), ("x", "y"), ("name",))
"""Order columns; their values are often equal or null, so that ties remain."""


def in_order(events: Sequence[OracleEvent], order: tuple[str, ...]) -> list[OracleEvent]:
    """The events, ordered by some of their fields if they have the same time."""
    if not order:
        return list(events)
    return [replace(event, order=tuple(event.fields.get(name) for name in order)) for event in events]


def plan_for(query: PatternQuery, shape: InputTable) -> QueryPlan:
    """Plans the query by way of its text, as a user's query would be."""
    statements = checked(parse_statements(render_query(query)))
    return plan_query(statements.statements[0], catalog_of((shape,)), statements.source)


REFUSED = (
    *("list-outside", "endless-periodic"),
    *("policy-negation", "policy-list", "policy-shared", "policy-window", "policy-operator"),
)
"""With which codes Ensue may refuse a drawn query that the oracle can answer."""


def is_plannable(query: PatternQuery, intervals: bool) -> bool:
    """Whether Ensue takes a drawn query."""
    try:
        plan_for(query, input_of([], intervals))
    except QueryError as error:
        if error.code not in (*REFUSED, "never-holds"):
            raise
        return False
    return True


def load(plan: QueryPlan, inputs: Sequence[InputTable]) -> EventStore:
    """All events of the inputs that the query may use."""
    sources, _ = load_sources(inputs, plan.catalog.time_type)
    return load_events(sources, request_of(plan))


def from_engine(plan: QueryPlan, shape: InputTable, options: Options) -> Found:
    """All matches of one batch."""
    return count_chunks(evaluate(plan, load(plan, [shape]), Frontier(), options, {}), plan, [shape])


def count_chunks(chunks: Iterable[MatchChunk], plan: QueryPlan, shapes: Sequence[InputTable]) -> Found:
    """What is in some chunks of matches, by way of the columns that a user would see."""
    output = output_schema(plan, raw_types(plan, shapes))
    return Counter(shown for chunk in chunks for shown in shown_matches(chunk, output))


def shown_matches(chunk: MatchChunk, output: OutputSchema) -> Iterator[Shape]:
    """The matches of a chunk in order, as the oracle has them."""
    plan = output.plan
    names = positive_names(plan.query.pattern)
    completions, starts, ends = completion_times(chunk, plan), chunk.starts, chunk.ends
    names_of_moments = [moment.name for moment in chunk.plan.graph.repeated if not isinstance(moment.name, Round)]
    moments = np.array([chunk.space.value(end_of(name), chunk.rows) for name in names_of_moments])
    for row, shown in enumerate(render_chunk(chunk, output).select(names).to_pylist()):
        bindings = tuple(sorted((name, ids_of(shown[name])) for name in names if shown[name] is not None))
        completion = math.inf if completions[row] == FOREVER else float(completions[row])
        at = tuple(sorted(map(int, moments[:, row]))) if len(moments) else ()
        yield bindings, at, int(starts[row]), int(ends[row]), completion


def ids_of(shown: Shown) -> Bound:
    """The id of an event in a result, or the ids of a list of events."""
    if isinstance(shown, list):
        return tuple(None if event is None else event["id"] for event in shown)
    return shown["id"]


def from_oracle(query: PatternQuery, history: list[OracleEvent]) -> Found:
    """The oracle's matches without the names of unnamed variables; of moments those of PERIODIC."""
    return Counter(
        (
            tuple((name, bound) for name, bound in match.bindings if isinstance(name, str)),
            tuple(sorted(times[0] for path, times in match.moments if _is_periodic(query, path))),
            match.start,
            match.end,
            float(match.completion),
        )
        for match in matches(query, history)
    )


def _is_periodic(query: PatternQuery, path: Path) -> bool:
    part = part_at(query.pattern, path)
    return isinstance(part, Operation) and part.operator == "PERIODIC"
