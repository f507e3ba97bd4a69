"""From a checked query to its normal form: a union of event graphs with closed bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ensue.algebra.catalog import Catalog
from ensue.algebra.check import home_of, homes_of
from ensue.algebra.choices import choices, names_in, orders, renamed
from ensue.algebra.expand import as_written, expand_query
from ensue.algebra.lists import list_names
from ensue.algebra.nodes import Copied, Events, Not, Pattern, PatternQuery, Pick, Repeat, Within, walk
from ensue.algebra.operators import NEXT_MATCH, STRICT
from ensue.algebra.scopes import (
    Aside,
    counts_events,
    group_of,
    growing_lists,
    is_aside,
    name_anonymous,
    whole_windows,
    without_names,
)
from ensue.algebra.scopes import Scope as NameScope
from ensue.errors import Problem, QueryError, Source
from ensue.expr.lists import explicit_lists, has_prev, list_variables
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
from ensue.graph.lists import Repetitions, lists_in, renamed_lists, under_name
from ensue.graph.model import Absence, Collection, Equality, Extent, Graph, Moment, NormalForm, Scope, Windows
from ensue.graph.reading import BEFORE, Parts, Reader, Rival, Surroundings, extent_of, trails, variables_in
from ensue.graph.temporal import bounds_of
from ensue.graph.timescale import TimeScale
from ensue.lang.render import render_expression, render_pattern

IMPLICIT = Reason("")
"""Why a bound holds that no clause of the user states, such as that an event starts before it ends."""


def normalize_query(
    query: PatternQuery, catalog: Catalog, source: Source | None = None, longest: int = 1
) -> NormalForm:
    """The union of graphs that a checked and bound query means. Raises `never-holds` if no graph can ever match.

    A repetition without an upper limit comes `longest` times at most.
    """
    builder = GraphBuilder(query, catalog, source, longest)
    graphs: list[Graph] = []
    dropped: list[str] = []
    contradictions: list[Contradiction] = []
    for number, pattern in enumerate(choices(builder.pattern, longest)):
        possible: list[Graph] = []
        for ordered in orders(pattern):
            graph = builder.whole_graph(pattern, ordered, number)
            found = contradiction_of(graph)
            if found is None:
                possible.append(graph)
            else:
                contradictions.append(found)
        graphs += possible
        if not possible:
            dropped.append(f"{builder.text_of(pattern)}: {explain_contradiction(contradictions[-1])}")
    if not graphs:
        raise QueryError([_never_holds(contradictions[0])], source)
    return NormalForm(tuple(graphs), builder.windows, tuple(dropped), builder.pattern, builder.repetitions)


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
    aside: Aside | None = None
    about: Mapping[str, str] | None = None


def _closed(outer: Network, points: Iterable[Point], bounds: list[Bound]) -> Network:
    """The outermost graph is closed as a whole; what comes inside of it is added bound by bound."""
    return extend(outer, points, bounds) if outer.paths else close((*outer.points, *points), bounds)


class GraphBuilder:
    """Builds the graphs of one query and holds what is the same for all of them."""

    def __init__(self, query: PatternQuery, catalog: Catalog, source: Source | None, longest: int) -> None:
        self.source = source
        self.policy = query.policy
        if query.within is not None:
            query = replace(query, pattern=Within(query.pattern, query.within), within=None)
        query, anonymous = name_anonymous(query)
        query = expand_query(query)
        self.pattern: Pattern = query.pattern
        self.catalog = catalog
        self.scale = TimeScale(catalog.unit)
        self.reader = Reader(self.scale.ticks, anonymous)
        self.windows = self._windows(query)
        self.counting = counts_events(query)
        self.same = tuple(name for part in conjuncts(query.where) if isinstance(part, Same) for name in part.fields)
        self.repetitions = Repetitions.of(query, longest)
        self.growing = growing_lists(query.pattern)
        self.filed: list[tuple[Aside | None, Expr]] = []
        self.filed_lists: list[tuple[Aside | None, Expr]] = []
        for conjunct in conjuncts(query.where):
            if not isinstance(conjunct, Same):
                self._file(conjunct, homes_of(query.pattern))

    def _file(self, conjunct: Expr, homes: dict[str, NameScope]) -> None:
        """Notes a conjunct with its scope: as often as there are rounds, or for the lists that it is about."""
        groups = self.repetitions.groups
        home = home_of(conjunct, homes, groups)
        aside = home.aside if home else None
        names = list_names(conjunct, groups)
        if has_prev(conjunct) and groups[min(names)] not in self.repetitions.unrolled:
            self.filed_lists.append((aside, conjunct))
        elif names and not has_prev(conjunct):
            self.filed_lists.append((aside, explicit_lists(conjunct, groups, [])))
        else:
            self.filed += [(aside, part) for part in self.repetitions.in_rounds(conjunct, home)]

    def _windows(self, query: PatternQuery) -> Windows:
        windows = whole_windows(query)
        return Windows(
            min((self.scale.ticks(window) for window in windows if not isinstance(window, Events)), default=None),
            min((window.count for window in windows if isinstance(window, Events)), default=None),
        )

    def text_of(self, pattern: Pattern) -> str:
        """A part of the expanded pattern as the user would write it."""
        return render_pattern(as_written(without_names(pattern, self.reader.anonymous)))

    def whole_graph(self, chosen: Pattern, pattern: Pattern, number: int) -> Graph:
        """The graph of a chosen pattern in one order of its items; `number` is that of the choice."""
        parts = Parts()
        self.reader.read(pattern, None, None, parts)
        extent = extent_of(pattern)
        if self.policy == STRICT:
            parts.positions += _adjacent(variables_in(pattern))
        self._bound_whole(parts, extent)
        positions = Network((WHOLE_FIRST, WHOLE_LAST)) if self.counting else Network()
        nothing = _Around((), Network((WHOLE_START, WHOLE_END)), positions)
        graph = self._finish(parts, extent, None, nothing, chosen)
        late = any(self._comes_later(absence, graph) for absence in graph.absences)
        succession = variables_in(pattern) if self.policy == NEXT_MATCH else ()
        return replace(graph, trailing=late or trails(pattern), succession=succession, number=number)

    def _comes_later(self, absence: Absence, graph: Graph) -> bool:
        """True if what LAST forbids may come after the match: then only the window closes its scope."""
        if not absence.scope.waits or contradiction_of(graph) is not None:
            return False
        (last,) = absence.graph.extent.ends
        limit = absence.graph.times.limit(end_of(last), WHOLE_END)
        if limit is not None and limit.whole <= 0:
            return False
        if self.windows.ticks is None or absence.scope.first:
            raise QueryError([_endless_pick(absence)], self.source)
        return True

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

    def _finish(
        self, parts: Parts, extent: Extent, aside: Aside | None, around: _Around, chosen: Pattern | None = None
    ) -> Graph:
        """The graph of these parts, closed together with what is around it; `chosen` is the whole pattern."""
        conditions = self._own_conditions(parts, aside, around.parts)
        return self._with_conditions(parts, extent, conditions, replace(around, aside=aside), chosen)

    def _with_conditions(
        self,
        parts: Parts,
        extent: Extent,
        conditions: Iterable[Expr],
        around: _Around,
        chosen: Pattern | None = None,
    ) -> Graph:
        found = self._sort_conditions(parts, conditions, around.parts)
        parts.times += found.bounds
        inside = self._close(parts, around)
        variables = tuple(
            replace(variable, predicates=variable.predicates + found.predicates.get(variable.name, ()))
            for variable in parts.variables.values()
        )
        absences: tuple[Absence, ...] = ()
        collections: tuple[Collection, ...] = ()
        if inside.times.contradiction is None and inside.positions.contradiction is None:
            absences = tuple(
                absence
                for item in parts.asides
                if isinstance(item.item, Not)
                for absence in self._absences(item, inside)
            )
            collections = tuple(
                self._collection(item, item.item, inside) for item in parts.asides if isinstance(item.item, Repeat)
            )
            absences += tuple(absence for rival in parts.rivals for absence in self._no_rival(rival, inside))
            if chosen is not None:
                absences += tuple(absence for pick in parts.picks for absence in self._no_better(pick, chosen, inside))
        return Graph(
            variables,
            extent,
            inside.times,
            inside.positions,
            found.conditions,
            found.equalities,
            absences,
            collections=collections,
            list_conditions=tuple(self._list_conditions(parts, inside, collections)),
            rounds=self.repetitions.rounds(parts.names),
            moments=tuple(parts.moments.values()),
            series=parts.series,
            ties=tuple(
                bound
                for bound in found.bounds
                if not _points_of(bound) <= parts.variables.keys() | parts.moments.keys()
            ),
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
        for name in parts.moments:
            start, end = start_of(name), end_of(name)
            points += [start, end]
            bounds += [Bound(start, end, ZERO, IMPLICIT), Bound(end, start, ZERO, IMPLICIT)]
        times = _closed(around.times, points, bounds + parts.times)
        if not self.counting:
            return replace(around, parts=(*around.parts, parts), times=times)
        order = self._order_of_positions(parts, around, times)
        positions = _closed(around.positions, map(position_of, parts.variables), parts.positions + order)
        return replace(around, parts=(*around.parts, parts), times=times, positions=positions)

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

    def _sort_conditions(self, parts: Parts, own: Iterable[Expr], outer: tuple[Parts, ...]) -> _Sorted:
        streams = {name: item.stream for level in (*outer, parts) for name, item in level.variables.items()}
        bounds: list[Bound] = []
        predicates: dict[str, tuple[Expr, ...]] = {}
        equalities: list[Equality] = []
        conditions: list[Expr] = []

        def point_of(field: Field) -> Point | None:
            assert field.variable is not None
            if field.variable not in streams:
                return end_of(field.variable)
            side = self.catalog.endpoint(streams[field.variable], field)
            return None if side is None else Point(field.variable, side)

        for condition in own:
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

    def _own_conditions(
        self,
        parts: Parts,
        aside: Aside | None,
        outer: tuple[Parts, ...],
        about: Mapping[str, str] | None = None,
        lists_too: bool = True,
    ) -> Iterator[Expr]:
        """The conjuncts of this scope whose names are all bound here, AS names replaced by what they stand for.

        `about` gives names to variables of which the graph is a copy: then only conjuncts that name one of them count,
        those about lists only with `lists_too`.
        """
        levels = (*outer, parts)
        bound = frozenset(name for level in levels for name in level.names)
        intervals = {name: extent for level in levels for name, extent in level.intervals.items()}
        moments = {name: moment for level in levels for name, moment in level.moments.items()}
        original, names = (aside, {}) if aside is None or aside.copied is None else _original(aside.copied)
        names = names if about is None else {name: about.get(new, new) for name, new in names.items()} | dict(about)
        for home, conjunct in self.filed:
            if home is original and (about is None or variables_of(conjunct) & names.keys()):
                own = substitute_fields(conjunct, lambda field: under_name(field, names))
                if variables_of(own) <= bound:
                    yield substitute_fields(own, lambda field: self._resolved(field, intervals, moments))
        for home, conjunct in self.filed_lists:
            if home is original and (about is None or (lists_too and variables_of(conjunct) & names.keys())):
                own = self._about_lists(renamed_lists(conjunct, names), bound)
                late = lists_in(conjunct) & self.growing
                if not late and not lists_in(own) and not has_prev(own) and variables_of(own) <= bound:
                    yield substitute_fields(own, lambda field: self._resolved(field, intervals, moments))
        anchor = next(iter((*outer, parts)[0].variables))
        for name in parts.variables:
            for field in self.same:
                yield IsNull(Field(name, field), negated=True)
                if name != anchor:
                    yield Binary("=", Field(anchor, field), Field(name, field))

    def _about_lists(self, conjunct: Expr, bound: frozenset[str]) -> Expr:
        """The conjunct with the lists of unrolled repetitions made of their rounds."""
        return self.repetitions.gathered(conjunct, self.repetitions.rounds(bound), bound)

    def _list_conditions(self, parts: Parts, around: _Around, collections: Sequence[Collection]) -> Iterator[Expr]:
        """The conjuncts of this scope that are judged when all else is bound.

        Those are the ones about collections, which are known only then, and those about a repetition without a limit:
        that a match is too short for them does not mean that no longer one is left.
        """
        levels = around.parts
        bound = frozenset(name for level in levels for name in level.names)
        intervals = {name: extent for level in levels for name, extent in level.intervals.items()}
        moments = {name: moment for level in levels for name, moment in level.moments.items()}
        aside = around.aside
        original, names = (aside, {}) if aside is None or aside.copied is None else _original(aside.copied)
        names = names if around.about is None else {**around.about, **names}
        listed = {name: found.name for found in collections for name in found.names}
        for home, conjunct in self.filed_lists:
            if home is original:
                own = self._about_lists(renamed_lists(conjunct, names), bound)
                lists = lists_in(own) | (list_variables(own, listed) if has_prev(own) else frozenset())
                if (
                    (lists or lists_in(conjunct) & self.growing)
                    and lists <= listed.keys()
                    and variables_of(own) <= bound | listed.keys()
                ):
                    yield substitute_fields(own, lambda field: self._resolved(field, intervals, moments))

    def _resolved(self, field: Field, intervals: Mapping[str, Extent], moments: Mapping[str, Moment]) -> Expr:
        return resolve_interval(field, intervals, moments, self.scale)

    # -- what is beside the match ------------------------------------------------------------------------------------

    def _absences(self, beside: Surroundings, around: _Around) -> Iterator[Absence]:
        trailing = beside.right is None and beside.in_seq and beside.stated is None
        for pattern in self._orders_of(beside):
            parts = Parts()
            self.reader.read(pattern, beside.left, beside.right, parts)
            extent = extent_of(pattern)
            scope = self._scope(parts, extent, beside, trailing)
            graph = self._finish(parts, extent, beside.item, around)
            if contradiction_of(graph) is None:
                yield Absence(graph, scope, self.text_of(pattern))

    def _collection(self, beside: Surroundings, repeat: Repeat, around: _Around) -> Collection:
        graphs = []
        for pattern in self._orders_of(beside):
            parts = Parts()
            self.reader.read(pattern, beside.left, beside.right, parts)
            extent = extent_of(pattern)
            self._scope(parts, extent, beside, beside.right is None and beside.in_seq and beside.stated is None)
            graph = self._finish(parts, extent, repeat, around)
            if contradiction_of(graph) is None:
                graphs.append(graph)
        name = group_of(repeat)
        assert name is not None
        return Collection(
            name, names_in(repeat.item), tuple(graphs), repeat.least, repeat.most, self.text_of(repeat.item)
        )

    def _orders_of(self, beside: Surroundings) -> Iterator[Pattern]:
        for pattern in choices(beside.item.item):
            yield from orders(pattern, beside.needs)

    def _scope(self, parts: Parts, extent: Extent, beside: Surroundings, trailing: bool) -> Scope:
        """Adds the bounds that the scope means for what lies in it."""
        if beside.stated is not None:
            stated = beside.stated(extent)
            parts.times += stated
            return Scope(stated=tuple(stated))
        self._bound_scope(parts, extent, beside, trailing)
        return Scope(beside.left, beside.right, trailing)

    def _bound_scope(self, parts: Parts, extent: Extent, beside: Surroundings, trailing: bool) -> None:
        """The scope of a negation or collection (section 2 of the contract) as bounds on what lies in it."""
        if beside.left is not None:
            for x in beside.left.ends:
                parts.times += [Bound(end_of(x), start_of(y), BEFORE, IMPLICIT) for y in extent.starts]
        elif self.windows.ticks is not None:
            limit = Limit(self.windows.ticks, False)
            parts.times += [Bound(WHOLE_END, start_of(y), limit, IMPLICIT) for y in extent.starts]
        if beside.right is not None:
            for x in extent.ends:
                parts.times += [Bound(end_of(x), start_of(y), BEFORE, IMPLICIT) for y in beside.right.starts]
        elif not trailing:
            parts.times += [Bound(end_of(x), WHOLE_END, ZERO, IMPLICIT) for x in extent.ends]
        elif self.windows.ticks is not None:
            limit = Limit(self.windows.ticks, False)
            parts.times += [Bound(end_of(x), WHOLE_START, limit, IMPLICIT) for x in extent.ends]
        if self.windows.events is not None:
            limit = Limit(self.windows.events - 1, False)
            reason = Reason("the window in EVENTS closes the scope of NOT")
            if beside.left is None:
                parts.positions += [Bound(WHOLE_LAST, position_of(y), limit, reason) for y in parts.variables]
            if trailing:
                parts.positions += [Bound(position_of(y), WHOLE_FIRST, limit, reason) for y in parts.variables]

    def _no_rival(self, rival: Rival, around: _Around) -> Iterator[Absence]:
        """No other match of the item comes after the same events, under the same conditions, and ends before it."""
        about = {name: rival_name(name) for name in names_in(rival.item)}
        for pattern in orders(renamed(rival.item, about)):
            parts = Parts()
            self.reader.read(pattern, rival.after, None, parts)
            extent, own = extent_of(pattern), extent_of(rival.item)
            stated = [Bound(end_of(x), start_of(y), BEFORE, IMPLICIT) for x in rival.after.ends for y in extent.starts]
            stated += [Bound(end_of(x), end_of(y), BEFORE, IMPLICIT) for x in extent.ends for y in own.ends]
            parts.times += stated
            conditions = self._own_conditions(parts, around.aside, around.parts, about, lists_too=False)
            graph = self._with_conditions(parts, extent, conditions, around)
            if contradiction_of(graph) is None:
                yield Absence(graph, Scope(stated=tuple(stated)), f"{self.text_of(rival.item)} that ends earlier")

    def _no_better(self, pick: Pick, chosen: Pattern, around: _Around) -> Iterator[Absence]:
        """No match differs only in what the item binds, which ends earlier (FIRST) or later (LAST)."""
        own = extent_of(pick.item)
        beside = [name for part in walk(chosen) if is_aside(part) for name in names_in(part)]
        about = {name: rival_name(name) for name in (*names_in(pick.item), *beside)}
        inner = frozenset(about.values())
        for pattern in orders(renamed(chosen, about)):
            parts = Parts()
            self.reader.read(pattern, None, None, parts)
            copy = next(
                found for found in parts.picks if names_in(found.item) == tuple(map(about.get, names_in(pick.item)))
            )
            extent = extent_of(copy.item)
            earlier, later = (own, extent) if pick.latest else (extent, own)
            parts.times += [Bound(end_of(x), end_of(y), BEFORE, IMPLICIT) for x in earlier.ends for y in later.ends]
            parts.variables = {name: found for name, found in parts.variables.items() if name in inner}
            parts.moments = {name: found for name, found in parts.moments.items() if name in inner}
            conditions = self._own_conditions(parts, None, around.parts, about)
            graph = self._with_conditions(parts, extent, conditions, replace(around, about=about))
            if contradiction_of(graph) is None:
                order = "later" if pick.latest else "earlier"
                scope = Scope(stated=(), waits=pick.latest, first=bool({*own.starts} & {*extent_of(chosen).starts}))
                yield Absence(graph, scope, f"{self.text_of(pick.item)} that ends {order}")


def _adjacent(names: Sequence[str]) -> list[Bound]:
    """Each event is at the very next position after the one before."""
    reason = Reason("MATCH STRICT takes neighbouring events")
    bounds = []
    for earlier, later in pairwise(names):
        x, y = position_of(earlier), position_of(later)
        bounds += [Bound(y, x, Limit(1, False), reason), Bound(x, y, Limit(-1, False), reason)]
    return bounds


def rival_name(name: str) -> str:
    """The name of another event in the place of a variable."""
    return f"other {name}"


def _original(copied: Copied) -> tuple[Aside, Mapping[str, str]]:
    return copied.original, copied.names


def _endless_pick(absence: Absence) -> Problem:
    return Problem(
        "endless-last",
        f"LAST would wait for ever: nothing says how long `{absence.text}` may still come",
        hint="add a WITHIN to the whole pattern, or put the item before another one of a SEQ",
    )


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


def resolve_interval(
    field: Field, intervals: Mapping[str, Extent], moments: Mapping[str, Moment], scale: TimeScale
) -> Expr:
    """`name.s` of an AS name: the least start of the variables it can begin with; `name.e`: the greatest end."""
    extent = intervals.get(field.variable or "")
    if extent is None or field.name not in ("s", "e"):
        return field
    names, function = (extent.starts, "least") if field.name == "s" else (extent.ends, "greatest")
    ends = tuple(_end_field(name, field, moments, scale) for name in names)
    return ends[0] if len(ends) == 1 else Call(function, ends, field.span)


def _end_field(name: str, field: Field, moments: Mapping[str, Moment], scale: TimeScale) -> Expr:
    """The end of a variable; of a moment that is so long after one, that one and the time between."""
    moment = moments.get(name)
    if moment is None or moment.repeated:
        return Field(name, field.name, field.span)
    base = _end_field(moment.base.variable, replace(field, name=moment.base.side), moments, scale)
    return Binary("+", base, scale.literal(moment.ticks), field.span)
