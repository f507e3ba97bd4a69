"""Rebuilding expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ensue.nodes.expressions import Elements, Expr, Field, parts_of

Change = Callable[[Expr], Expr | None]
"""What stands in the place of an expression; None: the same, with its own parts changed."""


def rewrite(expr: Expr, change: Change) -> Expr:
    """The expression, from the outside in, with every part replaced for which `change` gives another.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> rewrite(Binary(">", Field("a", "x"), Literal(1)), lambda part: Literal(2) if part == Literal(1) else None)
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=2))
    """
    changed = change(expr)
    return _with_parts(expr, change) if changed is None else changed


def _with_parts(expr: Expr, change: Change) -> Expr:
    changed = {name: new for name in parts_of(expr) if (new := _part(old := getattr(expr, name), change)) is not old}
    return replace(expr, **changed) if changed else expr


def _part(value: Any, change: Change) -> Any:
    if isinstance(value, Expr):
        return rewrite(value, change)
    if isinstance(value, tuple):
        parts = tuple(_part(part, change) for part in value)
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value


def substitute_fields(expr: Expr, change: Callable[[Field], Expr]) -> Expr:
    """The expression with every field replaced by what `change` gives for it.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> substitute_fields(Binary(">", Field(None, "x"), Literal(1)), lambda field: Field("a", field.name))
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=1))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Field) else None)


def substitute_lists(expr: Expr, change: Callable[[Elements], Expr]) -> Expr:
    """The expression with every list over a variable replaced by what `change` gives for it: a field, or a Gather.

    >>> from ensue.nodes.expressions import Call
    >>> substitute_lists(Call("sum", (Elements(Field("t", "x"), "t"),)), lambda part: Field(part.of, "list of x"))
    Call(name='sum', arguments=(Field(variable='t', name='list of x'),))
    """
    return rewrite(expr, lambda part: change(part) if isinstance(part, Elements) else None)


def anonymous_predicate(predicate: Expr) -> Expr:
    """The predicate with its variable left out, equal for two variables that ask the same."""
    return substitute_fields(predicate, lambda field: replace(field, variable=None))
