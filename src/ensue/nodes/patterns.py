"""Patterns, queries and programs as the user wrote them: immutable values.

What each form means is the contract in docs/semantics.md; nothing here evaluates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ensue.errors import Source, Span
from ensue.nodes.expressions import Duration, Expr, Field
from ensue.nodes.names import Name, Stream

if TYPE_CHECKING:
    from ensue.nodes.constraints import ConstraintStatement
    from ensue.nodes.rules import Rule, Ruleset
    from ensue.nodes.states import StateStatement
    from ensue.nodes.uncertainty import HierarchyStatement, Threshold


@dataclass(frozen=True, slots=True)
class Ticks:
    """A window over integer time: `WITHIN 100`."""

    count: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Events:
    """A window over positions: `WITHIN 100 EVENTS`."""

    count: int
    span: Span | None = field(default=None, compare=False, repr=False)


Window = Duration | Ticks | Events


@dataclass(frozen=True, slots=True)
class Event:
    """`T v [p]`: an event of stream `T` that satisfies the local predicate, bound to `v` (None: not named).

    If a rule speaks of its attributes by position, `positions` are the names that its conditions have for them, in
    order, until the table says what they are called.
    """

    stream: Stream
    variable: Name | None = None
    predicate: Expr | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    positions: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def arity(self) -> int | None:
        """How many attributes the stream has to have, where a rule speaks of them by position."""
        return None if self.positions is None else len(self.positions)


@dataclass(frozen=True, slots=True)
class Seq:
    """`SEQ(x, y)`: each positive item strictly before the next.

    At the gaps `loose`, counted from zero, nothing is said about the order. Nobody writes that: it is how the question
    is put what the order has prevented.
    """

    items: tuple[Pattern, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    loose: frozenset[int] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """`AND(x, y)`: every positive item, in any order."""

    items: tuple[Pattern, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    """`OR(x, y)`: any one item."""

    items: tuple[Pattern, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CopyMark:
    """That a NOT or a collection is a copy of another one, with other names for the variables in and around it."""

    original: Not | Repeat
    names: Mapping[Name, Name]


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT x`, an item of SEQ or AND: no match of `x` in the scope of the item. A `loose` one forbids nothing."""

    item: Pattern
    span: Span | None = field(default=None, compare=False, repr=False)
    copied: CopyMark | None = field(default=None, compare=False, repr=False)
    loose: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Within:
    """`x WITHIN d` on a part of a pattern. A `loose` one closes scopes and limits nothing; nobody writes it."""

    item: Pattern
    window: Window
    span: Span | None = field(default=None, compare=False, repr=False)
    loose: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class NamedPattern:
    """`x AS name`: `name.s` and `name.e` can be used in conditions."""

    item: Pattern
    name: Name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """`FOLLOWS(x, y, 5 min)`, `ANY(2, x, y, z)` and the like: one of the operators in `ensue.nodes.patterns`.

    `window` is its duration and `count` its number, for those that take one. UNLESS(y)(x, z) has the items y, x, z.
    """

    operator: str
    items: tuple[Pattern, ...]
    window: Window | None = None
    count: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Repeat:
    """`x{m,n}`: so many matches of `x`, each before the next; with `every`, all of them in the scope of the item.

    `x+` is `x{1,} ALL`; `x*` and `COLLECT x` are `x{0,} ALL`. `most` None: no upper limit. What the variables `shares`
    bind may be listed too; nobody writes that.
    """

    item: Pattern
    least: int
    most: int | None
    every: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)
    copied: CopyMark | None = field(default=None, compare=False, repr=False)
    shares: tuple[Name, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Pick:
    """`FIRST x` or `LAST x`: for the same choice of the other items only the earliest or latest `x`.

    `contenders` is `x` before its branches were chosen; nobody writes it.
    """

    item: Pattern
    latest: bool
    contenders: Pattern | None = field(default=None, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)


class Place(NamedTuple):
    """The start ("s") or end ("e") of an item of a `RelatedItems`; the items -1, -2, ... are its timers."""

    item: int
    side: str


TIMER = -1
"""The first timer of a `RelatedItems`, as a place."""


@dataclass(frozen=True, slots=True)
class Relation:
    """`left - right <= window`, with `strict` `<`; no window: zero. With `adjacent`, `left` is the next position.

    `span` is where a rule says it, `words` how.
    """

    left: Place
    right: Place
    window: Window | None = None
    strict: bool = False
    adjacent: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)
    words: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Timer:
    """A moment that a pattern itself makes: a window after (or before) a place, or any multiple of it after."""

    name: Name
    base: Place
    window: Window
    repeated: bool = False
    backward: bool = False


@dataclass(frozen=True, slots=True)
class RelatedItems:
    """What an `Operation` means: items and the relations between their ends. Nobody writes it; see algebra.expand.

    Its interval is from the least start of the items `starts` to the greatest end of the items `ends`. A NOT or a
    collection among the items lies where its relations say. `rival`, an item that must be a first one after item 0:
    `contenders` is it before its branches were chosen. `moments` is the window of PERIODIC*. `first` and `last` are the
    items with the first and the last event, where that is settled. `origin` is what was written.
    """

    operator: str
    items: tuple[Pattern, ...]
    relations: tuple[Relation, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    timers: tuple[Timer, ...] = ()
    rival: int | None = None
    contenders: Pattern | None = None
    moments: Window | None = None
    first: int | None = None
    last: int | None = None
    origin: Pattern | None = field(default=None, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)


OfSeveral = Seq | And | Or | Operation | RelatedItems
"""What has several items."""

OfOne = Not | Within | NamedPattern | Repeat | Pick
"""What has one item."""

Pattern = Event | OfSeveral | OfOne


@dataclass(frozen=True, slots=True)
class Return:
    """One column of RETURN; without an alias a field is called by its own name."""

    expression: Expr
    alias: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


def column_name(column: Return, position: int) -> str:
    """What a column of RETURN is called: its alias, its field's name, or its number."""
    if column.alias is not None:
        return column.alias
    return column.expression.name if isinstance(column.expression, Field) else f"column_{position + 1}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of a table that does not change, which go with each match: one event for each of them.

    `on` pairs columns of RETURN with columns of the table that have to be equal and not null; `columns` are those of
    the table that are added, each with its name in the event. Nobody writes it; see algebra.rule_reader.
    """

    table: str
    on: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]


class Mark(Enum):
    """What an event of an operator under a context says of a variable, beside its fields."""

    BOUND = "?"
    """Whether it is bound: the variable of a branch may not be."""
    IDENTITY = "#"
    """Which event it is bound to."""


@dataclass(frozen=True, slots=True)
class CarriedColumn:
    """A column of the events of an operator under a context: a field of a variable below it, or a mark."""

    column: str
    variable: Name
    field: str | Mark


@dataclass(frozen=True, slots=True)
class PatternQuery:
    """`PATTERN name expression WHERE ... PARTITION BY ... WITHIN ... MATCH ... CONSUME HAVING ... RETURN ...`.

    `policy` is the word after MATCH, one of `ensue.nodes.patterns.POLICIES`; `consume` None: nothing was said. With
    `declares`, it is `STREAM name FROM PATTERN ...`: its matches are the events of a stream of this name. With `rule`
    it is what that rule means: several may declare one stream and use their own events, which are a set.
    `carries` says what its columns stand for if it is an operator under a context.
    """

    pattern: Pattern
    name: Stream | None = None
    where: Expr | None = None
    partition_by: tuple[str, ...] = ()
    within: Window | None = None
    returns: tuple[Return, ...] = ()
    policy: str | None = None
    consume: bool | None = None
    having: Threshold | None = None
    declares: bool = False
    rule: Rule | None = None
    lookup: Lookup | None = None
    carries: tuple[CarriedColumn, ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)
    policy_span: Span | None = field(default=None, compare=False, repr=False)
    partition_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Statements:
    """What one text or file holds: patterns and constraints in order, rules, levels of detail, and states."""

    statements: tuple[PatternQuery, ...]
    source: Source | None = field(default=None, compare=False, repr=False)
    constraints: tuple[ConstraintStatement, ...] = ()
    ruleset: Ruleset | None = None
    hierarchies: tuple[HierarchyStatement, ...] = ()
    states: tuple[StateStatement, ...] = ()

    @property
    def results(self) -> tuple[PatternQuery, ...]:
        """The patterns whose matches are wanted."""
        return tuple(query for query in self.statements if not query.declares)

    @property
    def heads(self) -> tuple[str, ...]:
        """The streams that rules derive, which are results as well."""
        return () if self.ruleset is None else self.ruleset.heads

    @property
    def declared(self) -> tuple[PatternQuery, ...]:
        """The patterns whose matches are the events of a stream."""
        return tuple(query for query in self.statements if query.declares)


AnyStatements = TypeVar("AnyStatements", bound=Statements)
"""Statements in the phase that they are in: what is checked stays so when it is lowered."""


def windows_of(pattern: Pattern) -> tuple[Window, ...]:
    """The lengths in time or positions that a part itself names, without those of its own parts."""
    match pattern:
        case Within():
            return (pattern.window,)
        case Operation():
            return () if pattern.window is None else (pattern.window,)
        case RelatedItems():
            limits = (relation.window for relation in pattern.relations if relation.window is not None)
            return (*limits, *(timer.window for timer in pattern.timers))
        case _:
            return ()


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """The direct parts of a pattern, from left to right."""
    if isinstance(pattern, Event):
        return ()
    return pattern.items if isinstance(pattern, OfSeveral) else (pattern.item,)


def with_children(pattern: Pattern, changed: tuple[Pattern, ...]) -> Pattern:
    """The pattern with other direct parts."""
    if isinstance(pattern, Event):
        return pattern
    return replace(pattern, items=changed) if isinstance(pattern, OfSeveral) else replace(pattern, item=changed[0])


def rewrite(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """The pattern with every part replaced, from left to right, the parts of a part before itself."""
    old = children(pattern)
    new = tuple(rewrite(child, change) for child in old)
    same = all(after is before for after, before in zip(new, old, strict=True))
    return change(pattern if same else with_children(pattern, new))


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and everything below it, outermost first."""
    waiting = [pattern]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += children(part)[::-1]


# --- The operators that are written as functions, and the policies that choose among matches: what each of them
#     takes.

UNRESTRICTED, RECENT, CHRONICLE = "UNRESTRICTED", "RECENT", "CHRONICLE"
CONTINUOUS, CUMULATIVE = "CONTINUOUS", "CUMULATIVE"
NEXT_MATCH, STRICT = "NEXT", "STRICT"

CONTEXTS = (RECENT, CHRONICLE, CONTINUOUS, CUMULATIVE)
"""The policies that apply at every operator of a pattern, one pair of operands after the other."""

POLICIES = (UNRESTRICTED, *CONTEXTS, NEXT_MATCH, STRICT)


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator takes, in the order of the text: a number, its patterns, a duration between or behind them.

    `parts` says what each pattern is for, in words. `window_at` is the place of the duration among the arguments.
    `forbidden` are the places of patterns that must not happen, `collected` of those of which a list is made: a match
    binds no single event for them.
    """

    name: str
    parts: tuple[str, ...]
    window_at: int | None = None
    counted: bool = False
    forbidden: tuple[int, ...] = ()
    collected: tuple[int, ...] = ()

    @property
    def any_number(self) -> bool:
        """True if it takes any number of patterns, not one for each part."""
        return self.counted


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("FOLLOWS", ("the first", "the second"), window_at=2),
        Operator("PRECEDES", ("the second", "the first"), window_at=2),
        Operator("NOTFOLLOWS", ("the event", "what must not follow"), window_at=2, forbidden=(1,)),
        Operator("NOTPRECEDES", ("the event", "what must not precede"), window_at=2, forbidden=(1,)),
        Operator("ANYONE", ("one", "the other")),
        Operator("BOTH", ("one", "the other"), window_at=2),
        Operator("ANY", ("an item",), counted=True),
        Operator("APERIODIC", ("the opening", "the event", "the closing"), forbidden=(2,)),
        Operator("APERIODIC*", ("the opening", "the events", "the closing"), collected=(1,)),
        Operator("PERIODIC", ("the opening", "the closing"), window_at=1, forbidden=(1,)),
        Operator("PERIODIC*", ("the opening", "the closing"), window_at=1),
        Operator("UNLESS", ("what must not lie between", "the first", "the second"), forbidden=(0,)),
        Operator("RELATIVE", ("the first", "the second")),
        Operator("RELATIVE+", ("the event",)),
        Operator("PRIOR", ("the first", "the second")),
        Operator("NEXT", ("the first", "the second")),
        Operator("SIMULTANEOUS", ("one", "the other")),
        Operator("CONCURRENT", ("one", "the other")),
    )
}
"""By name. PERIODIC may leave its closing out where a WITHIN ends it."""
