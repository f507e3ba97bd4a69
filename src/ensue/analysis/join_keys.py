"""Keys of different names: the fields by whose equality all events of each match belong together.

In `SEQ(Login a, Transfer b) WHERE a.user = b.sender`, the events of a match have the same value in `user` and `sender`.
Spark sends events with equal values to one task, so it finds the same matches as one task with all events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from ensue.analysis.catalog import TIME_NAMES
from ensue.analysis.declarations import declarations, is_about_one
from ensue.analysis.scopes import counts_events
from ensue.nodes.expressions import Binary, Field, conjuncts
from ensue.nodes.names import Name, Stream
from ensue.nodes.patterns import (
    And,
    Event,
    NamedPattern,
    Not,
    Pattern,
    PatternQuery,
    RelatedItems,
    Repeat,
    Seq,
    Within,
    column_name,
    walk,
)

FieldOf = Mapping[Name, str]
"""The key field of each variable of a statement."""

Links = Mapping[tuple[Name, str], tuple[tuple[Name, str], ...]]
"""For each field of a variable, the fields of other variables that it equals."""

MOST_CHOICES = 256
"""How many combinations of keys of connected statements are tried."""


@dataclass(frozen=True, slots=True)
class JoinKey:
    """The key fields of the events of connected statements, one mapping for each statement in their order.

    All events of a match, including the forbidden and the listed ones, are equal in their key fields.
    """

    queries: tuple[PatternQuery, ...]
    fields: tuple[FieldOf, ...]

    @property
    def by_stream(self) -> dict[Stream, tuple[str, ...]]:
        """The key fields of the events of each input stream."""
        declared = declarations(self.queries)
        found: dict[Stream, dict[str, None]] = {}
        for query, own in zip(self.queries, self.fields, strict=True):
            for variable, stream in _variables(query.pattern):
                if stream not in declared and variable in own:
                    found.setdefault(stream, {})[own[variable]] = None
        return {stream: tuple(names) for stream, names in found.items()}

    @property
    def copies_rows(self) -> bool:
        """Whether a row may have two keys, one for each role that it can have."""
        return any(len(names) > 1 for names in self.by_stream.values())

    @property
    def keeps_nulls(self) -> bool:
        """Whether events without a key count: a declared stream that uses each event alone also has those."""
        return any(key and is_about_one(query) for query, key in zip(self.queries, self.fields, strict=True))

    @property
    def words(self) -> str:
        """The equality in the longest statement, as the user could write it."""
        own = max(self.fields, key=len)
        return " = ".join(f"{variable}.{name}" for variable, name in own.items())


@dataclass(frozen=True, slots=True)
class NoJoinKey:
    """Why events cannot be partitioned by the equalities of connected statements."""

    reason: str


def join_key(queries: Sequence[PatternQuery]) -> JoinKey | NoJoinKey:
    """The key fields of connected statements, none of which has a common PARTITION BY.

    >>> from ensue.text.parser import parse_statements
    >>> text = "PATTERN SEQ(Login a, NOT Logout n, Transfer b) WHERE a.user = b.sender AND n.who = a.user"
    >>> join_key(parse_statements(text).statements).words
    'a.user = b.sender = n.who'
    >>> join_key(parse_statements("PATTERN SEQ(Login a, Transfer b) WHERE a.user > b.sender").statements).reason
    'no equality connects `a` and `b`'
    """
    declared = declarations(queries)
    choices: list[tuple[FieldOf, ...]] = []
    for query in queries:
        reason = _obstacle(query)
        found = () if reason else tuple(_keys_of(query, declared))
        if not found:
            return NoJoinKey(reason or _missing_link(query))
        choices.append(found)
    for fields in islice(product(*choices), MOST_CHOICES):
        if _is_kept(queries, fields):
            return JoinKey(tuple(queries), fields)
    return NoJoinKey("they share no key that their streams keep")


def _obstacle(query: PatternQuery) -> str:
    """Why the events of a query depend on others than those with an equal key; empty if they do not."""
    if counts_events(query):
        return "the query uses the positions of events"
    if query.policy is not None or query.consume:
        return "the policy chooses among all events"
    if query.suppress is not None:
        return "SUPPRESS depends on the matches before"
    if query.having is not None or (query.name is not None and not isinstance(query.name, str)):
        return "the query chooses among all matches"
    for part in walk(query.pattern):
        if isinstance(part, RelatedItems):
            if part.rival is not None or part.moments is not None or any(timer.repeated for timer in part.timers):
                return "the query has repeated moments"
        elif not isinstance(part, Event | Seq | And | Not | Within | NamedPattern | Repeat):
            return "only SEQ, AND, NOT, WITHIN and repetitions are grouped by an equality"
        elif isinstance(part, Event) and not isinstance(part.stream, str):
            return "an item accepts events of several streams"
        elif isinstance(part, Event) and part.variable is None and len(_events(query.pattern)) > 1:
            return f"`{part.stream}` has no variable, so no equality connects it"
    return ""


def _missing_link(query: PatternQuery) -> str:
    """The first item that no equality connects with those before."""
    names = [variable for variable, _ in _variables(query.pattern)]
    if len(names) < 2:
        return "the query has only one event"
    apart = _apart(names, _links(query))
    if apart:
        return f"no equality connects `{names[0]}` and `{apart[0]}`"
    positive = _positive(query.pattern)
    if not positive or _apart(positive, _links(query)):
        return "its equalities connect items through a NOT or a list, which may have no event"
    return "its equalities compare several keys"


def _apart(names: Sequence[Name], links: Links) -> list[Name]:
    """The variables that equalities do not connect with the first one, whatever their fields."""
    near = {name: {other for key, ends in links.items() if key[0] == name for other, _ in ends} for name in names}
    reached = [*names[:1]]
    for name in reached:
        reached += [other for other in names if other in near[name] and other not in reached]
    return [name for name in names if name not in reached]


# --- the keys of one statement


def _keys_of(query: PatternQuery, declared: Collection[Stream]) -> Iterator[FieldOf]:
    """The ways to choose one field of each variable so that all are equal in each match."""
    events = _events(query.pattern)
    variables = [variable for variable, _ in _variables(query.pattern)]
    if query.partition_by:
        for key in query.partition_by:
            if len(variables) == len(events) and key not in TIME_NAMES:
                yield dict.fromkeys(variables, key)
        return
    if is_about_one(query):
        # Each event is used alone, so any of its fields is a key. A result needs none, if its event is derived.
        if events[0].stream in declared and not query.declares:
            yield {}
        for column in query.returns if query.declares else ():
            match column.expression:
                case Field(variable, name) if variable is not None:
                    yield {variable: name}
        return
    links = _links(query)
    positive = _positive(query.pattern)
    for first in dict.fromkeys(field for variable, field in links if positive and variable == positive[0]):
        own = _spread({positive[0]: first}, set(positive), links)
        if own.keys() >= set(positive) and _reaches_items(query.pattern, own, links):
            yield own


def _links(query: PatternQuery) -> Links:
    """The equalities between fields of two variables that are conditions of the whole query."""
    found: dict[tuple[Name, str], list[tuple[Name, str]]] = {}
    for condition in conjuncts(query.where):
        match condition:
            case Binary("=", Field(x, left) as one, Field(y, right) as other) if x is not None and y is not None:
                is_read = not one.asks_state and not other.asks_state
                if x != y and is_read and left not in TIME_NAMES and right not in TIME_NAMES:
                    found.setdefault((x, left), []).append((y, right))
                    found.setdefault((y, right), []).append((x, left))
    return {key: tuple(dict.fromkeys(ends)) for key, ends in found.items()}


def _spread(known: FieldOf, allowed: Collection[Name], links: Links) -> dict[Name, str]:
    """The known fields and those of the allowed variables that equal them. Each variable keeps its first field."""
    key = dict(known)
    waiting = [*known.items()]
    seen = set(waiting)
    for place in waiting:
        for other in links.get(place, ()):
            if other[0] in allowed and other not in seen and other[0] not in known:
                seen.add(other)
                waiting.append(other)
                key.setdefault(*other)
    return key


def _reaches_items(pattern: Pattern, key: dict[Name, str], links: Links) -> bool:
    """Adds the fields of the variables in NOTs and lists to the key; False if one of them has none.

    A list may be empty, and a NOT has no event in a match, so neither connects the items around it.
    """
    for item in _inner_items(pattern):
        own = _positive(item)
        inner = _spread(key, set(own), links)
        if not inner.keys() >= set(own) or not _reaches_items(item, inner, links):
            return False
        key.update(inner)
    return True


def _positive(pattern: Pattern) -> list[Name]:
    """The variables of the events that every match of a pattern has."""
    inner = {id(event) for item in _inner_items(pattern) for event in _events(item)}
    return [e.variable for e in _events(pattern) if id(e) not in inner and e.variable is not None]


def _inner_items(pattern: Pattern) -> Iterator[Pattern]:
    """The outermost forbidden and repeated items."""
    if isinstance(pattern, Not | Repeat):
        yield pattern.item
    elif isinstance(pattern, Seq | And | RelatedItems):
        for item in pattern.items:
            yield from _inner_items(item)
    elif isinstance(pattern, Within | NamedPattern):
        yield from _inner_items(pattern.item)


def _variables(pattern: Pattern) -> list[tuple[Name, Stream]]:
    return [(event.variable, event.stream) for event in _events(pattern) if event.variable is not None]


def _events(pattern: Pattern) -> list[Event]:
    return [node for node in walk(pattern) if isinstance(node, Event)]


# --- the keys of connected statements


def _is_kept(queries: Sequence[PatternQuery], fields: Sequence[FieldOf]) -> bool:
    """Whether events of declared streams have the key of their matches in the field in which they are joined.

    Each stream needs one column with the key, because equal events of rules are one event.
    """
    kept: dict[Stream, set[str]] = {}
    for query, key in zip(queries, fields, strict=True):
        if query.declares and query.name is not None:
            own = _returned(query, key)
            kept[query.name] = kept.get(query.name, own) & own
    return all(kept.values()) and all(
        key[variable] in kept[stream]
        for query, key in zip(queries, fields, strict=True)
        for variable, stream in _variables(query.pattern)
        if stream in kept and variable in key
    )


def _returned(query: PatternQuery, key: FieldOf) -> set[str]:
    """The columns in which a statement returns its key."""
    return {
        column_name(column, place)
        for place, column in enumerate(query.returns)
        if isinstance(column.expression, Field)
        and column.expression.variable is not None
        and key.get(column.expression.variable) == column.expression.name
    }
