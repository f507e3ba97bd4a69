"""Lower `span_start()` and `span_end()` in RETURN: the interval of a match together with its collected events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from ensue.analysis.scopes import SPANS, has_spans, is_span, returned_name
from ensue.errors import Problem, QueryError
from ensue.nodes import patterns
from ensue.nodes.expressions import Call, Expr, Field, rewrite, walk
from ensue.nodes.names import Name


def resolve_spans(statements: patterns.AnyStatements) -> patterns.AnyStatements:
    """The statements with these functions in terms of the interval of the match and of its lists."""
    if not any(map(has_spans, statements.statements)):
        return statements
    return replace(statements, statements=tuple(map(with_spans, statements.statements)))


def with_spans(query: patterns.PatternQuery) -> patterns.PatternQuery:
    """`span_start()` is `least(whole.s, min(f.s), ...)` over the collected variables `f`, with the pattern `AS whole`.

    >>> from ensue.text.parser import parse_statements
    >>> from ensue.text.render import render_return
    >>> text = "PATTERN SEQ(COLLECT F f, A a) WITHIN 5 RETURN span_end()"
    >>> render_return(with_spans(parse_statements(text).statements[0]).returns[0])
    'greatest(`match span`.e, max(f.e)) AS span_end'
    """
    if not has_spans(query):
        return query
    listed = [*_collected(query.pattern, False)]
    taken = {str(getattr(part, "name", getattr(part, "variable", None))) for part in patterns.walk(query.pattern)}
    whole = next(name for number in count(1) if (name := _name(number)) not in taken)

    def resolved(part: Expr) -> Expr | None:
        if not is_span(part):
            return None
        combine, reduce, side = SPANS[part.name]
        lists = (Call(reduce, (Field(name, side),)) for name in dict.fromkeys(listed))
        return Call(combine, (Field(whole, side), *lists), part.span)

    returns = tuple(
        replace(
            column,
            expression=rewrite(column.expression, resolved),
            alias=returned_name(column, place),
        )
        if any(map(is_span, walk(column.expression)))
        else column
        for place, column in enumerate(query.returns)
    )
    named = patterns.NamedPattern(query.pattern, whole, query.pattern.span)
    return replace(query, pattern=named, returns=returns)


def span_problems(query: patterns.PatternQuery) -> tuple[Problem, ...]:
    """Why these functions cannot be lowered: a collected event without a variable."""
    try:
        with_spans(query)
    except QueryError as error:
        return error.problems
    return ()


def _name(number: int) -> str:
    return "match span" if number == 1 else f"match span {number}"


def _collected(pattern: patterns.Pattern, listed: bool) -> Iterator[Name]:
    """The variables of collections that are not inside NOT."""
    if isinstance(pattern, patterns.Event) and listed:
        if pattern.variable is None:
            problem = Problem(
                "span-unnamed",
                "span_start() and span_end() need a variable for every collected event",
                pattern.span,
                hint=f"name it: `{pattern.stream} x`",
            )
            raise QueryError([problem])
        yield pattern.variable
    spec = patterns.OPERATORS[pattern.operator] if isinstance(pattern, patterns.Operation) else None
    for place, item in enumerate(patterns.children(pattern)):
        if isinstance(pattern, patterns.Not) or (spec is not None and place in spec.forbidden):
            continue
        lists = patterns.is_chain(pattern) or (isinstance(pattern, patterns.Repeat) and pattern.every)
        yield from _collected(item, listed or lists or (spec is not None and place in spec.collected))
