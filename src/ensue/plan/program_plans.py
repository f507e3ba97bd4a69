"""Plans all statements of a lowered program over the columns of the tables, and groups the results that run
together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from ensue.analysis.declarations import connected, declarations, declared_attributes, shared_keys
from ensue.analysis.scopes import counts_events
from ensue.errors import Problem, QueryError, SchemaError, warn
from ensue.expr.types import TableRows, TableValues
from ensue.graph.law import Law
from ensue.lower.phases import LoweredProgram, collector_paused, settle
from ensue.nodes.expressions import Expr, HasRow, InTable, rewrite
from ensue.nodes.names import Stream
from ensue.nodes.patterns import Event, Lookup, PatternQuery, change_expressions, walk
from ensue.nodes.rules import Ruleset, StreamDeclaration, TableDeclaration
from ensue.nodes.uncertainty import NO_HIERARCHY, Hierarchy
from ensue.plan.derivations import Derivation, PlannedGroup, all_plans, derivations_of, groups_of, plan_declared
from ensue.plan.inputs import (
    InputTable,
    attributes_of,
    catalog_of,
    input_tables,
    ordered_tables,
    raw_types,
    uncertain_tables,
)
from ensue.plan.lawfulness import contradictory_constraints, laws_by_query
from ensue.plan.outputs import VIOLATION_COLUMNS, OutputSchema, output_schema, tracking_plan
from ensue.plan.planner import plan_query
from ensue.plan.plans import QueryPlan
from ensue.plan.selections import check_positions, check_selected_tables, with_tables_of_elements, with_views
from ensue.plan.states import StateQuestions, questions_of_patterns

ColumnNames: TypeAlias = "str | Mapping[str, str]"
OrderColumns: TypeAlias = "str | list[str] | tuple[str, ...]"
FixedTables: TypeAlias = Mapping[str, pa.Table]
"""The tables that a program looks up, by name."""
NO_TABLES: FixedTables = {}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns for time, stream name and end of an event, as given by the user.

    `probability` is the column with the probability of an event; among events with equal `alternatives`, at most one is
    real.
    """

    time: ColumnNames
    type: str | None = None
    end: ColumnNames | None = None
    probability: str | None = None
    alternatives: str | None = None
    order: OrderColumns | None = None
    """The columns that order events at the same time."""


@dataclass(frozen=True, slots=True)
class Emission:
    """How matches are returned: with or without an id, eagerly or when complete.

    On a stream, `tick` is the unit of integer time and `buckets` the number of states.
    """

    match_id: bool = False
    eager: bool = False
    tick: str | None = None
    buckets: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """All statements of a program, planned over tables with known columns: one output for each plan.

    `inputs` have no rows, so the same plan is used for all batches, locally and in Spark workers. `derivations` are the
    declared streams that the plans need; they contain the rows of TABLEs, which are part of the program. `states` are
    the STATEs that events pass before the plans see them, and the questions about them.
    """

    inputs: tuple[InputTable, ...]
    plans: tuple[QueryPlan, ...]
    outputs: tuple[OutputSchema, ...]
    derivations: tuple[Derivation, ...] = ()
    states: StateQuestions | None = None

    @property
    def tables(self) -> tuple[InputTable, ...]:
        """The inputs as the plans see them: with the columns that states add to events, and then the tables of
        elements of lists."""
        return with_tables_of_elements(self.widened)

    @property
    def widened(self) -> tuple[InputTable, ...]:
        """The inputs with the columns that states add to events."""
        return self.inputs if self.states is None else tuple(map(self.states.widened, self.inputs))

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """How rows of tables are joined with events."""
        queries = [way.plan.query for derivation in self.derivations for way in derivation.ways]
        return tuple(query.lookup for query in queries if query.lookup is not None)


def plan_queries(
    tables: Mapping[str, pa.Table] | pa.Table,
    statements: LoweredProgram,
    columns: Columns,
    match_id: bool = False,
    fixed: FixedTables = NO_TABLES,
    wanted: StateQuestions | None = None,
) -> ProgramPlan:
    """Checks the tables and plans the queries over them; reads only the columns of the tables.

    `fixed` are the static tables that rules look up. `wanted` is what the user asks about the STATEs.
    """
    declared = {query.name for query in statements.statements if query.declares}
    if (declared or fixed) and (problems := [*_clashes(declarations(statements.declared), tables, fixed)]):
        raise QueryError(problems, statements.source)
    constrained = (name for entry in statements.constraints for name in entry.constraint.streams)
    states = questions_of_patterns(statements, wanted=wanted) if statements.states else None
    of_states = () if states is None else states.streams
    parts = (part for query in statements.statements for part in walk(query.pattern))
    named = dict.fromkeys((*(part.stream for part in parts if isinstance(part, Event)), *constrained, *of_states))
    selected = {selection.name for selection in statements.selections}
    if selected:
        check_selected_tables(statements, tables, columns.type is not None)
    given = tuple(name for name in named if name not in declared and name not in selected)
    given = given or tuple(selection.table for selection in statements.selections[:1])
    inputs = input_tables(tables, given, columns.time, columns.type, columns.end)
    if columns.probability is not None or columns.alternatives is not None:
        inputs = uncertain_tables(inputs, columns.probability, columns.alternatives)
    if columns.order is not None:
        inputs = ordered_tables(inputs, columns.order)
    return plan_program(statements, inputs, match_id, fixed=fixed, wanted=wanted)


def warn_of_unusable(planned: ProgramPlan) -> None:
    """Warn about columns that whole events in results lack because Ensue cannot use them."""
    lacking = dict.fromkeys(
        f"column `{name}`: {problem.message}"
        for item in planned.inputs
        if item.unusable
        and any(not plan.query.returns and any(map(item.holds, plan.streams)) for plan in planned.plans)
        for name, problem in item.unusable.items()
    )
    if lacking:
        warn(f"events in the results lack {'; '.join(lacking)}")


@collector_paused()
def plan_program(
    statements: LoweredProgram,
    inputs: tuple[InputTable, ...],
    match_id: bool = False,
    lawful: bool = True,
    fixed: FixedTables = NO_TABLES,
    wanted: StateQuestions | None = None,
) -> ProgramPlan:
    """Plans the queries over checked tables; without `lawful`, their constraints are ignored."""
    inputs = tuple(replace(item, table=item.table.schema.empty_table()) for item in inputs)
    if statements.selections:
        inputs = with_views(inputs, statements, catalog_of(inputs, statements.statements))
    ruleset: Ruleset | None = None
    if fixed:
        queries = tuple(_with_values(query, fixed) for query in statements.statements)
        statements = replace(statements, statements=queries)
    if statements.ruleset is not None:
        ruleset = _declarations(statements, statements.ruleset, inputs)
        statements = settle(statements, lambda stream: attributes_of(inputs, stream))
    declared = frozenset(query.name for query in statements.statements if query.declares and query.name is not None)
    levels = _hierarchy(statements, inputs) if statements.hierarchies else NO_HIERARCHY
    inputs = tuple(
        replace(item, elsewhere=declared, hierarchy=levels)
        if item.stream is None
        else replace(item, has_all=len(inputs) == 1)
        for item in inputs
    )
    probability = next((item.probability for item in inputs if item.probability is not None), None)
    states = questions_of_patterns(statements, probability, wanted) if statements.states else None
    seen = inputs if states is None else tuple(map(states.widened, inputs))
    seen = with_tables_of_elements(seen) if statements.selections else seen
    catalog = catalog_of(seen, statements.statements)
    laws = laws_by_query(statements, catalog) if lawful and statements.constraints else {}
    below: list[PlannedGroup] = []
    if declared:
        catalog, below = plan_declared(statements, catalog, laws, fixed)
    for query in statements.statements if statements.selections else ():
        if counts_events(query):
            check_positions(query, seen, statements.source)
    plans = tuple(
        plan_query(node, catalog, statements.source, laws.get(node) if laws else None) for node in statements.results
    )
    derivations = derivations_of(below, plans, seen, fixed, ruleset) if below else ()
    tables = (*seen, *(derivation.item for derivation in derivations))
    outputs = tuple(output_schema(plan, raw_types(plan, tables), match_id) for plan in plans)
    return ProgramPlan(inputs, plans, outputs, derivations, states)


def _with_values(query: PatternQuery, fixed: FixedTables) -> PatternQuery:
    """The query with the values of the tables that its conditions look up."""

    return change_expressions(query, lambda expr: looked_up(expr, fixed))


def looked_up(expr: Expr, fixed: FixedTables) -> Expr:
    """The expression with the rows of the tables that it looks up."""

    def with_rows(part: Expr) -> Expr | None:
        if isinstance(part, HasRow) and part.table in fixed:
            return replace(part, rows=TableRows.of(fixed[part.table], part.columns))
        if not isinstance(part, InTable) or part.table not in fixed:
            return None
        table = fixed[part.table]
        column = table.column(part.column or table.column_names[0])
        return replace(part, operand=rewrite(part.operand, with_rows), values=TableValues.of(column))

    return rewrite(expr, with_rows)


def _hierarchy(statements: LoweredProgram, inputs: tuple[InputTable, ...]) -> Hierarchy:
    """The hierarchies of the program, over the values of a type column."""
    if not any(item.type is not None for item in inputs):
        problem = Problem(
            "hierarchy-tables",
            "HIERARCHY requires a `type` column, but each stream has its own table",
            statements.hierarchies[0].span,
            hint="put the events into one table, and pass `type=` with the column that contains the stream name",
        )
        raise QueryError([problem], statements.source)
    return Hierarchy.of(statements.hierarchies)


def _declarations(statements: LoweredProgram, ruleset: Ruleset, inputs: tuple[InputTable, ...]) -> Ruleset:
    """The streams and tables that rules may use, including those known only from data or facts."""
    events = [node for query in statements.statements for node in walk(query.pattern) if isinstance(node, Event)]
    by_position = dict.fromkeys(
        event.stream for event in events if event.arity is not None and isinstance(event.stream, str)
    )
    known = tuple(StreamDeclaration(stream, attributes_of(inputs, stream)) for stream in by_position)
    columns = declared_attributes(statements)
    declared = [entry.name for entry in ruleset.tables]
    others = (*(fact.table for fact in ruleset.facts), *(rule.head for rule in ruleset.table_rules))
    tables = (TableDeclaration(name, columns[name]) for name in dict.fromkeys(others) if name not in declared)
    return Ruleset(tables=(*ruleset.tables, *tables), streams=(*ruleset.streams, *known))


def _clashes(
    declared: Mapping[Stream, tuple[PatternQuery, ...]], tables: Mapping[str, pa.Table] | pa.Table, fixed: FixedTables
) -> Iterator[Problem]:
    given = tables if isinstance(tables, Mapping) else {}
    for name in fixed:
        if name in given:
            yield Problem(
                "stream-clash",
                f"`{name}` is both a TABLE or FACT of the program and a table of events",
                hint="rename one of them",
            )
    for stream, ways in declared.items():
        if stream in given:
            yield Problem(
                "stream-clash",
                f"stream `{stream}` is both declared in the program and a table of events",
                ways[0].span,
                hint="rename one of them",
            )


def with_violations(planned: ProgramPlan, statements: LoweredProgram) -> ProgramPlan:
    """Adds a plan, as the last one, for the traces that violate a constraint."""
    law, keys = Law(tuple(entry.constraint for entry in statements.constraints)), _keys_of_constraints(statements)
    problems = contradictory_constraints(law)
    if problems:
        raise QueryError(problems, statements.source)
    taken = [name for name in keys if name in VIOLATION_COLUMNS]
    if taken:
        raise SchemaError(
            "reserved-column", f"key `{taken[0]}` has the name of a column of the violations table", "rename the key"
        )
    plan = tracking_plan(
        law,
        keys,
        planned.plans[0].catalog if planned.plans else catalog_of(planned.inputs),
        statements.source,
        tuple(all_plans(planned.derivations, planned.plans)),
    )
    output = output_schema(plan, raw_types(plan, planned.tables))
    return replace(planned, plans=(*planned.plans, plan), outputs=(*planned.outputs, output))


def plan_violations(
    tables: Mapping[str, pa.Table] | pa.Table, statements: LoweredProgram, columns: Columns
) -> ProgramPlan:
    """A plan only for the traces that violate a constraint."""
    planned = with_violations(plan_queries(tables, statements, columns), statements)
    return ProgramPlan(planned.inputs, planned.plans[-1:], planned.outputs[-1:])


def _keys_of_constraints(statements: LoweredProgram) -> tuple[str, ...]:
    """The common PARTITION BY of all constraints."""
    if not any(entry.constraint.streams for entry in statements.constraints):
        hint = "add a CONSTRAINT; ENDS WITHIN alone cannot be violated, because a later event starts another trace"
        raise QueryError(
            [Problem("no-constraint", "the program has no constraint to check", hint=hint)],
            statements.source,
        )
    of_patterns = [query.partition_by for query in statements.statements]
    for entry in statements.constraints:
        if not entry.partition_by and not of_patterns:
            raise QueryError(
                [
                    Problem(
                        "constraint-partition",
                        "the constraint has no PARTITION BY, so its traces are unknown",
                        entry.span,
                        hint="add PARTITION BY with the trace key to the constraint",
                    )
                ],
                statements.source,
            )
    keys = [entry.partition_by or of_patterns[0] for entry in statements.constraints]
    for entry, own in zip(statements.constraints, keys, strict=True):
        if set(own) != set(keys[0]):
            raise QueryError(
                [
                    Problem(
                        "constraint-partition",
                        "the constraints have different PARTITION BY keys, so their violations do not fit one table",
                        entry.span,
                        hint="check the constraints of each PARTITION BY separately",
                    )
                ],
                statements.source,
            )
    return keys[0]


# --- groups of queries that run together


@dataclass(frozen=True, slots=True)
class Group:
    """Results, by their places, that are computed together: events with different `keys` are independent.

    `derivations` are the declared streams that they use, `states` the STATEs that they query.
    """

    keys: tuple[str, ...]
    places: tuple[int, ...]
    derivations: tuple[Derivation, ...] = ()
    states: StateQuestions | None = None


def components(planned: ProgramPlan) -> Iterator[Group]:
    """Groups the results that are connected by declared streams; every other result is its own group."""
    grouped: set[int] = set()
    for place, plan in enumerate(planned.plans):
        if place in grouped:
            continue
        below = needed_derivations([plan], planned.derivations)
        if not below:
            yield _asking(Group(plan.query.partition_by, (place,)), planned)
            continue
        together = connected(plan.query, _queries(planned))
        places = tuple(other for other, own in enumerate(planned.plans) if own.query in together)
        grouped.update(places)
        derivations = tuple(made for made in planned.derivations if made.ways[0].plan.query in together)
        yield _asking(Group(shared_keys(together), places, derivations), planned)


def of_result(planned: ProgramPlan, place: int) -> Group:
    """One result with the streams that it uses."""
    plan = planned.plans[place]
    below = needed_derivations([plan], planned.derivations)
    if not below:
        return _asking(Group(plan.query.partition_by, (place,)), planned)
    return _asking(Group(shared_keys([own.query for own in all_plans(below, [plan])]), (place,), below), planned)


def _asking(group: Group, planned: ProgramPlan) -> Group:
    """The group with the STATEs that its plans query, if any. Events that belong to one state stay together, too."""
    states, plans = planned.states, [planned.plans[place] for place in group.places]
    if states is None or not any(map(states.are_asked_by, all_plans(group.derivations, plans))):
        return group
    return replace(group, keys=states.shared_keys(group.keys), states=states)


def by_keys(planned: ProgramPlan) -> list[Group]:
    """Groups the results by the keys by which their events can be partitioned."""
    groups: dict[tuple[str, ...], list[Group]] = {}
    for group in components(planned):
        groups.setdefault(group.keys, []).append(group)
    return [
        Group(
            keys,
            tuple(sorted(place for part in parts for place in part.places)),
            needed_derivations([planned.plans[place] for part in parts for place in part.places], planned.derivations),
            next((part.states for part in parts if part.states is not None), None),
        )
        for keys, parts in groups.items()
    ]


def needed_derivations(plans: Sequence[QueryPlan], derivations: Sequence[Derivation]) -> tuple[Derivation, ...]:
    """The declared streams that plans use, at any depth, in order."""
    wanted = {stream for plan in plans for stream in plan.streams}
    needed: list[Derivation] = []
    for group in reversed(groups_of(derivations)):
        if any(derivation.name in wanted for derivation in group):
            needed = [*group, *needed]
            wanted.update(stream for derivation in group for stream in derivation.streams)
    return tuple(needed)


def _queries(planned: ProgramPlan) -> list[PatternQuery]:
    return [plan.query for plan in all_plans(planned.derivations, planned.plans)]
