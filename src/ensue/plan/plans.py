"""Plans: what the engine needs to know about a query, computed once and independent of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ensue.analysis.catalog import Catalog
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
    """One end of the scope of an absence: the maximum (or minimum) of some points, shifted.

    If columns order the events at the same time, `in_time` tells whether it is a time or a place in their order.
    """

    points: tuple[Point, ...]
    greatest: bool
    shift: int
    in_time: bool = False

    @property
    def is_next(self) -> bool:
        """Whether it is directly after the points, or directly before them, in the order of events."""
        return self.shift == (1 if self.greatest else -1) and not self.in_time

    @property
    def variables(self) -> frozenset[Name]:
        return frozenset(point.variable for point in self.points)


@dataclass(frozen=True, slots=True)
class AbsencePlan:
    """How an absence is decided.

    If `lower` and `upper` are given, by earliest completion: a forbidden match is in the scope iff the earliest
    completion among those that start at or after `lower` is at or before `upper`. `chain` lists the variables of a
    forbidden sequence for which that needs no enumeration. Otherwise each match is checked separately, for the reason
    in `correlated`.
    """

    absence: Absence
    graph: GraphPlan
    lower: Side | None
    upper: Side | None
    chain: tuple[Name, ...]
    correlated: Name


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """How a list is built: by enumerating, for each match, the matches of its graphs in the scope.

    `needed` tells whether anything depends on it: a number of elements, a condition or the result.
    """

    collection: Collection
    graphs: tuple[GraphPlan, ...]
    needed: bool


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """A graph and what follows from its closure: which pairs of events must differ, and how each absence is decided."""

    graph: Graph
    distinct: tuple[tuple[Name, Name], ...]
    absences: tuple[AbsencePlan, ...]
    collections: tuple[CollectionPlan, ...] = ()
    successive: tuple[tuple[tuple[Name, ...], tuple[Name, ...]], ...] = ()
    """The variables of each round of a repetition and of the next one, if both may be at the same time."""

    def with_inner(self) -> Iterator[GraphPlan]:
        """This graph and the forbidden and listed graphs inside it, at any depth."""
        yield self
        for absence in self.absences:
            yield from absence.graph.with_inner()
        for collection in self.collections:
            for graph in collection.graphs:
                yield from graph.with_inner()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long an event is kept for one variable.

    It is kept until the watermark reaches its start or end plus a number of ticks, or until a number of further events
    of its partition have come. None: no such limit.
    """

    from_start: int | None
    from_end: int | None
    positions: int | None

    @property
    def bounded(self) -> bool:
        return (self.from_start, self.from_end, self.positions) != (None, None, None)

    @property
    def at_once(self) -> bool:
        """Whether an event is not needed after the step in which it came."""
        return any(limit is not None and limit <= 0 for limit in (self.from_start, self.from_end, self.positions))


@dataclass(frozen=True, slots=True)
class Partner:
    """A variable whose event must have come before that of another; its start is within this distance from the
    other's start.

    None: any distance.
    """

    name: Name
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Everything about a query that does not depend on data.

    With a `law`, `monitor` describes how its traces are monitored. A plan with `tracking` searches for violations of
    the law instead of matches.
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
    """The streams whose events are all needed, whatever their attributes."""
    all_streams: tuple[Stream, ...] = field(init=False, compare=False, repr=False)
    """The streams of the query and those that are only monitored."""
    uncertain: bool = field(init=False, compare=False, repr=False)
    """Whether events of the query may be uncertain, so that matches have probabilities."""
    uses_up: bool = field(init=False, compare=False, repr=False)
    """Whether matches use up events, or are chosen pair by pair."""
    used_columns: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The columns that the query uses, in the order of their names."""

    def __post_init__(self) -> None:
        streams = tuple(self.columns)
        watched = streams if self.tracking is not None else ()
        if self.tracking is None and self.monitor is not None:
            watched = (*self.monitor.watched, *self.monitor.ends)
        used: set[str] = set()
        for stream, columns in self.columns.items():
            schema = self.catalog.stream(stream)
            used |= columns if columns is not None else set() if schema is None else schema.fields.keys()
        follows: dict[str, object] = {
            "streams": streams,
            "watched": watched,
            "all_streams": tuple(dict.fromkeys((*streams, *watched))),
            "uncertain": any(map(self.catalog.is_uncertain, streams)),
            "uses_up": bool(self.query.consume) or self.query.policy in CONTEXTS,
            "used_columns": tuple(sorted(used)),
        }
        for name, value in follows.items():
            object.__setattr__(self, name, value)


DEFAULT_LIMIT = 10_000_000
"""The default maximum number of matches in a collected result."""


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
    """Settings of the engine that do not change the answer, and what a run should return."""

    prune: bool = True
    earliest_completion: bool = True
    equality_keys: bool = True
    reorder: bool = True
    streaming: bool = True
    """An event that can only be the last of a match is not stored."""
    suppressing: bool = True
    """An event that needs an earlier event is neither stored nor evaluated if that one is missing."""
    forgetting: bool = True
    """Events that no later match can use are dropped."""
    chunk_rows: int = 1 << 18
    limit: int | None = DEFAULT_LIMIT
    """The maximum number of matches in a collected result."""
    since: int | None = None
    """In a run over tables, only results that complete after this tick are returned. None: no limit."""
    lineage: bool = False
    """Return the lineage of uncertain matches with them."""
    until: int | None = None
    """In a run over tables, time ends at this tick. None: with the last event."""
    slice_width: int | None = None
    """Time is cut into slices of this many ticks, and rows have the number of theirs in the column SLICE. Rows that two
    slices need are in both, but each match is returned only in the slice in which it completes."""
    counts_ties: bool = True
    """Search for events at the same time that the result depends on."""


SLICE = "ensue:slice"
"""The column with the number of the time slice of a row."""


PLAIN = Options(
    prune=False,
    earliest_completion=False,
    equality_keys=False,
    reorder=False,
    streaming=False,
    suppressing=False,
    forgetting=False,
)
"""All optimizations switched off."""
