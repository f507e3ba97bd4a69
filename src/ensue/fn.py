"""Values for queries in Python: fields, literals, calls, CASE, and functions over the lists that repetitions bind.

`sum`, `min`, `max` and `list` hide Python's own functions of these names in this module, and wherever they are
imported by name: `ensue.fn.max("t.temp")` is the usual form.

>>> from ensue import fn
>>> fn.max("t.temp") - fn.min("t.temp") > 10
Value("max(t.temp) - min(t.temp) > 10")
"""

from __future__ import annotations

from ensue.nodes.expressions import Call, Expr, Field
from ensue.python.values import Value, Variable, call, case, condition_node, field, same, value

__all__ = [
    "Value",
    "avg",
    "call",
    "case",
    "collect_set",
    "count",
    "count_distinct",
    "field",
    "first",
    "flatten",
    "last",
    "lineage",
    "list",
    "max",
    "min",
    "prev",
    "probability",
    "same",
    "span_end",
    "span_start",
    "stddev",
    "sum",
    "value",
]


def __dir__() -> tuple[str, ...]:
    return (*__all__,)


def count(variable: Variable | Value | str) -> Value:
    """The number of elements of a list: `count(t)`.

    >>> from ensue.python.values import var
    >>> count(var("t")) >= 3, count("t")
    (Value("count(t) >= 3"), Value("count(t)"))
    """
    return Value(Call("count", (_listed(variable),)))


def probability() -> Value:
    """The probability of the match, for `returning`: `PROBABILITY()`.

    >>> probability()
    Value("probability()")
    """
    return Value(Call("probability", ()))


def lineage(variable: Variable | str | None = None) -> Value:
    """The ids of the input events of a variable, or of the whole match: `lineage(c)`.

    >>> lineage("c"), lineage()
    (Value("lineage(c)"), Value("lineage()"))
    """
    return Value(Call("lineage", () if variable is None else (_listed(variable),)))


def span_start() -> Value:
    """The earliest start of a match and of the events that it collects: `span_start()`.

    >>> span_start()
    Value("span_start()")
    """
    return Value(Call("span_start", ()))


def span_end() -> Value:
    """The latest end of a match and of the events that it collects: `span_end()`.

    >>> span_end()
    Value("span_end()")
    """
    return Value(Call("span_end", ()))


def sum(expression: Value | str) -> Value:
    """The sum over a list: `sum(t.temp)`.

    >>> sum("t.quantity * t.price")
    Value("sum(t.quantity * t.price)")
    """
    return _over("sum", expression)


def avg(expression: Value | str) -> Value:
    """The mean over a list: `avg(t.temp)`.

    >>> avg("t.temp") > 70
    Value("avg(t.temp) > 70")
    """
    return _over("avg", expression)


def min(expression: Value | str) -> Value:
    """The minimum over a list: `min(t.temp)`.

    >>> min("t.temp")
    Value("min(t.temp)")
    """
    return _over("min", expression)


def max(expression: Value | str) -> Value:
    """The maximum over a list: `max(t.temp)`.

    >>> max("t.temp")
    Value("max(t.temp)")
    """
    return _over("max", expression)


def stddev(expression: Value | str) -> Value:
    """The sample standard deviation over a list: `stddev(t.temp)`.

    >>> stddev("t.temp")
    Value("stddev(t.temp)")
    """
    return _over("stddev", expression)


def first(expression: Value | str) -> Value:
    """The value of the first element of a list: `first(t.temp)`.

    >>> first("t.temp")
    Value("first(t.temp)")
    """
    return _over("first", expression)


def last(expression: Value | str) -> Value:
    """The value of the last element of a list: `last(t.temp)`.

    >>> last("t.temp")
    Value("last(t.temp)")
    """
    return _over("last", expression)


def flatten(expression: Value | str) -> Value:
    """The values of all elements as one flat list; elements that are lists are unnested: `flatten(t.tags)`.

    >>> flatten("t.tags")
    Value("flatten(t.tags)")
    """
    return _over("flatten", expression)


def list(expression: Value | str) -> Value:
    """The values of all elements of a list: `list(t.temp)`.

    >>> list("t.temp")
    Value("list(t.temp)")
    """
    return _over("list", expression)


def count_distinct(expression: Value | str) -> Value:
    """The number of different values of a list: `count(DISTINCT t.user)`.

    >>> count_distinct("t.user") >= 5
    Value("count(DISTINCT t.user) >= 5")
    """
    return _over("count_distinct", expression)


def collect_set(expression: Value | str) -> Value:
    """The different values of a list, each once: `collect_set(t.user)`.

    >>> collect_set("t.user")
    Value("collect_set(t.user)")
    """
    return _over("collect_set", expression)


def prev(expression: Value | str) -> Value:
    """The value of the previous element of a list: `PREV(t.temp)`.

    >>> from ensue.python.values import var
    >>> var("t").temp > prev(var("t").temp)
    Value("t.temp > prev(t.temp)")
    """
    return _over("prev", expression)


def _over(name: str, expression: Value | str) -> Value:
    return Value(Call(name, (condition_node(expression),)))


def _listed(variable: Variable | Value | str) -> Expr:
    return Field(None, variable._variable) if isinstance(variable, Variable) else condition_node(variable)
