"""Checks of `STREAM name FROM table WHERE ... RETURN ...`, without data and with the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ensue.analysis.catalog import StreamSchema, is_lineage
from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.checker import check_condition, check_expression, check_without_data
from ensue.expr.kinds import INTEGER, NULL_TYPE, Kind, Type
from ensue.expr.lists import PREVIOUS, is_aggregate
from ensue.nodes.expressions import Call, Expr, Field, Same, walk
from ensue.nodes.patterns import CONTEXTS, Event, PatternQuery, Selection, Statements, Unnest, column_name
from ensue.nodes.patterns import walk as walk_pattern
from ensue.nodes.rules import Ruleset
from ensue.nodes.uncertainty import is_probability


def check_selections(statements: Statements) -> Iterator[Problem]:
    """The problems of streams of rows that do not depend on data."""
    names = {selection.name for selection in statements.selections}
    for selection in statements.selections:
        yield from _check_expressions(selection)
    yield from _check_names(statements, names)
    for entry in statements.states:
        for response in entry.responses:
            if response.stream in names:
                yield Problem(
                    "selected-state",
                    f"a STATE only supports streams of the input, but `{response.stream}` is a selection of rows",
                    response.span or entry.span,
                    hint="use the table, or a stream of its type column, in the STATE",
                )
    for query in statements.statements:
        yield from _check_policy(query, names)
    if statements.hierarchies:
        yield Problem(
            "selected-hierarchy",
            "STREAM ... FROM a table cannot be combined with HIERARCHY",
            statements.selections[0].span,
            hint="use the streams of the HIERARCHY with a condition in brackets, such as `Person p [age > 5]`",
        )


def expressions_of(selection: Selection) -> tuple[Expr, ...]:
    """The list, the condition and the columns of a stream of rows."""
    lists = () if selection.unnest is None else (selection.unnest.list,)
    condition = () if selection.where is None else (selection.where,)
    return (*lists, *condition, *(column.expression for column in selection.returns))


def _check_expressions(selection: Selection) -> Iterator[Problem]:
    if selection.unnest is not None and selection.unnest.index == selection.unnest.element:
        said = f"UNNEST names both the element and its position `{selection.unnest.element}`"
        yield Problem("duplicate-column", said, selection.unnest.span, hint="rename one of them")
    for expression in expressions_of(selection):
        problems = [*_check_parts(expression)]
        if not problems:
            is_condition = expression is selection.where
            check_without_data(expression, lambda field: NULL_TYPE, problems, condition=is_condition)
        yield from problems
    seen: set[str] = set()
    for position, column in enumerate(selection.returns):
        name = column_name(column, position)
        if name in seen:
            yield Problem(
                "duplicate-column",
                f"RETURN has two columns named `{name}`",
                column.span,
                hint=f"rename one of them: `... AS {name}_2`",
            )
        seen.add(name)


def _check_parts(expression: Expr) -> Iterator[Problem]:
    """The parts that have a meaning only in a pattern."""
    for part in walk(expression):
        if isinstance(part, Same):
            yield _only_in_patterns("SAME", part.span)
        elif is_lineage(part) or is_probability(part) or is_aggregate(part) or _is_previous(part):
            assert isinstance(part, Call)
            yield _only_in_patterns(part.name, part.span)
        elif isinstance(part, Field) and part.asks_state:
            yield _only_in_patterns("a question about a STATE", part.span)


def _is_previous(part: Expr) -> bool:
    return isinstance(part, Call) and part.name == PREVIOUS


def _only_in_patterns(what: str, span: Span | None) -> Problem:
    said = f"{what} is only allowed in a pattern, not in STREAM ... FROM a table"
    return Problem("misplaced-in-selection", said, span, hint="use it in the WHERE or RETURN of a PATTERN")


def _check_names(statements: Statements, names: set[str]) -> Iterator[Problem]:
    """Each stream is declared once, and a stream of rows is not made from another declared stream."""
    ruleset = statements.ruleset or Ruleset()
    declared = {str(query.name) for query in statements.declared} | {*ruleset.heads}
    tables = {entry.name for entry in ruleset.tables} | {fact.table for fact in ruleset.facts}
    seen: set[str] = set()
    for selection in statements.selections:
        if selection.name in seen | declared | tables:
            yield Problem(
                "duplicate-stream", f"stream `{selection.name}` is declared twice", selection.span, hint="rename one"
            )
        seen.add(selection.name)
        if selection.table in names | declared | tables:
            kind = "a TABLE" if selection.table in tables else "a declared stream"
            yield Problem(
                "selected-stream",
                f"FROM must be a table of events, but `{selection.table}` is {kind}",
                selection.span,
                hint=_hint_of(selection, names),
            )


def _hint_of(selection: Selection, names: set[str]) -> str:
    if selection.table == selection.name:
        return "give the stream a different name"
    if selection.table in names:
        return f"select from the table of `{selection.table}` and repeat its condition"
    return f"write `STREAM {selection.name} FROM PATTERN {selection.table} x WHERE ...`"


def _check_policy(query: PatternQuery, names: set[str]) -> Iterator[Problem]:
    """The contexts of SNOOP use the matches of operators as events, so a row of two streams would be two events."""
    if query.policy not in CONTEXTS:
        return
    streams = {part.stream for part in walk_pattern(query.pattern) if isinstance(part, Event)}
    selected = sorted(str(name) for name in streams if name in names)
    if selected and len(streams) > 1:
        yield Problem(
            "selected-policy",
            f"with MATCH {query.policy}, `{selected[0]}` is only supported alone: a row could be in two streams",
            query.policy_span or query.span,
            hint="use MATCH NEXT or CONSUME, or add a type column to the table",
        )


# --- with the columns of the table


def bind_selection(
    selection: Selection, table: StreamSchema, time: Type
) -> tuple[list[Problem], Type | None, dict[str, Type]]:
    """The problems of a stream of rows with the columns of its table, the type of the elements of UNNEST, and the types
    of the columns of RETURN."""
    problems: list[Problem] = []
    element: Type | None = None
    if selection.unnest is not None:
        element = _element_type(selection, selection.unnest, table, time, problems)
        own = {selection.unnest.element: element or NULL_TYPE}
        own |= {} if selection.unnest.index is None else {selection.unnest.index: INTEGER}
        table = replace(table, fields={**table.fields, **own})
    field_type = _field_types(selection, table, time, problems)
    if selection.where is not None:
        check_condition(selection.where, field_type, problems)
    kept = [
        name
        for name in (table.time, table.end, table.probability, *table.alternatives, *table.order)
        if name is not None
    ]
    types: dict[str, Type] = {}
    for position, column in enumerate(selection.returns):
        name, expression = column_name(column, position), column.expression
        types[name] = check_expression(expression, field_type, problems)
        if name in kept and not (isinstance(expression, Field) and expression.name == name):
            problems.append(
                Problem(
                    "reserved-column",
                    f"column `{name}` of `{selection.table}` describes the events and cannot be redefined",
                    column.span,
                    hint="choose another name: this column is kept as it is",
                )
            )
    return problems, element, types


def _element_type(
    selection: Selection, unnest: Unnest, table: StreamSchema, time: Type, problems: list[Problem]
) -> Type | None:
    """The type of the elements of a list, if it is one."""
    for name in (unnest.element, unnest.index):
        if name is not None and (name in table.fields or table.endpoint(name) is not None):
            said = f"table `{selection.table}` already has a column `{name}`"
            hint = f"give the element another name: `UNNEST ... AS {name}_2`"
            problems.append(Problem("duplicate-column", said, unnest.span, hint=hint))
    if table.probability is not None:
        said = f"the elements of `{selection.table}` would be uncertain together, which is not supported"
        hint = "remove `probability`, or make a table of the elements and pass it as its own stream"
        problems.append(Problem("unnest-uncertain", said, unnest.span, hint=hint))
    found = check_expression(unnest.list, _field_types(selection, table, time, problems), problems)
    if found.element is None and found.kind is not Kind.NULL and not problems:
        hint = "unnest a list; the keys of a map have no order" if found.entry is not None else "unnest a list"
        if found.kind is Kind.TEXT:
            hint = "split the text: `UNNEST split(text, ',') AS part`"
        said = f"UNNEST needs a list, but this is {found.word}"
        problems.append(Problem("unnest-list", said, unnest.list.span or unnest.span, hint=hint))
    return found.element or NULL_TYPE


def _field_types(
    selection: Selection, table: StreamSchema, time: Type, problems: list[Problem]
) -> Callable[[Field], Type | None]:
    def field_type(field: Field) -> Type | None:
        if not table.hides(field.name) and table.endpoint(field.name) is not None:
            return time
        if field.name in table.fields:
            return table.fields[field.name]
        if field.name in table.unusable:
            problems.append(replace(table.unusable[field.name], span=field.span))
            return None
        problems.append(_no_column(field, selection, table.fields))
        return None

    return field_type


def _no_column(field: Field, selection: Selection, columns: Iterable[str]) -> Problem:
    known = list(columns)
    alone = "write columns alone, without the name of the table" if field.name == selection.table else ""
    return Problem(
        "no-such-field",
        f"table `{selection.table}` has no column `{field.name}`",
        field.span,
        label=f"columns: {', '.join(known)}",
        hint=alone or did_you_mean(field.name, known),
    )
