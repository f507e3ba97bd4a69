"""Events, matches, and choices of events that may become matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oracle.conditions import Value
from oracle.tree import Path, is_inside


@dataclass(frozen=True, slots=True)
class OracleEvent:
    """An event; `id` is its place in the order of arrival.

    An event of a declared stream has `origins`: the events of the input below it. An event of the input is `also` an
    event of some streams of rows, where it has the same id and `is_selected`. `order` are the values of its order
    columns; None: it has none.
    """

    id: int
    stream: str
    s: int
    e: int
    fields: dict[str, Value] = field(default_factory=dict, hash=False)
    origins: tuple[OracleEvent, ...] | None = None
    order: tuple[Value, ...] | None = None
    is_selected: bool = False
    also: frozenset[str] = frozenset()

    @property
    def span(self) -> Span:
        return Span(self.s, self.e, ((self.s, self.order),), ((self.e, self.order),))

    @property
    def is_declared(self) -> bool:
        return self.origins is not None

    @property
    def rank(self) -> tuple[object, ...]:
        """Its place in the order of (end, start, content); of equal ends and starts, the order columns decide."""
        values = values_in_order(self.order)
        return self.e, values, self.s, values, *self.content

    @property
    def content(self) -> tuple[object, ...]:
        """What orders events of the same interval: the stream, then the values of all columns, by column name.

        Events of declared streams come in an order of their own.
        """
        columns = {} if self.is_declared else {**self.fields, "id": self.id}
        named = tuple(columns[name] for name in sorted(columns))
        return self.stream, values_in_order(named), self.id


Kind = TypeVar("Kind")
Bound = int | tuple[int | None, ...]
"""What a variable binds: the id of an event; for a list the ids in order, None where an element does not bind it."""


@dataclass(frozen=True, slots=True)
class OracleMatch:
    """A match: what it binds, the OR branches it took as (path of the OR, item), its interval and completion.

    `moments` are those of PERIODIC and PERIODIC*, by the path of the operator. `columns` are those of RETURN, lists as
    tuples; `origins` the events of the input that it binds or lists, at any depth, in the order of time. With SUPPRESS,
    `suppressed` is the number of matches that were suppressed before it.
    """

    bindings: tuple[tuple[str, Bound], ...]
    branch: tuple[tuple[Path, int], ...]
    start: int
    end: int
    completion: float
    moments: tuple[tuple[Path, tuple[int, ...]], ...] = ()
    columns: dict[str, Value] = field(default_factory=dict, compare=False)
    origins: tuple[OracleEvent, ...] = field(default=(), compare=False)
    suppressed: int | None = None


Instant = tuple[int, tuple[Value, ...] | None]
"""A time, and the values that order the events at this time."""


def values_in_order(order: tuple[Value, ...] | None) -> tuple[object, ...]:
    """Values that compare like order columns: null comes first, and so does an event without them."""
    return () if order is None else tuple((value is not None, value if value is not None else 0) for value in order)


class ElementOrder(tuple[Value, ...]):
    """The order of an element of a list: the order columns of its row, and its position. `of` is the list; `has_row`
    tells whether the row has order columns (null otherwise)."""

    of: object
    has_row: bool

    def __new__(cls, values: tuple[Value, ...], of: object, has_row: bool) -> ElementOrder:
        made = super().__new__(cls, values)
        made.of, made.has_row = of, has_row
        return made


def are_ordered(x: tuple[Value, ...] | None, y: tuple[Value, ...] | None) -> bool:
    """Whether these order columns decide between events at the same time; elements of different lists tie."""
    if x is None or y is None:
        return False
    if isinstance(x, ElementOrder) and isinstance(y, ElementOrder):
        return x.of == y.of
    return all(order.has_row for order in (x, y) if isinstance(order, ElementOrder))


def precedes(x: Instant, y: Instant, ties: bool = False) -> bool:
    """Whether one is before the other; where one has no order, the times alone decide. `ties` allows equal ones."""
    if not are_ordered(x[1], y[1]):
        return x[0] < y[0] or (ties and x[0] == y[0])
    one, other = (x[0], values_in_order(x[1])), (y[0], values_in_order(y[1]))
    return one < other or (ties and one == other)


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of time, from one of the instants `firsts` to one of the instants `lasts`."""

    s: int
    e: int
    firsts: tuple[Instant, ...] = field(default=(), compare=False)
    lasts: tuple[Instant, ...] = field(default=(), compare=False)

    def is_before(self, other: Span, ties: bool = False) -> bool:
        return all(
            precedes(x, y, ties) for x in self.lasts or ((self.e, None),) for y in other.firsts or ((other.s, None),)
        )

    def ends_before(self, other: Span) -> bool:
        """Whether it ends earlier. The order decides between two last events, otherwise only the times do."""
        if len(self.lasts) == len(other.lasts) == 1:
            return precedes(self.lasts[0], other.lasts[0])
        return self.e < other.e


def hull(spans: Sequence[Span], in_sequence: bool = False) -> Span:
    """From the earliest start to the latest end; in a sequence the first one is first and the last one last."""
    first, last = (spans[:1], spans[-1:]) if in_sequence else (spans, spans)
    return Span(
        min(span.s for span in spans),
        max(span.e for span in spans),
        tuple(instant for span in first for instant in span.firsts),
        tuple(instant for span in last for instant in span.lasts),
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of events for the positive events of a part: not yet checked against conditions and negations.

    `spans` holds the interval of every part that the choice matches, `branch` the item taken of every OR (of ANY the
    number of the choice), `moments` the times of PERIODIC and PERIODIC*. `rounds` are the elements of each `x{m,n}`, by
    scope; their bindings and intervals are their own. `collected` are the elements of each collection: they bind
    nothing that another variable could not bind too.
    """

    bindings: dict[str, OracleEvent] = field(default_factory=dict)
    spans: dict[Path, Span] = field(default_factory=dict)
    branch: dict[Path, int] = field(default_factory=dict)
    moments: dict[Path, tuple[int, ...]] = field(default_factory=dict)
    rounds: dict[Path, tuple[Candidate, ...]] = field(default_factory=dict)
    collected: dict[Path, tuple[Candidate, ...]] = field(default_factory=dict)

    def uses(self) -> Mapping[object, OracleEvent]:
        """Every event that the choice binds, by what binds it: a variable, or one in a certain round."""
        if not self.rounds:
            return self.bindings
        in_rounds = {
            (scope, number, variable): event
            for scope, elements in self.rounds.items()
            for number, element in enumerate(elements)
            for variable, event in element.bindings.items()
        }
        return self.bindings | in_rounds

    def events(self) -> list[OracleEvent]:
        return list(self.uses().values())

    def with_span(self, path: Path, span: Span) -> Candidate:
        return replace(self, spans=self.spans | {path: span})

    def lists(self) -> dict[Path, tuple[Candidate, ...]]:
        """The elements of every list, chosen or collected."""
        return self.rounds | self.collected

    def outside(self, path: Path, names: set[str]) -> Candidate:
        """The choice without what it binds at or below the path; `names` are the variables there."""
        return Candidate(
            {name: event for name, event in self.bindings.items() if name not in names},
            _outside(self.spans, path),
            _outside(self.branch, path),
            _outside(self.moments, path),
            _outside(self.rounds, path),
            _outside(self.collected, path),
        )


def _outside(by_path: dict[Path, Kind], path: Path) -> dict[Path, Kind]:
    return {place: value for place, value in by_path.items() if not is_inside(place, path)}


def join(left: Candidate, right: Candidate) -> Candidate | None:
    """Both choices in one: one variable is one event, two variables are two events. None if that cannot be."""
    for user, event in right.uses().items():
        for other_user, other_event in left.uses().items():
            if (user == other_user) != (event.id == other_event.id):
                return None
    return overlay(left, right)


def overlay(left: Candidate, right: Candidate) -> Candidate:
    """Both choices in one, where it is known that this can be."""
    return Candidate(
        left.bindings | right.bindings,
        left.spans | right.spans,
        left.branch | right.branch,
        left.moments | right.moments,
        left.rounds | right.rounds,
        left.collected | right.collected,
    )
