"""Several texts as one program. Each keeps its places, which become places of the texts one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ensue.algebra.nodes import Statements
from ensue.errors import Source, Span
from ensue.lang.rules import joined_rulesets


def together(parts: Sequence[Statements]) -> Statements:
    """The statements of several programs in order, without a text of their own."""
    return Statements(
        tuple(query for part in parts for query in part.statements),
        constraints=tuple(entry for part in parts for entry in part.constraints),
        ruleset=joined_rulesets(part.ruleset for part in parts),
        hierarchies=tuple(dict.fromkeys(entry for part in parts for entry in part.hierarchies)),
        states=tuple(state for part in parts for state in part.states),
    )


def join_cited(parts: Sequence[Statements]) -> Statements:
    """The statements of several texts, cited from all of them under the name of the first.

    >>> from ensue.lang.parser import parse_statements
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
    """A value with every place in it so many characters further on."""
    if isinstance(value, Span):
        return Span(value.start + offset, value.end + offset)
    if isinstance(value, tuple):
        parts = [_shifted(part, offset) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not is_dataclass(value) or isinstance(value, Source | type):
        return value
    return replace(value, **{part.name: _shifted(getattr(value, part.name), offset) for part in fields(value)})
