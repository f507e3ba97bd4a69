"""Runs the engine on drawn queries with constraints, and gives back matches by the ids of their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

import ensue
from ensue import QueryError
from harness import events_table, ids_of
from inside import Constraint, PatternQuery, render_constraint, render_query
from oracle.model import Bound
from oracle.oracle import OracleEvent, matches

Bindings = Counter[tuple[tuple[str, Bound], ...]]


def program_text(query: PatternQuery, constraints: Sequence[Constraint]) -> str:
    stated = "".join(f"CONSTRAINT {render_constraint(constraint)};\n" for constraint in constraints)
    return stated + render_query(query)


def problem_of(query: PatternQuery, constraints: Sequence[Constraint]) -> QueryError | None:
    """Why the engine does not take the query with these constraints."""
    try:
        found_by_detect(query, constraints, [])
    except QueryError as error:
        return error
    return None


def new_detector(query: PatternQuery, constraints: Sequence[Constraint]) -> ensue.Detector:
    return ensue.Detector(program_text(query, constraints), time="time", type="type")


def found_by_detect(query: PatternQuery, constraints: Sequence[Constraint], events: Sequence[OracleEvent]) -> Bindings:
    return named_bindings(
        ensue.detect(events_table(events), program_text(query, constraints), time="time", type="type")
    )


def found_by_steps(
    query: PatternQuery,
    constraints: Sequence[Constraint],
    cut: Sequence[tuple[Sequence[OracleEvent], int]],
    restoring: bool = False,
) -> list[Bindings]:
    """What a Detector gives at each batch and at the end; with `restoring` each batch goes to a new Detector."""
    detector = new_detector(query, constraints)
    found = []
    for events, watermark in cut:
        step = detector.advance(events_table(events), watermark=watermark)
        assert step.late.num_rows == 0
        found.append(named_bindings(step.matches))
        if restoring:
            saved = detector.snapshot()
            detector = new_detector(query, constraints)
            detector.restore(saved)
    return [*found, named_bindings(detector.finish(events_table([])).matches)]


def named_bindings(table: pa.Table) -> Bindings:
    """The matches of a result without RETURN, as (variable, event id or ids) pairs."""
    names = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    return Counter(
        tuple(sorted((name, ids_of(row[name])) for name in names if row[name] is not None)) for row in table.to_pylist()
    )


def expected(
    query: PatternQuery, history: list[OracleEvent], after: float = float("-inf"), until: float = float("inf")
) -> Bindings:
    """The matches that complete after the one watermark and until the other, by the oracle."""
    return Counter(
        tuple((name, event) for name, event in match.bindings if isinstance(name, str))
        for match in matches(query, history)
        if after < match.completion <= until
    )
