"""LIKE of SQL on Arrow text: `%` is any text, `_` any character, and a backslash quotes the next character."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ensue.expr.kinds import Kind
from ensue.expr.operators import UNKNOWN
from ensue.expr.types import arrow, convert, kind_of

_WILDCARDS = MappingProxyType({"%": ".*", "_": "."})


def is_like(text: Any, pattern: str) -> Any:
    """SQL's LIKE. Common shapes need no regular expression; the others become one that spans lines."""
    if kind_of(text.type) is Kind.NULL:
        return UNKNOWN
    parts = like_parts(pattern)
    shape = "".join(part if part in _WILDCARDS else "." for part, _ in parts)
    words = "".join(word for _, word in parts)
    match shape:
        case "" | ".":
            return arrow.equal(text, convert(pa.scalar(words), text.type))
        case ".%":
            return arrow.starts_with(text, pattern=words)
        case "%.":
            return arrow.ends_with(text, pattern=words)
        case "%.%":
            return arrow.match_substring(text, pattern=words)
        case "%":
            return arrow.match_substring(text, pattern="")
    expression = "".join(_WILDCARDS.get(part) or _quoted(word) for part, word in parts)
    return arrow.match_substring_regex(text, pattern=rf"(?s)\A{expression}\z")


def like_parts(pattern: str) -> list[tuple[str, str]]:
    r"""A LIKE pattern as ("%", ""), ("_", "") and ("text", word) in order.

    >>> like_parts(r"a\%b_%")
    [('text', 'a%b'), ('_', ''), ('%', '')]
    """
    parts: list[tuple[str, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character in _WILDCARDS:
            if not (character == "%" and parts and parts[-1][0] == "%"):
                parts.append((character, ""))
            continue
        plain = next(characters, "\\") if character == "\\" else character
        if parts and parts[-1][0] == "text":
            plain = parts.pop()[1] + plain
        parts.append(("text", plain))
    return parts


def _quoted(word: str) -> str:
    # RE2 takes no backslash before letters of other scripts, and none are special there.
    return "".join(
        character if character.isalnum() or ord(character) > 127 else rf"\x{{{ord(character):x}}}" for character in word
    )
