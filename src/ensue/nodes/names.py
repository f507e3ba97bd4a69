"""Generated names of streams and variables, as values.

A name that a user writes is a `str` and can be any text. A generated name is a value of one of the classes here, so it
never equals a written name. Its `str()` is for people and is never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class AnyEvent:
    """All events except those of some streams, which are sorted: `ANY EVENT BUT (A, B)`.

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
    """The results of an operator under a context. The operators of a statement are numbered."""

    statement: str
    number: int

    def __str__(self) -> str:
        return f"{self.statement}#{self.number}"


@dataclass(frozen=True, slots=True)
class WithRow:
    """The events of a stream joined with rows of a table. The rules of a program and their rows are numbered."""

    stream: Stream
    table: str
    rule: int
    number: int

    def __str__(self) -> str:
        return f"{self.stream}+{self.table}#{self.rule}.{self.number}"


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The streams that `causes` uses: the "parents" of events, or the "chains" of parents."""

    of: str

    def __str__(self) -> str:
        return f"causes#{self.of}"


@dataclass(frozen=True, slots=True)
class BodyOf:
    """The events of the body of a rule, before they are joined with rows. The rules of a program are numbered."""

    head: str
    rule: int

    def __str__(self) -> str:
        return f"{self.head} body#{self.rule}"


Stream: TypeAlias = str | AnyEvent | ContextStage | WithRow | Ancestry | BodyOf
"""The stream of a variable. The names of the user's streams are texts."""


def in_words(stream: Stream) -> str:
    """The name of a stream in messages; a joined stream is described by its parts.

    >>> in_words(WithRow("order", "price", 1, 2))
    'order with price'
    """
    if isinstance(stream, WithRow):
        return f"{in_words(stream.stream)} with {stream.table}"
    return f"body of {stream.head}" if isinstance(stream, BodyOf) else str(stream)


def stream_key(stream: Stream) -> str:
    """A unique key of the stream. A name without a star, a backtick or `#` is its own key.

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
        case BodyOf():
            return f"{key_of(stream.head)} body#{stream.rule}"
        case Ancestry():
            return str(stream)


_MARKED = re.compile(r"^[*`]|#")
_LINES = re.compile(r"\n|^`")


def covers(wide: Stream, stream: Stream) -> bool:
    """Whether all events of `stream` are also events of `wide`.

    >>> covers(AnyEvent(("B",)), "A"), covers(AnyEvent(("B",)), "B"), covers("A", AnyEvent())
    (True, False, False)
    """
    if not isinstance(wide, AnyEvent):
        return wide == stream
    return {*wide.excluded} <= {*stream.excluded} if isinstance(stream, AnyEvent) else stream not in wide.excluded


def names_in(stream: Stream) -> tuple[Stream, ...]:
    """The streams on which the events of a stream depend: itself, or those that ANY EVENT excludes.

    >>> names_in("A"), names_in(AnyEvent(("B",)))
    (('A',), ('B',))
    """
    return stream.excluded if isinstance(stream, AnyEvent) else (stream,)


@dataclass(frozen=True, slots=True)
class UnnamedVariable:
    """The variable of an event that has none in the text. The events of a query are numbered."""

    stream: Stream
    number: int

    def __str__(self) -> str:
        return f"{self.stream}#{self.number}"


@dataclass(frozen=True, slots=True)
class Further:
    """The variable of an unnamed item of a rule if it is the second, third, ... item of its stream."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream} {self.number}"


@dataclass(frozen=True, slots=True)
class Chain:
    """The variable of a chain from a cause to its effect. The chains of a rule are numbered."""

    number: int

    def __str__(self) -> str:
        return f"causes#{self.number}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the events of a list, for the values by which they are grouped."""

    name: Name

    def __str__(self) -> str:
        return f"one of {self.name}"


@dataclass(frozen=True, slots=True)
class Round:
    """A variable of a repetition in one of its rounds. Rounds start at zero.

    >>> str(Round("t", 0)), Round("t", 0) == "t[1]"
    ('t[1]', False)
    """

    name: Name
    number: int

    def __str__(self) -> str:
        return f"{self.name}[{self.number + 1}]"


@dataclass(frozen=True, slots=True)
class Other:
    """Another event that FIRST, LAST and UNLESS compare with the event of a variable."""

    name: Name

    def __str__(self) -> str:
        return f"other {self.name}"


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment that an operator defines, such as the end of the window of NOTFOLLOWS. Operators are numbered."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}#{self.number}"


@dataclass(frozen=True, slots=True)
class Edge:
    """The start ("s") or end ("e") of a named interval of a rule, as a separate moment."""

    interval: str
    side: str

    def __str__(self) -> str:
        return f"{self.interval}.{self.side}"


@dataclass(frozen=True, slots=True)
class Whole:
    """The interval of the whole match."""

    def __str__(self) -> str:
        return "match"


@dataclass(frozen=True, slots=True)
class Result:
    """The interval of the whole match under a context."""

    def __str__(self) -> str:
        return "match#"


@dataclass(frozen=True, slots=True)
class Handle:
    """The variable of the results of an operator under a context; `words` describe their parts."""

    stream: ContextStage
    words: str

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Before:
    """The variable of a list in the element before the current one."""

    name: Name

    def __str__(self) -> str:
        return f"previous {self.name}"


@dataclass(frozen=True, slots=True)
class Values:
    """A placeholder for a list of values in an expression. The lists of an expression are numbered."""

    number: int

    def __str__(self) -> str:
        return f"list {self.number}"


@dataclass(frozen=True, slots=True)
class Doubt:
    """The list of events that an uncertain NOT may forbid, by the numbers of the NOTs around it, outermost first."""

    path: tuple[int, ...]

    def __str__(self) -> str:
        return f"threat {'.'.join(map(str, self.path))}"


@dataclass(frozen=True, slots=True)
class SpokenName:
    """The name in messages of something that is not a single event, such as the result of an operator."""

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
    | SpokenName
)
"""The name of an event, an interval or a moment of a pattern."""

WHOLE = Whole()


def written(name: Name) -> Name:
    """The variable of the query behind a name, without its round.

    >>> written(Round("t", 0))
    't'
    """
    while isinstance(name, Round):
        name = name.name
    return name


def without_rounds(name: Name) -> Name:
    """The name without its rounds.

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
    """A key of the name. The key of a word is the word itself.

    The ids of matches depend on these keys, so they must not change. For that reason a moment of an operator, the
    result of a statement under a context, and an unnamed event have the same key if the operator, the statement and the
    stream have the same name. The ids still differ, because the names are bound to events of different streams.

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
        case Whole() | Result() | Before() | Values() | Doubt() | SpokenName():
            raise ValueError(f"{name!r} is not the name of an event")


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
    """A name in messages. An event without a name is called by its stream.

    >>> called("t"), called(Round("t", 0)), called(Round(UnnamedVariable("A", 1), 0))
    ('t', 't[1]', 'A')
    """
    base = written(name)
    return str(base.stream) if isinstance(base, UnnamedVariable) else str(name)


def in_order(names: Iterable[Name]) -> list[Name]:
    """The names sorted by their text."""
    return sorted(names, key=lambda name: (str(name), type(name).__name__))
