"""Names in query text: which words are reserved, and when a name needs backticks."""

from __future__ import annotations

import re

from ensue.nodes.names import Handle, Name, SpokenName, Stream, quoted
from ensue.nodes.patterns import OPERATORS

RESERVED = (
    "AND", "AS", "BETWEEN", "CASE", "ELSE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "PARTITION",
    "RETURN", "THEN", "TRUE", "WHEN", "WHERE", "WITHIN",
)  # fmt: skip
"""The words that can only be names in backticks or after a dot, in any case."""

# The same test as in the grammar, by the same engine: `re.IGNORECASE` equates more letters than `str.casefold`.
_WORD = re.compile(r"[^\W\d]\w*")
_WRITTEN = re.compile(r"`(?:[^`]|``)+`|[^\W\d]\w*")
_RESERVED = re.compile("|".join(RESERVED), re.IGNORECASE)
# Words that an opening bracket turns into an operator.
_BEFORE_BRACKET = re.compile("SEQ|SAME|DISTINCT", re.IGNORECASE)
_OPERATOR = re.compile("|".join(name.rstrip("*+") for name in OPERATORS), re.IGNORECASE)
_PATTERN = re.compile("PATTERN", re.IGNORECASE)
# Words that are something else before a name or a bracket, at the beginning of an item.
_BEFORE_ITEM = re.compile("FIRST|LAST|COLLECT|ANY", re.IGNORECASE)


def is_reserved(word: str) -> bool:
    """Whether the word is a keyword wherever a name is allowed.

    >>> is_reserved("where"), is_reserved("count")
    (True, False)
    """
    return _RESERVED.fullmatch(word) is not None


def quote_name(name: str) -> str:
    """The name as query text.

    >>> quote_name("amount"), quote_name("order line"), quote_name("in")
    ('amount', '`order line`', '`in`')
    """
    if is_reserved(name) or _BEFORE_BRACKET.fullmatch(name):
        return quote_always(name)
    return quote_word(name)


def quote_stream(name: str) -> str:
    """The name of a stream as text of a pattern.

    >>> quote_stream("Transfer"), quote_stream("First")
    ('Transfer', '`First`')
    """
    return quote_always(name) if _BEFORE_ITEM.fullmatch(name) else quote_name(name)


def render_stream(stream: Stream) -> str:
    """A stream as query text. Generated streams are in backticks."""
    return quote_stream(stream) if isinstance(stream, str) else quote_always(str(stream))


def render_variable(name: Name) -> str:
    """A variable as query text. Generated variables are in backticks, except for words."""
    match name:
        case str():
            return quote_name(name)
        case Handle(stream):
            return quote_always(str(stream))
        case SpokenName():
            return str(name)
        case _:
            return quote_always(str(name))


def quote_query_name(name: str) -> str:
    """The name of a query as text after PATTERN, where a parenthesis may follow.

    >>> quote_query_name("late"), quote_query_name("next")
    ('late', '`next`')
    """
    return quote_always(name) if _OPERATOR.fullmatch(name) else quote_name(name)


def quote_table(name: str) -> str:
    """The name of a table as text after FROM, where PATTERN is a keyword.

    >>> quote_table("events"), quote_table("Pattern")
    ('events', '`Pattern`')
    """
    return quote_always(name) if _PATTERN.fullmatch(name) else quote_name(name)


def quote_word(name: str) -> str:
    """The name as text after a dot, where keywords need no backticks.

    >>> quote_word("in"), quote_word("order line")
    ('in', '`order line`')
    """
    return name if _WORD.fullmatch(name) else quote_always(name)


def unquote_name(text: str) -> str:
    """The name without its backticks.

    >>> unquote_name("`order line`")
    'order line'
    """
    return str(text[1:-1].replace("``", "`") if text.startswith("`") else text)


def read_name(text: str, start: int) -> str:
    """The name at a position of a text, with its backticks.

    >>> read_name("f(`order line`)", 2), read_name("f(x)", 0)
    ('`order line`', 'f')
    """
    found = _WRITTEN.match(text, start)
    return found[0] if found else ""


def quote_always(name: str) -> str:
    """The name in backticks.

    >>> quote_always("_")
    '`_`'
    """
    if not name:
        raise ValueError("a name must not be empty")
    return quoted(name)
