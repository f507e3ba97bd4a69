"""The type of Arrow that the value of an expression has, and every mistake in the expression."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ensue.errors import Problem
from ensue.expr.checker import check_expression
from ensue.expr.kinds import Type
from ensue.expr.types import arrow_type, own_type
from ensue.nodes.expressions import Expr, Field


def expression_type(
    expr: Expr, field_type: Callable[[Field], pa.DataType | None], problems: list[Problem]
) -> pa.DataType:
    """The type of the expression; `field_type` gives the readable type of a field. Appends mistakes to `problems`.

    >>> from ensue.nodes.expressions import Binary, Literal
    >>> expression_type(Binary("/", Field("a", "x"), Literal(2)), lambda field: pa.int64(), [])
    DataType(double)
    """

    def own(field: Field) -> Type | None:
        found = field_type(field)
        return None if found is None else own_type(found)

    return arrow_type(check_expression(expr, own, problems))
