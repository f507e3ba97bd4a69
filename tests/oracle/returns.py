"""What a match shows: its bindings, the columns of RETURN, and the lineage of its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inside import Call, Entry, Expr, Field, Literal, Return, StructMember, rewrite_expression
from oracle.conditions import Value, evaluate, plain
from oracle.model import Bound, Candidate, OracleEvent, OracleMatch
from oracle.partition import Partition
from oracle.tree import WHOLE, is_list


def shown(partition: Partition, match: Candidate, suppressed: int | None = None) -> OracleMatch:
    return OracleMatch(
        bindings=tuple(sorted(bindings_of(partition, match).items(), key=lambda pair: str(pair[0]))),
        branch=tuple(sorted(match.branch.items())),
        start=match.spans[WHOLE].s,
        end=match.spans[WHOLE].e,
        completion=partition.completion(match),
        moments=tuple(sorted(match.moments.items())),
        columns=columns_of(partition, match) | ({} if suppressed is None else {"suppressed": suppressed}),
        origins=origins_of(everything_of(match)),
        suppressed=suppressed,
    )


def bindings_of(partition: Partition, match: Candidate) -> dict[str, Bound]:
    """The event of every variable; a list of events for one in a repetition, of all its elements."""
    found: dict[str, Bound] = {name: event.id for name, event in match.bindings.items()}
    for name, home in partition.home.items():
        if home in match.lists() and name not in partition.named:
            events = [element.bindings.get(name) for element in match.lists()[home]]
            found[name] = tuple(None if event is None else event.id for event in events)
    return found


def everything_of(match: Candidate) -> list[OracleEvent]:
    """Every event that the match binds or lists."""
    listed = [event for elements in match.collected.values() for element in elements for event in element.events()]
    return match.events() + listed


def origins_of(events: Iterable[OracleEvent]) -> tuple[OracleEvent, ...]:
    """The events of the input below these, each once, in the order of (start, end, arrival)."""
    below = {origin.id: origin for event in events for origin in (event.origins or (event,))}
    return tuple(sorted(below.values(), key=lambda event: (event.s, event.e, event.id)))


# RETURN


def columns_of(partition: Partition, match: Candidate) -> dict[str, Value]:
    returns = partition.query.returns
    return {
        name_of(column, number): plain(value_of(partition, match, column.expression))
        for number, column in enumerate(returns, start=1)
    }


def name_of(column: Return, number: int) -> str:
    if column.alias is not None:
        return column.alias
    is_span = isinstance(column.expression, Call) and column.expression.name in ("span_start", "span_end")
    return (
        column.expression.name if is_span or isinstance(column.expression, Field | StructMember) else f"column_{number}"
    )


def value_of(partition: Partition, match: Candidate, expression: Expr) -> Value:
    """The value of a column: a field of a list is the list of the values."""

    def with_span(part: Expr) -> Expr | None:
        is_span = isinstance(part, Call) and part.name in ("span_start", "span_end")
        return Literal(span_of(match)[part.name == "span_end"]) if is_span else None

    expression = rewrite_expression(expression, with_span)
    lists = replace(partition.lists(match), lineage=lambda name: lineage_of(partition, match, name))
    field = expression
    while isinstance(field, StructMember | Entry):
        field = field.operand
    if isinstance(field, Field):
        home = partition.home[field.variable]
        if is_list(partition.pattern, home):
            elements = lists.elements({field.variable})
            return tuple(evaluate(expression, element) for element in elements) if home in match.lists() else None
    return evaluate(expression, partition.lookup(match), lists)


def span_of(match: Candidate) -> tuple[int, int]:
    """The interval of the match together with every event that it lists."""
    whole, events = match.spans[WHOLE], everything_of(match)
    return min(whole.s, *(event.s for event in events)), max(whole.e, *(event.e for event in events))


def lineage_of(partition: Partition, match: Candidate, name: str | None) -> tuple[int, ...]:
    """`lineage(name)`, or `lineage()` of the whole match."""
    events = everything_of(match)
    if name in match.bindings:
        events = [match.bindings[name]]
    elif name is not None:
        rounds = match.lists().get(partition.home[name], ())
        events = [element.bindings[name] for element in rounds if name in element.bindings]
    return tuple(origin.id for origin in origins_of(events))
