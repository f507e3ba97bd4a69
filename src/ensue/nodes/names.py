"""Names as values: streams and variables that Ensue makes, apart from those that a user writes.

What a user writes, in backticks perhaps, is a `str`, any text at all. What Ensue makes itself is a value of one of the
classes here, and so never equal to a written name. `str()` of it is for people to read; nothing reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class AnyEvent:
    """All events but those of some streams, which are in order: `ANY EVENT BUT (A, B)`.

    >>> str(AnyEvent()), str(AnyEvent.but(["B", "A"]))
    ('ANY EVENT', 'ANY EVENT BUT (A, B)')
    """

    excluded: tuple[str, ...] = ()

    @classmethod
    def but(cls, excluded: Iterable[str]) -> AnyEvent:
        return cls(tuple(sorted(set(excluded))))

    def __str__(self) -> str:
        return f"ANY EVENT BUT ({', '.join(self.excluded)})" if self.excluded else "ANY EVENT"


@dataclass(frozen=True, slots=True)
class ContextStage:
    """The events that an operator under a context gives; the operators of a statement are numbered."""

    statement: str
    number: int

    def __str__(self) -> str:
        return f"{self.statement}#{self.number}"


@dataclass(frozen=True, slots=True)
class WithRow:
    """The events of a stream with a row of a table each; the rules of a program and their rows are numbered."""

    stream: Stream
    table: str
    rule: int
    number: int

    def __str__(self) -> str:
        return f"{self.stream}+{self.table}#{self.rule}.{self.number}"


@dataclass(frozen=True, slots=True)
class Ancestry:
    """What `causes` looks at: the "parents" that events name, or the "chains" that these make."""

    of: str

    def __str__(self) -> str:
        return f"causes#{self.of}"


Stream: TypeAlias = str | AnyEvent | ContextStage | WithRow | Ancestry
"""What a variable binds events of. The user's own streams have texts for names."""


def in_words(stream: Stream) -> str:
    """A stream as a text speaks of it; one of events with rows of tables by what it is made of.

    >>> in_words(WithRow("order", "price", 1, 2))
    'order with price'
    """
    return f"{in_words(stream.stream)} with {stream.table}" if isinstance(stream, WithRow) else str(stream)


def stream_key(stream: Stream) -> str:
    """A text that tells the stream apart from every other one. A name without a star, a backtick or `#` is its own.

    >>> stream_key("A"), stream_key("p#1"), stream_key(ContextStage("p", 1))
    ('A', '`p#1`', 'p#1')
    """
    match stream:
        case str():
            return quoted(stream) if _MARKED.search(stream) else stream
        case AnyEvent():
            return "\n".join(("*", *(quoted(name) if _LINES.search(name) else name for name in stream.excluded)))
        case ContextStage():
            return f"{key_of(stream.statement)}#{stream.number}"
        case WithRow():
            base = key_of(stream.stream) if isinstance(stream.stream, str) else stream_key(stream.stream)
            return f"{base}+{key_of(stream.table)}#{stream.rule}.{stream.number}"
        case Ancestry():
            return str(stream)


_MARKED = re.compile(r"^[*`]|#")
_LINES = re.compile(r"\n|^`")


def covers(wide: Stream, stream: Stream) -> bool:
    """Whether every event of a stream is one of another stream, too.

    >>> covers(AnyEvent(("B",)), "A"), covers(AnyEvent(("B",)), "B"), covers("A", AnyEvent())
    (True, False, False)
    """
    if not isinstance(wide, AnyEvent):
        return wide == stream
    return {*wide.excluded} <= {*stream.excluded} if isinstance(stream, AnyEvent) else stream not in wide.excluded


def may_meet(one: Stream, other: Stream) -> bool:
    """Whether an event can be of both streams."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    both_open = isinstance(one, AnyEvent) and isinstance(other, AnyEvent)
    return both_open or covers(one, other) or covers(other, one)


@dataclass(frozen=True, slots=True)
class UnnamedVariable:
    """The variable of an event that has none in the text; events of a query are numbered."""

    stream: Stream
    number: int

    def __str__(self) -> str:
        return f"{self.stream}#{self.number}"


@dataclass(frozen=True, slots=True)
class Further:
    """The variable of an item of a rule without a name, where its stream has others: the second, the third, ..."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream} {self.number}"


@dataclass(frozen=True, slots=True)
class Chain:
    """The variable of the events that lead from a cause to its effect; those of a rule are numbered."""

    number: int

    def __str__(self) -> str:
        return f"causes#{self.number}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the events that a list has, for the values by which they are grouped."""

    name: Name

    def __str__(self) -> str:
        return f"one of {self.name}"


@dataclass(frozen=True, slots=True)
class Round:
    """A variable of a repetition in one of its rounds, counted from zero.

    >>> str(Round("t", 0)), Round("t", 0) == "t[1]"
    ('t[1]', False)
    """

    name: Name
    number: int

    def __str__(self) -> str:
        return f"{self.name}[{self.number + 1}]"


@dataclass(frozen=True, slots=True)
class Other:
    """Another event in the place of a variable: what FIRST, LAST and UNLESS compare it with."""

    name: Name

    def __str__(self) -> str:
        return f"other {self.name}"


@dataclass(frozen=True, slots=True)
class Tick:
    """The moment that an operator makes, such as the end of the window of NOTFOLLOWS; operators are numbered."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}#{self.number}"


@dataclass(frozen=True, slots=True)
class Edge:
    """The start ("s") or end ("e") of an interval that a rule gives a name to, where it is a moment of its own."""

    interval: str
    side: str

    def __str__(self) -> str:
        return f"{self.interval}.{self.side}"


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole match, as something with a start and an end."""

    def __str__(self) -> str:
        return "match"


@dataclass(frozen=True, slots=True)
class Result:
    """The interval of the whole match under a context."""

    def __str__(self) -> str:
        return "match#"


@dataclass(frozen=True, slots=True)
class Handle:
    """The variable of the events that an operator under a context gives; `words` say of what they are made."""

    stream: ContextStage
    words: str

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Before:
    """The variable of a list in the element before the one at hand."""

    name: Name

    def __str__(self) -> str:
        return f"previous {self.name}"


@dataclass(frozen=True, slots=True)
class Values:
    """What stands for a list of values in an expression; those of an expression are numbered."""

    number: int

    def __str__(self) -> str:
        return f"list {self.number}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """The list of what an uncertain NOT may forbid: the numbers of the NOTs around it, outermost first."""

    path: tuple[int, ...]

    def __str__(self) -> str:
        return f"threat {'.'.join(map(str, self.path))}"


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a text calls something that is no one event, such as what an operator gives."""

    words: str

    def __str__(self) -> str:
        return self.words


Name: TypeAlias = (
    str
    | UnnamedVariable
    | Further
    | Chain
    | OneOf
    | Round
    | Other
    | Tick
    | Edge
    | Whole
    | Result
    | Handle
    | Before
    | Values
    | Doubt
    | Spoken
)
"""What an event, an interval or a moment of a pattern is called."""

WHOLE = Whole()


def written(name: Name) -> Name:
    """The variable of the query that a name stands for, whatever the round.

    >>> written(Round("t", 0))
    't'
    """
    while isinstance(name, Round):
        name = name.name
    return name


def without_rounds(name: Name) -> Name:
    """The name, whatever the rounds in it.

    >>> str(without_rounds(Other(Round("t", 0))))
    'other t'
    """
    match name:
        case Round():
            return without_rounds(name.name)
        case Other():
            return Other(without_rounds(name.name))
        case _:
            return name


def key_of(name: Name) -> str:
    """A text that tells the name apart from every other name. A word is its own.

    The ids of matches are made of these texts, so they stay as they are. For that reason a moment of an operator, what
    a statement gives under a context, and an unnamed event have one key where the operator, the statement and the
    stream are called alike: they are bound to events of different streams, so that the ids differ even so.

    >>> key_of("b"), key_of("b[1]"), key_of(Round("b", 0))
    ('b', '`b[1]`', 'b[1]')
    """
    match name:
        case str():
            return name if _WORD.fullmatch(name) else quoted(name)
        case UnnamedVariable():
            return f"{_unnamed_key(name.stream)}#{name.number}"
        case Further():
            return f"further({key_of(name.stream)}, {name.number})"
        case Chain():
            return f"chain({name.number})"
        case OneOf():
            return f"one({key_of(name.name)})"
        case Round():
            base = key_of(name.name)
            return f"({base})[{name.number + 1}]" if isinstance(name.name, Other) else f"{base}[{name.number + 1}]"
        case Other():
            return f"other {key_of(name.name)}"
        case Tick():
            return str(name)
        case Edge():
            return f"{key_of(name.interval)}.{name.side}"
        case Handle():
            return str(name.stream)
        case Whole() | Result() | Before() | Values() | Doubt() | Spoken():
            raise ValueError(f"{name!r} names no event")


def _unnamed_key(stream: Stream) -> str:
    match stream:
        case str():
            return f"stream({quoted(stream)})" if stream.startswith("ANY EVENT") else key_of(stream)
        case AnyEvent(excluded):
            return quoted(str(AnyEvent(tuple(map(key_of, excluded)))))
        case _:
            return f"made({stream_key(stream)})"


def quoted(name: str) -> str:
    """The name in backticks.

    >>> quoted("a b"), quoted("a`b")
    ('`a b`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


_WORD = re.compile(r"\w+")


def called(name: Name) -> str:
    """A name as the user would say it: an event without one by its stream, whatever the round.

    >>> called("t"), called(Round("t", 0)), called(Round(UnnamedVariable("A", 1), 0))
    ('t', 't[1]', 'A')
    """
    base = written(name)
    return str(base.stream) if isinstance(base, UnnamedVariable) else str(name)


def in_order(names: Iterable[Name]) -> list[Name]:
    """The names as they would be sorted by what they look like."""
    return sorted(names, key=lambda name: (str(name), type(name).__name__))
