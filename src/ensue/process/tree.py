"""Process trees: the parsed form of a workflow text, and how it is written as text.

| form | runs | precedence |
| --- | --- | --- |
| `A` or `` `any name` `` | the task | |
| `x+`, `x*` | `x` one or more times, zero or more times; each time after the time before | highest |
| `x -> y -> z` | one after the other | next |
| `x \\| y \\| z` | exactly one of them | lowest |
| `{x, y, z}` | all of them, in any order and interleaved | brackets |
| `[x]` | `x` or nothing | brackets |
| `(x)` | `x`; groups | brackets |
| `-- ...` | nothing: a comment up to the end of the line | |

So `A -> B | C` is `(A -> B) | C`, and `A -> B+` repeats `B` alone. Forms nest up to `MAXIMAL_DEPTH` levels deep. A task
may occur several times: it is the same event each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree, UnexpectedInput
from lark.visitors import Transformer_NonRecursive

from ensue.errors import Problem, QueryError, Source, Span
from ensue.text.reserved_words import quote_word, unquote_name

MAXIMAL_DEPTH = 50
"""The maximum nesting depth of brackets in a workflow."""


@dataclass(frozen=True, slots=True)
class Task:
    """`A`: one event."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """`x -> y`: one after the other."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`x | y`: exactly one of them."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """`{x, y}`: all of them, interleaved."""

    items: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`x+`, or `x*` if it is optional."""

    item: Process
    optional: bool


@dataclass(frozen=True, slots=True)
class Maybe:
    """`[x]`: `x` or nothing."""

    item: Process


Process = Task | Sequence | Choice | Parallel | Repeat | Maybe


def sequence(*items: Process) -> Process:
    """`x -> (y -> z) = x -> y -> z`; a sequence of one item is that item."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Sequence) else (item,)))
    return Sequence(flat) if len(flat) > 1 else flat[0]


def choice(*items: Process) -> Process:
    """`x | (y | z) = x | y | z`; a choice of one item is that item."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Choice) else (item,)))
    return Choice(flat) if len(flat) > 1 else flat[0]


def parallel(*items: Process) -> Process:
    """`{x, {y, z}} = {x, y, z}`; a parallel block of one item is that item."""
    flat = tuple(part for item in items for part in (item.items if isinstance(item, Parallel) else (item,)))
    return Parallel(flat) if len(flat) > 1 else flat[0]


def task_names(process: Process) -> Iterator[str]:
    """Yield the task of every leaf, from left to right.

    >>> list(task_names(sequence(Task("A"), choice(Task("B"), Task("A")))))
    ['A', 'B', 'A']
    """
    match process:
        case Task(name):
            yield name
        case Repeat(item) | Maybe(item):
            yield from task_names(item)
        case _:
            for item in process.items:
                yield from task_names(item)


def render_process(process: Process) -> str:
    """Return the text that parses back to this process.

    >>> render_process(sequence(Task("A"), Repeat(choice(Task("B"), Task("order line")), optional=False)))
    'A -> (B | `order line`)+'
    """
    match process:
        case Task(name):
            return quote_word(name)
        case Sequence(items):
            return " -> ".join(_grouped(item, Choice) for item in items)
        case Choice(items):
            return " | ".join(map(render_process, items))
        case Parallel(items):
            return "{" + ", ".join(map(render_process, items)) + "}"
        case Repeat(item, optional):
            return _grouped(item, Choice, Sequence, Repeat) + ("*" if optional else "+")
        case Maybe(item):
            return f"[{render_process(item)}]"


def _grouped(process: Process, *looser: type[Process]) -> str:
    text = render_process(process)
    return f"({text})" if isinstance(process, looser) else text


# --- parsing a workflow, or a `QueryError` with a position

_LEXEME = re.compile(r"(?P<blank>\s+|--(?!>)[^\n]*)|`(?:[^`]|``)+`|\w+|-->|->|=>|\|\||&&|.", re.DOTALL)
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}
_WORDS = {
    "_ARROW": "`->`", "_BAR": "`|`", "PLUS": "`+`", "STAR": "`*`", "_COMMA": "`,`", "_RPAR": "`)`", "_RBRACE": "`}`",
    "_RSQB": "`]`", "$END": "the end of the text",
}  # fmt: skip
_HABITS = {
    "-->": "write an arrow as `->`; `--` starts a comment",
    "=>": "write an arrow as `->`", "→": "write an arrow as `->`", ">": "write an arrow as `->`",
    "-": "write an arrow as `->`",
    ";": "separate tasks with `->`", "||": "write a choice as `A | B`, parallel tasks as `{A, B}`",
    "&": "write parallel tasks as `{A, B}`", "&&": "write parallel tasks as `{A, B}`",
    "?": "write an optional task as `[A]`",
    "+": "write `+` or `*` once, after a task or a bracket", "*": "write `+` or `*` once, after a task or a bracket",
    "`": "close the name with a backtick; double a backtick inside a name",
    '"': "quote names in backticks", "'": "quote names in backticks",
}  # fmt: skip


def parse_process(text: str, name: str = "workflow") -> Process:
    """Parse a workflow. Messages cite the text as `name`.

    >>> parse_process("A -> [B]")
    Sequence(items=(Task(name='A'), Maybe(item=Task(name='B'))))
    """
    source = Source(text, name)
    _check_depth(source)
    try:
        tree: Tree[Token] = _parser().parse(text)
    except UnexpectedInput as unexpected:
        raise QueryError([_explain(unexpected, source)], source) from None
    return _Builder().transform(tree)


@cache
def _parser() -> Lark:
    grammar = files("ensue.process").joinpath("notation.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=False)


class _Builder(Transformer_NonRecursive[Token, Process]):
    """Builds the process, with one method for each rule of the grammar."""

    def start(self, items: list[Process]) -> Process:
        return items[0]

    def task(self, items: list[Token]) -> Process:
        return Task(unquote_name(items[0]))

    def sequence(self, items: list[Process]) -> Process:
        return sequence(*items)

    def choice(self, items: list[Process]) -> Process:
        return choice(*items)

    def parallel(self, items: list[Process]) -> Process:
        return parallel(*items)

    def group(self, items: list[Process]) -> Process:
        return items[0]

    def maybe(self, items: list[Process]) -> Process:
        return Maybe(items[0])

    def one_or_more(self, items: list[Process]) -> Process:
        return Repeat(items[0], optional=False)

    def zero_or_more(self, items: list[Process]) -> Process:
        return Repeat(items[0], optional=True)


def _lexemes(text: str) -> list[re.Match[str]]:
    return [found for found in _LEXEME.finditer(text) if found["blank"] is None]


def _check_depth(source: Source) -> None:
    depth = 0
    for found in _lexemes(source.text):
        depth += (found[0] in _CLOSING) - (found[0] in _OPENING)
        if depth > MAXIMAL_DEPTH:
            message = f"the workflow is nested more than {MAXIMAL_DEPTH} levels deep"
            hint = "remove brackets that only group"
            raise QueryError([Problem("too-deep", message, Span(*found.span()), hint=hint)], source)


def _explain(unexpected: UnexpectedInput, source: Source) -> Problem:
    lexemes = _lexemes(source.text)
    if not lexemes:
        return Problem(
            "empty-workflow", "the text contains no workflow", Span(0, 0), hint="for example: `A -> (B | C)`"
        )
    token = getattr(unexpected, "token", None)
    at_end = token is not None and token.type == "$END"
    offset = len(source.text) if at_end else unexpected.pos_in_stream or 0
    before = [found for found in lexemes if found.end() <= offset]
    found = next((found for found in lexemes if found.end() > offset), None)
    after = f" after `{before[-1][0]}`" if before else ""
    span = Span(*found.span()) if found else Span(before[-1].end(), before[-1].end())
    word = f"`{found[0]}`" if found else "the end of the text"
    message = f"expected {_expectation(unexpected)}{after}, found {word}"
    return Problem("syntax", message, span, hint=_hint(before, found[0] if found else "", source))


def _expectation(unexpected: UnexpectedInput) -> str:
    accepts: Callable[[], set[str]] = unexpected.interactive_parser.accepts
    accepted = accepts()
    if "NAME" in accepted:
        return "a task or a bracket"
    words = [word for terminal, word in _WORDS.items() if terminal in accepted]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _hint(before: list[re.Match[str]], found: str, source: Source) -> str:
    if found in _HABITS:
        return _HABITS[found]
    if before and _CLOSING.get(before[-1][0]) == found:
        return "put at least one task in the brackets"
    opened = _open_bracket(before)
    if found in _OPENING and opened is None:
        return f"remove it; no `{_OPENING[found]}` is open here"
    if opened is not None and (not found or found in _OPENING):
        line, column = source.position(opened.start())
        return f"close the `{opened[0]}` at line {line}, column {column}"
    if found == ",":
        return "use `,` only between parallel tasks, inside `{` and `}`"
    if before and _is_word(before[-1][0]) and _is_word(found):
        return "separate tasks with `->`; quote names with spaces in backticks"
    return "quote names that start with a digit in backticks" if found[:1].isdigit() else ""


def _is_word(lexeme: str) -> bool:
    return lexeme.isidentifier() or lexeme.startswith("`")


def _open_bracket(before: list[re.Match[str]]) -> re.Match[str] | None:
    opened: list[re.Match[str]] = []
    for found in before:
        if found[0] in _CLOSING:
            opened.append(found)
        elif found[0] in _OPENING and opened:
            opened.pop()
    return opened[-1] if opened else None
