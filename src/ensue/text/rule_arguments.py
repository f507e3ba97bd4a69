"""What stands in the brackets of a rule's atoms and head, of a FACT and of an action."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ensue.errors import Problem, Span, closest
from ensue.expr.aggregates import AGGREGATES
from ensue.expr.functions import FUNCTIONS
from ensue.expr.lists import PREVIOUS
from ensue.nodes.expressions import Binary, Call, Expr, Field, Literal, Unary, walk
from ensue.nodes.patterns import Events
from ensue.nodes.rules import Anything, Argument, Name, Term
from ensue.text.render_values import render_expression
from ensue.text.reserved import quote_name
from ensue.text.values import shorten

ARGUMENT_FORM = "an argument of an item is a name, `_`, a number, a text, TRUE, FALSE or NULL"
VALUE_FORM = "a value of a FACT is a number, a text, TRUE, FALSE or NULL"

Arguments = Sequence[Expr | Events]


def read_arguments(expressions: Arguments, text: str, span: Span) -> tuple[tuple[Argument, ...], list[Problem]]:
    """The arguments of an atom; one that is none is `_` until all problems are raised."""
    arguments: list[Argument] = []
    problems: list[Problem] = []
    for attribute, value, place in map(_named, expressions):
        term = _term(value, text)
        if term is None:
            problems.append(_argument_problem(value))
        arguments.append(Argument(term or Anything(value.span), attribute, place))
    problems += mixed_arguments([argument.attribute for argument in arguments], span)
    return tuple(arguments), problems


def read_values(
    expressions: Sequence[Expr], span: Span
) -> tuple[tuple[Literal, ...], tuple[str, ...] | None, list[Problem]]:
    """The values of a FACT and the columns they are for, if they are named."""
    named = [_named(expression) for expression in expressions]
    values = tuple(value if isinstance(value, Literal) else Literal(None) for _, value, _ in named)
    problems = [_value_problem(value) for _, value, _ in named if not isinstance(value, Literal)]
    columns = tuple(column for column, _, _ in named if column is not None)
    problems += mixed_arguments([column for column, _, _ in named], span)
    problems += repeated_columns(columns, span)
    return values, columns or None, problems


def mixed_arguments(names: Sequence[str | None], span: Span | None = None) -> Iterator[Problem]:
    """`order(id, qty=q)`: of the arguments, those with a name and those with none."""
    named = next((name for name in names if name is not None), None)
    if named is not None and None in names:
        message = "arguments are given by name or by position, not some by one and some by the other"
        hint = f"name all of them, such as `{quote_name(named)}=...`, or none"
        yield Problem("mixed-arguments", message, span, hint=hint)


def window_problem(window: Events) -> Problem:
    """`{o, s} within 5 EVENTS`."""
    message = "what a rule puts within a window is measured in time, not in events"
    return Problem("rule-window", message, window.span, hint="for example `within 2 hours`")


def repeated_columns(columns: Sequence[str], span: Span) -> Iterator[Problem]:
    """`TABLE price(product, product)`."""
    for place, column in enumerate(columns):
        if column in columns[:place]:
            yield Problem(
                "duplicate-column", f"`{quote_name(column)}` stands here twice", span, hint="keep one of them"
            )


def positions_behind_names(arguments: Sequence[tuple[str | None, Span]]) -> Iterator[Problem]:
    """`notify(order = o.id, 5)`."""
    for (before, _), (name, span) in pairwise(arguments):
        if before is not None and name is None:
            message = "an argument without a name stands behind one that has a name"
            yield Problem("mixed-arguments", message, span, hint="arguments without a name come first")


def head_problem(expression: Expr, text: str) -> Iterator[Problem]:
    """`_` in a head."""
    for part in walk(expression):
        if isinstance(part, Field) and _is_anything(part, text):
            message = "`_` stands for anything, so a head has no value of it"
            hint = "give the argument of the body a name, and use that"
            yield Problem("argument-form", message, part.span, hint=hint)


def misjoined_items(condition: Expr) -> Iterator[Problem]:
    """`order(id) AND shipped(id)`, `NOT shipped(id)` and the like: events that stand in a condition."""
    pending: list[tuple[Expr, str]] = [(condition, "")]
    while pending:
        part, around = pending.pop()
        match part:
            case Binary("and" | "or" as connective, left, right):
                pending += [(right, connective), (left, connective)]
            case Unary("not", operand):
                pending.append((operand, "not"))
            case Binary("=", Field(None, label), Call() as call):
                pending.append((call, quote_name(label)))
            case Call(name) if around and not _is_function(name):
                yield Problem(
                    "unknown-function", f"there is no function `{name}`", part.span, hint=_item_hint(part, around)
                )


def _item_hint(call: Call, around: str) -> str:
    if meant := closest(call.name, FUNCTIONS, 0.8):
        return f"did you mean `{meant}`?"
    text = shorten(render_expression(call))
    hints = {
        "and": f"an event is an item of its own: write `,` around `{text}`",
        "or": "write a rule for each of the alternatives, with the same head",
        "not": f"name the interval in which there is none: `while w: not {text}`",
    }
    return hints.get(around, f"the name of an item stands before a colon: `{around}: {text}`")


def _is_function(name: str) -> bool:
    return name in FUNCTIONS or name in AGGREGATES or name == PREVIOUS


def _named(expression: Expr | Events) -> tuple[str | None, Expr | Events, Span | None]:
    """`qty = q` is what the attribute `qty` is."""
    match expression:
        case Binary("=", Field(None, attribute), value):
            return attribute, value, expression.span
    return None, expression, expression.span


def _term(value: Expr | Events, text: str) -> Term | None:
    match value:
        case Field(None) if _is_anything(value, text):
            return Anything(value.span)
        case Field(None, name):
            return Name(name, value.span)
        case Literal():
            return value
    return None


def _is_anything(field: Field, text: str) -> bool:
    quoted = field.span is not None and text.startswith("`", field.span.start)
    return field.variable is None and field.name == "_" and not quoted


def _argument_problem(value: Expr | Events) -> Problem:
    if isinstance(value, Events):
        return Problem("argument-form", ARGUMENT_FORM, value.span)
    if any(isinstance(part, Call) and part.name in AGGREGATES for part in walk(value)):
        return Problem("argument-form", ARGUMENT_FORM, value.span, hint="aggregates stand in the head of a rule")
    hint = f"write a name and, as an item of its own, a condition: `value = {shorten(render_expression(value))}`"
    return Problem("argument-form", ARGUMENT_FORM, value.span, hint=hint)


def _value_problem(value: Expr | Events) -> Problem:
    hint = f"a text stands in single quotes: `'{shorten(value.name)}'`" if isinstance(value, Field) else ""
    return Problem("argument-form", VALUE_FORM, value.span, hint=hint)
