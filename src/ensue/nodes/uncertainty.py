"""`HIERARCHY Object > Person > (alice 0.6, bob 0.4)`: streams at levels of detail.

An event of a finer stream is one of all coarser ones. An event of a coarser stream may be one of a finer: with the
probability that the levels between them say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ensue.errors import Problem, Span
from ensue.nodes.expressions import Call, Expr, Field, rewrite, walk
from ensue.nodes.names import WHOLE, Stream

ROUNDING = 1e-9
"""By so much the members of a stream may add up to more than 1."""


@dataclass(frozen=True, slots=True)
class Member:
    """A finer stream, and how probable it is that an event of the coarser one is of it. None: what its like leave."""

    stream: str
    share: float | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HierarchyStatement:
    """The streams above, from coarse to fine, and the members of the last of them."""

    above: tuple[str, ...]
    members: tuple[Member, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    def levels(self) -> Iterator[tuple[str, tuple[Member, ...]]]:
        """Each stream with its members."""
        for coarse, fine in zip(self.above, self.above[1:], strict=False):
            yield coarse, (Member(fine, span=self.span),)
        yield self.above[-1], self.members


@dataclass(frozen=True)
class Hierarchy:
    """Which streams are finer than which. `parts` is, of each finer one, the coarser and its stretch of that."""

    parts: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, statements: Sequence[HierarchyStatement]) -> Hierarchy:
        """That of statements which are checked."""
        parts: dict[str, tuple[str, float, float]] = {}
        for coarse, members in _members(statements).items():
            begin = 0.0
            for member, share in zip(members, _shares(members), strict=True):
                parts[member.stream] = (coarse, begin, begin + share)
                begin += share
        return cls(parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All streams of the hierarchy, in order."""
        return tuple(sorted({*self.parts, *(coarse for coarse, _, _ in self.parts.values())}))

    def above(self, stream: str) -> Iterator[str]:
        """The coarser streams, from near to far."""
        while stream in self.parts:
            stream = self.parts[stream][0]
            yield stream

    def is_finer(self, stream: Stream) -> bool:
        """Whether an event of some other stream may be one of this."""
        return stream in self.parts

    def is_coarser(self, stream: Stream) -> bool:
        return any(coarse == stream for coarse, _, _ in self.parts.values())

    def kinds_of(self, stream: Stream) -> tuple[Stream, ...]:
        """What an event may be called that is, or may be, one of a stream."""
        if not isinstance(stream, str) or stream not in self.names:
            return (stream,)
        below = (name for name in self.names if stream in self.above(name))
        return (stream, *below, *self.above(stream))

    def meet(self, one: Stream, other: Stream) -> bool:
        """Whether an event may be of both streams, if not in the same world."""
        return not frozenset(self.kinds_of(one)).isdisjoint(self.kinds_of(other))

    def stretch(self, kind: str, stream: str) -> tuple[float, float]:
        """The part of its own stretch in which an event that is called `kind` is one of a stream."""
        if kind == stream or stream in self.above(kind):
            return 0.0, 1.0
        low, high = 0.0, 1.0
        while stream != kind:
            stream, begin, end = self.parts[stream]
            low, high = begin + low * (end - begin), begin + high * (end - begin)
        return low, high


NO_HIERARCHY = Hierarchy()


def _members(statements: Sequence[HierarchyStatement]) -> dict[str, tuple[Member, ...]]:
    """The members of each coarser stream; a level may be said again without anything new."""
    found: dict[str, tuple[Member, ...]] = {}
    for statement in statements:
        for coarse, members in statement.levels():
            known = {member.stream for member in found.get(coarse, ())}
            found[coarse] = (*found.get(coarse, ()), *(new for new in members if new.stream not in known))
    return found


def _shares(members: Sequence[Member]) -> list[float]:
    """The share of each member; those without one share evenly what the others leave."""
    left = 1.0 - sum(member.share for member in members if member.share is not None)
    open_ones = sum(member.share is None for member in members)
    return [max(0.0, left) / open_ones if member.share is None else member.share for member in members]


def check_hierarchies(statements: Sequence[HierarchyStatement]) -> Iterator[Problem]:
    """A stream stands below one other, not below itself, and shares are probabilities that add up to at most 1."""
    parents: dict[str, str] = {}
    for statement in statements:
        for coarse, members in statement.levels():
            for member in members:
                yield from _check_share(member)
                known = parents.setdefault(member.stream, coarse)
                if known != coarse:
                    yield Problem(
                        "two-levels",
                        f"`{member.stream}` stands below `{known}` and below `{coarse}`",
                        member.span or statement.span,
                        hint="a stream has one next coarser one: put one of these below the other",
                    )
                elif _leads_to(coarse, member.stream, parents):
                    yield Problem(
                        "hierarchy-circle",
                        f"`{member.stream}` stands below itself",
                        member.span or statement.span,
                        hint="levels go from coarse to fine",
                    )
                    del parents[member.stream]
    for coarse, members in _members(statements).items():
        total = sum(member.share for member in members if member.share is not None and 0 <= member.share <= 1)
        if total > 1 + ROUNDING:
            yield Problem(
                "level-sum",
                f"the members of `{coarse}` add up to {total:.6g}",
                members[0].span,
                hint="an event is one of them at most, so that together they have a probability of at most 1",
            )


def _check_share(member: Member) -> Iterator[Problem]:
    if member.share is not None and not 0 <= member.share <= 1:
        yield Problem(
            "level-share",
            f"the share of `{member.stream}` is {member.share:g}, which is no probability",
            member.span,
            hint="write a number between 0 and 1, or none: then it shares what the others leave",
        )


def _leads_to(stream: str, wanted: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    while stream not in seen:
        if stream == wanted:
            return True
        seen.add(stream)
        stream = parents.get(stream, stream)
    return False


# --- `PROBABILITY()` in RETURN and `HAVING PROBABILITY >= p`: how likely a match is, where events are uncertain.

PROBABILITY_FUNCTION = "probability"

PROBABILITY_OF_MATCH = Field(WHOLE, "probability")
"""The field that stands for the probability of a match where values are worked out."""

CERTAINTY = "ensue:certainty"
"""The field of an event that is the probability that it is real."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """`HAVING PROBABILITY >= least`, or `>` if `strict`."""

    least: float
    strict: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


def is_probability(expression: Expr) -> bool:
    return isinstance(expression, Call) and expression.name == PROBABILITY_FUNCTION


def asks_probability(expressions: Iterable[Expr]) -> bool:
    return any(is_probability(part) for expression in expressions for part in walk(expression))


def with_probability_field(expression: Expr) -> Expr:
    """The expression with a field in the place of each PROBABILITY()."""
    return rewrite(expression, lambda part: PROBABILITY_OF_MATCH if is_probability(part) else None)


def check_threshold(threshold: Threshold) -> Iterator[Problem]:
    if 0 <= threshold.least < 1 or (threshold.least == 1 and not threshold.strict):
        return
    yield Problem(
        "probability-threshold",
        f"a probability lies between 0 and 1, and none is {'> ' if threshold.strict else ''}{threshold.least:g}",
        threshold.span,
        hint="write, for example, `HAVING PROBABILITY >= 0.9`",
    )


def check_calls(expression: Expr) -> Iterator[Problem]:
    """PROBABILITY() takes nothing: it is about the match as a whole."""
    for part in walk(expression):
        if isinstance(part, Call) and is_probability(part) and part.arguments:
            yield Problem(
                "probability-argument",
                "PROBABILITY() takes nothing: it is that of the whole match",
                part.span,
                hint="the probability of one event is the column of its table",
            )


def misplaced_probabilities(expression: Expr) -> Iterator[Problem]:
    """Calls of PROBABILITY where no match is complete yet."""
    for part in walk(expression):
        if is_probability(part):
            yield Problem(
                "misplaced-probability",
                "PROBABILITY() stands in RETURN: it is known when the match is",
                part.span,
                hint="to filter by it, write `HAVING PROBABILITY >= 0.9`",
            )
