"""Error classes, and how a message is rendered: what is wrong, where, and how to fix it.

A `Problem` is one finding with a stable code. A `QueryError` carries all problems of a query.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters in a source text: `start` is inclusive, `end` is exclusive."""

    start: int
    end: int

    def head(self, length: int) -> Span:
        """The first `length` characters of the span.

        >>> Span(3, 9).head(2)
        Span(start=3, end=5)
        """
        return Span(self.start, self.start + length)

    def tail(self, skipped: int, length: int) -> Span:
        """The span without its first `skipped` characters, but at least its last `length`: `amount` in `a.amount`.

        >>> Span(3, 11).tail(2, 6), Span(3, 9).tail(2, 6)
        (Span(start=5, end=11), Span(start=3, end=9))
        """
        return Span(min(self.start + skipped, self.end - length), self.end)


@dataclass(frozen=True, slots=True)
class Source:
    """A query text and the name that error messages show for it."""

    text: str
    name: str = "query"

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based (line, column) of a character offset."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def place(self, span: Span | None) -> Span | None:
        """The position of a span in the text. Statements built in Python have marks until an error is raised."""
        return span

    def cite(self, problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], Source]:
        """The problems with their positions in the text, and the text itself."""
        return tuple(problems), self

    def quote(self, span: Span | None) -> str:
        """The text of a span on one line; empty if the span has no position."""
        place = self.place(span)
        return "" if place is None else " ".join(self.text[place.start : place.end].split())


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: a stable `code`, one factual line, its position, and a hint that says how to fix it."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    hint: str = ""


class EnsueError(Exception):
    """Base class of all errors that Ensue raises."""


class EnsueWarning(UserWarning):
    """Some input was ignored, for example rows without a timestamp. The run continues."""


class EnsueNotice(UserWarning):
    """The results are complete, but the run could be faster, or the user may have expected another result.

    This is not an `EnsueWarning`, so programs that turn those into errors continue.
    """


def warn(message: str, category: type[Warning] = EnsueWarning) -> None:
    """Emit a warning that points at the user's line: the nearest caller outside Ensue and its decorators."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("ensue", "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class QueryError(EnsueError):
    """The query is not well-formed, or does not fit the schema of the events.

    `code`, `line`, `column` and `hint` describe the first problem; `problems` contains all of them.
    """

    def __init__(self, problems: Sequence[Problem], source: Source | None = None) -> None:
        self.problems, self.source = tuple(problems), source
        if source is not None:
            self.problems, self.source = source.cite(problems)
        first = self.problems[0]
        self.code = first.code
        self.hint = first.hint
        self.line: int | None = None
        self.column: int | None = None
        if self.source is not None and first.span is not None:
            self.line, self.column = self.source.position(first.span.start)
        super().__init__("\n\n".join(render_problem(problem, self.source) for problem in self.problems))


@contextmanager
def citing(source: Source | None) -> Iterator[None]:
    """Show the query errors of a run at their position in this source."""
    try:
        yield
    except QueryError as error:
        if error.source is not None or source is None:
            raise
        raise QueryError(error.problems, source) from error


class CodedError(EnsueError):
    """An error that is not in the text of a query: a stable `code`, one factual line, and a `hint`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else ""))


class SchemaError(CodedError):
    """The events do not have the expected schema: a column is missing or has another type."""

    @classmethod
    def of(cls, problem: Problem) -> SchemaError:
        """The error for a problem that no text caused."""
        return cls(problem.code, problem.message, problem.hint)


class LimitError(CodedError):
    """A run was stopped because it exceeded a limit. The user can change the limit."""


class StateError(CodedError):
    """A saved state does not match the query or the version of Ensue that reads it."""


class SetupError(CodedError):
    """A requirement of a runtime is not installed on this machine, or is too old."""


def render_problem(problem: Problem, source: Source | None) -> str:
    """The text of one problem, with its line of the source and carets below its position."""
    lines = [f"error[{problem.code}]: {problem.message}"]
    if source is not None and problem.span is not None:
        line, column = source.position(problem.span.start)
        text = source.text.split("\n")[line - 1]
        width = max(1, min(problem.span.end, problem.span.start + len(text) - column + 1) - problem.span.start)
        gutter = " " * len(str(line))
        label = f" {problem.label}" if problem.label else ""
        lines += [
            f"{gutter}--> {source.name}:{line}:{column}",
            f"{gutter} |",
            f"{line} | {text}",
            f"{gutter} | {' ' * (column - 1)}{'^' * width}{label}",
        ]
    elif problem.label:
        lines.append(f"  {problem.label}")
    if problem.hint:
        lines.append(f"hint: {problem.hint}")
    return "\n".join(lines)


def counted(number: int, singular: str, plural: str) -> str:
    """A number with its noun.

    >>> counted(1, "row", "rows"), counted(2500, "row", "rows")
    ('1 row', '2,500 rows')
    """
    return f"{number:,} {singular if number == 1 else plural}"


def closest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar candidate to `name`, or None if none reaches the similarity `cutoff` (0 to 1).

    >>> closest("amout", ["amount", "currency"])
    'amount'
    """
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint with the closest candidate, or an empty text."""
    candidate = closest(name, candidates)
    return f"did you mean `{candidate}`?" if candidate else ""
