"""Section 7, streams of rows: each event of the input again for every stream whose condition it satisfies.

It is the same event, so it keeps its id: two variables never bind two events with one id, and positions count it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inside import Selection
from oracle.choices import read_event
from oracle.conditions import Lookup, evaluate, holds
from oracle.model import OracleEvent
from oracle.returns import name_of


def with_selections(
    selections: Sequence[Selection], events: Sequence[OracleEvent], has_tables: bool = False
) -> list[OracleEvent]:
    """The events, each with the streams of rows that it belongs to, and the events of those streams."""
    known: list[OracleEvent] = []
    for event in events:
        own = [
            as_selected(event, selection)
            for selection in selections
            if (not has_tables or selection.table == event.stream) and is_selected(event, selection)
        ]
        hidden = event.stream in {selection.name for selection in selections}
        known.append(replace(event, stream="" if hidden else event.stream, also=frozenset(one.stream for one in own)))
        known += own
    return known


def reader(event: OracleEvent) -> Lookup:
    """The columns of the row: its fields, its type and its time."""
    own = {"type": event.stream, "time": event.s, "until": event.e}
    return lambda _, column: own[column] if column in own else read_event(event, column)


def is_selected(event: OracleEvent, selection: Selection) -> bool:
    return selection.where is None or holds(selection.where, reader(event))


def as_selected(event: OracleEvent, selection: Selection) -> OracleEvent:
    fields = event.fields
    if selection.returns:
        fields = {
            name_of(column, number): evaluate(column.expression, reader(event))
            for number, column in enumerate(selection.returns, start=1)
        }
    return replace(event, stream=selection.name, fields=fields, is_selected=True)
