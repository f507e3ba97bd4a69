"""Repeated variables in expressions: which lists an expression uses, and the expression with explicit lists.

The variables of one repetition form a group. `groups` maps each of them, by name, to its group; a variable without a
group is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from ensue.errors import Problem, Span
from ensue.expr.functions import AGGREGATES
from ensue.nodes.expressions import Call, Elements, Expr, Field, Literal, path_field, rewrite, substitute_fields, walk
from ensue.nodes.names import Name, in_order

PREVIOUS = "prev"
"""The function that returns the value of the previous element."""


# --- the lists of an expression


def has_aggregate(expr: Expr) -> bool:
    """Whether the expression contains an aggregate, over a repeated variable or over a list field."""
    return next(_aggregates(expr), None) is not None


def has_prev(expr: Expr) -> bool:
    """Whether the expression contains PREV."""
    return any(isinstance(part, Call) and part.name == PREVIOUS for part in walk(expr))


def list_variables(expr: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables that the expression uses, including bare ones as in `count(t)`.

    >>> expr = Call("sum", (Field("t", "x"),))
    >>> list_variables(expr, {"t": "t"}), list_variables(expr, {"u": "u"})
    (frozenset({'t'}), frozenset())
    """
    names = (_named(part) for part in walk(expr) if isinstance(part, Field))
    return frozenset(name for name in names if name in groups)


def aggregated_variables(expr: Expr, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The repeated variables inside aggregates: none in `t.temp > avg(c.limits)` if `c` is not repeated."""
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


# --- explicit lists


def explicit_lists(expr: Expr, groups: Mapping[Name, Name], problems: list[Problem]) -> Expr:
    """Makes the list of each repeated variable explicit; appends a problem for each mistake.

    The argument of an aggregate becomes the list of its values, `count(t)` counts the elements, and a field outside an
    aggregate becomes the list of its values. A part with a mistake becomes NULL, which is compatible with every type.

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
        field = path_field(part)
        if field is not None and field.variable is not None and field.variable in groups:
            return Elements(part, groups[field.variable], part.span)
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
            f"aggregate `{inner.name}` is nested inside aggregate `{call.name}`",
            inner.span or call.span,
            hint="return the inner aggregate from a pattern declared with STREAM, then aggregate its events",
        )
    bare = next((part for part in walk(argument) if isinstance(part, Field) and _is_bare(part)), None)
    if bare is not None and bare.name in groups and not (call.name == "count" and bare is argument):
        return Problem(
            "function-arguments",
            f"`{call.name}` expects a field, but `{bare.name}` is a list of events",
            bare.span or call.span,
            hint=f"use a field, for example `{bare.name}.field`; only `count({bare.name})` accepts a list of events",
        )
    return _two_lists(f"`{call.name}`", argument, groups, argument.span or call.span)


def _two_lists(what: str, expr: Expr, groups: Mapping[Name, Name], span: Span | None) -> Problem | None:
    one_of_each = {groups[name]: name for name in reversed(in_order(list_variables(expr, groups)))}
    if len(one_of_each) < 2:
        return None
    first, second, *_ = in_order(one_of_each.values())
    return Problem(
        "two-lists",
        f"{what} uses one list, but `{first}` and `{second}` belong to different repetitions",
        span,
        hint="aggregate each repetition separately",
    )


# --- conditions between successive elements


def check_successive(expr: Expr, groups: Mapping[Name, Name], problems: list[Problem]) -> Name | None:
    """The group whose elements a condition with PREV compares; None, and problems, if there is no such group."""
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
            f"PREV and `{aggregate.name}` cannot be used in the same condition",
            aggregate.span or expr.span,
            hint="write two conditions, joined by AND: PREV compares adjacent elements, an aggregate uses all elements",
        )
    for call in walk(expr):
        if isinstance(call, Call) and call.name == PREVIOUS:
            yield from _call_problems(call, expr, groups)


def _call_problems(call: Call, expr: Expr, groups: Mapping[Name, Name]) -> Iterator[Problem]:
    span, example = call.span or expr.span, "for example `t.temp > PREV(t.temp)`"
    if len(call.arguments) != 1:
        message = f"`prev` takes 1 argument, found {len(call.arguments)}"
        yield Problem("function-arguments", message, span, "prev(x)", example)
    elif has_prev(call.arguments[0]):
        yield Problem("misplaced-prev", "PREV cannot be nested: it goes back by one element", span, hint=example)
    elif not list_variables(call, groups):
        yield Problem("misplaced-prev", "PREV expects a field of a repeated variable", span, hint=example)


def without_prev(expr: Expr) -> Expr:
    """The condition with `x` in place of `PREV(x)`, to find its types and names.

    >>> without_prev(Call("prev", (Field("t", "x"),)))
    Field(variable='t', name='x')
    """
    return successive(expr, {}, {})


def successive(expr: Expr, current: Mapping[Name, Name], previous: Mapping[Name, Name]) -> Expr:
    """A condition with PREV as a condition on two elements; the mappings give the variables of each element.

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
