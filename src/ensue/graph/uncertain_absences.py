"""Queries over uncertain events: what forbids a match for sure, and what only makes it less probable.

A forbidden match whose events are all real in every world forbids. All that may be real are listed, each as a
*threat*, by a collection in the scope of the NOT: with them in hand the probability of a match is known. What a NOT
inside of a NOT forbids is a threat against a threat; it is listed together with what it speaks against.
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
    """The normal form of a query over uncertain events; raises a QueryError where probabilities have no meaning yet."""
    problems = [*_beyond_probability(query), *(problem for graph in form.graphs for problem in _beyond_lists(graph))]
    if problems:
        raise QueryError(problems[:1], source)
    return replace(form, graphs=tuple(_Doubts(catalog, query.having).graph(graph) for graph in form.graphs))


def _beyond_probability(query: PatternQuery) -> Iterator[Problem]:
    # A context is lowered to declared streams that choose, and the user wrote MATCH: so this comes first.
    if chooses(query):
        yield Problem(
            "uncertain-choice",
            "which matches are chosen depends on which uncertain events are real",
            query.policy_span or query.span,
            hint="leave MATCH and CONSUME out: every match has its probability",
        )
    elif query.declares or query.rule is not None:
        yield Problem(
            "uncertain-stream",
            f"the events of `{query.name}` would be made of uncertain ones, and so not be independent of each other",
            query.span,
            hint="look for the whole pattern at once, or keep the events that are certain enough",
        )
    elif counts_events(query):
        yield Problem(
            "uncertain-positions",
            "how many events lie between two of them depends on which uncertain events are real",
            query.span,
            hint="measure the window in time, not in EVENTS",
        )


def _beyond_lists(graph: Graph) -> Iterator[Problem]:
    """Lists inside of what is forbidden, and negations inside of what is listed."""
    nested = [absence.graph for absence in graph.absences]
    while nested:
        outer = nested.pop()
        nested += [absence.graph for absence in outer.absences]
        if outer.collections:
            yield Problem(
                "uncertain-list",
                "a list of uncertain events stands inside of a NOT",
                hint="forbid single events or sequences of them",
            )
        if any(absence.graph.replaced & {*outer.names} for absence in outer.absences):
            yield Problem(
                "uncertain-first",
                "which uncertain event is a first one decides about what a NOT forbids",
                hint="put the operator outside of the NOT",
            )
    for collection in graph.collections:
        if any(listed.absences for listed in collection.graphs):
            yield Problem(
                "uncertain-list",
                f"a NOT stands inside of the list of `{collection.text}`, whose events are uncertain",
                hint="list the events, and put the NOT beside the list",
            )


class _Doubts:
    """What may or may not be, in the graphs of one query."""

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
        """An event that is less probable than the match has to be is in no match."""
        if self.threshold is None or self.threshold.least == 0 or not self.catalog.is_uncertain(variable.stream):
            return variable
        return replace(variable, predicates=(*variable.predicates, self._enough(_certainty(variable))))

    def _likely_pairs(self, graph: Graph) -> Iterator[Expr]:
        """So are two that are less probable together."""
        if self.threshold is None or self.threshold.least == 0:
            return
        uncertain = [variable for variable in graph.variables if self.catalog.is_uncertain(variable.stream)]
        for place, one in enumerate(uncertain):
            for other in uncertain[place + 1 :]:
                yield self._enough(Binary("*", _certainty(one), _certainty(other)))

    def _enough(self, probability: Expr) -> Expr:
        """At least as probable as asked, less what rounding may have taken away."""
        assert self.threshold is not None
        return Binary(">=", probability, Literal(self.threshold.least * (1 - 1e-12)))

    # -- what is forbidden ------------------------------------------------------------------------------------------

    def _is_doubtful(self, absence: Absence) -> bool:
        return any(self.catalog.is_uncertain(variable.stream) for variable in absence.graph.variables) or any(
            map(self._is_doubtful, absence.graph.absences)
        )

    def _sure(self, absence: Absence) -> Absence:
        """What is forbidden for sure: its events are real in every world, and nothing forbids it in any."""
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
        """What may be forbidden and real, and what speaks against that.

        `whole` is the forbidden graph together with those around it that are threats as well.
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
        """What is certain forbids for sure, so that it need not be listed."""
        return replace(variable, predicates=(*variable.predicates, Binary("<", _certainty(variable), Literal(1.0))))


def _merged(outer: Graph, inner: Graph) -> Graph:
    """A graph together with one that it forbids: all of their events, bounds and conditions."""
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
