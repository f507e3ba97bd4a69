"""Functions over the lists that repetitions bind, and the lineage of what is bound."""

from __future__ import annotations

from ensue.nodes.expressions import Call, Expr, Field
from ensue.python.values import Value, Variable, condition_node


def count(variable: Variable | Value | str) -> Value:
    """How many elements a list has.

    >>> from ensue.python.values import var
    >>> count(var("t")) >= 3, count("t")
    (Value("count(t) >= 3"), Value("count(t)"))
    """
    return Value(Call("count", (_listed(variable),)))


def probability() -> Value:
    """How probable the match is: `PROBABILITY()`, in `returning`.

    >>> probability()
    Value("probability()")
    """
    return Value(Call("probability", ()))


def lineage(variable: Variable | str | None = None) -> Value:
    """The ids of the primitive events below a variable, or below the whole match.

    >>> lineage("c"), lineage()
    (Value("lineage(c)"), Value("lineage()"))
    """
    return Value(Call("lineage", () if variable is None else (_listed(variable),)))


def sum_(expression: Value | str) -> Value:
    """The sum over a list: `sum(t.temp)`.

    >>> sum_("t.quantity * t.price")
    Value("sum(t.quantity * t.price)")
    """
    return _over("sum", expression)


def avg(expression: Value | str) -> Value:
    """The mean over a list: `avg(t.temp)`.

    >>> avg("t.temp") > 70
    Value("avg(t.temp) > 70")
    """
    return _over("avg", expression)


def min_(expression: Value | str) -> Value:
    """The least over a list: `min(t.temp)`.

    >>> min_("t.temp")
    Value("min(t.temp)")
    """
    return _over("min", expression)


def max_(expression: Value | str) -> Value:
    """The greatest over a list: `max(t.temp)`.

    >>> max_("t.temp")
    Value("max(t.temp)")
    """
    return _over("max", expression)


def stddev(expression: Value | str) -> Value:
    """The standard deviation of the sample over a list: `stddev(t.temp)`.

    >>> stddev("t.temp")
    Value("stddev(t.temp)")
    """
    return _over("stddev", expression)


def first_of(expression: Value | str) -> Value:
    """The value of the first element of a list: `first(t.temp)`.

    >>> first_of("t.temp")
    Value("first(t.temp)")
    """
    return _over("first", expression)


def last_of(expression: Value | str) -> Value:
    """The value of the last element of a list: `last(t.temp)`.

    >>> last_of("t.temp")
    Value("last(t.temp)")
    """
    return _over("last", expression)


def flatten_of(expression: Value | str) -> Value:
    """The values of all elements of a list, of elements that are lists themselves their values: `flatten(t.tags)`.

    >>> flatten_of("t.tags")
    Value("flatten(t.tags)")
    """
    return _over("flatten", expression)


def list_of(expression: Value | str) -> Value:
    """The values of all elements of a list: `list(t.temp)`.

    >>> list_of("t.temp")
    Value("list(t.temp)")
    """
    return _over("list", expression)


def prev(expression: Value | str) -> Value:
    """The value of the element before: `PREV(t.temp)`.

    >>> from ensue.python.values import var
    >>> var("t").temp > prev(var("t").temp)
    Value("t.temp > prev(t.temp)")
    """
    return _over("prev", expression)


def _over(name: str, expression: Value | str) -> Value:
    return Value(Call(name, (condition_node(expression),)))


def _listed(variable: Variable | Value | str) -> Expr:
    return Field(None, variable._variable) if isinstance(variable, Variable) else condition_node(variable)
