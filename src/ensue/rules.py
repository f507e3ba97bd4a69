"""Rules, facts, tables, streams and actions in Python, and the items of a rule. A text is accepted for each item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ensue.errors import Problem, QueryError
from ensue.nodes import rules
from ensue.nodes.expressions import Binary, Expr, Field, Literal
from ensue.nodes.patterns import Events, Statements
from ensue.python.patterns import raise_any
from ensue.python.values import ConditionLike, Value, Variable, WindowLike, condition_node, value_node, window
from ensue.text.operands import policy_problems
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
    "either",
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
    """An item of the body of a rule; `node` is the parsed form of its text.

    >>> together("o", "s").within("2h")
    RuleItem("{o, s} within 2h")
    """

    node: rules.Item

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.to_text()}")'

    def to_text(self) -> str:
        """The item as text, which parses to an equal item."""
        return render_item(self.node)


class Interval(RuleItem):
    """An event or a timer: an item with a name and an interval. Its methods relate it to another item or its name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that other items use."""
        name = self.node.name if isinstance(self.node, rules.Atom | rules.TimerItem) else None
        if name is None:
            raise ValueError(f'`{self.to_text()}` has no name: add one with .named("x")')
        return name

    def __getitem__(self, field: str) -> Value:
        """A field of the event, or the start `s` or end `e` of the interval."""
        return Value(Field(self.name, field))

    def before(self, other: IntervalLike) -> RuleItem:
        """This item ends before the other one starts."""
        return self._related("before", other)

    def after(self, other: IntervalLike) -> RuleItem:
        """This item starts after the other one ends."""
        return self._related("after", other)

    def meets(self, other: IntervalLike) -> RuleItem:
        """This item ends when the other one starts."""
        return self._related("meets", other)

    def met_by(self, other: IntervalLike) -> RuleItem:
        """This item starts when the other one ends."""
        return self._related("met_by", other)

    def overlaps(self, other: IntervalLike) -> RuleItem:
        """This item starts first and ends during the other one."""
        return self._related("overlaps", other)

    def overlapped_by(self, other: IntervalLike) -> RuleItem:
        """This item starts during the other one and ends last."""
        return self._related("overlapped_by", other)

    def starts(self, other: IntervalLike) -> RuleItem:
        """Both start at the same time, and this item ends first."""
        return self._related("starts", other)

    def started_by(self, other: IntervalLike) -> RuleItem:
        """Both start at the same time, and this item ends last."""
        return self._related("started_by", other)

    def during(self, other: IntervalLike) -> RuleItem:
        """This item starts after the other one and ends before it."""
        return self._related("during", other)

    def contains(self, other: IntervalLike) -> RuleItem:
        """This item starts before the other one and ends after it."""
        return self._related("contains", other)

    def finishes(self, other: IntervalLike) -> RuleItem:
        """Both end at the same time, and this item starts last."""
        return self._related("finishes", other)

    def finished_by(self, other: IntervalLike) -> RuleItem:
        """Both end at the same time, and this item starts first."""
        return self._related("finished_by", other)

    def equals(self, other: IntervalLike) -> RuleItem:
        """Both start at the same time and end at the same time."""
        return self._related("equals", other)

    def causes(self, other: IntervalLike) -> RuleItem:
        """This item causes the other one: a chain of parents leads from the other one to this one."""
        return RuleItem(rules.Causes(self.name, name_of(other)))

    def _related(self, relation: str, other: IntervalLike) -> RuleItem:
        return RuleItem(rules.Temporal(self.name, relation, name_of(other)))


IntervalLike = Interval | str


class AtomItem(Interval):
    """An event or a row of a table in the body of a rule."""

    __slots__ = ()

    def named(self, name: str) -> AtomItem:
        """The item with a name: `name: order(id)`."""
        return AtomItem(replace(self.atom, name=name))

    def __invert__(self) -> RuleItem:
        """No row of a table has these values: `not blocked(ip)`."""
        return RuleItem(rules.Absent(self.atom))

    @property
    def atom(self) -> rules.Atom:
        """The node itself."""
        if not isinstance(self.node, rules.Atom):
            raise TypeError(f"expected an atom, found {self.node!r}")
        return self.node


def atom(stream: str, /, *arguments: object, **by_attribute: object) -> AtomItem:
    """An event of a stream or a row of a table: `order(id, p, 5)` or `order(id=i, qty=q)`.

    A text is a name, and `"_"` matches any value. For a literal text, use `ensue.fn.value("gold")`.

    >>> atom("order", "id", "_", 5).named("o"), atom("vip", id="id", level=Value(Literal("gold")))
    (AtomItem("o: order(id, _, 5)"), AtomItem("vip(id=id, level='gold')"))
    """
    _check_text("atom", stream)
    raise_any(mixed_arguments([*(None for _ in arguments), *by_attribute]))
    listed = [rules.Argument(_term(argument)) for argument in arguments]
    listed += [rules.Argument(_term(argument), attribute) for attribute, argument in by_attribute.items()]
    return AtomItem(rules.Atom(stream, tuple(listed)))


def name(name: str) -> Value:
    """The value of a name of a rule, for its conditions and its head.

    >>> name("qty") * 2 < 10
    Value("qty * 2 < 10")
    """
    return Value(Field(None, name))


@dataclass(frozen=True, slots=True)
class TimerName:
    """The name of a timer. Its methods define the timer."""

    name: str

    def extend(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, extended by `length` after its end."""
        return self._timer("extend", item, length)

    def extend_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, extended by `length` before its start."""
        return self._timer("extend_backward", item, length)

    def shift(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, moved later by `length`."""
        return self._timer("shift", item, length)

    def shift_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of an item or timer, moved earlier by `length`."""
        return self._timer("shift_backward", item, length)

    def from_end(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of length `length` after the end of an item or timer."""
        return self._timer("from_end", item, length)

    def from_end_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of length `length` before the end of an item or timer."""
        return self._timer("from_end_backward", item, length)

    def from_start(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of length `length` after the start of an item or timer."""
        return self._timer("from_start", item, length)

    def from_start_backward(self, item: IntervalLike, length: WindowLike) -> Interval:
        """The interval of length `length` before the start of an item or timer."""
        return self._timer("from_start_backward", item, length)

    def _timer(self, kind: str, item: IntervalLike, length: WindowLike) -> Interval:
        size = window(length)
        if isinstance(size, Events):
            message = "the length of a timer must be a duration, not a number of events"
            raise QueryError([Problem("timer-length", message)])
        return Interval(rules.TimerItem(self.name, kind, name_of(item), size))


def timer(name: str) -> TimerName:
    """An interval relative to an item or another timer.

    >>> timer("w").extend(atom("order", "id").named("o"), "6h")
    Interval("w: extend(o, 6h)")
    """
    _check_text("timer", name)
    return TimerName(name)


@dataclass(frozen=True, slots=True)
class Inside:
    """An interval. Its methods forbid or collect events inside it."""

    interval: str

    def no(self, what: AtomItem | str) -> RuleItem:
        """No such event is in the interval: `while w: not shipped(id)`."""
        return RuleItem(rules.While(self.interval, _atom_of(what)))

    def collect(self, what: AtomItem | str) -> RuleItem:
        """All such events in the interval, as a list: `while w: collect c: shipped(id)`."""
        return RuleItem(rules.While(self.interval, _atom_of(what), collects=True))


def while_(interval: IntervalLike) -> Inside:
    """Forbid or collect events in an interval.

    >>> while_("w").no(atom("shipped", "id", "_"))
    RuleItem("while w: not shipped(id, _)")
    """
    return Inside(name_of(interval))


@dataclass(frozen=True, slots=True)
class ItemGroup:
    """Items and timers. `within` limits their total duration."""

    names: tuple[str, ...]

    def within(self, size: WindowLike) -> RuleItem:
        """The time from the first start to the last end is at most `size`."""
        span = window(size)
        if isinstance(span, Events):
            raise QueryError([window_problem(span)])
        return RuleItem(rules.Together(self.names, span))


def together(*items: IntervalLike) -> ItemGroup:
    """Items and timers that happen within a window: `{o, s} within 2h`.

    >>> together("o", "s", "w").within(5)
    RuleItem("{o, s, w} within 5")
    """
    if not items:
        raise ValueError("together takes at least one item")
    return ItemGroup(tuple(map(name_of, items)))


def either(*choices: ItemLike | Sequence[ItemLike]) -> RuleItem:
    """One of several choices, each an item or a list of items: `a: login(id) OR (b: reset(id), q < 3)`.

    >>> either("a: login(id)", ["b: reset(id, q)", name("q") < 3])
    RuleItem("a: login(id) OR (b: reset(id, q), q < 3)")
    """
    listed: list[Sequence[ItemLike]] = []
    for choice in choices:
        listed.append(choice if isinstance(choice, list | tuple) else [choice])  # type: ignore[list-item]
    bodies = [tuple(item for thing in choice for item in items_of(thing)) for choice in listed]
    if len(bodies) < 2 or not all(bodies):
        raise ValueError("either takes at least two choices, and each choice at least one item")
    return RuleItem(rules.alternatives(bodies))


ItemLike = RuleItem | Value | rules.Item | Expr | str


def items_of(thing: ItemLike) -> tuple[rules.Item, ...]:
    """The items of a value or a text."""
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
        f"a rule item must be a text, a condition, or built with the functions of `ensue.rules`, not {thing!r}"
    )


def name_of(item: IntervalLike) -> str:
    """The name of an item or timer, or the name itself."""
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
    raise TypeError(f'expected an event, such as atom("shipped", "id"), found {what!r}')


def _term(argument: object) -> rules.Term:
    match argument:
        case str():
            return rules.Anything() if argument == "_" else rules.Name(argument)
        case Variable():
            raise TypeError(f"an argument must be a name or a value, not the variable {argument!r}")
    match value_node(argument):
        case Field(None, bound):
            return rules.Name(bound)
        case Literal() as found:
            return found
    raise QueryError(
        [Problem("argument-form", ARGUMENT_FORM, hint="use a name here and add a condition on that name to the rule")]
    )


def _check_text(function: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{function} takes a name, not {name!r}")


# --- Rules, facts, declarations and actions


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """A rule, fact, declaration or action as a value; `node` is the parsed form of its text.

    >>> fact("vip", 7, "gold")
    RuleStatement("FACT vip(7, 'gold')")
    """

    node: RulesetStatement

    def __repr__(self) -> str:
        return f'RuleStatement("{self.to_text()}")'

    def match(self, policy: str) -> RuleStatement:
        """The rule with a policy that selects among its matches: `MATCH RECENT`.

        >>> rule("pair", "x").when("a: A(x)", "b: B(x)", "a before b").match("recent")
        RuleStatement("RULE pair(x) <- a: A(x), b: B(x), a before b MATCH RECENT")
        """
        _check_text("match", policy)
        raise_any(policy_problems(policy))
        return RuleStatement(replace(self._rule, policy=policy.upper()))

    def consume(self) -> RuleStatement:
        """The rule with each event used in at most one of its matches: `CONSUME`."""
        return RuleStatement(replace(self._rule, consume=True))

    @property
    def _rule(self) -> rules.Rule:
        if not isinstance(self.node, rules.Rule):
            raise TypeError(f"expected a rule, found `{self.to_text()}`")
        return self.node

    def to_text(self) -> str:
        """The statement as text, which parses to an equal statement."""
        return render_statements(Statements((), ruleset=ruleset_of([self.node]))).removesuffix(";\n")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a rule. `when` adds the body."""

    name: str
    arguments: tuple[rules.HeadArgument, ...]

    def when(self, *items: ItemLike) -> RuleStatement:
        """The rule with this body. Texts are parsed and can contain several items."""
        body = tuple(item for thing in items for item in items_of(thing))
        if not body:
            raise ValueError("a rule needs at least one item; for a row without a time, use ensue.rules.fact(...)")
        return RuleStatement(rules.names_first(rules.Rule(self.name, self.arguments, body)))


def rule(head: str, /, *arguments: object, **named: object) -> Head:
    """The head of a rule: `RULE head(arguments) <- ...`. Add the body with `when`.

    A text is parsed, as in `"id"`, `"q * 2"` or `"total = sum(q)"`. For a literal text, use `ensue.fn.value("gold")`.

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
    literals = tuple(_literal(value) for value in (values or by_column.values()))
    return RuleStatement(rules.Fact(table, literals, tuple(by_column) or None))


def table(name: str, /, *columns: str) -> RuleStatement:
    """A static table with the columns that are used: `TABLE price(product, amount)`.

    >>> table("price", "product", "amount")
    RuleStatement("TABLE price(product, amount)")
    """
    _check_name("table", name, *columns)
    if not columns:
        raise ValueError("table takes at least one column")
    return RuleStatement(rules.TableDeclaration(name, columns))


def stream(
    name: str | None = None, /, *attributes: str, id: str | None = None, parent: str | None = None
) -> RuleStatement:
    """Declare the attributes of a stream in order, its id column and its parent column: `STREAM span(id) ID id`.

    Without a name, the declaration applies to all events. Without attributes, it does not define their order.

    >>> stream("span", "id", "parent", id="id", parent="parent")
    RuleStatement("STREAM span(id, parent) ID id PARENT parent")
    >>> stream(id="id", parent="parent")
    RuleStatement("STREAM ANY EVENT ID id PARENT parent")
    """
    _check_name("stream", *(text for text in (name, *attributes, id, parent) if text is not None))
    says_causes = id is not None or parent is not None
    if name is None and not says_causes:
        raise ValueError("stream takes the name of a stream, or `id` and `parent` for all events")
    listed = None if not attributes and says_causes else attributes
    return RuleStatement(rules.StreamDeclaration(name, listed, id, parent))


@dataclass(frozen=True, slots=True)
class Reaction:
    """The events of an action. `do` sets the action."""

    stream: str
    variable: str
    condition: Expr | None = None

    def where(self, *conditions: ConditionLike) -> Reaction:
        """Add conditions that the events must satisfy."""
        condition = self.condition
        for text in conditions:
            node = condition_node(text)
            condition = node if condition is None else Binary("and", condition, node)
        return replace(self, condition=condition)

    def do(self, action: str, /, *arguments: object, **named: object) -> RuleStatement:
        """Call an action with these arguments. Texts are parsed, as in `"o.id"`."""
        _check_name("do", action)
        listed = tuple(rules.ActionArgument(*given) for given in _given(arguments, named))
        return RuleStatement(rules.Action(self.stream, self.variable, action, listed, self.condition))


def on(stream: str, variable: str) -> Reaction:
    """Call an action for each event of a head or declared stream: `ON overdue o DO ...`.

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
        raise QueryError([Problem("argument-form", f"{VALUE_FORM}, but is {value!r}")])
    return node


def _check_name(function: str, *names: object) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{function} takes names, not {name!r}")
