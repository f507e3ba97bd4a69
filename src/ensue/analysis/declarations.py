"""The declared streams of a program: dependencies, evaluation order, shared keys, attributes, and their checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ensue.analysis.catalog import MOMENTS, TIME_NAMES, Catalog, StreamSchema, inferred_catalog
from ensue.analysis.scopes import counts_events, returned_name
from ensue.errors import Problem, Span
from ensue.expr.kinds import NULL_TYPE
from ensue.nodes.constraints import ConstraintStatement
from ensue.nodes.expressions import Call, Expr, Field
from ensue.nodes.names import Stream
from ensue.nodes.patterns import STRICT, Event, Operation, PatternQuery, Statements, Window, column_name, walk
from ensue.nodes.rules import HeadArgument, Rule, Ruleset

START, END, LINEAGE = "ensue:start", "ensue:end", "ensue:lineage"
"""The columns of a declared stream besides those of RETURN: the start, the end and the lineage of an event."""

FIRST, LAST = "ensue:first", "ensue:last"
"""The columns of a context's operator with the order of an event at its start and at its end, if columns order events;
null where it has none."""

HIDDEN = (START, END, LINEAGE, FIRST, LAST)


def streams_of(queries: Iterable[PatternQuery]) -> tuple[Stream, ...]:
    """The streams that the queries use, in the order of the text."""
    names = [node.stream for query in queries for node in walk(query.pattern) if isinstance(node, Event)]
    return tuple(dict.fromkeys(names))


def declarations(queries: Iterable[PatternQuery]) -> dict[Stream, tuple[PatternQuery, ...]]:
    """The statements that declare each stream: one statement, or the rules with this head."""
    found: dict[Stream, tuple[PatternQuery, ...]] = {}
    for query in queries:
        if query.declares and query.name is not None:
            found[query.name] = (*found.get(query.name, ()), query)
    return found


def columns_of(query: PatternQuery) -> tuple[str, ...]:
    """The columns of a declared stream in its statement: those of RETURN and of the joined table."""
    returned = (returned_name(column, place) for place, column in enumerate(query.returns))
    added = (name for _, name in query.lookup.columns) if query.lookup is not None else ()
    return (*returned, *added)


def used_streams(query: PatternQuery, declared: Iterable[Stream]) -> tuple[Stream, ...]:
    """The declared streams that the pattern uses, including those inside NOT."""
    known = set(declared)
    return tuple(name for name in streams_of([query]) if name in known)


def unclear_traces(constraints: Iterable[ConstraintStatement], queries: Iterable[PatternQuery]) -> Iterator[Problem]:
    """Constraints without PARTITION BY whose traces the queries do not define."""
    keys = {frozenset(query.partition_by) for query in queries}
    for entry in constraints:
        if entry.partition_by:
            continue
        if frozenset() in keys:
            yield Problem(
                "constraint-partition",
                "a constraint needs PARTITION BY to define its traces, but a pattern has none",
                entry.span,
                hint="add PARTITION BY with the key of a trace to the pattern, or to the constraint",
            )
        elif len(keys) > 1:
            yield Problem(
                "constraint-partition",
                "this constraint needs PARTITION BY, because the patterns have different PARTITION BY clauses",
                entry.span,
                hint="add PARTITION BY with the key of a trace to the constraint",
            )


def users_of(name: str, queries: Iterable[PatternQuery]) -> tuple[PatternQuery, ...]:
    """The statements that use a stream."""
    return tuple(query for query in queries if name in streams_of([query]))


def in_order(queries: Sequence[PatternQuery]) -> tuple[tuple[Stream, ...], ...]:
    """The declared streams, each after those that it uses. Streams that use each other form a group."""
    declared = declarations(queries)
    return components({name: _used_by_any(ways, declared) for name, ways in declared.items()})


def components(uses: Mapping[Stream, Collection[Stream]]) -> tuple[tuple[Stream, ...], ...]:
    """Groups of names, each after those that it uses. The members of a group use each other.

    These are the strongly connected components, by Tarjan's algorithm.
    """
    found: list[tuple[Stream, ...]] = []
    number: dict[Stream, int] = {}
    lowest: dict[Stream, int] = {}
    waiting: list[Stream] = []

    def visit(name: Stream) -> None:
        number[name] = lowest[name] = len(number)
        waiting.append(name)
        for used in uses[name]:
            if used not in number:
                visit(used)
            if used in waiting:
                lowest[name] = min(lowest[name], lowest[used])
        if lowest[name] == number[name]:
            place = waiting.index(name)
            found.append(tuple(waiting[place:]))
            del waiting[place:]

    for name in uses:
        if name not in number:
            visit(name)
    return tuple(found)


def _used_by_any(ways: Sequence[PatternQuery], declared: Iterable[Stream]) -> tuple[Stream, ...]:
    known = tuple(declared)
    return tuple(dict.fromkeys(name for query in ways for name in used_streams(query, known)))


def streams_below(query: PatternQuery, queries: Iterable[PatternQuery]) -> tuple[PatternQuery, ...]:
    """The statements that declare what a query uses, at any depth, in the order of the text."""
    declared = declarations(queries)
    found = list(used_streams(query, declared))
    for name in found:
        found += [used for used in _used_by_any(declared[name], declared) if used not in found]
    return tuple(statement for name, ways in declared.items() if name in found for statement in ways)


def connected(query: PatternQuery, queries: Sequence[PatternQuery]) -> tuple[PatternQuery, ...]:
    """The statements that share declared streams with this one, directly or indirectly, and so must run together."""
    declared = declarations(queries)
    together = [query]
    for current in together:
        below = [way for name in used_streams(current, declared) for way in declared[name]]
        beside = declared.get(current.name or "", ()) if current.declares else ()
        above = [other for other in queries if current.declares and current.name in streams_of([other])]
        together += [other for other in (*below, *beside, *above) if other not in together]
    return tuple(other for other in queries if other in together)


def shared_keys(queries: Sequence[PatternQuery]) -> tuple[str, ...]:
    """The keys by which the events of connected statements can be partitioned.

    Each statement has the keys in its PARTITION BY or uses single events, and each stream returns them unchanged under
    their name. Then an event of a declared stream has the same key as the events that it comes from, at any depth.
    """
    together = [query for query in queries if not is_about_one(query)]
    if not together:
        return ()
    streams = [query for query in queries if query.declares]
    return tuple(
        key
        for key in together[0].partition_by
        if key not in TIME_NAMES
        and all(key in query.partition_by for query in together)
        and all(_hands_on(key, query) for query in streams)
    )


def is_about_one(query: PatternQuery) -> bool:
    """Whether a statement uses each event of a stream independently of all others."""
    events = [node for node in walk(query.pattern) if isinstance(node, Event)]
    alone = len(events) == 1 and (query.rule is not None or isinstance(query.pattern, Event))
    return alone and not query.partition_by and query.policy is None and not query.consume


def _hands_on(key: str, query: PatternQuery) -> bool:
    if query.returns_events:
        return True
    columns = [column.expression for place, column in enumerate(query.returns) if column_name(column, place) == key]
    return any(_is_key(key, expression) for expression in columns)


def _is_key(key: str, expression: Expr) -> bool:
    """Whether an expression is the key of some event. All events of a match have the same key."""
    if isinstance(expression, Call) and expression.name in ("coalesce", "first"):
        return all(_is_key(key, argument) for argument in expression.arguments)
    return isinstance(expression, Field) and expression.name == key


def program_catalog(
    query: PatternQuery,
    program: Sequence[PatternQuery],
    time: str = "t",
    other_windows: Iterable[Window] = (),
    end: str | None = None,
) -> Catalog:
    """The catalog of a query of a program without data (see `inferred_catalog`).

    A declared stream has the columns of its RETURN or, without RETURN, the fields that are used.
    """
    catalog = inferred_catalog(query, time, other_windows, end)
    declared = declarations(program)
    asked = catalog.any_stream.fields if catalog.any_stream is not None else {}
    schemas: dict[Stream, StreamSchema] = {}
    for name in used_streams(query, declared):
        columns = asked if declared[name][0].returns_events else columns_of(declared[name][0])
        schemas[name] = StreamSchema(name, dict.fromkeys(columns, NULL_TYPE), START, END, derived=True)
    if declared and any(inferred_catalog(other, time).time == MOMENTS for other in program):
        catalog = replace(catalog, time=MOMENTS)
    return replace(catalog, streams=schemas) if schemas else catalog


def check_streams(statements: Statements) -> list[Problem]:
    """The problems of the declared streams that do not depend on data."""
    problems = [*_repeated(statements.declared)]
    declared = declarations(statements.declared)
    problems += _cycles(declared)
    problems += [problem for query in statements.statements for problem in _counted_positions(query, declared)]
    problems += _constrained(statements, declared)
    problems += _tracked(statements, declared)
    return problems


def _repeated(queries: Sequence[PatternQuery]) -> Iterator[Problem]:
    """Streams that several statements declare. Several rules can have the same head."""
    seen: dict[Stream | None, PatternQuery] = {}
    for query in queries:
        first = seen.setdefault(query.name, query)
        if first is not query and (query.rule is None or first.rule is None):
            yield Problem(
                "duplicate-stream",
                f"stream `{query.name}` is declared twice",
                query.span,
                hint="rename one of them, or write one pattern with OR",
            )


def _cycles(declared: Mapping[Stream, tuple[PatternQuery, ...]]) -> Iterator[Problem]:
    """One problem for each group of streams that use each other and are not all derived by rules."""
    uses = {name: _used_by_any(ways, declared) for name, ways in declared.items()}
    for group in components(uses):
        if all(_may_grow(query) for name in group for query in declared[name]):
            continue
        name = next(name for name in declared if name in group)
        cycle = _cycle_from(name, uses)
        if cycle is not None:
            used = cycle[1] if len(cycle) > 1 else name
            query = next(query for query in declared[name] if used in streams_of([query]))
            yield Problem(
                "stream-cycle",
                f"stream `{name}` depends on itself: {' -> '.join(map(str, (*cycle, name)))}",
                _place_of(query, used),
                hint="break the cycle at one of these streams: a pattern cannot use its own matches",
            )


def _may_grow(query: PatternQuery) -> bool:
    """Whether a statement may depend on its own events: a rule, or its join with a table."""
    return query.rule is not None or query.lookup is not None


def _cycle_from(name: Stream, uses: Mapping[Stream, Collection[Stream]]) -> tuple[Stream, ...] | None:
    """A shortest path of dependencies from a stream back to itself."""
    ways: dict[Stream, tuple[Stream, ...]] = {name: (name,)}
    waiting = [name]
    for current in waiting:
        for used in uses[current]:
            if used == name:
                return ways[current]
            if used not in ways:
                ways[used] = (*ways[current], used)
                waiting.append(used)
    return None


def _counted_positions(query: PatternQuery, declared: Collection[Stream]) -> Iterator[Problem]:
    used = used_streams(query, declared)
    how = _way_of_counting(query)
    if used and how is not None:
        words, hint = how
        yield Problem(
            "derived-positions",
            f"{words} uses positions of events, but events of the declared stream `{used[0]}` have no position",
            _place_of(query, used[0]),
            hint=hint,
        )


def _constrained(statements: Statements, declared: Collection[Stream]) -> Iterator[Problem]:
    for entry in statements.constraints:
        for name in entry.constraint.streams:
            if name in declared:
                yield Problem(
                    "derived-constraint",
                    f"constraints are only supported for input streams, but `{name}` is a declared stream",
                    entry.constraint.span or entry.span,
                    hint="use the streams of its pattern in the constraint",
                )


def _tracked(statements: Statements, declared: Collection[Stream]) -> Iterator[Problem]:
    """States that depend on declared streams. Beliefs are updated before patterns are evaluated."""
    names = {str(name) for name in declared}
    for entry in statements.states:
        for response in entry.responses:
            if response.stream in names:
                yield Problem(
                    "derived-state",
                    f"a STATE only supports input streams, but `{response.stream}` is a declared stream",
                    response.span or entry.span,
                    hint="use the streams of its pattern, or write its matches to a table first",
                )


def _way_of_counting(query: PatternQuery) -> tuple[str, str] | None:
    """The part of a query that uses positions of events, and what to write instead."""
    if counts_events(query):
        return "WITHIN ... EVENTS", "use WITHIN with a duration"
    if any(isinstance(node, Operation) and node.operator == "NEXT" for node in walk(query.pattern)):
        return "NEXT", "use SEQ, with a NOT between its items"
    if query.policy == STRICT:
        return "MATCH STRICT", "use MATCH NEXT, which binds the next event that satisfies the conditions"
    return None


def _place_of(query: PatternQuery, stream: Stream) -> Span | None:
    """The position where a statement first uses a stream."""
    for node in walk(query.pattern):
        if isinstance(node, Event) and node.stream == stream and node.span is not None:
            return node.span.head(len(str(stream)))
    return query.span


# --- Attributes of streams, tables and heads: names and order

Attributes = Mapping[str, tuple[str, ...]]
"""The attributes of streams and tables in declared order."""


def declared_attributes(statements: Statements) -> dict[str, tuple[str, ...]]:
    """The attributes, in order, of each stream and table that the program declares."""
    ruleset = statements.ruleset or Ruleset()
    known: dict[str, tuple[str, ...]] = {
        name: columns_of(ways[0])
        for name, ways in declarations(statements.statements).items()
        if isinstance(name, str) and ways[0].returns
    }
    known |= {entry.stream: entry.attributes for entry in ruleset.streams if entry.stream and entry.attributes}
    for fact in reversed(ruleset.facts):
        known[fact.table] = fact.columns or tuple(map(argument_name, range(len(fact.values))))
    known |= {entry.name: entry.columns for entry in ruleset.tables}
    for rule in reversed(ruleset.rules):
        known[rule.head] = attribute_names(rule)
    return known


def tables_of(ruleset: Ruleset) -> frozenset[str]:
    """The names of tables, given and derived."""
    return ruleset.given_tables | ruleset.derived_tables


def argument_name(place: int) -> str:
    """The name of an argument that has none in the text."""
    return f"arg_{place + 1}"


def attribute_names(rule: Rule) -> tuple[str, ...]:
    """The names of the arguments of a head: the given name, the name of the variable, or a numbered name."""
    names: list[str] = []
    for place, argument in enumerate(rule.arguments):
        own = argument.attribute or _bare_name(argument.expression)
        names.append(argument_name(place) if own is None or own in names else own)
    return tuple(names)


def _bare_name(expression: Expr) -> str | None:
    return expression.name if isinstance(expression, Field) and expression.variable is None else None


def in_order_of(rule: Rule, attributes: Sequence[str]) -> tuple[HeadArgument, ...]:
    """The arguments of a head in the order of its attributes: by name if all are named, otherwise by position."""
    by_name = {argument.attribute: argument for argument in rule.arguments}
    return tuple(by_name[name] for name in attributes) if set(by_name) == set(attributes) else rule.arguments


def first_rule(ruleset: Ruleset, head: str) -> Rule:
    """The first rule of a head, which defines the names of its attributes."""
    return next(rule for rule in ruleset.rules if rule.head == head)
