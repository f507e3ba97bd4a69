"""Functions of the user: vectorized functions on Arrow arrays with declared types, called by name in expressions.

A call holds its function, so a plan that is sent to another process holds it too. There is no registry.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from ensue.errors import Problem, QueryError, Span, counted
from ensue.expr import types
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Function, Parameter
from ensue.expr.kinds import NUMBERS, Kind

_OTHER_CALLS = frozenset({"prev", "lineage", "probability", "span_start", "span_end", "count_distinct"})
_SUPPORTED = "boolean, integer, float, string, timestamp, date and duration types of Arrow"


class UserFunction:
    """A function of the user with its name and the Arrow types of its arguments and its result."""

    __slots__ = ("call", "returns", "signature", "takes")

    def __init__(self, name: str, call: Callable[..., Any], takes: Sequence[pa.DataType], returns: pa.DataType) -> None:
        self.call = call
        self.takes = tuple(takes)
        self.returns = returns
        kind = types.own_type(types.readable_type(returns))
        parameters = _parameters(call, self.takes)
        example = ", ".join(parameter.name for parameter in parameters)
        self.signature = Function(name, parameters, lambda types: kind, "a function of the user", f"{name}({example})")

    @property
    def name(self) -> str:
        """The name in queries, in lower case."""
        return self.signature.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserFunction) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.name, self.takes, self.returns, self.call

    def __str__(self) -> str:
        """The name and the types: `distance(x: double, y: double) -> double`."""
        named = zip(self.signature.parameters, self.takes, strict=True)
        return f"{self.name}({', '.join(f'{each.name}: {kind}' for each, kind in named)}) -> {self.returns}"

    def evaluated(self, arguments: Sequence[types.Array], length: int, span: Span | None) -> types.Array:
        """The results for arrays of `length` rows, which have passed the checker, in the form of other expressions."""
        given = [self._converted(place, array, span) for place, array in enumerate(arguments)]
        if length == 0:
            return types.readable(pa.array([], self.returns), self.name)
        title = f"function `{self.name}`"
        try:
            result = self.call(*given)
        except Exception as error:  # the function is the user's: whatever it raises is shown with its name
            said, hint = f"{title} raised {type(error).__name__}: {error}", f"it was called with {_rows(length)}"
            raise QueryError([Problem("function-raised", said, span, str(self), hint)]) from error
        if not isinstance(result, pa.Array | pa.ChunkedArray):
            said = f"{title} returned {_kind_of(result)} instead of an Arrow array"
            hint = "return a `pyarrow.Array` with one value per row, for example by functions of `pyarrow.compute`"
            raise QueryError([Problem("function-result", said, span, str(self), hint)])
        if result.type != self.returns:
            said = f"{title} returned values of type {result.type}, but is declared to return {self.returns}"
            hint = f"convert the result to {self.returns}, or declare its type with `returns=`"
            raise QueryError([Problem("function-result", said, span, str(self), hint)])
        if len(result) != length:
            said = f"{title} returned {counted(len(result), 'value', 'values')} for {_rows(length)}"
            hint = "return one value for each row, in the order of the rows"
            raise QueryError([Problem("function-result", said, span, str(self), hint)])
        return types.readable(result, self.name)

    def _converted(self, place: int, array: types.Array, span: Span | None) -> types.Array:
        """An argument in its declared type."""
        wanted: Any = self.takes[place]
        found: Any = array.type
        if pa.types.is_null(found):
            return pa.nulls(len(array), wanted)
        title = f"function `{self.name}` takes {wanted} as argument {place + 1}, but"
        if pa.types.is_timestamp(wanted) and (wanted.tz is None) != (found.tz is None):
            said, hint = f"{title} the values are {found}", "declare a type with a time zone, or one without"
            raise QueryError([Problem("function-arguments", said, span, str(self), hint)])
        try:
            converted: types.Array = types.convert(array, wanted)
            return converted
        except pa.ArrowInvalid as error:
            said, hint = f"{title} a value does not fit: {error}", "declare a wider type with `takes=`"
            raise QueryError([Problem("function-arguments", said, span, str(self), hint)]) from error


def _rows(length: int) -> str:
    return counted(length, "row", "rows")


def refuse_definition(name: str, takes: Sequence[pa.DataType], returns: pa.DataType) -> None:
    """Raise an error for a name or a type that a function of the user cannot have."""
    if name in FUNCTIONS or name in AGGREGATES or name in _OTHER_CALLS:
        raise ValueError(f"`{name}` is a function of Ensue: use another name")
    for kind in (*takes, returns):
        if not isinstance(kind, pa.DataType):
            raise TypeError(f"the types of `{name}` must be Arrow types such as pa.float64(), not {kind!r}")
        if not _is_supported(kind):
            raise TypeError(f"`{name}` cannot take or return {kind}; supported: {_SUPPORTED}")


def by_name(functions: Iterable[UserFunction]) -> dict[str, UserFunction]:
    """The functions by their names. Two different ones cannot have the same name."""
    found: dict[str, UserFunction] = {}
    for function in functions:
        if not isinstance(function, UserFunction):
            raise TypeError(f"`functions` takes functions that are defined with `ensue.function`, not {function!r}")
        if found.setdefault(function.name, function) != function:
            raise ValueError(f"two functions are named `{function.name}`")
    return found


def _parameters(call: Callable[..., Any], takes: Sequence[pa.DataType]) -> tuple[Parameter, ...]:
    names = _parameter_names(call, len(takes))
    if len(names) != len(takes):
        raise ValueError(f"`takes` has {len(takes)} types, but the function takes {len(names)} arguments")
    kinds = (types.kind_of(kind) for kind in takes)
    return tuple(
        Parameter(name, NUMBERS if kind is Kind.FLOAT else frozenset({kind}))
        for name, kind in zip(names, kinds, strict=True)
    )


def _parameter_names(call: Callable[..., Any], wanted: int) -> list[str]:
    """The names of the positional parameters; optional ones count only if they have a declared type."""
    try:
        parameters = [*inspect.signature(call).parameters.values()]
    except ValueError:  # a compiled function without a signature
        return [f"x{place}" for place in range(1, wanted + 1)]
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each.name for each in positional if each.default is each.empty]
    names = [each.name for each in positional][: max(wanted, len(required))]
    if len(names) < wanted and any(each.kind is each.VAR_POSITIONAL for each in parameters):
        names += [f"x{place}" for place in range(len(names) + 1, wanted + 1)]
    return names


def _is_supported(kind: Any) -> bool:
    of = pa.types
    tests = (of.is_boolean, of.is_integer, of.is_float32, of.is_float64, of.is_string, of.is_large_string)
    return any(is_type(kind) for is_type in (*tests, of.is_timestamp, of.is_date, of.is_duration))


def _kind_of(result: object) -> str:
    return f"a {type(result).__module__}.{type(result).__qualname__}" if result is not None else "None"
