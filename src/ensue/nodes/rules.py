"""Rules, facts, tables, declared input streams and actions as the user wrote them: immutable values.

docs/semantics.md, section 8, defines the meaning of each form. `ensue.lower.rulesets` lowers rules to patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

from ensue.errors import Span
from ensue.nodes.expressions import Binary, Duration, Expr, Field, InTable, IsNull, Literal, columns_first, walk
from ensue.nodes.names import Ancestry, AnyEvent, Stream
from ensue.nodes.names import Name as VariableName
from ensue.nodes.patterns import Event, PatternQuery, Place, RelatedItems, Relation, Return, Ticks, Window

ALLEN = {
    "before": "after",
    "meets": "met_by",
    "overlaps": "overlapped_by",
    "starts": "started_by",
    "during": "contains",
    "finishes": "finished_by",
    "equals": "equals",
}
"""Allen's relations, each with its inverse."""

RELATIONS = frozenset(ALLEN) | frozenset(ALLEN.values())

_BACKWARD = {kind: f"{kind}_backward" for kind in ("extend", "shift", "from_end", "from_start")}

OTHER_WAY = _BACKWARD | {backward: kind for kind, backward in _BACKWARD.items()}
"""The timers, each with the one in the opposite direction."""

TIMERS = frozenset(OTHER_WAY)


@dataclass(frozen=True, slots=True)
class Name:
    """A name as an argument. All its occurrences have the same value."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Anything:
    """`_`."""

    span: Span | None = field(default=None, compare=False, repr=False)


Term = Name | Anything | Literal


@dataclass(frozen=True, slots=True)
class Argument:
    """`id` or `qty=q`: the name or value of the attribute at this position or with this name."""

    term: Term
    attribute: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Atom:
    """`o: order(id, p, q)`: an event or a row of a table. Either all arguments have an attribute name or none has."""

    stream: str
    arguments: tuple[Argument, ...]
    name: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimerItem:
    """`w: extend(o, 6h)`: an interval relative to that of an item or of another timer."""

    name: str
    kind: str
    base: str
    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class While:
    """`while w: not q(...)` or, with `collects`, `while w: collect q(...)`: the events strictly inside an interval."""

    interval: str
    atom: Atom
    collects: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Absent:
    """`not blocked(ip)`: no row of a table has these values."""

    atom: Atom
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Together:
    """`{o, s} within 2h`."""

    names: tuple[str, ...]
    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Temporal:
    """`o before s`: one of RELATIONS between the intervals of two items or timers."""

    left: str
    relation: str
    right: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Causes:
    """`x causes y`."""

    cause: str
    effect: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Condition:
    """`q * p < 10`: a bare name is a `Field` without a variable."""

    expression: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """`a: login(id) OR (b: reset(id), q < 3)`: the items of one of several choices. `alternatives` creates it."""

    choices: tuple[tuple[Item, ...], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Item = Atom | TimerItem | While | Absent | Together | Temporal | Causes | Condition | Alternatives


def alternatives(choices: Iterable[tuple[Item, ...]], span: Span | None = None) -> Item:
    """The item for two or more choices joined by OR, in the form that its text has, without ORs directly in a choice.

    >>> one, two = Atom("a", ()), Atom("b", ())
    >>> alternatives([(one,), (alternatives([(two,), (one, two)]),)]) == alternatives([(one,), (two,), (one, two)])
    True
    """
    found = [part for choice in choices for part in _spliced(choice)]
    conditions = [item.expression for choice in found for item in choice if isinstance(item, Condition)]
    if len(conditions) == len(found) == sum(map(len, found)):
        return Condition(reduce(lambda left, right: Binary("or", left, right, span), conditions), span)
    return Alternatives(tuple(found), span)


def _spliced(choice: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
    match choice:
        case (Alternatives(choices),):
            return choices
        case (Condition(Binary("or", left, right)),):
            return (*_spliced((Condition(left, left.span),)), *_spliced((Condition(right, right.span),)))
    return (choice,)


def all_items(body: Iterable[Item]) -> Iterator[Item]:
    """The items of a body and of its alternatives, at any depth."""
    for item in body:
        if isinstance(item, Alternatives):
            for choice in item.choices:
                yield from all_items(choice)
        else:
            yield item


def choices_of(body: tuple[Item, ...]) -> Iterator[tuple[tuple[Item, ...], tuple[Item, ...]]]:
    """The bodies without alternatives that a body stands for, each with the items that were chosen.

    >>> a, b, c = Atom("a", ()), Atom("b", ()), Atom("c", ())
    >>> [[item.stream for item in body] for body, _ in choices_of((alternatives([(a,), (b,)]), c))]
    [['a', 'c'], ['b', 'c']]
    """
    place = next((place for place, item in enumerate(body) if isinstance(item, Alternatives)), None)
    if place is None:
        yield body, ()
        return
    item = body[place]
    assert isinstance(item, Alternatives)
    for choice in item.choices:
        for rest, chosen in choices_of((*body[:place], *choice, *body[place + 1 :])):
            yield rest, (*(part for part in choice if not isinstance(part, Alternatives)), *chosen)


def number_of_choices(body: Iterable[Item]) -> int:
    """How many bodies without alternatives a body stands for."""
    each = (sum(map(number_of_choices, item.choices)) for item in body if isinstance(item, Alternatives))
    return prod(each)


@dataclass(frozen=True, slots=True)
class HeadArgument:
    """`id`, `p * 2` or `total = p * 2`."""

    expression: Expr
    attribute: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """`RULE head(arguments) <- body MATCH RECENT`, or `... CONSUME`; `policy` is the word after MATCH."""

    head: str
    arguments: tuple[HeadArgument, ...]
    body: tuple[Item, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    policy: str | None = None
    consume: bool = False
    policy_span: Span | None = field(default=None, compare=False, repr=False)


def names_first(rule: Rule) -> Rule:
    """Read `x.y` as field `y` of the value `x` if an argument binds `x`, unless an item has that name."""
    items = [item.atom if isinstance(item, While) else item for item in all_items(rule.body)]
    atoms = [item for item in items if isinstance(item, Atom)]
    named = {item.name for item in items if isinstance(item, Atom | TimerItem)}
    bound = {argument.term.name for atom in atoms for argument in atom.arguments if isinstance(argument.term, Name)}
    values = bound - named - {atom.stream for atom in atoms if atom.name is None}

    def read(expression: Expr) -> Expr:
        return columns_first(expression, lambda name: name in values)

    def read_item(item: Item) -> Item:
        if isinstance(item, Alternatives):
            return replace(item, choices=tuple(tuple(map(read_item, choice)) for choice in item.choices))
        return replace(item, expression=read(item.expression)) if isinstance(item, Condition) else item

    arguments = tuple(replace(part, expression=read(part.expression)) for part in rule.arguments)
    return replace(rule, arguments=arguments, body=tuple(map(read_item, rule.body)))


def atoms_of(rule: Rule) -> tuple[Atom, ...]:
    """The events and rows in the body of a rule, including absent and listed ones."""
    items = (item.atom if isinstance(item, While | Absent) else item for item in all_items(rule.body))
    return tuple(item for item in items if isinstance(item, Atom))


def lookups_of(rule: Rule) -> tuple[InTable, ...]:
    """Every `x IN table` of a rule."""
    values = [argument.expression for argument in rule.arguments]
    values += [item.expression for item in all_items(rule.body) if isinstance(item, Condition)]
    return tuple(part for value in values for part in walk(value) if isinstance(part, InTable))


def used_by(rule: Rule) -> frozenset[str]:
    """The streams and tables that a rule uses."""
    return frozenset((*(atom.stream for atom in atoms_of(rule)), *(lookup.table for lookup in lookups_of(rule))))


@dataclass(frozen=True, slots=True)
class Fact:
    """`FACT vip(7)` or `FACT vip(id=7)`: a row of a table."""

    table: str
    values: tuple[Literal, ...]
    columns: tuple[str, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """`TABLE price(product, amount)`: a static table, and the columns that are used, in order."""

    name: str
    columns: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """`STREAM span(id, parent, name) ID id PARENT parent`: the attributes of an input stream, in order.

    `stream` None is ANY EVENT, whose attributes have no order; `attributes` None: no attributes are declared.
    """

    stream: str | None
    attributes: tuple[str, ...] | None = None
    identity: str | None = None
    parent: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ActionArgument:
    """`o.id` or `order = o.id`."""

    expression: Expr
    parameter: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Action:
    """`ON overdue o WHERE o.qty > 5 DO notify(o.id)`: a call for each event of a head or declared stream."""

    stream: str
    variable: str
    action: str
    arguments: tuple[ActionArgument, ...]
    where: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The rules, facts, tables, input streams and actions of a program, each kind in the order of the text."""

    rules: tuple[Rule, ...] = ()
    facts: tuple[Fact, ...] = ()
    tables: tuple[TableDeclaration, ...] = ()
    streams: tuple[StreamDeclaration, ...] = ()
    actions: tuple[Action, ...] = ()
    given_tables: frozenset[str] = field(init=False, compare=False, repr=False)
    """The tables that have a TABLE or FACTs."""
    derived_tables: frozenset[str] = field(init=False, compare=False, repr=False)
    """The heads whose rules use no events, directly or through other heads, in a program with tables."""

    def __post_init__(self) -> None:
        given = frozenset((*(entry.name for entry in self.tables), *(fact.table for fact in self.facts)))
        object.__setattr__(self, "given_tables", given)
        object.__setattr__(self, "derived_tables", _derived_tables(self.rules, given))

    def __bool__(self) -> bool:
        return any((self.rules, self.facts, self.tables, self.streams, self.actions))

    @property
    def heads(self) -> tuple[str, ...]:
        """The streams that rules derive, in the order of the text."""
        return tuple(dict.fromkeys(rule.head for rule in self.event_rules))

    @property
    def event_rules(self) -> tuple[Rule, ...]:
        """The rules that derive events."""
        return tuple(rule for rule in self.rules if rule.head not in self.derived_tables)

    @property
    def table_rules(self) -> tuple[Rule, ...]:
        """The rules that derive rows of tables."""
        return tuple(rule for rule in self.rules if rule.head in self.derived_tables)


def _derived_tables(rules: tuple[Rule, ...], given: frozenset[str]) -> frozenset[str]:
    """The heads that reach no event."""
    uses: dict[str, set[str]] = {}
    for rule in rules if given else ():
        uses.setdefault(rule.head, set()).update(atom.stream for atom in atoms_of(rule))
    events = {head for head, used in uses.items() if used - given - uses.keys()}
    while more := {head for head, used in uses.items() if used & events} - events:
        events |= more
    return frozenset(uses.keys() - events)


def without_alternatives(ruleset: Ruleset) -> Ruleset:
    """The ruleset with one rule for each choice of the alternatives of a body."""
    rules = (replace(rule, body=body) for rule in ruleset.rules for body, _ in choices_of(rule.body))
    return replace(ruleset, rules=tuple(rules))


# --- Causality: the lowering of `x causes y`

EDGES, CHAINS = Ancestry("parents"), Ancestry("chains")
"""The stream of events with a parent, and the stream of chains of parents."""


@dataclass(frozen=True, slots=True)
class CauseItem:
    """A chain as an item of a rule, and its conditions on cause and effect."""

    event: Event
    conditions: tuple[Expr, ...]


def cause_item(item: Causes, variable: VariableName, cause: Stream, effect: Stream, ruleset: Ruleset) -> CauseItem:
    """The chain that leads from one event to another; `cause` and `effect` are their streams."""
    of_cause, of_effect = identified(cause, ruleset), identified(effect, ruleset)
    assert of_cause is not None and of_cause.identity is not None
    assert of_effect is not None and of_effect.parent is not None
    conditions = (
        Binary("=", Field(variable, "first"), Field(item.cause, of_cause.identity), item.span),
        Binary("=", Field(variable, "last"), Field(item.effect, of_effect.parent), item.span),
        Binary("=", Field(variable, "first_end"), Field(item.cause, "e"), item.span),
        Binary("<=", Field(variable, "last_start"), Field(item.effect, "s"), item.span),
    )
    return CauseItem(Event(CHAINS, variable, span=item.span), conditions)


def identified(stream: Stream, ruleset: Ruleset) -> StreamDeclaration | None:
    """The declaration of the ID and PARENT columns of a stream."""
    own = [entry for entry in ruleset.streams if entry.stream == stream and entry.identity is not None]
    everyone = [entry for entry in ruleset.streams if entry.stream is None]
    return next(iter([*own, *everyone]), None)


def cause_statements(ruleset: Ruleset) -> Iterator[PatternQuery]:
    """The statements that declare the chains, if a rule uses `causes`."""
    uses = [(rule, item) for rule in ruleset.rules for item in rule.body if isinstance(item, Causes)]
    if not uses:
        return
    for entry in ruleset.streams:
        if entry.identity is not None:
            yield _edge(entry)
    limits = [_window_of(rule, item) for rule, item in uses]
    yield from _chains(None if None in limits else max((window for window in limits if window), key=_length))


def _length(window: Window) -> int:
    return window.nanoseconds if isinstance(window, Duration) else window.count


def _window_of(rule: Rule, causes: Causes) -> Window | None:
    """The maximum duration of a chain, if the rule limits it."""
    pair = {causes.cause, causes.effect}
    windows = [item.window for item in rule.body if isinstance(item, Together) and pair <= set(item.names)]
    return min((window for window in windows if isinstance(window, Duration | Ticks)), key=_length, default=None)


def _edge(entry: StreamDeclaration) -> PatternQuery:
    assert entry.identity is not None
    stream = entry.stream if entry.stream is not None else AnyEvent()
    child = Field("v", entry.identity)
    parent = Literal(None) if entry.parent is None else Field("v", entry.parent)
    return PatternQuery(
        Event(stream, "v", span=entry.span),
        EDGES,
        where=IsNull(child, negated=True),
        returns=(Return(child, "child"), Return(parent, "parent")),
        declares=True,
        rule=Rule(str(EDGES), (), (), entry.span),
        span=entry.span,
    )


def _chains(window: Window | None) -> Iterator[PatternQuery]:
    link = Field("c", "child")
    yield PatternQuery(
        Event(EDGES, "c"),
        CHAINS,
        returns=(
            Return(link, "first"),
            Return(link, "last"),
            Return(Field("c", "e"), "first_end"),
            Return(Field("c", "s"), "last_start"),
        ),
        declares=True,
        rule=Rule(str(CHAINS), (), ()),
    )
    follows = Relation(Place(0, "e"), Place(1, "e"))
    bounded = (Relation(Place(1, "e"), Place(0, "s"), window),) if window is not None else ()
    yield PatternQuery(
        RelatedItems("causes", (Event(CHAINS, "p"), Event(EDGES, "c")), (follows, *bounded), (0,), (1,)),
        CHAINS,
        where=Binary(
            "and",
            Binary("=", Field("p", "last"), Field("c", "parent")),
            Binary("<=", Field("p", "last_start"), Field("c", "s")),
        ),
        returns=(
            Return(Field("p", "first"), "first"),
            Return(link, "last"),
            Return(Field("p", "first_end"), "first_end"),
            Return(Field("c", "s"), "last_start"),
        ),
        declares=True,
        rule=Rule(str(CHAINS), (), ()),
    )
