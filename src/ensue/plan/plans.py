"""Plans: what the engine needs to know about a query, worked out once and free of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ensue.analysis.catalog import Catalog
from ensue.analysis.scopes import chooses, growing_lists
from ensue.errors import LimitError, Source
from ensue.graph.bounds import Point
from ensue.graph.graphs import Absence, Collection, Graph, NormalForm
from ensue.graph.law import Law
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import CONTEXTS, PatternQuery

if TYPE_CHECKING:
    from ensue.plan.monitors import Monitor
    from ensue.plan.outputs import ViolationPlan


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the scope of an absence: the greatest (or least) of some points, shifted."""

    points: tuple[Point, ...]
    greatest: bool
    shift: int

    @property
    def variables(self) -> frozenset[Name]:
        return frozenset(point.variable for point in self.points)


@dataclass(frozen=True, slots=True)
class AbsencePlan:
    """How an absence is decided.

    By earliest completion where `lower` and `upper` are given: a forbidden match lies in the scope iff the earliest
    completion among those that start at or after `lower` is at or before `upper`; `chain` lists the variables of a
    forbidden sequence for which that needs no enumeration. Otherwise match by match, for the reason in `correlated`.
    """

    absence: Absence
    graph: GraphPlan
    lower: Side | None
    upper: Side | None
    chain: tuple[Name, ...]
    correlated: Name


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """How a list is made: by enumerating, for each match, what its graphs find in the scope.

    `needed` says whether anything depends on it: a number of elements, a condition or the result.
    """

    collection: Collection
    graphs: tuple[GraphPlan, ...]
    needed: bool


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """A graph and what follows from its closure: which pairs must be told apart, and how each absence is decided."""

    graph: Graph
    distinct: tuple[tuple[Name, Name], ...]
    absences: tuple[AbsencePlan, ...]
    collections: tuple[CollectionPlan, ...] = ()

    def with_inner(self) -> Iterator[GraphPlan]:
        """This graph and the forbidden and listed ones inside of it, at any depth."""
        yield self
        for absence in self.absences:
            yield from absence.graph.with_inner()
        for collection in self.collections:
            for graph in collection.graphs:
                yield from graph.with_inner()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long an event is kept as one variable.

    Until the watermark reaches its start or end plus so many ticks, or until so many further events of its partition
    have come. None: no such limit.
    """

    from_start: int | None
    from_end: int | None
    positions: int | None

    @property
    def bounded(self) -> bool:
        return (self.from_start, self.from_end, self.positions) != (None, None, None)

    @property
    def at_once(self) -> bool:
        """Whether an event is of no use after the step in which it came."""
        return any(limit is not None and limit <= 0 for limit in (self.from_start, self.from_end, self.positions))


@dataclass(frozen=True, slots=True)
class Partner:
    """A variable whose event has come when that of another is looked at: its start lies so far from the other's.

    None: any distance.
    """

    name: Name
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Everything about a query that does not depend on data.

    With a `law`, `monitor` says how its traces are watched. A plan with `tracking` looks for traces that break the
    law instead of matches.
    """

    query: PatternQuery
    source: Source | None
    catalog: Catalog
    normal_form: NormalForm
    graphs: tuple[GraphPlan, ...]
    retention: Mapping[tuple[int, Name], Retention]
    columns: Mapping[Stream, frozenset[str] | None]
    counting: bool
    partners: Mapping[tuple[int, Name], tuple[Partner, ...]] = field(default_factory=dict)
    law: Law | None = None
    monitor: Monitor | None = None
    tracking: ViolationPlan | None = None

    streams: tuple[Stream, ...] = field(init=False, compare=False, repr=False)
    watched: tuple[Stream, ...] = field(init=False, compare=False, repr=False)
    """The streams of which every event counts, whatever its attributes."""
    all_streams: tuple[Stream, ...] = field(init=False, compare=False, repr=False)
    """The streams of the query and those that are only watched."""
    uncertain: bool = field(init=False, compare=False, repr=False)
    """Whether events of the query may be real or not, so that a match is more or less probable."""
    uses_up: bool = field(init=False, compare=False, repr=False)
    """Whether matches use events up, or are chosen pair by pair."""
    grows: bool = field(init=False, compare=False, repr=False)
    """Whether a repetition without a limit stands in the pattern, of which ever longer ones are looked for."""

    def __post_init__(self) -> None:
        streams = tuple(self.columns)
        watched = streams if self.tracking is not None else ()
        if self.tracking is None and self.monitor is not None:
            watched = (*self.monitor.watched, *self.monitor.ends)
        form = self.normal_form
        follows: dict[str, object] = {
            "streams": streams,
            "watched": watched,
            "all_streams": tuple(dict.fromkeys((*streams, *watched))),
            "uncertain": any(map(self.catalog.is_uncertain, streams)),
            "uses_up": bool(self.query.consume) or self.query.policy in CONTEXTS,
            "grows": bool(form.repetitions.unrolled and growing_lists(form.pattern)),
        }
        for name, value in follows.items():
            object.__setattr__(self, name, value)

    @property
    def by_arrival(self) -> bool:
        """Whether it can matter in which order events of the same time come."""
        every = (plan.collection for graph in self.graphs for inner in graph.with_inner() for plan in inner.collections)
        lists = any(collection.threat is None for collection in every)
        return self.counting or lists or chooses(self.query)


DEFAULT_LIMIT = 10_000_000
"""How many matches a collected result may have unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a run may produce. A run that exceeds a limit stops with a `LimitError`; None means no limit.

    `matches` is the number of matches of a pattern, and of events of a declared stream or rule. On Spark it applies to
    each task.

    >>> Limits(matches=1000)
    Limits(matches=1000)
    """

    matches: int | None = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        given: object = self.matches
        if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
            raise LimitError("limit-type", f"`Limits.matches` must be a number of matches or None, not {given!r}")


DEFAULT_LIMITS = Limits()
NO_LIMITS = Limits(matches=None)


@dataclass(frozen=True, slots=True)
class Options:
    """Switches of the engine, for which the answer is the same, as tests and benchmarks show, and what is asked for."""

    prune: bool = True
    earliest_completion: bool = True
    equality_keys: bool = True
    reorder: bool = True
    streaming: bool = True
    """What can only be the last event of a match is not stored."""
    suppressing: bool = True
    """What comes after another event is neither stored nor looked at where that one is missing."""
    forgetting: bool = True
    """What no later match can use is dropped."""
    chunk_rows: int = 1 << 18
    limit: int | None = DEFAULT_LIMIT
    """How many matches a collected result may have."""
    since: int | None = None
    """In a run over tables of the past: only results that complete after this tick are wanted. None: no limit."""
    lineage: bool = False
    """Uncertain matches come with what they depend on."""
    until: int | None = None
    """In a run over tables of the past: time ends at this tick. None: with the last event."""


PLAIN = Options(
    prune=False,
    earliest_completion=False,
    equality_keys=False,
    reorder=False,
    streaming=False,
    suppressing=False,
    forgetting=False,
)
"""Everything that makes it fast switched off."""
