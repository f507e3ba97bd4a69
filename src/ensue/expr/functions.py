"""The functions and aggregates of expressions: their parameters, result types and descriptions.

`FUNCTIONS` and `AGGREGATES` list all of them; `evaluation` and `reductions` implement them. A function returns null if
an argument is null, except for the functions that choose among their arguments (`alike`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ensue.expr import notations
from ensue.expr.kinds import (
    BOOLEAN,
    FLOAT,
    INTEGER,
    MOMENT,
    NULL_TYPE,
    NUMBERS,
    ORDERED,
    PLAIN,
    TEXT,
    Kind,
    Type,
    arithmetic_type,
    common_type,
    list_of,
)

_NUMBER, _TEXT, _INTEGER = NUMBERS, frozenset({Kind.TEXT}), frozenset({Kind.INTEGER})
_TIMESTAMP, _DURATION = frozenset({Kind.TIMESTAMP}), frozenset({Kind.DURATION})
_NESTED = frozenset({Kind.OTHER})
TRUNCATION_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function.

    A `constant` parameter takes only a literal, one of `choices` if there are any. The last parameter may be
    `repeated`.
    """

    name: str
    kinds: frozenset[Kind]
    optional: bool = False
    repeated: bool = False
    constant: bool = False
    choices: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The name of the expected type: "number", "text", ..."""
        if self.kinds == NUMBERS:
            return Kind.FLOAT.word
        if self.kinds == _NESTED:
            return "list or map"
        if len(self.kinds) == 1:
            return next(iter(self.kinds)).word
        return "value" if Kind.BOOLEAN in self.kinds else "number, text, timestamp or duration"


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `result` returns its type for the types of the arguments.

    With `alike`, all arguments have one kind and are converted to their common type, and the implementation sees nulls.
    The `example` is a condition that is true. `flaw` finds a mistake in the constants.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Callable[[tuple[Type, ...]], Type]
    description: str
    example: str
    alike: bool = False
    flaw: Callable[[notations.Constants], notations.Flaw | None] | None = None

    @property
    def signature(self) -> str:
        """The signature as text: `round(x[, digits])`."""
        text = ""
        for parameter in self.parameters:
            name = (", " if text else "") + parameter.name + (", ..." if parameter.repeated else "")
            text += f"[{name}]" if parameter.optional else name
        return f"{self.name}({text})"

    @property
    def fewest(self) -> int:
        """The minimum number of arguments."""
        return sum(not parameter.optional for parameter in self.parameters)

    @property
    def most(self) -> int | None:
        """The maximum number of arguments; None: no maximum."""
        return None if self.parameters[-1].repeated else len(self.parameters)

    def parameter(self, position: int) -> Parameter:
        """The parameter for the argument at this position."""
        return self.parameters[min(position, len(self.parameters) - 1)]


# --- result types


def _always(data_type: Type) -> Callable[[tuple[Type, ...]], Type]:
    return lambda types: data_type


def _first(types: tuple[Type, ...]) -> Type:
    return types[0]


def _second(types: tuple[Type, ...]) -> Type:
    return types[1]


def _shared(types: tuple[Type, ...]) -> Type:
    """The common type of arguments of one kind."""
    common = common_type(types)
    if common is None:
        kinds = ", ".join(found.word for found in types)
        raise TypeError(f"arguments of different kinds: {kinds}; check the expression first")
    return common


_BOOLEAN_RESULT = _always(BOOLEAN)
_INTEGER_RESULT = _always(INTEGER)
_FLOAT_RESULT = _always(FLOAT)


# --- the table

_X = Parameter("x", _NUMBER)
_STRING = Parameter("text", _TEXT)
_MOMENT = Parameter("time", _TIMESTAMP)
_CHOICES = Parameter("x", PLAIN), Parameter("y", PLAIN, optional=True, repeated=True)
_RANKED = Parameter("x", ORDERED), Parameter("y", ORDERED, optional=True, repeated=True)


def _pattern_parameter(name: str) -> Parameter:
    return Parameter(name, _TEXT, constant=True)


_TABLE = (
    Function("abs", (_X,), _first, "the absolute value", "abs(-3) = 3"),
    Function("sign", (_X,), _first, "the sign: -1, 0 or 1", "sign(-2.5) = -1.0"),
    Function(
        "round",
        (_X, Parameter("digits", _INTEGER, optional=True, constant=True)),
        _first,
        "x rounded to a number of decimal places (halves away from zero); negative digits round to tens, hundreds, ...",
        "round(2.675, 2) = 2.68",
    ),
    Function("floor", (_X,), _first, "x rounded down to a whole number", "floor(-1.5) = -2"),
    Function("ceil", (_X,), _first, "x rounded up to a whole number", "ceil(1.2) = 2"),
    Function("sqrt", (_X,), _FLOAT_RESULT, "the square root; null for negative numbers", "sqrt(9) = 3"),
    Function(
        "power",
        (_X, Parameter("exponent", _NUMBER)),
        _FLOAT_RESULT,
        "x to the power of the exponent, as a float; null if the result is not a real number",
        "power(2, 10) = 1024",
    ),
    Function("ln", (_X,), _FLOAT_RESULT, "the natural logarithm; null for 0 and negative numbers", "ln(1) = 0"),
    Function("exp", (_X,), _FLOAT_RESULT, "e to the power of x", "exp(0) = 1"),
    *(
        Function(name, (_X,), _FLOAT_RESULT, description, example)
        for name, description, example in (
            ("sin", "the sine of an angle in radians", "sin(0) = 0"),
            ("cos", "the cosine of an angle in radians", "cos(0) = 1"),
            ("tan", "the tangent of an angle in radians", "tan(0) = 0"),
            ("asin", "the angle with this sine, in radians; null if there is none", "asin(2) IS NULL"),
            ("acos", "the angle with this cosine, in radians; null if there is none", "acos(1) = 0"),
            ("atan", "the angle with this tangent, in radians", "degrees(atan(1)) = 45"),
            ("radians", "degrees as radians", "round(radians(180), 4) = 3.1416"),
            ("degrees", "radians as degrees", "degrees(acos(-1)) = 180"),
        )
    ),
    Function(
        "atan2",
        (Parameter("y", _NUMBER), _X),
        _FLOAT_RESULT,
        "the angle of the point (x, y) in radians, from -pi to pi",
        "degrees(atan2(1, -1)) = 135",
    ),
    Function("lower", (_STRING,), _first, "the text in lower case", "lower('ÄB') = 'äb'"),
    Function("upper", (_STRING,), _first, "the text in upper case", "upper('äb') = 'ÄB'"),
    Function(
        "trim",
        (_STRING,),
        _first,
        "the text without spaces at its start and end",
        "trim('  a b ') = 'a b'",
    ),
    Function("length", (_STRING,), _INTEGER_RESULT, "the number of characters", "length('äb') = 2"),
    Function(
        "substr",
        (
            _STRING,
            Parameter("start", _INTEGER, constant=True),
            Parameter("count", _INTEGER, optional=True, constant=True),
        ),
        _first,
        "at most count characters from start on (the first is 1; negative numbers count from the end)",
        "substr('event', -3, 2) = 'en'",
    ),
    Function(
        "concat",
        (_STRING, Parameter("more", _TEXT, optional=True, repeated=True)),
        _shared,
        "the texts joined together; null if one of them is null",
        "concat('a', 'b', 'c') = 'abc'",
    ),
    Function(
        "replace",
        (_STRING, _pattern_parameter("search"), _pattern_parameter("replacement")),
        _first,
        "the text with every occurrence of search replaced",
        "replace('a-b-c', '-', '+') = 'a+b+c'",
    ),
    Function(
        "startswith",
        (_STRING, _pattern_parameter("prefix")),
        _BOOLEAN_RESULT,
        "whether the text starts with the prefix",
        "startswith('ensue', 'en')",
    ),
    Function(
        "endswith",
        (_STRING, _pattern_parameter("suffix")),
        _BOOLEAN_RESULT,
        "whether the text ends with the suffix",
        "endswith('ensue', 'sue')",
    ),
    Function(
        "contains",
        (_STRING, _pattern_parameter("search")),
        _BOOLEAN_RESULT,
        "whether the text contains search; of a list, whether it contains the value: `contains(a.tags, b.tag)`",
        "contains('ensue', 'ns')",
    ),
    Function(
        "size",
        (Parameter("x", _NESTED),),
        _INTEGER_RESULT,
        "the number of elements of a list or of keys of a map, nulls included",
        "size(split('a b', ' ')) = 2",
    ),
    Function(
        "split",
        (_STRING, _pattern_parameter("pattern"), Parameter("limit", _INTEGER, optional=True, constant=True)),
        lambda types: list_of(TEXT),
        "the list of the parts between matches of the regular expression; at most limit parts if limit is positive",
        "split('a,b,c', ',')[1] = 'b'",
        flaw=notations.split_flaw,
    ),
    Function(
        "regexp_like",
        (_STRING, _pattern_parameter("pattern")),
        _BOOLEAN_RESULT,
        "whether some part of the text matches the regular expression",
        "regexp_like('port 22', '[0-9]+$')",
        flaw=notations.regex_flaw,
    ),
    Function(
        "regexp_extract",
        (_STRING, _pattern_parameter("pattern"), Parameter("group", _INTEGER, optional=True, constant=True)),
        _first,
        "what the group (1 if omitted, 0 is the whole) of the first match is; an empty text if nothing matches",
        "regexp_extract('from ::1 port 22', 'port (\\d+)', 1) = '22'",
        flaw=notations.extract_flaw,
    ),
    Function(
        "json_value",
        (_STRING, _pattern_parameter("path")),
        lambda types: TEXT,
        "the text, number or boolean at the path of a JSON text, as text; null if there is none",
        """json_value('{"user": {"id": 7}}', '$.user.id') = '7'""",
        flaw=notations.json_flaw,
    ),
    Function(
        "to_timestamp",
        (_STRING, _pattern_parameter("format")),
        lambda types: MOMENT,
        "the timestamp that the text is in this format; an error if it is not",
        "to_timestamp('10/Dec/2024 06:55', 'dd/MMM/yyyy HH:mm') = TIMESTAMP '2024-12-10 06:55:00'",
        flaw=notations.format_flaw,
    ),
    Function(
        "try_to_timestamp",
        (_STRING, _pattern_parameter("format")),
        lambda types: MOMENT,
        "as to_timestamp, but null if the text does not have the format",
        "try_to_timestamp('yesterday', 'yyyy-MM-dd') IS NULL",
        flaw=notations.format_flaw,
    ),
    Function(
        "coalesce",
        _CHOICES,
        _shared,
        "the first argument that is not null",
        "coalesce(NULL, 2, 3) = 2",
        alike=True,
    ),
    Function(
        "nullif",
        (Parameter("x", PLAIN), Parameter("y", PLAIN)),
        _shared,
        "null if both are equal, x otherwise",
        "nullif('?', '?') IS NULL",
        alike=True,
    ),
    Function(
        "least",
        _RANKED,
        _shared,
        "the smallest argument; nulls are ignored",
        "least(3, NULL, 2) = 2",
        alike=True,
    ),
    Function(
        "greatest",
        _RANKED,
        _shared,
        "the greatest argument; nulls are ignored",
        "greatest(3, NULL, 2) = 3",
        alike=True,
    ),
    *(
        Function(name, (_MOMENT,), _INTEGER_RESULT, description, example)
        for name, description, example in (
            ("year", "the year", "year(TIMESTAMP '2024-02-29') = 2024"),
            ("quarter", "the quarter of the year, 1 to 4", "quarter(TIMESTAMP '2024-02-29') = 1"),
            ("month", "the month, 1 to 12", "month(TIMESTAMP '2024-02-29') = 2"),
            ("day", "the day of the month, 1 to 31", "day(TIMESTAMP '2024-02-29') = 29"),
            (
                "dayofweek",
                "the day of the week, 1 (Sunday) to 7 (Saturday)",
                "dayofweek(TIMESTAMP '2024-02-29') = 5",
            ),
            ("weekday", "the day of the week, 0 (Monday) to 6 (Sunday)", "weekday(TIMESTAMP '2024-02-29') = 3"),
            (
                "dayofyear",
                "the day of the year, 1 to 366",
                "dayofyear(TIMESTAMP '2024-02-29') = 60",
            ),
            ("hour", "the hour, 0 to 23", "hour(TIMESTAMP '2024-02-29 12:34:56') = 12"),
            ("minute", "the minute, 0 to 59", "minute(TIMESTAMP '2024-02-29 12:34:56') = 34"),
            ("second", "the whole second, 0 to 59", "second(TIMESTAMP '2024-02-29 12:34:56') = 56"),
        )
    ),
    Function(
        "date_trunc",
        (Parameter("unit", _TEXT, constant=True, choices=TRUNCATION_UNITS), _MOMENT),
        _second,
        "the start of the year, quarter, month, week (Monday), day, hour, minute or second that contains the time",
        "date_trunc('hour', TIMESTAMP '2024-02-29 12:34:56') = TIMESTAMP '2024-02-29 12:00:00'",
    ),
    Function(
        "seconds",
        (Parameter("duration", _DURATION),),
        _FLOAT_RESULT,
        "the length of a duration in seconds",
        "seconds(1.5 minutes) = 90",
    ),
    Function(
        "epoch",
        (_MOMENT,),
        _FLOAT_RESULT,
        "the seconds since 1970-01-01 00:00:00 UTC",
        "epoch(TIMESTAMP '1970-01-01 00:01:00') = 60",
    ),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({function.name: function for function in _TABLE})


# --- aggregates


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate. `kinds` are the kinds that elements may have; `result` returns the result type for an element type.

    The `example` is true for a list `t` with the `temp` values 20, 22 and 27.
    """

    name: str
    kinds: frozenset[Kind]
    result: Callable[[Type], Type]
    description: str
    example: str

    @property
    def signature(self) -> str:
        """The signature as text: `sum(x)`."""
        return "count(DISTINCT x)" if self.name == "count_distinct" else f"{self.name}(x)"

    def result_type(self, lists: Type) -> Type:
        """The type of the result for lists of this type, or for null."""
        return self.result(NULL_TYPE if lists.element is None else lists.element.readable)


def _of_one(element: Type) -> Type:
    return element


def _average_type(element: Type) -> Type:
    quotient = arithmetic_type("/", element, INTEGER)
    return FLOAT if quotient is None or element.kind is Kind.NULL else quotient


_SUMMED = NUMBERS | {Kind.DURATION}
_ANY = frozenset(Kind)

_AGGREGATES = (
    Aggregate("count", _ANY, lambda of: INTEGER, "the number of values", "count(t) = 3"),
    Aggregate("sum", _SUMMED, _of_one, "the sum", "sum(t.temp) = 69"),
    Aggregate("avg", _SUMMED, _average_type, "the mean", "avg(t.temp) = 23"),
    Aggregate("min", PLAIN, _of_one, "the smallest value", "min(t.temp) = 20"),
    Aggregate("max", PLAIN, _of_one, "the greatest value", "max(t.temp) = 27"),
    Aggregate(
        "stddev",
        NUMBERS,
        lambda of: FLOAT,
        "the sample standard deviation; null for fewer than two values",
        "round(stddev(t.temp), 2) = 3.61",
    ),
    Aggregate("first", _ANY, _of_one, "the value of the first element", "first(t.temp) = 20"),
    Aggregate("last", _ANY, _of_one, "the value of the last element", "last(t.temp) = 27"),
    Aggregate(
        "flatten",
        _ANY,
        lambda of: list_of(of.element or of),
        "all values, in order; lists among them are flattened by one level",
        "flatten(t.temp) IS NOT NULL",
    ),
    Aggregate("list", _ANY, list_of, "all values, in order", "list(t.temp) IS NOT NULL"),
    Aggregate(
        "count_distinct",
        PLAIN,
        lambda of: INTEGER,
        "the number of different values, nulls excluded",
        "count(DISTINCT t.temp) = 3",
    ),
    Aggregate(
        "collect_set",
        PLAIN,
        list_of,
        "the different values, each once, in the order in which they first occur; nulls excluded",
        "size(collect_set(t.temp)) = 3",
    ),
)

AGGREGATES: Mapping[str, Aggregate] = MappingProxyType({aggregate.name: aggregate for aggregate in _AGGREGATES})
