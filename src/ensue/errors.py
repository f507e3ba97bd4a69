"""Errors that teach: what is wrong, where it stands, what would be right.

A `Problem` is one finding with a stable code; a `QueryError` carries every problem found at once.
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
    """A stretch of a source text, as character offsets: `start` inclusive, `end` exclusive."""

    start: int
    end: int

    def head(self, length: int) -> Span:
        """The first characters of it.

        >>> Span(3, 9).head(2)
        Span(start=3, end=5)
        """
        return Span(self.start, self.start + length)

    def tail(self, skipped: int, length: int) -> Span:
        """All but the characters skipped, and at least the last of this length: what is behind the dot of `a.amount`.

        >>> Span(3, 11).tail(2, 6), Span(3, 9).tail(2, 6)
        (Span(start=5, end=11), Span(start=3, end=9))
        """
        return Span(min(self.start + skipped, self.end - length), self.end)


@dataclass(frozen=True, slots=True)
class Source:
    """A query text and the name under which messages cite it."""

    text: str
    name: str = "query"

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based (line, column) of a character offset."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def place(self, span: Span | None) -> Span | None:
        """Where a place is in the text. Statements built in Python have marks for places until an error is raised."""
        return span

    def cite(self, problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], Source]:
        """The problems with their places in the text, and the text: what an error shows."""
        return tuple(problems), self

    def quote(self, span: Span | None) -> str:
        """A stretch of the text, in one line; empty without a place."""
        place = self.place(span)
        return "" if place is None else " ".join(self.text[place.start : place.end].split())


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: a stable `code`, one factual line, and where and how to mend it."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    hint: str = ""


class EnsueError(Exception):
    """The root of every error that Ensue raises on purpose."""


class EnsueWarning(UserWarning):
    """Something was set aside (rows without a time, say) and the run went on."""


class EnsueNotice(UserWarning):
    """The results are all there, but the run could be faster. No `EnsueWarning`: strict programs raise those."""


def warn(message: str, category: type[Warning] = EnsueWarning) -> None:
    """Warns at the line of the user: the nearest caller that is not part of Ensue."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "ensue":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class QueryError(EnsueError):
    """The query cannot mean anything, or not with this schema.

    `code`, `line`, `column` and `hint` are those of the first problem; `problems` holds all of them.
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
    """Errors that a query causes while it runs are shown at their place in this text."""
    try:
        yield
    except QueryError as error:
        if error.source is not None or source is None:
            raise
        raise QueryError(error.problems, source) from error


class CodedError(EnsueError):
    """An error outside of a query's text: a stable `code`, one factual line, and a `hint`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(f"error[{code}]: {message}" + (f"\nhint: {hint}" if hint else ""))


class SchemaError(CodedError):
    """The data do not have the shape that was promised: a column is missing, or has another type."""


class LimitError(CodedError):
    """A run was stopped because it would have grown beyond a limit that the user can set."""


class StateError(CodedError):
    """A saved state does not fit the query or the version that tries to read it."""


class SetupError(CodedError):
    """Something that a runtime needs is not installed on this machine, or is too old."""


def render_problem(problem: Problem, source: Source | None) -> str:
    """The text of one problem, with the line it stands on and a caret below the place."""
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
    """The candidate that `name` was probably meant to be, or None if none is as similar as `cutoff` (0 to 1).

    >>> closest("amout", ["amount", "currency"])
    'amount'
    """
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint that names the closest candidate, or an empty text."""
    candidate = closest(name, candidates)
    return f"did you mean `{candidate}`?" if candidate else ""
