"""Checks the types of an expression before any data is read, and reports every mistake in it.

A subexpression with a mistake has the type null, which is compatible with every type, so each mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ensue.errors import Problem, Span, did_you_mean
from ensue.expr import kinds as every_kind
from ensue.expr.functions import AGGREGATES, FUNCTIONS, Aggregate, Function, Parameter
from ensue.expr.hints import (
    aggregate_names,
    argument_count,
    arithmetic_hint,
    article,
    comparison_hint,
    condition_hint,
    conversion_hint,
    function_hint,
    list_hint,
    literal_hint,
    several_values_hint,
    single_value_hint,
    with_article,
)
from ensue.expr.kinds import (
    BOOLEAN,
    INTEGER,
    NULL_TYPE,
    NUMBERS,
    PLAIN,
    TIMES,
    Kind,
    Type,
    common_type,
    constant,
)
from ensue.nodes import expressions

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
            case expressions.HasRow(operands):
                self.of_row(expr, [self.type_of(operand) for operand in operands])
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
        fixed: expressions.Expr | None = None,
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
                comparison_hint(left, right, *kinds, fixed),
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
            self.comparison("=", expr.operand, column, found, expr.values.type, expr.span, fixed=column)

    def of_row(self, expr: expressions.HasRow, found: Sequence[Type]) -> None:
        """The types of the values of a row and of the columns of its table, which are known once the table is."""
        for place, (operand, name) in enumerate(zip(expr.operands, expr.columns, strict=True)):
            known = None if expr.rows is None else expr.rows.columns[place].type
            if found[place].kind in TIMES or (known is not None and known.kind in TIMES):
                message = f"`not {expr.table}(...)` does not compare times and durations"
                hint = "compare numbers or texts, or write `_` for the time"
                self.report("type-clash", message, expr.span, found[place].word, hint)
            elif known is not None:
                column = expressions.Field(None, name)
                self.comparison("=", operand, column, found[place], known, expr.span, fixed=column)

    def like(self, expr: expressions.Like, found: Type, pattern: str) -> None:
        if found.kind not in (Kind.TEXT, Kind.NULL):
            message = f"LIKE expects text, found {with_article(found)}"
            hint = conversion_hint(expr.operand, found.kind, Kind.TEXT)
            self.report("type-clash", message, expr.operand.span, found.word, hint)
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
        hint = conversion_hint(expr.operand, found.kind, Kind.FLOAT)
        return self.report("type-clash", f"`-` is not defined for {found.word}", expr.span, f"- {found.word}", hint)

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
                    literal_hint(value, common.kind) or conversion_hint(value, found.kind, common.kind),
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
            convert = conversion_hint(expr.arguments[0], element.kind, Kind.FLOAT)
            hint = convert or f"for example {aggregate.example}"
            return self.report("function-arguments", message, span, found.word, hint)
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
        function = FUNCTIONS.get(expr.name) if expr.function is None else expr.function.signature
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
            self.comparison("=", first, second, lists.element.readable, value, expr.span, fixed=first)
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
            only = Kind.FLOAT if parameter.kinds == NUMBERS else next(iter(parameter.kinds))
            hint = conversion_hint(argument, kind, only) if len(parameter.kinds - {Kind.INTEGER}) <= 1 else ""
            self.report("function-arguments", message, span, found.word, hint or example)
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
