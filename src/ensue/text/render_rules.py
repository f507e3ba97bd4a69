"""Rules, facts, declarations and actions back to query text: `parse(render(x)) == x`."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ensue.expr.functions import FUNCTIONS
from ensue.nodes.expressions import Binary, Call, Expr, Field, Literal
from ensue.nodes.rules import (
    TIMERS,
    Action,
    Anything,
    Argument,
    Atom,
    Causes,
    Condition,
    Fact,
    HeadArgument,
    Item,
    Name,
    Rule,
    Ruleset,
    StreamDeclaration,
    TableDeclaration,
    Temporal,
    Term,
    TimerItem,
    Together,
    While,
)
from ensue.text.render_values import layout_condition, render_expression, render_names, render_window
from ensue.text.reserved import quote_always, quote_name

_LINE = 100
_INDENT = "  "


def render_declarations(ruleset: Ruleset) -> Iterator[str]:
    """The streams, tables and facts, without the `;` that ends each.

    >>> list(render_declarations(Ruleset(facts=(Fact("vip", (Literal(7),)),))))
    ['FACT vip(7)']
    """
    yield from map(render_stream, ruleset.streams)
    yield from map(render_table, ruleset.tables)
    yield from map(render_fact, ruleset.facts)


def render_rule(rule: Rule) -> str:
    """A rule, on one line if it is short, otherwise each item on a line of its own.

    >>> from ensue.text.parser import parse_statements
    >>> render_rule(parse_statements("rule late(id) :- o:order(id,_), q<10").ruleset.rules[0])
    'RULE late(id) <- o: order(id, _), q < 10'
    """
    head = f"RULE {quote_name(rule.head)}({', '.join(map(_head_argument, rule.arguments))}) <-"
    items = [render_item(item) for item in rule.body]
    text = f"{head} {', '.join(items)}"
    if len(text) <= _LINE and "\n" not in text:
        return text
    listed = f",\n{_INDENT}".join(items)
    return f"{head}\n{_INDENT}{listed}"


def render_item(item: Item) -> str:
    """One item of a body.

    >>> render_item(Temporal("o", "before", "s")), render_item(Condition(Call("late", ())))
    ('o before s', '(late())')
    """
    match item:
        case Atom(name=None):
            return _atom(item, FUNCTIONS)
        case Atom():
            return _atom(item, TIMERS)
        case TimerItem():
            length = render_window(item.window)
            return f"{quote_name(item.name)}: {item.kind}({quote_name(item.base)}, {length})"
        case While():
            word = "collect" if item.collects else "not"
            return f"while {quote_name(item.interval)}: {word} {_atom(item.atom, ())}"
        case Together():
            return f"{{{render_names(item.names)}}} within {render_window(item.window)}"
        case Temporal():
            return f"{quote_name(item.left)} {item.relation} {quote_name(item.right)}"
        case Causes():
            return f"{quote_name(item.cause)} causes {quote_name(item.effect)}"
        case Condition(Call(name) as call) if name not in FUNCTIONS:
            return f"({render_expression(call)})"
        case Condition():
            return render_expression(item.expression)


def render_fact(fact: Fact) -> str:
    """A fact as a statement."""
    values = [render_expression(value) for value in fact.values]
    if fact.columns is not None:
        values = [f"{quote_name(column)}={value}" for column, value in zip(fact.columns, values, strict=True)]
    return f"FACT {quote_name(fact.table)}({', '.join(values)})"


def render_table(table: TableDeclaration) -> str:
    """The declaration of a table as a statement."""
    return f"TABLE {quote_name(table.name)}({render_names(table.columns)})"


def render_stream(declaration: StreamDeclaration) -> str:
    """The declaration of a stream of the input as a statement.

    >>> render_stream(StreamDeclaration(None, None, "id", "parent"))
    'STREAM ANY EVENT ID id PARENT parent'
    """
    stream = "ANY EVENT" if declaration.stream is None else quote_name(declaration.stream)
    attributes = "" if declaration.attributes is None else f"({render_names(declaration.attributes)})"
    identity = "" if declaration.identity is None else f" ID {quote_name(declaration.identity)}"
    parent = "" if declaration.parent is None else f" PARENT {quote_name(declaration.parent)}"
    return f"STREAM {stream}{attributes}{identity}{parent}"


def render_action(action: Action) -> str:
    """An action as a statement.

    >>> render_action(Action("overdue", "o", "notify", ()))
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


def _atom(atom: Atom, other_meanings: Container[str]) -> str:
    """An atom; a stream that is called like something else that could stand there has backticks."""
    label = "" if atom.name is None else f"{quote_name(atom.name)}: "
    quote = quote_always if atom.stream.lower() in other_meanings else quote_name
    return f"{label}{quote(atom.stream)}({', '.join(map(_argument, atom.arguments))})"


def _argument(argument: Argument) -> str:
    attribute = "" if argument.attribute is None else f"{quote_name(argument.attribute)}="
    return attribute + _term(argument.term)


def _term(term: Term) -> str:
    match term:
        case Anything():
            return "_"
        case Name("_"):
            return quote_always("_")
        case Name(name):
            return quote_name(name)
        case Literal():
            return render_expression(term)


def _head_argument(argument: HeadArgument) -> str:
    return _given(argument.expression, argument.attribute)


def _given(expression: Expr, name: str | None) -> str:
    text = render_expression(expression)
    if name is not None:
        return f"{quote_name(name)} = {text}"
    return f"({text})" if _looks_named(expression) else text


def _looks_named(expression: Expr) -> bool:
    """Whether an expression begins like an argument with a name: `x = ...`."""
    match expression:
        case Binary("=", Field(None, asks_state=False)):
            return True
        case Binary("and", Binary("or")):
            return False  # in brackets
        case Binary("and" | "or", left):
            return _looks_named(left)
        case _:
            return False
