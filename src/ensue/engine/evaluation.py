"""Evaluates a plan over events: finds the matches that complete between two watermarks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from ensue.engine.choice import UsedRows, choose
from ensue.engine.compiled_graph import CompiledGraph
from ensue.engine.events import Candidates, EventStore
from ensue.engine.join import Join, Summary
from ensue.engine.rows import MatchChunk, Rows, completion_times
from ensue.engine.sources import Mask, latest_end, latest_of
from ensue.engine.workspace import Workspace, cached_candidates, is_looked_up
from ensue.engine.worlds import weighed
from ensue.graph.bounds import Point
from ensue.graph.graphs import Variable, WindowClose
from ensue.nodes.names import Name
from ensue.plan.plans import GraphPlan, Options, QueryPlan

FEW_EVENTS, MANY_MORE = 64, 16
"""If a variable has more events than the first number, and this many times those of another variable, its predicates
are evaluated when it is bound."""

Restriction = dict[Name, Callable[[Candidates], Mask]]
"""The candidates of some variables that are admitted in one pass."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """Matches are wanted that complete after `after` and not after `until`; None: no limit.

    With `fresh`, which marks new candidates, only matches with a new event are wanted. `horizon` is the end of the
    known time if there is no limit.
    """

    after: int | None = None
    until: int | None = None
    horizon: int | None = None
    fresh: Callable[[Candidates], Mask] | None = None


def evaluate(
    plan: QueryPlan,
    store: EventStore,
    frontier: Frontier,
    options: Options,
    found: dict[Hashable, Candidates],
    used: UsedRows | None = None,
    chosen: bool = True,
) -> Iterator[MatchChunk]:
    """The matches that complete within the frontier, once each, in chunks of bounded size, as the policy chooses them.

    `found` caches the candidates of each variable. `used` has the events used up before, and gets those that these
    matches use up.
    """
    if plan.uses_up and chosen:
        used = UsedRows.of(store.sources) if used is None else used
        every = evaluate(plan, store, frontier, options, found, used, chosen=False)
        yield from choose(every, plan, used)
        return
    yield from matches_of_graphs(plan, store, frontier, options, found, used)


def matches_of_graphs(
    plan: QueryPlan,
    store: EventStore,
    frontier: Frontier,
    options: Options,
    found: dict[Hashable, Candidates],
    used: UsedRows | None,
) -> Iterator[MatchChunk]:
    """The matches of the graphs of a plan."""
    summaries: dict[int, Summary] = {}
    for graph_plan in plan.graphs:
        chunks = partial(_matches_of_graph, graph_plan, plan, store, frontier, options, found, used, summaries)
        question = store.compiled.alike.get(id(graph_plan))
        if question is None or used is not None or frontier.fresh is not None or plan.uncertain:
            yield from chunks()
            continue
        asked = ("matches", question, plan.normal_form.windows, frontier)
        yield from _renamed(store.once(asked, partial(_Again, chunks)), graph_plan, plan)


class _Again:
    """Matches shared by several graphs: computed on demand by the first user, and replayed for the others."""

    def __init__(self, find: Callable[[], Iterator[MatchChunk]]) -> None:
        self.chunks = find()
        self.given: list[MatchChunk] = []

    def __iter__(self) -> Iterator[MatchChunk]:
        for place in count():
            if place == len(self.given):
                following = next(self.chunks, None)
                if following is None:
                    return
                self.given.append(following)
            yield self.given[place]


def _renamed(chunks: Iterable[MatchChunk], graph_plan: GraphPlan, plan: QueryPlan) -> Iterator[MatchChunk]:
    """The matches of a graph with the variable names of an equal graph."""
    spaces: dict[int, Workspace] = {}
    for chunk in chunks:
        if chunk.plan is graph_plan:
            yield chunk
            continue
        names, space = dict(zip(chunk.plan.graph.names, graph_plan.graph.names, strict=True)), chunk.space
        if id(space) not in spaces:
            compiled = space.store.compiled.graph(graph_plan)
            candidates = {names[name]: found for name, found in space.candidates.items()}
            streams, graph = {**compiled.streams}, graph_plan.graph
            own = Workspace(
                compiled,
                graph_plan,
                graph,
                plan.catalog,
                space.store,
                space.options,
                candidates,
                streams,
                space.found,
                compiled.moments,
            )
            own.latest, own.tied_by = space.latest, plan.used_columns
            spaces[id(space)] = own
        rows = Rows(chunk.rows.length, {names[name]: places for name, places in chunk.rows.places.items()})
        yield MatchChunk(plan, graph_plan, spaces[id(space)], rows)


def _matches_of_graph(
    graph_plan: GraphPlan,
    plan: QueryPlan,
    store: EventStore,
    frontier: Frontier,
    options: Options,
    found: dict[Hashable, Candidates],
    used: UsedRows | None,
    summaries: dict[int, Summary],
) -> Iterator[MatchChunk]:
    graph = graph_plan.graph
    late = graph.trailing or graph.moments or graph.succession
    for restriction in _passes(store.compiled.graph(graph_plan), plan, frontier):
        space = _workspace(graph_plan, plan, store, options, found, restriction if used is None else None)
        space.latest = frontier.until
        if graph.repeated:
            space.horizon = _horizon(frontier, store)
            space.earliest = None if frontier.after is None or graph.trailing else frontier.after + 1
        if used is not None:
            for name, allowed in restriction.items():
                space.restrict(name, allowed(space.candidates[name]))
            for place, name in enumerate(graph.names):
                space.restrict(name, used.free(space.candidates[name], place, plan.query))
        if any(len(space.candidates[name]) == 0 for name in graph.names):
            continue
        join = Join(space, summaries)
        if len(graph.variables) > 2:
            join.prune()
        for rows in join.matches():
            chunk = MatchChunk(plan, graph_plan, space, rows)
            if late and (frontier.after is not None or frontier.until is not None):
                chunk = _within(chunk, plan, frontier)
            if plan.uncertain:
                chunk = weighed(chunk, join.where_lists_fit)
            if chunk.rows.length:
                yield chunk


def _workspace(
    graph_plan: GraphPlan,
    plan: QueryPlan,
    store: EventStore,
    options: Options,
    found: dict[Hashable, Candidates],
    restriction: Restriction | None = None,
) -> Workspace:
    """The workspace of a graph with the candidates of its variables, restricted if necessary.

    If one variable has few candidates, the predicates of a variable with many are evaluated when it is bound.
    """
    graph, compiled = graph_plan.graph, store.compiled.graph(graph_plan)
    candidates: dict[Name, Candidates] = {}
    many: list[Variable] = []
    for variable in graph.variables:
        events = store.streams[variable.stream]
        can_wait = restriction is not None and variable.predicates and events.are_points and len(events) > FEW_EVENTS
        if not can_wait or graph.question(variable) in found or is_looked_up(variable, store, plan.catalog):
            events = cached_candidates(variable, graph, store, plan.catalog, found)
        else:
            many.append(variable)
        if restriction is not None and variable.name in restriction:
            events = events.select(restriction[variable.name](events))
        candidates[variable.name] = events
    fewest, deferred = min(map(len, candidates.values())), []
    for variable in many:
        if graph.equalities or plan.uncertain or len(candidates[variable.name]) < MANY_MORE * fewest:
            events = cached_candidates(variable, graph, store, plan.catalog, found)
            if restriction is not None and variable.name in restriction:
                events = events.select(restriction[variable.name](events))
            candidates[variable.name] = events
        else:
            deferred.append(variable.name)
    return Workspace(
        compiled,
        graph_plan,
        graph,
        plan.catalog,
        store,
        options,
        candidates,
        {**compiled.streams},
        found,
        compiled.moments,
        tied_by=plan.used_columns,
        deferred=frozenset(deferred),
    )


def _passes(compiled: CompiledGraph, plan: QueryPlan, frontier: Frontier) -> Iterator[Restriction]:
    """Restrictions that together admit every match within the frontier exactly once, and few others.

    If no window closes a scope, a match completes with its last event, or at a distance from one: one of the variables
    that can be last is new, and those before it in the list are not. A match that a window of `W` ticks closes is
    complete at its start plus `W`.
    """
    graph, ticks = compiled.plan.graph, plan.normal_form.windows.ticks
    if graph.succession:
        yield {}
    elif frontier.fresh is not None:
        yield from _one_new_event(graph.names, frontier.fresh)
    elif frontier.after is None or (graph.closings and (ticks is None or len(graph.closings) > 1 or graph.deadlines)):
        yield {}
    elif not graph.closings:
        yield from _new_last_events(compiled.last_events, frontier.after)
    else:
        assert ticks is not None
        closes_earlier = plan.normal_form.windows.events is not None
        latest = None if frontier.until is None or closes_earlier else frontier.until - ticks
        yield from _first_events_between(graph.closings[0], frontier.after - ticks, latest)


def _first_events_between(closing: WindowClose, after: int, until: int | None) -> Iterator[Restriction]:
    """The first event starts after `after` and not after `until`: one pass for each variable that can be first."""
    later: Restriction = {name: lambda found: found.starts > after for name in closing.names}
    if until is None:
        yield later
        return
    for place, name in enumerate(closing.starts):
        restriction = dict(later)
        for earlier in closing.starts[:place]:
            restriction[earlier] = lambda found: found.starts > until
        restriction[name] = lambda found: (found.starts > after) & (found.starts <= until)
        yield restriction


def _new_last_events(ends: tuple[tuple[Point, int], ...] | None, after: int) -> Iterator[Restriction]:
    """One of the events that can be last, or a moment at a fixed distance from one, is after `after`."""
    if ends is None:
        yield {}
        return
    for place, (point, ticks) in enumerate(ends):
        restriction: Restriction = {earlier.variable: _until(earlier, after - later) for earlier, later in ends[:place]}
        restriction[point.variable] = _after(point, after - ticks)
        yield restriction


def _until(point: Point, moment: int) -> Callable[[Candidates], Mask]:
    return lambda found: found.at(point.side) <= moment


def _after(point: Point, moment: int) -> Callable[[Candidates], Mask]:
    return lambda found: found.at(point.side) > moment


def _horizon(frontier: Frontier, store: EventStore) -> int | None:
    """The end of the known time: the limit, or the end of the last event, or a later one from the caller."""
    if frontier.until is not None:
        return frontier.until
    return latest_of(frontier.horizon, latest_end(store.sources))


def _one_new_event(names: tuple[Name, ...], fresh: Callable[[Candidates], Mask]) -> Iterator[Restriction]:
    """One pass for each variable that is the first, in list order, with a new event."""
    for place, name in enumerate(names):
        restriction: Restriction = {earlier: lambda found: ~fresh(found) for earlier in names[:place]}
        restriction[name] = fresh
        yield restriction


def _within(chunk: MatchChunk, plan: QueryPlan, frontier: Frontier) -> MatchChunk:
    """Only the matches that complete within the frontier; the passes admit others only if scopes trail."""
    completion = completion_times(chunk, plan)
    mask = np.ones(chunk.rows.length, bool)
    if frontier.after is not None:
        mask &= completion > frontier.after
    if frontier.until is not None:
        mask &= completion <= frontier.until
    return chunk.where(mask)
