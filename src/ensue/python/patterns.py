"""Patterns and queries in Python. A text is accepted wherever a pattern or a condition is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from ensue.check.gate import checked
from ensue.errors import Problem, QueryError
from ensue.nodes import patterns
from ensue.nodes.expressions import Binary, Expr
from ensue.nodes.uncertainty import Threshold, check_threshold
from ensue.python.values import ConditionLike, WindowLike, condition_node, window
from ensue.text.builder import in_brackets, of_the_one_event
from ensue.text.operands import count_problems, policy_problems, repeat_problems, suppress_problems
from ensue.text.parser import parse_pattern, parse_returns
from ensue.text.render import render_pattern, render_query

if TYPE_CHECKING:
    from ensue.plan.description import Explanation


# --- Queries: a pattern and its clauses

FieldNames = str | list[str] | tuple[str, ...]
Columns = ConditionLike | list[ConditionLike] | tuple[ConditionLike, ...]


@dataclass(frozen=True, repr=False)
class Query:
    """A query as a value. Each method returns a new query. `node` is the parsed form of its text.

    >>> from ensue.python.patterns import event, seq
    >>> query = seq("A a", "B b").where("a.x = b.x").within("1h").as_pattern("pair")
    >>> print(query.to_text())
    PATTERN pair
      SEQ(A a, B b)
      WHERE a.x = b.x
      WITHIN 1h
    """

    node: patterns.PatternQuery

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.to_text()}")'

    def where(self, *conditions: ConditionLike) -> Self:
        """Add conditions: `WHERE condition AND ...`."""
        where = self.node.where
        for condition in conditions:
            asked = of_the_one_event(condition_node(condition), self.node.pattern)
            where = _conjunction(where, asked)
        return self._with(replace(self.node, where=where))

    def partition_by(self, *fields: FieldNames) -> Self:
        """Add fields that are equal in all events of a match: `PARTITION BY user_id`. Lists are accepted too."""
        listed = (group if isinstance(group, list | tuple) else [group] for group in fields)
        names = tuple(chain.from_iterable(listed))
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f'partition_by takes names of fields, such as "user_id", not {name!r}')
        return self._with(replace(self.node, partition_by=self.node.partition_by + names))

    def within(self, size: WindowLike) -> Self:
        """Set the window of the whole match: `WITHIN 1h`. Replaces an earlier window."""
        return self._with(replace(self.node, within=window(size)))

    def returning(self, *columns: Columns, **named: ConditionLike) -> Self:
        """Add columns to the result: texts such as `"a.id AS id"`, values, or `name=value`. Texts are parsed.

        Lists and tuples of columns are accepted too.
        """
        returns = list(self.node.returns)
        listed = (group if isinstance(group, list | tuple) else [group] for group in columns)
        for column in chain.from_iterable(listed):
            returns += parse_returns(column) if isinstance(column, str) else [patterns.Return(condition_node(column))]
        returns += [patterns.Return(condition_node(column), alias) for alias, column in named.items()]
        return self._with(replace(self.node, returns=tuple(returns)))

    def match(self, policy: str) -> Self:
        """Set the policy that selects matches, in any case: `MATCH RECENT`."""
        if not isinstance(policy, str):
            raise TypeError(f'match takes the name of a policy, such as "recent", not {policy!r}')
        if problems := [*policy_problems(policy)]:
            raise QueryError(problems)
        return self._with(replace(self.node, policy=policy.upper()))

    def allowing_ties(self) -> Self:
        """Accept events at the same time in any order in SEQ: `ALLOWING TIES`."""
        return self._with(replace(self.node, allows_ties=True))

    def consume(self) -> Self:
        """Use each event in at most one match: `CONSUME`."""
        return self._with(replace(self.node, consume=True))

    def share(self) -> Self:
        """Allow matches to share events, which is the default: `SHARE`."""
        return self._with(replace(self.node, consume=False))

    def having(self, *, probability: float) -> Self:
        """Keep only matches with at least this probability: `HAVING PROBABILITY >= 0.9`.

        >>> from ensue.python.patterns import seq
        >>> print(seq("A a", "B b").within(5).having(probability=0.9).to_text())
        PATTERN SEQ(A a, B b)
          WITHIN 5
          HAVING PROBABILITY >= 0.9
        """
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise TypeError(f"having takes a probability, such as 0.9, not {probability!r}")
        threshold = Threshold(float(probability))
        if problems := [*check_threshold(threshold)]:
            raise QueryError(problems)
        return self._with(replace(self.node, having=threshold))

    def suppress(self, duration: WindowLike, *, per: Columns = ()) -> Self:
        """Report one match per burst: `SUPPRESS FOR 10m PER a.host`. `per` has texts or values.

        >>> from ensue.python.patterns import seq
        >>> print(seq("A a", "B b").within(5).suppress(10, per=["a.host", "b.port"]).to_text())
        PATTERN SEQ(A a, B b)
          WITHIN 5
          SUPPRESS FOR 10 PER a.host, b.port
        """
        given = per if isinstance(per, list | tuple) else [per]
        size = window(duration)
        if problems := [*suppress_problems(size)]:
            raise QueryError(problems)
        return self._with(replace(self.node, suppress=patterns.Suppression(size, tuple(map(condition_node, given)))))

    def as_pattern(self, name: str) -> Self:
        """Name the query: `PATTERN name ...`."""
        return self._with(replace(self.node, name=name, declares=False))

    def as_stream(self, name: str) -> Self:
        """Make the matches the events of a new stream: `STREAM name FROM PATTERN ...`."""
        return self._with(replace(self.node, name=name, declares=True))

    def to_text(self) -> str:
        """The query as text, which parses to an equal query."""
        return render_query(self.node)

    def explain(self, *, time: str = "t", end: str | None = None) -> str:
        """Describe how the query runs, stage by stage. `time` is the time column, `end` that of the ends of events."""
        from ensue.plan.description import PlainText

        return PlainText(self._explained(time, end).to_text())

    def _explained(self, time: str, end: str | None = None) -> Explanation:
        from ensue.plan.description import explain_without_data

        statements = checked(patterns.Statements((self.node,)))
        return explain_without_data(statements.statements[0], statements.source, time, end=end)

    def _repr_html_(self) -> str:
        """The query and its graph for a notebook, or only its text if the query has problems."""
        from ensue.plan.picture import as_html

        try:
            return as_html([self._explained("t")])
        except QueryError:
            return f"<pre>{escape(self.to_text())}</pre>"

    def _with(self, node: patterns.PatternQuery) -> Self:
        return replace(self, node=node)


def _conjunction(left: Expr | None, right: Expr) -> Expr:
    return right if left is None else Binary("and", left, right)


# --- Patterns

Count = int | np.integer[Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as a value; `node` is the parsed form of its text.

    `within`, `named`, `times`, `at_least`, `one_or_more`, `collect`, `first` and `last` return a pattern. The other
    methods turn the pattern into a query (see `query_of`).

    >>> ~event("B", "b").within(5)
    Pattern("NOT B b WITHIN 5")
    """

    node: patterns.Pattern

    def __invert__(self) -> Pattern:
        return Pattern(patterns.Not(self.node))

    def __repr__(self) -> str:
        return f'Pattern("{self.to_text()}")'

    def within(
        self, size: WindowLike, *, of: str | None = None, before: str | None = None, after: str | None = None
    ) -> Pattern:
        """The matches that fit into the window: `x WITHIN 1h`.

        With the name of another variable, those in a range around its event: `x WITHIN 1h OF a`, `BEFORE a` or
        `AFTER a`.

        >>> ~event("C", "c").within("7d", before="a")
        Pattern("NOT C c WITHIN 7d BEFORE a")
        """
        sides = {patterns.OF: of, patterns.BEFORE: before, patterns.AFTER: after}
        given = [patterns.Reach(side, name) for side, name in sides.items() if name is not None]
        if len(given) > 1:
            raise TypeError("within takes one of of=, before= and after=")
        return Pattern(patterns.Within(self.node, window(size), reach=given[0] if given else None))

    def named(self, name: str) -> Pattern:
        """The pattern with a name for its interval: `x AS name`."""
        return Pattern(patterns.NamedPattern(self.node, name))

    def times(self, least: Count, most: Count | None = None, *, every: bool = False) -> Pattern:
        """A repetition, each match before the next: `x{2}`, `x{2,4}`. With `every`, all matches: `x{2,4} ALL`."""
        return self._repeated(least, least if most is None else most, every)

    def at_least(self, least: Count) -> Pattern:
        """All matches in the scope of the item, at least `least` of them: `x{2,} ALL`."""
        return self._repeated(least, None, True)

    def one_or_more(self) -> Pattern:
        """All matches in the scope of the item, at least one: `x+`."""
        return self._repeated(1, None, True)

    def collect(self) -> Pattern:
        """All matches in the scope of the item, possibly none: `COLLECT x` or `x*`."""
        return self._repeated(0, None, True)

    def first(self) -> Pattern:
        """Only the earliest match for the same events of the other items: `FIRST x`."""
        return Pattern(patterns.Pick(self.node, latest=False))

    def last(self) -> Pattern:
        """Only the latest match for the same events of the other items: `LAST x`."""
        return Pattern(patterns.Pick(self.node, latest=True))

    def where(self, *conditions: ConditionLike) -> Query:
        """The query with these conditions."""
        return query_of(self).where(*conditions)

    def partition_by(self, *fields: FieldNames) -> Query:
        """The query partitioned by these fields."""
        return query_of(self).partition_by(*fields)

    def returning(self, *columns: Columns, **named: ConditionLike) -> Query:
        """The query with these columns."""
        return query_of(self).returning(*columns, **named)

    def having(self, *, probability: float) -> Query:
        """The query with a minimum probability of its matches: `HAVING PROBABILITY >= 0.9`."""
        return query_of(self).having(probability=probability)

    def suppress(self, duration: WindowLike, *, per: Columns = ()) -> Query:
        """The query with one reported match per burst: `SUPPRESS FOR 10m PER a.host`."""
        return query_of(self).suppress(duration, per=per)

    def match(self, policy: str) -> Query:
        """The query with a policy that selects matches: `MATCH RECENT`."""
        return query_of(self).match(policy)

    def allowing_ties(self) -> Query:
        """The query with SEQ accepting events at the same time in any order: `ALLOWING TIES`."""
        return query_of(self).allowing_ties()

    def consume(self) -> Query:
        """The query with each event used in at most one match: `CONSUME`."""
        return query_of(self).consume()

    def share(self) -> Query:
        """The query with matches that can share events, which is the default: `SHARE`."""
        return query_of(self).share()

    def as_pattern(self, name: str) -> Query:
        """The query with this name."""
        return query_of(self).as_pattern(name)

    def as_stream(self, name: str) -> Query:
        """The query with its matches as the events of a new stream: `STREAM name FROM PATTERN ...`."""
        return query_of(self).as_stream(name)

    def explain(self, *, time: str = "t", end: str | None = None) -> str:
        """Describe how the pattern runs as a query. `time` is the time column."""
        return query_of(self).explain(time=time, end=end)

    def to_text(self) -> str:
        """The pattern as text, which parses to an equal pattern."""
        return render_pattern(self.node)

    def _repeated(self, least: Count, most: Count | None, every: bool) -> Pattern:
        fewest, greatest = _count(least), None if most is None else _count(most)
        raise_any(repeat_problems(fewest, greatest, every))
        return Pattern(patterns.Repeat(self.node, fewest, greatest, every))


_ABSENCE = "; for the absence of an event, write ~event(...) instead of `not`"
PatternLike = Pattern | patterns.Pattern | str


def event(stream: str, variable: str | None = None, where: ConditionLike | None = None) -> Pattern:
    """An event of a stream: `Stream variable [where]`.

    >>> event("Transfer", "t", "amount > 1000")
    Pattern("Transfer t [amount > 1000]")
    """
    condition = None if where is None else in_brackets(condition_node(where), variable)
    return Pattern(patterns.Event(stream, variable, condition))


def seq(*items: PatternLike) -> Pattern:
    """Each item before the next: `SEQ(x, y)`.

    >>> seq(event("A", "a"), "NOT B b", event("C", "c"))
    Pattern("SEQ(A a, NOT B b, C c)")
    """
    return Pattern(patterns.Seq(_nodes("seq", items)))


def all_of(*items: PatternLike) -> Pattern:
    """All items, in any order: `AND(x, y)`.

    >>> all_of(event("A", "a"), event("B", "b"))
    Pattern("AND(A a, B b)")
    """
    return Pattern(patterns.And(_nodes("all_of", items)))


@overload
def any_of(number: Count, /, *items: PatternLike) -> Pattern: ...
@overload
def any_of(*items: PatternLike) -> Pattern: ...
def any_of(*items: PatternLike | Count) -> Pattern:
    """One of the items: `OR(x, y)`. With a number first, that many of the items: `ANY(2, x, y, z)`.

    >>> any_of(event("A", "a"), event("B", "b")), any_of(2, "A a", "B b", "C c")
    (Pattern("OR(A a, B b)"), Pattern("ANY(2, A a, B b, C c)"))
    """
    match items:
        case (int() | np.integer() as number, *rest) if not isinstance(number, bool):
            nodes = _nodes("any_of", tuple(rest))
            raise_any(count_problems("ANY", int(number), len(nodes)))
            return Pattern(patterns.Operation("ANY", nodes, count=int(number)))
    return Pattern(patterns.Or(_nodes("any_of", items)))


def absent(item: PatternLike) -> Pattern:
    """No match of the item: `NOT x`, the same as `~x`.

    >>> absent("B b")
    Pattern("NOT B b")
    """
    return Pattern(patterns.Not(pattern_node(item)))


def query_of(pattern: PatternLike) -> Query:
    """The query of a pattern. A WITHIN around the whole pattern becomes the WITHIN of the query, as in text.

    >>> query_of("SEQ(A a, B b) WITHIN 1h").to_text()
    'PATTERN SEQ(A a, B b)\\n  WITHIN 1h'
    """
    match pattern_node(pattern):
        case patterns.Within(item, size, reach=None):
            return Query(patterns.PatternQuery(item, within=size))
        case node:
            return Query(patterns.PatternQuery(node))


def pattern_node(pattern: object) -> patterns.Pattern:
    """The node of a pattern, or of the text of a pattern."""
    match pattern:
        case str():
            return parse_pattern(pattern)
        case Pattern():
            return pattern.node
        case _ if isinstance(pattern, patterns.Pattern):
            return pattern
    raise TypeError(f"expected a pattern, found {pattern!r}{_ABSENCE if isinstance(pattern, bool) else ''}")


def _count(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TypeError(f"a repetition takes integers, not {number!r}")
    return int(number)


def raise_any(problems: Iterable[Problem]) -> None:
    """Raise a `QueryError` if there are problems."""
    if found := [*problems]:
        raise QueryError(found)


def _nodes(function: str, items: tuple[object, ...]) -> tuple[patterns.Pattern, ...]:
    if not items:
        raise ValueError(f"{function} takes at least one item")
    for item in items:
        if isinstance(item, list | tuple):
            raise TypeError(f"expected a pattern, found {item!r}; pass the items separately, as in {function}(*items)")
    return tuple(map(pattern_node, items))
