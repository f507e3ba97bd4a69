"""The words and hints of the checker's messages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ensue.errors import Span, did_you_mean
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Aggregate
from ensue.expr.kinds import CASTS, NUMBERS, PLAIN, Kind, Type, constant
from ensue.nodes import expressions

# What other systems call our functions.
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "array_agg": "list",
        "array_contains": "contains",
        "array_length": "size",
        "average": "avg",
        "ceiling": "ceil",
        "cardinality": "size",
        "char_length": "length",
        "character_length": "length",
        "collect_list": "list",
        "day_of_year": "dayofyear",
        "dow": "dayofweek",
        "ends_with": "endswith",
        "get_json_object": "json_value",
        "ifnull": "coalesce",
        "json_extract": "json_value",
        "len": "length",
        "log": "ln",
        "mean": "avg",
        "nvl": "coalesce",
        "pow": "power",
        "regexp": "regexp_like",
        "regexp_matches": "regexp_like",
        "rlike": "regexp_like",
        "starts_with": "startswith",
        "std": "stddev",
        "stddev_samp": "stddev",
        "str_to_date": "to_timestamp",
        "string_split": "split",
        "strptime": "to_timestamp",
        "substring": "substr",
        "to_date": "to_timestamp",
        "total_seconds": "seconds",
        "unix_timestamp": "epoch",
    }
)
# What chooses among the values of one match, by the aggregate that chooses among those of a list.
_OF_ONE_MATCH: Mapping[str, str] = MappingProxyType({"min": "least", "max": "greatest"})
_TIMESTAMP_EXAMPLE = "TIMESTAMP '2024-01-31 12:00:00'"


# --- words


def article(word: str) -> str:
    """The article for the name of a kind, with a space: "a ", "an ", or none before "text"."""
    if word == Kind.TEXT.word:
        return ""
    return "an " if word[0] in "aeio" else "a "


def with_article(own: Type) -> str:
    """The name of a type with its article, for messages."""
    if own.kind is Kind.OTHER and own.element is None:
        return f"a value of type {own.name}"
    word = own.word
    return article(word) + word


def argument_count(number: int) -> str:
    """A number of arguments as text: "1 argument", "2 arguments"."""
    return "1 argument" if number == 1 else f"{number} arguments"


# --- hints


def condition_hint(found: Type) -> str:
    """A hint on how to turn a value into a condition."""
    if found.element is not None:
        return "compare an aggregate of the list with a value, for example `count(...) > 0`"
    if found.kind in NUMBERS:
        return "compare it with a value, for example `... != 0`"
    return "compare it with a value, for example `... IS NOT NULL`"


def comparison_hint(
    left: expressions.Expr,
    right: expressions.Expr,
    left_kind: Kind,
    right_kind: Kind,
    fixed: expressions.Expr | None = None,
) -> str:
    """A hint on how to make two values of different types comparable. The `fixed` one cannot be converted."""
    kinds = {left_kind, right_kind}
    if Kind.TIMESTAMP in kinds:
        other = right if left_kind is Kind.TIMESTAMP else left
        if isinstance(other, expressions.Literal) and isinstance(other.value, str):
            return f"write a time as TIMESTAMP '{other.value}'"
        if kinds & NUMBERS:
            return f"write a time as {_TIMESTAMP_EXAMPLE}, or compare the seconds since 1970: epoch(...)"
        if Kind.TEXT in kinds and other is not fixed:
            return f"convert the text: {_cast(other, 'TIMESTAMP')}"
        return f"write a time as {_TIMESTAMP_EXAMPLE}"
    if Kind.DURATION in kinds:
        number = right if left_kind is Kind.DURATION else left
        if isinstance(number, expressions.Literal) and kinds & NUMBERS:
            return f"write a duration with its unit, for example {number.value}s"
        return "write a duration with its unit, for example 5s, or compare its length: seconds(...)"
    hint = literal_hint(left, right_kind) or literal_hint(right, left_kind)
    if Kind.TEXT in kinds and kinds & NUMBERS:
        text, number = (left, right) if left_kind is Kind.TEXT else (right, left)
        if (constant(text) is not None or text is fixed) and number is not fixed:
            convert = f"convert the number: {_cast(number, 'STRING')}" if constant(number) is None else ""
        else:
            convert = f"convert the text: {_cast(text, _target(kinds - {Kind.TEXT}))}"
        return ", or ".join(filter(None, (hint, convert)))
    return hint


def conversion_hint(expr: expressions.Expr, found: Kind, wanted: Kind) -> str:
    """A hint on how to convert a value to the wanted kind; empty if CAST cannot, or if it is a literal."""
    target = _TARGETS.get(wanted)
    if target is None or found not in CASTS[target][1] or constant(expr) is not None:
        return ""
    return f"convert it: {_cast(expr, target)}"


_TARGETS: Mapping[Kind, str] = MappingProxyType(
    {Kind.TEXT: "STRING", Kind.INTEGER: "BIGINT", Kind.FLOAT: "DOUBLE", Kind.TIMESTAMP: "TIMESTAMP"}
)


def _target(kinds: set[Kind]) -> str:
    """The type of CAST for a text that is used with numbers of these kinds: integers stay exact."""
    return "BIGINT" if kinds == {Kind.INTEGER} else "DOUBLE"


def _cast(expr: expressions.Expr, target: str) -> str:
    return f"CAST({_written(expr)} AS {target})"


def _written(expr: expressions.Expr) -> str:
    match expr:
        case expressions.Elements(element):
            return _written(element)
        case expressions.Field(None, name):
            return _name(name)
        case expressions.Field(str(variable), name, span=span):
            text = f"{_name(variable)}.{_name(name)}"
            # Another length: a rule has a name for this field.
            return text if type(span) is not Span or span.end - span.start == len(text) else "..."
        case expressions.Member(operand, name):
            return f"{_written(operand)}.{_name(name)}"
        case expressions.Entry(operand, expressions.Literal(key)):
            return f"{_written(operand)}[{key!r}]"
    return "..."


def _name(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def literal_hint(expr: expressions.Expr, wanted: Kind) -> str:
    """A hint on how to write a literal as the wanted kind; empty if that is not possible."""
    literal = constant(expr)
    if not isinstance(literal, expressions.Literal) or literal.value is None:
        return ""
    if wanted is Kind.TEXT and not isinstance(literal.value, str):
        return f"write '{str(literal.value).upper()}' in quotes to make it text"
    if wanted in NUMBERS and isinstance(literal.value, str) and _is_number(literal.value):
        return f"write {literal.value.strip()} without quotes to make it a number"
    if wanted is Kind.BOOLEAN and str(literal.value).lower() in ("true", "false"):
        return f"write {str(literal.value).upper()} without quotes"
    if wanted is Kind.BOOLEAN and literal.value in (0, 1):
        return "write TRUE or FALSE"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def list_hint() -> str:
    """A hint for a list that is used where one value is needed."""
    return f"use an aggregate of the list: {', '.join(aggregate_names())}"


def aggregate_names() -> list[str]:
    """The aggregates as they are written; DISTINCT belongs to `count`."""
    return [name for name in AGGREGATES if name != "count_distinct"]


COLLECT_HINT = "collect the events of an interval: `while w: collect c: stream(...)`, then for example `count(c)`"
"""The hint in a rule for an aggregate of a single value."""


def single_value_hint(name: str) -> str:
    """A hint for an aggregate of a single value."""
    instead = _OF_ONE_MATCH.get(name)
    repeat = "repeat the variable, for example `T t{2,5}` or `COLLECT T t`"
    return f"{repeat}; to choose among values of one match, use `{instead}(x, y)`" if instead else repeat


def several_values_hint(aggregate: Aggregate) -> str:
    """A hint for an aggregate with several arguments."""
    instead = _OF_ONE_MATCH.get(aggregate.name)
    return f"`{instead}` chooses among its arguments" if instead else f"for example {aggregate.example}"


def arithmetic_hint(expr: expressions.Binary, left_type: Type, right_type: Type) -> str:
    """A hint for an operator that is not defined for its operands."""
    if left_type.element is not None or right_type.element is not None:
        return list_hint()
    left, right = left_type.kind, right_type.kind
    kinds = {left, right}
    if expr.operator == "+" and kinds == {Kind.TEXT}:
        return "concatenate text with `||`"
    if expr.operator == "||":
        other, kind = (expr.left, left) if left is not Kind.TEXT else (expr.right, right)
        convert = conversion_hint(other, kind, Kind.TEXT)
        return f"`||` concatenates text with text{f'; {convert}' if convert else ''}" if kinds & PLAIN else ""
    if kinds & {Kind.TIMESTAMP, Kind.DURATION} and kinds & NUMBERS and expr.operator in ("+", "-"):
        number = expr.right if right in NUMBERS else expr.left
        amount = number.value if isinstance(number, expressions.Literal) else 5
        return f"write a duration with its unit, for example {amount}s"
    if kinds == {Kind.TIMESTAMP} and expr.operator == "+":
        return "`-` gives the duration between two times"
    if Kind.TEXT in kinds and kinds <= NUMBERS | {Kind.TEXT}:
        text = expr.left if left is Kind.TEXT else expr.right
        return literal_hint(text, Kind.FLOAT) or f"convert the text: {_cast(text, _target(kinds - {Kind.TEXT}))}"
    return ""


def function_hint(name: str) -> str:
    """A hint that suggests a function for an unknown function name."""
    if name == "mod":
        return "write the remainder as `x % y`"
    if name in ("cast", "try_cast"):
        return f"write the type after AS: {name.upper()}(x AS BIGINT)"
    if name in ("all", "any", "every", "exists", "forall"):
        return "a condition on a list, such as `x.f > 1`, is one on each element; aggregates such as `max` reduce it"
    meant = _OTHER_NAMES.get(name)
    if meant:
        return f"did you mean `{meant}`?"
    own = "define it with `ensue.function` and pass it: `ensue.parse(query, functions=[...])`"
    return did_you_mean(name, (*FUNCTIONS, *aggregate_names())) or own
