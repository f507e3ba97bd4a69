"""Convert the parse tree to nodes.

The traversal has its own stack, so a query that nests too deeply raises a `QueryError`, not a `RecursionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from lark import Token, Tree

from ensue.errors import Problem, QueryError, Span
from ensue.nodes import patterns as pattern_nodes
from ensue.nodes.constraints import (
    Constraint,
    ConstraintStatement,
    Ends,
    EndsWithin,
    Exclusive,
    Implies,
    Prior,
    Require,
)
from ensue.nodes.expressions import (
    Duration,
    Expr,
    Field,
    Literal,
    columns_first,
    substitute_fields,
)
from ensue.nodes.names import AnyEvent
from ensue.nodes.states import StateStatement
from ensue.nodes.uncertainty import HierarchyStatement, Member, Threshold
from ensue.text.operands import (
    Argument,
    Quantity,
    party_problem,
    policy_problems,
    read_operation,
    repeat_problems,
    size_problem,
    suppress_problems,
)
from ensue.text.rule_builder import RuleRules, ruleset_of
from ensue.text.state_builder import StateRules

MAXIMAL_DEPTH = 200
"""The maximum nesting depth of a query. A chain `x AND y AND z` of n conditions has n levels."""

_FOLDED_BY_MINUS = ("integer", "real", "duration")


class Clause(NamedTuple):
    """One clause of a statement, before duplicates are detected."""

    attribute: str
    keyword: str
    value: Any
    span: Span


class Counts(NamedTuple):
    """How often a repetition repeats: `{least,most} ALL`."""

    least: int
    most: int | None
    every: bool
    span: Span


class Frame(NamedTuple):
    """A tree whose children are being built, the remaining children, the values so far, and the depth."""

    tree: Tree[Token]
    rest: Iterator[Any]
    values: list[Any]
    depth: int


class Builder(RuleRules, StateRules):
    """One method per rule of the grammar: it takes the values of the children and returns the value of the rule."""

    def build(self, root: Tree[Token]) -> Any:
        # `a = b = c` becomes a chain of ANDs.
        frames = [Frame(root, iter(root.children), [], len(root.children) // 2 if root.data == "chained" else 0)]
        while True:
            tree, rest, values, depth = frames[-1]
            for child in rest:
                if isinstance(child, Tree):
                    depth += len(child.children) // 2 if child.data == "chained" else child.data != "group"
                    if depth > MAXIMAL_DEPTH:
                        raise QueryError([too_deep(Span(child.meta.start_pos, child.meta.end_pos))], self.source)
                    frames.append(Frame(child, iter(child.children), [], depth))
                    break
                values.append(child)
            else:
                frames.pop()
                # A minus directly before a number is part of it: -9223372036854775808 fits into 64 bits.
                self.negative = bool(frames) and frames[-1].tree.data == "minus"
                self.folded = tree.data == "minus" and _kind(tree.children[1]) in _FOLDED_BY_MINUS
                # COLLECT before a repetition makes it one of all elements.
                self.collected = tree.data in ("repetition", "collect") and _is_collected(tree, frames)
                method: Callable[..., Any] = getattr(self, tree.data)
                value = method(Span(tree.meta.start_pos, tree.meta.end_pos), *values)
                if not frames:
                    return value
                frames[-1].values.append(value)

    # Statements and clauses

    def statements(self, span: Span, *statements: object) -> pattern_nodes.Statements:
        patterns = tuple(statement for statement in statements if isinstance(statement, pattern_nodes.PatternQuery))
        if len(patterns) == len(statements):
            return pattern_nodes.Statements(patterns, self.source)
        constraints = tuple(statement for statement in statements if isinstance(statement, ConstraintStatement))
        hierarchies = tuple(statement for statement in statements if isinstance(statement, HierarchyStatement))
        states = tuple(statement for statement in statements if isinstance(statement, StateStatement))
        selections = tuple(statement for statement in statements if isinstance(statement, pattern_nodes.Selection))
        return pattern_nodes.Statements(
            patterns, self.source, constraints, ruleset_of(statements), hierarchies, states, selections
        )

    def statement(self, span: Span, pattern: pattern_nodes.Pattern, *clauses: Clause) -> pattern_nodes.PatternQuery:
        return self.named_statement(span, None, pattern, *clauses)

    def named_statement(
        self, span: Span, name: str | None, pattern: pattern_nodes.Pattern, *clauses: Clause
    ) -> pattern_nodes.PatternQuery:
        values: dict[str, Any] = {}
        for clause in clauses:
            if clause.attribute in values:
                self._report(clause.span, _duplicate_clause(clause))
            values.setdefault(clause.attribute, clause.value)
        if "where" in values:
            values["where"] = of_the_one_event(values["where"], pattern)
        spans = {clause.attribute: clause.span for clause in reversed(clauses)}
        policy_span = spans.get("policy", spans.get("consume"))
        partition_span = spans.get("partition_by")
        return pattern_nodes.PatternQuery(
            pattern, name, span=span, policy_span=policy_span, partition_span=partition_span, **values
        )

    def stream_statement(
        self, span: Span, name: str, pattern: pattern_nodes.Pattern, *clauses: Clause
    ) -> pattern_nodes.PatternQuery:
        return replace(self.named_statement(span, name, pattern, *clauses), declares=True)

    def selection(
        self, span: Span, name: str, table: str, unnest: pattern_nodes.Unnest | None, *clauses: Clause
    ) -> pattern_nodes.Selection:
        read = self.named_statement(span, name, pattern_nodes.Event(table), *clauses)
        selection = pattern_nodes.Selection(name, table, read.where, read.returns, span, unnest)
        return pattern_nodes.of_columns(selection)

    def unnesting(self, span: Span, list_: Expr, element: str, index: str | None) -> pattern_nodes.Unnest:
        return pattern_nodes.Unnest(list_, element, index, span)

    def where(self, span: Span, condition: Expr) -> Clause:
        return Clause("where", "WHERE", condition, span)

    def partition(self, span: Span, *names: str) -> Clause:
        return Clause("partition_by", "PARTITION BY", names, span)

    def within_clause(self, span: Span, window: pattern_nodes.Window) -> Clause:
        return Clause("within", "WITHIN", window, span)

    def matching(self, span: Span, word: str) -> Clause:
        self.problems += policy_problems(word, span)
        return Clause("policy", "MATCH", word.upper(), span)

    def tying(self, span: Span) -> Clause:
        return Clause("allows_ties", "ALLOWING TIES", True, span)

    def consuming(self, span: Span) -> Clause:
        return Clause("consume", "CONSUME or SHARE", True, span)

    def sharing(self, span: Span) -> Clause:
        return Clause("consume", "CONSUME or SHARE", False, span)

    def having(self, span: Span, comparison: Token, value: Expr) -> Clause:
        least = value.value if isinstance(value, Literal) else None
        if comparison not in (">=", ">") or isinstance(least, bool) or not isinstance(least, int | float):
            self._report(
                span,
                Problem(
                    "probability-threshold",
                    "HAVING requires a lower bound for the probability of a match",
                    hint="for example `HAVING PROBABILITY >= 0.9`",
                ),
            )
            least = 0
        return Clause("having", "HAVING", Threshold(float(least), comparison == ">", span), span)

    def suppressing(self, span: Span, window: pattern_nodes.Window, per: tuple[Expr, ...] | None) -> Clause:
        self.problems += suppress_problems(window)
        return Clause("suppress", "SUPPRESS", pattern_nodes.Suppression(window, per or (), span), span)

    def per(self, span: Span, *expressions: Expr) -> tuple[Expr, ...]:
        return expressions

    def returning(self, span: Span, *columns: pattern_nodes.Return) -> Clause:
        return Clause("returns", "RETURN", columns, span)

    def returns(self, span: Span, *columns: pattern_nodes.Return) -> tuple[pattern_nodes.Return, ...]:
        return columns

    def returned(self, span: Span, expression: Expr, alias: str | None) -> pattern_nodes.Return:
        return pattern_nodes.Return(expression, alias, span)

    # Levels of detail

    def hierarchy(self, span: Span, *levels: Any) -> HierarchyStatement:
        *above, members = levels
        return HierarchyStatement(tuple(above), members, span)

    def members(self, span: Span, *members: Member) -> tuple[Member, ...]:
        return members

    def finer(self, span: Span, stream: str, share: float | None) -> Member:
        return Member(stream, share, span)

    def level_share(self, span: Span, minus: Token | None, number: Token) -> float:
        return -float(number) if minus else float(number)

    # Constraints

    def constraint(self, span: Span, constraint: Constraint, partition: Clause | None) -> ConstraintStatement:
        return ConstraintStatement(constraint, partition.value if partition else (), span)

    def prior(self, span: Span, *parties: pattern_nodes.Event) -> Constraint:
        match streams := self._streams("PRIOR", span, parties):
            case (earlier, later):
                return Prior(earlier, later, span)
        return Ends(streams, span)

    def exclusive(self, span: Span, *parties: pattern_nodes.Event) -> Exclusive:
        return Exclusive(self._streams("EXCLUSIVE", span, parties), span)

    def require(self, span: Span, *parties: pattern_nodes.Event) -> Constraint:
        match streams := self._streams("REQUIRE", span, parties):
            case (stream, required):
                return Require(stream, required, span)
        return Ends(streams, span)

    def ends(self, span: Span, *parties: pattern_nodes.Event) -> Ends:
        return Ends(self._streams("ENDS", span, parties), span)

    def ends_within(self, span: Span, window: pattern_nodes.Window) -> EndsWithin:
        return EndsWithin(window, span)

    def implies(
        self, span: Span, given: tuple[pattern_nodes.Event, ...], then: pattern_nodes.Event, negated: bool = False
    ) -> Implies:
        *streams, last = self._streams("IMPLIES", span, (*given, then))
        return Implies(tuple(streams), last, negated, span)

    def implies_not(self, span: Span, given: tuple[pattern_nodes.Event, ...], then: pattern_nodes.Event) -> Implies:
        return self.implies(span, given, then, negated=True)

    def given(self, span: Span, *parties: pattern_nodes.Event) -> tuple[pattern_nodes.Event, ...]:
        return parties

    def _streams(self, keyword: str, span: Span, parties: tuple[pattern_nodes.Event, ...]) -> tuple[str, ...]:
        """The streams of a constraint. A wrong number of streams is reported later, with the other problems."""
        streams = tuple(str(party.stream) for party in parties)
        problems = [problem for party in parties if (problem := party_problem(party))]
        if not problems and (problem := size_problem(keyword, streams, span)):
            problems = [problem]
        self.problems += problems
        return streams

    # Patterns

    stream = RuleRules.name

    def event(self, span: Span, stream: str, variable: str | None, predicate: Expr | None) -> pattern_nodes.Event:
        predicate = None if predicate is None else in_brackets(predicate, variable)
        return pattern_nodes.Event(stream, variable, predicate, span)

    party = event

    def any_event(
        self, span: Span, excluded: tuple[str, ...] | None, variable: str | None, predicate: Expr | None
    ) -> pattern_nodes.Event:
        predicate = None if predicate is None else in_brackets(predicate, variable)
        return pattern_nodes.Event(AnyEvent.but(excluded or ()), variable, predicate, span)

    def excluded(self, span: Span, *streams: str) -> tuple[str, ...]:
        return streams

    def seq(self, span: Span, *items: pattern_nodes.Pattern) -> pattern_nodes.Seq:
        return pattern_nodes.Seq(items, span)

    def all_of(self, span: Span, *items: pattern_nodes.Pattern) -> pattern_nodes.And:
        return pattern_nodes.And(items, span)

    def any_of(self, span: Span, *items: pattern_nodes.Pattern) -> pattern_nodes.Or:
        return pattern_nodes.Or(items, span)

    def absent(self, span: Span, item: pattern_nodes.Pattern) -> pattern_nodes.Not:
        return pattern_nodes.Not(item, span)

    def within(
        self,
        span: Span,
        item: pattern_nodes.Pattern,
        window: pattern_nodes.Window,
        reach: pattern_nodes.Reach | None,
    ) -> pattern_nodes.Within:
        return pattern_nodes.Within(item, window, span, reach=reach)

    def reach(self, span: Span, side: Token, name: str) -> pattern_nodes.Reach:
        return pattern_nodes.Reach(side.upper(), name, span)

    def named(self, span: Span, item: pattern_nodes.Pattern, name: str) -> pattern_nodes.NamedPattern:
        return pattern_nodes.NamedPattern(item, name, span)

    def operation(
        self, span: Span, operator: Token, first: tuple[Argument, ...], second: tuple[Argument, ...] | None
    ) -> pattern_nodes.Pattern:
        name = "".join(operator.upper().split())
        pattern, problems = read_operation(name, (first,) if second is None else (first, second), span)
        self.problems += problems
        return pattern

    def arguments(self, span: Span, *arguments: Argument) -> tuple[Argument, ...]:
        return arguments

    def quantity(
        self, span: Span, minus: Token | None, size: Duration | Token, events: Token | None = None
    ) -> Quantity:
        negative = minus is not None
        if isinstance(size, Duration):
            return Quantity(size, negative, span)
        if size.type == "DECIMAL":
            return Quantity(float(size), negative, span)
        count = self._integer(span, size)
        return Quantity(
            pattern_nodes.Ticks(count, span) if events is None else pattern_nodes.Events(count, span), negative, span
        )

    def repetition(self, span: Span, item: pattern_nodes.Pattern, counts: Counts) -> pattern_nodes.Repeat:
        every = counts.every or self.collected
        self.problems += repeat_problems(counts.least, counts.most, every, counts.span)
        return pattern_nodes.Repeat(item, counts.least, counts.most, every, span)

    def collect(self, span: Span, item: pattern_nodes.Pattern) -> pattern_nodes.Pattern:
        return _all_in_reach(item, span) if self.collected else pattern_nodes.Repeat(item, 0, None, True, span)

    def one_or_more(self, span: Span, sign: Token) -> Counts:
        return Counts(1, None, True, span)

    def any_number(self, span: Span, sign: Token) -> Counts:
        return Counts(0, None, True, span)

    def exactly(self, span: Span, count: Token, every: Token | None) -> Counts:
        return self.between_counts(span, count, count, every)

    def at_least(self, span: Span, least: Token, every: Token | None) -> Counts:
        return Counts(self._integer(span, least), None, every is not None, span)

    def between_counts(self, span: Span, least: Token, most: Token, every: Token | None) -> Counts:
        return Counts(self._integer(span, least), self._integer(span, most), every is not None, span)

    def first(self, span: Span, item: pattern_nodes.Pattern) -> pattern_nodes.Pick:
        return pattern_nodes.Pick(item, latest=False, span=span)

    def last(self, span: Span, item: pattern_nodes.Pattern) -> pattern_nodes.Pick:
        return pattern_nodes.Pick(item, latest=True, span=span)


def in_brackets(predicate: Expr, variable: str | None) -> Expr:
    """The condition of one event, where `x.y` is a field of column `x` unless `x` is the variable of the event."""
    return columns_first(predicate, lambda name: name != variable)


def of_the_one_event(where: Expr, pattern: pattern_nodes.Pattern) -> Expr:
    """Apply questions about a state that name no event to the only event that has a variable."""
    names = {
        node.variable
        for node in pattern_nodes.walk(pattern)
        if isinstance(node, pattern_nodes.Event) and node.variable is not None
    }
    if len(names) != 1:
        return where
    [only] = names

    def named(field: Field) -> Field:
        return replace(field, variable=only) if field.variable is None and field.asks_state else field

    return substitute_fields(where, named)


def too_deep(span: Span) -> Problem:
    """The problem of a query that exceeds the maximum nesting depth."""
    return Problem(
        "too-deep",
        f"the query has more than {MAXIMAL_DEPTH} levels of nesting",
        span,
        hint="write `field IN (...)` instead of a long chain of OR, or split the pattern into several queries",
    )


def _is_reach(part: Tree[Token] | Token) -> bool:
    """Whether this is `x WITHIN d OF a`."""
    return isinstance(part, Tree) and part.data == "within" and part.children[-1] is not None


def _is_collected(tree: Tree[Token], frames: list[Frame]) -> bool:
    """Whether COLLECT is before a repetition, which may have a reach: `COLLECT A a{2,} WITHIN 5 BEFORE b`."""
    if tree.data == "repetition":
        tree = next((frame.tree for frame in reversed(frames) if not _is_reach(frame.tree)), tree)
    if tree.data != "collect":
        return False
    item = tree.children[0]
    while isinstance(item, Tree) and _is_reach(item):
        item = item.children[0]
    return _kind(item) == "repetition"


def _all_in_reach(item: pattern_nodes.Pattern, span: Span) -> pattern_nodes.Repeat:
    """A collection; its reach applies to each element."""
    if isinstance(item, pattern_nodes.Within):
        inner = _all_in_reach(item.item, span)
        return replace(inner, item=replace(item, item=inner.item))
    assert isinstance(item, pattern_nodes.Repeat)
    return replace(item, span=span)


def _kind(part: Tree[Token] | Token) -> str:
    return part.data if isinstance(part, Tree) else part.type


def _duplicate_clause(clause: Clause) -> Problem:
    hint = "join the conditions with AND" if clause.attribute == "where" else f"keep one {clause.keyword}"
    return Problem("duplicate-clause", f"the query has more than one {clause.keyword} clause", hint=hint)
