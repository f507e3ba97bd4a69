"""The normal form: a union of event graphs.

A graph is a set of variables, the closed network of bounds between their endpoints, the remaining conditions, and
absences: nested graphs whose bounds may mention the points around them.
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
    """An event to bind: its stream and the conditions on it alone."""

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
    """Where a (composite) item begins and ends: from the minimum of `starts` to the maximum of `ends`."""

    starts: tuple[Name, ...]
    ends: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that the pattern itself creates: `ticks` after `base`, or, if `repeated`, any multiple of it
    after `base`.

    Its name is used like a variable in extents and networks; its start and end are equal. Repeated moments continue as
    far as time is known, unless they are `ended`: then their bounds limit them.
    """

    name: Name
    base: Point
    ticks: int
    repeated: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """The conditions on a single event: its stream, predicates and duration. Equal for all variables with the same
    conditions."""

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
    """A conjunction: every variable is bound, every bound and condition is true, and no absence is violated.

    `times` and `positions` are closed together with the points of the graphs around this one. `ties` are the bounds
    that a condition states between this graph and the ones around it. `premises` are the bounds between outer points
    that are not already implied there. `intervals` are the AS names bound here.

    If a scope stays open after the last event, `closings` name the variables whose start determines when a window
    closes it, and `deadlines` are the times at which reaches close it. The graph replaces the variables `replaced`
    around it, so it may bind the same events. `succession` lists the variables in the order in which each binds the
    next event that fits, if a policy requires that. `rounds` is the number of rounds of each repetition;
    `list_conditions` are about whole collections; `number` is the number of the choice of branches.
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
    deadlines: tuple[Deadline, ...] = ()
    replaced: frozenset[Name] = frozenset()
    succession: tuple[Name, ...] = ()
    number: int = 0
    names: tuple[Name, ...] = field(init=False, compare=False, repr=False)
    questions: dict[Name, Question] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(variable.name for variable in self.variables))
        object.__setattr__(self, "questions", {})

    def question(self, variable: Variable) -> Question:
        """The conditions of a variable on its events alone."""
        if variable.name not in self.questions:
            start, end = start_of(variable.name), end_of(variable.name)
            limits = self.times.limit(start, end), self.times.limit(end, start)
            asked = tuple(map(anonymous_predicate, variable.predicates))
            self.questions[variable.name] = Question(variable.stream, asked, *limits)
        return self.questions[variable.name]

    @property
    def trailing(self) -> bool:
        """Whether a scope stays open after the last event, so that a match completes when a window or reach closes."""
        return bool(self.closings or self.deadlines)

    @property
    def repeated(self) -> tuple[Moment, ...]:
        """The repeated moments, whose time the bound events do not determine."""
        return tuple(moment for moment in self.moments if moment.repeated)


@dataclass(frozen=True, slots=True)
class WindowClose:
    """The window of the whole match, counted from the first of these variables; `starts` are those that can be the
    first in time."""

    names: tuple[Name, ...]
    starts: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A match completes no earlier than `ticks` after `point`: a reach keeps the scope of a NOT or collection open."""

    point: Point
    ticks: int


@dataclass(frozen=True, slots=True)
class Series:
    """The moments of a PERIODIC*: every `ticks` after `first`, up to `last`."""

    first: Point
    last: Point
    ticks: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The interval that a forbidden or listed match must be in.

    `after` and `before` are the neighbours that strictly enclose the match. None is an edge of the whole match:
    on the left, the window limits the scope at M.e - W; on the right, the scope ends at M.s + W if `trailing`,
    otherwise at M.e. `stated` are the bounds that an operator gives instead. `limits` are those between the match and
    its neighbours on the left and on the right.
    """

    after: Extent | None = None
    before: Extent | None = None
    trailing: bool = False
    stated: tuple[Bound, ...] | None = None
    limits: tuple[frozenset[Limit], frozenset[Limit]] = (frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Absence:
    """No match of `graph` may exist in the scope."""

    graph: Graph
    scope: Scope
    item: Pattern
    words: str = ""
    """Words that follow the text of the item."""

    @property
    def text(self) -> str:
        return text_of(self.item) + self.words


@dataclass(frozen=True, slots=True)
class Collection:
    """The list of all matches of the graphs (one for each choice of branches) in their scopes, under `name`.

    It has at least `least` and, unless `most` is None, at most `most` elements. `names` are its variables. If `closing`
    is not None, so many graphs at the end are those of a match that is bound outside, and the list must contain it.
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
    closing: int | None = None

    @property
    def text(self) -> str:
        return text_of(self.item) + self.words


def text_of(pattern: Pattern) -> str:
    """A part of an expanded pattern as the user would write it; a variable with the name of its stream is written
    once."""
    return render_pattern(as_written(without_names(pattern, by_stream=True)))


@dataclass(frozen=True, slots=True)
class Threat:
    """A collection that lists forbidden matches which may be real; they make a match less probable.

    `own` are the variables of the forbidden item. If the threat is `against` another threat, each of its matches begins
    with the variables of a match of that one, and makes it less probable.
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
    """The meaning of a query: the union of its graphs. A graph that can never match is left out and listed in
    `dropped`.

    `pattern` is the expanded pattern with a name for every event.
    """

    graphs: tuple[Graph, ...]
    windows: Windows
    dropped: tuple[str, ...]
    pattern: Pattern
    repetitions: Repetitions = field(default_factory=Repetitions)
    hierarchy: Hierarchy = NO_HIERARCHY
    overlaps: frozenset[frozenset[Stream]] = frozenset()
    """The pairs of different streams that may share rows."""
    is_ordered: bool = False
    """Whether columns order the events at the same time."""
    allows_ties: bool = False
