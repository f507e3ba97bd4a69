"""Format a program. Comments and the order of the statements are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ensue.errors import Span
from ensue.nodes.patterns import Statements
from ensue.nodes.rules import Ruleset
from ensue.text.parser import parse_statements
from ensue.text.render import render_constraint_statement, render_hierarchy, render_query, render_selection
from ensue.text.render_parts import render_action, render_fact, render_rule, render_state, render_stream, render_table

_PARTS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|(?P<comment>--[^\n]*)|(?P<semicolon>;)|(?P<lines>\n)|[^\S\n]+|."
)
"""Quoted text and quoted names are single parts, so that `--` and `;` inside them are ignored."""


@dataclass(frozen=True, slots=True)
class _Statement:
    span: Span
    rendered: str


def format_text(text: str, name: str = "query") -> str:
    """Format a program. The result has the same meaning and the same comments in the same order.

    Comments before, after and between statements stay where they are. A statement with a comment inside is not
    formatted.

    >>> print(format_text("-- pairs\\npattern p seq(A a,B b) within 60 min;   -- of one hour"), end="")
    -- pairs
    PATTERN p
      SEQ(A a, B b)
      WITHIN 1h; -- of one hour
    """
    parsed = parse_statements(text, name)
    formatted = "".join(_pieces(text, sorted(_statements(parsed), key=lambda item: item.span.start)))
    # A bug in this module must not damage a file.
    assert parse_statements(formatted, name) == parsed, "formatting changed the meaning of the program"
    assert _comments(formatted) == _comments(text), "a comment was lost"
    return formatted


def _statements(parsed: Statements) -> Iterator[_Statement]:
    ruleset = parsed.ruleset or Ruleset()
    written = [
        *((query.span, render_query(query)) for query in parsed.statements),
        *((entry.span, render_constraint_statement(entry)) for entry in parsed.constraints),
        *((rule.span, render_rule(rule)) for rule in ruleset.rules),
        *((fact.span, render_fact(fact)) for fact in ruleset.facts),
        *((table.span, render_table(table)) for table in ruleset.tables),
        *((stream.span, render_stream(stream)) for stream in ruleset.streams),
        *((action.span, render_action(action)) for action in ruleset.actions),
        *((levels.span, render_hierarchy(levels)) for levels in parsed.hierarchies),
        *((state.span, render_state(state)) for state in parsed.states),
        *((selection.span, render_selection(selection)) for selection in parsed.selections),
    ]
    for span, rendered in written:
        assert span is not None, "a parsed statement has a position"
        yield _Statement(span, rendered)


def _comments(text: str) -> list[str]:
    return [found["comment"].rstrip() for found in _PARTS.finditer(text) if found["comment"] is not None]


def _pieces(text: str, statements: list[_Statement]) -> Iterator[str]:
    """The statements and the text between them."""
    end = 0
    for place, statement in enumerate(statements):
        between = text[end : statement.span.start]
        yield _between(between, first=place == 0)
        written = text[statement.span.start : statement.span.end]
        yield (written.rstrip() if _comments(written) else statement.rendered) + ";"
        end = statement.span.end
    yield _between(text[end:], first=False).rstrip() + "\n"


def _between(text: str, first: bool) -> str:
    """The comments between two statements, with at most one blank line in a row.

    A comment on the last line of the first statement stays on that line.
    """
    lines: list[list[str]] = [[]]
    for found in _PARTS.finditer(text):
        if found["lines"] is not None:
            lines.append([])
        elif found["comment"] is not None:
            lines[-1].append(found["comment"].rstrip())
    behind = "" if first or not lines[0] else f" {' '.join(lines[0])}"
    own = [" ".join(line) for line in (lines if first else lines[1:])]
    # The last one is the line on which the next statement begins.
    kept = _without_gaps(own[:-1] if own else own)
    if own and own[-1]:
        kept.append(own[-1])
    while first and kept and not kept[0]:
        kept.pop(0)
    return behind + ("" if first else "\n") + "".join(f"{line}\n" for line in kept)


def _without_gaps(lines: list[str]) -> list[str]:
    return [line for place, line in enumerate(lines) if line or (place == 0 or lines[place - 1])]
