"""Translates a checked query to its normal form: a union of event graphs with closed bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ensue.analysis.catalog import Catalog, same_event
from ensue.analysis.choices import choices, names_in, orders, renamed, settled_forms
from ensue.analysis.scopes import Aside, counts_events, group_of, is_aside, open_reaches, whole_windows
from ensue.errors import Problem, QueryError, Source
from ensue.graph import bounds as graph_bounds
from ensue.graph import picks, reader
from ensue.graph.bounds import IMPLICIT, ZERO, Bound, Limit, end_of, position_of, start_of
from ensue.graph.conditions import UNSAID, Conditions
from ensue.graph.graphs import Absence, Collection, Deadline, Extent, Graph, Moment, NormalForm, Scope, Windows, text_of
from ensue.graph.lists import NO_REPETITIONS, Repetitions
from ensue.lower.phases import spelled_out
from ensue.nodes import patterns
from ensue.nodes.expressions import Expr
from ensue.nodes.names import Name, Other, Round, Stream

ENDS = frozenset({"e"})
"""The requirement that the last item of a pattern in time is known."""


def normalize_query(query: patterns.PatternQuery, catalog: Catalog, source: Source | None = None) -> NormalForm:
    """Returns the union of graphs for a checked and bound query. Raises `never-holds` if no graph can ever match."""
    builder = GraphBuilder(query, catalog, source)
    graphs: list[Graph] = []
    dropped: list[str] = []
    contradictions: list[graph_bounds.Contradiction] = []
    for number, (pattern, forms) in enumerate(settled_forms(builder.pattern)):
        possible: list[Graph] = []
        for ordered in forms:
            graph = builder.whole_graph(pattern, ordered, number)
            found = contradiction_of(graph)
            if found is None:
                possible.append(graph)
            else:
                contradictions.append(found)
        graphs += possible
        if not possible:
            dropped.append(f"{text_of(pattern)}: {explain_contradiction(contradictions[-1])}")
    if not graphs:
        lasting = catalog.with_durations
        needs_durations = lasting != catalog and _can_hold(query, lasting)
        raise QueryError([_never_holds(contradictions[0], needs_durations)], source)
    events = (part for part in patterns.walk(builder.pattern) if isinstance(part, patterns.Event))
    streams = dict.fromkeys(event.stream for event in events)
    return NormalForm(
        tuple(graphs),
        builder.windows,
        tuple(dropped),
        builder.pattern,
        builder.repetitions,
        catalog.hierarchy,
        catalog.overlaps(streams) if catalog.has_selections else frozenset(),
        catalog.is_ordered,
        query.allows_ties,
    )


def contradiction_of(graph: Graph) -> graph_bounds.Contradiction | None:
    """The contradiction between the bounds of a graph; None if they can hold."""
    return graph.times.contradiction or graph.positions.contradiction


def explain_contradiction(contradiction: graph_bounds.Contradiction) -> str:
    """The contradicting clauses of the query as text, in the order of the cycle."""
    return ", but ".join(dict.fromkeys(bound.reason.text for bound in contradiction.cycle if bound.reason.text))


def _can_hold(query: patterns.PatternQuery, catalog: Catalog) -> bool:
    try:
        normalize_query(query, catalog)
    except QueryError:
        return False
    return True


def _never_holds(contradiction: graph_bounds.Contradiction, needs_durations: bool) -> Problem:
    spans = [bound.reason.span for bound in contradiction.cycle if bound.reason.span is not None]
    lack = "; this requires events with a duration" if needs_durations else ""
    return Problem(
        "never-holds",
        f"the pattern can never match: {explain_contradiction(contradiction)}{lack}",
        max(spans, key=lambda span: span.start, default=None),
        hint="set `end` to the column with the ends of the events" if needs_durations else _way_out(contradiction),
    )


def _way_out(contradiction: graph_bounds.Contradiction) -> str:
    if all(bound.reason.by_order for bound in contradiction.cycle if bound.reason.text):
        return "a variable used twice binds one event: give the second occurrence another name"
    return "remove or relax one of these clauses"


@dataclass(frozen=True, slots=True)
class _Edges:
    """The points that can be the start or end of a match, in time and in position."""

    starts: tuple[graph_bounds.Point, ...] = (graph_bounds.WHOLE_START,)
    ends: tuple[graph_bounds.Point, ...] = (graph_bounds.WHOLE_END,)
    first: tuple[graph_bounds.Point, ...] = (graph_bounds.WHOLE_FIRST,)
    last: tuple[graph_bounds.Point, ...] = (graph_bounds.WHOLE_LAST,)

    def instead(self, replaced: frozenset[Name], edges: _Edges) -> _Edges:
        """The edges of a match in which other variables replace some of its own."""

        def points(
            own: tuple[graph_bounds.Point, ...], other: tuple[graph_bounds.Point, ...]
        ) -> tuple[graph_bounds.Point, ...]:
            kept = tuple(point for point in own if point.variable not in replaced)
            return kept if len(kept) == len(own) else (*kept, *other)

        return _Edges(
            points(self.starts, edges.starts),
            points(self.ends, edges.ends),
            points(self.first, edges.first),
            points(self.last, edges.last),
        )


@dataclass(frozen=True, slots=True)
class _Around:
    """The graphs around a graph, outermost first, and their closed bounds; no positions unless a window counts events.

    `whole` are the edges of the match. Inside a rival match, `about` maps names to its variables, and `edges` are its
    edges.
    """

    parts: tuple[reader.Parts, ...]
    times: graph_bounds.Network
    positions: graph_bounds.Network
    whole: _Edges
    aside: Aside | None = None
    about: Mapping[Name, Name] | None = None
    edges: _Edges | None = None


class GraphBuilder:
    """Builds the graphs of one query and holds what they share."""

    def __init__(self, query: patterns.PatternQuery, catalog: Catalog, source: Source | None) -> None:
        self.source = source
        self.policy, self.allows_ties = query.policy, query.allows_ties
        query = spelled_out(query)
        self.pattern: patterns.Pattern = query.pattern
        self.catalog = catalog
        self.scale = graph_bounds.TimeScale(catalog.unit)
        self.reader = reader.Reader(self.scale.ticks, self.before, self._strictly_before)
        self.ordered: dict[Name, Stream] = {}
        if catalog.is_ordered:
            events = [part for part in patterns.walk(query.pattern) if isinstance(part, patterns.Event)]
            self.ordered = {part.variable: part.stream for part in events if part.variable}
        self.windows = self._windows(whole_windows(query))
        self.limits = self._windows(whole_windows(query, limiting=True))
        self.counting = counts_events(query)
        lists, self.has_reaches = query.policy == patterns.CUMULATIVE, False
        for part in patterns.walk(query.pattern):
            lists |= isinstance(part, patterns.Repeat)
            self.has_reaches |= isinstance(part, patterns.Within) and part.reach is not None
        self.repetitions = Repetitions.of(query) if lists else NO_REPETITIONS
        self.conditions = None if query.where is None else Conditions(query, catalog, self.repetitions)

    def _windows(self, windows: Sequence[patterns.Window]) -> Windows:
        return Windows(
            min(
                (self.scale.ticks(window) for window in windows if not isinstance(window, patterns.Events)),
                default=None,
            ),
            min((window.count for window in windows if isinstance(window, patterns.Events)), default=None),
        )

    def before(self, x: Name, y: Name) -> Limit:
        """The limit of the end of one variable to the start of one after it in SEQ: events without an order tie."""
        return Limit(0, not self.allows_ties, bool(self.ordered) and self._are_ordered(x, y))

    def _strictly_before(self, x: Name, y: Name) -> Limit:
        return Limit(0, True, self._are_ordered(x, y))

    def _ends_before(self, earlier: Extent, later: Extent) -> Limit:
        """The limit of the ends of two matches; their order decides where each has one last event."""
        single = len(earlier.ends) == len(later.ends) == 1
        return Limit(0, True, single and self._are_ordered(*earlier.ends, *later.ends))

    def _are_ordered(self, *names: Name) -> bool:
        """Whether columns order the events of these variables at the same time."""
        streams = []
        for name in names:
            while isinstance(name, Round | Other):
                name = name.name
            if name in self.ordered:
                streams.append(self.ordered[name])
        return len(streams) == len(names) and self.catalog.orders(streams)

    def whole_graph(self, chosen: patterns.Pattern, pattern: patterns.Pattern, number: int) -> Graph:
        """The graph of a chosen pattern with one order of its items; `number` is the number of the choice."""
        parts = reader.Parts()
        self.reader.read(pattern, None, None, parts)
        extent = reader.extent_of(pattern)
        if self.policy == patterns.STRICT:
            parts.positions += graph_bounds.adjacent(reader.variables_in(pattern))
        # The ends of the match are points around all others, exact where only one variable can be first or last.
        parts.times += [Bound(graph_bounds.WHOLE_START, start_of(name), ZERO, IMPLICIT) for name in extent.starts]
        parts.times += [Bound(end_of(name), graph_bounds.WHOLE_END, ZERO, IMPLICIT) for name in extent.ends]
        if len(extent.starts) == 1:
            parts.times.append(Bound(start_of(extent.starts[0]), graph_bounds.WHOLE_START, ZERO, IMPLICIT))
        if len(extent.ends) == 1:
            parts.times.append(Bound(graph_bounds.WHOLE_END, end_of(extent.ends[0]), ZERO, IMPLICIT))
        if self.limits.ticks is not None:
            parts.times.append(
                Bound(graph_bounds.WHOLE_END, graph_bounds.WHOLE_START, Limit(self.limits.ticks, False), IMPLICIT)
            )
        for name in parts.variables if self.counting else ():
            parts.positions.append(Bound(graph_bounds.WHOLE_FIRST, position_of(name), ZERO, IMPLICIT))
            parts.positions.append(Bound(position_of(name), graph_bounds.WHOLE_LAST, ZERO, IMPLICIT))
        if self.limits.events is not None:
            parts.positions.append(
                Bound(graph_bounds.WHOLE_LAST, graph_bounds.WHOLE_FIRST, Limit(self.limits.events - 1, False), IMPLICIT)
            )
        positions = (
            graph_bounds.Network((graph_bounds.WHOLE_FIRST, graph_bounds.WHOLE_LAST))
            if self.counting
            else graph_bounds.Network()
        )
        whole = _edges_of(pattern) if parts.rivals else _Edges()
        nothing = _Around(
            (), graph_bounds.Network((graph_bounds.WHOLE_START, graph_bounds.WHOLE_END)), positions, whole
        )
        graph = self._graph(parts, extent, nothing, chosen=chosen)
        succession = reader.variables_in(pattern) if self.policy == patterns.NEXT_MATCH else ()
        if graph.times.contradiction is None and (len(extent.starts) > 1 or len(extent.ends) > 1):
            graph = replace(graph, extent=_outermost(extent, graph.times))
        return replace(
            graph,
            closings=picks.closings(graph, pattern, parts.picks) if parts.picks or reader.trails(pattern) else (),
            deadlines=self._deadlines(chosen) if self.has_reaches else (),
            succession=succession,
            number=number,
        )

    def _deadlines(self, chosen: patterns.Pattern) -> tuple[Deadline, ...]:
        """When the reaches close the scopes that only they close on the right."""
        found = [
            Deadline(end_of(part.reach.anchor), self.scale.ticks(part.window))
            for part in open_reaches(chosen)
            if part.reach is not None
        ]
        return tuple(dict.fromkeys(found))

    def _graph(
        self,
        parts: reader.Parts,
        extent: Extent,
        around: _Around,
        conditions: Iterable[Expr] | None = None,
        chosen: patterns.Pattern | None = None,
    ) -> Graph:
        """The graph of these parts, closed together with its surroundings; `chosen` is the whole pattern.

        If no `conditions` are given, the graph gets those of its scope.
        """
        if conditions is None and self.conditions is not None:
            conditions = self.conditions.own(parts, around.aside, around.parts)
        found = self.conditions.sorted(parts, conditions or (), around.parts) if self.conditions else UNSAID
        parts.times += (*found.bounds, *parts.reaches)
        inside = self._close(parts, around)
        own = parts.variables.keys() | parts.moments.keys()
        variables = tuple(
            replace(variable, predicates=variable.predicates + found.predicates[variable.name])
            if variable.name in found.predicates
            else variable
            for variable in parts.variables.values()
        )
        absences: tuple[Absence, ...] = ()
        collections: tuple[Collection, ...] = ()
        if inside.times.contradiction is None and inside.positions.contradiction is None:
            absences = tuple(
                Absence(graph, scope, pattern)
                for item in parts.asides
                if isinstance(item.item, patterns.Not) and not item.item.loose
                for pattern, graph, scope in (
                    self._graphs_beside(item, inside)
                    if item.ends is None
                    else self._ending_with(item, item.ends, inside)
                )
            )
            collections = tuple(
                self._collection(item, item.item, inside)
                for item in parts.asides
                if isinstance(item.item, patterns.Repeat)
            )
            absences += tuple(absence for rival in parts.rivals for absence in self._no_rival(rival, inside))
            if chosen is not None:
                absences += tuple(
                    absence
                    for place in range(len(parts.picks))
                    for absence in self._no_better(place, parts, chosen, inside)
                )
        return Graph(
            variables,
            extent,
            inside.times,
            inside.positions,
            found.conditions,
            found.equalities,
            absences,
            collections=collections,
            list_conditions=()
            if self.conditions is None
            else tuple(self.conditions.about_lists(inside.parts, inside.aside, inside.about, collections)),
            rounds=self.repetitions.rounds(parts.names) if self.repetitions.unrolled else {},
            moments=tuple(parts.moments.values()),
            series=parts.series,
            ties=tuple(
                bound
                for bound in (*found.bounds, *parts.reaches)
                if bound.left.variable not in own or bound.right.variable not in own
            ),
            # Bounds that are only about points around the graph, which do not have them by themselves.
            premises=tuple(
                bound
                for bound in (parts.times if around.parts else ())
                if bound.left.variable not in own
                and bound.right.variable not in own
                and bound.limit.tighter_than(around.times.limit(bound.left, bound.right))
            ),
            intervals=parts.intervals,
        )

    # -- networks -----------------------------------------------------------------------------------------------------

    def _close(self, parts: reader.Parts, around: _Around) -> _Around:
        """The surroundings of the graphs inside this one: its bounds, closed together with those outside."""
        points: list[graph_bounds.Point] = []
        bounds: list[Bound] = []
        for variable in parts.variables.values():
            start, end = start_of(variable.name), end_of(variable.name)
            points += [start, end]
            inside = Limit(0, False, bool(self.ordered) and self._are_ordered(variable.name))
            bounds.append(Bound(start, end, inside, IMPLICIT))
            schema = self.catalog.stream(variable.stream)
            if schema is None or schema.end is None:
                bounds.append(Bound(end, start, inside, IMPLICIT))
        for name in parts.moments:
            start, end = start_of(name), end_of(name)
            points += [start, end]
            bounds += [Bound(start, end, ZERO, IMPLICIT), Bound(end, start, ZERO, IMPLICIT)]
        times = graph_bounds.extend(around.times, points, bounds + parts.times)
        if not self.counting:
            return replace(around, parts=(*around.parts, parts), times=times)
        order = self._order_of_positions(parts, around, times)
        positions = graph_bounds.extend(around.positions, map(position_of, parts.variables), parts.positions + order)
        return replace(around, parts=(*around.parts, parts), times=times, positions=positions)

    def _order_of_positions(self, parts: reader.Parts, around: _Around, times: graph_bounds.Network) -> list[Bound]:
        """Orders positions like the ends of events."""
        own = list(parts.variables)
        names = [name for level in around.parts for name in level.variables] + own
        pairs = [(x, y) for x in names for y in names if x != y and (x in own or y in own)]
        word = self.reader.word
        return [
            Bound(
                position_of(x),
                position_of(y),
                Limit(-1, False),
                graph_bounds.Reason(f"{word(x)} ends before {word(y)}"),
            )
            for x, y in pairs
            if times.before(end_of(x), end_of(y))
        ]

    # -- what is beside the match ------------------------------------------------------------------------------------

    def _collection(self, beside: reader.Surroundings, repeat: patterns.Repeat, around: _Around) -> Collection:
        found = [(graph, scope) for _, graph, scope in self._graphs_beside(beside, around)]
        shares = frozenset() if repeat.through else frozenset(repeat.shares)
        closing = [*self._same_match(beside, repeat, around)] if repeat.through else []
        graphs = (*(replace(graph, replaced=shares) for graph, _ in found), *(graph for graph, _ in closing))
        name = group_of(repeat)
        assert name is not None
        scopes, names = tuple(scope for _, scope in found + closing), names_in(repeat.item)
        collection = Collection(name, names, graphs, scopes, repeat.least, repeat.most, repeat.item)
        return replace(collection, closing=len(closing)) if repeat.through else collection

    def _ending_with(
        self, beside: reader.Surroundings, item: patterns.Pattern, around: _Around
    ) -> Iterator[tuple[patterns.Pattern, Graph, Scope]]:
        """The matches of a NOT that end with an item, in one event: a graph for each pair of events that it can be."""
        replaced = frozenset(names_in(item))
        outer = reader.extent_of(item)
        for _, forms in settled_forms(beside.item.item):
            for pattern in forms:
                for one, other in product(reader.variables_in(pattern), reader.variables_in(item)):
                    parts = reader.Parts()
                    self.reader.read(pattern, beside.left, beside.right, parts)
                    extent = reader.extent_of(pattern)
                    stated = [
                        *graph_bounds.at_once(one, other),
                        *(graph_bounds.ends_by(name, one) for name in extent.ends if name != one),
                        *(graph_bounds.ends_by(name, other) for name in outer.ends if name != other),
                    ]
                    parts.times += stated
                    parts.moments = _ended(parts.moments)
                    graph = self._graph(parts, extent, replace(around, aside=beside.item))
                    if contradiction_of(graph) is None:
                        conditions = (*graph.conditions, same_event(one, other))
                        graph = replace(graph, conditions=conditions, replaced=replaced)
                        yield pattern, graph, Scope(stated=tuple(stated))

    def _same_match(
        self, beside: reader.Surroundings, repeat: patterns.Repeat, around: _Around
    ) -> Iterator[tuple[Graph, Scope]]:
        """The item as the match that the shared variables bind, for each choice in which they do."""
        shared = dict(zip(names_in(repeat.item), repeat.shares, strict=True))
        bound = {name for name in shared.values() for level in around.parts if name in level.variables}
        for _, forms in settled_forms(repeat.item, needs=beside.needs):
            for pattern in forms:
                pairs = {name: shared[name] for name in reader.variables_in(pattern)}
                if {*pairs.values()} != bound:
                    continue
                parts = reader.Parts()
                self.reader.read(pattern, beside.left, beside.right, parts)
                stated = [bound for pair in pairs.items() for bound in graph_bounds.at_once(*pair)]
                parts.times += stated
                parts.moments = _ended(parts.moments)
                graph = self._graph(parts, reader.extent_of(pattern), replace(around, aside=beside.item))
                if contradiction_of(graph) is None:
                    same = (same_event(name, other) for name, other in pairs.items())
                    graph = replace(graph, conditions=(*graph.conditions, *same), replaced=frozenset(bound))
                    yield graph, Scope(stated=tuple(stated))

    def _graphs_beside(
        self, beside: reader.Surroundings, around: _Around
    ) -> Iterator[tuple[patterns.Pattern, Graph, Scope]]:
        """The alternatives of a NOT or collection, each with its graph and scope; impossible ones are left out."""
        for _, forms in settled_forms(beside.item.item, needs=beside.needs):
            for pattern in forms:
                parts = reader.Parts()
                inner = reader.without_reaches(pattern) if beside.stated is not None else pattern
                self.reader.read(inner, beside.left, beside.right, parts)
                extent = reader.extent_of(pattern)
                scope = self._scope(parts, extent, beside, around)
                if parts.moments:
                    parts.moments = _ended(parts.moments)
                graph = self._graph(parts, extent, replace(around, aside=beside.item))
                if contradiction_of(graph) is not None:
                    continue
                if any(moment.repeated and _is_endless(moment, graph, around) for moment in graph.moments):
                    raise QueryError([_endless_scope(beside.item)], self.source)
                yield pattern, graph, scope

    def _scope(self, parts: reader.Parts, extent: Extent, beside: reader.Surroundings, around: _Around) -> Scope:
        """Adds the bounds of the scope of a NOT or collection (docs/semantics.md, section 2)."""
        if beside.stated is not None:
            stated = beside.stated(extent)
            parts.times += stated
            return Scope(stated=tuple(stated))
        trailing = beside.right is None and beside.in_seq
        edges = around.edges or _Edges()
        starts, ends = list(map(start_of, extent.starts)), list(map(end_of, extent.ends))
        window = None if self.windows.ticks is None else Limit(self.windows.ticks, False)
        bounds: list[Bound] = []
        limits: list[frozenset[Limit]] = [frozenset(), frozenset()]
        if beside.left is not None:
            bounds += [
                Bound(end_of(x), start_of(y), self.before(x, y), IMPLICIT)
                for x in beside.left.ends
                for y in extent.starts
            ]
            limits[0] = frozenset(bound.limit for bound in bounds)
        elif window is not None:
            bounds += [Bound(x, y, window, IMPLICIT) for x in edges.ends for y in starts]
        if beside.right is not None:
            closing = [
                Bound(end_of(x), start_of(y), self.before(x, y), IMPLICIT)
                for x in extent.ends
                for y in beside.right.starts
            ]
            bounds += closing
            limits[1] = frozenset(bound.limit for bound in closing)
        elif not trailing:
            bounds += [Bound(x, y, ZERO, IMPLICIT) for x in ends for y in edges.ends]
        elif window is not None:
            bounds += [Bound(x, y, window, IMPLICIT) for x in ends for y in edges.starts]
        parts.times += bounds
        if self.windows.events is not None:
            limit = Limit(self.windows.events - 1, False)
            reason = graph_bounds.Reason("the window in EVENTS limits the scope of NOT")
            inside = [position_of(name) for name in parts.variables]
            if beside.left is None:
                parts.positions += [Bound(x, y, limit, reason) for x in edges.last for y in inside]
            if trailing:
                parts.positions += [Bound(x, y, limit, reason) for x in inside for y in edges.first]
        if around.edges is not None:
            return Scope(stated=tuple(bounds))
        return Scope(beside.left, beside.right, trailing, limits=(limits[0], limits[1]))

    def _no_rival(self, rival: reader.Rival, around: _Around) -> Iterator[Absence]:
        """An absence: no other match of the item after the same events and under the same conditions ends before it."""
        for chosen in choices(rival.contenders):
            about = {name: Other(name) for name in names_in(chosen)}
            for pattern in orders(renamed(chosen, about), ENDS):
                yield from self._rivals(rival, pattern, about, around)

    def _rivals(
        self, rival: reader.Rival, pattern: patterns.Pattern, about: Mapping[Name, Name], around: _Around
    ) -> Iterator[Absence]:
        parts = reader.Parts()
        self.reader.read(pattern, rival.left, rival.right, parts)
        extent, own = reader.extent_of(pattern), reader.extent_of(rival.item)
        stated = [
            Bound(end_of(x), start_of(y), self._strictly_before(x, y), IMPLICIT)
            for x in rival.after.ends
            for y in extent.starts
        ]
        stated += [
            Bound(end_of(x), end_of(y), self._ends_before(extent, own), IMPLICIT) for x in extent.ends for y in own.ends
        ]
        parts.times += stated
        parts.moments = _ended(parts.moments)
        conditions: Iterable[Expr] = ()
        if self.conditions is not None:
            conditions = self.conditions.own(parts, around.aside, around.parts, about, lists_too=False)
        replaced = frozenset(names_in(rival.item))
        if around.aside is None:
            edges = around.edges or around.whole
            around = replace(around, edges=edges.instead(replaced, _edges_of(pattern)))
        graph = self._graph(parts, extent, around, conditions)
        if contradiction_of(graph) is None:
            graph = replace(graph, replaced=replaced)
            yield Absence(graph, Scope(stated=tuple(stated)), rival.item, " that ends earlier")

    def _no_better(
        self, place: int, found: reader.Parts, chosen: patterns.Pattern, around: _Around
    ) -> Iterator[Absence]:
        """Absences: no match that differs only in the items chosen together is better at one of them, and as good at
        those before it."""
        together = picks.together(found.picks, place)
        items = [found.picks[each].pick for each in together]
        picked = {name for item in items for name in names_in(item.item)}
        beside = [name for part in patterns.walk(chosen) if is_aside(part) for name in names_in(part)]
        enclosing = [
            part.name
            for part in patterns.walk(chosen)
            if isinstance(part, patterns.NamedPattern) and picked & {*names_in(part)} and part.name not in picked
        ]
        for others in product(*(choices(item.contenders) for item in items if item.contenders is not None)):
            names = [*(name for other in others for name in names_in(other)), *beside, *enclosing]
            about = {name: Other(name) for name in names}
            other = renamed(picks.with_items(chosen, dict(zip(together, others, strict=True))), about)
            for pattern in orders(other, ENDS):
                for earlier in picks.stages(found.picks, together, place):
                    yield from self._better(earlier, frozenset(picked), pattern, about, around)

    def _better(
        self,
        stage: picks.Stage,
        picked: frozenset[Name],
        pattern: patterns.Pattern,
        about: Mapping[Name, Name],
        around: _Around,
    ) -> Iterator[Absence]:
        parts = reader.Parts()
        self.reader.read(pattern, None, None, parts)
        for own, other in stage.equal(parts.picks):
            parts.times += [*self._end_by(own, other, False), *self._end_by(other, own, False)]
        own, other = stage.compared(parts.picks)
        parts.times += self._end_by(own, other, True) if stage.latest else self._end_by(other, own, True)
        inner = frozenset(about.values())
        parts.variables = {name: found for name, found in parts.variables.items() if name in inner}
        parts.moments = {name: found for name, found in parts.moments.items() if name in inner}
        conditions = self.conditions.own(parts, None, around.parts, about) if self.conditions is not None else ()
        graph = self._graph(parts, other, replace(around, about=about, edges=_edges_of(pattern)), conditions)
        if contradiction_of(graph) is None:
            graph = replace(graph, replaced=picked)
            words = " that ends later" if stage.latest else " that ends earlier"
            yield Absence(graph, Scope(stated=()), stage.item, words)

    def _end_by(self, earlier: Extent, later: Extent, strict: bool) -> list[Bound]:
        """The bounds that `earlier` ends before `later`, or not after it."""
        limit = self._ends_before(earlier, later)._replace(strict=strict)
        return [Bound(end_of(x), end_of(y), limit, IMPLICIT) for x in earlier.ends for y in later.ends]


def _outermost(extent: Extent, times: graph_bounds.Network) -> Extent:
    """The extent without variables that are never the first to start or the last to end."""

    def kept(
        points: Sequence[graph_bounds.Point], outer: Callable[[graph_bounds.Point, graph_bounds.Point], Limit | None]
    ) -> tuple[Name, ...]:
        found: list[graph_bounds.Point] = []
        for place, point in enumerate(points):
            others = [*found, *points[place + 1 :]]
            limits = [outer(other, point) for other in others]
            if not any(limit is not None and limit.value <= 0 for limit in limits):
                found.append(point)
        return tuple(point.variable for point in found)

    return Extent(
        kept(list(map(start_of, extent.starts)), times.limit),
        kept(list(map(end_of, extent.ends)), lambda other, point: times.limit(point, other)),
    )


def _edges_of(pattern: patterns.Pattern) -> _Edges:
    extent, positions = reader.extent_of(pattern), tuple(map(position_of, reader.variables_in(pattern)))
    return _Edges(tuple(map(start_of, extent.starts)), tuple(map(end_of, extent.ends)), positions, positions)


def _ended(moments: Mapping[Name, Moment]) -> dict[Name, Moment]:
    return {name: replace(moment, ended=True) for name, moment in moments.items()}


def _is_endless(moment: Moment, graph: Graph, around: _Around) -> bool:
    """Whether nothing around a graph limits a repeated moment."""
    return not any(graph.times.limit(end_of(moment.name), point) is not None for point in around.times.points)


def _endless_scope(aside: Aside) -> Problem:
    return Problem(
        "endless-periodic",
        "this PERIODIC never ends: a window in EVENTS does not limit its time",
        aside.span,
        hint="add a WITHIN with a duration to the whole pattern, or put the item between two others in a SEQ",
    )
