"""Render expressions, windows, rules, actions and states as query text: `parse(render(x)) == x`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

from ensue.expr.functions import FUNCTIONS
from ensue.nodes import expressions as expression_nodes
from ensue.nodes import rules, states
from ensue.nodes.patterns import Events, Ticks, Window
from ensue.text.reserved_words import quote_always, quote_name, quote_word, render_variable
from ensue.text.values import COUNT_DISTINCT, render_duration, render_timestamp

# --- Expressions and windows, with as few parentheses as possible

_LINE = 100
_INDENT = "  "

_OR, _AND, _NOT, _COMPARISON, _CONCATENATION, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(9)
_PRECEDENCE = {
    "or": _OR, "and": _AND,
    "=": _COMPARISON, "!=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, ">": _COMPARISON, ">=": _COMPARISON,
    "||": _CONCATENATION, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip


def render_expression(expression: expression_nodes.Expr) -> str:
    """A condition or value on one line.

    >>> x, one, two = expression_nodes.Field("a", "x"), expression_nodes.Literal(1), expression_nodes.Literal(2)
    >>> render_expression(expression_nodes.Binary("*", expression_nodes.Binary("+", x, one), two))
    '(a.x + 1) * 2'
    """
    return _expression(expression, _OR)


def render_window(window: Window) -> str:
    """The window after WITHIN.

    >>> render_window(expression_nodes.Duration(5_400_000_000_000)), render_window(Ticks(5)), render_window(Events(1))
    ('1h 30m', '5', '1 EVENT')
    """
    match window:
        case expression_nodes.Duration():
            return render_duration(window.nanoseconds)
        case Ticks():
            return str(window.count)
        case Events():
            return f"{window.count} {'EVENT' if window.count == 1 else 'EVENTS'}"


def layout_condition(condition: expression_nodes.Expr) -> str:
    """A condition on one line or, if it is long, with each part of its AND on its own line."""
    text = render_expression(condition)
    if len(text) <= _LINE:
        return text
    parts: list[str] = []
    while isinstance(condition, expression_nodes.Binary) and condition.operator == "and":
        parts.append(_expression(condition.right, _NOT))
        condition = condition.left
    parts.append(_expression(condition, _AND))
    return f"\n{_INDENT * 2}AND ".join(reversed(parts))


def _expression(expression: expression_nodes.Expr, context: int) -> str:
    """The text of an operand; `context` is the lowest precedence that needs no parentheses."""
    text, precedence = _with_precedence(expression)
    return text if precedence >= context else f"({text})"


def _with_precedence(expression: expression_nodes.Expr) -> tuple[str, int]:
    match expression:
        case expression_nodes.Literal():
            return _literal(expression)
        case expression_nodes.Duration():
            return render_duration(expression.nanoseconds), _UNARY if expression.nanoseconds < 0 else _PRIMARY
        case expression_nodes.Timestamp():
            return f"TIMESTAMP '{render_timestamp(expression.nanoseconds, expression.zoned)}'", _PRIMARY
        case expression_nodes.Field(variable, name, asks_state=True):
            return name if variable is None else f"{render_variable(variable)}.{name}", _PRIMARY
        case expression_nodes.Field(None, name):
            return quote_name(name), _PRIMARY
        case expression_nodes.Field(variable, name) if variable is not None:
            return f"{render_variable(variable)}.{quote_word(name)}", _PRIMARY
        case expression_nodes.Member(operand, name):
            return f"{_path(operand)}.{quote_word(name)}", _PRIMARY
        case expression_nodes.Entry(operand, key):
            return f"{_path(operand)}[{render_expression(key)}]", _PRIMARY
        case expression_nodes.Cast(operand, target, lenient, sizes):
            word, size = "TRY_CAST" if lenient else "CAST", f"({', '.join(map(str, sizes))})" if sizes else ""
            return f"{word}({render_expression(operand)} AS {quote_word(target)}{size})", _PRIMARY
        case expression_nodes.Unary("not", operand):
            return f"NOT {_expression(operand, _NOT)}", _NOT
        case expression_nodes.Unary():
            return _minus(expression.operand), _UNARY
        case expression_nodes.Binary():
            return _binary(expression), _PRECEDENCE[expression.operator]
        case (
            expression_nodes.InList()
            | expression_nodes.InTable()
            | expression_nodes.Between()
            | expression_nodes.Like()
            | expression_nodes.IsNull()
        ):
            return _predicate(expression), _COMPARISON
        case expression_nodes.HasRow(operands, table):
            values = ", ".join(
                f"{quote_name(column)}={render_expression(operand)}"
                for column, operand in zip(expression.columns, operands, strict=True)
            )
            return f"{'NOT ' if expression.negated else ''}{quote_name(table)}({values})", _NOT
        case expression_nodes.Case():
            return _case(expression), _PRIMARY
        case expression_nodes.Call(name, (argument,)) if name == COUNT_DISTINCT:
            return f"count(DISTINCT {_path(argument)})", _PRIMARY
        case expression_nodes.Call(name, arguments):
            return f"{quote_name(name)}({_listed(arguments)})", _PRIMARY
        case expression_nodes.Elements(expression_nodes.Literal(True), of):
            return render_variable(of), _PRIMARY
        case expression_nodes.Elements(element):
            return _with_precedence(element)
        case expression_nodes.Gather(elements):
            return f"[{_listed(elements)}]", _PRIMARY
        case expression_nodes.Same(names):
            return f"SAME({render_names(names)})", _PRIMARY
    raise TypeError(f"{expression!r} is not an expression")


def _path(operand: expression_nodes.Expr) -> str:
    """What `.name` and `[key]` follow, and what follows DISTINCT: a path, a call, or anything in parentheses."""
    text = render_expression(operand)
    is_path = isinstance(
        operand,
        expression_nodes.Field
        | expression_nodes.Member
        | expression_nodes.Entry
        | expression_nodes.Call
        | expression_nodes.Cast,
    )
    return text if is_path else f"({text})"


def _literal(literal: expression_nodes.Literal) -> tuple[str, int]:
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


def _minus(operand: expression_nodes.Expr) -> str:
    text = _expression(operand, _UNARY)
    # A minus before a number would become part of it, and two of them would start a comment.
    folds = isinstance(operand, expression_nodes.Duration) or (
        isinstance(operand, expression_nodes.Literal) and text[0] in "0123456789"
    )
    return f"-({text})" if folds or text.startswith("-") else f"-{text}"


def _binary(binary: expression_nodes.Binary) -> str:
    precedence = _PRECEDENCE[binary.operator]
    left = precedence + 1 if precedence == _COMPARISON else precedence
    operator = binary.operator.upper()
    return f"{_expression(binary.left, left)} {operator} {_expression(binary.right, precedence + 1)}"


Predicate = (
    expression_nodes.InList
    | expression_nodes.InTable
    | expression_nodes.Between
    | expression_nodes.Like
    | expression_nodes.IsNull
)


def _predicate(predicate: Predicate) -> str:
    return f"{_expression(predicate.operand, _CONCATENATION)} {render_test(predicate)}"


def render_test(predicate: Predicate) -> str:
    """What a predicate says about its operand.

    >>> render_test(expression_nodes.Like(expression_nodes.Field("a", "x"), "b%"))
    "LIKE 'b%'"
    """
    negation = "NOT " if predicate.negated else ""
    match predicate:
        case expression_nodes.InList():
            return f"{negation}IN ({_listed(predicate.items)})"
        case expression_nodes.InTable():
            column = "" if predicate.column is None else f".{quote_word(predicate.column)}"
            return f"{negation}IN {quote_name(predicate.table)}{column}"
        case expression_nodes.Between():
            low, high = _expression(predicate.low, _CONCATENATION), _expression(predicate.high, _CONCATENATION)
            return f"{negation}BETWEEN {low} AND {high}"
        case expression_nodes.Like():
            word = "ILIKE" if predicate.ignores_case else "LIKE"
            return f"{negation}{word} {_quoted(predicate.pattern)}"
        case expression_nodes.IsNull():
            return f"IS {negation}NULL"


def _case(case: expression_nodes.Case) -> str:
    branches = "".join(
        f" WHEN {render_expression(condition)} THEN {render_expression(value)}" for condition, value in case.branches
    )
    default = f" ELSE {render_expression(case.default)}" if case.default is not None else ""
    return f"CASE{branches}{default} END"


def _listed(expressions: tuple[expression_nodes.Expr, ...]) -> str:
    return ", ".join(map(render_expression, expressions))


def render_names(names: tuple[str, ...]) -> str:
    """Names separated by commas."""
    return ", ".join(map(quote_name, names))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- Rules, facts, declarations and actions


def render_declarations(ruleset: rules.Ruleset) -> Iterator[str]:
    """The streams, tables and facts, without `;`.

    >>> list(render_declarations(rules.Ruleset(facts=(rules.Fact("vip", (expression_nodes.Literal(7),)),))))
    ['FACT vip(7)']
    """
    yield from map(render_stream, ruleset.streams)
    yield from map(render_table, ruleset.tables)
    yield from map(render_fact, ruleset.facts)


def render_rule(rule: rules.Rule) -> str:
    """A rule on one line or, if it is long, with each item on its own line.

    >>> from ensue.text.parser import parse_statements
    >>> render_rule(parse_statements("rule late(id) :- o:order(id,_), q<10").ruleset.rules[0])
    'RULE late(id) <- o: order(id, _), q < 10'
    """
    head = f"RULE {quote_name(rule.head)}({', '.join(map(_head_argument, rule.arguments))}) <-"
    items = [render_item(item) for item in rule.body]
    clauses = (f" MATCH {rule.policy}" if rule.policy else "") + (" CONSUME" if rule.consume else "")
    text = f"{head} {', '.join(items)}{clauses}"
    if len(text) <= _LINE and "\n" not in text:
        return text
    listed = f",\n{_INDENT}".join(items)
    return f"{head}\n{_INDENT}{listed}{clauses}"


def render_item(item: rules.Item) -> str:
    """One item of a body.

    >>> render_item(rules.Temporal("o", "before", "s")), render_item(rules.Condition(expression_nodes.Call("late", ())))
    ('o before s', '(late())')
    """
    match item:
        case rules.Atom(name=None):
            return _atom(item, FUNCTIONS)
        case rules.Atom():
            return _atom(item, rules.TIMERS)
        case rules.TimerItem():
            length = render_window(item.window)
            return f"{quote_name(item.name)}: {item.kind}({quote_name(item.base)}, {length})"
        case rules.While():
            word = "collect" if item.collects else "not"
            return f"while {quote_name(item.interval)}: {word} {_atom(item.atom, ())}"
        case rules.Absent():
            return f"not {_atom(item.atom, FUNCTIONS)}"
        case rules.Together():
            return f"{{{render_names(item.names)}}} within {render_window(item.window)}"
        case rules.Temporal():
            return f"{quote_name(item.left)} {item.relation} {quote_name(item.right)}"
        case rules.Causes():
            return f"{quote_name(item.cause)} causes {quote_name(item.effect)}"
        case rules.Condition():
            return _item_condition(item.expression)
        case rules.Alternatives():
            return " OR ".join(map(_choice, item.choices))


def _choice(items: tuple[rules.Item, ...]) -> str:
    text = ", ".join(map(render_item, items))
    return text if len(items) == 1 else f"({text})"


def _item_condition(expression: expression_nodes.Expr) -> str:
    """A condition as an item: calls between its ANDs and ORs are in parentheses, because they would be events."""

    def has_call(part: expression_nodes.Expr) -> bool:
        if isinstance(part, expression_nodes.Binary) and part.operator in expression_nodes.CONNECTIVES:
            return has_call(part.left) or has_call(part.right)
        return isinstance(part, expression_nodes.Call) and part.name not in FUNCTIONS

    if not has_call(expression):
        return render_expression(expression)
    if isinstance(expression, expression_nodes.Call):
        return f"({render_expression(expression)})"
    assert isinstance(expression, expression_nodes.Binary)
    sides = (
        f"({_item_condition(side)})" if isinstance(side, expression_nodes.Binary) else _item_condition(side)
        for side in (expression.left, expression.right)
    )
    return f" {expression.operator.upper()} ".join(sides)


def render_fact(fact: rules.Fact) -> str:
    """A fact as a statement."""
    values = [render_expression(value) for value in fact.values]
    if fact.columns is not None:
        values = [f"{quote_name(column)}={value}" for column, value in zip(fact.columns, values, strict=True)]
    return f"FACT {quote_name(fact.table)}({', '.join(values)})"


def render_table(table: rules.TableDeclaration) -> str:
    """The declaration of a table as a statement."""
    return f"TABLE {quote_name(table.name)}({render_names(table.columns)})"


def render_stream(declaration: rules.StreamDeclaration) -> str:
    """The declaration of an input stream as a statement.

    >>> render_stream(rules.StreamDeclaration(None, None, "id", "parent"))
    'STREAM ANY EVENT ID id PARENT parent'
    """
    stream = "ANY EVENT" if declaration.stream is None else quote_name(declaration.stream)
    attributes = "" if declaration.attributes is None else f"({render_names(declaration.attributes)})"
    identity = "" if declaration.identity is None else f" ID {quote_name(declaration.identity)}"
    parent = "" if declaration.parent is None else f" PARENT {quote_name(declaration.parent)}"
    return f"STREAM {stream}{attributes}{identity}{parent}"


def render_action(action: rules.Action) -> str:
    """An action as a statement.

    >>> render_action(rules.Action("overdue", "o", "notify", ()))
    'ON overdue o DO notify()'
    """
    arguments = [_given(argument.expression, argument.parameter) for argument in action.arguments]
    on = f"ON {quote_name(action.stream)} {quote_name(action.variable)}"
    do = f"DO {quote_name(action.action)}({', '.join(arguments)})"
    if action.where is None:
        return f"{on} {do}"
    text = f"{on} WHERE {render_expression(action.where)} {do}"
    if len(text) <= _LINE:
        return text
    return f"{on}\n{_INDENT}WHERE {layout_condition(action.where)}\n{_INDENT}{do}"


def _atom(atom: rules.Atom, other_meanings: Container[str]) -> str:
    """An atom. The name of its stream is in backticks if it would be ambiguous."""
    label = "" if atom.name is None else f"{quote_name(atom.name)}: "
    quote = quote_always if atom.stream.lower() in other_meanings else quote_name
    return f"{label}{quote(atom.stream)}({', '.join(map(_argument, atom.arguments))})"


def _argument(argument: rules.Argument) -> str:
    attribute = "" if argument.attribute is None else f"{quote_name(argument.attribute)}="
    return attribute + _term(argument.term)


def _term(term: rules.Term) -> str:
    match term:
        case rules.Anything():
            return "_"
        case rules.Name("_"):
            return quote_always("_")
        case rules.Name(name):
            return quote_name(name)
        case expression_nodes.Literal():
            return render_expression(term)


def _head_argument(argument: rules.HeadArgument) -> str:
    return _given(argument.expression, argument.attribute)


def _given(expression: expression_nodes.Expr, name: str | None) -> str:
    text = render_expression(expression)
    if name is not None:
        return f"{quote_name(name)} = {text}"
    return f"({text})" if _looks_named(expression) else text


def _looks_named(expression: expression_nodes.Expr) -> bool:
    """Whether an expression starts like a named argument: `x = ...`."""
    match expression:
        case expression_nodes.Binary("=", expression_nodes.Field(None, asks_state=False)):
            return True
        case expression_nodes.Binary("and", expression_nodes.Binary("or")):
            return False  # in brackets
        case expression_nodes.Binary("and" | "or", left):
            return _looks_named(left)
        case _:
            return False


# --- States

_KEYWORDS = re.compile("ANYONE|EVERYONE|NOBODY|EVENLY|BY|COUNT", re.IGNORECASE)
_NUMBER = re.compile("[0-9]+")
_LOOSEST, _JOINED, _SINGLE = range(3)


def render_state(state: states.StateStatement) -> str:
    """A state as a statement, each clause on its own line.

    >>> from ensue.text.parser import parse_statements
    >>> text = "state s of a,b in (x,y) starts x on M m: move anyone from m.f to y"
    >>> print(render_state(parse_statements(text).states[0]))
    STATE s OF a, b IN (x, y)
      STARTS x
      ON M m: MOVE ANYONE FROM m.f TO y
    """
    variables = ", ".join(map(_name, state.variables))
    lines = [f"STATE {quote_name(state.name)} OF {variables} IN ({_values(state.values)})"]
    if state.partition_by:
        lines.append(f"PARTITION BY {render_names(state.partition_by)}")
    if state.starts:
        lines.append(f"STARTS {', '.join(map(_start, state.starts))}")
    lines += [
        f"ON {quote_name(response.stream)} {quote_name(response.variable)}: {render_change(response.change)}"
        for response in state.responses
    ]
    if state.drift is not None:
        lines.append(f"EVERY {render_window(state.drift.window)} {render_change(state.drift.change)}")
    return f"\n{_INDENT}".join(lines)


def render_change(change: states.Change) -> str:
    """How an event changes the state.

    >>> render_change(states.Observe(states.Someone("anyone"), states.Constant("den")))
    'OBSERVE ANYONE IN den'
    """
    match change:
        case states.Move():
            source = f" FROM {_place(change.source)}" if change.source is not None else ""
            share = f" PROBABILITY {render_expression(change.probability)}" if change.probability is not None else ""
            return f"MOVE {_who(change.who)}{source} TO {_place(change.target)}{share}"
        case states.Wander(states.Someone(word)) if word == states.EVERYONE:
            return f"MOVE BY {_arrows(change.arrows)}"
        case states.Wander():
            return f"MOVE {_who(change.who)} BY {_arrows(change.arrows)}"
        case states.Observe():
            text = f"OBSERVE {_who(change.who)} IN {_place(change.place)}"
            if change.reliability is not None:
                text += f" RELIABILITY {render_expression(change.reliability)}"
            if change.false_alarm is not None:
                text += f" FALSE ALARM {render_expression(change.false_alarm)}"
            return text + (f" ERRORS {_arrows(change.errors)}" if change.errors is not None else "")


def render_measure(measure: states.Measure) -> str:
    """A question whose answer is one value per key.

    >>> render_measure(states.ExpectedCount(states.Places(("outside",), negated=True)))
    'E(COUNT(NOT outside))'
    """
    match measure:
        case states.ProbabilityOf(condition, None):
            return f"P({render_state_condition(condition)})"
        case states.ProbabilityOf(condition, given):
            assert given is not None
            return f"P({render_state_condition(condition)} GIVEN {render_state_condition(given)})"
        case states.ExpectedCount():
            return f"E(COUNT({_places(measure.places)}))"
        case states.MostLikely():
            return f"MOST LIKELY({_name(measure.variable.name)})"


def render_state_condition(condition: states.StateCondition) -> str:
    """A condition on the state.

    >>> render_state_condition(states.NotSo(states.Location(states.Someone("anyone"), states.Places(("den", "bath")))))
    'NOT ANYONE IN (den, bath)'
    """
    return _condition(condition, _LOOSEST)


def _condition(condition: states.StateCondition, context: int) -> str:
    match condition:
        case states.Location():
            return f"{_who(condition.who)} IN {_places(condition.places)}"
        case states.CountTest():
            return f"COUNT({_places(condition.places)}) {condition.operator} {condition.number}"
        case states.NotSo():
            return f"NOT {_condition(condition.item, _SINGLE)}"
        case states.Both():
            text = f"{_condition(condition.left, _JOINED)} AND {_condition(condition.right, _SINGLE)}"
            return text if context <= _JOINED else f"({text})"
        case states.Either():
            text = f"{_condition(condition.left, _LOOSEST)} OR {_condition(condition.right, _JOINED)}"
            return text if context == _LOOSEST else f"({text})"


def _start(start: states.Start) -> str:
    whose = "" if start.variable is None else f"{_name(start.variable)}: "
    match start.chances:
        case None:
            return f"{whose}EVENLY"
        case (states.Chance(value, 1.0),):
            return whose + render_value(value)
        case chances:
            listed = (f"{render_value(chance.value)} {chance.probability!r}" for chance in chances)
            return f"{whose}({', '.join(listed)})"


def _arrows(arrows: Iterable[states.Arrow]) -> str:
    listed = (f"{render_value(a.source)} -> {render_value(a.target)} {a.probability!r}" for a in arrows)
    return f"({', '.join(listed)})"


def _who(who: states.Who) -> str:
    match who:
        case states.Someone(word):
            return word.upper()
        case states.Constant(name):
            return _name(name)
        case expression_nodes.Field():
            return render_expression(who)


def _place(place: states.Place) -> str:
    return render_value(place.name) if isinstance(place, states.Constant) else render_expression(place)


def _places(places: states.Places) -> str:
    listed = render_value(places.values[0]) if len(places.values) == 1 else f"({_values(places.values)})"
    return f"NOT {listed}" if places.negated else listed


def _values(values: Iterable[str]) -> str:
    return ", ".join(map(render_value, values))


def render_value(value: str) -> str:
    """A value of a domain as query text.

    >>> render_value("den"), render_value("7"), render_value("living room"), render_value("")
    ('den', '7', '`living room`', "''")
    """
    if not value:
        return "''"
    return value if _NUMBER.fullmatch(value) else _name(value)


def _name(name: str) -> str:
    return quote_always(name) if _KEYWORDS.fullmatch(name) else quote_name(name)
