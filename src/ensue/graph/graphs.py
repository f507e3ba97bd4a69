"""The normal form: a union of event graphs.

A graph is a set of variables, the closed network of bounds between their endpoints, the conditions that are left, and
absences: graphs of their own whose bounds may mention the points around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ensue.analysis.scopes import without_names
from ensue.graph.bounds import Bound, Limit, Network, Point, end_of, start_of
from ensue.graph.lists import Repetitions
from ensue.lower.operators import as_written
from ensue.nodes.expressions import Expr, Field, anonymous_predicate
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import Pattern
from ensue.nodes.uncertainty import NO_HIERARCHY, Hierarchy
from ensue.text.render import render_pattern


@dataclass(frozen=True, slots=True)
class Variable:
    """An event to be bound: its stream and what it must satisfy by itself."""

    name: Name
    stream: Stream
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Equality:
    """A condition `left = right` between fields of two variables: a join key."""

    left: Field
    right: Field
    condition: Expr


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a (composite) item begins and ends: its interval is min of `starts` .. max of `ends`."""

    starts: tuple[Name, ...]
    ends: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that a pattern itself makes: `ticks` after `base`, or, if `repeated`, any multiple of it after.

    Its name stands for it among the variables of extents and networks; start and end are the same. Those that come
    again and again go on as far as time is known, unless they are `ended`: then their bounds say how far.
    """

    name: Name
    base: Point
    ticks: int
    repeated: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an event by itself: its stream, predicates and how long it lasts. Equal for all that ask it."""

    stream: Stream
    predicates: tuple[Expr, ...]
    shortest: Limit | None
    longest: Limit | None
    hashed: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        asked = (self.stream, self.predicates, self.shortest, self.longest)
        object.__setattr__(self, "hashed", hash(asked))

    def __hash__(self) -> int:
        return self.hashed

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of texts differ from process to process.
        return Question, (self.stream, self.predicates, self.shortest, self.longest)


@dataclass(frozen=True, slots=True)
class Graph:
    """A conjunction: every variable bound, every bound and condition true, no absence violated.

    `times` and `positions` are closed together with the points of the graphs around this one. `ties` are the bounds
    that a condition states between this graph and the ones around it, `premises` those between points around it that do
    not hold by themselves; `intervals` are the AS names bound here.
    Where something stays open after the last event, `closings` say by whose start a window closes it. The graph takes
    the place of the variables `replaced` around it: it may bind the same events.
    `succession` are the variables in the order in which each binds the next event that fits, if a policy says so.
    `rounds` says how often each repetition comes here; `list_conditions` are about collections as a whole; `number` is
    that of the choice of branches.
    """

    variables: tuple[Variable, ...]
    extent: Extent
    times: Network
    positions: Network
    conditions: tuple[Expr, ...]
    equalities: tuple[Equality, ...]
    absences: tuple[Absence, ...]
    collections: tuple[Collection, ...] = ()
    moments: tuple[Moment, ...] = ()
    rounds: Mapping[Name, int] = field(default_factory=dict)
    series: Mapping[Name, Series] = field(default_factory=dict)
    list_conditions: tuple[Expr, ...] = ()
    ties: tuple[Bound, ...] = ()
    premises: tuple[Bound, ...] = ()
    intervals: Mapping[Name, Extent] = field(default_factory=dict)
    closings: tuple[WindowClose, ...] = ()
    replaced: frozenset[Name] = frozenset()
    succession: tuple[Name, ...] = ()
    number: int = 0
    names: tuple[Name, ...] = field(init=False, compare=False, repr=False)
    questions: dict[Name, Question] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(variable.name for variable in self.variables))
        object.__setattr__(self, "questions", {})

    def question(self, variable: Variable) -> Question:
        """What a variable asks of its events by themselves."""
        if variable.name not in self.questions:
            start, end = start_of(variable.name), end_of(variable.name)
            limits = self.times.limit(start, end), self.times.limit(end, start)
            asked = tuple(map(anonymous_predicate, variable.predicates))
            self.questions[variable.name] = Question(variable.stream, asked, *limits)
        return self.questions[variable.name]

    @property
    def trailing(self) -> bool:
        """Whether some scope stays open after the last event, so that a match completes with its window."""
        return bool(self.closings)

    @property
    def repeated(self) -> tuple[Moment, ...]:
        """The moments that come again and again: those that the bound events do not settle."""
        return tuple(moment for moment in self.moments if moment.repeated)


@dataclass(frozen=True, slots=True)
class WindowClose:
    """The window of the whole match, counted from the first of these variables; `starts` can be the first in time."""

    names: tuple[Name, ...]
    starts: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The moments of a PERIODIC*: every `ticks` after `first` and before `last`."""

    first: Point
    last: Point
    ticks: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a match that is forbidden or listed lies.

    `after` and `before` are the neighbours between which its interval lies strictly. None is an edge of the whole
    match: on the left its window closes the scope at M.e - W; on the right, M.s + W if `trailing`, otherwise M.e.
    `stated` are the bounds that an operator gives instead.
    """

    after: Extent | None = None
    before: Extent | None = None
    trailing: bool = False
    stated: tuple[Bound, ...] | None = None


@dataclass(frozen=True, slots=True)
class Absence:
    """No match of `graph` may exist that lies in the scope."""

    graph: Graph
    scope: Scope
    item: Pattern
    words: str = ""
    """What is to say of the item beside its own text."""

    @property
    def text(self) -> str:
        return text_of(self.item) + self.words


@dataclass(frozen=True, slots=True)
class Collection:
    """The list of all matches of the graphs (one for each choice of branches) in their scopes, as `name`.

    There are at least `least` of them and, unless `most` is None, at most `most`. `names` are those of its variables.
    """

    name: Name
    names: tuple[Name, ...]
    graphs: tuple[Graph, ...]
    scopes: tuple[Scope, ...]
    least: int
    most: int | None
    item: Pattern
    words: str = ""
    threat: Threat | None = None

    @property
    def text(self) -> str:
        return text_of(self.item) + self.words


def text_of(pattern: Pattern) -> str:
    """A part of an expanded pattern as the user would write it; what is called like its stream is named once."""
    return render_pattern(as_written(without_names(pattern, by_stream=True)))


@dataclass(frozen=True, slots=True)
class Threat:
    """That a collection lists forbidden matches that may be real: they make a match less probable.

    `own` are the variables of what it forbids itself. If it speaks `against` another threat, each of its matches has
    the variables of one of those before its own, and makes that one less probable.
    """

    own: tuple[Name, ...]
    against: Name | None = None


@dataclass(frozen=True, slots=True)
class Windows:
    """The WITHIN of the whole match: in ticks, in events, both or neither."""

    ticks: int | None = None
    events: int | None = None


@dataclass(frozen=True, slots=True)
class NormalForm:
    """What a query means: the union of its graphs. A graph that can never match is left out and listed in `dropped`.

    `pattern` is the expanded pattern, every event of it named.
    """

    graphs: tuple[Graph, ...]
    windows: Windows
    dropped: tuple[str, ...]
    pattern: Pattern
    repetitions: Repetitions = field(default_factory=Repetitions)
    hierarchy: Hierarchy = NO_HIERARCHY
