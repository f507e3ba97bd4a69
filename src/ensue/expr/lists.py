"""Repeated variables in expressions: which lists an expression names, and the expression with its lists spelt out.

The variables of one repetition form a group. `groups` gives the group of each of them, by name; a variable without
a group is a single one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from ensue.errors import Problem, Span
from ensue.expr.functions import AGGREGATES
from ensue.nodes.expressions import Call, Elements, Expr, Field, Literal, rewrite, substitute_fields, walk
from ensue.nodes.names import Name, in_order

PREVIOUS = "prev"
"""The function that is the value of the element before."""


# --- what an expression names


def has_aggregate(expr: Expr) -> bool:
    """Whether there is an aggregate in it, over a repeated variable or over a field that is a list."""
    return next(_aggregates(expr), None) is not None


def has_prev(expr: Expr) -> bool:
    """Whether there is a PREV in it."""
    return any(isinstance(part, Call) and part.name == PREVIOUS for part in walk(expr))


def list_variables(expr: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables that it names, bare ones as in `count(t)` included.

    >>> expr = Call("sum", (Field("t", "x"),))
    >>> list_variables(expr, {"t": "t"}), list_variables(expr, {"u": "u"})
    (frozenset({'t'}), frozenset())
    """
    names = (_named(part) for part in walk(expr) if isinstance(part, Field))
    return frozenset(name for name in names if name in groups)


def aggregated_variables(expr: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables that its aggregates range over: none in `t.temp > avg(c.limits)` with a single `c`."""
    if not groups:
        return frozenset()
    inside = (list_variables(argument, groups) for call in _aggregates(expr) for argument in call.arguments)
    return frozenset[Name]().union(*inside)


def _named(field: Field) -> Name:
    return field.name if field.variable is None else field.variable


def _aggregates(expr: Expr) -> Iterator[Call]:
    return (part for part in walk(expr) if is_aggregate(part))


def is_aggregate(expr: Expr) -> TypeGuard[Call]:
    return isinstance(expr, Call) and expr.name in AGGREGATES


# --- lists spelt out


def explicit_lists(expr: Expr, groups: Mapping[Name, Name], problems: list[Problem]) -> Expr:
    """The expression with a list for each repeated variable; appends a problem for each mistake.

    What an aggregate ranges over becomes the list of its values, `count(t)` counts the elements themselves, and a field
    outside of an aggregate is the list of its values. A part with a mistake becomes NULL, which goes with everything.

    >>> explicit_lists(Call("sum", (Field("t", "x"),)), {"t": "t"}, [])
    Call(name='sum', arguments=(Elements(element=Field(variable='t', name='x'), of='t'),))
    """

    def spelt_out(part: Expr) -> Expr | None:
        if isinstance(part, Call) and part.name in AGGREGATES and len(part.arguments) == 1:
            problem = _aggregate_problem(part, groups)
            if problem is None:
                return _over_elements(part, groups)
            problems.append(problem)
            return Literal(None, part.span)
        match part:
            case Field(variable) if variable is not None and variable in groups:
                return Elements(part, groups[variable], part.span)
        return None

    return rewrite(expr, spelt_out)


def _over_elements(call: Call, groups: Mapping[Name, Name]) -> Call:
    (argument,) = call.arguments
    group = next((groups[name] for name in list_variables(argument, groups)), None)
    if group is None:
        return call
    each = Literal(True, argument.span) if _is_bare(argument) else argument
    return Call(call.name, (Elements(each, group, argument.span),), call.span)


def _is_bare(argument: Expr) -> bool:
    return isinstance(argument, Field) and argument.variable is None


def _aggregate_problem(call: Call, groups: Mapping[Name, Name]) -> Problem | None:
    (argument,) = call.arguments
    inner = next(_aggregates(argument), None)
    if inner is not None:
        return Problem(
            "nested-aggregate",
            f"`{inner.name}` stands inside `{call.name}`; an aggregate ranges over the elements of one list",
            inner.span or call.span,
            hint="return the inner one from a pattern declared with STREAM, and aggregate its events",
        )
    bare = next((part for part in walk(argument) if isinstance(part, Field) and _is_bare(part)), None)
    if bare is not None and bare.name in groups and not (call.name == "count" and bare is argument):
        return Problem(
            "function-arguments",
            f"`{bare.name}` is a list of events, `{call.name}` needs a value of each",
            bare.span or call.span,
            hint=f"name a field, `{bare.name}.field`; only count({bare.name}) counts the events themselves",
        )
    return _two_lists(f"`{call.name}`", argument, groups, argument.span or call.span)


def _two_lists(what: str, expr: Expr, groups: Mapping[Name, Name], span: Span | None) -> Problem | None:
    one_of_each = {groups[name]: name for name in reversed(in_order(list_variables(expr, groups)))}
    if len(one_of_each) < 2:
        return None
    first, second, *_ = in_order(one_of_each.values())
    return Problem(
        "two-lists",
        f"{what} ranges over one list, `{first}` and `{second}` belong to two",
        span,
        hint="elements of two repetitions do not go together one by one; aggregate each by itself",
    )


# --- conditions between successive elements


def check_successive(expr: Expr, groups: Mapping[Name, Name], problems: list[Problem]) -> Name | None:
    """The group over whose elements a condition with PREV holds; None, and problems, if there is no such group."""
    found = list(_prev_problems(expr, groups))
    if not found:
        two = _two_lists("a condition with PREV", expr, groups, expr.span)
        found = [two] if two is not None else []
    problems += found
    return None if found else groups[in_order(list_variables(expr, groups))[0]]


def _prev_problems(expr: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    aggregate = next(_aggregates(expr), None)
    if aggregate is not None:
        yield Problem(
            "misplaced-prev",
            f"PREV and `{aggregate.name}` stand in one condition",
            aggregate.span or expr.span,
            hint="PREV compares neighbours, an aggregate ranges over all: write two conditions, joined by AND",
        )
    for call in walk(expr):
        if isinstance(call, Call) and call.name == PREVIOUS:
            yield from _call_problems(call, expr, groups)


def _call_problems(call: Call, expr: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    span, example = call.span or expr.span, "for example `t.temp > PREV(t.temp)`"
    if len(call.arguments) != 1:
        message = f"`prev` takes 1 argument, not {len(call.arguments)}"
        yield Problem("function-arguments", message, span, "prev(x)", example)
    elif has_prev(call.arguments[0]):
        yield Problem("misplaced-prev", "PREV stands inside PREV; it goes back by one element", span, hint=example)
    elif not list_variables(call, groups):
        yield Problem("misplaced-prev", "PREV names no repeated variable", span, hint=example)


def without_prev(expr: Expr) -> Expr:
    """The condition as if every element were its own predecessor: for its types, and for the names in it.

    >>> without_prev(Call("prev", (Field("t", "x"),)))
    Field(variable='t', name='x')
    """
    return successive(expr, {}, {})


def successive(expr: Expr, current: Mapping[Name, Name], previous: Mapping[Name, Name]) -> Expr:
    """A condition with PREV as one between two elements: both mappings give what the variables are called there.

    >>> successive(Call("prev", (Field("t", "x"),)), {"t": "t2"}, {"t": "t1"})
    Field(variable='t1', name='x')
    """

    def renamed(part: Expr) -> Expr | None:
        match part:
            case Call("prev", (argument,)):
                return substitute_fields(argument, lambda field: _renamed(field, previous))
            case Field():
                return _renamed(part, current)
        return None

    return rewrite(expr, renamed)


def _renamed(field: Field, names: Mapping[Name, Name]) -> Field:
    if field.variable is None or field.variable not in names:
        return field
    return replace(field, variable=names[field.variable])
