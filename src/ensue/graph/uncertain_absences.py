"""Absences over uncertain events: which forbidden matches exclude a match, and which only make it less probable.

A forbidden match whose events are all certain excludes the match. Forbidden matches that may be real are listed, each
as a *threat*, by a collection in the scope of the NOT; the probability of the match is computed from them. What a NOT
inside a NOT forbids is a threat against a threat; it is listed together with that threat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ensue.analysis.catalog import Catalog
from ensue.analysis.scopes import chooses, counts_events
from ensue.errors import Problem, QueryError, Source
from ensue.graph.graphs import Absence, Collection, Graph, NormalForm, Threat, Variable
from ensue.nodes.expressions import Binary, Expr, Field, Literal
from ensue.nodes.names import Doubt
from ensue.nodes.patterns import PatternQuery
from ensue.nodes.uncertainty import CERTAINTY, Threshold


def uncertain_form(form: NormalForm, catalog: Catalog, query: PatternQuery, source: Source | None) -> NormalForm:
    """The normal form of a query over uncertain events; raises a QueryError if its probability is not defined."""
    problems = [*_beyond_probability(query), *(problem for graph in form.graphs for problem in _beyond_lists(graph))]
    if problems:
        raise QueryError(problems[:1], source)
    return replace(form, graphs=tuple(_Doubts(catalog, query.having).graph(graph) for graph in form.graphs))


def _beyond_probability(query: PatternQuery) -> Iterator[Problem]:
    # A context is lowered to declared streams that choose. The user wrote MATCH, so this check comes first.
    if chooses(query):
        yield Problem(
            "uncertain-choice",
            "MATCH and CONSUME are not supported for uncertain events",
            query.policy_span or query.span,
            hint="remove MATCH and CONSUME: each match is returned with its probability",
        )
    elif query.suppress is not None:
        yield Problem(
            "uncertain-choice",
            "SUPPRESS is not supported for uncertain events",
            query.suppress.span or query.span,
            hint="remove SUPPRESS: each match is returned with its probability",
        )
    elif query.declares or query.rule is not None:
        yield Problem(
            "uncertain-stream",
            f"`{query.name}` derives events from uncertain events, which is not supported",
            query.span,
            hint="write the whole pattern in one query, or keep only events that are certain enough",
        )
    elif counts_events(query):
        yield Problem(
            "uncertain-positions",
            "counting events is not supported for uncertain events",
            query.span,
            hint="use a window in time instead of EVENTS",
        )


def _beyond_lists(graph: Graph) -> Iterator[Problem]:
    """Problems: lists inside a NOT, and NOTs inside a list."""
    nested = [absence.graph for absence in graph.absences]
    while nested:
        outer = nested.pop()
        nested += [absence.graph for absence in outer.absences]
        if outer.collections:
            yield Problem(
                "uncertain-list",
                "a list of uncertain events inside a NOT is not supported",
                hint="forbid single events or sequences of events",
            )
        if any(absence.graph.replaced & {*outer.names} for absence in outer.absences):
            yield Problem(
                "uncertain-first",
                "choosing the first of several uncertain events inside a NOT is not supported",
                hint="move the operator out of the NOT",
            )
    for collection in graph.collections:
        if any(listed.absences for listed in collection.graphs):
            yield Problem(
                "uncertain-list",
                f"a NOT inside the list of `{collection.text}` is not supported, because its events are uncertain",
                hint="list the events, and move the NOT outside the list",
            )


class _Doubts:
    """Splits the absences of the graphs of one query into certain ones and threats."""

    def __init__(self, catalog: Catalog, threshold: Threshold | None) -> None:
        self.catalog = catalog
        self.threshold = threshold

    def graph(self, graph: Graph) -> Graph:
        threats = [
            threat
            for number, absence in enumerate(graph.absences)
            if self._is_doubtful(absence)
            for threat in self._threats(absence, absence.graph, Doubt((number,)), None)
        ]
        return replace(
            graph,
            variables=tuple(map(self._likely, graph.variables)),
            conditions=(*graph.conditions, *self._likely_pairs(graph)),
            absences=tuple(map(self._sure, graph.absences)),
            collections=(*graph.collections, *threats),
        )

    # -- what is too improbable -------------------------------------------------------------------------------------

    def _likely(self, variable: Variable) -> Variable:
        """The variable with a condition that excludes events less probable than the threshold of the match."""
        if self.threshold is None or self.threshold.least == 0 or not self.catalog.is_uncertain(variable.stream):
            return variable
        return replace(variable, predicates=(*variable.predicates, self._enough(_certainty(variable))))

    def _likely_pairs(self, graph: Graph) -> Iterator[Expr]:
        """Conditions that exclude pairs of events whose joint probability is below the threshold."""
        if self.threshold is None or self.threshold.least == 0:
            return
        uncertain = [variable for variable in graph.variables if self.catalog.is_uncertain(variable.stream)]
        for place, one in enumerate(uncertain):
            for other in uncertain[place + 1 :]:
                yield self._enough(Binary("*", _certainty(one), _certainty(other)))

    def _enough(self, probability: Expr) -> Expr:
        """The probability is at least the threshold, minus a tolerance for rounding."""
        assert self.threshold is not None
        return Binary(">=", probability, Literal(self.threshold.least * (1 - 1e-12)))

    # -- what is forbidden ------------------------------------------------------------------------------------------

    def _is_doubtful(self, absence: Absence) -> bool:
        return any(self.catalog.is_uncertain(variable.stream) for variable in absence.graph.variables) or any(
            map(self._is_doubtful, absence.graph.absences)
        )

    def _sure(self, absence: Absence) -> Absence:
        """The certainly forbidden part: its events are certain, and no NOT inside it can apply."""
        graph = absence.graph
        variables = tuple(self._certain(variable) for variable in graph.variables)
        possible = tuple(
            replace(inner, graph=replace(inner.graph, absences=tuple(map(self._sure, inner.graph.absences))))
            for inner in graph.absences
        )
        return replace(absence, graph=replace(graph, variables=variables, absences=possible))

    def _certain(self, variable: Variable) -> Variable:
        if not self.catalog.is_uncertain(variable.stream):
            return variable
        return replace(variable, predicates=(*variable.predicates, Binary(">=", _certainty(variable), Literal(1.0))))

    def _threats(self, absence: Absence, whole: Graph, name: Doubt, against: Doubt | None) -> Iterator[Collection]:
        """The forbidden matches that may be real, and the threats against them.

        `whole` is the forbidden graph merged with the threats around it.
        """
        own, inside = absence.graph.names, absence.graph.absences
        listed = replace(whole, absences=tuple(map(self._sure, inside)))
        if len(listed.variables) == 1 and not any(map(self._is_doubtful, inside)):
            listed = replace(listed, variables=tuple(map(self._doubtful, listed.variables)))
        threat = Threat(own, against)
        scopes = (absence.scope,)
        yield Collection(name, listed.names, (listed,), scopes, 0, None, absence.item, absence.words, threat)
        for number, inner in enumerate(inside):
            if self._is_doubtful(inner):
                yield from self._threats(inner, _merged(whole, inner.graph), Doubt((*name.path, number)), name)

    def _doubtful(self, variable: Variable) -> Variable:
        """The variable with a condition that excludes certain events, which forbid the match already."""
        return replace(variable, predicates=(*variable.predicates, Binary("<", _certainty(variable), Literal(1.0))))


def _merged(outer: Graph, inner: Graph) -> Graph:
    """A graph merged with a graph that it forbids: all of their events, bounds and conditions."""
    names = {*outer.names, *(moment.name for moment in outer.moments)}
    return replace(
        inner,
        variables=(*outer.variables, *inner.variables),
        conditions=(*outer.conditions, *inner.conditions),
        equalities=(*outer.equalities, *inner.equalities),
        moments=(*outer.moments, *inner.moments),
        ties=(*outer.ties, *inner.ties),
        premises=(
            *outer.premises,
            *(bound for bound in inner.premises if not {bound.left.variable, bound.right.variable} & names),
        ),
        intervals={**outer.intervals, **inner.intervals},
        replaced=outer.replaced | (inner.replaced - names),
    )


def _certainty(variable: Variable) -> Field:
    return Field(variable.name, CERTAINTY)
