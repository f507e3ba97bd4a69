"""Positions in statements that were built in Python. Their text is rendered only when an error has to show it.

Until then each node has a `Mark` instead of a position. The numbers of a mark are unique, so a mark identifies its node
even after rewrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import count, groupby
from typing import Any

from ensue.errors import Problem, Source, Span
from ensue.nodes.expressions import Call, Literal
from ensue.nodes.patterns import PatternQuery, Statements
from ensue.text.builder import MAXIMAL_DEPTH
from ensue.text.operands import has_a_size
from ensue.text.parser import parse_statements
from ensue.text.render import render_statements
from ensue.text.rule_builder import joined_rulesets

LARGEST = 2**63
"""Integers must be less than this, so that they fit into 64 bits."""

Places = dict[tuple[int, int], Span]
"""The position in the text of each mark, by the numbers of the mark."""


@dataclass(frozen=True, slots=True)
class Mark(Span):
    """A position that is not known yet. Its start and end are consecutive numbers, in the order of the nodes.

    `cut` is a method of `Span` and its arguments. It selects a part of the position.
    """

    cut: tuple[str, tuple[int, ...]] | None = None

    def head(self, length: int) -> Span:
        return replace(self, cut=("head", (length,)))

    def tail(self, skipped: int, length: int) -> Span:
        return replace(self, cut=("tail", (skipped, length)))


class UnwrittenSource(Source):
    """The text of statements that were built in Python, rendered on demand. Some of the `parts` may have a text."""

    __slots__ = ("_places", "_title", "_written", "parts")
    __setattr__ = object.__setattr__  # the rendered text is cached; the source itself never changes

    def __init__(self, parts: Sequence[Statements], name: str = "query") -> None:
        self.parts = tuple(parts)
        self._title = name
        self._written: Statements | None = None
        self._places: Places | None = None

    @property
    def text(self) -> str:
        return self._source.text

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def _source(self) -> Source:
        source = self.written().source
        assert source is not None
        return source

    def written(self) -> Statements:
        """The statements with their text and with positions in it."""
        if self._written is None:
            cited = [*_cited(self.parts, self._title)]
            self._written = cited[0] if len(cited) == 1 else join_cited(cited)
        return self._written

    def cite(self, problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], Source]:
        return tuple(replace(problem, span=self.place(problem.span)) for problem in problems), self._source

    def place(self, span: Span | None) -> Span | None:
        if not isinstance(span, Mark):
            return None
        if self._places is None:
            self._places = {}
            _pair(_marked(together(self.parts), count(1)), self.written(), self._places)
        found = self._places.get((span.start, span.end))
        if found is None or span.cut is None:
            return found
        method, arguments = span.cut
        part: Span = getattr(found, method)(*arguments)
        return part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnwrittenSource) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"UnwrittenSource({self.parts!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return UnwrittenSource, (self.parts, self._title)


def joined(parts: Sequence[Statements], name: str = "query") -> Statements:
    """Join the statements of texts and of values built in Python, which have no text yet and get the name `name`.

    >>> from ensue.nodes.patterns import Event
    >>> built = joined([Statements((PatternQuery(Event("A", "a")),)), parse_statements("CONSTRAINT ENDS(B)")])
    >>> built.source.place(built.constraints[0].span), built.source.text
    (Span(start=13, end=31), 'PATTERN A a;\\nCONSTRAINT ENDS(B)\\n')
    """
    if all(map(_has_text, parts)):
        return parts[0] if len(parts) == 1 else join_cited(parts)
    if (nothing := together(parts)) == Statements(()):
        return nothing  # an empty program has no text
    if reads_otherwise(parts):
        return UnwrittenSource(parts, name).written()
    marked: Statements = _marked(together(parts), count(1))
    return replace(marked, source=UnwrittenSource(parts, name))


def written_out(statements: Statements) -> Statements:
    """The statements with positions in a text, for an error to show."""
    return statements.source.written() if isinstance(statements.source, UnwrittenSource) else statements


def functions_in(value: object) -> dict[str, object]:
    """The functions of the user that statements or parts of them call, by name."""
    found: dict[str, object] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif _is_node(part):
            waiting += [getattr(part, name) for name in _fields(part)[1]]
            if isinstance(part, Call) and part.function is not None:
                found[part.name] = part.function
    return found


def _has_text(part: Statements) -> bool:
    return part.source is not None and not isinstance(part.source, UnwrittenSource)


def _cited(parts: Sequence[Statements], name: str) -> Iterator[Statements]:
    """Give each part a text. Adjacent parts without one share a text, unless they were joined earlier."""
    for _, group in groupby(parts, key=lambda part: id(part.source)):
        members = tuple(group)
        if _has_text(members[0]):
            yield from members
        else:
            whole = together(members)
            yield parse_statements(render_statements(whole), name, functions_in(whole))


def reads_otherwise(parts: Sequence[Statements]) -> bool:
    """Whether only the parser can report a problem of the values built in Python."""
    built = [part for part in parts if not _has_text(part)]
    sizes = (has_a_size(entry.constraint) for part in built for entry in part.constraints)
    return not all(sizes) or any(map(_is_doubtful, built))


def _is_doubtful(root: object) -> bool:
    """Whether the nodes nest too deeply, a number is too large, or a text that may be a name is empty.

    Uses its own stack, so that deep nesting does not raise a `RecursionError`.
    """
    waiting = [(root, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAXIMAL_DEPTH or value == "" or (isinstance(value, int) and not -LARGEST <= value < LARGEST):
            return True
        if isinstance(value, tuple):
            waiting += [(part, depth) for part in value]
        elif _is_node(value) and not isinstance(value, Literal):
            waiting += [(getattr(value, name), depth + 1) for name in _fields(value)[1]]
    return False


def _fields(node: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a node that are positions, and those that may contain nodes."""
    kind: Any = type(node)
    return _fields_of(kind)


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = [part.name for part in fields(kind) if part.name != "source"]
    spans = tuple(name for name in names if name.endswith("span"))
    return spans, tuple(name for name in names if name not in spans)


def _is_node(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type | Source | Span)


def _marked(value: Any, numbers: Iterator[int]) -> Any:
    """Replace each position in a node by a mark. The end of a node is numbered after the ends of its parts."""
    if isinstance(value, tuple):
        parts = [_marked(part, numbers) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not _is_node(value):
        return value
    spans, others = _fields(value)
    starts = [(name, next(numbers)) for name in spans if _would_have(value, name)]
    changed: dict[str, Any] = {}
    for name in others:
        old = getattr(value, name)
        new = _marked(old, numbers)
        if new is not old:
            changed[name] = new
    changed |= {name: Mark(start, next(numbers)) for name, start in starts}
    return replace(value, **changed) if changed else value


def _would_have(value: object, name: str) -> bool:
    """Whether a node of a text has this position. A clause has one only if it is written."""
    if not isinstance(value, PatternQuery):
        return True
    if name == "policy_span":
        return value.policy is not None or value.consume is not None
    return name != "partition_span" or bool(value.partition_by)


def _pair(marked: Any, written: Any, places: Places) -> None:
    """Record the position of each mark in the text. Both trees have the same shape."""
    if isinstance(marked, tuple) and isinstance(written, tuple):
        for one, other in zip(marked, written, strict=False):
            _pair(one, other, places)
    elif isinstance(marked, Span) and isinstance(written, Span):
        places[marked.start, marked.end] = written
    elif _is_node(marked) and type(marked) is type(written):
        spans, others = _fields(marked)
        for name in (*spans, *others):
            _pair(getattr(marked, name), getattr(written, name), places)


# --- Join several texts into one program, one below the other


def together(parts: Sequence[Statements]) -> Statements:
    """The statements of several programs in order, without a text."""
    return Statements(
        tuple(query for part in parts for query in part.statements),
        constraints=tuple(entry for part in parts for entry in part.constraints),
        ruleset=joined_rulesets(part.ruleset for part in parts),
        hierarchies=tuple(dict.fromkeys(entry for part in parts for entry in part.hierarchies)),
        states=tuple(state for part in parts for state in part.states),
        selections=tuple(dict.fromkeys(selection for part in parts for selection in part.selections)),
    )


def join_cited(parts: Sequence[Statements]) -> Statements:
    """Join the statements of several texts. Errors show the joined text under the name of the first.

    >>> from ensue.text.parser import parse_statements
    >>> joined = join_cited([parse_statements("PATTERN A a"), parse_statements("CONSTRAINT ENDS(B)")])
    >>> joined.source.text
    'PATTERN A a\\nCONSTRAINT ENDS(B)\\n'
    >>> joined.source.position(joined.constraints[0].span.start)
    (2, 1)
    """
    text, moved = "", []
    for part in parts:
        assert part.source is not None
        moved.append(_shifted(part, len(text)) if text else part)
        text += part.source.text.removesuffix("\n") + "\n"
    assert parts[0].source is not None
    return replace(together(moved), source=Source(text, parts[0].source.name))


def _shifted(value: Any, offset: int) -> Any:
    """A value with all its positions moved by `offset` characters."""
    if isinstance(value, Span):
        return Span(value.start + offset, value.end + offset)
    if isinstance(value, tuple):
        parts = [_shifted(part, offset) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not is_dataclass(value) or isinstance(value, Source | type):
        return value
    return replace(value, **{part.name: _shifted(getattr(value, part.name), offset) for part in fields(value)})
