"""From a checked query to its normal form: a union of event graphs with closed bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ensue.algebra.catalog import Catalog
from ensue.algebra.check import home_of, homes_of
from ensue.algebra.nodes import Events, Not, Pattern, PatternQuery, Within
from ensue.algebra.scopes import choices, counts_events, name_anonymous, whole_windows, without_names
from ensue.errors import Problem, QueryError, Source
from ensue.expr.nodes import Binary, Call, Expr, Field, IsNull, Same, conjuncts, variables_of
from ensue.expr.rewrite import substitute_fields
from ensue.graph.bounds import (
    WHOLE_END,
    WHOLE_FIRST,
    WHOLE_LAST,
    WHOLE_START,
    ZERO,
    Bound,
    Contradiction,
    Limit,
    Network,
    Point,
    Reason,
    close,
    end_of,
    extend,
    position_of,
    start_of,
)
from ensue.graph.model import Absence, Equality, Extent, Graph, NormalForm, Windows
from ensue.graph.reading import BEFORE, Negation, Parts, Reader, extent_of, trails
from ensue.graph.temporal import bounds_of
from ensue.graph.timescale import TimeScale
from ensue.lang.render import render_expression, render_pattern

IMPLICIT = Reason("")
"""Why a bound holds that no clause of the user states, such as that an event starts before it ends."""


def normalize_query(query: PatternQuery, catalog: Catalog, source: Source | None = None) -> NormalForm:
    """The union of graphs that a checked and bound query means. Raises `never-holds` if no graph can ever match."""
    builder = GraphBuilder(query, catalog)
    graphs: list[Graph] = []
    dropped: list[str] = []
    contradictions: list[Contradiction] = []
    for pattern in choices(builder.pattern):
        graph = builder.whole_graph(pattern)
        found = contradiction_of(graph)
        if found is None:
            graphs.append(graph)
        else:
            contradictions.append(found)
            dropped.append(f"{render_pattern(pattern)}: {explain_contradiction(found)}")
    if not graphs:
        raise QueryError([_never_holds(contradictions[0])], source)
    return NormalForm(tuple(graphs), builder.windows, tuple(dropped))


def contradiction_of(graph: Graph) -> Contradiction | None:
    """Why the bounds of a graph can never hold, or None."""
    return graph.times.contradiction or graph.positions.contradiction


def explain_contradiction(contradiction: Contradiction) -> str:
    """The cycle in the user's own clauses, in the order in which it closes."""
    return ", but ".join(dict.fromkeys(bound.reason.text for bound in contradiction.cycle if bound.reason.text))


def _never_holds(contradiction: Contradiction) -> Problem:
    spans = [bound.reason.span for bound in contradiction.cycle if bound.reason.span is not None]
    return Problem(
        "never-holds",
        f"the pattern can never match: {explain_contradiction(contradiction)}",
        max(spans, key=lambda span: span.start, default=None),
        hint=_way_out(contradiction),
    )


def _way_out(contradiction: Contradiction) -> str:
    clauses = {bound.reason.text for bound in contradiction.cycle if bound.reason.text}
    if all(text.startswith("SEQ puts") for text in clauses):
        return "a variable that is written twice is one event: give the second its own name"
    return "one of these clauses has to go or to be loosened"


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The conditions of one graph by what can be done with them."""

    bounds: tuple[Bound, ...]
    predicates: dict[str, tuple[Expr, ...]]
    equalities: tuple[Equality, ...]
    conditions: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Around:
    """What is around a graph, outermost first, and its closed bounds; no positions where no window counts them."""

    parts: tuple[Parts, ...]
    times: Network
    positions: Network


def _closed(outer: Network, points: Iterable[Point], bounds: list[Bound]) -> Network:
    """The outermost graph is closed as a whole; what comes inside of it is added bound by bound."""
    return extend(outer, points, bounds) if outer.paths else close((*outer.points, *points), bounds)


class GraphBuilder:
    """Builds the graphs of one query and holds what is the same for all of them."""

    def __init__(self, query: PatternQuery, catalog: Catalog) -> None:
        if query.within is not None:
            query = replace(query, pattern=Within(query.pattern, query.within), within=None)
        query, anonymous = name_anonymous(query)
        self.pattern: Pattern = query.pattern
        self.catalog = catalog
        self.scale = TimeScale(catalog.unit)
        self.reader = Reader(self.scale.ticks, anonymous)
        self.windows = self._windows(query)
        self.counting = counts_events(query)
        self.same = tuple(name for part in conjuncts(query.where) if isinstance(part, Same) for name in part.fields)
        homes = homes_of(query.pattern)
        self.filed: list[tuple[Not | None, Expr]] = []
        for conjunct in conjuncts(query.where):
            if not isinstance(conjunct, Same):
                home = home_of(conjunct, homes)
                self.filed.append((home.negation if home else None, conjunct))

    def _windows(self, query: PatternQuery) -> Windows:
        windows = whole_windows(query)
        return Windows(
            min((self.scale.ticks(window) for window in windows if not isinstance(window, Events)), default=None),
            min((window.count for window in windows if isinstance(window, Events)), default=None),
        )

    def whole_graph(self, pattern: Pattern) -> Graph:
        parts = Parts()
        self.reader.read(pattern, None, None, parts)
        extent = extent_of(pattern)
        self._bound_whole(parts, extent)
        positions = Network((WHOLE_FIRST, WHOLE_LAST)) if self.counting else Network()
        nothing = _Around((), Network((WHOLE_START, WHOLE_END)), positions)
        return replace(self._finish(parts, extent, None, nothing), trailing=trails(pattern))

    def _bound_whole(self, parts: Parts, extent: Extent) -> None:
        """The ends of the match as points around all others, exact where only one variable can be first or last."""
        parts.times += [Bound(WHOLE_START, start_of(name), ZERO, IMPLICIT) for name in extent.starts]
        parts.times += [Bound(end_of(name), WHOLE_END, ZERO, IMPLICIT) for name in extent.ends]
        if len(extent.starts) == 1:
            parts.times.append(Bound(start_of(extent.starts[0]), WHOLE_START, ZERO, IMPLICIT))
        if len(extent.ends) == 1:
            parts.times.append(Bound(WHOLE_END, end_of(extent.ends[0]), ZERO, IMPLICIT))
        if self.windows.ticks is not None:
            parts.times.append(Bound(WHOLE_END, WHOLE_START, Limit(self.windows.ticks, False), IMPLICIT))
        for name in parts.variables:
            parts.positions.append(Bound(WHOLE_FIRST, position_of(name), ZERO, IMPLICIT))
            parts.positions.append(Bound(position_of(name), WHOLE_LAST, ZERO, IMPLICIT))
        if self.windows.events is not None:
            parts.positions.append(Bound(WHOLE_LAST, WHOLE_FIRST, Limit(self.windows.events - 1, False), IMPLICIT))

    def _finish(self, parts: Parts, extent: Extent, negation: Not | None, around: _Around) -> Graph:
        """The graph of these parts, closed together with what is around it."""
        found = self._sort_conditions(parts, negation, around.parts)
        parts.times += found.bounds
        inside = self._close(parts, around)
        variables = tuple(
            replace(variable, predicates=variable.predicates + found.predicates.get(variable.name, ()))
            for variable in parts.variables.values()
        )
        absences: tuple[Absence, ...] = ()
        if inside.times.contradiction is None and inside.positions.contradiction is None:
            absences = tuple(absence for item in parts.negations for absence in self._absences(item, inside))
        return Graph(
            variables,
            extent,
            inside.times,
            inside.positions,
            found.conditions,
            found.equalities,
            absences,
            ties=tuple(bound for bound in found.bounds if not _points_of(bound) <= parts.variables.keys()),
            intervals=parts.intervals,
        )

    # -- networks -----------------------------------------------------------------------------------------------------

    def _close(self, parts: Parts, around: _Around) -> _Around:
        """What the graphs inside of this one see around them: its bounds, closed together with those outside."""
        points: list[Point] = []
        bounds: list[Bound] = []
        for variable in parts.variables.values():
            start, end = start_of(variable.name), end_of(variable.name)
            points += [start, end]
            bounds.append(Bound(start, end, ZERO, IMPLICIT))
            schema = self.catalog.stream(variable.stream)
            if schema is None or schema.end is None:
                bounds.append(Bound(end, start, ZERO, IMPLICIT))
        times = _closed(around.times, points, bounds + parts.times)
        if not self.counting:
            return _Around((*around.parts, parts), times, around.positions)
        order = self._order_of_positions(parts, around, times)
        positions = _closed(around.positions, map(position_of, parts.variables), parts.positions + order)
        return _Around((*around.parts, parts), times, positions)

    def _order_of_positions(self, parts: Parts, around: _Around, times: Network) -> list[Bound]:
        """Positions follow the order of ends."""
        own = list(parts.variables)
        names = [name for level in around.parts for name in level.variables] + own
        pairs = [(x, y) for x in names for y in names if x != y and (x in own or y in own)]
        word = self.reader.word
        return [
            Bound(position_of(x), position_of(y), Limit(-1, False), Reason(f"{word(x)} ends before {word(y)}"))
            for x, y in pairs
            if times.before(end_of(x), end_of(y))
        ]

    # -- conditions ---------------------------------------------------------------------------------------------------

    def _sort_conditions(self, parts: Parts, negation: Not | None, outer: tuple[Parts, ...]) -> _Sorted:
        streams = {name: item.stream for level in (*outer, parts) for name, item in level.variables.items()}
        bounds: list[Bound] = []
        predicates: dict[str, tuple[Expr, ...]] = {}
        equalities: list[Equality] = []
        conditions: list[Expr] = []

        def point_of(field: Field) -> Point | None:
            assert field.variable is not None
            side = self.catalog.endpoint(streams[field.variable], field)
            return None if side is None else Point(field.variable, side)

        for condition in self._own_conditions(parts, negation, outer):
            names = variables_of(condition)
            stated = bounds_of(condition, point_of, self.scale, _reason(condition)) if len(names) > 1 else ()
            if not names or (len(names) == 1 and names <= parts.variables.keys()):
                name = next(iter(names or parts.variables))
                predicates[name] = (*predicates.get(name, ()), condition)
            elif stated:
                bounds += stated
            elif (equality := _equality(condition)) is not None:
                equalities.append(equality)
            else:
                conditions.append(condition)
        return _Sorted(tuple(bounds), predicates, tuple(equalities), tuple(conditions))

    def _own_conditions(self, parts: Parts, negation: Not | None, outer: tuple[Parts, ...]) -> Iterator[Expr]:
        """The conjuncts of this scope whose names are all bound here, AS names replaced by what they stand for."""
        bound = parts.names.union(*(level.names for level in outer))
        intervals = {name: extent for level in (*outer, parts) for name, extent in level.intervals.items()}
        for home, conjunct in self.filed:
            if home is negation and variables_of(conjunct) <= bound:
                yield substitute_fields(conjunct, lambda field: resolve_interval(field, intervals))
        anchor = next(iter((*outer, parts)[0].variables))
        for name in parts.variables:
            for field in self.same:
                yield IsNull(Field(name, field), negated=True)
                if name != anchor:
                    yield Binary("=", Field(anchor, field), Field(name, field))

    # -- absences -----------------------------------------------------------------------------------------------------

    def _absences(self, negation: Negation, around: _Around) -> Iterator[Absence]:
        trailing = negation.right is None and negation.in_seq
        for pattern in choices(negation.item.item):
            parts = Parts()
            self.reader.read(pattern, negation.left, negation.right, parts)
            extent = extent_of(pattern)
            self._bound_scope(parts, extent, negation, trailing)
            graph = self._finish(parts, extent, negation.item, around)
            if contradiction_of(graph) is None:
                text = render_pattern(without_names(pattern, self.reader.anonymous))
                yield Absence(graph, negation.left, negation.right, trailing, text)

    def _bound_scope(self, parts: Parts, extent: Extent, negation: Negation, trailing: bool) -> None:
        """The scope of a negation (section 2 of the contract) as bounds on the forbidden match."""
        if negation.left is not None:
            for x in negation.left.ends:
                parts.times += [Bound(end_of(x), start_of(y), BEFORE, IMPLICIT) for y in extent.starts]
        elif self.windows.ticks is not None:
            limit = Limit(self.windows.ticks, False)
            parts.times += [Bound(WHOLE_END, start_of(y), limit, IMPLICIT) for y in extent.starts]
        if negation.right is not None:
            for x in extent.ends:
                parts.times += [Bound(end_of(x), start_of(y), BEFORE, IMPLICIT) for y in negation.right.starts]
        elif not trailing:
            parts.times += [Bound(end_of(x), WHOLE_END, ZERO, IMPLICIT) for x in extent.ends]
        elif self.windows.ticks is not None:
            limit = Limit(self.windows.ticks, False)
            parts.times += [Bound(end_of(x), WHOLE_START, limit, IMPLICIT) for x in extent.ends]
        if self.windows.events is not None:
            limit = Limit(self.windows.events - 1, False)
            reason = Reason("the window in EVENTS closes the scope of NOT")
            if negation.left is None:
                parts.positions += [Bound(WHOLE_LAST, position_of(y), limit, reason) for y in parts.variables]
            if trailing:
                parts.positions += [Bound(position_of(y), WHOLE_FIRST, limit, reason) for y in parts.variables]


def _points_of(bound: Bound) -> set[str]:
    return {bound.left.variable, bound.right.variable}


def _reason(condition: Expr) -> Reason:
    return Reason(f"WHERE says `{render_expression(condition)}`", condition.span)


def _equality(condition: Expr) -> Equality | None:
    match condition:
        case Binary(operator="=", left=Field() as left, right=Field() as right) if left.variable != right.variable:
            return Equality(left, right, condition)
        case _:
            return None


def resolve_interval(field: Field, intervals: Mapping[str, Extent]) -> Expr:
    """`name.s` of an AS name: the least start of the variables it can begin with; `name.e`: the greatest end."""
    extent = intervals.get(field.variable or "")
    if extent is None:
        return field
    names, function = (extent.starts, "least") if field.name == "s" else (extent.ends, "greatest")
    ends = tuple(Field(name, field.name, field.span) for name in names)
    return ends[0] if len(ends) == 1 else Call(function, ends, field.span)
