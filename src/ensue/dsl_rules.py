"""Rules, facts, declarations and actions in Python, equal to those in text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.errors import Problem, QueryError
from ensue.nodes.expressions import Binary, Expr, Literal
from ensue.nodes.patterns import Statements
from ensue.nodes.rules import (
    Action,
    ActionArgument,
    Fact,
    HeadArgument,
    Rule,
    StreamDeclaration,
    TableDeclaration,
)
from ensue.python.patterns import raise_any
from ensue.python.values import ConditionLike, condition_node, value_node
from ensue.rules import ItemLike, items_of
from ensue.text.parser import parse_argument
from ensue.text.render import render_statements
from ensue.text.rule_arguments import VALUE_FORM, mixed_arguments
from ensue.text.rule_builder import RulesetStatement, ruleset_of


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """A rule, fact, declaration or action as a value; `node` is what its text would parse to.

    >>> fact("vip", 7, "gold")
    RuleStatement("FACT vip(7, 'gold')")
    """

    node: RulesetStatement

    def __repr__(self) -> str:
        return f'RuleStatement("{self.to_text()}")'

    def to_text(self) -> str:
        """The statement as text; it parses back to an equal one."""
        return render_statements(Statements((), ruleset=ruleset_of([self.node]))).removesuffix(";\n")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a rule that has no body yet."""

    name: str
    arguments: tuple[HeadArgument, ...]

    def when(self, *items: ItemLike) -> RuleStatement:
        """The rule with this body; texts are parsed, and may hold several items."""
        body = tuple(item for thing in items for item in items_of(thing))
        if not body:
            raise ValueError("a rule has at least one item; what always holds is a fact: ensue.fact(...)")
        return RuleStatement(Rule(self.name, self.arguments, body))


def rule(head: str, /, *arguments: object, **named: object) -> Head:
    """What a rule derives: `RULE head(arguments) <- ...`. Its body is given with `when`.

    A text is parsed, as in `"id"`, `"q * 2"` or `"total = sum(q)"`; `ensue.value("gold")` is a text itself.

    >>> rule("late", "id", n="count(c)").when("o: order(id)", "while o: collect c: shipped(id)")
    RuleStatement("RULE late(id, n = count(c)) <- o: order(id), while o: collect c: shipped(id)")
    """
    _check_name("rule", head)
    return Head(head, tuple(HeadArgument(*given) for given in _given(arguments, named)))


def fact(table: str, /, *values: object, **by_column: object) -> RuleStatement:
    """A row of a table: `FACT vip(7, 'gold')` or `FACT vip(id=7, level='gold')`.

    >>> fact("vip", id=7, level="gold")
    RuleStatement("FACT vip(id=7, level='gold')")
    """
    _check_name("fact", table)
    raise_any(mixed_arguments([*(None for _ in values), *by_column]))
    if not values and not by_column:
        raise ValueError("a fact has at least one value")
    literals = tuple(_literal(value) for value in (values or by_column.values()))
    return RuleStatement(Fact(table, literals, tuple(by_column) or None))


def table(name: str, /, *columns: str) -> RuleStatement:
    """A table that does not change, with the columns that are used: `TABLE price(product, amount)`.

    >>> table("price", "product", "amount")
    RuleStatement("TABLE price(product, amount)")
    """
    _check_name("table", name, *columns)
    if not columns:
        raise ValueError("a table has at least one column")
    return RuleStatement(TableDeclaration(name, columns))


def stream(
    name: str | None = None, /, *attributes: str, id: str | None = None, parent: str | None = None
) -> RuleStatement:
    """The attributes of a stream in order, and which column identifies an event and names its cause.

    Without a name it is about all events. With `id` or `parent` and no attributes, it says nothing of their order.

    >>> stream("span", "id", "parent", id="id", parent="parent")
    RuleStatement("STREAM span(id, parent) ID id PARENT parent")
    >>> stream(id="id", parent="parent")
    RuleStatement("STREAM ANY EVENT ID id PARENT parent")
    """
    _check_name("stream", *(text for text in (name, *attributes, id, parent) if text is not None))
    says_causes = id is not None or parent is not None
    if name is None and not says_causes:
        raise ValueError("stream takes the name of a stream, or `id` and `parent` of all events")
    listed = None if not attributes and says_causes else attributes
    return RuleStatement(StreamDeclaration(name, listed, id, parent))


@dataclass(frozen=True, slots=True)
class Reaction:
    """The events that an action is for; `do` says what it is."""

    stream: str
    variable: str
    condition: Expr | None = None

    def where(self, *conditions: ConditionLike) -> Reaction:
        """Only those that satisfy every condition as well."""
        condition = self.condition
        for text in conditions:
            node = condition_node(text)
            condition = node if condition is None else Binary("and", condition, node)
        return replace(self, condition=condition)

    def do(self, action: str, /, *arguments: object, **named: object) -> RuleStatement:
        """Calls an action with these arguments; texts are parsed, as in `"o.id"`."""
        _check_name("do", action)
        listed = tuple(ActionArgument(*given) for given in _given(arguments, named))
        return RuleStatement(Action(self.stream, self.variable, action, listed, self.condition))


def on(stream: str, variable: str) -> Reaction:
    """Every event of a head or declared stream calls an action.

    >>> on("overdue", "o").where("o.qty > 5").do("notify", "o.id", urgent=True)
    RuleStatement("ON overdue o WHERE o.qty > 5 DO notify(o.id, urgent = TRUE)")
    """
    _check_name("on", stream, variable)
    return Reaction(stream, variable)


def _given(arguments: tuple[object, ...], named: dict[str, object]) -> Iterator[tuple[Expr, str | None]]:
    for argument in arguments:
        if isinstance(argument, str):
            expression, name, _ = parse_argument(argument)
            yield expression, name
        else:
            yield value_node(argument), None
    for name, argument in named.items():
        yield condition_node(argument) if isinstance(argument, str) else value_node(argument), name


def _literal(value: object) -> Literal:
    node = value_node(value)
    if not isinstance(node, Literal):
        raise QueryError([Problem("argument-form", f"{VALUE_FORM}, not {value!r}")])
    return node


def _check_name(function: str, *names: object) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{function} takes names, not {name!r}")
