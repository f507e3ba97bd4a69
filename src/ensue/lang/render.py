"""Values back to query text, with as few parentheses as reading it back allows: `parse(render(x)) == x`."""

from __future__ import annotations

from collections.abc import Callable

from ensue.algebra.constraints import (
    Constraint,
    ConstraintStatement,
    Ends,
    EndsWithin,
    Exclusive,
    Implies,
    Prior,
    Require,
)
from ensue.algebra.nodes import (
    And,
    Event,
    Events,
    Named,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Related,
    Repeat,
    Return,
    Seq,
    Statements,
    Ticks,
    Window,
    Within,
)
from ensue.algebra.operators import OPERATORS, excluded_streams
from ensue.expr.nodes import (
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
from ensue.lang.literals import render_duration, render_timestamp
from ensue.lang.names import quote_name, quote_query_name, quote_stream, quote_word
from ensue.lang.operations import first_brackets

_LINE = 100
_INDENT = "  "

_OR, _AND, _NOT, _COMPARISON, _CONCATENATION, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(9)
_PRECEDENCE = {
    "or": _OR, "and": _AND,
    "=": _COMPARISON, "!=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, ">": _COMPARISON, ">=": _COMPARISON,
    "||": _CONCATENATION, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip


def render_statements(statements: Statements) -> str:
    """Every statement, ended with `;`: the constraints, a line each, then the patterns, with a blank line between two.

    >>> from ensue.lang.parser import parse_statements
    >>> render_statements(parse_statements("pattern A a; pattern p (B b)"))
    'PATTERN A a;\\n\\nPATTERN p\\n  (B b);\\n'
    """
    constraints = "\n".join(f"{render_constraint_statement(statement)};" for statement in statements.constraints)
    queries = [f"{render_query(query)};" for query in statements.statements]
    return "\n\n".join(filter(None, [constraints, *queries])) + "\n"


def render_constraint_statement(statement: ConstraintStatement) -> str:
    """One constraint as a statement.

    >>> render_constraint_statement(ConstraintStatement(Prior("A", "B"), ("id",)))
    'CONSTRAINT PRIOR(A, B) PARTITION BY id'
    """
    partition = f" PARTITION BY {_names(statement.partition_by)}" if statement.partition_by else ""
    return f"CONSTRAINT {render_constraint(statement.constraint)}{partition}"


def render_constraint(constraint: Constraint) -> str:
    """What a constraint says, without the word CONSTRAINT.

    >>> render_constraint(Implies(("A", "order line"), "B", negated=True))
    'A AND `order line` IMPLIES NOT B'
    """
    match constraint:
        case Prior():
            return f"PRIOR({_names(constraint.streams)})"
        case Exclusive():
            return f"EXCLUSIVE({_names(constraint.streams)})"
        case Require():
            return f"REQUIRE({_names(constraint.streams)})"
        case Ends():
            return f"ENDS({_names(constraint.streams)})"
        case EndsWithin():
            return f"ENDS WITHIN {render_window(constraint.window)}"
        case Implies(given, then, negated):
            return f"{' AND '.join(map(quote_name, given))} IMPLIES {'NOT ' if negated else ''}{quote_name(then)}"


def render_query(query: PatternQuery) -> str:
    r"""One query, each clause on a line of its own.

    >>> from ensue.lang.parser import parse_statements
    >>> print(render_query(parse_statements("pattern seq(A a, B b) within 60 min where a.x=b.x").statements[0]))
    PATTERN SEQ(A a, B b)
      WHERE a.x = b.x
      WITHIN 1 hour
    """
    lines = [_heading(query) + _headed_pattern(query)]
    if query.where is not None:
        lines.append(f"WHERE {_layout_condition(query.where)}")
    if query.partition_by:
        lines.append(f"PARTITION BY {_names(query.partition_by)}")
    if query.within is not None:
        lines.append(f"WITHIN {render_window(query.within)}")
    if query.policy is not None:
        lines.append(f"MATCH {query.policy}")
    if query.consume is not None:
        lines.append("CONSUME" if query.consume else "SHARE")
    if query.returns:
        lines.append(f"RETURN {', '.join(map(render_return, query.returns))}")
    return f"\n{_INDENT}".join(lines)


def render_return(column: Return) -> str:
    """One column of RETURN.

    >>> render_return(Return(Field("a", "id"), "key"))
    'a.id AS key'
    """
    alias = f" AS {quote_name(column.alias)}" if column.alias is not None else ""
    return render_expression(column.expression) + alias


def render_window(window: Window) -> str:
    """What stands after WITHIN.

    >>> render_window(Duration(5_400_000_000_000)), render_window(Ticks(5)), render_window(Events(1))
    ('90 minutes', '5', '1 EVENT')
    """
    match window:
        case Duration():
            return render_duration(window.nanoseconds)
        case Ticks():
            return str(window.count)
        case Events():
            return f"{window.count} {'EVENT' if window.count == 1 else 'EVENTS'}"


def render_pattern(pattern: Pattern) -> str:
    """A pattern on one line.

    >>> render_pattern(Seq((Event("A", "a"), Not(Event("B")), Event("C", "c"))))
    'SEQ(A a, NOT B, C c)'
    """
    match pattern:
        case Event():
            return _event(pattern)
        case Seq() | And() | Or():
            return f"{_keyword(pattern)}({', '.join(map(render_pattern, pattern.items))})"
        case Not():
            return f"NOT {render_pattern(pattern.item)}"
        case Pick():
            return f"{'LAST' if pattern.latest else 'FIRST'} {render_pattern(pattern.item)}"
        case Operation():
            groups = _argument_groups(pattern, render_pattern)
            return pattern.operator + "".join(f"({', '.join(group)})" for group in groups)
        case Repeat():
            return _repeated(pattern)
        case Within():
            return f"{_postfixed(pattern.item)} WITHIN {render_window(pattern.window)}"
        case Named():
            return f"{_postfixed(pattern.item)} AS {quote_name(pattern.name)}"
        case Related():
            # Nobody writes it; where it came from no text, messages cite it as the operator it stands for.
            written = pattern.origin or Operation(pattern.operator, pattern.items)
            return render_pattern(written)


def render_expression(expression: Expr) -> str:
    """A condition or value on one line.

    >>> render_expression(Binary("*", Binary("+", Field("a", "x"), Literal(1)), Literal(2)))
    '(a.x + 1) * 2'
    """
    return _expression(expression, _OR)


def _keyword(pattern: Seq | And | Or) -> str:
    match pattern:
        case Seq():
            return "SEQ"
        case And():
            return "AND"
        case Or():
            return "OR"


def _event(event: Event) -> str:
    variable = f" {quote_name(event.variable)}" if event.variable is not None else ""
    predicate = f" [{render_expression(event.predicate)}]" if event.predicate is not None else ""
    excluded = excluded_streams(event.stream)
    if excluded is None:
        return quote_stream(event.stream) + variable + predicate
    but = f" BUT {_names(excluded)}" if len(excluded) == 1 else f" BUT ({_names(excluded)})" if excluded else ""
    if event.variable is not None and event.variable.upper() == "BUT":
        variable = f" `{event.variable}`"
    return f"ANY EVENT{but}{variable}{predicate}"


def _argument_groups(operation: Operation, render: Callable[[Pattern], str]) -> list[list[str]]:
    """The arguments as they stand in the brackets; UNLESS has two pairs of them."""
    items = [render(item) for item in operation.items]
    if operation.count is not None:
        items.insert(0, str(operation.count))
    if operation.window is not None:
        items.insert(OPERATORS[operation.operator].window_at or 0, render_window(operation.window))
    split = first_brackets(operation.operator)
    return [items[:split], items[split:]] if split else [items]


def _repeated(repeat: Repeat) -> str:
    text = render_pattern(repeat.item)
    item = f"({text})" if isinstance(repeat.item, Not | Pick | Repeat | Within | Named) else text
    match (repeat.least, repeat.most, repeat.every):
        case (0, None, True):
            return f"{item}*"
        case (1, None, True):
            return f"{item}+"
        case (least, most, every):
            counts = str(least) if least == most else f"{least},{'' if most is None else most}"
            return f"{item}{{{counts}}}{' ALL' if every else ''}"


def _postfixed(item: Pattern) -> str:
    text = render_pattern(item)
    return f"({text})" if isinstance(item, Not | Pick) else text


def _heading(query: PatternQuery) -> str:
    if query.name is None:
        return "PATTERN "
    name = quote_query_name(query.name)
    return f"STREAM {name} FROM PATTERN " if query.declares else f"PATTERN {name}\n{_INDENT}"


def _headed_pattern(query: PatternQuery) -> str:
    """The pattern as it stands behind PATTERN, in parentheses where it would be read as something else."""
    pattern = _layout_pattern(query.pattern, _INDENT)
    named = query.name is not None and not query.declares
    in_parentheses = (
        _stands_in_parts(query.pattern)
        or (named and _starts_with_event(query.pattern))
        or (query.consume is not None and _is_bare_event(query.pattern))
    )
    return f"({pattern})" if in_parentheses else pattern


def _stands_in_parts(pattern: Pattern) -> bool:
    """Whether a WITHIN of the pattern would be read as the query's clause, or it starts with FIRST or LAST."""
    while isinstance(pattern, Not | Named):
        pattern = pattern.item
    return isinstance(pattern, Within | Pick)


def _starts_with_event(pattern: Pattern) -> bool:
    """Whether a name before the pattern would be read as a stream."""
    while isinstance(pattern, Named | Repeat):
        pattern = pattern.item
    return isinstance(pattern, Event)


def _is_bare_event(pattern: Pattern) -> bool:
    """Whether CONSUME or SHARE behind the pattern would be read as its variable."""
    while isinstance(pattern, Not):
        pattern = pattern.item
    return isinstance(pattern, Event) and pattern.variable is None and pattern.predicate is None


def _layout_pattern(pattern: Pattern, indent: str) -> str:
    text = render_pattern(pattern)
    if len(indent) + len(text) <= _LINE:
        return text
    deeper = indent + _INDENT

    def laid_out(items: list[str]) -> str:
        listed = f",\n{deeper}".join(items)
        return f"(\n{deeper}{listed}\n{indent})"

    match pattern:
        case Seq() | And() | Or():
            return _keyword(pattern) + laid_out([_layout_pattern(item, deeper) for item in pattern.items])
        case Operation():
            groups = _argument_groups(pattern, lambda item: _layout_pattern(item, deeper))
            return pattern.operator + "".join(map(laid_out, groups))
        case Not():
            return f"NOT {_layout_pattern(pattern.item, indent)}"
        case _:
            return text


def _layout_condition(condition: Expr) -> str:
    text = render_expression(condition)
    if len(text) <= _LINE:
        return text
    parts: list[str] = []
    while isinstance(condition, Binary) and condition.operator == "and":
        parts.append(_expression(condition.right, _NOT))
        condition = condition.left
    parts.append(_expression(condition, _AND))
    return f"\n{_INDENT * 2}AND ".join(reversed(parts))


def _expression(expression: Expr, context: int) -> str:
    """The text of an operand; `context` is the loosest precedence that needs no parentheses there."""
    text, precedence = _with_precedence(expression)
    return text if precedence >= context else f"({text})"


def _with_precedence(expression: Expr) -> tuple[str, int]:
    match expression:
        case Literal():
            return _literal(expression)
        case Duration():
            return render_duration(expression.nanoseconds), _UNARY if expression.nanoseconds < 0 else _PRIMARY
        case Timestamp():
            return f"TIMESTAMP '{render_timestamp(expression.nanoseconds, expression.zoned)}'", _PRIMARY
        case Field(None, name):
            return quote_name(name), _PRIMARY
        case Field(str(variable), name):
            return f"{quote_name(variable)}.{quote_word(name)}", _PRIMARY
        case Unary("not", operand):
            return f"NOT {_expression(operand, _NOT)}", _NOT
        case Unary():
            return _minus(expression.operand), _UNARY
        case Binary():
            return _binary(expression), _PRECEDENCE[expression.operator]
        case InList() | Between() | Like() | IsNull():
            return _predicate(expression), _COMPARISON
        case Case():
            return _case(expression), _PRIMARY
        case Call(name, arguments):
            return f"{quote_name(name)}({_listed(arguments)})", _PRIMARY
        case Elements(Literal(True), of):
            return quote_name(of), _PRIMARY
        case Elements(element):
            return _with_precedence(element)
        case Gather(elements):
            return f"[{_listed(elements)}]", _PRIMARY
        case Same(names):
            return f"SAME({_names(names)})", _PRIMARY
    raise TypeError(f"{expression!r} is not an expression")


def _literal(literal: Literal) -> tuple[str, int]:
    match literal.value:
        case None:
            return "NULL", _PRIMARY
        case bool(value):
            return "TRUE" if value else "FALSE", _PRIMARY
        case str(value):
            return _quoted(value), _PRIMARY
        case number:
            text = repr(number)
            return text, _UNARY if text.startswith("-") else _PRIMARY


def _minus(operand: Expr) -> str:
    text = _expression(operand, _UNARY)
    # A minus before a number would become part of it, and two of them would start a comment.
    folds = isinstance(operand, Duration) or (isinstance(operand, Literal) and text[0] in "0123456789")
    return f"-({text})" if folds or text.startswith("-") else f"-{text}"


def _binary(binary: Binary) -> str:
    precedence = _PRECEDENCE[binary.operator]
    left = precedence + 1 if precedence == _COMPARISON else precedence
    operator = binary.operator.upper()
    return f"{_expression(binary.left, left)} {operator} {_expression(binary.right, precedence + 1)}"


def _predicate(predicate: InList | Between | Like | IsNull) -> str:
    operand = _expression(predicate.operand, _CONCATENATION)
    negation = "NOT " if predicate.negated else ""
    match predicate:
        case InList():
            return f"{operand} {negation}IN ({_listed(predicate.items)})"
        case Between():
            low, high = _expression(predicate.low, _CONCATENATION), _expression(predicate.high, _CONCATENATION)
            return f"{operand} {negation}BETWEEN {low} AND {high}"
        case Like():
            return f"{operand} {negation}LIKE {_quoted(predicate.pattern)}"
        case IsNull():
            return f"{operand} IS {negation}NULL"


def _case(case: Case) -> str:
    branches = "".join(
        f" WHEN {render_expression(condition)} THEN {render_expression(value)}" for condition, value in case.branches
    )
    default = f" ELSE {render_expression(case.default)}" if case.default is not None else ""
    return f"CASE{branches}{default} END"


def _listed(expressions: tuple[Expr, ...]) -> str:
    return ", ".join(map(render_expression, expressions))


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(quote_name, names))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
