"""The requirements of a query on its matches, the query without some of them, and the parts of a graph that can be
bound while the rest is pending.

A requirement is a clause of the query that a choice of events can fail separately: docs/semantics.md, section 8, "What
a match lacks". The clauses of a NOT or a collection about its own events are part of that NOT or collection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

from ensue.analysis.choices import names_in
from ensue.analysis.scopes import homes_of, is_aside, list_groups, without_names
from ensue.check.query import home_of
from ensue.errors import LimitError, Source, Span
from ensue.graph.bounds import end_of, start_of
from ensue.graph.graphs import Absence, Extent, Graph, Moment, Scope
from ensue.lower.operators import as_written
from ensue.lower.phases import spelled_out
from ensue.nodes import patterns
from ensue.nodes.expressions import Binary, Duration, Expr, Same, conjuncts, variables_of
from ensue.nodes.names import Name, Stream, WithRow, called
from ensue.text.render import render_expression, render_pattern, render_window, render_within

Path = tuple[int, ...]
"""The path to a part of a pattern: the number of the child at each level."""

PREDICATE, KEY, ORDER, RELATION, WINDOW, CONDITION, COLLECTION, ABSENCE = (
    "predicate",
    "key",
    "order",
    "relation",
    "window",
    "condition",
    "collection",
    "absence",
)
KINDS = (PREDICATE, KEY, ORDER, RELATION, WINDOW, CONDITION, COLLECTION, ABSENCE)
"""The kinds in the order in which a choice of events is checked."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A relation between parts of a match: `left - right <= window`, each the start ("s") or end ("e") of variables.

    With `apart`, it is `right - left >= window`.
    """

    left: tuple[Name, ...]
    left_side: str
    right: tuple[Name, ...]
    right_side: str
    window: patterns.Window | None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a query. `path` leads to its part of the pattern; `number` distinguishes several in one part.

    `left` and `right` are the variables that an order compares, or that a window or an absence is about; `compared` is
    what a relation compares. A collection has at least `least` and at most `most` elements. With `repeated`, it applies
    to every round of a repetition.
    """

    kind: str
    text: str
    path: Path = ()
    number: int = 0
    left: tuple[Name, ...] = ()
    right: tuple[Name, ...] = ()
    window: patterns.Window | None = None
    condition: Expr | None = None
    compared: tuple[Comparison, ...] = ()
    least: int = 0
    most: int | None = None
    repeated: bool = False
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A query prepared for analysis: every event named, operators expanded, no policy, all clauses in the pattern.

    `chosen` is the policy, as text, that chose among its matches, if any.
    """

    query: patterns.PatternQuery
    requirements: tuple[Requirement, ...]
    chosen: tuple[str, ...]
    source: Source | None = None

    def quoted(self, span: Span | None) -> str:
        """A part of the query text, in one line; empty if there is none."""
        return "" if self.source is None else self.source.quote(span)

    def word(self, name: Name) -> str:
        """A variable as the user would call it: by its name, or by its stream if it has none."""
        return called(name)

    def written(self, pattern: patterns.Pattern) -> str:
        """A part of the query as the user would write it."""
        return render_pattern(as_written(without_names(pattern)))

    def said(self, pattern: patterns.Pattern) -> str:
        """A part of the query in its original words: those of a rule, or the written pattern."""
        return (self.quoted(pattern.span) if self.query.rule is not None else "") or self.written(pattern)

    def without(self, dropped: Collection[Requirement]) -> patterns.PatternQuery:
        """The query without some requirements."""
        paths: dict[Path, list[Requirement]] = {}
        for requirement in dropped:
            paths.setdefault(requirement.path, []).append(requirement)
        conditions = [requirement.condition for requirement in dropped if requirement.kind == CONDITION]
        kept = [part for part in conjuncts(self.query.where) if not any(part is condition for condition in conditions)]
        keyed = all(requirement.kind != KEY for requirement in dropped)
        return replace(
            self.query,
            pattern=_loosened(self.query.pattern, (), paths, self.query.rule is not None),
            where=reduce(lambda left, right: Binary("and", left, right), kept) if kept else None,
            partition_by=self.query.partition_by if keyed else (),
        )

    def within(self, requirement: Requirement, factor: int) -> patterns.PatternQuery:
        """The query with a window multiplied by this factor; the scopes that it closes stay the same."""
        assert requirement.window is not None
        longer = _times(requirement.window, factor)

        def widened(part: patterns.Pattern) -> patterns.Pattern:
            assert isinstance(part, patterns.Within)
            return replace(part, loose=True, item=patterns.Within(part.item, longer))

        return replace(self.query, pattern=_changed(self.query.pattern, requirement.path, widened))


def column_in_words(column: str, stream: Stream | None, lookups: Iterable[patterns.Lookup]) -> str:
    """A column of a stream as text; a column of a table's row with the table."""
    rows = lookups if isinstance(stream, WithRow) else ()
    named = (f"{row.table}.{attribute}" for row in rows for attribute, own in row.columns if own == column)
    return next(named, column)


def what_chooses(query: patterns.PatternQuery) -> tuple[str, ...]:
    """The policy that chooses among the matches of a query, as text."""
    chosen = [f"MATCH {query.policy}"] if query.policy not in (None, "UNRESTRICTED") else []
    chosen += ["CONSUME"] if query.consume else []
    chosen += [
        "LAST" if part.latest else "FIRST" for part in patterns.walk(query.pattern) if isinstance(part, patterns.Pick)
    ]
    chosen += ["SUPPRESS"] if query.suppress is not None else []
    return tuple(dict.fromkeys(chosen))


def question_of(query: patterns.PatternQuery, source: Source | None = None) -> Question:
    """Prepares a checked query and lists its requirements."""
    pattern = patterns.rewrite(query.pattern, lambda part: part.item if isinstance(part, patterns.Pick) else part)
    plain = replace(query, pattern=pattern, policy=None, consume=None, suppress=None, returns=())
    question = Question(spelled_out(plain), (), what_chooses(query), source)
    found = [
        *_requirements(question, question.query.pattern, (), frozenset()),
        *_key(question.query),
        *_conditions(question),
    ]
    found.sort(key=lambda requirement: KINDS.index(requirement.kind))
    return replace(question, requirements=tuple(found))


def _key(query: patterns.PatternQuery) -> Iterator[Requirement]:
    if query.partition_by:
        yield Requirement(KEY, f"PARTITION BY {', '.join(query.partition_by)}", span=query.partition_span)


def _conditions(question: Question) -> Iterator[Requirement]:
    """The conjuncts of WHERE; those of a rule in its original words, if possible."""
    query = question.query
    homes, groups = homes_of(query.pattern), list_groups(query.pattern)
    for part in conjuncts(query.where):
        home = None if isinstance(part, Same) else home_of(part, homes, groups)
        if home is None or home.parent is None:
            quoted = question.quoted(part.span) if query.rule is not None and part.span != query.span else ""
            yield Requirement(CONDITION, quoted or render_expression(part), condition=part, span=part.span)


AROUND = frozenset[Name]
REPEATED, RELATED = "repeated", "related"


def _requirements(question: Question, pattern: patterns.Pattern, path: Path, around: AROUND) -> Iterator[Requirement]:
    """The requirements of a part and of everything below it, without those inside NOTs and collections."""
    repeated = REPEATED in around
    match pattern:
        case patterns.Event(predicate=predicate) if predicate is not None:
            assert pattern.variable is not None
            text = question.written(pattern)
            yield Requirement(PREDICATE, text, path, left=(pattern.variable,), repeated=repeated, span=pattern.span)
        case patterns.Seq():
            if RELATED not in around or not any(map(is_aside, pattern.items)):
                yield from _orders(question, pattern, path, repeated)
        case patterns.RelatedItems():
            yield from _relations(question, pattern, path, repeated)
        case patterns.Within(reach=None):
            yield _window(question, pattern, path, repeated)
        case patterns.Within():
            yield _reach(question, pattern, path, repeated)
        case patterns.Not():
            text = question.said(pattern)
            yield Requirement(ABSENCE, text, path, left=names_in(pattern.item), repeated=repeated, span=pattern.span)
        case patterns.Repeat(every=True, least=least, most=most) if least > 0 or most is not None:
            text, names = question.said(pattern), names_in(pattern.item)
            counted = Requirement(COLLECTION, text, path, left=names, least=least, most=most, span=pattern.span)
            yield replace(counted, repeated=repeated)
        case _:
            pass
    if is_aside(pattern):
        return
    inside = around | ({REPEATED} if isinstance(pattern, patterns.Repeat) else set())
    inside |= {RELATED} if isinstance(pattern, patterns.RelatedItems) else set()
    for place, child in enumerate(patterns.children(pattern)):
        yield from _requirements(question, child, (*path, place), inside)


def _orders(question: Question, pattern: patterns.Seq, path: Path, repeated: bool) -> Iterator[Requirement]:
    positive = [item for item in pattern.items if not is_aside(item)]
    for gap, (one, other) in enumerate(pairwise(positive)):
        left, right = _bound_names(one), _bound_names(other)
        text = f"SEQ: {_words(question, left)} before {_words(question, right)}"
        yield Requirement(ORDER, text, path, gap, left, right, repeated=repeated, span=pattern.span)


def _relations(question: Question, pattern: patterns.RelatedItems, path: Path, repeated: bool) -> Iterator[Requirement]:
    """The relations between the items of the match, grouped into requirements."""
    for number, group in enumerate(_relation_groups(pattern, question.query.rule is not None)):
        first = pattern.relations[group[0]]
        places = [place for place in (first.left.item, first.right.item) if place >= 0]
        sides = [_words(question, _bound_names(pattern.items[place])) for place in places]
        text = question.quoted(first.span) or f"{pattern.operator}: {' and '.join(dict.fromkeys(sides))}"
        compared = tuple(_compared(pattern, pattern.relations[place]) for place in group)
        known = tuple(entry for entry in compared if entry is not None)
        yield Requirement(RELATION, text, path, number, compared=known, repeated=repeated, span=pattern.span)


def _compared(pattern: patterns.RelatedItems, relation: patterns.Relation) -> Comparison | None:
    """What a relation between events compares; None if it is about a moment or about positions."""
    left, right = relation.left, relation.right
    if min(left.item, right.item) < 0 or relation.adjacent or {left.side, right.side} - {"s", "e"}:
        return None
    names = [_bound_names(pattern.items[place.item]) for place in (left, right)]
    return Comparison(names[0], left.side, names[1], right.side, relation.window, relation.apart)


def _relation_groups(pattern: patterns.RelatedItems, by_rule: bool) -> list[tuple[int, ...]]:
    """The relations of a part that form one requirement; those about NOTs and collections are left out.

    An operator requires all of them at once, a rule those of each of its items.
    """
    groups: dict[object, list[int]] = {}
    for number, relation in enumerate(pattern.relations):
        places = (relation.left.item, relation.right.item)
        if not any(place >= 0 and is_aside(pattern.items[place]) for place in places):
            key = (relation.span or frozenset(places)) if by_rule else None
            groups.setdefault(key, []).append(number)
    return [tuple(group) for group in groups.values()]


def _window(question: Question, pattern: patterns.Within, path: Path, repeated: bool) -> Requirement:
    names = _bound_names(pattern.item)
    of_all = set(names) == set(_bound_names(question.query.pattern))
    text = f"WITHIN {render_window(pattern.window)}" + ("" if of_all else f" of {_words(question, names)}")
    span = pattern.window.span or pattern.span
    return Requirement(WINDOW, text, path, left=names, window=pattern.window, repeated=repeated, span=span)


def _reach(question: Question, pattern: patterns.Within, path: Path, repeated: bool) -> Requirement:
    """A window around another event, as differences between the ends of the two."""
    reach, names = pattern.reach, _bound_names(pattern.item)
    assert reach is not None
    around, window = (reach.anchor,), pattern.window
    lower = Comparison(around, "s", names, "s", window), Comparison(around, "e", names, "s", None)
    upper = Comparison(names, "e", around, "e", window), Comparison(names, "e", around, "s", None)
    compared = lower[reach.side == patterns.AFTER], upper[reach.side == patterns.BEFORE]
    text = f"{render_within(pattern)}: {_words(question, names)}"
    span = window.span or pattern.span
    return Requirement(RELATION, text, path, compared=compared, repeated=repeated, span=span)


def _words(question: Question, names: tuple[Name, ...]) -> str:
    return ", ".join(dict.fromkeys(question.word(name) for name in names))


def _bound_names(pattern: patterns.Pattern) -> tuple[Name, ...]:
    """The variables below a part that a match binds."""
    if isinstance(pattern, patterns.Event):
        return (pattern.variable,) if pattern.variable is not None else ()
    if is_aside(pattern):
        return ()
    return tuple(dict.fromkeys(name for child in patterns.children(pattern) for name in _bound_names(child)))


def _loosened(
    pattern: patterns.Pattern, path: Path, dropped: dict[Path, list[Requirement]], by_rule: bool
) -> patterns.Pattern:
    below = tuple(
        _loosened(child, (*path, place), dropped, by_rule) for place, child in enumerate(patterns.children(pattern))
    )
    pattern = patterns.with_children(pattern, below)
    own = dropped.get(path, [])
    kinds, numbers = {requirement.kind for requirement in own}, {requirement.number for requirement in own}
    match pattern:
        case patterns.Event() if PREDICATE in kinds:
            return replace(pattern, predicate=None)
        case patterns.Seq() if ORDER in kinds:
            return replace(pattern, loose=frozenset(numbers))
        case patterns.Within() | patterns.Not() if kinds & {WINDOW, ABSENCE, RELATION}:
            return replace(pattern, loose=True)
        case patterns.Repeat() if COLLECTION in kinds:
            return replace(pattern, least=0, most=None)
        case patterns.RelatedItems() if RELATION in kinds:
            return _unrelated(pattern, numbers, by_rule)
    return pattern


def _unrelated(pattern: patterns.RelatedItems, numbers: Collection[int], by_rule: bool) -> patterns.RelatedItems:
    """The part without some groups of its relations, so that any of its items may be the first or the last."""
    groups = _relation_groups(pattern, by_rule)
    dropped = {place for number in numbers for place in groups[number]}
    kept = tuple(relation for place, relation in enumerate(pattern.relations) if place not in dropped)
    positive = tuple(place for place, item in enumerate(pattern.items) if not is_aside(item))
    starts, ends = ((*positive, *(place for place in places if place < 0)) for places in (pattern.starts, pattern.ends))
    return replace(pattern, relations=kept, starts=starts, ends=ends, first=None, last=None)


def _changed(
    pattern: patterns.Pattern, path: Path, change: Callable[[patterns.Pattern], patterns.Pattern]
) -> patterns.Pattern:
    if not path:
        return change(pattern)
    items = list(patterns.children(pattern))
    items[path[0]] = _changed(items[path[0]], path[1:], change)
    return patterns.with_children(pattern, tuple(items))


def _times(window: patterns.Window, factor: int) -> patterns.Window:
    match window:
        case Duration():
            return replace(window, nanoseconds=window.nanoseconds * factor)
        case patterns.Events() | patterns.Ticks():
            return replace(window, count=window.count * factor)


# --- parts of a graph

MOST_PARTS = 4096
"""The maximum number of parts of one graph."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A part of a graph, as a graph, and what is pending for it.

    `awaited` are the variables that can come next, `open` the absences that can still be violated, as texts.
    """

    whole: Graph
    part: Graph
    missing: tuple[Name, ...]
    awaited: tuple[Name, ...]
    open: tuple[str, ...]


def openings_of(graph: Graph) -> Iterator[Opening]:
    """The parts of a graph that can be bound by events up to some time while all others come later, largest first."""
    for names in sorted(
        _beginnings(graph), key=lambda names: (-len(names), [name not in names for name in graph.names])
    ):
        missing = tuple(name for name in graph.names if name not in names)
        judged = [absence for absence in graph.absences if _is_judged(absence, graph, names)]
        yield Opening(
            graph,
            _part(graph, names, judged),
            missing,
            tuple(name for name in missing if not any(_comes_first(other, name, graph) for other in missing)),
            tuple(dict.fromkeys(absence.text for absence in graph.absences if not _is_closed(absence, names))),
        )


def _beginnings(graph: Graph) -> list[frozenset[Name]]:
    """The proper subsets of variables that contain, with each variable, all that certainly end no later."""
    found = {frozenset[Name]()}
    needed = {
        name: frozenset(other for other in graph.names if _ends_no_later(other, name, graph)) for name in graph.names
    }
    for name in sorted(graph.names, key=lambda name: len(needed[name])):
        found |= {names | {name} for names in found if needed[name] <= names | {name}}
        if len(found) > MOST_PARTS:
            raise LimitError(
                "too-many-goals",
                f"the pattern has more than {MOST_PARTS:,} possible partial matches",
                "use SEQ instead of AND, or fewer items in AND",
            )
    return [names for names in found if names and len(names) < len(graph.names)]


def _ends_no_later(other: Name, name: Name, graph: Graph) -> bool:
    limit = graph.times.limit(end_of(other), end_of(name))
    return other != name and limit is not None and limit.whole <= 0


def _comes_first(other: Name, name: Name, graph: Graph) -> bool:
    return other != name and graph.times.before(end_of(other), end_of(name))


def _part(graph: Graph, names: frozenset[Name], judged: Collection[Absence]) -> Graph:
    """The graph of some variables only: their bounds and the conditions that use no other variable."""
    moments = _known_moments(graph, names)
    seen = names | {moment.name for moment in moments}
    kept = tuple(name for name in graph.names if name in names)
    return Graph(
        tuple(variable for variable in graph.variables if variable.name in names),
        Extent(kept, kept),
        graph.times.among(seen),
        graph.positions.among(seen),
        tuple(condition for condition in graph.conditions if variables_of(condition) <= seen),
        tuple(equality for equality in graph.equalities if variables_of(equality.condition) <= seen),
        tuple(_alone(absence, seen) for absence in judged),
        moments=moments,
        number=graph.number,
    )


def _known_moments(graph: Graph, names: frozenset[Name]) -> tuple[Moment, ...]:
    """The moments that the bound events determine."""
    known = set(names)
    found = []
    for moment in graph.moments:
        if not moment.repeated and moment.base.variable in known:
            known.add(moment.name)
            found.append(moment)
    return tuple(found)


def _alone(absence: Absence, names: Collection[Name]) -> Absence:
    """The absence for a part of the match, evaluated on the events that have come."""
    inner = absence.graph
    seen = {*names, *inner.names}
    graph = replace(inner, times=inner.times.among(seen), positions=inner.positions.among(seen))
    return Absence(graph, Scope(stated=()), absence.item, absence.words)


def _is_judged(absence: Absence, graph: Graph, names: frozenset[Name]) -> bool:
    """Whether a forbidden match of past events is in the scope, whatever comes later."""
    inner, scope = absence.graph, absence.scope
    if inner.absences or inner.collections or inner.moments or inner.replaced or inner.positions.points:
        return False
    around = names | {moment.name for moment in _known_moments(graph, names)}
    conditions = [*inner.conditions, *(equality.condition for equality in inner.equalities)]
    spoken = frozenset(name for condition in conditions for name in variables_of(condition))
    spoken |= {point.variable for bound in (*inner.ties, *inner.premises) for point in (bound.left, bound.right)}
    if not spoken <= around | {*inner.names}:
        return False
    if scope.stated is not None:
        return {point.variable for bound in scope.stated for point in (bound.left, bound.right)} <= around | {
            *inner.names
        }
    if scope.after is None or scope.before is None or not {*scope.after.ends} <= names:
        return False
    later = {*scope.before.starts}
    return later <= names or (later.isdisjoint(names) and all(is_point(name, graph) for name in later))


def is_point(name: Name, graph: Graph) -> bool:
    """Whether a variable's events start and end at the same time."""
    limit = graph.times.limit(end_of(name), start_of(name))
    return limit is not None and limit.whole <= 0


def _is_closed(absence: Absence, names: frozenset[Name]) -> bool:
    """Whether past events enclose the scope."""
    scope = absence.scope
    if scope.stated is not None or scope.after is None or scope.before is None:
        return False
    return {*scope.after.ends, *scope.before.starts} <= names
