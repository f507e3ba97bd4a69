"""Events, matches, and choices of events that may become matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oracle.conditions import Value
from oracle.tree import Path, is_inside


@dataclass(frozen=True, slots=True)
class OracleEvent:
    """An event; `id` is its place in the order of arrival.

    An event of a declared stream has `origins`: the events of the input below it.
    """

    id: int
    stream: str
    s: int
    e: int
    fields: dict[str, Value] = field(default_factory=dict, hash=False)
    origins: tuple[OracleEvent, ...] | None = None

    @property
    def is_declared(self) -> bool:
        return self.origins is not None

    @property
    def rank(self) -> tuple[int, int, int]:
        """Its place in the order of (end, start, arrival)."""
        return self.e, self.s, self.id


Kind = TypeVar("Kind")
Bound = int | tuple[int | None, ...]
"""What a variable binds: the id of an event; for a list the ids in order, None where an element does not bind it."""


@dataclass(frozen=True, slots=True)
class OracleMatch:
    """A match: what it binds, the OR branches it took as (path of the OR, item), its interval and completion.

    `moments` are those of PERIODIC and PERIODIC*, by the path of the operator. `columns` are those of RETURN, lists as
    tuples; `origins` the events of the input that it binds or lists, at any depth, in the order of time.
    """

    bindings: tuple[tuple[str, Bound], ...]
    branch: tuple[tuple[Path, int], ...]
    start: int
    end: int
    completion: float
    moments: tuple[tuple[Path, tuple[int, ...]], ...] = ()
    columns: dict[str, Value] = field(default_factory=dict, compare=False)
    origins: tuple[OracleEvent, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of time."""

    s: int
    e: int

    def is_before(self, other: Span) -> bool:
        return self.e < other.s


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
