"""Parse query text into nodes. Text that is not a query raises a `QueryError` with a position.

The parser's tables are built from the grammar once and cached on disk.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lark
from lark import Lark, Token, Tree, UnexpectedInput

from ensue.errors import Problem, QueryError, Source
from ensue.nodes.expressions import Expr
from ensue.nodes.patterns import Pattern, Return, Statements, Window
from ensue.nodes.rules import Item
from ensue.nodes.states import Drift, Measure, Response, StateCondition
from ensue.text.builder import Builder
from ensue.text.rule_builder import NamedArgument

FILE_NAME = re.compile(r"[^\n(){}=;]+\.ensue|[^\s(){}=;,]*[./\\][^\s(){}=;,]+")
"""Text that is probably the name of a file, if it is not a query."""

# --- Parser tables, cached on disk like Python's bytecode

GRAMMAR = Path(__file__).with_name("grammar.lark")
NAME = f"grammar.{sys.implementation.cache_tag}.tables"
_UNREADABLE = (OSError, EOFError, pickle.UnpicklingError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that loading a truncated or foreign file can raise."""


def load_parser(starts: Sequence[str]) -> Lark:
    """The parser of the grammar. Uses cached tables if possible."""
    grammar = GRAMMAR.read_text(encoding="utf-8")
    made_of = "\n".join((grammar, *starts, lark.__version__, sys.version))
    folders = _folders()
    for folder in folders:
        if (parser := _read(folder / NAME, made_of)) is not None:
            return parser
    parser = Lark(grammar, parser="lalr", lexer="contextual", start=list(starts), propagate_positions=True)
    _keep(parser, made_of, folders[1:] if sys.dont_write_bytecode else folders)
    return parser


def _folders() -> list[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [GRAMMAR.parent / "__pycache__", *([Path(home, "ensue")] if os.path.isabs(home) else [])]


def _is_private(path: Path) -> bool:
    """Whether only the user or root can write to a folder or a file: loading a pickle runs code."""
    if os.name == "nt":
        return True
    entry = path.stat()
    return entry.st_uid in (0, os.getuid()) and not entry.st_mode & 0o022


def _read(path: Path, made_of: str) -> Lark | None:
    try:
        if not _is_private(path.parent) or not _is_private(path):
            return None
        with path.open("rb") as file:
            return Lark.load(file) if pickle.load(file) == made_of else None
    except _UNREADABLE:
        return None


def _keep(parser: Lark, made_of: str, folders: Sequence[Path]) -> None:
    """Write the tables to the first writable folder. The write is atomic."""
    content = io.BytesIO()
    pickle.dump(made_of, content)
    parser.save(content)
    for folder in folders:
        own = folder / f"{NAME}.{os.getpid()}"
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not _is_private(folder):
                continue
            own.write_bytes(content.getvalue())
            own.chmod(0o644)
            own.replace(folder / NAME)
        except OSError:
            with suppress(OSError):
                own.unlink()
            continue
        return


# --- Parse functions

NO_FUNCTIONS: Mapping[str, object] = MappingProxyType({})

_STARTS = (
    "statements", "pattern", "expression", "window", "returns", "rule_items", "given_argument", "measure",
    "state_condition", "response", "drift",
)  # fmt: skip


def parse_statements(text: str, name: str = "query", functions: Mapping[str, object] = NO_FUNCTIONS) -> Statements:
    """Parse statements separated by `;`. Error messages show the text under `name`.

    `functions` are the functions of the user by name. A call without its function is an error of the checker.

    >>> parse_statements("PATTERN SEQ(A a, B b) WITHIN 5").statements[0].within
    Ticks(count=5)
    """
    statements: Statements = _parse(text, "statements", name, functions)
    return statements


def file_statements(path: Path, name: str | None = None, functions: Mapping[str, object] = NO_FUNCTIONS) -> Statements:
    """Parse the statements of a file. Error messages show the file name, or `name`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
        raise QueryError([Problem("query-file", f"cannot read `{path}`: {reason}")]) from error
    return parse_statements(text, name or path.name, functions)


def parse_pattern(text: str) -> Pattern:
    """Parse one pattern. WITHIN is part of the pattern.

    >>> parse_pattern("A a WITHIN 5")
    Within(item=Event(stream='A', variable='a', predicate=None), window=Ticks(count=5), reach=None)
    """
    pattern: Pattern = _parse(text, "pattern", "pattern")
    return pattern


def parse_expression(text: str) -> Expr:
    """Parse one condition or value.

    >>> parse_expression("a.amount > 5")
    Binary(operator='>', left=Field(variable='a', name='amount'), right=Literal(value=5))
    """
    expression: Expr = _parse(text, "expression", "expression")
    return expression


def parse_window(text: str) -> Window:
    """Parse the window after WITHIN.

    >>> parse_window("1h 30m"), parse_window("100"), parse_window("100 events")
    (Duration(nanoseconds=5400000000000), Ticks(count=100), Events(count=100))
    """
    window: Window = _parse(text, "window", "window")
    return window


def parse_returns(text: str) -> tuple[Return, ...]:
    """Parse the columns after RETURN.

    >>> parse_returns("a.id AS id")
    (Return(expression=Field(variable='a', name='id'), alias='id'),)
    """
    columns: tuple[Return, ...] = _parse(text, "returns", "columns")
    return columns


def parse_items(text: str) -> tuple[Item, ...]:
    """Parse the items of the body of a rule.

    >>> parse_items("o before s, q < 10")[0]
    Temporal(left='o', relation='before', right='s')
    """
    items: tuple[Item, ...] = _parse(text, "rule_items", "items")
    return items


def parse_argument(text: str) -> NamedArgument:
    """Parse one argument of the head of a rule or of an action.

    >>> parse_argument("total = sum(q)")[:2]
    (Call(name='sum', arguments=(Field(variable=None, name='q'),)), 'total')
    """
    argument: NamedArgument = _parse(text, "given_argument", "argument")
    return argument


def parse_measure(text: str) -> Measure:
    """Parse a question about a state whose answer is one value per key.

    >>> parse_measure("most likely(alice)")
    MostLikely(variable=Constant(name='alice'))
    """
    measure: Measure = _parse(text, "measure", "question")
    return measure


def parse_state_condition(text: str) -> StateCondition:
    """Parse a condition on a state.

    >>> parse_state_condition("anyone in kitchen")
    Location(who=Someone(word='anyone'), places=Places(values=('kitchen',), negated=False))
    """
    condition: StateCondition = _parse(text, "state_condition", "condition")
    return condition


def parse_response(text: str) -> Response:
    """Parse how an event changes a state.

    >>> parse_response("ON M m: MOVE a TO x").stream
    'M'
    """
    response: Response = _parse(text, "response", "change")
    return response


def parse_drift(text: str) -> Drift:
    """Parse how the passing of time changes a state.

    >>> parse_drift("EVERY 5 MOVE BY (x -> y 0.5)").window
    Ticks(count=5)
    """
    drift: Drift = _parse(text, "drift", "drift")
    return drift


def _parse(text: str, start: str, name: str, functions: Mapping[str, object] = NO_FUNCTIONS) -> Any:
    """The value of a text. Raises all problems at once."""
    source = Source(text, name)
    try:
        tree: Tree[Token] = _parser().parse(text, start=start)
    except UnexpectedInput as unexpected:
        from ensue.text.syntax_errors import explain_syntax

        if start == "statements" and FILE_NAME.fullmatch(text):
            said, hint = f"`{text}` looks like a file name, not a query", f'pass `pathlib.Path("{text}")`'
            raise QueryError([Problem("file-name", said, hint=hint)]) from None
        raise explain_syntax(unexpected, source, start) from None
    builder = Builder(source, functions)
    value = builder.build(tree)
    if builder.problems:
        problems = sorted(builder.problems, key=lambda problem: problem.span.start if problem.span else 0)
        raise QueryError(problems, source)
    return value


@cache
def _parser() -> Lark:
    return load_parser(_STARTS)
