"""Hints for what is right elsewhere: in SQL, in regular expressions, in plain speech."""

from __future__ import annotations

import re
from collections.abc import Callable

from ensue.text.hints import CLAUSES, Lexeme, Slip, item_of
from ensue.text.reserved import quote_name
from ensue.text.values import UNITS

_OPERATORS = {"AND": "AND", "OR": "OR", "THEN": "SEQ", "->": "SEQ", ",": "SEQ"}
_SQL = {
    "GROUP": "group the resulting table instead",
    "HAVING": "filter the resulting table instead",
    "ORDER": "sort the resulting table instead",
    "LIMIT": "take the first rows of the resulting table instead",
    "DISTINCT": "remove duplicates from the resulting table instead",
    "SELECT": "columns are named with RETURN; anything further is done on the resulting table",
    "MEASURES": "columns are named with RETURN",
    "DEFINE": "conditions stand in brackets behind an event, or in WHERE",
    "FROM": "streams are named in the pattern; anything further is done on the resulting table",
}
_FOLLOWERS = {"GROUP": "BY", "ORDER": "BY", "LIMIT": "[0-9]+", "DISTINCT": r"[^\W\d]\w*"}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:\s*([a-z]+))?", re.IGNORECASE)


def _infix_pattern(slip: Slip) -> str:
    """`A a AND B b` is AND(A a, B b), and `A a -> B b` is SEQ(A a, B b)."""
    # After a name that could be the query's, AND and OR are read as the start of its pattern.
    if slip.accepted == {"_LPAR"} and slip.before and slip.found:
        *before, operator = slip.before
        slip = Slip(slip.source, slip.start, frozenset({"_AS"}), tuple(before), operator, (slip.found, *slip.after))
    if not slip.after_pattern or slip.word not in _OPERATORS or (slip.word == "," and "_COMMA" in slip.accepted):
        return ""
    items = [_without_query_name(slip.item_before()), *_items_after(slip)]
    if not all(items) or len(items) < 2:
        return ""
    operator_name, listed = _OPERATORS[slip.word], ", ".join(slip.quote(item) for item in items)
    bracket = slip.open_bracket()
    if operator_name == "SEQ" and bracket and slip.before[slip.before.index(bracket) - 1].text.upper() == "SEQ":
        return "items of SEQ are separated with `,`"
    any_order = f", or `AND({listed})` for any order" if slip.word == "," else ""
    return f"write `{operator_name}({listed})`{any_order}"


def _items_after(slip: Slip) -> list[tuple[Lexeme, ...]]:
    items: list[tuple[Lexeme, ...]] = []
    rest = slip.after
    while True:
        item = item_of(rest, (*_OPERATORS, *CLAUSES, ";"))
        items.append(item)
        rest = rest[len(item) :]
        if not item or not rest or rest[0].text.upper() != slip.word:
            return items
        rest = rest[1:]


def _without_query_name(item: tuple[Lexeme, ...]) -> tuple[Lexeme, ...]:
    words = [lexeme.text.upper() for lexeme in item[:2]]
    starts = ("SEQ", "AND", "OR", "NOT", "(")
    return item[1:] if len(words) == 2 and words[0] not in starts and words[1] in starts else item


def _comma(slip: Slip) -> str:
    if slip.word != "," or "_COMMA" in slip.accepted:
        return ""
    if slip.after and slip.after[0].text.upper() in CLAUSES:
        return "remove the `,`"
    return "join conditions with AND" if "_OR" in slip.accepted and "_SEQ" not in slip.accepted else ""


def _quoted_name(slip: Slip) -> str:
    if slip.found is None or "QUOTED" not in slip.accepted or "STRING" in slip.accepted:
        return ""
    quote, content = slip.found.text[0], slip.found.text[1:-1]
    if quote not in "'\"" or not content:
        return ""
    return f"quotes are for texts; as a name, write {quote_name(content.replace(quote * 2, quote))}"


def _star(slip: Slip) -> str:
    if slip.word != "*" or not (slip.clause == "RETURN" or slip.start == "returns"):
        return ""
    if slip.previous_word in ("RETURN", ",", ".", ""):
        return "leave RETURN out to get whole events"
    return ""


def _star_of_call(slip: Slip) -> str:
    if slip.word != "*" or [lexeme.text for lexeme in slip.before[-1:]] != ["("] or "INTEGER" not in slip.accepted:
        return ""
    return "`count(t)` counts the events of a repetition; matches are counted in the resulting table, a row for each"


def _sql_clause(slip: Slip) -> str:
    if "_PARTITION" not in slip.accepted or slip.found is None:
        return ""
    if slip.word in _SQL:
        return _SQL[slip.word]
    # `PATTERN A LIMIT 5` reads LIMIT as a variable, and `RETURN DISTINCT a.x` reads DISTINCT as a field.
    follower = _FOLLOWERS.get(slip.previous_word)
    return _SQL[slip.previous_word] if follower and re.fullmatch(follower, slip.word) else ""


def _quoted_time(slip: Slip) -> str:
    """`WITHIN '10 seconds'` and `INTERVAL '10' SECOND` are 10 seconds."""
    # The words before, at and after the slip; the first is WITHIN, INTERVAL or, in a window of its own, the text.
    lexemes = [lexeme for lexeme in (slip.previous, slip.found, *slip.after[:2]) if lexeme]
    words = [lexeme.text.strip("'") for lexeme in lexemes]
    clause = "WITHIN " if words[0].upper() == "WITHIN" else ""
    argument = {"INTEGER", "_SEQ"} <= slip.accepted
    words = words[1:] if clause or argument else words
    interval = words[:1] and words[0].upper() == "INTERVAL"
    if not interval and not (slip.word.startswith("'") and (clause or argument or slip.start == "window")):
        return ""
    time = _TIME.match(" ".join(words[1:] if interval else words))
    if time is None:
        return "for example `WITHIN 10 seconds`" if clause else ""
    unit = (time[2] or "").lower()
    plural = "s" if time[1] != "1" and f"{unit}s" in UNITS and len(unit) > 2 else ""
    return f"write `{clause}{time[1]} {unit}{plural}`" if unit in UNITS else f"write `{clause}{time[1]}`"


HABITS: tuple[Callable[[Slip], str], ...] = (
    _infix_pattern,
    _comma,
    _star,
    _star_of_call,
    _sql_clause,
    _quoted_time,
    _quoted_name,
)
