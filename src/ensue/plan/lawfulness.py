"""Checks queries against constraints: whether a lawful trace can match, and which parts of a query are redundant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from ensue.analysis.catalog import Catalog
from ensue.analysis.declarations import declarations, unclear_traces, used_streams
from ensue.check.fields import bind_constraint
from ensue.errors import Problem, QueryError, Source, Span
from ensue.graph.bounds import Bound, Limit, Reason, TimeScale, end_of, extend, start_of
from ensue.graph.dead_ends import Failures, NeededVariable
from ensue.graph.graphs import Graph
from ensue.graph.law import Law
from ensue.graph.normalization import explain_contradiction
from ensue.nodes.constraints import Clause, Constraint, EndsWithin, clauses_of
from ensue.nodes.patterns import PatternQuery, Statements
from ensue.plan.monitors import needed_variables
from ensue.plan.plans import GraphPlan
from ensue.text.render import render_constraint

MOST_COMPARED = 100
"""With more constraints than this, redundant constraints are not searched."""

Proof = tuple[str, tuple[Constraint, ...]]
"""Why something is impossible, as text, and the constraints that prove it."""


def laws_of(statements: Statements, catalog: Catalog | None = None) -> list[Law | None]:
    """For each query, the constraints on its traces; raises a QueryError if the constraints contradict each other."""
    problems = [*unclear_traces(statements.constraints, statements.statements)]
    if catalog is not None:
        keys = next((query.partition_by for query in statements.statements), ())
        for entry in statements.constraints:
            problems += bind_constraint(entry.constraint, entry.partition_by or keys, entry.span, catalog)
    if problems:
        raise QueryError(problems, statements.source)
    laws: list[Law | None] = []
    for query in statements.statements:
        own = [
            entry.constraint
            for entry in statements.constraints
            if set(entry.partition_by or query.partition_by) == set(query.partition_by)
        ]
        laws.append(Law(tuple(own)) if own else None)
    contradictions = {problem: None for law in laws if law is not None for problem in contradictory_constraints(law)}
    if contradictions:
        raise QueryError(list(contradictions), statements.source)
    return laws


def laws_by_query(statements: Statements, catalog: Catalog | None = None) -> dict[PatternQuery, Law | None]:
    """The law of each query over tables of events. Constraints do not apply to queries that use declared streams."""
    declared = declarations(statements.statements)
    plain = tuple(query for query in statements.statements if not used_streams(query, declared))
    return dict(zip(plain, laws_of(replace(statements, statements=plain), catalog), strict=True))


def contradictory_constraints(law: Law) -> list[Problem]:
    """A problem for every stream that the constraints exclude from every trace."""
    problems = []
    for stream in law.streams:
        if not law.forbids((stream,)):
            continue
        for condition in Failures(law, (NeededVariable(stream, stream, frozenset()),)).conditions():
            if not condition.seen:
                problems.append(
                    Problem(
                        "contradictory-constraints",
                        f"the constraints exclude `{stream}` from every trace: {_listed(condition.proof)}",
                        _place(condition.proof),
                        hint="remove or correct one of these constraints",
                    )
                )
                break
    return problems


def lawful_graphs(
    plans: Sequence[GraphPlan], law: Law, catalog: Catalog, source: Source | None
) -> tuple[list[GraphPlan], list[str]]:
    """The graphs that a lawful trace can match, and why the others cannot; raises `never-lawful` if there is none."""
    lawful: list[GraphPlan] = []
    proofs: list[Proof] = []
    for plan in plans:
        proof = impossibility(plan.graph, law, catalog)
        if proof is None:
            lawful.append(plan)
        else:
            proofs.append(proof)
    if not lawful:
        text, constraints = proofs[0]
        raise QueryError(
            [
                Problem(
                    "never-lawful",
                    f"no trace that obeys the constraints can match: {text}",
                    _place(constraints),
                    hint="correct the pattern, or relax the constraint if the process allows the pattern",
                )
            ],
            source,
        )
    return lawful, [text for text, _ in proofs]


def impossibility(graph: Graph, law: Law, catalog: Catalog, besides: tuple[NeededVariable, ...] = ()) -> Proof | None:
    """Why no lawful trace matches the graph (with further events `besides`); None if one can."""
    network = extend(graph.times, (), _bounds(graph, law, catalog))
    if network.contradiction is not None:
        texts = {bound.reason.text for bound in network.contradiction.cycle}
        proof = tuple(constraint for constraint in law.constraints if _text(constraint) in texts)
        return explain_contradiction(network.contradiction), proof
    for condition in Failures(law, (*needed_variables(graph), *besides)).conditions():
        if not condition.seen:
            streams = dict.fromkeys(str(variable.stream) for variable in graph.variables)
            names = ", ".join(f"`{name}`" for name in streams)
            return f"it requires {names}, but {_listed(condition.proof)}", condition.proof
    return None


def needless_absences(plan: GraphPlan, law: Law, catalog: Catalog) -> Iterator[str]:
    """The forbidden parts that never occur in a lawful trace together with the rest of the pattern, each with the
    proof."""
    for absence in plan.absences:
        inner = tuple(
            NeededVariable(f"NOT {needed.name}", needed.stream, frozenset(f"NOT {name}" for name in needed.before))
            for needed in needed_variables(absence.graph.graph)
        )
        proof = impossibility(plan.graph, law, catalog, inner)
        if proof is not None:
            yield f"`{absence.absence.text}` is redundant: {_listed(proof[1])}"


def needless_constraints(law: Law) -> Iterator[Constraint]:
    """The constraints on occurrence that follow from the others; not searched among too many."""
    if len(law.constraints) > MOST_COMPARED:
        return
    for constraint in law.constraints:
        others = Law(tuple(other for other in law.constraints if other is not constraint))
        clauses = list(clauses_of(constraint))
        if clauses and all(_follows(clause, others) for clause in clauses):
            yield constraint


def _follows(clause: Clause, law: Law) -> bool:
    if clause.head is not None:
        return clause.head in law.implied(clause.body)
    return law.forbids(clause.body)


def _bounds(graph: Graph, law: Law, catalog: Catalog) -> list[Bound]:
    """The bounds that PRIOR and ENDS WITHIN imply for the variables."""
    bounds = [
        Bound(end_of(y.name), start_of(x.name), Limit(scale.ticks(constraint.window), False), _reason(constraint))
        for scale in (TimeScale(catalog.unit),)
        for constraint in law.constraints
        if isinstance(constraint, EndsWithin)
        for x, y in permutations(graph.variables, 2)
    ]
    return bounds + [
        Bound(start_of(x.name), end_of(y.name), Limit(0, False), _reason(prior))
        for x, y in permutations(graph.variables, 2)
        for prior in law.priors
        if (prior.earlier, prior.later) == (x.stream, y.stream)
    ]


def _reason(constraint: Constraint) -> Reason:
    return Reason(_text(constraint), constraint.span)


def _text(constraint: Constraint) -> str:
    return f"CONSTRAINT {render_constraint(constraint)}"


def _listed(constraints: Sequence[Constraint]) -> str:
    return ", ".join(map(_text, constraints))


def _place(constraints: Sequence[Constraint]) -> Span | None:
    return next((constraint.span for constraint in constraints if constraint.span is not None), None)
