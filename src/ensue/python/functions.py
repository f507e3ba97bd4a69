"""`ensue.function`: a function of the user for queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ensue.errors import QueryError
from ensue.expr.user_functions import UserFunction, refuse_definition
from ensue.nodes.expressions import Call
from ensue.python.values import Value, value_node
from ensue.text.parser import parse_expression


class QueryFunction(UserFunction):
    """A function for queries. Calling it gives the value of the call in a query; `call` is the function itself."""

    __slots__ = ()

    def __call__(self, *arguments: object) -> Value:
        return Value(Call(self.name, tuple(map(value_node, arguments)), function=self))

    def __repr__(self) -> str:
        return f"<{self}>"


def function(
    *, takes: Sequence[pa.DataType], returns: pa.DataType, name: str | None = None
) -> Callable[[Callable[..., Any]], QueryFunction]:
    """Make a function on Arrow arrays available in queries, under its own name or under `name`.

    The function gets one array per argument, of the declared types, and returns an array with one value per row, of the
    type `returns`. Each value may only depend on the same row of the arguments. Nulls are passed as well.

    A text uses it by its name, after `ensue.parse(text, functions=[...])`. In a query built in Python, call it.

    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> import ensue
    >>> @ensue.function(takes=[pa.float64(), pa.float64()], returns=pa.float64())
    ... def distance(x, y):
    ...     return pc.sqrt(pc.add(pc.multiply(x, x), pc.multiply(y, y)))
    >>> program = ensue.parse("PATTERN A a RETURN distance(a.x, a.y) AS d", functions=[distance])
    >>> events = pa.table({"t": [1], "type": ["A"], "x": [3], "y": [4]})
    >>> ensue.detect(events, program, time="t", type="type").to_pylist()
    [{'d': 5.0}]
    >>> distance(ensue.var("a").x, 0) < 2
    Value("distance(a.x, 0) < 2")
    """

    def defined(call: Callable[..., Any]) -> QueryFunction:
        given = getattr(call, "__name__", "") if name is None else name
        lower = given.lower()
        if not _is_callable_name(lower):
            hint = "" if name is not None else "; pass `name=`"
            raise ValueError(f"`{given}` cannot be the name of a function in a query{hint}")
        refuse_definition(lower, takes, returns)
        return QueryFunction(lower, call, takes, returns)

    return defined


def _is_callable_name(name: str) -> bool:
    """Whether `name(x)` is a call in a query."""
    try:
        found = parse_expression(f"{name}(x)") if name.isidentifier() else None
    except QueryError:
        return False
    return isinstance(found, Call) and found.name == name and len(found.arguments) == 1
