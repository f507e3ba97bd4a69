"""Section 7, streams of rows: each event of the input again for every stream whose condition it satisfies.

It is the same event, so it keeps its id: two variables never bind two events with one id, and positions count it once.
With UNNEST, each element of a list in a row is an event of its own, with the times of its row. Streams of the same list
share its elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from types import MappingProxyType

from inside import Expr, Selection
from oracle.choices import read_event
from oracle.conditions import Lookup, Value, evaluate, holds
from oracle.model import ElementOrder, OracleEvent
from oracle.returns import name_of

NOTHING: Mapping[str, Value] = MappingProxyType({})


def with_selections(
    selections: Sequence[Selection], events: Sequence[OracleEvent], has_tables: bool = False
) -> list[OracleEvent]:
    """The events, each with the streams of rows that it belongs to, and the events of those streams."""
    known: list[OracleEvent] = []
    names = {selection.name for selection in selections}
    ids = count(1 + max((event.id for event in events), default=0))
    width = max((len(event.order or ()) for event in events), default=0)
    for event in events:
        asked = [one for one in selections if not has_tables or one.table == event.stream]
        own = [
            as_selected(event, one, reader(event))
            for one in asked
            if one.unnest is None and is_selected(one, reader(event))
        ]
        stream = "" if event.stream in names else event.stream
        known.append(replace(event, stream=stream, also=frozenset(one.stream for one in own)))
        known += own
        for values in dict.fromkeys(one.unnest.list for one in asked if one.unnest is not None):
            for index, element in enumerate(evaluate(values, reader(event)) or ()):
                of_row = event.order or (None,) * width
                order = ElementOrder((*of_row, index), (values, has_tables and event.stream), event.order is not None)
                known += elements(replace(event, id=next(ids), order=order), values, element, index, asked)
    return known


def elements(
    event: OracleEvent, values: Expr, element: Value, index: int, selections: Sequence[Selection]
) -> list[OracleEvent]:
    """The events that one element is: one in each of its streams."""
    found = []
    for one in selections:
        if one.unnest is not None and one.unnest.list == values:
            named = {one.unnest.element: element} | ({} if one.unnest.index is None else {one.unnest.index: index})
            read = reader(event, named)
            if is_selected(one, read):
                wide = replace(event, fields={**event.fields, **named})
                found.append(as_selected(wide, one, read))
    return found


def reader(event: OracleEvent, further: Mapping[str, Value] = NOTHING) -> Lookup:
    """The columns of the row: its fields, its type and its time."""
    own = {"type": event.stream, "time": event.s, "until": event.e, **further}
    return lambda _, column: own[column] if column in own else read_event(event, column)


def is_selected(selection: Selection, read: Lookup) -> bool:
    return selection.where is None or holds(selection.where, read)


def as_selected(event: OracleEvent, selection: Selection, read: Lookup) -> OracleEvent:
    fields = event.fields
    if selection.returns:
        fields = {
            name_of(column, number): evaluate(column.expression, read)
            for number, column in enumerate(selection.returns, start=1)
        }
    return replace(event, stream=selection.name, fields=fields, is_selected=True)
