"""Section 8: what the body of a rule says, tried on every choice of events and rows. Free of engine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import groupby, product
from typing import Any

from inside import (
    Absent,
    Atom,
    Call,
    Causes,
    Condition,
    Events,
    Expr,
    Field,
    Item,
    Literal,
    Rule,
    Temporal,
    Ticks,
    TimerItem,
    Together,
    While,
    Window,
)
from inside import BoundName as Name
from oracle.choices import read_event
from oracle.conditions import Lists, Lookup, Value, evaluate, holds, same
from oracle.model import OracleEvent, Span
from oracle.tree import AGGREGATES, Anonymous, conjuncts_of, mentions

BOUND = Anonymous(("bound",))
"""The home of the names that events and rows bind: a variable that no rule can write."""

ALLEN: dict[str, Callable[[Span, Span], bool]] = {
    "before": lambda x, y: x.e < y.s,
    "meets": lambda x, y: x.e == y.s,
    "overlaps": lambda x, y: x.s < y.s < x.e < y.e,
    "starts": lambda x, y: x.s == y.s and x.e < y.e,
    "during": lambda x, y: y.s < x.s and x.e < y.e,
    "finishes": lambda x, y: x.e == y.e and y.s < x.s,
    "equals": lambda x, y: x.s == y.s and x.e == y.e,
}
TURNED = {
    "after": "before",
    "met_by": "meets",
    "overlapped_by": "overlaps",
    "started_by": "starts",
    "contains": "during",
    "finished_by": "finishes",
}
TIMERS: dict[str, Callable[[Span, int], Span]] = {
    "extend": lambda o, d: Span(o.s, o.e + d),
    "extend_backward": lambda o, d: Span(o.s - d, o.e),
    "shift": lambda o, d: Span(o.s + d, o.e + d),
    "shift_backward": lambda o, d: Span(o.s - d, o.e - d),
    "from_end": lambda o, d: Span(o.e, o.e + d),
    "from_end_backward": lambda o, d: Span(o.e - d, o.e),
    "from_start": lambda o, d: Span(o.s, o.s + d),
    "from_start_backward": lambda o, d: Span(o.s - d, o.s),
}


def relates(relation: str, x: Span, y: Span) -> bool:
    """One of Allen's thirteen relations."""
    return ALLEN[TURNED[relation]](y, x) if relation in TURNED else ALLEN[relation](x, y)


def timed(kind: str, base: Span, length: int) -> Span:
    return TIMERS[kind](base, length)


def length_of(window: Window) -> int:
    if isinstance(window, Events):
        raise TypeError("rules have no windows in EVENTS")
    return window.count if isinstance(window, Ticks) else window.nanoseconds


# What a rule can bind


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, `number` among its rows. It has no time."""

    table: str
    number: int
    fields: dict[str, Value] = field(hash=False)


Bindable = OracleEvent | Row


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a body can speak about, up to the stratum at hand.

    `attributes` are those of streams and tables in declared order, `causes` holds the pairs of event ids.
    """

    events: Sequence[OracleEvent]
    tables: Mapping[str, Sequence[Row]]
    attributes: Mapping[str, Sequence[str]]
    causes: frozenset[tuple[int, int]] = frozenset()

    def of(self, atom: Atom) -> Sequence[Bindable]:
        if atom.stream in self.tables:
            return self.tables[atom.stream]
        return [event for event in self.events if event.stream == atom.stream]

    def values(self, atom: Atom, thing: Bindable) -> list[Value]:
        """What stands in the places of the atom's arguments."""
        if all(argument.attribute is not None for argument in atom.arguments):
            return [thing.fields.get(argument.attribute) for argument in atom.arguments]
        attributes = self.attributes[atom.stream]
        if len(attributes) != len(atom.arguments):
            raise ValueError(f"{atom.stream} has {len(attributes)} attributes")
        return [thing.fields.get(attribute) for attribute in attributes]


def read(thing: Bindable, attribute: str) -> Value:
    """`o.attribute`: a field of an event or row, or a time of an event."""
    return thing.fields.get(attribute) if isinstance(thing, Row) else read_event(thing, attribute)


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of things for the body's items, with the intervals of its items and timers, and what is listed."""

    names: dict[str, Value]
    things: dict[str, Bindable]
    spans: dict[str, Span]
    lists: dict[str, tuple[Choice, ...]]

    @property
    def interval(self) -> Span:
        return Span(min(span.s for span in self.spans.values()), max(span.e for span in self.spans.values()))

    @property
    def events(self) -> list[OracleEvent]:
        """Every event that is bound or listed."""
        bound = [thing for thing in self.things.values() if isinstance(thing, OracleEvent)]
        listed = [event for elements in self.lists.values() for element in elements for event in element.events]
        return bound + listed


class Body:
    """The body of a rule: who its names belong to, and every choice that fits."""

    def __init__(self, rule: Rule, facts: Facts) -> None:
        self.rule, self.facts = rule, facts

    def of(self, kind: type[Any]) -> list[Any]:
        return [item for item in self.rule.body if isinstance(item, kind)]

    # Names

    @cached_property
    def atoms(self) -> dict[str | Anonymous, Atom]:
        """The items that bind something, by their names."""
        atoms = [item for item in self.rule.body if isinstance(item, Atom)]
        return {atom.name or Anonymous((number,)): atom for number, atom in enumerate(atoms)}

    @cached_property
    def whiles(self) -> dict[str | Anonymous, While]:
        return {item.atom.name or Anonymous(("while", number)): item for number, item in enumerate(self.of(While))}

    @cached_property
    def places(self) -> Counter[str]:
        """In how many places of arguments each name stands."""
        everywhere = [*self.atoms.values(), *(item.atom for item in (*self.whiles.values(), *self.of(Absent)))]
        return Counter(name for atom in everywhere for name in names_of(atom))

    @cached_property
    def home(self) -> dict[str, str | Anonymous]:
        """What each name belongs to: what is bound, or the one `while` that has it."""
        homes = {name: BOUND for atom in self.atoms.values() for name in names_of(atom)}
        for key, item in self.whiles.items():
            for name in set(names_of(item.atom)) - homes.keys():
                homes[name] = key
        for first, second in product(self.whiles, repeat=2):
            shared = set(names_of(self.whiles[first].atom)) & set(names_of(self.whiles[second].atom))
            if first != second and any(homes[name] != BOUND for name in shared):
                raise ValueError(f"{shared} are of two that do not know each other")
        return homes

    def resolved(self, expr: Expr) -> Expr:
        """The expression with the home of every name; an item's own name stays alone, as in `count(c)`."""

        def change(node: Any) -> Any:
            if isinstance(node, tuple):
                return tuple(map(change, node))
            if isinstance(node, Field):
                alone = node.variable is None and node.name in self.home
                return replace(node, variable=self.home[node.name]) if alone else node
            if not is_dataclass(node):
                return node
            return replace(node, **{item.name: change(getattr(node, item.name)) for item in fields(node)})

        return change(expr)

    @cached_property
    def conditions(self) -> list[Expr]:
        return [self.resolved(conjunct) for item in self.of(Condition) for conjunct in conjuncts_of(item.expression)]

    def owner(self, conjunct: Expr) -> str | None:
        """The `while` that a conjunct narrows; None: it is about the choice."""
        owners = {name for name, in_aggregate in mentions(conjunct) if name in self.whiles and not in_aggregate}
        if len(owners) > 1:
            raise ValueError("a condition about two that do not know each other")
        return next(iter(owners), None)

    # Choices

    def choices(self) -> Iterator[Choice]:
        """Every choice of events and rows that fits, with what it lists; conditions are judged for each group of it."""
        for things, names in self.bound({}, {}, list(self.atoms)):
            if self.binds_different(things):
                choice = Choice(names, things, self.spans_of(things), {})
                if self.fits(choice):
                    yield self.with_lists(choice)

    def bound(
        self, things: dict[str, Bindable], names: dict[str, Value], left: list[str]
    ) -> Iterator[tuple[dict[str, Bindable], dict[str, Value]]]:
        if not left:
            yield things, names
            return
        key, atom = left[0], self.atoms[left[0]]
        for thing in self.facts.of(atom):
            more = self.agreed(atom, thing, names)
            if more is not None:
                yield from self.bound(things | {key: thing}, more, left[1:])

    def agreed(self, atom: Atom, thing: Bindable, names: dict[str, Value]) -> dict[str, Value] | None:
        """The names with those that the atom binds by this event or row; None where they do not agree."""
        names = dict(names)
        for argument, value in zip(atom.arguments, self.facts.values(atom, thing), strict=True):
            match argument.term:
                case Literal(value=wanted):
                    if not same([wanted, value]):
                        return None
                case Name(name=name):
                    if self.places[name] > 1 and not same([names.get(name, value), value]):
                        return None
                    names[name] = value if same([value]) else None
        return names

    def binds_different(self, things: dict[str, Bindable]) -> bool:
        ids = [thing.id for thing in things.values() if isinstance(thing, OracleEvent)]
        return len(set(ids)) == len(ids)

    def spans_of(self, things: dict[str, Bindable]) -> dict[str, Span]:
        spans = {key: Span(thing.s, thing.e) for key, thing in things.items() if isinstance(thing, OracleEvent)}
        waiting = self.of(TimerItem)
        while waiting:
            known = [timer for timer in waiting if timer.base in spans]
            for timer in known:
                spans[timer.name] = timed(timer.kind, spans[timer.base], length_of(timer.window))
            if not known:
                raise ValueError("a timer has no base")
            waiting = [timer for timer in waiting if timer not in known]
        return spans

    def fits(self, choice: Choice) -> bool:
        return all(self.item_holds(item, choice) for item in self.rule.body)

    def item_holds(self, item: Item, choice: Choice) -> bool:
        """What an item says of the choice by itself; conditions and lists come later."""
        spans = choice.spans
        match item:
            case Temporal():
                return relates(item.relation, spans[item.left], spans[item.right])
            case Together():
                inside = [spans[name] for name in item.names]
                return max(span.e for span in inside) - min(span.s for span in inside) <= length_of(item.window)
            case Causes():
                return (choice.things[item.cause].id, choice.things[item.effect].id) in self.facts.causes
            case Absent():
                rows = self.facts.tables[item.atom.stream]
                return all(self.agreed(item.atom, row, choice.names) is None for row in rows)
            case While(collects=False):
                return not self.inside(next(key for key, one in self.whiles.items() if one is item), choice)
        return True

    def inside(self, key: str, choice: Choice) -> list[Choice]:
        """What lies in the interval of a `while` and agrees with the choice, in the order of time and arrival."""
        item = self.whiles[key]
        around = choice.spans[item.interval]
        taken = {thing.id for thing in choice.things.values() if isinstance(thing, OracleEvent)}
        narrowing = [conjunct for conjunct in self.conditions if self.owner(conjunct) == key]
        found = []
        for event in self.facts.of(item.atom):
            if event.id in taken or not (around.s < event.s and event.e < around.e):
                continue
            names = self.agreed(item.atom, event, choice.names)
            if names is None:
                continue
            element = Choice(names, {key: event}, {key: Span(event.s, event.e)}, {})
            if all(holds(conjunct, self.lookup(choice, {key: element})) for conjunct in narrowing):
                found.append(element)
        return sorted(found, key=lambda element: (element.spans[key].s, element.spans[key].e, element.things[key].id))

    def with_lists(self, choice: Choice) -> Choice:
        lists = {key: tuple(self.inside(key, choice)) for key, item in self.whiles.items() if item.collects}
        return replace(choice, lists=lists)

    def judged(self, conjunct: Expr, choice: Choice) -> bool:
        """A condition of the choice; those that narrow something have been looked at there."""
        return self.owner(conjunct) is not None or holds(conjunct, self.lookup(choice), self.lists(choice))

    # Values

    def lookup(self, choice: Choice, elements: Mapping[str, Choice] | None = None) -> Lookup:
        """Reads `variable.name`, with one element for each of these lists."""
        inner = elements or {}

        def value(variable: str | None, name: str) -> Value:
            if variable in inner:
                element = inner[variable]
                is_own_name = self.home.get(name) == variable
                return element.names[name] if is_own_name else read(element.things[variable], name)
            if variable == BOUND:
                return choice.names[name]
            if variable in choice.things:
                return read(choice.things[variable], name)
            span = choice.spans[variable]
            return {"s": span.s, "t": span.s, "e": span.e}[name]

        return value

    def lists(self, choice: Choice) -> Lists:
        def elements(names: set[str]) -> list[Lookup]:
            (key,) = names & choice.lists.keys()
            return [self.lookup(choice, {key: element}) for element in choice.lists[key]]

        return Lists(elements)

    # The head

    def heads(
        self, choose: Callable[[Body, Sequence[Choice]], Sequence[Choice]]
    ) -> Iterator[tuple[tuple[Value, ...], Choice]]:
        """The values of the head's arguments for every choice that fits and is chosen, and for every group of it."""
        expressions = [self.resolved(argument.expression) for argument in self.rule.arguments]
        found = [
            (group, values)
            for choice in self.choices()
            for group, values in self.groups(expressions, choice)
            if all(self.judged(conjunct, group) for conjunct in self.conditions)
        ]
        kept = choose(self, [group for group, _ in found])
        for group, values in found:
            if any(group is one for one in kept):
                lookup, lists = self.lookup(group, values), self.lists(group)
                yield tuple(evaluate(expression, lookup, lists) for expression in expressions), group

    def groups(self, expressions: list[Expr], choice: Choice) -> Iterator[tuple[Choice, dict[str, Choice]]]:
        """The choice with the lists of one group each, and an element of each that has the group's values."""
        grouping: dict[str, list[str]] = {}
        for expression in expressions:
            for key, name in fields_outside_of_aggregates(expression):
                if key in choice.lists:
                    grouping.setdefault(key, []).append(name)
        grouped = [
            [(key, elements) for elements in in_groups(choice.lists[key], names)] for key, names in grouping.items()
        ]
        for combination in product(*grouped):
            lists = choice.lists | dict(combination)
            yield replace(choice, lists=lists), {key: elements[0] for key, elements in combination}


def names_of(atom: Atom) -> list[str]:
    """The names in the places of its arguments, one for each place."""
    return [argument.term.name for argument in atom.arguments if isinstance(argument.term, Name)]


def fields_outside_of_aggregates(expr: Any) -> Iterator[tuple[str | None, str]]:
    if isinstance(expr, Field):
        yield expr.variable, expr.name
    elif not (isinstance(expr, Call) and expr.name in AGGREGATES) and is_dataclass(expr):
        for item in fields(expr):
            yield from fields_outside_of_aggregates(getattr(expr, item.name))
    elif isinstance(expr, tuple):
        for part in expr:
            yield from fields_outside_of_aggregates(part)


def fields_in(expr: Any) -> list[tuple[str | None, str]]:
    """The fields of an expression."""
    if isinstance(expr, Field):
        return [(expr.variable, expr.name)]
    if isinstance(expr, tuple):
        return [field for part in expr for field in fields_in(part)]
    return (
        [field for item in fields(expr) for field in fields_in(getattr(expr, item.name))] if is_dataclass(expr) else []
    )


def in_groups(elements: Sequence[Choice], names: Sequence[str]) -> list[tuple[Choice, ...]]:
    """The elements with the same values of these names, nulls being the same, each group in the order of the list."""

    def key(element: Choice) -> tuple[tuple[bool, str], ...]:
        return tuple((element.names[name] is None, str(element.names[name])) for name in names)

    return [tuple(group) for _, group in groupby(sorted(elements, key=key), key)]
