"""Plans a query from its normal form, and orders its joins by the cardinalities of the data."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from ensue.analysis.catalog import WHOLE_EVENT, Catalog, is_lineage, lineage_variable
from ensue.analysis.declarations import program_catalog
from ensue.analysis.scopes import bound_events, counts_events, positive_names
from ensue.check.fields import bind_query
from ensue.errors import QueryError, Source
from ensue.expr.lists import list_variables
from ensue.graph.bounds import BEFORE, Bound, Limit, Network, Reason, close, end_of, start_of
from ensue.graph.graphs import Absence, Collection, Extent, Graph, Moment, NormalForm
from ensue.graph.law import Law
from ensue.graph.normalization import normalize_query
from ensue.graph.uncertain_absences import uncertain_form
from ensue.nodes.expressions import Expr, Field, Same, conjuncts, variables_of
from ensue.nodes.expressions import walk as walk_expression
from ensue.nodes.names import AnyEvent, Name, Round, Stream, covers
from ensue.nodes.patterns import Event, PatternQuery, result_expressions, walk
from ensue.plan.lawfulness import lawful_graphs
from ensue.plan.monitors import monitor_of
from ensue.plan.plans import AbsencePlan, CollectionPlan, GraphPlan, QueryPlan, Side
from ensue.plan.retention import partners_of, retention_of

# --- join order

SMALL_SHARE = 1e-6
"""The assumed share of candidates that satisfy an equality."""


def join_order(graph: Graph, counts: Mapping[Name, int], span: int, bound: abc.Collection[Name] = ()) -> list[Name]:
    """The order of the unbound variables: the rarest first, then always the one with the fewest expected partners."""
    known = list(bound)
    remaining = list(graph.names)
    order: list[Name] = []
    while remaining:
        following = min(remaining, key=lambda name: counts[name] * partner_share(graph, name, known, span))
        remaining.remove(following)
        known.append(following)
        order.append(following)
    return order


def partner_share(graph: Graph, name: Name, bound: abc.Collection[Name], span: int) -> float:
    """The share of a variable's candidates expected to fit one choice of the bound variables."""
    share = 1.0
    for other in bound:
        after = graph.times.limit(start_of(name), start_of(other))
        before = graph.times.limit(start_of(other), start_of(name))
        if after is not None and before is not None:
            share = min(share, max(0, after.whole + before.whole + 1) / max(1, span))
        elif after is not None or before is not None:
            share = min(share, 0.5)
    joined = any(
        {equality.left.variable, equality.right.variable} <= {name, *bound}
        and name in (equality.left.variable, equality.right.variable)
        for equality in graph.equalities
    )
    return share * SMALL_SHARE if joined and bound else share


def precedence(graph: Graph) -> list[Name]:
    """The variables in an order that respects every certain `before`."""
    names = graph.names
    return sorted(names, key=lambda x: sum(graph.times.before(start_of(y), start_of(x)) for y in names))


# --- planner


def plan_query(
    query: PatternQuery, catalog: Catalog, source: Source | None = None, law: Law | None = None
) -> QueryPlan:
    """Binds, normalizes and plans a query; raises a QueryError with every problem that the catalog reveals.

    With a `law`, graphs that no lawful trace can match are left out. If windows count events, traces are not monitored,
    because skipped events would not be counted.
    """
    if problems := bind_query(query, catalog):
        raise QueryError(problems, source)
    return plan_checked(query, catalog, source, law)


def plan_without_data(
    query: PatternQuery,
    program: Sequence[PatternQuery],
    time: str = "t",
    end: str | None = None,
    source: Source | None = None,
    law: Law | None = None,
) -> QueryPlan:
    """Plans a query of a program without data; `time` and `end` are the columns of the times of its events.

    Without `end`, the events have a duration if the query, or one of its branches, can only hold for such events.
    """
    catalog = program_catalog(query, program, time, () if law is None else law.windows, end)
    if end is not None:
        return plan_query(query, catalog, source, law)
    plan: QueryPlan | None = None
    try:
        plan = plan_query(query, catalog, source, law)
        if not plan.normal_form.dropped:
            return plan
        lasting = plan_query(query, catalog.with_durations, source, law)
        return lasting if len(lasting.normal_form.dropped) < len(plan.normal_form.dropped) else plan
    except QueryError as error:
        if plan is not None:
            return plan
        if error.code != "never-holds":
            raise
        try:
            return plan_query(query, catalog.with_durations, source, law)
        except QueryError:
            raise error from None


def plan_checked(
    query: PatternQuery, catalog: Catalog, source: Source | None = None, law: Law | None = None
) -> QueryPlan:
    """Normalizes and plans a query that has been checked, or that was derived from a checked one."""
    normal_form = normalize_query(query, catalog, source)
    columns = query_columns(query, catalog)
    if any(map(catalog.is_uncertain, columns)):
        normal_form, law = uncertain_form(normal_form, catalog, query, source), None
    lists = normal_form.repetitions
    asked = _asked_lists(query, lists.groups) if lists.groups else frozenset[Name]()
    graphs = tuple(plan_graph(graph, graph, normal_form, (), asked) for graph in normal_form.graphs)
    counting = counts_events(query)
    if law is not None:
        lawful, dropped = lawful_graphs(graphs, law, catalog, source)
        graphs = tuple(lawful)
        normal_form = replace(normal_form, dropped=(*normal_form.dropped, *dropped))
    return QueryPlan(
        query=query,
        source=source,
        catalog=catalog,
        normal_form=normal_form,
        graphs=graphs,
        retention={
            (number, variable): kept
            for number, plan in enumerate(graphs)
            for variable, kept in retention_of(plan, normal_form.windows).items()
        },
        columns=columns,
        partners={
            (number, variable): partners
            for number, plan in enumerate(graphs)
            for variable, partners in partners_of(plan).items()
        },
        counting=counting,
        law=law,
        monitor=None if law is None or counting or not _is_plain(graphs, catalog) else monitor_of(graphs, law, catalog),
    )


def _is_plain(graphs: Sequence[GraphPlan], catalog: Catalog) -> bool:
    """Whether matches consist only of single events of one stream each, so that they can be followed event by event."""
    if catalog.has_selections:
        return False
    every = [inner.graph for plan in graphs for inner in plan.with_inner()]
    stated = [absence for graph in every for absence in graph.absences if absence.scope.stated is not None]
    of_any = [found for graph in every for found in graph.variables if isinstance(found.stream, AnyEvent)]
    return not stated and not of_any and not any(graph.moments or graph.collections for graph in every)


def plan_graph(
    graph: Graph, whole: Graph, form: NormalForm, outer: tuple[Graph, ...], asked: frozenset[Name] = frozenset()
) -> GraphPlan:
    """Plans a graph; `asked` are the lists in the result."""
    if graph.replaced:
        outer = tuple(_without(level, graph.replaced) for level in outer)
    around = (*outer, graph)
    return GraphPlan(
        graph,
        _distinct_pairs(graph, outer, form),
        tuple(_plan_absence(absence, whole, form, around) for absence in graph.absences),
        tuple(_plan_collection(collection, graph, whole, form, around, asked) for collection in graph.collections),
        tuple(_successive_rounds(graph, form)) if form.allows_ties else (),
    )


def _successive_rounds(graph: Graph, form: NormalForm) -> abc.Iterator[tuple[tuple[Name, ...], tuple[Name, ...]]]:
    """The variables of each round of a repetition and of the next one."""
    for repetition in form.repetitions.unrolled.values():
        rounds = [
            tuple(name for own in repetition.names if (name := Round(own, number)) in graph.names)
            for number in range(repetition.most)
        ]
        yield from pairwise(filter(None, rounds))


def _without(graph: Graph, replaced: frozenset[Name]) -> Graph:
    """The graph as seen by a graph that replaces some of its variables."""
    return replace(graph, variables=tuple(variable for variable in graph.variables if variable.name not in replaced))


def _asked_lists(query: PatternQuery, groups: Mapping[Name, Name]) -> frozenset[Name]:
    """The lists in the result: those of RETURN, or all."""
    if not query.returns:
        return frozenset(groups.values())
    return frozenset(groups[name] for value in result_expressions(query) for name in list_variables(value, groups))


def _plan_collection(
    collection: Collection,
    graph: Graph,
    whole: Graph,
    form: NormalForm,
    around: tuple[Graph, ...],
    asked: frozenset[Name],
) -> CollectionPlan:
    counted = collection.least > 0 or collection.most is not None
    named = any(set(collection.names) & variables_of(condition) for condition in graph.list_conditions)
    return CollectionPlan(
        collection,
        tuple(plan_graph(inner, whole, form, around) for inner in collection.graphs),
        counted or named or collection.threat is not None or collection.name in asked,
    )


def _distinct_pairs(graph: Graph, outer: tuple[Graph, ...], form: NormalForm) -> tuple[tuple[Name, Name], ...]:
    """The pairs of variables that could bind the same event, because the bounds do not separate them."""
    own = [(variable.name, variable.stream) for variable in graph.variables]
    outside = [(variable.name, variable.stream) for level in outer for variable in level.variables]
    pairs = [*combinations(own, 2), *((one, other) for one in own for other in outside)]
    return tuple(
        (x, y) for (x, first), (y, second) in pairs if may_share(first, second, form) and not _apart(x, y, graph.times)
    )


def may_share(first: Stream, second: Stream, form: NormalForm) -> bool:
    """Whether an event can belong to both streams."""
    if isinstance(first, str) and isinstance(second, str):
        meet = first == second
    else:
        meet = isinstance(first, AnyEvent) and isinstance(second, AnyEvent)
        meet = meet or covers(first, second) or covers(second, first)
    return (
        meet
        or bool(form.hierarchy.parts and form.hierarchy.meet(first, second))
        or bool(form.overlaps and frozenset((first, second)) in form.overlaps)
    )


def _apart(x: Name, y: Name, times: Network) -> bool:
    return times.before(end_of(x), start_of(y)) or times.before(end_of(y), start_of(x))


def _plan_absence(absence: Absence, whole: Graph, form: NormalForm, around: tuple[Graph, ...]) -> AbsencePlan:
    graph = plan_graph(absence.graph, whole, form, around)
    correlated = _correlation(graph, frozenset())
    sides = None if correlated else _sides(absence, whole.extent, form)
    moments = {moment.name: moment for graph in around for moment in graph.moments}
    if sides is not None and moments:
        sides = _settled_sides(sides, moments)
    return AbsencePlan(
        absence,
        graph,
        sides[0] if sides else None,
        sides[1] if sides else None,
        _chain(graph) if sides else (),
        correlated or ("" if sides else "its scope is not a time range"),
    )


def _correlation(plan: GraphPlan, visible: frozenset[Name]) -> str:
    """Why a forbidden graph cannot be evaluated independently of the match around it; empty if it can."""
    graph = plan.graph
    visible = visible | frozenset(graph.names)
    if graph.positions.points:
        return "its scope is counted in events"
    if any(moment.repeated for moment in graph.moments):
        return "its timers repeat until the end of its scope"
    conditions = [*graph.conditions, *(equality.condition for equality in graph.equalities)]
    outside = any(not variables_of(condition) <= visible for condition in conditions)
    if outside or graph.ties or graph.premises:
        return "a condition compares it with the match"
    if plan.collections:
        return "it contains a list"
    if any(not {x, y} <= visible for x, y in plan.distinct):
        return "it could bind an event of the match"
    for inner in plan.absences:
        scope = inner.absence.scope
        if scope.stated is not None and any(
            not {bound.left.variable, bound.right.variable} <= visible | {*inner.graph.graph.names}
            for bound in scope.stated
        ):
            return "the scope of a NOT inside it depends on the match"
        ends = (scope.after, scope.before) if scope.stated is None else ()
        if any(extent is None or not {*extent.starts, *extent.ends} <= visible for extent in ends):
            return "the scope of a NOT inside it depends on the match"
        found = _correlation(inner.graph, visible)
        if found:
            return found
    return ""


def _sides(absence: Absence, whole: Extent, form: NormalForm) -> tuple[Side, Side] | None:
    """The scope as two values: forbidden matches start at or after the first and end at or before the second."""
    ticks, scope, timed = form.windows.ticks, absence.scope, form.is_ordered
    if scope.stated is not None:
        return _stated_sides(absence.graph, scope.stated, timed)
    if any(len(limits) > 1 for limits in scope.limits):
        return None
    (opening,), (closing,) = (limits or {BEFORE} for limits in scope.limits)
    if scope.after is not None:
        lower = Side(tuple(map(end_of, scope.after.ends)), True, *_edge(opening, 1, timed))
    elif ticks is not None:
        lower = Side(tuple(map(end_of, whole.ends)), True, -ticks, timed)
    else:
        return None
    if scope.before is not None:
        return lower, Side(tuple(map(start_of, scope.before.starts)), False, *_edge(closing, -1, timed))
    if not scope.trailing:
        return lower, Side(tuple(map(end_of, whole.ends)), True, 0, timed)
    return (lower, Side(tuple(map(start_of, whole.starts)), False, ticks, timed)) if ticks is not None else None


def _edge(limit: Limit, inwards: int, timed: bool) -> tuple[int, bool]:
    """How far inside of a neighbour a scope begins, and whether that is a time."""
    return inwards if limit.strict else 0, timed and not limit.ordered


def _settled_sides(sides: tuple[Side, Side], moments: Mapping[Name, Moment]) -> tuple[Side, Side] | None:
    """The sides in terms of the events that their moments depend on; None if a side has several points."""
    lower, upper = (_settled(side, moments) for side in sides)
    unsettled = {name for side in (lower, upper) for name in side.variables if name in moments}
    return None if any(not moments[name].repeated for name in unsettled) else (lower, upper)


def _settled(side: Side, moments: Mapping[Name, Moment]) -> Side:
    moment = moments.get(side.points[0].variable) if len(side.points) == 1 else None
    if moment is None or moment.repeated:
        return side
    return _settled(Side((moment.base,), side.greatest, side.shift + moment.ticks, side.in_time), moments)


def _stated_sides(graph: Graph, stated: tuple[Bound, ...], timed: bool) -> tuple[Side, Side] | None:
    """The scope of an operator as two values, if it bounds the start from below and the end from above, each once."""
    if any(bound.limit.ordered for bound in stated):
        return None
    lower = {(bound.left, bound.limit.whole): bound.right for bound in stated if bound.right.variable in graph.names}
    upper = {(bound.right, bound.limit.whole): bound.left for bound in stated if bound.left.variable in graph.names}
    if len({shift for _, shift in lower}) != 1 or len({shift for _, shift in upper}) != 1:
        return None
    one_event = len(graph.variables) == 1 and _all_points(graph)
    if not one_event and {point.side for point in lower.values()} != {"s"}:
        return None
    (from_shift,), (to_shift,) = {shift for _, shift in lower}, {shift for _, shift in upper}
    return (
        Side(tuple(point for point, _ in lower), True, -from_shift, timed),
        Side(tuple(point for point, _ in upper), False, to_shift, timed),
    )


def _chain(plan: GraphPlan) -> tuple[Name, ...]:
    """The variables of a forbidden sequence in order, if its bounds are only consecutive gaps and a total span.

    Then the earliest completion of a start is the minimum of the earliest completions of its possible successors.
    """
    graph = plan.graph
    conditioned = graph.conditions or graph.equalities
    if conditioned or plan.absences or plan.distinct or graph.moments or not _all_points(graph):
        return ()
    if len(graph.names) == 1:
        return graph.names
    times = graph.times
    order = precedence(graph)
    steps = list(pairwise(order))
    if not all(times.before(end_of(x), start_of(y)) for x, y in steps):
        return ()
    return tuple(order) if _implies(order, steps, times) else ()


def _all_points(graph: Graph) -> bool:
    return all(
        (limit := graph.times.limit(end_of(x), start_of(x))) is not None and limit.value == 0 for x in graph.names
    )


def _implies(order: list[Name], steps: list[tuple[Name, Name]], times: Network) -> bool:
    """Whether consecutive gaps and the total span imply every bound between the variables."""
    kept = [*steps, *((y, x) for x, y in steps), (order[-1], order[0])]
    reason = Reason("")
    bounds = [
        Bound(start_of(x), start_of(y), limit, reason)
        for x, y in kept
        if (limit := times.limit(start_of(x), start_of(y))) is not None
    ]
    reference = close(map(start_of, order), bounds)
    for x in order:
        for y in order:
            known = times.limit(start_of(x), start_of(y))
            if x != y and known is not None and known.tighter_than(reference.limit(start_of(x), start_of(y))):
                return False
    return True


def query_columns(query: PatternQuery, catalog: Catalog, lineage: bool = False) -> dict[Stream, frozenset[str] | None]:
    """For each stream, the columns that the query needs besides its times; None: all, because whole events are
    returned.

    Events that must carry their lineage also need all columns; with `lineage`, these are all events that a match binds.
    """
    events = [node for node in walk(query.pattern) if isinstance(node, Event)]
    streams = {event.variable: event.stream for event in events if event.variable is not None}
    everywhere = {name for part in conjuncts(query.where) if isinstance(part, Same) for name in part.fields}
    needed: dict[Stream, set[str]] = {event.stream: {*query.partition_by, *everywhere} for event in events}
    for event in events:
        if event.predicate is not None:
            needed[event.stream].update(_field_names(event.predicate))
    for expression in (*conjuncts(query.where), *result_expressions(query)):
        for part in walk_expression(expression):
            if isinstance(part, Field) and part.variable in streams:
                needed[streams[part.variable]].add(part.name)
    shown = () if query.returns or query.rule is not None else positive_names(query.pattern)
    returned = frozenset(streams[name] for name in shown)
    if lineage or query.returns:
        returned |= lineage_streams(query, lineage)
    columns: dict[Stream, frozenset[str] | None] = {}
    for stream, names in needed.items():
        schema = catalog.stream(stream)
        if stream in returned or WHOLE_EVENT in names:
            columns[stream] = None
        elif schema is None:
            columns[stream] = frozenset()
        else:
            uncertain = () if schema.probability is None else (schema.probability, *schema.alternatives)
            columns[stream] = frozenset({*names, *uncertain, *schema.order} & schema.fields.keys())
    return columns


def lineage_streams(query: PatternQuery, whole: bool = False) -> frozenset[Stream]:
    """The streams whose events must carry their lineage; with `whole`, those of all events that a match binds."""
    calls = [column.expression for column in query.returns if is_lineage(column.expression)]
    names = {lineage_variable(call) for call in calls}
    events = bound_events(query.pattern)
    return frozenset(event.stream for event in events if whole or None in names or event.variable in names)


def _field_names(expression: Expr) -> set[str]:
    return {part.name for part in walk_expression(expression) if isinstance(part, Field)}


def with_lists(plan: QueryPlan) -> QueryPlan:
    """The plan with every list built, whether or not something depends on it."""

    def complete(graph: GraphPlan) -> GraphPlan:
        return replace(graph, collections=tuple(replace(made, needed=True) for made in graph.collections))

    return replace(plan, graphs=tuple(map(complete, plan.graphs)))
