"""Hypothesis strategies for well-formed pattern queries over the streams and fields of `strategies.histories`.

A pattern is drawn with a budget: so many positive events, and so many events under negations. Conditions are drawn for
one scope of the finished pattern at a time, over names that are visible there and can be bound together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, reduce

from hypothesis import strategies as st

from inside import (
    And,
    Between,
    Binary,
    Call,
    Case,
    Event,
    Events,
    Expr,
    Field,
    InList,
    IsNull,
    Like,
    Literal,
    NamedPattern,
    Not,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Reach,
    Repeat,
    Same,
    Seq,
    Ticks,
    Unary,
    Window,
    Within,
)
from oracle.oracle import OracleEvent
from oracle.tree import WHOLE, Path, homes, parts, reachable_names, scope_of, scopes, walk
from oracle.wellformed import can_be_together, problems, visible_names
from strategies.histories import histories

# All streams everywhere, so that positive and negated variables collide; those that are rare in histories, where they
# help a match.
POSITIVE_STREAMS = ("A", "B", "A", "B", "C", "A", "B", "D")
NEGATED_STREAMS = ("C", "D", "A", "B")
POSITIVE_EVENTS = (1, 2, 2, 2, 2, 3, 3, 4)
NEGATED_EVENTS = (0, 1, 1, 2, 2, 2, 3, 3)
DEPTH = 4
WEAK_COMPARISONS = ("<=", "<=", "!=", ">=", "<", "=", ">")


Special = Callable[["Draft", int, int], Pattern | None]


@dataclass
class Draft:
    """What is known while a pattern is drawn; `variables` are those of the scope at hand, with their streams.

    `special` may draw a part in another way than by SEQ, AND, OR and events; None where it does not want to.
    `wanted` is what it is to draw first.
    """

    draw: st.DrawFn
    negated_left: int
    variables: dict[str, str] = field(default_factory=dict)
    is_negated: bool = False
    names_given: int = 0
    special: Special | None = None
    wanted: str | None = None

    def chance(self, percent: int) -> bool:
        """Shrinks towards no."""
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def choose(self, choices: tuple[object, ...]) -> object:
        return self.draw(st.sampled_from(choices))

    def new_name(self, letter: str) -> str:
        """A name that no other part has; every third one looks like those that Ensue makes itself."""
        self.names_given += 1
        number = self.names_given
        if number % 3:
            return f"{letter}{number}"
        before, after = f"{letter}{number - 1}", f"{letter}{number + 1}"
        odd = f"other {before}", f"{after}[1]", f"{before}[2]", f"{letter.upper()}#{number}", f"{after}.s", f"#{number}"
        return odd[(number // 3 + ord(letter)) % len(odd)]


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """At most four positive events and six in all, nested at most four deep."""
    positive = draw(st.sampled_from(POSITIVE_EVENTS))
    negated = min(draw(st.sampled_from(NEGATED_EVENTS)), 6 - positive)
    return part_of(Draft(draw, negated), positive, DEPTH)


with_ties = st.sampled_from((False, False, True))
"""Whether SEQ accepts events at the same time."""


@st.composite
def queries(draw: st.DrawFn) -> PatternQuery:
    """A query that decisions.md accepts, except that its conditions may never hold."""
    pattern = draw(with_reach(draw(patterns())))
    partition_by = draw(st.sampled_from(((), (), (), ("k",), ("k",), ("g",), ("k", "g"))))
    return PatternQuery(
        pattern=pattern,
        where=draw(where_of(pattern)),
        partition_by=partition_by,
        within=draw(query_windows(required="open-scope" in problems(PatternQuery(pattern)))),
        allows_ties=draw(with_ties),
    )


@st.composite
def cases(draw: st.DrawFn, *, intervals: bool = False) -> tuple[PatternQuery, list[OracleEvent]]:
    """A query, and a history in which the streams that it names are frequent, the positive ones most."""
    query = draw(queries())
    leaves = [(path, part) for path, part in walk(query.pattern) if isinstance(part, Event)]
    positive = [leaf.stream for path, leaf in leaves if scope_of(query.pattern, path) == WHOLE]
    negated = [leaf.stream for path, leaf in leaves if scope_of(query.pattern, path) != WHOLE]
    streams = (*positive * (8 // len(positive)), *negated * 2, "A", "B", "C", "D", "E")
    return query, draw(histories(intervals=intervals, streams=streams))


# Patterns


def part_of(draft: Draft, events: int, depth: int) -> Pattern:
    """A positive part with the given number of positive events."""
    part = draft.special(draft, events, depth) if draft.special else None
    if part is None:
        part = _operator(draft, events, depth) if events > 1 else _single(draft, depth)
    wrapping = draft.choose(("", "", "", "", "", "", "", "", "AS", "WITHIN"))
    if wrapping == "AS":
        return NamedPattern(part, draft.new_name("p"))
    return Within(part, draft.draw(PART_WINDOWS)) if wrapping == "WITHIN" else part


def _single(draft: Draft, depth: int) -> Pattern:
    """One positive event, perhaps with negations beside it."""
    if depth > 1 and draft.negated_left and draft.chance(60):
        return seq_or_and(draft, [1], depth)
    return event_of(draft)


def _operator(draft: Draft, events: int, depth: int) -> Pattern:
    """SEQ, AND or OR of two or more positive items; at the last level every item is an event."""
    sizes = split(draft, events, draft.draw(st.integers(2, min(events, 3))) if depth > 2 else events)
    if draft.chance(18):
        return Or(tuple(part_of(draft, size, depth - 1) for size in sizes))
    return seq_or_and(draft, sizes, depth)


def seq_or_and(draft: Draft, sizes: list[int], depth: int) -> Seq | And:
    """The items of the given sizes with negations put between, before and after them.

    Negations come first, so that items do not use up the budget that a single positive item needs.
    """
    forbidden = []
    while draft.negated_left and ((len(sizes) == 1 and not forbidden) or draft.chance(45)):
        forbidden.append(negation_of(draft, depth - 1))
    operator = draft.choose((Seq, Seq, And))
    items = _ordered_parts(draft, sizes, depth) if operator is Seq else _unordered_parts(draft, sizes, depth)
    for negation in forbidden:
        items.insert(draft.draw(st.integers(0, len(items))), negation)
    return operator(tuple(items))


def _unordered_parts(draft: Draft, sizes: list[int], depth: int) -> list[Pattern]:
    return [part_of(draft, size, depth - 1) for size in sizes]


def _ordered_parts(draft: Draft, sizes: list[int], depth: int) -> list[Pattern]:
    """Parts that share no variable with each other: an event is never before itself."""
    before = draft.variables
    parts, after = [], dict(before)
    for size in sizes:
        draft.variables = dict(before)
        parts.append(part_of(draft, size, depth - 1))
        after |= draft.variables
    draft.variables = after
    return parts


def negation_of(draft: Draft, depth: int) -> Not:
    """A NOT with some of the events that the budget has left; what remains may go to negations inside it."""
    events = min(draft.choose((1, 1, 2, 3)), draft.negated_left) if depth > 1 else 1
    draft.negated_left -= events
    outside = draft.variables, draft.is_negated
    draft.variables, draft.is_negated = {}, True
    negation = Not(part_of(draft, events, depth))
    draft.variables, draft.is_negated = outside
    return negation


def event_of(draft: Draft) -> Event:
    """An event: anonymous, a variable of this scope once more, or (mostly) a new variable."""
    predicate = draft.draw(PREDICATES) if draft.chance(20) else None
    kind = draft.choose(("new", "new", "new", "new", "new", "new", "anonymous", "again", "again"))
    if kind == "again" and draft.variables:
        variable = draft.choose(tuple(sorted(draft.variables)))
        return Event(draft.variables[variable], variable, predicate)
    stream = draft.choose(NEGATED_STREAMS if draft.is_negated else POSITIVE_STREAMS)
    if kind == "anonymous":
        return Event(stream, None, predicate)
    variable = draft.new_name(stream.lower())
    draft.variables[variable] = stream
    return Event(stream, variable, predicate)


def split(draft: Draft, total: int, count: int) -> list[int]:
    """The total as a sum of so many positive numbers."""
    sizes = [1] * count
    for _ in range(total - count):
        sizes[draft.draw(st.integers(0, count - 1))] += 1
    return sizes


@st.composite
def with_reach(draw: st.DrawFn, pattern: Pattern) -> Pattern:
    """One pattern in five has a part, half of them the content of a NOT, with a reach around another event."""
    if draw(st.integers(0, 4)) < 4:
        return pattern
    places = [(path, names) for path, part in walk(pattern) if (names := _reached_from(pattern, path, part))]
    asides = [entry for entry in places if entry[0] in scopes(pattern)]
    if not places:
        return pattern
    path, names = draw(st.sampled_from(asides if asides and draw(st.booleans()) else places))
    reach = Reach(draw(st.sampled_from(("OF", "BEFORE", "AFTER"))), draw(st.sampled_from(sorted(names))))
    changed = _wrapped(pattern, path, Ticks(draw(st.sampled_from((5, 3, 8, 1, 2)))), reach)
    found = problems(PatternQuery(changed))
    return pattern if found & {"reach-anchor", "reach-open", "reach-nowhere"} else changed


def _reached_from(pattern: Pattern, path: Path, part: Pattern) -> set[str]:
    if isinstance(part, Not | Pick) or (isinstance(part, Repeat) and part.every):
        return set()
    return {name for name in reachable_names(pattern, path) if isinstance(name, str)}


def _wrapped(pattern: Pattern, path: Path, window: Window, reach: Reach) -> Pattern:
    """The pattern with a reach around the part at the path."""
    if not path:
        return Within(pattern, window, reach=reach)
    items = list(parts(pattern))
    items[path[0]] = _wrapped(items[path[0]], path[1:], window, reach)
    return replace(pattern, items=tuple(items)) if hasattr(pattern, "items") else replace(pattern, item=items[0])


# Windows

PART_WINDOWS = st.sampled_from((Ticks(8), Ticks(5), Ticks(3), Ticks(1), Events(9), Events(6), Events(3)))
QUERY_WINDOWS: tuple[Window, ...] = (
    *(Ticks(8), Ticks(5), Ticks(3), Ticks(12), Ticks(30), Ticks(6)),
    *(Events(8), Events(5), Events(12), Events(20)),
)


def query_windows(required: bool) -> st.SearchStrategy[Window | None]:
    return st.sampled_from(QUERY_WINDOWS if required else (*[None] * len(QUERY_WINDOWS), *QUERY_WINDOWS))


# Conditions. The builders are cached: making a strategy takes longer than drawing from it.

# Most events satisfy most of these.
PREDICATES = st.sampled_from(
    (
        Binary("<=", Field(None, "x"), Literal(3)),
        Binary("!=", Field(None, "x"), Literal(4)),
        Binary("<", Field(None, "y"), Literal(4)),
        Binary(">=", Field(None, "y"), Literal(0)),
        Binary(">", Field(None, "x"), Literal(0)),
        Binary("=", Field(None, "k"), Literal(1)),
        Binary("<=", Field(None, "t"), Literal(12)),
        IsNull(Field(None, "y"), negated=True),
        IsNull(Field(None, "g")),
        Like(Field(None, "name"), "%b%"),
        InList(Field(None, "x"), (Literal(0), Literal(1), Literal(2))),
    )
)


@st.composite
def where_of(draw: st.DrawFn, pattern: Pattern) -> Expr | None:
    """A conjunction of conditions, each of one scope of the pattern."""
    places = [WHOLE, *scopes(pattern)]
    conjuncts: list[Expr] = []
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 2, 3)))):
        condition = draw(_conditions(pattern, draw(st.sampled_from(places))))
        if condition is not None:
            conjuncts.append(condition)
    if draw(st.integers(0, 9)) == 9:
        conjuncts.append(Same(draw(st.sampled_from((("g",), ("k",), ("k", "g"))))))
    return reduce(lambda left, right: Binary("and", left, right), conjuncts) if conjuncts else None


@st.composite
def _conditions(draw: st.DrawFn, pattern: Pattern, scope: Path) -> Expr | None:
    """A condition over one to three names visible in the scope, one of them its own; None if it has none."""
    home = homes(pattern)
    visible = sorted(visible_names(pattern, scope))
    own = [name for name in visible if home[name] == scope]
    if not own:
        return None
    names = [draw(st.sampled_from(own))]
    for _ in range(draw(st.sampled_from((1, 1, 1, 2)))):
        others = [name for name in visible if can_be_together(pattern, {*names, name}) and name not in names]
        names += [draw(st.sampled_from(others))] if others else []
    names = draw(st.permutations(names))
    condition = draw(_pair_conditions(pattern, names[0], names[-1]))
    if len(names) < 3:
        return condition
    return Binary("or", condition, draw(_pair_conditions(pattern, names[1], names[2])))


@st.composite
def _pair_conditions(draw: st.DrawFn, pattern: Pattern, first: str, second: str) -> Expr:
    """A condition over two names, which may be the same; an AS name has times and nothing else."""
    parts_named = {part.name for _, part in walk(pattern) if isinstance(part, NamedPattern)}
    if parts_named & {first, second} or draw(st.sampled_from((False, False, False, True))):
        return draw(_time_conditions(first, second, parts_named))
    return draw(draw(st.sampled_from(FORMS))(first, second))


@cache
def _numbers(variable: str) -> st.SearchStrategy[Expr]:
    """A number read from an event, perhaps null."""
    plain = st.sampled_from((Field(variable, "x"), Field(variable, "y")))
    return st.one_of(
        plain,
        plain,
        plain,
        st.builds(lambda number: Call("abs", (number,)), plain),
        st.builds(lambda number: Call("coalesce", (number, Literal(1))), plain),
        st.builds(Unary, st.just("-"), plain),
        st.just(Binary("%", Field(variable, "x"), Literal(2))),
        st.just(Call("length", (Field(variable, "name"),))),
    )


@cache
def fields_compared(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(Binary, st.sampled_from(WEAK_COMPARISONS), _numbers(first), _numbers(second))


@cache
def _keys_equal(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda column: Binary("=", Field(first, column), Field(second, column)),
        st.sampled_from(("k", "g", "x", "name")),
    )


@cache
def _arithmetic(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda operator, left, right, comparison, limit: Binary(
            comparison, Binary(operator, left, right), Literal(limit)
        ),
        st.sampled_from(("+", "-", "*", "/")),
        _numbers(first),
        _numbers(second),
        st.sampled_from(("<=", "<", "!=", ">=")),
        st.integers(1, 5),
    )


@cache
def _alternatives(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda left, right: Binary("or", left, right), fields_compared(first, second), fields_compared(second, first)
    )


@cache
def _not_both(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda left, right: Unary("not", Binary("and", left, right)),
        _keys_equal(first, second),
        fields_compared(second, first),
    )


@cache
def _choices(first: str, second: str) -> st.SearchStrategy[Expr]:
    """CASE WHEN a.x < b.x THEN a.y ELSE b.y END <= 3."""
    return st.builds(
        lambda condition, value, default, limit: Binary("<=", Case(((condition, value),), default), Literal(limit)),
        fields_compared(first, second),
        _numbers(first),
        _numbers(second) | st.none(),
        st.integers(1, 4),
    )


@cache
def _in_lists(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda operand, item, negated: InList(operand, (Literal(0), Literal(2), item), negated),
        _numbers(first),
        _numbers(second),
        st.booleans(),
    )


@cache
def _betweens(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda operand, high, negated: Between(operand, Literal(0), high, negated),
        _numbers(first),
        _numbers(second),
        st.booleans(),
    )


@cache
def _nulls(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda left, right, negated: IsNull(Binary("+", left, right), negated),
        _numbers(first),
        _numbers(second),
        st.sampled_from((True, True, False)),
    )


@cache
def _extremes(first: str, second: str) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda name, left, right, limit: Binary("<=", Call(name, (left, right)), Literal(limit)),
        st.sampled_from(("least", "greatest")),
        _numbers(first),
        _numbers(second),
        st.integers(1, 4),
    )


@cache
def _texts(first: str, second: str) -> st.SearchStrategy[Expr]:
    joined = Binary("||", Field(first, "name"), Field(second, "name"))
    lowered = Call("lower", (Field(first, "name"),))
    return st.sampled_from(
        (
            Like(joined, "%a%"),
            Like(joined, "a_%", negated=True),
            Binary("<=", lowered, Field(second, "name")),
            Binary("=", Call("upper", (Field(second, "name"),)), Call("upper", (Field(first, "name"),))),
        )
    )


def _time_conditions(first: str, second: str, parts_named: set[str]) -> st.SearchStrategy[Expr]:
    """`b.t - a.t <= 3`, `p.s < b.s`: an AS name has only `s` and `e`."""

    def times(name: str) -> st.SearchStrategy[Expr]:
        return st.sampled_from(("s", "e") if name in parts_named else ("t", "s", "e")).map(
            lambda column: Field(name, column)
        )

    return st.one_of(
        st.builds(
            lambda left, right, operator, limit: Binary(operator, Binary("-", left, right), Literal(limit)),
            times(first),
            times(second),
            st.sampled_from(("<=", "<=", "<", ">=", "!=")),
            st.integers(0, 6),
        ),
        st.builds(Binary, st.sampled_from(WEAK_COMPARISONS), times(first), times(second)),
        st.builds(
            lambda left, right, shift: Binary("<=", left, Binary("+", right, Literal(shift))),
            times(first),
            times(second),
            st.integers(0, 6),
        ),
    )


Form = Callable[[str, str], st.SearchStrategy[Expr]]

FORMS: tuple[Form, ...] = (
    fields_compared,
    fields_compared,
    _keys_equal,
    _keys_equal,
    _arithmetic,
    _alternatives,
    _not_both,
    _choices,
    _in_lists,
    _betweens,
    _nulls,
    _extremes,
    _texts,
)
