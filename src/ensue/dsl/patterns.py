"""Patterns in Python. Wherever a pattern or a condition is expected, its text is accepted too."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.algebra.nodes import And, Event, Named, Not, Or, Pattern, PatternQuery, Seq, Within
from ensue.dsl.conditions import ConditionLike, condition_node
from ensue.dsl.literals import WindowLike, window
from ensue.dsl.query import Columns, FieldNames, Query
from ensue.lang.parser import parse_pattern
from ensue.lang.render import render_pattern


@dataclass(frozen=True, slots=True)
class PatternExpression:
    """A pattern as a value; `node` is what its text would parse to.

    `within` and `named` belong to the pattern; the other methods make it a query (see `query_of`).

    >>> ~event("B", "b").within(5)
    PatternExpression("NOT B b WITHIN 5")
    """

    node: Pattern

    def __invert__(self) -> PatternExpression:
        return PatternExpression(Not(self.node))

    def __repr__(self) -> str:
        return f'PatternExpression("{self.to_text()}")'

    def within(self, size: WindowLike) -> PatternExpression:
        """Those matches that fit into the window: `x WITHIN 1 hour`."""
        return PatternExpression(Within(self.node, window(size)))

    def named(self, name: str) -> PatternExpression:
        """The same pattern with a name for its interval: `x AS name`."""
        return PatternExpression(Named(self.node, name))

    def where(self, *conditions: ConditionLike) -> Query:
        """The query with these conditions."""
        return query_of(self).where(*conditions)

    def partition_by(self, *fields: FieldNames) -> Query:
        """The query partitioned by these fields."""
        return query_of(self).partition_by(*fields)

    def returning(self, *columns: Columns, **named: ConditionLike) -> Query:
        """The query with these columns."""
        return query_of(self).returning(*columns, **named)

    def as_pattern(self, name: str) -> Query:
        """The query under this name."""
        return query_of(self).as_pattern(name)

    def explain(self, *, time: str = "t") -> str:
        """What the pattern means as a query of its own, and how it will run; `time` names the time column."""
        return query_of(self).explain(time=time)

    def to_text(self) -> str:
        """The pattern as text; it parses back to an equal pattern."""
        return render_pattern(self.node)


_ABSENCE = "; `not` asks Python for a truth value: write ~event(...) for the absence of an event"
PatternLike = PatternExpression | Pattern | str


def event(stream: str, variable: str | None = None, where: ConditionLike | None = None) -> PatternExpression:
    """An event of a stream: `Stream variable [where]`.

    >>> event("Transfer", "t", "amount > 1000")
    PatternExpression("Transfer t [amount > 1000]")
    """
    return PatternExpression(Event(stream, variable, None if where is None else condition_node(where)))


def seq(*items: PatternLike) -> PatternExpression:
    """Each item before the next: `SEQ(x, y)`.

    >>> seq(event("A", "a"), "NOT B b", event("C", "c"))
    PatternExpression("SEQ(A a, NOT B b, C c)")
    """
    return PatternExpression(Seq(_nodes("seq", items)))


def all_of(*items: PatternLike) -> PatternExpression:
    """Every item, in any order: `AND(x, y)`.

    >>> all_of(event("A", "a"), event("B", "b"))
    PatternExpression("AND(A a, B b)")
    """
    return PatternExpression(And(_nodes("all_of", items)))


def any_of(*items: PatternLike) -> PatternExpression:
    """Any one of the items: `OR(x, y)`.

    >>> any_of(event("A", "a"), event("B", "b"))
    PatternExpression("OR(A a, B b)")
    """
    return PatternExpression(Or(_nodes("any_of", items)))


def absent(item: PatternLike) -> PatternExpression:
    """No match of the item: `NOT x`, the same as `~x`.

    >>> absent("B b")
    PatternExpression("NOT B b")
    """
    return PatternExpression(Not(pattern_node(item)))


def query_of(pattern: PatternLike) -> Query:
    """The query of a pattern. A WITHIN around the whole pattern becomes the WITHIN of the query, as in text.

    >>> query_of("SEQ(A a, B b) WITHIN 1 hour").to_text()
    'PATTERN SEQ(A a, B b)\\n  WITHIN 1 hour'
    """
    match pattern_node(pattern):
        case Within(item, size):
            return Query(PatternQuery(item, within=size))
        case node:
            return Query(PatternQuery(node))


def pattern_node(pattern: PatternLike) -> Pattern:
    """The pattern of an expression, of a pattern itself, or of a text."""
    match pattern:
        case str():
            return parse_pattern(pattern)
        case PatternExpression():
            return pattern.node
        case _ if isinstance(pattern, Pattern):
            return pattern
    raise TypeError(f"a pattern is expected, not {pattern!r}{_ABSENCE if isinstance(pattern, bool) else ''}")


def _nodes(function: str, items: tuple[PatternLike, ...]) -> tuple[Pattern, ...]:
    if not items:
        raise ValueError(f"{function} has at least one item")
    for item in items:
        if isinstance(item, list | tuple):
            raise TypeError(f"a pattern is expected, not {item!r}; pass the items one by one, as in {function}(*items)")
    return tuple(map(pattern_node, items))
