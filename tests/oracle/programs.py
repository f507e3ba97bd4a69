"""Section 7, streams of composite events: the matches of one statement are the events of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from graphlib import TopologicalSorter

from inside import Event, PatternQuery
from oracle.conditions import Value
from oracle.model import OracleEvent, OracleMatch
from oracle.oracle import matches
from oracle.tree import walk


def program_matches(
    program: Sequence[PatternQuery], events: list[OracleEvent], w0: float = -math.inf, w1: float = math.inf
) -> list[list[OracleMatch]]:
    """What each statement reports that advances from watermark w0 to w1, in the order of the program.

    The ids of a match's events are those of the input; those of declared streams follow, statement by statement in the
    order in which they depend on each other, each in the order of completion and start.
    """
    horizon = max((event.e for event in events), default=0) if math.isinf(w1) else int(w1)
    known, found = list(events), {}
    for number in in_order_of_need(program):
        query = program[number]
        found[number] = matches(query, known, horizon)
        if query.declares:
            known += as_events(query, found[number], known)
    return [[match for match in found[number] if w0 < match.completion <= w1] for number in range(len(program))]


def in_order_of_need(program: Sequence[PatternQuery]) -> list[int]:
    """The numbers of the statements, each after those whose streams it uses."""
    declared = {query.name: number for number, query in enumerate(program) if query.declares}
    needed = {
        number: {
            declared[part.stream]
            for _, part in walk(query.pattern)
            if isinstance(part, Event) and part.stream in declared
        }
        for number, query in enumerate(program)
    }
    return list(TopologicalSorter(needed).static_order())


def as_events(query: PatternQuery, found: list[OracleMatch], known: list[OracleEvent]) -> list[OracleEvent]:
    """The matches as events: from the start of the match to its completion, with the columns of RETURN."""
    by_id = {event.id: event for event in known}
    first = max(by_id, default=-1) + 1
    ordered = sorted(found, key=lambda match: (match.completion, match.start, match.bindings))
    return [
        OracleEvent(
            first + number,
            query.name,
            match.start,
            int(match.completion),
            fields_of(query, match, by_id),
            match.origins,
        )
        for number, match in enumerate(ordered)
        if not math.isinf(match.completion)
    ]


def fields_of(query: PatternQuery, match: OracleMatch, by_id: dict[int, OracleEvent]) -> dict[str, Value]:
    """Without RETURN: the partition columns and, per variable and field, `variable_field`."""
    if query.returns:
        return match.columns
    fields: dict[str, Value] = {}
    for name, bound in match.bindings:
        if not isinstance(name, str):
            continue
        for column in dict.fromkeys(column for event in by_id.values() for column in event.fields):
            if isinstance(bound, int):
                fields[f"{name}_{column}"] = by_id[bound].fields.get(column)
            else:
                values = (None if number is None else by_id[number].fields.get(column) for number in bound)
                fields[f"{name}_{column}"] = tuple(values)
    for column in query.partition_by:
        fields[column] = match.origins[0].fields.get(column)
    return fields
