"""Describes a plan in text, section by section: the output of `explain`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from ensue.analysis.catalog import SOME_END
from ensue.analysis.declarations import connected, declarations, shared_keys, used_streams
from ensue.analysis.join_keys import JoinKey, NoJoinKey, join_key
from ensue.errors import Source, counted
from ensue.graph.graphs import Graph, Variable
from ensue.graph.law import Law
from ensue.lower.contexts import resolve_contexts
from ensue.lower.rulesets import is_result_of
from ensue.lower.spans import with_spans
from ensue.nodes.expressions import anonymous_predicate
from ensue.nodes.names import Handle, Name, Stream, names_in, without_rounds
from ensue.nodes.patterns import (
    CHRONICLE,
    CONTEXTS,
    CONTINUOUS,
    CUMULATIVE,
    Event,
    PatternQuery,
    Selection,
    Statements,
)
from ensue.nodes.rules import Ruleset, used_by
from ensue.plan.comparison import alike, graphs_of
from ensue.plan.graph_description import (
    GraphWords,
    OperatorEvents,
    amount,
    choice_lines,
    context_lines,
    further_rounds,
    given_by,
)
from ensue.plan.lawfulness import MOST_COMPARED, needless_absences, needless_constraints
from ensue.plan.monitors import MOST_STEPS, GraphMonitor, MonitorStep
from ensue.plan.planner import plan_without_data, precedence
from ensue.plan.plans import AbsencePlan, GraphPlan, QueryPlan, Retention
from ensue.plan.retention import longer, slicing_of, uncut_reason
from ensue.text.citations import functions_in
from ensue.text.render import (
    render_constraint,
    render_expression,
    render_pattern,
    render_query,
    render_return,
    render_window,
)
from ensue.text.render_parts import render_rule

MOST_NAMES = 3
"""The maximum number of statements that are named as sharing something."""


class PlainText(str):
    """A text of several lines that Python's prompt and notebooks show as it is.

    >>> PlainText("PATTERN\\n  SEQ(A a, B b)")
    PATTERN
      SEQ(A a, B b)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a statement: its plans (several if its operators choose matches) and titled lines.

    `given` maps streams of a plan to the events of the operator that produces them.
    """

    query: PatternQuery
    plans: tuple[QueryPlan, ...]
    given: Mapping[Stream, OperatorEvents]
    sections: tuple[tuple[str, tuple[str, ...]], ...]

    def to_text(self) -> str:
        """The sections as text, separated by blank lines."""
        return "\n\n".join("\n".join((title, *(f"  {line}" for line in lines))) for title, lines in self.sections)

    def with_rows(self, selections: Sequence[Selection]) -> Explanation:
        """The explanation with the streams of rows that the statement uses."""
        used = {name for plan in self.plans for stream in plan.all_streams for name in names_in(stream)}
        lines = tuple(_rows_in_words(selection) for selection in selections if selection.name in used)
        return self if not lines else replace(self, sections=(self.sections[0], ("ROWS", lines), *self.sections[1:]))

    @property
    def drawn(self) -> tuple[QueryPlan, ...]:
        """The plans whose graphs are shown: not those that only pass on the matches of another operator."""
        return tuple(plan for plan in self.plans if len(self.plans) == 1 or not _hands_on(plan))


def explain_without_data(
    query: PatternQuery,
    source: Source | None,
    time: str,
    law: Law | None = None,
    program: Sequence[PatternQuery] = (),
    end: str | None = None,
) -> Explanation:
    """Explains a query without data; every field is assumed to exist and to have the type that the query needs.

    `program` has all statements of the program. Events have a duration if `end` names an end column.
    """
    if query.policy in CONTEXTS:
        return _explain_context(query, source, time, law, program, end)
    return explain_query(query, plan_without_data(with_spans(query), program, time, end, source, law), program)


def explain_query(query: PatternQuery, plan: QueryPlan, program: Sequence[PatternQuery] = ()) -> Explanation:
    """Explains pattern as written, graphs with their closed bounds, plan and state."""
    streams = list(_streams(query, program))
    return Explanation(
        query,
        (plan,),
        {},
        _filled(
            (_heading(query), _written(query)),
            ("STREAMS", streams),
            ("CHOICE", choice_lines(plan)),
            ("GRAPH", (*_durations([plan]), *GraphWords(plan).lines())),
            ("PLAN", _plan(plan)),
            ("FUNCTIONS", _functions(query)),
            ("STATE", _state([plan], {})),
            ("CONSTRAINTS", _constraints(plan, plan.law) if plan.law is not None else ()),
            ("SPARK", _spark_together(query, program) if streams else _spark(plan, program)),
        ),
    )


def _rows_in_words(selection: Selection) -> str:
    where = "" if selection.where is None else f" where {render_expression(selection.where)}"
    columns = ", ".join(map(render_return, selection.returns))
    events = f"rows of {selection.table}"
    if selection.unnest is not None:
        events = f"each {selection.unnest.element} in {render_expression(selection.unnest.list)} of {selection.table}"
    return f"{selection.name}: {events}{where}" + (f", with {columns}" if columns else "")


def _heading(query: PatternQuery) -> str:
    if query.rule is not None:
        return "RULE"
    return "STREAM" if query.declares else "PATTERN"


def _written(query: PatternQuery) -> list[str]:
    """The statement as the user wrote it; a table look-up is described in words."""
    if query.rule is not None and query.rule.body:
        return render_rule(query.rule).splitlines()
    if query.lookup is not None:
        return [_called(query)]
    return render_query(query).splitlines()


def tables_in_words(ruleset: Ruleset) -> str:
    """The tables that rules derive, with their rules; an empty text if there are none."""
    lines: list[str] = []
    for name in dict.fromkeys(rule.head for rule in ruleset.table_rules):
        rules = [rule for rule in ruleset.table_rules if rule.head == name]
        lines += [f"  {line}" for rule in rules for line in render_rule(rule).splitlines()]
        used = sorted({table for rule in rules for table in used_by(rule)} - {name})
        itself = " and itself" if any(name in used_by(rule) for rule in rules) else ""
        lines.append(f"  {name}: rows, computed when a run begins, from {', '.join(used)}{itself}")
    return "\n".join(["TABLES", *lines]) if lines else ""


def _functions(query: PatternQuery) -> list[str]:
    """The functions of the user that a query calls, with their types."""
    return [str(function) for _, function in sorted(functions_in(query).items())]


def _filled(*sections: tuple[str, Iterable[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The sections that have lines."""
    filled = ((title, tuple(lines)) for title, lines in sections)
    return tuple((title, lines) for title, lines in filled if lines)


# -- contexts ---------------------------------------------------------------------------------------------------------


def _explain_context(
    query: PatternQuery,
    source: Source | None,
    time: str,
    law: Law | None,
    program: Sequence[PatternQuery],
    end: str | None,
) -> Explanation:
    """Explains a query with a context: the query as written, then its operators."""
    stages = resolve_contexts(Statements((with_spans(query),), source)).statements
    around = (*(other for other in program if other is not query), *stages)
    declared = declarations(stages)
    plans = []
    for stage in stages:
        own_law = None if used_streams(stage, declared) else law
        plans.append(plan_without_data(stage, around, time, end, source, own_law))
    given = given_by(stages)
    streams = list(_streams(query, program))
    return Explanation(
        query,
        tuple(plans),
        given,
        _filled(
            (_heading(query), _written(query)),
            ("STREAMS", streams),
            ("CHOICE", context_lines(query, stages)),
            ("GRAPH", (*_durations(plans), *_operators(plans, given))),
            ("PLAN", _plan_of_operators(query, plans, given)),
            ("FUNCTIONS", _functions(query)),
            ("STATE", _state(plans, given)),
            ("CONSTRAINTS", (line for plan in plans if plan.law is not None for line in _constraints(plan, plan.law))),
            (
                "SPARK",
                _spark_together(query, program or (query,)) if streams or len(plans) > 1 else _spark(plans[0], program),
            ),
        ),
    )


def _durations(plans: Sequence[QueryPlan]) -> Iterator[str]:
    """That events need a duration, if the end column is unknown."""
    if any(plan.catalog.any_stream is not None and plan.catalog.any_stream.end == SOME_END for plan in plans):
        yield "requires events with a duration: set `end` to the column with their ends"


def _operators(plans: Sequence[QueryPlan], given: Mapping[Stream, OperatorEvents]) -> Iterator[str]:
    """The graphs of the operators; an operator that only passes on matches is left out."""
    for number, plan in enumerate(plans, start=1):
        if len(plans) == 1 or not _hands_on(plan):
            indent = "  " if len(plans) > 1 else ""
            if indent:
                yield f"operator {number}"
            yield from (indent + line for line in GraphWords(plan, given).lines())


def _hands_on(plan: QueryPlan) -> bool:
    graph = plan.graphs[0].graph
    return (
        len(plan.graphs) == 1
        and len(graph.variables) == 1
        and not graph.absences
        and isinstance(graph.names[0], Handle)
    )


def _plan_of_operators(
    query: PatternQuery, plans: Sequence[QueryPlan], given: Mapping[Stream, OperatorEvents]
) -> Iterator[str]:
    yield _grouping(query)
    if len(plans) > 1:
        yield "the operators run in sequence, innermost first, in every step of a stream"
    columns: dict[Stream, frozenset[str] | None] = {}
    for plan in plans:
        for stream, wanted in plan.columns.items():
            known = columns.get(stream, frozenset())
            columns[stream] = None if wanted is None or known is None else known | wanted
    for stream, wanted in columns.items():
        if stream not in given:
            yield f"read {stream}: {_columns(wanted, query)}"


# -- streams ----------------------------------------------------------------------------------------------------------


def _streams(query: PatternQuery, program: Sequence[PatternQuery]) -> Iterator[str]:
    """The streams that connect the statement with other statements."""
    declared = declarations(program)
    for name in used_streams(query, declared):
        made = " or ".join(map(_called, declared[name]))
        yield f"{name}: from {made}, {_used_by(name, program)}"
    if query.declares and query.name in declared:
        made = (
            "the matches of this pattern" if query.rule is None else "the events that the rules with this head derive"
        )
        yield f"{query.name}: {made}, {_used_by(query.name or '', program)}"


def _called(query: PatternQuery) -> str:
    if query.rule is not None:
        return f"the rules for {query.name}"
    if query.lookup is not None:
        assert isinstance(query.pattern, Event)
        equal = [f"{left} = {query.lookup.table}.{right}" for left, right in query.lookup.on]
        where = f", on {' and '.join(equal)}" if equal else ""
        return f"each event of {query.pattern.stream} joined with the rows of table {query.lookup.table}{where}"
    text = " ".join(line.strip() for line in render_pattern(query.pattern).splitlines())
    return f"PATTERN {text}"


def _used_by(name: Stream, program: Sequence[PatternQuery]) -> str:
    users = [other for other in program if name in used_streams(other, [name])]
    names = [str(other.name or "an unnamed pattern") for other in users if not is_result_of(other, name)]
    result = "a result" if any(is_result_of(other, name) for other in users) else ""
    used = f"used by {', '.join(dict.fromkeys(names))}" if names else ""
    return " and ".join(filter(None, (result, used))) or "not used, so it is not computed"


# -- plan -------------------------------------------------------------------------------------------------------------


def _plan(plan: QueryPlan) -> Iterator[str]:
    yield _grouping(plan.query)
    for stream, columns in plan.columns.items():
        yield f"read {stream}: {_columns(columns, plan.query)}"
    if plan.counting:
        yield "read all events of the partition, to count positions"
    same = further_rounds(plan)
    for number, graph_plan in enumerate(plan.graphs, start=1):
        if number not in same:
            if len(plan.graphs) > 1:
                yield f"branch {number}:"
            yield from _graph_plan(graph_plan, "  " if len(plan.graphs) > 1 else "")


def _grouping(query: PatternQuery) -> str:
    keys = ", ".join(query.partition_by)
    return f"events are grouped by {keys} and sorted by time" if keys else "all events form one group, sorted by time"


def _columns(columns: frozenset[str] | None, query: PatternQuery) -> str:
    if columns is None:
        asked = "the query returns whole events" if query.returns_events else "the query returns the lineage"
        return f"all columns, because {asked}"
    return ", ".join(["time", *sorted(columns)])


def _graph_plan(graph_plan: GraphPlan, indent: str) -> Iterator[str]:
    graph = graph_plan.graph
    filtered = [variable.name for variable in graph.variables if variable.predicates]
    if filtered:
        yield f"{indent}filter {', '.join(map(str, filtered))} first"
    names = ", ".join(map(str, precedence(graph)))
    if graph.succession:
        order = ", ".join(map(str, graph.succession))
        yield f"{indent}bind {order} in this order; each binds the next event that fits"
    elif len(graph.variables) > 1:
        yield f"{indent}join {names}: start with the rarest in the data, then search each next one in its time range"
    if len(graph.variables) > 2 and not graph.succession:
        yield f"{indent}if the join would grow, first drop events without a partner in range"
    for absence in graph_plan.absences:
        yield from _absence(absence, indent)
    for collection in graph_plan.collections:
        how = "built for each match" if collection.needed else "not built, because nothing depends on it"
        yield f"{indent}list of {collection.collection.text}: {how}"


def _absence(absence: AbsencePlan, indent: str) -> Iterator[str]:
    text = absence.absence.text
    if absence.lower is None:
        yield f"{indent}absence of {text}: checked for each candidate match, because {absence.correlated}"
    elif absence.chain:
        yield f"{indent}absence of {text}: checked by the earliest completion after each start, without enumeration"
    else:
        yield f"{indent}absence of {text}: its matches are found once, then checked by their earliest completion"
    for inner in absence.graph.absences:
        yield from _absence(inner, indent + "  ")


# -- state ------------------------------------------------------------------------------------------------------------


def _state(plans: Sequence[QueryPlan], given: Mapping[Stream, OperatorEvents]) -> Iterator[str]:
    kept: dict[str, tuple[Retention, QueryPlan]] = {}
    names: dict[str, str] = {}
    partners: dict[str, set[str]] = {}
    for plan in plans:
        for role, name, retention, before in _roles(plan, given):
            names[role] = name
            partners[role] = partners.get(role, before) & before
            kept[role] = (longer(kept[role][0], retention) if role in kept else retention, plan)
    kept = dict(sorted(kept.items(), key=lambda entry: entry[0]))
    for role, (retention, plan) in kept.items():
        earlier = sorted(partners[role]) if not retention.at_once else []
        where = f" if {' and '.join(earlier)} came before" if earlier else ""
        yield f"{role}: {_retention(retention, plan)}{where}"
    unbounded = [names[role] for role, (retention, _) in kept.items() if not retention.bounded]
    if unbounded and all(plan.monitor is not None and plan.monitor.bounded for plan in plans):
        yield f"events of {', '.join(unbounded)} are kept until their trace fails or ends"
    elif unbounded:
        yield f"UNBOUNDED: events of {', '.join(unbounded)} are kept forever; add WITHIN to limit this"
    else:
        yield "bounded"
    if any(plan.query.consume or plan.query.policy in (CHRONICLE, CONTINUOUS, CUMULATIVE) for plan in plans):
        yield "for each kept event, the state records whether it is used up"
    for plan in plans:
        if plan.query.suppress is not None:
            grouped = plan.query.partition_by or plan.query.suppress.per
            size = render_window(plan.query.suppress.window)
            yield (
                f"SUPPRESS: {'for each group, ' if grouped else ''}when its last reported match completed, and how many"
                f" were suppressed since; kept for {size} after it or, if any were suppressed, until the next reported "
                "match"
            )


def _roles(plan: QueryPlan, given: Mapping[Stream, OperatorEvents]) -> Iterator[tuple[str, str, Retention, set[str]]]:
    """For each variable: its role, its name, its retention, and the variables that must have come before."""
    for number, graph_plan in enumerate(plan.graphs):
        for inner in graph_plan.with_inner():
            for variable in inner.graph.variables:
                found = given.get(variable.stream)
                name = str(without_rounds(variable.name))
                source = str(variable.stream) if found is None else f"operator {found.operator}"
                before = {
                    str(without_rounds(partner.name)) for partner in plan.partners.get((number, variable.name), ())
                }
                yield f"{source} as {name}", name, plan.retention[number, variable.name], before


def _retention(retention: Retention, plan: QueryPlan) -> str:
    limits = [limit for limit in (retention.from_start, retention.from_end) if limit is not None]
    parts = []
    if limits:
        shortest = min(limits)
        parts.append("not kept" if shortest <= 0 else f"kept for {amount(shortest, plan.catalog)}")
    if retention.positions is not None:
        parts.append(
            "not kept"
            if retention.positions <= 0
            else f"kept until {counted(retention.positions, 'more event', 'more events')} of its group arrived"
        )
    return " or ".join(dict.fromkeys(parts)) if parts else "kept forever"


# -- constraints ------------------------------------------------------------------------------------------------------


def _constraints(plan: QueryPlan, law: Law) -> Iterator[str]:
    """When a trace is dropped, and what else follows from the constraints."""
    monitor = plan.monitor
    if monitor is None:
        reason = (
            "the query uses the positions of events"
            if plan.counting
            else "the pattern is more than a sequence of single events"
        )
        yield f"traces are not watched, because {reason}"
        return
    for number, (graph_plan, graph) in enumerate(zip(plan.graphs, monitor.graphs, strict=True), start=1):
        branch = f"branch {number}: " if len(monitor.graphs) > 1 else ""
        fate = "fails" if branch else "is dropped"
        yield from (f"{branch}{line} {fate}" for line in dict.fromkeys(_failing(graph_plan.graph, graph, law)))
        yield from (branch + line for line in needless_absences(graph_plan, law, plan.catalog))
        if graph.not_followed:
            names = ", ".join(f"`{name}`" for name in graph.not_followed)
            reason = f"more than {MOST_STEPS:,} combinations of events, so {names} are not followed"
            yield f"{branch}the pattern has {reason}: a trace may be kept longer than necessary"
        if not graph.complete:
            yield f"{branch}not all conditions on several streams are known: a trace may be kept longer than necessary"
    if len(law.constraints) > MOST_COMPARED:
        yield f"redundant constraints are not searched among more than {MOST_COMPARED}"
    for constraint in needless_constraints(law):
        yield f"{render_constraint(constraint)} is redundant: it follows from the other constraints"
    if len(monitor.graphs) > 1:
        yield "a trace is dropped once every branch has failed"
    if monitor.ends:
        yield f"after {' or '.join(map(str, monitor.ends))}, a trace is dropped"
    yield f"watched: {', '.join(map(str, dict.fromkeys(plan.watched)))}" if plan.watched else "no stream is watched"
    over = list(map(str, monitor.ends))
    if monitor.lifetime is not None:
        over.append(f"{amount(monitor.lifetime, plan.catalog)} after its first event")
    if over:
        yield f"the state of a trace is kept until {' or '.join(over)}"
    else:
        yield "the state of a trace is kept forever; add ENDS to limit this"


def _failing(graph: Graph, monitor: GraphMonitor, law: Law) -> Iterator[str]:
    """Each failing condition once, with the events that prevent it. A step may also fail by an earlier condition."""
    steps: dict[int, list[MonitorStep]] = {}
    for step in monitor.steps:
        if step.bound != frozenset(graph.names):
            steps.setdefault(id(step.conditions), []).append(step)
    groups = [(same[0].conditions, same) for same in steps.values()]
    conditions = {(found.seen, found.unseen): None for own, _ in groups for found in own}
    for seen, unseen in conditions:
        met = law.known(seen)
        failing = {id(own) for own, _ in groups if any(c.seen <= met and c.unseen <= unseen for c in own)}
        saved = _least({step.bound for own, same in groups if id(own) not in failing for step in same})
        if frozenset() in saved:
            # The beginning of a match fails only together with other conditions.
            continue
        savers = [_savers(graph, bound) for bound in saved]
        after = f"after {' and '.join(sorted(map(str, seen)))}, " if seen else ""
        without = [*sorted(map(str, unseen)), *(savers[0] if [len(own) for own in savers] == [1] else ())]
        kind = f"a trace without {' and '.join(without)}" if without else "a trace"
        if len(savers) == 1 and len(savers[0]) > 1:
            kind += f" that lacks {' or '.join(savers[0])}"
        elif len(savers) > 1:
            kind += f" that has neither {' nor '.join(' with '.join(own) for own in savers)}"
        yield f"{after}{kind}"


def _least(sets: set[frozenset[Name]]) -> list[frozenset[Name]]:
    """The sets that contain no other one, in the order of their names."""
    least: list[frozenset[Name]] = []
    for found in sorted(sets, key=lambda names: (len(names), sorted(map(str, names)))):
        if not any(other <= found for other in least):
            least.append(found)
    return least


def _savers(graph: Graph, bound: frozenset[Name]) -> list[str]:
    """The events with which a trace continues although a condition is met."""
    return [_with_predicate(variable) for variable in graph.variables if variable.name in bound]


def _with_predicate(variable: Variable) -> str:
    where = " AND ".join(render_expression(anonymous_predicate(predicate)) for predicate in variable.predicates)
    return f"{variable.stream}[{where}]" if where else str(variable.stream)


# -- what statements share --------------------------------------------------------------------------------------------


def with_shared(explained: Iterable[Explanation]) -> list[Explanation]:
    """The explanations of statements that run together, each with the work it shares with others."""
    every = list(explained)
    declared = {entry.query.name for entry in every if entry.query.declares}
    together: dict[Hashable, list[int]] = {}
    for place, entry in enumerate(every):
        alone = len(entry.plans) > 1 or any(plan.monitor is not None for plan in entry.plans)
        if not alone and declared.isdisjoint(entry.plans[0].streams):
            plan = entry.plans[0]
            together.setdefault((plan.query.partition_by, plan.counting), []).append(place)
    for places in together.values():
        lines = _shared_lines([every[place].plans[0] for place in places]) if len(places) > 1 else ()
        for place, own in zip(places, lines, strict=False):
            sections = _filled(*every[place].sections, ("SHARED", own))
            every[place] = replace(every[place], sections=sections)
    return every


def _shared_lines(plans: Sequence[QueryPlan]) -> list[list[str]]:
    """For each of these plans, which run together, what it shares with which others."""
    graphs = [list(graphs_of([plan])) for plan in plans]
    likeness = alike(graph for own in graphs for graph in own)
    users: dict[Hashable, set[int]] = {}
    for number, own in enumerate(graphs):
        for graph in own:
            for asked in (*map(graph.graph.question, graph.graph.variables), likeness.get(id(graph))):
                users.setdefault(asked, set()).add(number)

    def others(asked: Hashable, number: int) -> str:
        names = [str(plans[user].query.name or f"pattern {user + 1}") for user in sorted(users[asked] - {number})]
        return ", ".join(
            names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]
        )

    lines: list[list[str]] = []
    for number, (plan, own) in enumerate(zip(plans, graphs, strict=True)):
        found: dict[str, str] = {}
        for place, graph in enumerate(plan.graphs, start=1):
            if len(users.get(likeness.get(id(graph)), ())) > 1 and id(graph) in likeness:
                which = f"matches of branch {place}" if len(plan.graphs) > 1 else "matches"
                found[which] = others(likeness[id(graph)], number)
            for absence in graph.absences:
                if id(absence.graph) in likeness and len(users[likeness[id(absence.graph)]]) > 1:
                    found[f"matches of {absence.absence.text}"] = others(likeness[id(absence.graph)], number)
        for graph in own:
            for variable in graph.graph.variables:
                asked = graph.graph.question(variable)
                if len(users[asked]) > 1:
                    found[f"events of {_with_predicate(variable)}"] = others(asked, number)
        lines.append([f"{what}: computed once, shared with {names}" for what, names in found.items()])
    return lines


# -- spark ------------------------------------------------------------------------------------------------------------


def _spark(plan: QueryPlan, program: Sequence[PatternQuery]) -> Iterator[str]:
    keys = ", ".join(plan.query.partition_by)
    joined = None if keys else _joined(plan)
    slicing = slicing_of([plan])
    if slicing is not None:
        width, overlap = amount(slicing.width, plan.catalog), amount(slicing.overlap, plan.catalog)
        cut = f"time slices of {width} that overlap by {overlap}"
        words = joined.words if isinstance(joined, JoinKey) and not joined.copies_rows else keys
        yield f"batch: shuffled by {words} and {cut}" if words else f"batch: shuffled by {cut}"
    else:
        reason = uncut_reason(plan) or "the duration of a match is not limited"
        uncut = f"time is not sliced, because {reason}"
        if isinstance(joined, JoinKey):
            copies = _copies(joined)
            yield f"batch: shuffled by {joined.words}{', ' if copies else ''}{copies}; {uncut}"
        elif joined is not None and joined.reason != reason:
            yield f"batch: in one task, because {joined.reason}; {uncut}"
        else:
            yield f"batch: shuffled by {keys}; {uncut}" if keys else f"batch: in one task; {uncut}"
    yield from _stream_of_joined(joined, plan.query, program) if joined is not None else _stream_of(keys)


def _joined(plan: QueryPlan) -> JoinKey | NoJoinKey:
    if plan.law is not None:
        return NoJoinKey("constraints apply to whole traces")
    return join_key([plan.query])


def _copies(joined: JoinKey) -> str:
    """Which rows are copied, in words."""
    fields = {stream: names for stream, names in joined.by_stream.items() if len(names) > 1}
    return " and ".join(f"rows of {stream} once for each of {', '.join(names)}" for stream, names in fields.items())


def _stream_of(keys: str) -> Iterator[str]:
    yield f"stream: keys of {keys} in buckets, one state each" if keys else "stream: in one task, with one state"


def _stream_of_joined(
    joined: JoinKey | NoJoinKey, query: PatternQuery, program: Sequence[PatternQuery]
) -> Iterator[str]:
    """How a statement without common PARTITION BY runs on a stream: together with all others without it."""
    if isinstance(joined, NoJoinKey):
        yield f"stream: in one task, with one state, because {joined.reason}"
        return
    others = [other for other in program if other is not query and not _keys_of_statement(other, program)]
    further = [other for other in others if other not in joined.queries]
    together = join_key((*joined.queries, *further)) if further else joined
    if isinstance(together, NoJoinKey):
        yield f"stream: in one task with the other statements without PARTITION BY, because {together.reason}"
    elif together.copies_rows:
        yield f"stream: in one task, with one state, because it would need {_copies(together)}"
    else:
        yield from _stream_of(joined.words)


def _keys_of_statement(query: PatternQuery, program: Sequence[PatternQuery]) -> tuple[str, ...]:
    together = connected(query, program)
    return query.partition_by if len(together) == 1 else shared_keys(together)


def _spark_of_operators(
    query: PatternQuery, plans: Sequence[QueryPlan], program: Sequence[PatternQuery], uses_streams: bool
) -> Iterator[str]:
    if uses_streams or len(plans) > 1:
        return _spark_together(query, program or (query,))
    return _spark(plans[0], program)


def _spark_together(query: PatternQuery, program: Sequence[PatternQuery]) -> Iterator[str]:
    """Statements that use each other's matches run in one place; so do the operators of a statement with a context."""
    together = connected(query, program)
    if all(other.declares for other in together):
        yield "not computed, because no pattern uses it"
        return
    keys = ", ".join(shared_keys(together))
    if len(together) == 1:
        where = f", shuffled by {keys}" if keys else " in one task"
        yield f"batch: its operators run together{where}; time is not sliced"
        yield f"stream: keys of {keys} in buckets, one state each" if keys else "stream: in one task, with one state"
        return
    names = list(dict.fromkeys(str(other.name or "the pattern") for other in together))
    those = f"{', '.join(names)} together" if len(names) > 1 else "its rules and their result"
    if keys:
        yield f"batch: {those}, shuffled by {keys}; time is not sliced"
        yield f"stream: {those}, keys of {keys} in buckets, one state each"
        return
    joined = join_key(together)
    if isinstance(joined, NoJoinKey):
        yield f"batch: {those} in one task, because {joined.reason}"
        yield "stream: in one task, with one state, for the same reason"
        return
    copies = _copies(joined)
    yield f"batch: {those}, shuffled by {joined.words}{', ' if copies else ''}{copies}; time is not sliced"
    yield from _stream_of_joined(joined, query, program)
