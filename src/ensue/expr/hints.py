"""How the checker's messages name types and numbers, and what its hints advise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ensue.errors import did_you_mean
from ensue.expr.aggregates import AGGREGATES, Aggregate
from ensue.expr.functions import FUNCTIONS
from ensue.expr.kinds import NUMBERS, ORDERED, PLAIN, Kind, Type, constant
from ensue.nodes.expressions import Binary, Expr, Literal

# What other systems call our functions.
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "array_agg": "list",
        "average": "avg",
        "ceiling": "ceil",
        "char_length": "length",
        "character_length": "length",
        "collect_list": "list",
        "dayofweek": "day_of_week",
        "dayofyear": "day_of_year",
        "ifnull": "coalesce",
        "len": "length",
        "log": "ln",
        "mean": "avg",
        "nvl": "coalesce",
        "pow": "power",
        "std": "stddev",
        "stddev_samp": "stddev",
        "substring": "substr",
        "total_seconds": "seconds",
        "unix_timestamp": "epoch",
    }
)
# What chooses among the values of one match, by the aggregate that chooses among those of a list.
_OF_ONE_MATCH: Mapping[str, str] = MappingProxyType({"min": "least", "max": "greatest"})
_TIMESTAMP_EXAMPLE = "TIMESTAMP '2024-01-31 12:00:00'"


# --- words


def article(word: str) -> str:
    """The article before a word for a kind, with a space: "a ", "an ", or none before "text"."""
    if word == Kind.TEXT.word:
        return ""
    return "an " if word[0] in "aeio" else "a "


def with_article(own: Type) -> str:
    """A type in the words of a message, with its article."""
    if own.kind is Kind.OTHER and own.element is None:
        return f"of type {own.name}"
    word = own.word
    return article(word) + word


def argument_count(number: int) -> str:
    """A number of arguments in words: "1 argument", "2 arguments"."""
    return "1 argument" if number == 1 else f"{number} arguments"


# --- hints


def condition_hint(found: Type) -> str:
    """How a value that stands where a condition should becomes one."""
    if found.element is not None:
        return "compare an aggregate of it with something, for example `count(...) > 0`"
    if found.kind in NUMBERS:
        return "compare it with something, for example `... != 0`"
    return "compare it with something, for example `... IS NOT NULL`"


def comparison_hint(left: Expr, right: Expr, left_kind: Kind, right_kind: Kind) -> str:
    """How two values of different kinds are made comparable."""
    kinds = {left_kind, right_kind}
    if Kind.TIMESTAMP in kinds:
        other = right if left_kind is Kind.TIMESTAMP else left
        if isinstance(other, Literal) and isinstance(other.value, str):
            return f"write a time as TIMESTAMP '{other.value}'"
        if kinds & NUMBERS:
            return f"write a time as {_TIMESTAMP_EXAMPLE}, or compare the seconds since 1970: epoch(...)"
        return f"write a time as {_TIMESTAMP_EXAMPLE}"
    if Kind.DURATION in kinds:
        number = right if left_kind is Kind.DURATION else left
        if isinstance(number, Literal) and kinds & NUMBERS:
            return f"write a duration with its unit, for example {number.value} seconds"
        return "write a duration with its unit, for example 5 seconds, or compare its length: seconds(...)"
    return literal_hint(left, right_kind) or literal_hint(right, left_kind)


def literal_hint(expr: Expr, wanted: Kind) -> str:
    """How a literal is written as the kind that is wanted, if it can be."""
    literal = constant(expr)
    if not isinstance(literal, Literal) or literal.value is None:
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
    """What a list is good for, where one value is needed."""
    return f"take an aggregate of the list: {', '.join(AGGREGATES)}"


def single_value_hint(name: str) -> str:
    """What was probably meant by an aggregate of a single value."""
    instead = _OF_ONE_MATCH.get(name)
    repeat = "repeat the variable, for example `T t{2,5}` or `COLLECT T t`"
    return f"{repeat}; among values of one match, `{instead}(x, y)` chooses" if instead else repeat


def several_values_hint(aggregate: Aggregate) -> str:
    """What was probably meant by an aggregate of several arguments."""
    instead = _OF_ONE_MATCH.get(aggregate.name)
    return f"`{instead}` chooses among its arguments" if instead else f"for example {aggregate.example}"


def arithmetic_hint(expr: Binary, left_type: Type, right_type: Type) -> str:
    """What was probably meant by an operator that is not defined for its operands."""
    if left_type.element is not None or right_type.element is not None:
        return list_hint()
    left, right = left_type.kind, right_type.kind
    kinds = {left, right}
    if expr.operator == "+" and kinds == {Kind.TEXT}:
        return "join text with `||`"
    if expr.operator == "||":
        return "`||` joins text with text" if kinds & (PLAIN - {Kind.TEXT}) else ""
    if kinds & {Kind.TIMESTAMP, Kind.DURATION} and kinds & NUMBERS and expr.operator in ("+", "-"):
        number = expr.right if right in NUMBERS else expr.left
        amount = number.value if isinstance(number, Literal) else 5
        return f"write a duration with its unit, for example {amount} seconds"
    if kinds == {Kind.TIMESTAMP} and expr.operator == "+":
        return "`-` gives the duration between two times"
    if Kind.TEXT in kinds and kinds & ORDERED:
        return literal_hint(expr.left, right) or literal_hint(expr.right, left)
    return ""


def function_hint(name: str) -> str:
    """The function that was probably meant by a name that there is no function of."""
    if name == "mod":
        return "write the remainder as x % y"
    meant = _OTHER_NAMES.get(name)
    return f"did you mean `{meant}`?" if meant else did_you_mean(name, (*FUNCTIONS, *AGGREGATES))
