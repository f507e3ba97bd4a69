"""Rebuilding expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ensue.expr.nodes import Expr, Field


def substitute_fields(expr: Expr, change: Callable[[Field], Expr]) -> Expr:
    """The expression with every field replaced by what `change` gives for it.

    >>> from ensue.expr.nodes import Binary, Literal
    >>> substitute_fields(Binary(">", Field(None, "x"), Literal(1)), lambda field: Field("a", field.name))
    Binary(operator='>', left=Field(variable='a', name='x'), right=Literal(value=1))
    """
    if isinstance(expr, Field):
        return change(expr)
    changed = {
        item.name: new
        for item in fields(expr)
        if (new := _substitute(old := getattr(expr, item.name), change)) is not old
    }
    return replace(expr, **changed) if changed else expr


def _substitute(value: Any, change: Callable[[Field], Expr]) -> Any:
    if isinstance(value, Expr):
        return substitute_fields(value, change)
    if isinstance(value, tuple):
        parts = tuple(_substitute(part, change) for part in value)
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value


def anonymous_predicate(predicate: Expr) -> Expr:
    """The predicate with its variable left out, equal for two variables that ask the same."""
    return substitute_fields(predicate, lambda field: Field(None, field.name))
