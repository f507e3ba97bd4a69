"""`HIERARCHY Object > Person > (alice 0.6, bob 0.4)`: streams at levels of detail; and PROBABILITY in queries.

An event of a finer stream is also an event of all coarser streams. An event of a coarser stream is an event of a finer
one with the probability that the levels between them define.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ensue.errors import Problem, Span
from ensue.nodes.expressions import Call, Expr, Field, rewrite, walk
from ensue.nodes.names import WHOLE, Stream

ROUNDING = 1e-9
"""The tolerance by which the shares of the members of a stream may exceed 1."""


@dataclass(frozen=True, slots=True)
class Member:
    """A finer stream, and the probability that an event of the coarser stream belongs to it.

    None: an equal share of what the other members leave.
    """

    stream: str
    share: float | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HierarchyStatement:
    """The upper streams, from coarse to fine, and the members of the last one."""

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
    """The order of streams by detail. `parts` maps each finer stream to the coarser one and its interval in [0, 1]."""

    parts: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, statements: Sequence[HierarchyStatement]) -> Hierarchy:
        """The hierarchy of checked statements."""
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
        """Whether an event of another stream may belong to this stream."""
        return stream in self.parts

    def is_coarser(self, stream: Stream) -> bool:
        return any(coarse == stream for coarse, _, _ in self.parts.values())

    def kinds_of(self, stream: Stream) -> tuple[Stream, ...]:
        """The streams whose events belong, or may belong, to a stream."""
        if not isinstance(stream, str) or stream not in self.names:
            return (stream,)
        below = (name for name in self.names if stream in self.above(name))
        return (stream, *below, *self.above(stream))

    def meet(self, one: Stream, other: Stream) -> bool:
        """Whether an event may belong to either stream, possibly in different worlds."""
        return not frozenset(self.kinds_of(one)).isdisjoint(self.kinds_of(other))

    def stretch(self, kind: str, stream: str) -> tuple[float, float]:
        """The part of the interval of `kind` in which its events belong to a stream."""
        if kind == stream or stream in self.above(kind):
            return 0.0, 1.0
        low, high = 0.0, 1.0
        while stream != kind:
            stream, begin, end = self.parts[stream]
            low, high = begin + low * (end - begin), begin + high * (end - begin)
        return low, high


NO_HIERARCHY = Hierarchy()


def _members(statements: Sequence[HierarchyStatement]) -> dict[str, tuple[Member, ...]]:
    """The members of each coarser stream. A level may be declared several times."""
    found: dict[str, tuple[Member, ...]] = {}
    for statement in statements:
        for coarse, members in statement.levels():
            known = {member.stream for member in found.get(coarse, ())}
            found[coarse] = (*found.get(coarse, ()), *(new for new in members if new.stream not in known))
    return found


def _shares(members: Sequence[Member]) -> list[float]:
    """The share of each member. Members without a share divide the rest equally."""
    left = 1.0 - sum(member.share for member in members if member.share is not None)
    open_ones = sum(member.share is None for member in members)
    return [max(0.0, left) / open_ones if member.share is None else member.share for member in members]


def check_hierarchies(statements: Sequence[HierarchyStatement]) -> Iterator[Problem]:
    """A stream is directly below at most one other, and not below itself. The shares add up to at most 1."""
    parents: dict[str, str] = {}
    for statement in statements:
        for coarse, members in statement.levels():
            for member in members:
                yield from _check_share(member)
                known = parents.setdefault(member.stream, coarse)
                if known != coarse:
                    yield Problem(
                        "two-levels",
                        f"`{member.stream}` is directly below both `{known}` and `{coarse}`",
                        member.span or statement.span,
                        hint=f"put `{known}` below `{coarse}` or the reverse: a stream has one parent",
                    )
                elif _leads_to(coarse, member.stream, parents):
                    yield Problem(
                        "hierarchy-circle",
                        f"`{member.stream}` is below itself",
                        member.span or statement.span,
                        hint="order the levels from coarse to fine",
                    )
                    del parents[member.stream]
    for coarse, members in _members(statements).items():
        total = sum(member.share for member in members if member.share is not None and 0 <= member.share <= 1)
        if total > 1 + ROUNDING:
            yield Problem(
                "level-sum",
                f"the shares of the members of `{coarse}` must add up to at most 1, but add up to {total:.6g}",
                members[0].span,
                hint="reduce the shares",
            )


def _check_share(member: Member) -> Iterator[Problem]:
    if member.share is not None and not 0 <= member.share <= 1:
        yield Problem(
            "level-share",
            f"the share of `{member.stream}` must be between 0 and 1, but is {member.share:g}",
            member.span,
            hint="write a number between 0 and 1, or omit it: the rest is then divided equally",
        )


def _leads_to(stream: str, wanted: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    while stream not in seen:
        if stream == wanted:
            return True
        seen.add(stream)
        stream = parents.get(stream, stream)
    return False


# --- `PROBABILITY()` in RETURN and `HAVING PROBABILITY >= p`

PROBABILITY_FUNCTION = "probability"

PROBABILITY_OF_MATCH = Field(WHOLE, "probability")
"""The field for the probability of a match in evaluated expressions."""

CERTAINTY = "ensue:certainty"
"""The field of an event with the probability that it is real."""


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
    """Replace each PROBABILITY() by a field."""
    return rewrite(expression, lambda part: PROBABILITY_OF_MATCH if is_probability(part) else None)


def check_threshold(threshold: Threshold) -> Iterator[Problem]:
    if 0 <= threshold.least < 1 or (threshold.least == 1 and not threshold.strict):
        return
    accepted = "at least 0 and less than 1" if threshold.strict else "between 0 and 1"
    yield Problem(
        "probability-threshold",
        f"the threshold of HAVING PROBABILITY must be {accepted}, but is {threshold.least:g}",
        threshold.span,
        hint="for example `HAVING PROBABILITY >= 0.9`",
    )


def check_calls(expression: Expr) -> Iterator[Problem]:
    """PROBABILITY() takes no arguments: it is the probability of the whole match."""
    for part in walk(expression):
        if isinstance(part, Call) and is_probability(part) and part.arguments:
            yield Problem(
                "probability-argument",
                "PROBABILITY() takes no arguments: it is the probability of the whole match",
                part.span,
                hint="for the probability of one event, use the probability column of its table",
            )


def misplaced_probabilities(expression: Expr) -> Iterator[Problem]:
    """Calls of PROBABILITY outside RETURN."""
    for part in walk(expression):
        if is_probability(part):
            yield Problem(
                "misplaced-probability",
                "PROBABILITY() is only allowed in RETURN",
                part.span,
                hint="to filter by probability, write `HAVING PROBABILITY >= 0.9`",
            )
