"""Checks the types of an expression before any data is read, and reports every mistake in it.

A subexpression with a mistake has the type null, which is compatible with every type, so each mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ensue.errors import Problem, Span, did_you_mean
from ensue.expr import kinds as every_kind
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Aggregate, Function, Parameter
from ensue.expr.kinds import (
    BOOLEAN,
    INTEGER,
    NULL_TYPE,
    NUMBERS,
    ORDERED,
    PLAIN,
    TIMES,
    Kind,
    Type,
    common_type,
    constant,
)
from ensue.nodes import expressions

# --- words and hints of the messages

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


def comparison_hint(left: expressions.Expr, right: expressions.Expr, left_kind: Kind, right_kind: Kind) -> str:
    """A hint on how to make two values of different types comparable."""
    kinds = {left_kind, right_kind}
    if Kind.TIMESTAMP in kinds:
        other = right if left_kind is Kind.TIMESTAMP else left
        if isinstance(other, expressions.Literal) and isinstance(other.value, str):
            return f"write a time as TIMESTAMP '{other.value}'"
        if kinds & NUMBERS:
            return f"write a time as {_TIMESTAMP_EXAMPLE}, or compare the seconds since 1970: epoch(...)"
        return f"write a time as {_TIMESTAMP_EXAMPLE}"
    if Kind.DURATION in kinds:
        number = right if left_kind is Kind.DURATION else left
        if isinstance(number, expressions.Literal) and kinds & NUMBERS:
            return f"write a duration with its unit, for example {number.value} seconds"
        return "write a duration with its unit, for example 5 seconds, or compare its length: seconds(...)"
    hint = literal_hint(left, right_kind) or literal_hint(right, left_kind)
    if Kind.TEXT in kinds and kinds & NUMBERS:
        text, number = (left, right) if left_kind is Kind.TEXT else (right, left)
        convert = _cast_hint(text, number)
        return f"{hint}, or {convert}" if hint else convert
    return hint


def _cast_hint(text: expressions.Expr, number: expressions.Expr) -> str:
    """How to convert one side of a comparison of a text with a number."""
    if constant(text) is not None:
        return f"convert the number: CAST({_written(number)} AS STRING)"
    value = constant(number)
    whole = isinstance(value, expressions.Literal) and isinstance(value.value, int)
    return f"convert the text: CAST({_written(text)} AS {'BIGINT' if whole else 'DOUBLE'})"


def _written(expr: expressions.Expr) -> str:
    if not isinstance(expr, expressions.Field):
        return "..."
    return expr.name if expr.variable is None else f"{expr.variable}.{expr.name}"


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
        return "`||` concatenates text with text" if kinds & (PLAIN - {Kind.TEXT}) else ""
    if kinds & {Kind.TIMESTAMP, Kind.DURATION} and kinds & NUMBERS and expr.operator in ("+", "-"):
        number = expr.right if right in NUMBERS else expr.left
        amount = number.value if isinstance(number, expressions.Literal) else 5
        return f"write a duration with its unit, for example {amount} seconds"
    if kinds == {Kind.TIMESTAMP} and expr.operator == "+":
        return "`-` gives the duration between two times"
    if Kind.TEXT in kinds and kinds & ORDERED:
        return literal_hint(expr.left, right) or literal_hint(expr.right, left)
    return ""


def function_hint(name: str) -> str:
    """A hint that suggests a function for an unknown function name."""
    if name == "mod":
        return "write the remainder as `x % y`"
    if name in ("cast", "try_cast"):
        return f"write the type after AS: {name.upper()}(x AS BIGINT)"
    meant = _OTHER_NAMES.get(name)
    return f"did you mean `{meant}`?" if meant else did_you_mean(name, (*FUNCTIONS, *aggregate_names()))


# --- checker

FieldType = Callable[[expressions.Field], Type | None]


def check_expression(expr: expressions.Expr, field_type: FieldType, problems: list[Problem]) -> Type:
    """Returns the type of the expression and appends a problem for each mistake in it.

    `field_type` returns the readable type of a field, or None if it has reported a problem itself.

    >>> from ensue.expr.kinds import INTEGER
    >>> problems = []
    >>> x = expressions.Field("a", "x")
    >>> number, text = expressions.Literal(1), expressions.Literal("1")
    >>> check_expression(expressions.Binary("+", x, number), lambda field: INTEGER, problems).word
    'integer'
    >>> check_expression(expressions.Binary("+", x, text), lambda field: INTEGER, problems).word
    'null'
    >>> problems[0].message
    '`+` is not defined for integer and text'
    """
    return _Checker(field_type, problems).type_of(expr)


def check_condition(expr: expressions.Expr, field_type: FieldType, problems: list[Problem]) -> None:
    """Appends a problem for each mistake in an expression that must be a condition."""
    _Checker(field_type, problems).condition(expr)


def check_without_data(
    expr: expressions.Expr, field_type: FieldType, problems: list[Problem], *, condition: bool
) -> Type:
    """The type of an expression; appends a problem for each mistake that does not depend on the data.

    What depends on the data has the type null.

    >>> problems = []
    >>> call = expressions.Call("avg", (expressions.Field("t", "length"),))
    >>> condition = expressions.Binary(">", call, expressions.Duration(5))
    >>> check_without_data(condition, lambda field: NULL_TYPE, problems, condition=True).name
    'bool'
    >>> length = expressions.Call("len", (expressions.Field("t", "name"),))
    >>> check_without_data(length, lambda field: NULL_TYPE, problems, condition=False).name
    'null'
    >>> [problem.code for problem in problems]
    ['unknown-function']
    """
    checker = _CheckerWithoutData(field_type, problems)
    if not condition:
        return checker.type_of(expr)
    checker.condition(expr)
    return BOOLEAN


@dataclass(frozen=True, slots=True)
class _Checker:
    field_type: FieldType
    problems: list[Problem]

    def report(self, code: str, message: str, span: Span | None, label: str = "", hint: str = "") -> Type:
        self.problems.append(Problem(code, message, span, label, hint))
        return NULL_TYPE

    def type_of(self, expr: expressions.Expr) -> Type:
        literal = constant(expr)
        if literal is not None:
            return self.literal(literal)
        match expr:
            case expressions.Field():
                return self.field_type(expr) or NULL_TYPE
            case expressions.Member(operand):
                return self.member(expr, self.type_of(operand))
            case expressions.Entry(operand):
                return self.entry(expr, self.type_of(operand))
            case expressions.Cast(operand):
                return self.cast(expr, self.type_of(operand))
            case expressions.Unary("not", operand):
                self.operand_condition("NOT", operand)
                return BOOLEAN
            case expressions.Unary(_, operand):
                return self.negation(expr, self.type_of(operand))
            case expressions.Binary(operator) if operator in expressions.CONNECTIVES:
                self.operand_condition(operator.upper(), expr.left)
                self.operand_condition(operator.upper(), expr.right)
                return BOOLEAN
            case expressions.Binary(operator, left, right) if operator in expressions.COMPARISONS:
                return self.comparison(operator, left, right, self.type_of(left), self.type_of(right), expr.span)
            case expressions.Binary(operator) if operator in expressions.ARITHMETIC:
                return self.arithmetic(expr, self.type_of(expr.left), self.type_of(expr.right))
            case expressions.InList(operand, items):
                kind = self.type_of(operand)
                for item in items:
                    self.comparison("=", operand, item, kind, self.type_of(item), item.span or expr.span)
                return BOOLEAN
            case expressions.InTable(operand):
                self.of_table(expr, self.type_of(operand))
                return BOOLEAN
            case expressions.Between(operand, low, high):
                kind = self.type_of(operand)
                self.comparison(">=", operand, low, kind, self.type_of(low), low.span or expr.span)
                self.comparison("<=", operand, high, kind, self.type_of(high), high.span or expr.span)
                return BOOLEAN
            case expressions.Like(operand, pattern):
                self.like(expr, self.type_of(operand), pattern)
                return BOOLEAN
            case expressions.IsNull(operand):
                self.type_of(operand)
                return BOOLEAN
            case expressions.Case():
                return self.case(expr)
            case expressions.Elements(element):
                return every_kind.list_of(self.type_of(element))
            case expressions.Gather():
                return every_kind.list_of(self.gathered(expr))
            case expressions.Call("prev"):
                return self.misplaced_prev(expr)
            case expressions.Call(name) if name in AGGREGATES:
                return self.aggregate(AGGREGATES[name], expr)
            case expressions.Call():
                return self.call(expr)
            case expressions.Same():
                return self.report(
                    "misplaced-same",
                    "SAME is only allowed as a separate condition in WHERE",
                    expr.span,
                    hint="combine it with other conditions by AND, outside NOT, OR and the brackets of an event",
                )
        raise TypeError(f"{type(expr).__name__} is not an expression")

    def literal(self, literal: expressions.Literal | expressions.Duration | expressions.Timestamp) -> Type:
        found = every_kind.literal_type(literal)
        if found is not None:
            return found
        if isinstance(literal, expressions.Literal):
            message, hint = f"{literal.value} does not fit in a 64-bit integer", f"write {literal.value}.0 for a float"
        else:
            word = "duration" if isinstance(literal, expressions.Duration) else "timestamp"
            message, hint = f"the {word} does not fit in 64 bits", "remove the fractional seconds"
        return self.report("number-too-large", message, literal.span, hint=hint)

    # --- conditions

    def condition(self, expr: expressions.Expr) -> None:
        found = self.type_of(expr)
        if found.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.report(
                "not-a-condition",
                f"expected a condition, found {with_article(found)}",
                expr.span,
                found.word,
                condition_hint(found),
            )

    def operand_condition(self, operator: str, operand: expressions.Expr) -> None:
        found = self.type_of(operand)
        if found.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.report(
                "type-clash",
                f"{operator} expects a condition, found {with_article(found)}",
                operand.span,
                found.word,
                condition_hint(found),
            )

    def comparison(
        self,
        operator: str,
        left: expressions.Expr,
        right: expressions.Expr,
        left_type: Type,
        right_type: Type,
        span: Span | None,
    ) -> Type:
        kinds = (left_type.kind, right_type.kind)
        label = f"{left_type.word} {operator} {right_type.word}"
        if left_type.element is not None or right_type.element is not None:
            self.report("type-clash", "lists cannot be compared", span, label, list_hint())
        elif Kind.OTHER in kinds:
            other = (left_type if kinds[0] is Kind.OTHER else right_type).word
            self.report(
                "type-clash",
                f"values of type {other} cannot be compared",
                span,
                label,
                "return the field or test it with IS NULL; to compare it, extract a plain column before the run",
            )
        elif Kind.NULL not in kinds and common_type((left_type, right_type)) is None:
            self.report(
                "type-clash",
                f"{left_type.word} and {right_type.word} cannot be compared",
                span,
                label,
                comparison_hint(left, right, *kinds),
            )
        elif Kind.BOOLEAN in kinds and operator not in ("=", "!="):
            self.report("type-clash", "booleans have no order", span, label, "compare them with = or !=")
        return BOOLEAN

    def of_table(self, expr: expressions.InTable, found: Type) -> None:
        """The type of a value and of the column of a TABLE, which is known once the table is."""
        if found.kind in TIMES or (expr.values is not None and expr.values.type.kind in TIMES):
            hint = "compare numbers or texts, for example epoch(...)"
            self.report("type-clash", "IN a table does not compare times and durations", expr.span, found.word, hint)
        elif expr.values is not None:
            column = expressions.Field(None, expr.column or expr.table)
            self.comparison("=", expr.operand, column, found, expr.values.type, expr.span)

    def like(self, expr: expressions.Like, found: Type, pattern: str) -> None:
        if found.kind not in (Kind.TEXT, Kind.NULL):
            self.report("type-clash", f"LIKE expects text, found {with_article(found)}", expr.operand.span, found.word)
        backslashes = len(pattern) - len(pattern.rstrip("\\"))
        if backslashes % 2:
            self.report(
                "like-pattern",
                "the LIKE pattern ends with a single `\\`",
                expr.span,
                hint="write `\\\\` for a backslash",
            )

    # --- values

    def negation(self, expr: expressions.Unary, found: Type) -> Type:
        if found.kind in NUMBERS | {Kind.DURATION, Kind.NULL}:
            return found
        return self.report("type-clash", f"`-` is not defined for {found.word}", expr.span, f"- {found.word}")

    def arithmetic(self, expr: expressions.Binary, left: Type, right: Type) -> Type:
        result = every_kind.arithmetic_type(expr.operator, left, right)
        if result is not None:
            return result
        words = (left.word, right.word)
        return self.report(
            "type-clash",
            f"`{expr.operator}` is not defined for {words[0]} and {words[1]}",
            expr.span,
            f"{words[0]} {expr.operator} {words[1]}",
            arithmetic_hint(expr, left, right),
        )

    def case(self, expr: expressions.Case) -> Type:
        for condition, _ in expr.branches:
            self.condition(condition)
        values = [value for _, value in expr.branches]
        if expr.default is not None:
            values.append(expr.default)
        return self.alike("the branches of CASE", values, [self.type_of(value) for value in values], expr.span)

    def alike(self, what: str, values: Sequence[expressions.Expr], types: Sequence[Type], span: Span | None) -> Type:
        """The common type of the values; reports the first value that does not fit the ones before it."""
        common = NULL_TYPE
        for value, found in zip(values, types, strict=True):
            if found.kind is Kind.OTHER:
                return self.report(
                    "type-clash", f"{what} cannot be of type {found.word}", value.span or span, found.word
                )
            both = common_type((common, found))
            if both is None:
                return self.report(
                    "type-clash",
                    f"{what} have different types: {common.word} and {found.word}",
                    value.span or span,
                    f"expected {common.word}, found {found.word}",
                    literal_hint(value, common.kind),
                )
            common = both
        return common

    # --- nested values and CAST

    def member(self, expr: expressions.Member, found: Type) -> Type:
        if found.kind is Kind.NULL:
            return NULL_TYPE
        if found.parts is None:
            hint = list_hint() if found.element is not None else f"write ['{expr.name}']" if found.entry else ""
            message = f"{with_article(found)} has no field `{expr.name}`"
            return self.report("no-such-field", message, _end_of(expr), found.word, hint)
        types = [part for name, part in found.parts if name == expr.name]
        if len(types) == 1:
            return types[0].readable
        names = [name for name, _ in found.parts]
        count = "two fields" if types else "no field"
        message, hint = f"the struct has {count} `{expr.name}`", did_you_mean(expr.name, names)
        return self.report("no-such-field", message, _end_of(expr), f"fields: {', '.join(names)}", hint)

    def entry(self, expr: expressions.Entry, found: Type) -> Type:
        key = self.type_of(expr.key)
        if constant(expr.key) is None:
            hint = "for example `a.tags[0]` or `a.labels['env']`; to search a list, use `contains(list, x)`"
            return self.report(
                "entry-key", "what is in brackets must be a literal", expr.key.span or expr.span, hint=hint
            )
        if found.kind is Kind.NULL:
            return NULL_TYPE
        wanted = INTEGER if found.element is not None else None if found.entry is None else found.entry[0].readable
        value = found.element if found.element is not None else None if found.entry is None else found.entry[1]
        if wanted is None or value is None:
            of_struct = found.parts is not None and key.kind is Kind.TEXT
            hint = "write a field of a struct after a dot: `a.user.name`" if of_struct else ""
            return self.report("entry-key", f"{with_article(found)} has no entries", expr.span, found.word, hint)
        if key.kind is not Kind.NULL and (key.kind is not wanted.kind or wanted.kind not in PLAIN):
            message = f"{with_article(found)} has keys of type {wanted.word}, found {key.word}"
            if found.element is not None:
                message = f"an element of a list is found by its position, from 0 on, found {with_article(key)}"
            return self.report("entry-key", message, expr.key.span or expr.span, key.word)
        return value.readable

    def cast(self, expr: expressions.Cast, found: Type) -> Type:
        word = "TRY_CAST" if expr.lenient else "CAST"
        flaw = every_kind.cast_flaw(expr, word)
        if flaw is not None:
            return self.report("cast-type", flaw.message, expr.span, flaw.label, flaw.hint)
        result, kinds = every_kind.CASTS[expr.target]
        if found.kind in kinds or found.kind is Kind.NULL:
            return found if expr.target == "TIMESTAMP" and found.kind is Kind.TIMESTAMP else result
        hint = {
            Kind.DURATION: "use the length of the duration: seconds(...)",
            Kind.TIMESTAMP: "use the seconds since 1970: epoch(...)",
        }.get(found.kind, "")
        message = f"{word} cannot convert {with_article(found)} to {expr.type}"
        return self.report("type-clash", message, expr.span, found.word, hint)

    # --- lists

    def gathered(self, expr: expressions.Gather) -> Type:
        """The common type of the elements; elements that cannot be compared must all have the same type."""
        types = [self.type_of(element) for element in expr.elements]
        common = common_type(types)
        return self.alike("the elements of a list", expr.elements, types, expr.span) if common is None else common

    def aggregate(self, aggregate: Aggregate, expr: expressions.Call) -> Type:
        types = tuple(self.type_of(argument) for argument in expr.arguments)
        if len(types) != 1:
            message = f"`{aggregate.name}` takes 1 argument (a list), found {len(types)}"
            hint = several_values_hint(aggregate) if types else f"for example {aggregate.example}"
            return self.report("function-arguments", message, expr.span, aggregate.signature, hint)
        (found,) = types
        element = found.element
        span = expr.arguments[0].span or expr.span
        if element is None and found.kind is not Kind.NULL:
            message = f"`{aggregate.name}` expects a list, found {with_article(found)}"
            return self.report("not-a-list", message, span, found.word, single_value_hint(aggregate.name))
        if element is not None and element.kind not in aggregate.kinds | {Kind.NULL}:
            message = f"`{aggregate.name}` is not defined for {with_article(found)}"
            return self.report("function-arguments", message, span, found.word, f"for example {aggregate.example}")
        return aggregate.result_type(found)

    def misplaced_prev(self, expr: expressions.Call) -> Type:
        return self.report(
            "misplaced-prev",
            "PREV is only allowed in a WHERE condition on a repeated variable",
            expr.span,
            hint="for example `t.temp > PREV(t.temp)`; PREV cannot be returned or combined with an aggregate",
        )

    # --- functions

    def call(self, expr: expressions.Call) -> Type:
        types = tuple(self.type_of(argument) for argument in expr.arguments)
        function = FUNCTIONS.get(expr.name)
        if function is None:
            return self.unknown_function(expr)
        if not self.count_fits(function, expr):
            return NULL_TYPE
        if function.name == "contains" and (types[0].element is not None or types[0].kind is Kind.NULL):
            return self.list_contains(expr, *types)
        fits = [
            self.argument_fits(function, function.parameter(position), argument, found, expr.span)
            for position, (argument, found) in enumerate(zip(expr.arguments, types, strict=True))
        ]
        if not all(fits):
            return NULL_TYPE
        if function.flaw is not None:
            literals = [constant(argument) for argument in expr.arguments]
            values = [literal.value if isinstance(literal, expressions.Literal) else None for literal in literals]
            flaw = function.flaw(values)
            if flaw is not None:
                self.problems.append(replace(flaw.problem, span=expr.arguments[flaw.place].span or expr.span))
                return NULL_TYPE
        if function.alike:
            return self.alike(f"the arguments of `{expr.name}`", expr.arguments, types, expr.span)
        return function.result(types)

    def list_contains(self, expr: expressions.Call, lists: Type, value: Type) -> Type:
        """`contains(list, x)`: x is compared with the elements. The first type is null if it is not known yet."""
        if lists.element is not None:
            first, second = expr.arguments
            self.comparison("=", first, second, lists.element.readable, value, expr.span)
        return BOOLEAN

    def unknown_function(self, expr: expressions.Call) -> Type:
        return self.report(
            "unknown-function",
            f"unknown function `{expr.name}`",
            expr.span,
            f"functions: {', '.join((*FUNCTIONS, *aggregate_names()))}",
            function_hint(expr.name),
        )

    def count_fits(self, function: Function, expr: expressions.Call) -> bool:
        given, fewest, most = len(expr.arguments), function.fewest, function.most
        if fewest <= given and (most is None or given <= most):
            return True
        if most is None:
            wanted = f"at least {argument_count(fewest)}"
        else:
            wanted = argument_count(most) if fewest == most else f"{fewest} or {argument_count(most)}"
        self.report(
            "function-arguments",
            f"`{function.name}` takes {wanted}, found {given}",
            expr.span,
            function.signature,
            f"for example {function.example}",
        )
        return False

    def argument_fits(
        self, function: Function, parameter: Parameter, argument: expressions.Expr, found: Type, call: Span | None
    ) -> bool:
        span = argument.span or call
        example = f"for example {function.example}"
        where = f"`{parameter.name}` of `{function.signature}`"
        kind = found.kind
        is_nested = found.element is not None or found.entry is not None
        if kind is not Kind.NULL and (kind not in parameter.kinds or (kind is Kind.OTHER and not is_nested)):
            wanted = parameter.word
            message = f"{where} must be {article(wanted)}{wanted}, found {with_article(found)}"
            self.report("function-arguments", message, span, found.word, example)
            return False
        if not parameter.constant:
            return True
        literal = constant(argument)
        if literal is None:
            message = f"{where} must be a literal, not a computed value"
            self.report("function-arguments", message, span, hint=example)
            return False
        value = literal.value if isinstance(literal, expressions.Literal) else None
        if parameter.choices and isinstance(value, str) and value.lower() not in parameter.choices:
            message = f"unknown value '{value}' for {where}"
            label = f"one of {', '.join(parameter.choices)}"
            self.report("function-arguments", message, span, label, did_you_mean(value, parameter.choices) or example)
            return False
        return True


def _end_of(member: expressions.Member) -> Span | None:
    """The part of `a.user.name` after the last dot."""
    return None if member.span is None else member.span.tail(member.span.end - member.span.start, len(member.name))


@dataclass(frozen=True, slots=True)
class _CheckerWithoutData(_Checker):
    def aggregate(self, aggregate: Aggregate, expr: expressions.Call) -> Type:
        """An average is a number or a duration; without data it is not known which one, so the type is null."""
        found = _Checker.aggregate(self, aggregate, expr)
        return NULL_TYPE if Kind.DURATION in aggregate.kinds and found.kind is Kind.FLOAT else found
