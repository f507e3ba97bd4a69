"""What rules leave open until the tables are known: which attribute is in which place, and by what keys they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ensue.analysis.declarations import streams_of
from ensue.errors import Problem, QueryError
from ensue.lower.rule_reader import all_of
from ensue.nodes.expressions import Binary, Expr, Field, IsNull, conjuncts
from ensue.nodes.names import Name
from ensue.nodes.patterns import AnyStatements, Event, PatternQuery, rewrite, walk
from ensue.nodes.rewrite import substitute_fields

AttributesOf = Callable[[str], tuple[str, ...] | None]
"""The attributes of a stream in the order of its table; None where a table has no order of them."""


def with_attributes(statements: AnyStatements, attributes_of: AttributesOf) -> AnyStatements:
    """The statements with every attribute by its name."""
    problems = [problem for query in statements.statements for problem in _check_positions(query, attributes_of)]
    if problems:
        raise QueryError(problems, statements.source)
    named = [_with_names(query, attributes_of) for query in statements.statements]
    return replace(statements, statements=tuple(named))


def _events(query: PatternQuery) -> list[Event]:
    return [node for node in walk(query.pattern) if isinstance(node, Event)]


def _check_positions(query: PatternQuery, attributes_of: AttributesOf) -> Iterator[Problem]:
    for event in _events(query):
        if event.arity is None:
            continue
        known = attributes_of(str(event.stream))
        if known is None:
            yield Problem(
                "no-positions",
                f"nothing says in which order the attributes of `{event.stream}` are",
                event.span,
                hint=f"name them: `{event.stream}(column=x)`, or declare them: `STREAM {event.stream}(column, ...)`",
            )
        elif len(known) != event.arity:
            yield Problem(
                "arity",
                f"the table of `{event.stream}` has {len(known)} attributes, not {event.arity}",
                event.span,
                label=", ".join(known),
                hint=f"write `_` for one that does not matter, or name those that do: `{event.stream}(column=x)`",
            )


def _with_names(query: PatternQuery, attributes_of: AttributesOf) -> PatternQuery:
    named_by_place = [event for event in _events(query) if event.positions is not None]
    if not named_by_place:
        return query
    names = {
        (event.variable, position): name
        for event in named_by_place
        for position, name in zip(event.positions or (), attributes_of(str(event.stream)) or (), strict=True)
    }

    def named(expr: Expr) -> Expr:
        return substitute_fields(
            expr, lambda part: replace(part, name=names.get((part.variable, part.name), part.name))
        )

    return replace(
        query,
        pattern=rewrite(query.pattern, lambda part: replace(part, positions=None) if isinstance(part, Event) else part),
        where=None if query.where is None else named(query.where),
        returns=tuple(replace(column, expression=named(column.expression)) for column in query.returns),
    )


def with_keys(queries: Sequence[PatternQuery]) -> tuple[PatternQuery, ...]:
    """The statements, those of rules with the keys that all their events share."""
    keyed = [_keyed(query) if query.rule is not None else query for query in queries]
    for place in reversed(range(len(keyed))):
        query = keyed[place]
        if query.lookup is not None:
            users = [other for other in keyed if query.name in streams_of([other])]
            own = {column.alias for column in query.returns if _is_field(column.expression, column.alias)}
            keys = tuple(key for key in users[0].partition_by if key in own) if users else ()
            keyed[place] = replace(query, partition_by=keys)
    return tuple(keyed)


def _is_field(expression: Expr, name: str | None) -> bool:
    """Whether a column has the name of the field that it holds; what had a place for its name has not."""
    return isinstance(expression, Field) and expression.name == name


def _keyed(query: PatternQuery) -> PatternQuery:
    """A rule with its keys; what they say by themselves is no condition any more."""
    keys = _shared_fields(query)
    left = [condition for condition in conjuncts(query.where) if not _is_about_keys(condition, keys)]
    return replace(query, partition_by=keys, where=all_of(left))


def _is_about_keys(condition: Expr, keys: Sequence[str]) -> bool:
    match condition:
        case Binary("=", Field(x, left), Field(y, right)) if x is not None and y is not None:
            return left == right and left in keys
        case IsNull(Field(x, name), negated=True) if x is not None:
            return name in keys
        case _:
            return False


def _shared_fields(query: PatternQuery) -> tuple[str, ...]:
    """The fields that are equal in all events of a rule: those of its body, the forbidden and the listed ones."""
    variables = [event.variable for event in _events(query) if event.variable is not None]
    links: dict[str, list[tuple[Name, Name]]] = {}
    for condition in conjuncts(query.where):
        match condition:
            case Binary("=", Field(x, left), Field(y, right)) if x is not None and y is not None and left == right:
                links.setdefault(left, []).append((x, y))
    return tuple(name for name, pairs in links.items() if _connect(variables, pairs))


def _connect(variables: Sequence[Name], pairs: Sequence[tuple[Name, Name]]) -> bool:
    reached = {variables[0]}
    waiting = [variables[0]]
    for current in waiting:
        near = {y if x == current else x for x, y in pairs if current in (x, y)} - reached
        reached |= near
        waiting += near
    return reached >= set(variables)
