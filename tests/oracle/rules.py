"""Section 8: what the rules of a program derive, by a naive fixpoint over all events. Free of engine code.

Heads and declared streams are worked out in the order in which they need each other; heads that need each other are
worked out together, round by round, until a round derives nothing that is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import chain, count, product

from inside import (
    Absent,
    Alternatives,
    Atom,
    Condition,
    Event,
    Expr,
    Fact,
    Field,
    InTable,
    Item,
    PatternQuery,
    Rule,
    Ruleset,
    Statements,
    StreamDeclaration,
    While,
    change_expressions,
    rewrite_expression,
    walk_expression,
)
from oracle.bodies import Body, Facts, Row
from oracle.conditions import Value, same
from oracle.model import OracleEvent, OracleMatch
from oracle.oracle import matches
from oracle.programs import as_events
from oracle.returns import name_of, origins_of
from oracle.rule_choices import chosen
from oracle.tree import walk

MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Derived:
    """What a program gives: the derived events of each head in order, and the matches of each PATTERN."""

    heads: dict[str, list[OracleEvent]]
    patterns: list[list[OracleMatch]]
    events: list[OracleEvent] = field(default_factory=list)

    def rows(self, head: str) -> list[tuple[int, int, tuple[Value, ...]]]:
        """The events of a head as (start, end, attributes)."""
        return [(event.s, event.e, tuple(event.fields.values())) for event in self.heads[head]]


def derive(
    program: Statements,
    events: Sequence[OracleEvent],
    tables: Mapping[str, Sequence[Mapping[str, Value]]] | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
) -> Derived:
    """Everything the program derives and matches in the whole history.

    `tables` are those that do not change; `attributes` the columns of streams and tables without a declaration.
    """
    program = replace(program, ruleset=without_or(program.ruleset or Ruleset()))
    columns = attributes_of(program, attributes or {})
    looked_up, program = with_derived_tables(program, table_rows(program.ruleset or Ruleset(), tables or {}), columns)
    rules = program.ruleset or Ruleset()
    program = replace(program, statements=tuple(with_tables(query, looked_up, columns) for query in program.statements))
    made = {*rules.heads, *(query.name for query in program.declared)}
    known = [event for event in events if event.stream not in made]
    horizon = max((event.e for event in known), default=0)
    facts = Facts(known, looked_up, columns, causes(rules, known))
    for stratum in strata(program):
        facts = replace(facts, events=[*facts.events, *worked_out(program, stratum, facts, horizon)])
    heads = {head: [event for event in facts.events if event.stream == head] for head in rules.heads}
    found = [matches(query, list(facts.events), horizon) for query in program.results]
    return Derived({head: in_order(heads[head]) for head in heads}, found, list(facts.events))


def without_or(rules: Ruleset) -> Ruleset:
    """One rule for each way to choose one side of each OR."""
    return replace(rules, rules=tuple(replace(rule, body=body) for rule in rules.rules for body in ways(rule.body)))


def ways(items: Sequence[Item]) -> list[tuple[Item, ...]]:
    each = [
        [way for choice in item.choices for way in ways(choice)] if isinstance(item, Alternatives) else [(item,)]
        for item in items
    ]
    return [tuple(chain.from_iterable(parts)) for parts in product(*each)]


def derived_between(derived: Derived, head: str, w0: float, w1: float) -> list[OracleEvent]:
    """What a run reports that advances from watermark w0 to w1: an event is known when its end has come."""
    return [event for event in derived.heads[head] if w0 < event.e <= w1]


def in_order(events: Sequence[OracleEvent]) -> list[OracleEvent]:
    """In the order of (end, start, attributes), nulls first."""
    return sorted(events, key=lambda event: (event.e, event.s, attribute_order(event)))


def attribute_order(event: OracleEvent) -> list[tuple[bool, Value]]:
    return [(value is not None, 0 if value is None else value) for value in event.fields.values()]


def with_tables(
    query: PatternQuery, tables: Mapping[str, Sequence[Row]], columns: Mapping[str, Sequence[str]]
) -> PatternQuery:
    """The query with the values of the tables in which its conditions look something up."""
    return change_expressions(query, lambda expr: with_values(expr, tables, columns))


def with_values(expr: Expr, tables: Mapping[str, Sequence[Row]], columns: Mapping[str, Sequence[str]]) -> Expr:
    def known(part: Expr) -> Expr | None:
        if not isinstance(part, InTable) or part.table not in tables:
            return None
        column = part.column or columns[part.table][0]
        return replace(part, values=[row.fields[column] for row in tables[part.table]])

    return rewrite_expression(expr, known)


def rule_with_tables(rule: Rule, tables: Mapping[str, Sequence[Row]], columns: Mapping[str, Sequence[str]]) -> Rule:
    body = (
        replace(item, expression=with_values(item.expression, tables, columns)) if isinstance(item, Condition) else item
        for item in rule.body
    )
    arguments = (replace(one, expression=with_values(one.expression, tables, columns)) for one in rule.arguments)
    return replace(rule, body=tuple(body), arguments=tuple(arguments))


# Derived tables


def with_derived_tables(
    program: Statements, tables: dict[str, list[Row]], columns: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[Row]], Statements]:
    """The tables with those that rules derive, and the program without these rules; round by round, stratum by
    stratum, until no row is new."""
    rules = program.ruleset or Ruleset()
    heads = table_heads(rules, tables.keys())
    own = [rule for rule in rules.rules if rule.head in heads]
    needs = {head: {need for rule in own if rule.head == head for need in needed(rule)} & heads for head in heads}
    for stratum in grouped(needs):
        found: dict[str, dict[tuple[Value, ...], None]] = {head: {} for head in stratum}
        for _ in range(MOST_ROUNDS):
            tables = {**tables, **{head: rows_of(head, found[head], columns[head]) for head in stratum}}
            before = {head: len(rows) for head, rows in found.items()}
            for rule in (rule_with_tables(rule, tables, columns) for rule in own if rule.head in stratum):
                for values, _ in Body(rule, Facts([], tables, columns)).heads(chosen):
                    found[rule.head][by_position(rule, columns[rule.head], values)] = None
            if before == {head: len(rows) for head, rows in found.items()}:
                break
        else:
            raise RecursionError(f"{sorted(stratum)} derive something new in {MOST_ROUNDS} rounds")
    others = tuple(rule_with_tables(rule, tables, columns) for rule in rules.rules if rule.head not in heads)
    return tables, replace(program, ruleset=replace(rules, rules=others)) if program.ruleset else program


def table_heads(rules: Ruleset, tables: Collection[str]) -> set[str]:
    """The heads that need no event, at any depth."""
    heads = {rule.head for rule in rules.rules} if tables else set()
    needs = {head: {need for rule in rules.rules if rule.head == head for need in needed(rule)} for head in heads}
    others: dict[str, set[str]] = {name: set() for name in set().union(*needs.values()) - heads}
    return {head for head in heads if reachable(head, needs | others) <= {*heads, *tables}}


def rows_of(table: str, found: Iterable[tuple[Value, ...]], columns: Sequence[str]) -> list[Row]:
    return [Row(table, number, dict(zip(columns, values, strict=True))) for number, values in enumerate(found)]


# What is declared


def attributes_of(program: Statements, given: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The attributes of every stream and table in declared order."""
    rules = program.ruleset or Ruleset()
    found: dict[str, Sequence[str]] = dict(given)
    for query in program.declared:
        found[query.name] = [name_of(column, number) for number, column in enumerate(query.returns, start=1)]
    for stream in rules.streams:
        if stream.stream is not None and stream.attributes is not None:
            found[stream.stream] = stream.attributes
    for fact in rules.facts:
        found.setdefault(fact.table, columns_of(fact, found))
    for table in rules.tables:
        found[table.name] = table.columns
    for rule in rules.rules:
        found[rule.head] = head_attributes(first_rule(rules, rule.head))
    return found


def first_rule(rules: Ruleset, head: str) -> Rule:
    return next(rule for rule in rules.rules if rule.head == head)


def head_attributes(rule: Rule) -> list[str]:
    """What the arguments of a head are called."""
    names: list[str] = []
    for number, argument in enumerate(rule.arguments, start=1):
        expression = argument.expression
        bare = expression.name if isinstance(expression, Field) and expression.variable is None else None
        own = argument.attribute or bare
        names.append(f"arg_{number}" if own is None or own in names else own)
    return names


def columns_of(fact: Fact, attributes: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if fact.columns is not None:
        return fact.columns
    return attributes.get(fact.table, [f"arg_{number}" for number in range(1, len(fact.values) + 1)])


def table_rows(rules: Ruleset, tables: Mapping[str, Sequence[Mapping[str, Value]]]) -> dict[str, list[Row]]:
    """The rows of the tables that were handed over, and those that the program holds."""
    declared = {table.name: table.columns for table in rules.tables}
    found: dict[str, list[dict[str, Value]]] = {name: [dict(row) for row in tables.get(name, ())] for name in declared}
    for fact in rules.facts:
        columns = columns_of(fact, declared)
        row = dict(zip(columns, (literal.value for literal in fact.values), strict=True))
        found.setdefault(fact.table, []).append(row)
    return {name: [Row(name, number, row) for number, row in enumerate(rows)] for name, rows in found.items()}


# Causality


def causes(rules: Ruleset, events: Sequence[OracleEvent]) -> frozenset[tuple[int, int]]:
    """The pairs of a cause and what it caused, at once or by way of others."""
    tracked = [(event, declared) for event in events if (declared := tracking(rules, event.stream)) is not None]
    pairs = {
        (one.id, other.id)
        for one, of_one in tracked
        for other, of_other in tracked
        if same([one.fields.get(of_one.identity), other.fields.get(of_other.parent)])
        and one.s <= other.s
        and one.e <= other.e
    }
    while True:
        further = {(cause, effect) for cause, between in pairs for other, effect in pairs if between == other}
        if further <= pairs:
            return frozenset(pairs)
        pairs |= further


def tracking(rules: Ruleset, stream: str) -> StreamDeclaration | None:
    """The declaration that says which columns identify an event of the stream and what caused it."""
    named = [one for one in rules.streams if one.identity is not None and one.stream in (stream, None)]
    return max(named, key=lambda one: one.stream is not None, default=None)


# Strata


def strata(program: Statements) -> list[set[str]]:
    """The heads and declared streams, those together that need each other, each after what it needs."""
    rules = program.ruleset or Ruleset()
    needs = {head: {need for rule in rules.rules if rule.head == head for need in needed(rule)} for head in rules.heads}
    needs |= {query.name: streams_in(query) for query in program.declared}
    return grouped({name: need & needs.keys() for name, need in needs.items()})


def grouped(needs: Mapping[str, set[str]]) -> list[set[str]]:
    """The names, those together that need each other, each after what it needs."""
    reached = {name: reachable(name, needs) for name in needs}
    together = {
        name: frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in needs
    }
    merged: dict[frozenset[str], set[frozenset[str]]] = {stratum: set() for stratum in together.values()}
    for name, need in needs.items():
        merged[together[name]] |= {together[one] for one in need} - {together[name]}
    return [set(stratum) for stratum in TopologicalSorter(merged).static_order()]


def needed(rule: Rule) -> set[str]:
    atoms = [item.atom if isinstance(item, While | Absent) else item for item in rule.body]
    values = [item.expression for item in rule.body if isinstance(item, Condition)]
    values += [argument.expression for argument in rule.arguments]
    lookups = {part.table for value in values for part in walk_expression(value) if isinstance(part, InTable)}
    return {atom.stream for atom in atoms if isinstance(atom, Atom)} | lookups


def streams_in(query: PatternQuery) -> set[str]:
    return {part.stream for _, part in walk(query.pattern) if isinstance(part, Event)}


def reachable(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set(), {name}
    while waiting:
        further = {need for one in waiting for need in needs[one]} - found
        found |= further
        waiting = further
    return found


# A stratum


def worked_out(program: Statements, stratum: set[str], facts: Facts, horizon: int) -> list[OracleEvent]:
    """The events of the stratum's streams."""
    rules = program.ruleset or Ruleset()
    for query in program.declared:
        if query.name in stratum:
            if stratum != {query.name} or query.name in streams_in(query):
                raise ValueError(f"a cycle through {query.name}")
            return as_events(query, matches(query, list(facts.events), horizon), list(facts.events))
    return fixpoint(rules, stratum, facts)


Key = tuple[str, int, int, tuple[Value, ...]]


def fixpoint(rules: Ruleset, stratum: set[str], facts: Facts) -> list[OracleEvent]:
    """Round by round, until no event is new and none has a further origin."""
    own = [rule for rule in rules.rules if rule.head in stratum]
    for rule in own:
        if any(isinstance(item, While) and item.atom.stream in stratum for item in rule.body):
            raise ValueError(f"{rule.head} depends on its own absence")
    ids = count(max((event.id for event in facts.events), default=-1) + 1)
    found: dict[Key, OracleEvent] = {}
    for _ in range(MOST_ROUNDS):
        known = replace(facts, events=[*facts.events, *found.values()])
        after = dict(found)
        for rule in own:
            names = head_attributes(first_rule(rules, rule.head))
            for values, choice in Body(rule, known).heads(chosen):
                interval = choice.interval
                key = rule.head, interval.s, interval.e, by_position(rule, names, values)
                before = after[key].origins if key in after else ()
                number = after[key].id if key in after else next(ids)
                origins = origins_of([*(before or ()), *choice.events])
                fields = dict(zip(names, key[3], strict=True))
                after[key] = OracleEvent(number, rule.head, interval.s, interval.e, fields, origins)
        if all(found.get(key) == event for key, event in after.items()):
            return list(found.values())
        found = after
    raise RecursionError(f"{sorted(stratum)} derive something new in {MOST_ROUNDS} rounds")


def by_position(rule: Rule, names: Sequence[str], values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The values in the order of the names: by name where the rule names all of them."""
    own = [argument.attribute for argument in rule.arguments]
    if set(own) != set(names):
        return values
    return tuple(values[own.index(name)] for name in names)
