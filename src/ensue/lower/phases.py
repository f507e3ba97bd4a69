"""The phases of a program: written, checked, lowered. Each is a type, so that none can be skipped or repeated.

`Statements` are what was written. `ensue.check.gate.checked` turns them into a `CheckedProgram`, and `lower` turns that
into a `LoweredProgram`, the only thing that planning accepts. A lowering expresses the same program with fewer forms,
so that the next phases have fewer forms to handle.

There are three tuples of lowerings, because they run at three moments. `LOWERINGS` depend on the program alone.
`CATALOG_LOWERINGS` need the columns of tables: a rule may name attributes by their position in a table, and the keys
that the events of a rule share follow from the column names. `GRAPH_LOWERINGS` rewrite one query for its graphs; a plan
keeps the query from before, because results, messages and saved states refer to that one.

Two further rewrites are not lowerings of a program: over uncertain events a NOT becomes a list of threats of a graph
(`ensue.graph.uncertain_absences`), and partial matches that time out are extra queries, which only `ensue.start` asks
for (`ensue.plan.partial`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from ensue.analysis.scopes import has_spans, name_anonymous
from ensue.lower.contexts import resolve_contexts
from ensue.lower.operators import expand_query
from ensue.lower.rulesets import AttributesOf, resolve_alternatives, resolve_rules, with_attributes, with_keys
from ensue.lower.spans import resolve_spans
from ensue.nodes.patterns import CONTEXTS, AnyStatements, PatternQuery, Statements, Within

Rewrite: TypeAlias = "Callable[[Statements], Statements]"


@dataclass(frozen=True, slots=True, eq=False)
class Phase(Statements):
    """The statements after a phase. They are equal to `Statements` with the same contents."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statements) and all(
            getattr(self, part.name) == getattr(other, part.name) for part in fields(Statements) if part.compare
        )

    __hash__ = Statements.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class CheckedProgram(Phase):
    """Statements without problems. Only `ensue.check.gate` creates them."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredProgram(Phase):
    """Statements in the forms that planning accepts: patterns that declare streams or are results. See `lower`."""


def fields_of(statements: Statements) -> dict[str, Any]:
    """The fields of statements, to create the statements of the next phase."""
    return {part.name: getattr(statements, part.name) for part in fields(Statements)}


@dataclass(frozen=True, slots=True)
class Lowering:
    """A rewrite of a program by one law, an equation between two forms."""

    name: str
    law: str
    apply: Rewrite


@dataclass(frozen=True, slots=True)
class CatalogLowering:
    """A rewrite of a program by one law that needs the columns of tables."""

    name: str
    law: str
    apply: Callable[[Statements, AttributesOf], Statements]


@dataclass(frozen=True, slots=True)
class GraphLowering:
    """A rewrite of one query by one law."""

    name: str
    law: str
    apply: Callable[[PatternQuery], PatternQuery]


def whole_window(query: PatternQuery) -> PatternQuery:
    """`PATTERN p WITHIN w` is `PATTERN (p WITHIN w)`."""
    if query.within is None:
        return query
    return replace(query, pattern=Within(query.pattern, query.within), within=None)


LOWERINGS: tuple[Lowering, ...] = (
    Lowering(
        "spans",
        "span_start() is the least start of the match, named by AS, and of its lists; span_end() is the greatest end",
        resolve_spans,
    ),
    Lowering(
        "alternatives",
        "RULE h <- (items1 OR items2), items3 is RULE h <- items1, items3 and RULE h <- items2, items3",
        resolve_alternatives,
    ),
    Lowering(
        "rules",
        "RULE h(x) <- items is STREAM h FROM PATTERN items RETURN x, and the events of a head are a result",
        resolve_rules,
    ),
    Lowering(
        "contexts",
        "with MATCH RECENT and the other contexts, each operator is a stream of the matches that it chooses",
        resolve_contexts,
    ),
)
"""From checked to lowered, in this order: rules may have contexts."""

CATALOG_LOWERINGS: tuple[CatalogLowering, ...] = (
    CatalogLowering(
        "positions", "an attribute by position is the column at that position of the table", with_attributes
    ),
    CatalogLowering(
        "keys",
        "the fields that all events of a rule share are its PARTITION BY",
        lambda statements, _: replace(statements, statements=with_keys(statements.statements)),
    ),
)
"""The first steps of planning, in this order: finding keys needs the names of attributes."""

GRAPH_LOWERINGS: tuple[GraphLowering, ...] = (
    GraphLowering("window", "PATTERN p WITHIN w is PATTERN (p WITHIN w)", whole_window),
    GraphLowering("names", "an event without a variable gets a unique one", name_anonymous),
    GraphLowering(
        "operators", "operators such as FOLLOWS(x, y, d) are items and relations between their ends", expand_query
    ),
)
"""The rewrites before graphs are built, in this order: expanded operators repeat the names of their items."""


def lower(statements: CheckedProgram) -> LoweredProgram:
    """Apply all lowerings in order.

    >>> from ensue.check.gate import checked
    >>> from ensue.text.parser import parse_statements
    >>> lowered = lower(checked(parse_statements("RULE late(id) <- o: order(id=id)")))
    >>> [(query.name, query.declares) for query in lowered.statements]
    [('late', True), ('late', False)]
    """
    return LoweredProgram(**fields_of(lowered_forms(statements) if has_forms_to_lower(statements) else statements))


def lower_saved(statements: Statements) -> LoweredProgram:
    """Lower the statements of a saved state. They are already checked, and contain a result for each wanted head."""
    lowered = lowered_forms(statements)
    made = [query for query in lowered.statements[len(statements.statements) :] if query.declares]
    return LoweredProgram(
        **fields_of(replace(lowered, statements=(*lowered.statements[: len(statements.statements)], *made)))
    )


def has_forms_to_lower(statements: Statements) -> bool:
    """Whether a lowering applies: the program has rules, policies that are contexts, or spans in RETURN."""
    return statements.ruleset is not None or any(
        query.policy in CONTEXTS or (query.returns and has_spans(query)) for query in statements.statements
    )


def lowered_forms(statements: Statements) -> Statements:
    """Apply the lowerings to statements of any phase. The gate uses this before the statements are checked."""
    for lowering in LOWERINGS:
        statements = lowering.apply(statements)
    return statements


def rules_lowered(statements: CheckedProgram) -> CheckedProgram:
    """The statements with only their rules lowered, for callers that show patterns as written."""
    return resolve_rules(resolve_alternatives(statements))


def settle(statements: AnyStatements, attributes_of: AttributesOf) -> AnyStatements:
    """The statements with all attributes by name, and with the keys of rules."""
    if statements.ruleset is None:
        return statements
    settled: Any = statements
    for settling in CATALOG_LOWERINGS:
        settled = settling.apply(settled, attributes_of)
    return settled  # type: ignore[no-any-return]


def spelled_out(query: PatternQuery) -> PatternQuery:
    """The query in the forms that graphs are built from."""
    for spelling in GRAPH_LOWERINGS:
        query = spelling.apply(query)
    return query


@dataclass(frozen=True, slots=True)
class LoweringStage:
    """A program after a lowering that changed it. The first stage is the program as written."""

    name: str
    law: str
    statements: Statements


def stages(statements: CheckedProgram) -> Iterator[LoweringStage]:
    """The program as written and after each lowering that changed it, without lowerings that need data.

    >>> from ensue.check.gate import checked
    >>> from ensue.text.parser import parse_statements
    >>> [stage.name for stage in stages(checked(parse_statements("PATTERN SEQ(A a, B) WITHIN 5")))]
    ['written', 'window', 'names']
    """
    yield LoweringStage("written", "", statements)
    current: Statements = statements
    for name, law, rewrite in _without_tables():
        lowered = rewrite(current)
        if lowered != current:
            yield LoweringStage(name, law, lowered)
        current = lowered


def _without_tables() -> Iterator[tuple[str, str, Rewrite]]:
    for lowering in LOWERINGS:
        yield lowering.name, lowering.law, lowering.apply
    keys = CATALOG_LOWERINGS[-1]
    yield keys.name, keys.law, lambda statements: keys.apply(statements, lambda stream: None)
    for spelling in GRAPH_LOWERINGS:
        yield spelling.name, spelling.law, _of_each(spelling)


def _of_each(spelling: GraphLowering) -> Rewrite:
    return lambda statements: replace(statements, statements=tuple(map(spelling.apply, statements.statements)))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection while many long-lived values are created.

    For a program of a thousand patterns, this saves a fifth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
