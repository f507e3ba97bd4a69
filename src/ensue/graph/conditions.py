"""Assigns the conditions of a query to its graphs, and turns conditions on time into difference bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.analysis.catalog import Catalog
from ensue.analysis.scopes import Aside, Scope, homes_of, list_groups
from ensue.check.fields import list_names
from ensue.check.query import home_of
from ensue.expr.lists import explicit_lists, has_prev, list_variables
from ensue.graph.bounds import Bound, Limit, Point, Reason, TimeScale, end_of
from ensue.graph.graphs import Collection, Equality, Extent, Moment
from ensue.graph.lists import Repetitions, lists_in, renamed_lists, under_name
from ensue.graph.reader import Parts
from ensue.nodes import expressions
from ensue.nodes.names import Name, in_order
from ensue.nodes.patterns import PatternQuery
from ensue.text.render import render_expression

# --- difference bounds: `b.t - a.t <= 5m`, `a.e < b.s`, `a.t = b.t`

PointOf = Callable[[expressions.Field], Point | None]
"""The point of a field that is a time; None for other fields."""

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of points with integer coefficients plus a constant, in nanoseconds or, for integer time, in ticks."""

    terms: tuple[tuple[Point, int], ...]
    constant: int

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        total = dict(self.terms)
        for point, count in other.terms:
            total[point] = total.get(point, 0) + sign * count
        return Linear(tuple((p, c) for p, c in total.items() if c), self.constant + sign * other.constant)


def bounds_of(condition: expressions.Expr, point_of: PointOf, scale: TimeScale, reason: Reason) -> tuple[Bound, ...]:
    """The bounds that are equivalent to the condition; none if it is not a difference bound."""
    if isinstance(condition, expressions.Between) and not condition.negated:
        low = bounds_of(expressions.Binary(">=", condition.operand, condition.low), point_of, scale, reason)
        high = bounds_of(expressions.Binary("<=", condition.operand, condition.high), point_of, scale, reason)
        return low + high if low and high else ()
    if not isinstance(condition, expressions.Binary) or condition.operator not in MIRRORED:
        return ()
    left, right = linear(condition.left, point_of, scale), linear(condition.right, point_of, scale)
    if left is None or right is None:
        return ()
    difference = left.plus(right, -1)
    if sorted(count for _, count in difference.terms) != [-1, 1]:
        return ()
    (first, count), (second, _) = difference.terms
    operator = condition.operator
    constant = -difference.constant
    if count < 0:
        operator, constant = MIRRORED[operator], -constant
    return _difference(first, second, operator, constant, scale, reason)


def _difference(
    first: Point, second: Point, operator: str, constant: int, scale: TimeScale, reason: Reason
) -> tuple[Bound, ...]:
    """`first - second operator constant`."""
    at_most = Bound(first, second, Limit(scale.floor(constant), False), reason)
    at_least = Bound(second, first, Limit(scale.floor(-constant), False), reason)
    match operator:
        case "<=":
            return (at_most,)
        case ">=":
            return (at_least,)
        case "=":
            return (at_most, at_least)
        case "<":
            return (Bound(first, second, Limit(scale.ceil(constant), True), reason),)
        case _:
            return (Bound(second, first, Limit(scale.ceil(-constant), True), reason),)


def linear(expr: expressions.Expr, point_of: PointOf, scale: TimeScale) -> Linear | None:
    """The expression as a linear one over points; None if it is not linear."""
    match expr:
        case expressions.Field():
            point = point_of(expr)
            return None if point is None else Linear(((point, 1),), 0)
        case expressions.Duration():
            return None if scale.unit is None else Linear((), expr.nanoseconds)
        case expressions.Literal(value=int(number)) if not isinstance(number, bool) and scale.unit is None:
            return Linear((), number)
        case expressions.Unary(operator="-"):
            operand = linear(expr.operand, point_of, scale)
            return None if operand is None else Linear((), 0).plus(operand, -1)
        case expressions.Binary(operator="+" | "-"):
            left, right = linear(expr.left, point_of, scale), linear(expr.right, point_of, scale)
            if left is None or right is None:
                return None
            return left.plus(right, 1 if expr.operator == "+" else -1)
        case _:
            return None


# --- conditions


@dataclass(frozen=True, slots=True)
class GraphConditions:
    """The conditions of one graph, sorted by how they are evaluated."""

    bounds: tuple[Bound, ...]
    predicates: dict[Name, tuple[expressions.Expr, ...]]
    equalities: tuple[Equality, ...]
    conditions: tuple[expressions.Expr, ...]


UNSAID = GraphConditions((), {}, (), ())
"""The conditions of a query without WHERE."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """The names that a graph can see: those bound in it and around it, and the meaning of AS names and moments."""

    levels: tuple[Parts, ...]
    scale: TimeScale

    @property
    def bound(self) -> frozenset[Name]:
        return frozenset(name for level in self.levels for name in level.names)

    def resolved(self, condition: expressions.Expr) -> expressions.Expr:
        """The condition with AS names replaced by their meaning."""
        intervals = {name: extent for level in self.levels for name, extent in level.intervals.items()}
        if not intervals:
            return condition
        moments = {name: moment for level in self.levels for name, moment in level.moments.items()}
        return expressions.substitute_fields(
            condition, lambda field: resolve_interval(field, intervals, moments, self.scale)
        )


class Conditions:
    """The conjuncts of WHERE, each with its scope: the whole pattern, a NOT or a collection."""

    def __init__(self, query: PatternQuery, catalog: Catalog, repetitions: Repetitions) -> None:
        self.catalog = catalog
        self.scale = TimeScale(catalog.unit)
        self.repetitions = repetitions
        self.same = tuple(
            name
            for part in expressions.conjuncts(query.where)
            if isinstance(part, expressions.Same)
            for name in part.fields
        )
        self.groups = list_groups(query.pattern)
        self.filed: list[tuple[Aside | None, expressions.Expr]] = []
        self.filed_lists: list[tuple[Aside | None, expressions.Expr]] = []
        self.filed_pairs: list[tuple[Aside | None, expressions.Expr]] = []
        homes = homes_of(query.pattern)
        for conjunct in expressions.conjuncts(query.where):
            if not isinstance(conjunct, expressions.Same):
                self._file(conjunct, homes)

    def _file(self, conjunct: expressions.Expr, homes: dict[Name, Scope]) -> None:
        """Stores a conjunct with its scope: once per round of a repetition, or once for its lists.

        Variables that CUMULATIVE turns into lists are single events while a pair is evaluated.
        """
        home = home_of(conjunct, homes, self.groups)
        aside = home.aside if home else None
        if not self.groups:
            self.filed.append((aside, conjunct))
            return
        names = list_names(conjunct, self.groups)
        if has_prev(conjunct) and self.groups[in_order(names)[0]] not in self.repetitions.unrolled:
            self.filed_lists.append((aside, conjunct))
        elif names and not has_prev(conjunct):
            self.filed_lists.append((aside, explicit_lists(conjunct, self.groups, [])))
        else:
            filed = self.filed_pairs if has_prev(conjunct) else self.filed
            filed += [(aside, part) for part in self.repetitions.in_rounds(conjunct, home)]

    def own(
        self,
        parts: Parts,
        aside: Aside | None,
        outer: tuple[Parts, ...],
        about: Mapping[Name, Name] | None = None,
        lists_too: bool = True,
    ) -> Iterator[expressions.Expr]:
        """The conjuncts of a scope whose names are all bound by these parts and their surroundings.

        `about` maps names to the variables of a copied graph: then only conjuncts that use one of them are returned,
        and conjuncts about lists only with `lists_too`.
        """
        sight = _Sight((*outer, parts), self.scale)
        bound = sight.bound
        original, names = _original(aside)
        names = names if about is None else {name: about.get(new, new) for name, new in names.items()} | dict(about)
        for home, conjunct in self.filed:
            if home is original and (about is None or expressions.variables_of(conjunct) & names.keys()):
                own = (
                    expressions.substitute_fields(conjunct, lambda field: under_name(field, names))
                    if names
                    else conjunct
                )
                if expressions.variables_of(own) <= bound:
                    yield sight.resolved(own)
        for home, conjunct in self.filed_pairs:
            if home is original and (
                about is None or (lists_too and expressions.variables_of(conjunct) & names.keys())
            ):
                own = expressions.substitute_fields(conjunct, lambda field: under_name(field, names))
                own = self.repetitions.with_nulls(own, bound)
                if expressions.variables_of(own) <= bound:
                    yield sight.resolved(own)
        for home, conjunct in self.filed_lists:
            gathered = self._gathered(renamed_lists(conjunct, names), bound)
            named = expressions.variables_of(conjunct) | expressions.variables_of(gathered)
            if home is original and (about is None or (lists_too and named & names.keys())):
                # Another choice of a FIRST or LAST has other elements.
                own = renamed_lists(gathered, names)
                if not lists_in(own) and not has_prev(own) and expressions.variables_of(own) <= bound:
                    yield sight.resolved(own)
        if self.same:
            yield from self._agreement(parts, (*outer, parts)[0])

    def _agreement(self, parts: Parts, outermost: Parts) -> Iterator[expressions.Expr]:
        """The condition of SAME on these variables: each agrees with the first one."""
        anchor = next(iter(outermost.variables))
        for name in parts.variables:
            for field in self.same:
                yield expressions.IsNull(expressions.Field(name, field), negated=True)
                if name != anchor:
                    yield expressions.Binary("=", expressions.Field(anchor, field), expressions.Field(name, field))

    def _gathered(self, conjunct: expressions.Expr, bound: frozenset[Name]) -> expressions.Expr:
        """The conjunct with the lists of unrolled repetitions built from their rounds."""
        return self.repetitions.gathered(conjunct, self.repetitions.rounds(bound), bound)

    def about_lists(
        self,
        levels: tuple[Parts, ...],
        aside: Aside | None,
        about: Mapping[Name, Name] | None,
        collections: Sequence[Collection],
    ) -> Iterator[expressions.Expr]:
        """The conjuncts of a scope that are evaluated after everything else is bound.

        These are conjuncts about collections, which are known only then.
        """
        if not self.filed_lists:
            return
        sight = _Sight(levels, self.scale)
        bound = sight.bound
        original, names = _original(aside)
        names = names if about is None else {**about, **names}
        listed = {name: found.name for found in collections for name in found.names}
        for home, conjunct in self.filed_lists:
            if home is original:
                own = self._gathered(renamed_lists(conjunct, names), bound)
                lists = lists_in(own) | (list_variables(own, listed) if has_prev(own) else frozenset())
                if lists and lists <= listed.keys() and expressions.variables_of(own) <= bound | listed.keys():
                    yield sight.resolved(own)

    def sorted(self, parts: Parts, own: Iterable[expressions.Expr], outer: tuple[Parts, ...]) -> GraphConditions:
        """Sorts these conditions by how they are evaluated."""
        streams = {name: item.stream for level in (*outer, parts) for name, item in level.variables.items()}
        bounds: list[Bound] = []
        predicates: dict[Name, tuple[expressions.Expr, ...]] = {}
        equalities: list[Equality] = []
        conditions: list[expressions.Expr] = []

        def point_of(field: expressions.Field) -> Point | None:
            assert field.variable is not None
            if field.variable not in streams:
                return end_of(field.variable)
            side = self.catalog.endpoint(streams[field.variable], field)
            return None if side is None else Point(field.variable, side)

        for condition in own:
            names = expressions.variables_of(condition)
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
        return GraphConditions(tuple(bounds), predicates, tuple(equalities), tuple(conditions))


def _original(aside: Aside | None) -> tuple[Aside | None, Mapping[Name, Name]]:
    """The NOT or collection of the query that this one is a copy of, and the names of its variables here."""
    if aside is None or aside.copied is None:
        return aside, {}
    return aside.copied.original, aside.copied.names


def _reason(condition: expressions.Expr) -> Reason:
    return Reason(f"WHERE requires `{render_expression(condition)}`", condition.span)


def _equality(condition: expressions.Expr) -> Equality | None:
    match condition:
        case expressions.Binary(operator="=", left=expressions.Field() as left, right=expressions.Field() as right) if (
            left.variable != right.variable
        ):
            return Equality(left, right, condition)
        case _:
            return None


def resolve_interval(
    field: expressions.Field, intervals: Mapping[Name, Extent], moments: Mapping[Name, Moment], scale: TimeScale
) -> expressions.Expr:
    """`name.s` of an AS name is the earliest start of the variables it can begin with; `name.e` is the latest end."""
    extent = intervals.get(field.variable or "")
    if extent is None or field.name not in ("s", "e"):
        return field
    names, function = (extent.starts, "least") if field.name == "s" else (extent.ends, "greatest")
    ends = tuple(_end_field(name, field, moments, scale) for name in names)
    return ends[0] if len(ends) == 1 else expressions.Call(function, ends, field.span)


def _end_field(
    name: Name, field: expressions.Field, moments: Mapping[Name, Moment], scale: TimeScale
) -> expressions.Expr:
    """The end of a variable; for a moment at a fixed distance from an event, the end of that event plus the
    distance."""
    moment = moments.get(name)
    if moment is None or moment.repeated:
        return expressions.Field(name, field.name, field.span)
    base = _end_field(moment.base.variable, replace(field, name=moment.base.side), moments, scale)
    return expressions.Binary("+", base, scale.literal(moment.ticks), field.span)
