"""A plan in words: each stage so that a person can follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensue.algebra.nodes import PatternQuery
from ensue.algebra.operators import excluded_streams, stream_words
from ensue.algebra.streams import connected, declarations, program_catalog, shared_keys, used_streams
from ensue.errors import Source, counted
from ensue.expr.nodes import Duration
from ensue.expr.rewrite import anonymous_predicate
from ensue.expr.types import NANOSECONDS_PER_UNIT
from ensue.graph.bounds import Limit, Network, Point, position_of
from ensue.graph.law import Law
from ensue.graph.model import Graph, Variable
from ensue.lang.render import render_constraint, render_expression, render_pattern, render_query, render_window
from ensue.plan.build import plan_query
from ensue.plan.lawful import needless_absences, needless_constraints
from ensue.plan.model import AbsencePlan, GraphPlan, QueryPlan, Retention
from ensue.plan.monitor import GraphMonitor, Step
from ensue.plan.order import precedence
from ensue.plan.retention import longer
from ensue.plan.slices import slicing_of


def explain_without_data(
    query: PatternQuery,
    source: Source | None,
    time: str,
    law: Law | None = None,
    program: Sequence[PatternQuery] = (),
) -> str:
    """What a query means and how it will run, for streams that have whatever it asks of them and a time column.

    `program` are the statements among which it stands.
    """
    windows = law.windows if law is not None else ()
    return explain_query(plan_query(query, program_catalog(query, program, time, windows), source, law), program)


def explain_query(plan: QueryPlan, program: Sequence[PatternQuery] = ()) -> str:
    """Pattern, graphs with their closed bounds, plan and state, as text."""
    streams = list(_streams(plan.query, program))
    sections = [
        ("STREAM" if plan.query.declares else "PATTERN", render_query(plan.query).splitlines()),
        *([("STREAMS", streams)] if streams else []),
        ("GRAPH", list(_graphs(plan))),
        ("PLAN", list(_plan(plan))),
        ("STATE", list(_state(plan))),
        *([("CONSTRAINTS", list(_constraints(plan, plan.law)))] if plan.law is not None else []),
        ("SPARK", list(_spark_together(plan.query, program) if streams else _spark(plan))),
    ]
    return "\n".join(
        line for title, lines in sections for line in (title, *(f"  {line}" for line in lines), "")
    ).rstrip()


# -- streams ----------------------------------------------------------------------------------------------------------


def _streams(query: PatternQuery, program: Sequence[PatternQuery]) -> Iterator[str]:
    """The streams by which the statement hangs together with others."""
    declared = declarations(program)
    for name in used_streams(query, declared):
        yield f"{name}: from {_called(declared[name])}, {_used_by(name, program)}"
    if query.declares and query.name in declared:
        yield f"{query.name}: the matches of this pattern, {_used_by(query.name or '', program)}"


def _called(query: PatternQuery) -> str:
    text = " ".join(line.strip() for line in render_pattern(query.pattern).splitlines())
    return f"PATTERN {text}"


def _used_by(name: str, program: Sequence[PatternQuery]) -> str:
    users = [other.name or "a pattern without a name" for other in program if name in used_streams(other, [name])]
    return f"used by {', '.join(users)}" if users else "used by nothing, so it is not worked out"


# -- graph ------------------------------------------------------------------------------------------------------------


def _graphs(plan: QueryPlan) -> Iterator[str]:
    count = len(plan.graphs)
    for number, graph_plan in enumerate(plan.graphs, start=1):
        if count > 1:
            yield f"branch {number} of {count}"
        yield from _graph(graph_plan, plan, "  " if count > 1 else "")
    for dropped in plan.normal_form.dropped:
        yield f"left out, because it can never match: {dropped}"


def _graph(graph_plan: GraphPlan, plan: QueryPlan, indent: str) -> Iterator[str]:
    graph = graph_plan.graph
    for variable in graph.variables:
        yield f"{indent}{_variable(variable)}"
    for bound in _bounds(graph, plan):
        yield f"{indent}{bound}"
    for equality in graph.equalities:
        yield f"{indent}{render_expression(equality.condition)}  (join key)"
    for condition in graph.conditions:
        yield f"{indent}{render_expression(condition)}"
    for x, y in graph_plan.distinct:
        yield f"{indent}{x} and {y} are different events"
    for absence in graph_plan.absences:
        yield f"{indent}no {absence.absence.text} {_scope(absence, plan)}"
        yield from _graph(absence.graph, plan, indent + "  ")


def _variable(variable: Variable) -> str:
    where = " and ".join(render_expression(predicate) for predicate in variable.predicates)
    return f"{variable.name}: {_of_stream(variable.stream)}" + (f" with {where}" if where else "")


def _of_stream(stream: str) -> str:
    return f"an event of {stream}" if excluded_streams(stream) is None else stream_words(stream)


def _bounds(graph: Graph, plan: QueryPlan) -> Iterator[str]:
    """The closed bounds between pairs of the graph's own variables, each pair once."""
    names = precedence(graph)
    for place, x in enumerate(names):
        for y in names[place + 1 :]:
            text = _pair(graph.times, x, y, plan)
            if text:
                yield text
            positions = _position_pair(graph.positions, x, y)
            if positions:
                yield positions
        stream = next(variable.stream for variable in graph.variables if variable.name == x)
        schema = plan.catalog.stream(stream)
        length = graph.times.limit(Point(x, "e"), Point(x, "s"))
        if schema is not None and schema.end is not None and length is not None:
            yield f"{x} lasts at most {_amount(length.value, plan)}"


def _pair(times: Network, x: str, y: str, plan: QueryPlan) -> str:
    """`x` before `y` as a gap, in one line."""
    least = times.limit(Point(x, "e"), Point(y, "s"))
    most = times.limit(Point(y, "e"), Point(x, "s"))
    if least is None and most is None:
        return ""
    if least is not None and least.tighter_than(Limit(0, False)):
        gap = f" by at least {_amount(-least.value, plan)}" if least.value < 0 else ""
        text = f"{x} before {y}{gap}"
        return text + (f", all within {_span(most, plan)}" if most is not None else "")
    parts = []
    if most is not None:
        parts.append(f"{y} ends at most {_span(most, plan)} after {x} starts")
    back = times.limit(Point(x, "e"), Point(y, "s"))
    if back is not None:
        parts.append(f"{x} ends at most {_span(back, plan)} after {y} starts")
    return ", ".join(parts)


def _position_pair(positions: Network, x: str, y: str) -> str:
    most, back = positions.limit(position_of(y), position_of(x)), positions.limit(position_of(x), position_of(y))
    if most is not None and most == back:
        return f"{x} and {y} at most {counted(most.whole, 'position', 'positions')} apart"
    return "" if most is None else f"{y} at most {counted(most.whole, 'position', 'positions')} after {x}"


def _span(limit: Limit, plan: QueryPlan) -> str:
    return ("less than " if limit.strict else "") + _amount(limit.value, plan)


def _amount(ticks: int, plan: QueryPlan) -> str:
    unit = plan.catalog.unit
    if unit is None:
        return str(ticks)
    sign = "-" if ticks < 0 else ""
    return sign + render_window(Duration(abs(ticks) * NANOSECONDS_PER_UNIT[unit]))


def _scope(absence: AbsencePlan, plan: QueryPlan) -> str:
    item = absence.absence.scope
    if item.stated is not None:
        return "as the operator says"
    windows = plan.normal_form.windows
    size = " or ".join(
        text
        for text in (
            _amount(windows.ticks, plan) if windows.ticks is not None else "",
            counted(windows.events - 1, "position", "positions") if windows.events is not None else "",
        )
        if text
    )
    lower = f"after {_names(item.after.ends)}" if item.after else f"from {size} before the end of the match"
    if item.before:
        return f"{lower} and before {_names(item.before.starts)}"
    if item.trailing:
        return f"{lower} and up to {size} after the start of the match"
    return f"{lower} and up to the end of the match"


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(names)


# -- plan -------------------------------------------------------------------------------------------------------------


def _plan(plan: QueryPlan) -> Iterator[str]:
    keys = ", ".join(plan.query.partition_by)
    yield f"events are grouped by {keys} and sorted by time" if keys else "all events form one group, sorted by time"
    for stream, columns in plan.columns.items():
        yield f"read {stream_words(stream)}: {_columns(columns, plan.query)}"
    if plan.counting:
        yield "read every event, relevant or not, to count positions"
    for number, graph_plan in enumerate(plan.graphs, start=1):
        if len(plan.graphs) > 1:
            yield f"branch {number}:"
        yield from _graph_plan(graph_plan, "  " if len(plan.graphs) > 1 else "")


def _columns(columns: frozenset[str] | None, query: PatternQuery) -> str:
    if columns is None:
        asked = "their lineage is asked for" if query.returns else "whole events are returned"
        return f"all columns, because {asked}"
    return ", ".join(["time", *sorted(columns)])


def _graph_plan(graph_plan: GraphPlan, indent: str) -> Iterator[str]:
    graph = graph_plan.graph
    filtered = [variable.name for variable in graph.variables if variable.predicates]
    if filtered:
        yield f"{indent}filter {', '.join(filtered)} first"
    names = ", ".join(precedence(graph))
    if len(graph.variables) > 1:
        yield f"{indent}join {names}: from the rarest in the data at hand, each next one by a search in its time range"
    if len(graph.variables) > 2:
        yield f"{indent}drop events without a partner in range before joining, where the join would grow"
    for absence in graph_plan.absences:
        yield from _absence(absence, indent)


def _absence(absence: AbsencePlan, indent: str) -> Iterator[str]:
    text = absence.absence.text
    if absence.lower is None:
        yield f"{indent}absence of {text}: looked up for each candidate match, because {absence.correlated}"
    elif absence.chain:
        yield f"{indent}absence of {text}: by the earliest completion after each start, no enumeration"
    else:
        yield f"{indent}absence of {text}: its matches are found once, then by their earliest completion"
    for inner in absence.graph.absences:
        yield from _absence(inner, indent + "  ")


# -- state ------------------------------------------------------------------------------------------------------------


def _state(plan: QueryPlan) -> Iterator[str]:
    streams: dict[tuple[str, str], Retention] = {}
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                role = (variable.stream, variable.name)
                kept = plan.retention[number, variable.name]
                streams[role] = longer(streams[role], kept) if role in streams else kept
    for (stream, name), retention in sorted(streams.items()):
        yield f"{stream_words(stream)} as {name}: {_retention(retention, plan)}"
    unbounded = [name for (_, name), kept in sorted(streams.items()) if not kept.bounded]
    if unbounded and plan.monitor is not None and plan.monitor.bounded:
        yield f"events of {', '.join(unbounded)} are kept until their trace fails or ends"
    elif unbounded:
        yield f"UNBOUNDED: nothing says when events of {', '.join(unbounded)} can be forgotten; a WITHIN would"
    else:
        yield "bounded"


def _retention(retention: Retention, plan: QueryPlan) -> str:
    limits = [limit for limit in (retention.from_start, retention.from_end) if limit is not None]
    parts = []
    if limits:
        shortest = min(limits)
        parts.append("not kept" if shortest <= 0 else f"kept for {_amount(shortest, plan)}")
    if retention.positions is not None:
        parts.append(
            "not kept"
            if retention.positions <= 0
            else f"kept for {counted(retention.positions, 'further event', 'further events')} of its group"
        )
    return " or ".join(dict.fromkeys(parts)) if parts else "kept for ever"


# -- constraints ------------------------------------------------------------------------------------------------------


def _constraints(plan: QueryPlan, law: Law) -> Iterator[str]:
    """When a trace is dropped, in words; what follows from the constraints besides."""
    monitor = plan.monitor
    if monitor is None:
        yield "traces are not watched, because positions are counted"
        return
    for number, (graph_plan, graph) in enumerate(zip(plan.graphs, monitor.graphs, strict=True), start=1):
        branch = f"branch {number}: " if len(monitor.graphs) > 1 else ""
        fate = "fails" if branch else "is dropped"
        yield from (f"{branch}{line} {fate}" for line in dict.fromkeys(_failing(graph_plan.graph, graph, law)))
        yield from (branch + line for line in needless_absences(graph_plan, law, plan.catalog))
    for constraint in needless_constraints(law):
        yield f"{render_constraint(constraint)} says nothing that the others do not"
    if len(monitor.graphs) > 1:
        yield "a trace is dropped once every branch has failed"
    if monitor.ends:
        yield f"after {' or '.join(monitor.ends)}, a trace is dropped"
    yield f"watched: {', '.join(dict.fromkeys(plan.watched))}" if plan.watched else "nothing to watch"
    over = list(monitor.ends)
    if monitor.lifetime is not None:
        over.append(f"{_amount(monitor.lifetime, plan)} after its first event")
    if over:
        yield f"what is known of a trace is kept until {' or '.join(over)}"
    else:
        yield "what is known of a trace is kept for ever; ENDS would say when it can be forgotten"


def _failing(graph: Graph, monitor: GraphMonitor, law: Law) -> Iterator[str]:
    """Each condition once, with what saves a trace from it. A step may also fail by what was met before."""
    steps = [step for step in monitor.steps if step.bound != frozenset(graph.names)]
    conditions = {(found.seen, found.unseen): None for step in steps for found in step.conditions}
    for seen, unseen in conditions:
        met = law.known(seen)
        failing = [step for step in steps if any(c.seen <= met and c.unseen <= unseen for c in step.conditions)]
        after = f"after {' and '.join(sorted(seen))}, " if seen else ""
        savers = list(_savers(graph, steps, failing))
        without = [*sorted(unseen), *(savers if len(savers) == 1 else ())]
        kind = f"a trace without {' and '.join(without)}" if without else "a trace"
        lacks = f" that lacks {' or '.join(savers)}" if len(savers) > 1 else ""
        yield f"{after}{kind}{lacks}"


def _savers(graph: Graph, steps: Sequence[Step], failing: Sequence[Step]) -> Iterator[str]:
    """The events with which a trace goes on although the condition is met: those of all steps that do not fail."""
    saved = [step.bound for step in steps if step not in failing]
    common = frozenset[str].intersection(*saved) if saved else frozenset[str]()
    for variable in graph.variables:
        if variable.name in common:
            yield _with_predicate(variable)


def _with_predicate(variable: Variable) -> str:
    where = " AND ".join(render_expression(anonymous_predicate(predicate)) for predicate in variable.predicates)
    return f"{variable.stream}[{where}]" if where else variable.stream


# -- spark ------------------------------------------------------------------------------------------------------------


def _spark(plan: QueryPlan) -> Iterator[str]:
    keys = ", ".join(plan.query.partition_by)
    slicing = slicing_of([plan])
    if slicing is not None:
        cut = f"time slices of {_amount(slicing.width, plan)} that overlap by {_amount(slicing.overlap, plan)}"
        yield f"batch: shuffled by {keys} and {cut}" if keys else f"batch: shuffled by {cut}"
    else:
        reason = "nothing bounds how long a match lasts"
        if plan.counting or plan.law is not None:
            reason = "positions are counted" if plan.counting else "traces are watched as a whole"
        uncut = f"time is not cut into slices, because {reason}"
        yield f"batch: shuffled by {keys}; {uncut}" if keys else f"batch: in one task; {uncut}"
    yield f"stream: keys of {keys} in buckets, one state each" if keys else "stream: in one task, with one state"


def _spark_together(query: PatternQuery, program: Sequence[PatternQuery]) -> Iterator[str]:
    """Statements that use each other's matches run in one place."""
    together = connected(query, program)
    if all(other.declares for other in together):
        yield "not worked out, because no pattern uses it"
        return
    names = ", ".join(other.name or "the pattern" for other in together)
    keys = ", ".join(shared_keys(together))
    if keys:
        yield f"batch: {names} together, shuffled by {keys}; time is not cut into slices"
        yield f"stream: {names} together, keys of {keys} in buckets, one state each"
    else:
        yield f"batch: {names} together in one task, because they share no key that their streams hand on"
        yield "stream: in one task, with one state, for the same reason"
