"""Runs drawn queries on the engine and gives back matches in the form of the oracle, for comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from ensue.algebra.nodes import PatternQuery
from ensue.engine.evaluate import Frontier, evaluate
from ensue.engine.events import FOREVER, EventStore, load_events
from ensue.engine.matches import MatchChunk, completion_times
from ensue.engine.session import request_of
from ensue.engine.sources import InputTable, load_sources
from ensue.lang.parser import parse_statements
from ensue.lang.render import render_query
from ensue.plan.build import plan_query
from ensue.plan.model import Options, QueryPlan
from ensue.runtimes.local import catalog_of
from oracle.oracle import OracleEvent, OracleMatch

Found = Counter[tuple[tuple[tuple[str, int], ...], int, int, float]]
"""How often each (named bindings, start, end, completion) was found."""

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


def input_of(events: Sequence[OracleEvent], intervals: bool) -> InputTable:
    return InputTable(events_table(events), "time", "until" if intervals else None, type="type")


def plan_for(query: PatternQuery, shape: InputTable) -> QueryPlan:
    """Plans the query by way of its text, as a user's query would be."""
    statements = parse_statements(render_query(query))
    return plan_query(statements.statements[0], catalog_of((shape,)), statements.source)


def load(plan: QueryPlan, inputs: Sequence[InputTable]) -> EventStore:
    """All events of the inputs that the query may use."""
    sources, report = load_sources(inputs, plan.catalog.time_type)
    return load_events(sources, request_of(plan), report)


def from_engine(plan: QueryPlan, shape: InputTable, options: Options) -> Found:
    """All matches of one batch."""
    return count_chunks(evaluate(plan, load(plan, [shape]), Frontier(), options, {}), plan)


def count_chunks(chunks: Iterable[MatchChunk], plan: QueryPlan) -> Found:
    found: Found = Counter()
    for chunk in chunks:
        completions = completion_times(chunk, plan)
        names = sorted(name for name in chunk.rows.places if "#" not in name)
        ids = {name: _event_ids(chunk, name) for name in names}
        for row in range(chunk.rows.length):
            bindings = tuple((name, int(ids[name][row])) for name in names)
            completion = math.inf if completions[row] == FOREVER else float(completions[row])
            found[bindings, int(chunk.starts[row]), int(chunk.ends[row]), completion] += 1
    return found


def _event_ids(chunk: MatchChunk, name: str) -> np.ndarray:
    candidates = chunk.space.candidates[name]
    return candidates.source.column("id").to_numpy()[candidates.rows[chunk.rows.places[name]]]


def from_oracle(matches: Iterable[OracleMatch]) -> Found:
    """The oracle's matches without the names of unnamed variables."""
    return Counter(
        (
            tuple((name, event) for name, event in match.bindings if not name.startswith("#")),
            match.start,
            match.end,
            float(match.completion),
        )
        for match in matches
    )
