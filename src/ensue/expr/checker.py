"""The type of an expression, and every mistake in it, before any data is read.

A subexpression with a mistake counts as null, which goes with everything: one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ensue.errors import Problem, Span, did_you_mean
from ensue.expr.aggregates import AGGREGATES, Aggregate
from ensue.expr.functions import FUNCTIONS, Function, Parameter
from ensue.expr.hints import (
    argument_count,
    arithmetic_hint,
    article,
    comparison_hint,
    condition_hint,
    function_hint,
    list_hint,
    literal_hint,
    several_values_hint,
    single_value_hint,
    with_article,
)
from ensue.expr.kinds import (
    BOOLEAN,
    NULL_TYPE,
    NUMBERS,
    Kind,
    Type,
    arithmetic_type,
    common_type,
    constant,
    list_of,
    literal_type,
)
from ensue.nodes.expressions import (
    ARITHMETIC,
    COMPARISONS,
    CONNECTIVES,
    Between,
    Binary,
    Call,
    Case,
    Duration,
    Elements,
    Expr,
    Field,
    Gather,
    InList,
    IsNull,
    Like,
    Literal,
    Same,
    Timestamp,
    Unary,
)

FieldType = Callable[[Field], Type | None]


def check_expression(expr: Expr, field_type: FieldType, problems: list[Problem]) -> Type:
    """The type of the expression; appends a problem for each mistake in it.

    `field_type` gives the readable type of a field, or None when it has reported a problem itself.

    >>> from ensue.expr.kinds import INTEGER
    >>> problems = []
    >>> check_expression(Binary("+", Field("a", "x"), Literal(1)), lambda field: INTEGER, problems).word
    'integer'
    >>> check_expression(Binary("+", Field("a", "x"), Literal("1")), lambda field: INTEGER, problems).word
    'null'
    >>> problems[0].message
    '`+` is not defined for integer and text'
    """
    return _Checker(field_type, problems).type_of(expr)


def check_condition(expr: Expr, field_type: FieldType, problems: list[Problem]) -> None:
    """Appends a problem for each mistake in an expression that must be true or false."""
    _Checker(field_type, problems).condition(expr)


def check_without_data(expr: Expr, field_type: FieldType, problems: list[Problem], *, condition: bool) -> None:
    """Appends a problem for each mistake that no data can mend; what data decide counts as null.

    >>> problems = []
    >>> call = Call("avg", (Field("t", "length"),))
    >>> check_without_data(Binary(">", call, Duration(5)), lambda field: NULL_TYPE, problems, condition=True)
    >>> check_without_data(Call("len", (Field("t", "name"),)), lambda field: NULL_TYPE, problems, condition=False)
    >>> [problem.code for problem in problems]
    ['unknown-function']
    """
    checker = _CheckerWithoutData(field_type, problems)
    if condition:
        checker.condition(expr)
    else:
        checker.type_of(expr)


@dataclass(frozen=True, slots=True)
class _Checker:
    field_type: FieldType
    problems: list[Problem]

    def report(self, code: str, message: str, span: Span | None, label: str = "", hint: str = "") -> Type:
        self.problems.append(Problem(code, message, span, label, hint))
        return NULL_TYPE

    def type_of(self, expr: Expr) -> Type:
        literal = constant(expr)
        if literal is not None:
            return self.literal(literal)
        match expr:
            case Field():
                return self.field_type(expr) or NULL_TYPE
            case Unary("not", operand):
                self.operand_condition("NOT", operand)
                return BOOLEAN
            case Unary(_, operand):
                return self.negation(expr, self.type_of(operand))
            case Binary(operator) if operator in CONNECTIVES:
                self.operand_condition(operator.upper(), expr.left)
                self.operand_condition(operator.upper(), expr.right)
                return BOOLEAN
            case Binary(operator, left, right) if operator in COMPARISONS:
                return self.comparison(operator, left, right, self.type_of(left), self.type_of(right), expr.span)
            case Binary(operator) if operator in ARITHMETIC:
                return self.arithmetic(expr, self.type_of(expr.left), self.type_of(expr.right))
            case InList(operand, items):
                kind = self.type_of(operand)
                for item in items:
                    self.comparison("=", operand, item, kind, self.type_of(item), item.span or expr.span)
                return BOOLEAN
            case Between(operand, low, high):
                kind = self.type_of(operand)
                self.comparison(">=", operand, low, kind, self.type_of(low), low.span or expr.span)
                self.comparison("<=", operand, high, kind, self.type_of(high), high.span or expr.span)
                return BOOLEAN
            case Like(operand, pattern):
                self.like(expr, self.type_of(operand), pattern)
                return BOOLEAN
            case IsNull(operand):
                self.type_of(operand)
                return BOOLEAN
            case Case():
                return self.case(expr)
            case Elements(element):
                return list_of(self.type_of(element))
            case Gather():
                return list_of(self.gathered(expr))
            case Call("prev"):
                return self.misplaced_prev(expr)
            case Call(name) if name in AGGREGATES:
                return self.aggregate(AGGREGATES[name], expr)
            case Call():
                return self.call(expr)
            case Same():
                return self.report(
                    "misplaced-same",
                    "SAME stands only as a condition of its own in WHERE",
                    expr.span,
                    hint="join it to the other conditions with AND, outside NOT, OR and brackets of events",
                )
        raise TypeError(f"{type(expr).__name__} is not an expression")

    def literal(self, literal: Literal | Duration | Timestamp) -> Type:
        found = literal_type(literal)
        if found is not None:
            return found
        if isinstance(literal, Literal):
            message, hint = f"{literal.value} does not fit a 64-bit integer", f"write {literal.value}.0 for a float"
        else:
            word = "duration" if isinstance(literal, Duration) else "timestamp"
            message, hint = f"the {word} does not fit 64 bits of its unit", "leave out the digits below seconds"
        return self.report("number-too-large", message, literal.span, hint=hint)

    # --- conditions

    def condition(self, expr: Expr) -> None:
        found = self.type_of(expr)
        if found.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.report(
                "not-a-condition",
                f"a condition is true or false, this is {with_article(found)}",
                expr.span,
                found.word,
                condition_hint(found),
            )

    def operand_condition(self, operator: str, operand: Expr) -> None:
        found = self.type_of(operand)
        if found.kind not in (Kind.BOOLEAN, Kind.NULL):
            self.report(
                "type-clash",
                f"{operator} is for conditions, this is {with_article(found)}",
                operand.span,
                found.word,
                condition_hint(found),
            )

    def comparison(
        self, operator: str, left: Expr, right: Expr, left_type: Type, right_type: Type, span: Span | None
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
                "such a field can be returned and tested with IS NULL; take a plain column out of it before the run",
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

    def like(self, expr: Like, found: Type, pattern: str) -> None:
        if found.kind not in (Kind.TEXT, Kind.NULL):
            self.report("type-clash", f"LIKE is for text, this is {with_article(found)}", expr.operand.span, found.word)
        backslashes = len(pattern) - len(pattern.rstrip("\\"))
        if backslashes % 2:
            self.report(
                "like-pattern",
                "the pattern of LIKE ends with a `\\` that quotes nothing",
                expr.span,
                hint="write `\\\\` for a backslash",
            )

    # --- values

    def negation(self, expr: Unary, found: Type) -> Type:
        if found.kind in NUMBERS | {Kind.DURATION, Kind.NULL}:
            return found
        return self.report("type-clash", f"`-` is not defined for {found.word}", expr.span, f"- {found.word}")

    def arithmetic(self, expr: Binary, left: Type, right: Type) -> Type:
        result = arithmetic_type(expr.operator, left, right)
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

    def case(self, expr: Case) -> Type:
        for condition, _ in expr.branches:
            self.condition(condition)
        values = [value for _, value in expr.branches]
        if expr.default is not None:
            values.append(expr.default)
        return self.alike("the branches of CASE", values, [self.type_of(value) for value in values], expr.span)

    def alike(self, what: str, values: Sequence[Expr], types: Sequence[Type], span: Span | None) -> Type:
        """The common type of alternatives; reports the first one that does not fit those before it."""
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
                    f"{what} are of different kinds: {common.word} and {found.word}",
                    value.span or span,
                    f"{found.word}, after {common.word}",
                    literal_hint(value, common.kind),
                )
            common = both
        return common

    # --- lists

    def gathered(self, expr: Gather) -> Type:
        """The common type of the elements; those of types that cannot be compared are of one type."""
        types = [self.type_of(element) for element in expr.elements]
        common = common_type(types)
        return self.alike("the elements of a list", expr.elements, types, expr.span) if common is None else common

    def aggregate(self, aggregate: Aggregate, expr: Call) -> Type:
        types = tuple(self.type_of(argument) for argument in expr.arguments)
        if len(types) != 1:
            message = f"`{aggregate.name}` takes 1 argument, a list, not {len(types)}"
            hint = several_values_hint(aggregate) if types else f"for example {aggregate.example}"
            return self.report("function-arguments", message, expr.span, aggregate.signature, hint)
        (found,) = types
        element = found.element
        span = expr.arguments[0].span or expr.span
        if element is None and found.kind is not Kind.NULL:
            message = f"`{aggregate.name}` ranges over a list, this is {with_article(found)}"
            return self.report("not-a-list", message, span, found.word, single_value_hint(aggregate.name))
        if element is not None and element.kind not in aggregate.kinds | {Kind.NULL}:
            message = f"`{aggregate.name}` is not defined for {with_article(found)}"
            return self.report("function-arguments", message, span, found.word, f"for example {aggregate.example}")
        return aggregate.result_type(found)

    def misplaced_prev(self, expr: Call) -> Type:
        return self.report(
            "misplaced-prev",
            "PREV stands only in a condition of WHERE on a repeated variable",
            expr.span,
            hint="for example `t.temp > PREV(t.temp)`; it cannot be returned, nor stand beside an aggregate",
        )

    # --- functions

    def call(self, expr: Call) -> Type:
        types = tuple(self.type_of(argument) for argument in expr.arguments)
        function = FUNCTIONS.get(expr.name)
        if function is None:
            return self.unknown_function(expr)
        if not self.count_fits(function, expr):
            return NULL_TYPE
        fits = [
            self.argument_fits(function, function.parameter(position), argument, found, expr.span)
            for position, (argument, found) in enumerate(zip(expr.arguments, types, strict=True))
        ]
        if not all(fits):
            return NULL_TYPE
        if function.alike:
            return self.alike(f"the arguments of `{expr.name}`", expr.arguments, types, expr.span)
        return function.result(types)

    def unknown_function(self, expr: Call) -> Type:
        return self.report(
            "unknown-function",
            f"there is no function `{expr.name}`",
            expr.span,
            f"functions: {', '.join((*FUNCTIONS, *AGGREGATES))}",
            function_hint(expr.name),
        )

    def count_fits(self, function: Function, expr: Call) -> bool:
        given, fewest, most = len(expr.arguments), function.fewest, function.most
        if fewest <= given and (most is None or given <= most):
            return True
        if most is None:
            wanted = f"at least {argument_count(fewest)}"
        else:
            wanted = argument_count(most) if fewest == most else f"{fewest} or {argument_count(most)}"
        self.report(
            "function-arguments",
            f"`{function.name}` takes {wanted}, not {given}",
            expr.span,
            function.signature,
            f"for example {function.example}",
        )
        return False

    def argument_fits(
        self, function: Function, parameter: Parameter, argument: Expr, found: Type, call: Span | None
    ) -> bool:
        span = argument.span or call
        example = f"for example {function.example}"
        where = f"`{parameter.name}` of `{function.signature}`"
        kind = found.kind
        if kind is not Kind.NULL and kind not in parameter.kinds:
            wanted = parameter.word
            message = f"{where} is {article(wanted)}{wanted}, not {with_article(found)}"
            self.report("function-arguments", message, span, found.word, example)
            return False
        if not parameter.constant:
            return True
        literal = constant(argument)
        if literal is None:
            message = f"{where} is written out as a literal, it cannot be computed"
            self.report("function-arguments", message, span, hint=example)
            return False
        value = literal.value if isinstance(literal, Literal) else None
        if parameter.choices and isinstance(value, str) and value.lower() not in parameter.choices:
            message = f"{where} cannot be '{value}'"
            label = f"one of {', '.join(parameter.choices)}"
            self.report("function-arguments", message, span, label, did_you_mean(value, parameter.choices) or example)
            return False
        return True


@dataclass(frozen=True, slots=True)
class _CheckerWithoutData(_Checker):
    def aggregate(self, aggregate: Aggregate, expr: Call) -> Type:
        """Over nothing an average is a number; over what nobody knows yet it may be a duration."""
        found = _Checker.aggregate(self, aggregate, expr)
        return NULL_TYPE if Kind.DURATION in aggregate.kinds and found.kind is Kind.FLOAT else found
