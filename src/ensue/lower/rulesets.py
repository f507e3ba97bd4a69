"""Lower rules to patterns: each rule becomes a statement that declares the stream of its head.

Later phases do not handle rules. Attributes by position and keys are added when the tables are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ensue.analysis.declarations import declared_attributes, first_rule, streams_of
from ensue.errors import Problem, QueryError
from ensue.lower.rule_parts import check_parts, may_meet, parts_of, whole_rule
from ensue.lower.rule_reader import RuleReader, all_of
from ensue.nodes.expressions import Binary, Expr, Field, IsNull, conjuncts, substitute_fields
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import CONTEXTS, AnyStatements, Event, PatternQuery, Return, Statements, rewrite, walk
from ensue.nodes.rules import (
    Action,
    Alternatives,
    Rule,
    Ruleset,
    atoms_of,
    cause_statements,
    without_alternatives,
)

RESULT = "v"
"""The variable of an event of a head in the statement whose matches are the result."""


def resolve_rules(statements: AnyStatements) -> AnyStatements:
    """The statements with rules as patterns: the declarations of the heads, and one result for each head."""
    ruleset = statements.ruleset
    if ruleset is None or not ruleset.event_rules:
        return statements
    attributes = declared_attributes(statements)
    made: list[PatternQuery] = [*cause_statements(ruleset)]
    meets = may_meet(statements)
    for number, rule in enumerate(ruleset.rules, start=1):
        if rule.head in ruleset.derived_tables:
            continue
        queries = (
            query
            for part in parts_of(rule, number, ruleset, attributes, meets)
            for query in RuleReader(part, number, ruleset, attributes).statements()
        )
        # Each operator of a policy gets the keys, so they are needed before the policy is lowered.
        made += map(_keyed, queries) if rule.policy is not None else queries
    results = [result_of(head, attributes[head], first_rule(ruleset, head)) for head in ruleset.heads]
    return replace(
        statements,
        statements=(*statements.statements, *made, *results),
        ruleset=replace(ruleset, rules=ruleset.table_rules),
    )


def table_queries(statements: Statements) -> tuple[PatternQuery, ...]:
    """The rules that derive rows of tables as patterns over these rows, to check their expressions."""
    ruleset = statements.ruleset
    if ruleset is None or not ruleset.derived_tables:
        return ()
    attributes, rows = declared_attributes(statements), replace(ruleset, tables=(), facts=())
    return tuple(
        query
        for number, rule in enumerate(ruleset.table_rules, start=1)
        for query in RuleReader(whole_rule(rule, attributes), number, rows, attributes).statements()
    )


def rule_problems(statements: Statements) -> Iterator[Problem]:
    """The problems of rules that cannot be split into their events and their rows."""
    ruleset = statements.ruleset
    if ruleset is not None and ruleset.given_tables:
        attributes, meets = declared_attributes(statements), may_meet(statements)
        for rule in ruleset.event_rules:
            yield from check_parts(rule, ruleset, attributes, meets)


def resolve_alternatives(statements: AnyStatements) -> AnyStatements:
    """The statements with one rule for each choice of the alternatives in a body."""
    ruleset = statements.ruleset
    if ruleset is None or not any(isinstance(item, Alternatives) for rule in ruleset.rules for item in rule.body):
        return statements
    return replace(statements, ruleset=without_alternatives(ruleset))


def is_result_of(query: PatternQuery, head: Stream) -> bool:
    """Whether the matches of a statement are the events of a head."""
    event = query.pattern
    return query.name == head and not query.declares and isinstance(event, Event) and event.stream == head


def unused_heads(ruleset: Ruleset) -> tuple[str, ...]:
    """The heads that no rule of another head uses."""
    used = {stream for rule in ruleset.rules for stream in _streams_of(rule) if stream != rule.head}
    return tuple(head for head in ruleset.heads if head not in used)


def heads_below(head: str, ruleset: Ruleset) -> tuple[str, ...]:
    """A head and all heads that it depends on, at any depth."""
    found = [head]
    for current in found:
        used = [stream for rule in ruleset.rules if rule.head == current for stream in _streams_of(rule)]
        found += [stream for stream in dict.fromkeys(used) if stream in ruleset.heads and stream not in found]
    return tuple(found)


def _streams_of(rule: Rule) -> list[str]:
    """The streams in the body of a rule."""
    return [atom.stream for atom in atoms_of(rule)]


def result_of(head: str, attributes: Sequence[str], rule: Rule) -> PatternQuery:
    """The statement whose matches are the events of a head."""
    columns = [Return(Field(RESULT, "s"), "start"), Return(Field(RESULT, "e"), "end")]
    columns += [Return(Field(RESULT, name), name) for name in attributes]
    return PatternQuery(Event(head, RESULT, span=rule.span), head, returns=tuple(columns), span=rule.span)


def action_query(action: Action) -> PatternQuery:
    """The query for the events of an ON statement, with the arguments of its call."""
    arguments = enumerate(action.arguments, start=1)
    returns = tuple(Return(given.expression, f"arg_{place}", given.span) for place, given in arguments)
    name = f"ON {action.stream} DO {action.action}"
    event = Event(action.stream, action.variable, span=action.span)
    return PatternQuery(event, name, action.where, returns=returns, span=action.span)


# --- Attributes by position, and the keys of rules

AttributesOf = Callable[[str], tuple[str, ...] | None]
"""The attributes of a stream in the order of its table, or None if the table has no defined order."""


def with_attributes(statements: AnyStatements, attributes_of: AttributesOf) -> AnyStatements:
    """The statements with all attributes by name."""
    problems = [problem for query in statements.statements for problem in _check_positions(query, attributes_of)]
    if problems:
        raise QueryError(problems, statements.source)
    named = [_with_names(query, attributes_of) for query in statements.statements]
    return replace(statements, statements=tuple(named))


def _events(query: PatternQuery) -> list[Event]:
    return [node for node in walk(query.pattern) if isinstance(node, Event)]


def _check_positions(query: PatternQuery, attributes_of: AttributesOf) -> Iterator[Problem]:
    for event in _events(query):
        if event.arity is None:
            continue
        known = attributes_of(str(event.stream))
        if known is None:
            yield Problem(
                "no-positions",
                f"the order of the attributes of `{event.stream}` is unknown",
                event.span,
                hint=f"use names, `{event.stream}(column=x)`, or declare `STREAM {event.stream}(column, ...)`",
            )
        elif len(known) != event.arity:
            yield Problem(
                "arity",
                f"`{event.stream}` has {event.arity} arguments, but its table has {len(known)} attributes",
                event.span,
                label=", ".join(known),
                hint=f"write `_` for unused arguments, or use names: `{event.stream}(column=x)`",
            )


def _with_names(query: PatternQuery, attributes_of: AttributesOf) -> PatternQuery:
    named_by_place = [event for event in _events(query) if event.positions is not None]
    if not named_by_place:
        return query
    names = {
        (event.variable, position): name
        for event in named_by_place
        for position, name in zip(event.positions or (), attributes_of(str(event.stream)) or (), strict=True)
    }

    def named(expr: Expr) -> Expr:
        return substitute_fields(
            expr, lambda part: replace(part, name=names.get((part.variable, part.name), part.name))
        )

    return replace(
        query,
        pattern=rewrite(query.pattern, lambda part: replace(part, positions=None) if isinstance(part, Event) else part),
        where=None if query.where is None else named(query.where),
        returns=tuple(replace(column, expression=named(column.expression)) for column in query.returns),
    )


def with_keys(queries: Sequence[PatternQuery]) -> tuple[PatternQuery, ...]:
    """The statements, with the shared keys of all events added to those of rules."""
    keyed = [_keyed(query) if query.rule is not None else query for query in queries]
    for place in reversed(range(len(keyed))):
        query = keyed[place]
        if query.lookup is not None:
            users = [other for other in keyed if query.name in streams_of([other])]
            own = {column.alias for column in query.returns if _is_field(column.expression, column.alias)}
            keys = tuple(key for key in users[0].partition_by if key in own) if users else ()
            keyed[place] = replace(query, partition_by=keys)
    return tuple(keyed)


def _is_field(expression: Expr, name: str | None) -> bool:
    """Whether an expression is a field with this name. An attribute by position is not."""
    return isinstance(expression, Field) and expression.name == name


def _keyed(query: PatternQuery) -> PatternQuery:
    """A rule with its keys. Conditions that the keys imply are removed."""
    if query.partition_by or (query.policy in CONTEXTS and any(event.positions for event in _events(query))):
        return query
    keys = _shared_fields(query)
    left = [condition for condition in conjuncts(query.where) if not _is_about_keys(condition, keys)]
    return replace(query, partition_by=keys, where=all_of(left))


def _is_about_keys(condition: Expr, keys: Sequence[str]) -> bool:
    match condition:
        case Binary("=", Field(x, left), Field(y, right)) if x is not None and y is not None:
            return left == right and left in keys
        case IsNull(Field(x, name), negated=True) if x is not None:
            return name in keys
        case _:
            return False


def _shared_fields(query: PatternQuery) -> tuple[str, ...]:
    """The fields that are equal in all events of a rule, including the forbidden and the listed events."""
    variables = [event.variable for event in _events(query) if event.variable is not None]
    links: dict[str, list[tuple[Name, Name]]] = {}
    for condition in conjuncts(query.where):
        match condition:
            case Binary("=", Field(x, left), Field(y, right)) if x is not None and y is not None and left == right:
                links.setdefault(left, []).append((x, y))
    return tuple(name for name, pairs in links.items() if _connect(variables, pairs))


def _connect(variables: Sequence[Name], pairs: Sequence[tuple[Name, Name]]) -> bool:
    reached = {variables[0]}
    waiting = [variables[0]]
    for current in waiting:
        near = {y if x == current else x for x, y in pairs if current in (x, y)} - reached
        reached |= near
        waiting += near
    return reached >= set(variables)
