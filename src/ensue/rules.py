"""Items of a rule's body in Python: events, timers, what lies between them. Their texts are accepted in their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.errors import Problem, QueryError
from ensue.nodes import rules
from ensue.nodes.expressions import Binary, Expr, Field, Literal
from ensue.nodes.patterns import Events, Statements
from ensue.python.patterns import raise_any
from ensue.python.values import ConditionLike, Value, Variable, WindowLike, condition_node, value_node, window
from ensue.text.parser import parse_argument, parse_items
from ensue.text.render import render_statements
from ensue.text.render_parts import render_item
from ensue.text.rule_builder import (
    ARGUMENT_FORM,
    VALUE_FORM,
    RulesetStatement,
    mixed_arguments,
    ruleset_of,
    window_problem,
)

__all__ = [
    "RuleItem",
    "RuleStatement",
    "atom",
    "fact",
    "name",
    "on",
    "rule",
    "stream",
    "table",
    "timer",
    "together",
    "while_",
]


def __dir__() -> list[str]:
    return [*__all__]


@dataclass(frozen=True, slots=True)
class RuleItem:
    """An item of the body of a rule; `node` is what its text would parse to.

    >>> together("o", "s").within("2 hours")
    RuleItem("{o, s} within 2 hours")
    """

    node: rules.Item

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.to_text()}")'

    def to_text(self) -> str:
        """The item as text; it parses back to an equal item."""
        return render_item(self.node)


class Interval(RuleItem):
    """An item with a name and an interval, an event or a timer; it can be related to another one, or to its name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that other items use."""
        name = self.node.name if isinstance(self.node, rules.Atom | rules.TimerItem) else None
        if name is None:
            raise ValueError(f'`{self.to_text()}` has no name: give it one with .named("x")')
        return name

    def __getitem__(self, field: str) -> Value:
        """A field of the event, or the start `s` or end `e` of the interval."""
        return Value(Field(self.name, field))

    def before(self, other: IntervalLike) -> RuleItem:
        """It ends before the other one starts."""
        return self._related("before", other)

    def after(self, other: IntervalLike) -> RuleItem:
        """It starts after the other one ends."""
        return self._related("after", other)

    def meets(self, other: IntervalLike) -> RuleItem:
        """It ends when the other one starts."""
        return self._related("meets", other)

    def met_by(self, other: IntervalLike) -> RuleItem:
        """It starts when the other one ends."""
        return self._related("met_by", other)

    def overlaps(self, other: IntervalLike) -> RuleItem:
        """It starts first, and ends within the other one."""
        return self._related("overlaps", other)

    def overlapped_by(self, other: IntervalLike) -> RuleItem:
        """It starts within the other one, and ends last."""
        return self._related("overlapped_by", other)

    def starts(self, other: IntervalLike) -> RuleItem:
        """Both start together, and it ends first."""
        return self._related("starts", other)

    def started_by(self, other: IntervalLike) -> RuleItem:
        """Both start together, and it ends last."""
        return self._related("started_by", other)

    def during(self, other: IntervalLike) -> RuleItem:
        """It starts after the other one and ends before it."""
        return self._related("during", other)

    def contains(self, other: IntervalLike) -> RuleItem:
        """It starts before the other one and ends after it."""
        return self._related("contains", other)

    def finishes(self, other: IntervalLike) -> RuleItem:
        """Both end together, and it starts last."""
        return self._related("finishes", other)

    def finished_by(self, other: IntervalLike) -> RuleItem:
        """Both end together, and it starts first."""
        return self._related("finished_by", other)

    def equals(self, other: IntervalLike) -> RuleItem:
        """Both start together and end together."""
        return self._related("equals", other)

    def causes(self, other: IntervalLike) -> RuleItem:
        """A chain of parents leads from the other one to this one."""
        return RuleItem(rules.Causes(self.name, name_of(other)))

    def _related(self, relation: str, other: IntervalLike) -> RuleItem:
        return RuleItem(rules.Temporal(self.name, relation, name_of(other)))


IntervalLike = Interval | str


class AtomItem(Interval):
    """An event, or a row of a table, of the body of a rule."""

    __slots__ = ()

    def named(self, name: str) -> AtomItem:
        """The same under a name: `name: order(id)`."""
        return AtomItem(replace(self.atom, name=name))

    @property
    def atom(self) -> rules.Atom:
        """The node itself."""
        if not isinstance(self.node, rules.Atom):
            raise TypeError(f"{self.node!r} is not an atom")
        return self.node


def atom(stream: str, /, *arguments: object, **by_attribute: object) -> AtomItem:
    """An event of a stream, or a row of a table: `order(id, p, 5)` or `order(id=i, qty=q)`.

    A text is a name, and `"_"` anything; `ensue.fn.value("gold")` is a text to be equal to, a number itself.

    >>> atom("order", "id", "_", 5).named("o"), atom("vip", id="id", level=Value(Literal("gold")))
    (AtomItem("o: order(id, _, 5)"), AtomItem("vip(id=id, level='gold')"))
    """
    _check_text("atom", stream)
    raise_any(mixed_arguments([*(None for _ in arguments), *by_attribute]))
    listed = [rules.Argument(_term(argument)) for argument in arguments]
    listed += [rules.Argument(_term(argument), attribute) for attribute, argument in by_attribute.items()]
    return AtomItem(rules.Atom(stream, tuple(listed)))


def name(name: str) -> Value:
    """What a name of a rule is bound to, for its conditions and its head.

    >>> name("qty") * 2 < 10
    Value("qty * 2 < 10")
    """
    return Value(Field(None, name))


@dataclass(frozen=True, slots=True)
class TimerName:
    """The name of a timer that is yet to be described by one of its methods."""

    name: str

    def extend(self, item: IntervalLike, length: WindowLike) -> Interval:
        """From the start of an item or timer until so long after its end."""
        return self._timer("extend", item, length)

    def extend_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """From so long before the start of an item or timer until its end."""
        return self._timer("extend_backward", item, length)

    def shift(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, so much later."""
        return self._timer("shift", item, length)

    def shift_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, so much earlier."""
        return self._timer("shift_backward", item, length)

    def from_end(self, item: IntervalLike, length: WindowLike) -> Interval:
        """So long, from the end of an item or timer."""
        return self._timer("from_end", item, length)

    def from_end_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """So long, until the end of an item or timer."""
        return self._timer("from_end_backward", item, length)

    def from_start(self, item: IntervalLike, length: WindowLike) -> Interval:
        """So long, from the start of an item or timer."""
        return self._timer("from_start", item, length)

    def from_start_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """So long, until the start of an item or timer."""
        return self._timer("from_start_backward", item, length)

    def _timer(self, kind: str, item: IntervalLike, length: WindowLike) -> Interval:
        size = window(length)
        if isinstance(size, Events):
            raise QueryError([Problem("timer-length", "a timer lasts a time, not a number of events")])
        return Interval(rules.TimerItem(self.name, kind, name_of(item), size))


def timer(name: str) -> TimerName:
    """An interval relative to that of an item or of another timer.

    >>> timer("w").extend(atom("order", "id").named("o"), "6 hours")
    Interval("w: extend(o, 6 hours)")
    """
    _check_text("timer", name)
    return TimerName(name)


@dataclass(frozen=True, slots=True)
class Inside:
    """An interval that is yet to be said what lies in it."""

    interval: str

    def no(self, what: AtomItem | str) -> RuleItem:
        """Nothing like that lies in the interval: `while w: not shipped(id)`."""
        return RuleItem(rules.While(self.interval, _atom_of(what)))

    def collect(self, what: AtomItem | str) -> RuleItem:
        """Everything like that in the interval, as a list: `while w: collect c: shipped(id)`."""
        return RuleItem(rules.While(self.interval, _atom_of(what), collects=True))


def while_(interval: IntervalLike) -> Inside:
    """What lies in an interval, or does not.

    >>> while_("w").no(atom("shipped", "id", "_"))
    RuleItem("while w: not shipped(id, _)")
    """
    return Inside(name_of(interval))


@dataclass(frozen=True, slots=True)
class ItemGroup:
    """Items and timers that are yet to be put within a window."""

    names: tuple[str, ...]

    def within(self, size: WindowLike) -> RuleItem:
        """From the least start to the greatest end it is at most this."""
        span = window(size)
        if isinstance(span, Events):
            raise QueryError([window_problem(span)])
        return RuleItem(rules.Together(self.names, span))


def together(*items: IntervalLike) -> ItemGroup:
    """Items and timers that happen within a window: `{o, s} within 2 hours`.

    >>> together("o", "s", "w").within(5)
    RuleItem("{o, s, w} within 5")
    """
    if not items:
        raise ValueError("together takes at least one item")
    return ItemGroup(tuple(map(name_of, items)))


ItemLike = RuleItem | Value | rules.Item | Expr | str


def items_of(thing: ItemLike) -> tuple[rules.Item, ...]:
    """The items that a value or a text stands for."""
    match thing:
        case RuleItem():
            return (thing.node,)
        case str():
            return parse_items(thing)
        case _ if isinstance(thing, rules.Item):
            return (thing,)
        case Value():
            return (rules.Condition(thing.node),)
        case _ if isinstance(thing, Expr):
            return (rules.Condition(thing),)
    raise TypeError(
        f"a rule item must be a text, a condition, or built with `ensue.rules.atom` or the like, not {thing!r}"
    )


def name_of(item: IntervalLike) -> str:
    """The name of an item or timer, which may be given in its place."""
    if isinstance(item, Interval):
        return item.name
    _check_text("a relation", item)
    return item


def _atom_of(what: AtomItem | str) -> rules.Atom:
    if isinstance(what, AtomItem):
        return what.atom
    match items_of(what):
        case (rules.Atom() as found,):
            return found
    raise TypeError(f'what lies in an interval is an event, such as atom("shipped", "id"), not {what!r}')


def _term(argument: object) -> rules.Term:
    match argument:
        case str():
            return rules.Anything() if argument == "_" else rules.Name(argument)
        case Variable():
            raise TypeError(f"an argument is a name or a value, not the variable {argument!r}")
    match value_node(argument):
        case Field(None, bound):
            return rules.Name(bound)
        case Literal() as found:
            return found
    raise QueryError(
        [Problem("argument-form", ARGUMENT_FORM, hint="give it a name, and the rule a condition on the name")]
    )


def _check_text(function: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{function} takes a name, not {name!r}")


# --- Rules, facts, declarations and actions in Python, equal to those in text.


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
    arguments: tuple[rules.HeadArgument, ...]

    def when(self, *items: ItemLike) -> RuleStatement:
        """The rule with this body; texts are parsed, and may hold several items."""
        body = tuple(item for thing in items for item in items_of(thing))
        if not body:
            raise ValueError("a rule has at least one item; what always holds is a fact: ensue.rules.fact(...)")
        return RuleStatement(rules.Rule(self.name, self.arguments, body))


def rule(head: str, /, *arguments: object, **named: object) -> Head:
    """What a rule derives: `RULE head(arguments) <- ...`. Its body is given with `when`.

    A text is parsed, as in `"id"`, `"q * 2"` or `"total = sum(q)"`; `ensue.fn.value("gold")` is a text itself.

    >>> rule("late", "id", n="count(c)").when("o: order(id)", "while o: collect c: shipped(id)")
    RuleStatement("RULE late(id, n = count(c)) <- o: order(id), while o: collect c: shipped(id)")
    """
    _check_name("rule", head)
    return Head(head, tuple(rules.HeadArgument(*given) for given in _given(arguments, named)))


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
    return RuleStatement(rules.Fact(table, literals, tuple(by_column) or None))


def table(name: str, /, *columns: str) -> RuleStatement:
    """A table that does not change, with the columns that are used: `TABLE price(product, amount)`.

    >>> table("price", "product", "amount")
    RuleStatement("TABLE price(product, amount)")
    """
    _check_name("table", name, *columns)
    if not columns:
        raise ValueError("a table has at least one column")
    return RuleStatement(rules.TableDeclaration(name, columns))


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
    return RuleStatement(rules.StreamDeclaration(name, listed, id, parent))


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
        listed = tuple(rules.ActionArgument(*given) for given in _given(arguments, named))
        return RuleStatement(rules.Action(self.stream, self.variable, action, listed, self.condition))


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
