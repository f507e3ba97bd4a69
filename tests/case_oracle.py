"""What the oracle finds in the cases of `tests/cases`, written as in the cases."""

from __future__ import annotations

import math
from functools import cache

from case_files import (
    Case,
    CaseEvent,
    FieldValue,
    input_of,
    render_event,
    render_name,
    render_suppressed,
    render_time,
    render_value,
)
from inside import Call, Event, Expr, PatternQuery, Statements, parse_statements, walk_pattern
from inside import walk_expression as walk
from oracle.functions import KNOWN
from oracle.model import Bound, OracleEvent, OracleMatch
from oracle.programs import program_matches
from oracle.rules import derive
from oracle.selections import with_selections
from oracle.tree import AGGREGATES, LINEAGE, PREVIOUS, homes

KNOWN_TO_ORACLE = {*KNOWN, *AGGREGATES, PREVIOUS, LINEAGE, "span_start", "span_end"}
NANOSECONDS_PER_TICK = 1000
TIMES = ("time", "until")


@cache
def program_of(case: Case) -> Statements:
    return parse_statements(case.query)


def statements_of(case: Case) -> tuple[PatternQuery, ...]:
    return program_of(case).statements


def heads_of(case: Case) -> tuple[str, ...]:
    """The heads of the rules of a case, none if it is about patterns alone."""
    ruleset = program_of(case).ruleset
    return ruleset.heads if ruleset is not None else ()


def node_of(case: Case) -> PatternQuery:
    """The pattern that is asked for: the last statement; those before it declare streams."""
    return statements_of(case)[-1]


def is_in_reach(case: Case) -> bool:
    """Whether the oracle knows every function on which the matches depend."""
    return all(knows(expr) for query in statements_of(case) for expr in conditions_of(query)) and all(
        expr is None or knows(expr)
        for selection in program_of(case).selections
        for expr in (selection.where, *(column.expression for column in selection.returns))
    )


def can_show_columns(case: Case) -> bool:
    """Whether the oracle can also tell the columns of RETURN. It has no types, so it cannot show clock times."""
    returns = node_of(case).returns
    return not returns or (not case.has_clock_times and all(knows(column.expression) for column in returns))


def knows(expr: Expr) -> bool:
    return all(part.name in KNOWN_TO_ORACLE for part in walk(expr) if isinstance(part, Call))


def conditions_of(query: PatternQuery) -> list[Expr]:
    """The predicates and the conditions; what a declared stream returns decides about later matches, too."""
    local = [node.predicate for node in walk_pattern(query.pattern) if isinstance(node, Event)]
    returned = [column.expression for column in query.returns] if query.declares else []
    per = () if query.suppress is None else query.suppress.per
    return [expr for expr in (*local, query.where, *returned, *per) if expr is not None]


@cache
def oracle_matches(case: Case) -> list[OracleMatch]:
    return program_matches(statements_of(case), events_of(case))[-1]


def events_of(case: Case) -> list[OracleEvent]:
    scale = scale_of(case)
    given = [
        OracleEvent(
            number,
            event.stream,
            event.start * scale,
            event.end * scale,
            {**event.fields, "event": event.label},
            order=order_of(case, event),
        )
        for number, event in enumerate(case.parsed_events())
        if event.start <= event.end
    ]
    selections = program_of(case).selections
    return with_selections(selections, given, case.has_tables) if selections else given


def order_of(case: Case, event: CaseEvent) -> tuple[FieldValue, ...] | None:
    """The values of the order columns; None if the table of the event has none."""
    own = [other for other in case.parsed_events() if not case.has_tables or other.stream == event.stream]
    has_order = case.order and all(any(name in other.fields for other in own) for name in case.order)
    return tuple(event.fields.get(name) for name in case.order) if has_order else None


def oracle_results(case: Case) -> list[str]:
    """What the oracle finds for a program with rules."""
    scale, program = scale_of(case), program_of(case)
    derived = derive(program, events_of(case), case.rows_of_tables(), attributes_of_tables(case))
    found = [
        f"{head}: {render_event(event.fields, event.s // scale, event.e // scale, case.has_clock_times)}"
        for head, events in derived.heads.items()
        for event in events
    ]
    for query, matches in zip(program.results, derived.patterns, strict=True):
        found += [f"{query.name}: {render_columns(match)}" for match in matches]
    return found


def attributes_of_tables(case: Case) -> dict[str, list[str]]:
    """The columns of streams with tables of their own, which are in order without a declaration."""
    tables = input_of(case, []) if case.has_tables else {}
    return {name: [field for field in table.column_names if field not in TIMES] for name, table in tables.items()}


def oracle_rows(case: Case) -> list[tuple[str, int, int]]:
    """The oracle's matches as (row without RETURN, start, end)."""
    return [oracle_row(case, match) for match in oracle_matches(case)]


def oracle_row(case: Case, match: OracleMatch) -> tuple[str, int, int]:
    bound, scale = dict(match.bindings), scale_of(case)
    start, end = match.start // scale, match.end // scale
    at = None if match.completion == math.inf else int(match.completion) // scale
    names = [name for name in homes(node_of(case).pattern) if name in bound and isinstance(name, str)]
    interval = f"[{render_time(start, case.has_clock_times)}, {render_time(end, case.has_clock_times)}]"
    row = " ".join(f"{render_name(name)}={label_of(case, bound[name])}" for name in names) or interval
    row += render_suppressed(match.suppressed)
    return row + completion(end, at, case.has_clock_times), start, end


def completions_of(case: Case) -> list[int]:
    """When the matches are complete, those aside that are only at the end of the stream."""
    found = {match.completion for match in oracle_matches(case)} - {math.inf}
    return sorted(int(at) // scale_of(case) for at in found)


def label_of(case: Case, bound: Bound) -> str:
    if isinstance(bound, int):
        return case.parsed_events()[bound].label
    return "[" + " ".join("null" if number is None else label_of(case, number) for number in bound) + "]"


def returned_rows(case: Case) -> list[str]:
    """The oracle's matches as rows of RETURN."""
    return list(map(render_columns, oracle_matches(case)))


def render_columns(match: OracleMatch) -> str:
    return " ".join(f"{render_name(name)}={render_value(value)}" for name, value in match.columns.items())


def completion(end: int, at: int | None, is_clock: bool) -> str:
    if at == end:
        return ""
    return " @end" if at is None else f" @{render_time(at, is_clock)}"


def scale_of(case: Case) -> int:
    return NANOSECONDS_PER_TICK if case.has_clock_times else 1
