"""Hints for syntax errors: the tokens around the error, and functions that recognize common mistakes.

The hints cover habits from SQL and other systems, constraints, operators, repetitions, policies and declared streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from ensue.errors import QueryError, Source, closest
from ensue.nodes.patterns import OPERATORS
from ensue.text.operands import FORMS, REPETITIONS, foreign_policy, operator_form
from ensue.text.reserved_words import is_reserved, quote_name
from ensue.text.values import UNITS, shorten

CLAUSES = ("WHERE", "PARTITION", "WITHIN", "MATCH", "CONSUME", "SHARE", "HAVING", "SUPPRESS", "RETURN")


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word, number, quoted text or symbol of the source, independent of the grammar."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Slip:
    """A syntax error: the tokens before it, the token found, and the accepted tokens."""

    source: Source
    start: str
    accepted: frozenset[str]
    before: tuple[Lexeme, ...]
    found: Lexeme | None
    after: tuple[Lexeme, ...]

    @property
    def previous(self) -> Lexeme | None:
        return self.before[-1] if self.before else None

    @property
    def word(self) -> str:
        return self.found.text.upper() if self.found else ""

    @property
    def previous_word(self) -> str:
        return self.previous.text.upper() if self.previous else ""

    def quote(self, lexemes: tuple[Lexeme, ...]) -> str:
        """The text of adjacent lexemes on one line, shortened if it is long."""
        return shorten(" ".join(self.source.text[lexemes[0].start : lexemes[-1].end].split()))

    def open_bracket(self) -> Lexeme | None:
        """The innermost bracket that is still open."""
        opened: list[Lexeme] = []
        for lexeme in self.before:
            if lexeme.text in ("(", "["):
                opened.append(lexeme)
            elif lexeme.text in (")", "]") and opened:
                opened.pop()
        return opened[-1] if opened else None

    @property
    def statement(self) -> tuple[Lexeme, ...]:
        """The part of the statement before the error."""
        return tuple(reversed(tuple(takewhile(lambda lexeme: lexeme.text != ";", reversed(self.before)))))

    @property
    def clause(self) -> str:
        """The first word of the current clause; empty before the first clause."""
        words = (lexeme.text.upper() for lexeme in reversed(self.before))
        return next((word for word in words if word in (*CLAUSES, "PATTERN", ";")), "")

    @property
    def after_pattern(self) -> bool:
        """Whether a pattern could end here: AS may follow, and an operator only after the name of a query."""
        if self.start == "pattern" and self.accepted == {"$END"}:
            return True
        return "_AS" in self.accepted and ("_OR" not in self.accepted or "_SEQ" in self.accepted)

    @property
    def after_constraint(self) -> bool:
        """Whether a constraint could end here."""
        return self.in_constraint and "_SEMICOLON" in self.accepted

    @property
    def in_constraint(self) -> bool:
        return [lexeme.text.upper() for lexeme in self.statement[:1]] == ["CONSTRAINT"]

    def item_before(self) -> tuple[Lexeme, ...]:
        """The tokens before the error, back to the last PATTERN, arrow, comma or enclosing bracket."""
        ends = ("PATTERN", ";", ",", "<-", ":-")
        return tuple(reversed(_until(reversed(self.before), ends, opening=")]", closing="([")))


def item_of(lexemes: Iterable[Lexeme], ends: tuple[str, ...]) -> tuple[Lexeme, ...]:
    """The lexemes up to one of `ends` or to the closing bracket around them."""
    return _until(lexemes, ends, opening="([", closing=")]")


def _until(lexemes: Iterable[Lexeme], ends: tuple[str, ...], *, opening: str, closing: str) -> tuple[Lexeme, ...]:
    taken: list[Lexeme] = []
    depth = 0
    for lexeme in lexemes:
        if depth == 0 and (lexeme.text.upper() in ends or lexeme.text in closing):
            break
        depth += (lexeme.text in opening) - (lexeme.text in closing)
        taken.append(lexeme)
    return tuple(taken)


# --- Hints for habits from SQL, regular expressions and English

_OPERATORS = {"AND": "AND", "OR": "OR", "THEN": "SEQ", "->": "SEQ", ",": "SEQ"}
_SQL = {
    "GROUP": "group the resulting table instead",
    "HAVING": "filter the resulting table instead",
    "ORDER": "sort the resulting table instead",
    "LIMIT": "take the first rows of the resulting table instead",
    "DISTINCT": "remove duplicates from the resulting table instead",
    "SELECT": "list the columns in RETURN; for anything else, query the resulting table",
    "MEASURES": "list the columns in RETURN",
    "DEFINE": "write conditions in brackets after an event, or in WHERE",
    "FROM": "name the streams in the pattern; for anything else, query the resulting table",
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
        return "separate the items of SEQ with `,`"
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
    return f"quotes enclose text; for a name, write {quote_name(content.replace(quote * 2, quote))}"


def _star(slip: Slip) -> str:
    if slip.word != "*" or not (slip.clause == "RETURN" or slip.start == "returns"):
        return ""
    if slip.previous_word in ("RETURN", ",", ".", ""):
        return "omit RETURN to get whole events"
    return ""


def _star_of_call(slip: Slip) -> str:
    if slip.word != "*" or [lexeme.text for lexeme in slip.before[-1:]] != ["("] or "INTEGER" not in slip.accepted:
        return ""
    return "`count(t)` counts the events of a repetition; to count matches, count the rows of the resulting table"


def _sql_clause(slip: Slip) -> str:
    if "_PARTITION" not in slip.accepted or slip.found is None:
        return ""
    if slip.word in _SQL:
        return _SQL[slip.word]
    # `PATTERN A LIMIT 5` reads LIMIT as a variable, and `RETURN DISTINCT a.x` reads DISTINCT as a field.
    follower = _FOLLOWERS.get(slip.previous_word)
    return _SQL[slip.previous_word] if follower and re.fullmatch(follower, slip.word) else ""


def _quoted_time(slip: Slip) -> str:
    """`WITHIN '10 seconds'` and `INTERVAL '10' SECOND`."""
    # The words before, at and after the error; the first is WITHIN, INTERVAL or, in a separate window, the text.
    lexemes = [lexeme for lexeme in (slip.previous, slip.found, *slip.after[:2]) if lexeme]
    words = [lexeme.text.strip("'\"") for lexeme in lexemes]
    clause = "WITHIN " if words[0].upper() == "WITHIN" else ""
    argument = {"INTEGER", "_SEQ"} <= slip.accepted
    words = words[1:] if clause or argument else words
    interval = words[:1] and words[0].upper() == "INTERVAL"
    if not interval and not (slip.word.startswith(("'", '"')) and (clause or argument or slip.start == "window")):
        return ""
    time = _TIME.match(" ".join(words[1:] if interval else words))
    if time is None:
        return "for example `WITHIN 10s`" if clause else ""
    unit = (time[2] or "").lower()
    short = next((name for name, meant in UNITS.items() if meant == UNITS.get(unit)), "")
    return f"write `{clause}{time[1]}{short}`"


def _type_of_cast(slip: Slip) -> str:
    words = [lexeme.text.upper() for lexeme in slip.before[-3:]]
    if words[-1:] == ["AS"] and "WORD" in slip.accepted and "_LPAR" not in slip.accepted:
        bracket = slip.open_bracket()
        opener = [lexeme.text.upper() for lexeme in slip.before if bracket and lexeme.end <= bracket.start][-1:]
        return "write a type, for example CAST(a.x AS BIGINT)" if opener in (["CAST"], ["TRY_CAST"]) else ""
    return "for example DECIMAL(10, 2)" if words[0::2] == ["AS", "("] and "INTEGER" in slip.accepted else ""


HABITS: tuple[Callable[[Slip], str], ...] = (
    _infix_pattern,
    _comma,
    _star,
    _star_of_call,
    _sql_clause,
    _quoted_time,
    _quoted_name,
    _type_of_cast,
)


# --- Hints for constraints

_OTHER_WORDS = {
    "BEFORE": "PRIOR", "PRECEDES": "PRIOR", "PRECEDENCE": "PRIOR", "SEQ": "PRIOR", "THEN": "PRIOR",
    "XOR": "EXCLUSIVE", "EXCLUDES": "EXCLUSIVE", "EXCLUDE": "EXCLUSIVE", "MUTEX": "EXCLUSIVE",
    "REQUIRES": "REQUIRE", "NEEDS": "REQUIRE", "RESPONSE": "REQUIRE",
    "END": "ENDS", "TERMINATES": "ENDS", "TERMINAL": "ENDS", "LAST": "ENDS", "FINAL": "ENDS",
}  # fmt: skip
_ARROWS = ("->", "=", "=>", "-")
_KINDS = "available constraints: PRIOR, EXCLUSIVE, REQUIRE, ENDS, ENDS WITHIN, and `A AND B IMPLIES C`"


def _missing_keyword(slip: Slip) -> str:
    """`EXCLUSIVE(A, B)` without CONSTRAINT."""
    if "_CONSTRAINT" not in slip.accepted or slip.found is None:
        return ""
    rest = item_of((slip.found, *slip.after), (";",))
    words = [lexeme.text.upper() for lexeme in rest]
    starts = slip.word in FORMS and words[1:2] in (["("], ["WITHIN"])
    return f"write `CONSTRAINT {slip.quote(rest)}`" if starts or "IMPLIES" in words else ""


def _unknown_form(slip: Slip) -> str:
    """`CONSTRAINT EXCLUDES(A, B)`."""
    words = _words(slip)
    if not slip.in_constraint or len(words) > 2:
        return ""
    if len(words) == 1:
        return _KINDS if slip.word in ("AND", "OR", "(") else ""
    form = _form(words[1])
    if slip.word == "(":
        return f"did you mean `{form}`?" if form else _KINDS
    return "write `ENDS WITHIN` and a duration" if words[1] == "ENDS" and slip.word.isdecimal() else ""


def _infix_form(slip: Slip) -> str:
    """`CONSTRAINT A BEFORE B` and `CONSTRAINT PRIOR A, B`."""
    statement, words = slip.statement, _words(slip)
    if not slip.in_constraint or len(words) != 3 or slip.found is None:
        return ""
    if words[1] in FORMS and slip.word in (",", ""):
        return f"put the streams of {words[1]} in parentheses: `{words[1]}(A, B)`"
    form = _form(words[2])
    if form is None or not _is_name(slip.found):
        return ""
    return f"write `{form}({statement[1].text}, {slip.found.text})`"


def _arrow(slip: Slip) -> str:
    """`CONSTRAINT A -> B`."""
    if slip.word not in _ARROWS or "_IMPLIES" not in slip.accepted:
        return ""
    given = slip.statement[1:]
    following = next((lexeme for lexeme in slip.after if lexeme.text != ">"), None)
    if not given or following is None or not _is_name(following):
        return "write IMPLIES, or `PRIOR(A, B)` for an order"
    text, name = slip.quote(given), following.text
    order = f", or `PRIOR({text}, {name})` for an order" if len(given) == 1 else ""
    return f"write `{text} IMPLIES {name}`{order}"


def _alternatives(slip: Slip) -> str:
    """`A OR B IMPLIES C`, `A, B IMPLIES C` and `A IMPLIES B AND C`."""
    if not slip.in_constraint or slip.word not in ("AND", "OR", ","):
        return ""
    if "_IMPLIES" in slip.accepted:
        return (
            "write one constraint for each side of OR"
            if slip.word == "OR"
            else "join the streams before IMPLIES with AND"
        )
    if "IMPLIES" not in _words(slip):
        return ""
    each = "; write one constraint for each" if slip.word != "OR" else ""
    return f"IMPLIES takes one stream on its right side{each}"


def _nested(slip: Slip) -> str:
    """`PRIOR(A, SEQ(B, C))` and `EXCLUSIVE(A OR B, C)`."""
    if not slip.in_constraint or "_COMMA" not in slip.accepted or slip.open_bracket() is None:
        return ""
    if slip.word == "(":
        return "constraints take names of streams, not patterns"
    return "separate the streams with `,`" if slip.word in ("AND", "OR") else ""


def _misplaced_not(slip: Slip) -> str:
    return "NOT is only allowed directly after IMPLIES" if slip.in_constraint and slip.word == "NOT" else ""


def _foreign_clause(slip: Slip) -> str:
    """`CONSTRAINT PRIOR(A, B) WITHIN 5`."""
    if not slip.after_constraint or slip.word not in CLAUSES:
        return ""
    return "a constraint takes only one clause: PARTITION BY"


def _words(slip: Slip) -> list[str]:
    return [lexeme.text.upper() for lexeme in slip.statement]


def _form(word: str) -> str | None:
    return _OTHER_WORDS.get(word) or closest(word, FORMS)


def _is_name(lexeme: Lexeme) -> bool:
    return lexeme.text.isidentifier() or lexeme.text.startswith("`")


CONSTRAINT_SLIPS: tuple[Callable[[Slip], str], ...] = (
    _missing_keyword,
    _unknown_form,
    _infix_form,
    _arrow,
    _alternatives,
    _nested,
    _misplaced_not,
    _foreign_clause,
)


# --- Hints for operators, repetitions, policies and declared streams

_SNOOP = {"A": "APERIODIC", "P": "PERIODIC"}
_PREFIXES = ("FIRST", "LAST", "COLLECT")
_METHODS = {
    "followedbyany": "write `SEQ(A a, B b)`",
    "followedby": "write `SEQ(A a, B b)`, with the clause `MATCH NEXT`",
    "next": "write `NEXT(A a, B b)`, or SEQ with the clause `MATCH STRICT`",
    "notfollowedby": "write `SEQ(A a, NOT B b)`",
    "notnext": "write `SEQ(A a, NOT B b)`",
    "oneormore": "write `A a+`",
    "times": "write `A a{2}`, or `A a{2,4}`",
    "timesormore": "write `A a{2,} ALL`",
    "optional": "write `A a*`, or an OR of the pattern with and without the item",
    "where": "write `A a [condition]`",
    "within": "write `SEQ(A a, B b) WITHIN 10m`",
}
"""What to write instead of the methods of FlinkCEP, by their names in lower case."""


_GROUPING = ("SEQ", "AND", "OR")
_CONDITIONS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE", "IN", "IS", "BETWEEN")
"""Words of a condition that no pattern has outside of brackets."""


def _condition_as_item(slip: Slip) -> str:
    """`SEQ(A a, B b, a.x = b.x, [id])`, as NEEL and SASE write it: conditions are in WHERE, keys in PARTITION BY."""
    from ensue.text.parser import parse_statements

    rest = (slip.found, *slip.after) if slip.found else slip.after
    text = _with_clauses((*slip.statement, *takewhile(lambda lexeme: lexeme.text != ";", rest)))
    try:
        parse_statements(text)
    except QueryError:
        return ""
    return f"conditions belong in WHERE, common fields in PARTITION BY: `{text}`"


def _with_clauses(lexemes: tuple[Lexeme, ...]) -> str:
    """The statement with the conditions among the items of its pattern in WHERE, and the fields in square brackets,
    there or in WHERE, in PARTITION BY. Empty if there are none."""
    pattern = item_of(lexemes, CLAUSES)
    tail, moved = lexemes[len(pattern) :], _Clauses([], [])
    head, _ = _sifted(pattern, 0, moved)
    stated = len(moved.conditions)
    if tail[:1] and tail[0].text.upper() == "WHERE":
        condition = item_of(tail[1:], CLAUSES)
        tail = tail[1 + len(condition) :]
        _move_operands(condition, moved)
    if not stated and not moved.keys:
        return ""
    clauses = [head, f"WHERE {' AND '.join(moved.conditions)}" if moved.conditions else ""]
    keys = list(moved.keys)
    if keys and [lexeme.text.upper() for lexeme in tail[:2]] == ["PARTITION", "BY"]:
        fields = item_of(tail[2:], CLAUSES)
        tail, keys = tail[2 + len(fields) :], [_text(fields), *keys]
    clauses.append(f"PARTITION BY {', '.join(dict.fromkeys(keys))}" if keys else "")
    return " ".join(filter(None, (*clauses, _text(tail))))


class _Clauses(NamedTuple):
    """The items of a pattern that are conditions, and the fields of those in square brackets."""

    conditions: list[str]
    keys: list[str]


def _move_operands(condition: tuple[Lexeme, ...], moved: _Clauses) -> None:
    """The operands of a WHERE: `a.x > 1 AND [id]` has a condition and a field."""
    if "]" not in _shallow(condition) or "OR" in _shallow(condition):
        moved.conditions.append(_operand(condition))
        return
    while condition:
        operand = item_of(condition, ("AND",))
        condition = condition[len(operand) + 1 :]
        if operand and operand[0].text == "[":
            moved.keys.append(_text(operand[1:-1]))
        else:
            moved.conditions.append(_text(operand))


def _sifted(lexemes: tuple[Lexeme, ...], place: int, moved: _Clauses, depth: int = 0) -> tuple[str, int]:
    """The items from `place` to the bracket that closes them, without the conditions, and the place after it.

    The whole pattern has depth 1. In a nested one, `[id]` compares its own events only.
    """
    items: list[str] = []
    variables: list[str | None] = []
    shared: list[str] = []
    while True:
        item = item_of(lexemes[place:], (",",))
        words = [lexeme.text.upper() for lexeme in item_of(item, ("(", "["))]
        place += len(item)
        if _is_condition(item):
            moved.conditions.append(_operand(item))
        elif item and item[0].text == "[":
            shared.append(_text(item[1:-1]))
        elif words and words[-1] in _GROUPING and len(words) < len(item):
            inner, after = _sifted(item, len(words) + 1, moved, depth + 1)
            items.append(f"{_text(item[: len(words)])}({inner}){_text(item[after:], spaced=True)}")
            variables.append(None)
        elif item:
            items.append(_text(item))
            named = len([word for word in words if word not in ("!", "NOT")]) == 2
            variables.append(item[len(words) - 1].text if named else None)
        if place >= len(lexemes) or lexemes[place].text != ",":
            break
        place += 1
    if depth > 1 and shared:
        # A text that cannot be parsed is not shown.
        clear = len(variables) > 1 and None not in variables
        fields = [field.strip() for text in shared for field in text.split(",")] if clear else ["?"]
        moved.conditions.extend(" = ".join(f"{name}.{field}" for name in variables) for field in fields)
    else:
        moved.keys.extend(shared)
    return ", ".join(items), place + 1


def _is_condition(item: tuple[Lexeme, ...]) -> bool:
    """Whether an item of a pattern is a condition, perhaps in brackets."""
    if any(word in _CONDITIONS for word in _shallow(item)):
        return True
    return len(item) > 2 and item[0].text == "(" and item[-1].text == ")" and _is_condition(item[1:-1])


def _shallow(item: tuple[Lexeme, ...]) -> Iterator[str]:
    """The words of an item outside of brackets, in upper case."""
    depth = 0
    for lexeme in item:
        depth += (lexeme.text in "([") - (lexeme.text in ")]")
        if depth == 0:
            yield lexeme.text.upper()


def _operand(condition: tuple[Lexeme, ...]) -> str:
    """A condition as an operand of AND."""
    return f"({_text(condition)})" if "OR" in _shallow(condition) else _text(condition)


def _text(lexemes: Sequence[Lexeme], spaced: bool = False) -> str:
    """The text of lexemes, with one space where the source has any. `spaced`: also before the first of them."""
    ends = [lexeme.end for lexeme in lexemes]
    gaps = [spaced, *(lexeme.start > end for lexeme, end in zip(lexemes[1:], ends, strict=False))]
    return "".join(" " * gap + lexeme.text for gap, lexeme in zip(gaps, lexemes, strict=False))


def _misspelt_operator(slip: Slip) -> str:
    """`FOLOWS(A a, B b, 5)`, and SNOOP's `A*(A a, B b, C c)`."""
    if slip.in_constraint:
        return ""
    # Where PATTERN is before it, the word was read as the query's name and its bracket as a group.
    bracket = slip.found if slip.word == "(" else slip.open_bracket() if slip.word == "," else None
    if bracket is None or ("_COMMA" in slip.accepted and slip.word == ","):
        return ""
    before = [lexeme for lexeme in slip.before if lexeme.end <= bracket.start][-2:]
    if not before or before[-1].end != bracket.start:
        return ""
    starred = before[-1].text in ("*", "+")
    word = before[0].text.upper() if starred else before[-1].text.upper()
    name = _SNOOP.get(word) or closest(word, OPERATORS)
    name = f"{name}{before[-1].text}" if starred and name else name
    return f"did you mean `{operator_form(name)}`?" if name in OPERATORS and name != word else ""


def _operator_without_brackets(slip: Slip) -> str:
    """`A a FOLLOWS B b` and `FOLLOWS A a, B b`."""
    if slip.in_constraint or not slip.after_pattern or slip.found is None:
        return ""
    item = slip.item_before()
    if slip.word in OPERATORS and item and slip.after:
        return f"put the arguments of {slip.word} in parentheses: `{operator_form(slip.word)}`"
    if len(item) == 2 and item[0].text.upper() in OPERATORS and _is_free_name(slip.found):
        name = item[0].text.upper()
        return f"put the arguments of {name} in parentheses: `{operator_form(name)}`"
    return ""


def _prefix_of_the_whole(slip: Slip) -> str:
    """`PATTERN FIRST A a`."""
    words = [lexeme.text.upper() for lexeme in slip.before[-3:]]
    if len(words) == 3 and words[0] == "PATTERN" and words[1] in _PREFIXES and slip.after_pattern:
        return f"{words[1]} is only allowed before an item of SEQ or AND: `SEQ(A a, {words[1]} B b)`"
    return ""


def _misplaced_repetition(slip: Slip) -> str:
    """`T{2} t` is `T t{2}`."""
    item = slip.item_before()
    words = [lexeme.text for lexeme in item]
    if not slip.after_pattern or slip.found is None or len(words) < 2 or words[1] not in ("{", "+", "*"):
        return ""
    if words[-1].upper() not in ("}", "+", "*", "ALL") or not _is_free_name(slip.found) or slip.word in CLAUSES:
        return ""
    return f"write the repetition after the variable: `{words[0]} {slip.found.text}{slip.quote(item[1:])}`"


def _braces(slip: Slip) -> str:
    """`T t{2..4}`, `T t{,4}` and `T t?`."""
    if slip.word == "?" and "_LBRACE" in slip.accepted:
        return _METHODS["optional"].replace("A a", _last_item(slip))
    if slip.previous_word == "{" or "_RBRACE" in slip.accepted:
        return REPETITIONS
    if slip.word == "ALL" and slip.previous_word in ("+", "*"):
        return f"remove ALL: `{slip.previous_word}` already takes all events"
    return ""


def _method(slip: Slip) -> str:
    """`A a.oneOrMore()` and `A a followedBy B b`."""
    if not slip.after_pattern or slip.found is None:
        return ""
    word = slip.after[0].text if slip.word == "." and slip.after else slip.found.text
    return _METHODS.get(word.lower(), "") if slip.word == "." or word.lower() not in ("where", "within") else ""


def _policy(slip: Slip) -> str:
    """`AFTER MATCH SKIP PAST LAST ROW`, `MATCH SKIP TILL NEXT MATCH` and MATCH without a policy."""
    if not {"_PARTITION", "_BY"} & slip.accepted or slip.found is None:
        return ""
    before = slip.before[-2:] if slip.previous_word not in ("MATCH", "AFTER") else slip.before[-1:]
    words = " ".join(lexeme.text for lexeme in (*before, slip.found, *slip.after[:5]))
    if slip.word == "MATCH":
        return foreign_policy(words) or "write a policy after MATCH, for example `MATCH RECENT`"
    return foreign_policy(words)


def _declaration(slip: Slip) -> str:
    """`CREATE STREAM s AS PATTERN ...`, `INSERT INTO s ...`, `STREAM s AS ...` and a misplaced UNNEST."""
    words = [lexeme.text.upper() for lexeme in slip.statement[:1]]
    if "UNNEST" in (slip.word, *(lexeme.text.upper() for lexeme in slip.statement)):
        return "write `STREAM name FROM table UNNEST list AS element WHERE ...`"
    starts = "_PATTERN" in slip.accepted and slip.word in ("CREATE", "INSERT", "DECLARE", "DEFINE")
    if starts or (words == ["STREAM"] and {"NAME", "_FROM", "_PATTERN"} & slip.accepted and len(slip.statement) < 4):
        return "declare a stream of matches with `STREAM name FROM PATTERN ...`"
    if words == ["STREAM"] and len(slip.statement) == 4 and slip.word not in ("", ";") and "_WHERE" in slip.accepted:
        return "write `STREAM name FROM PATTERN ...` for matches, or `STREAM name FROM table WHERE ...` for rows"
    if words == ["STREAM"] and len(slip.statement) > 4 and slip.word in ("AND", "OR", "NOT", "("):
        return "remove the name after PATTERN: the name after STREAM is used"
    return ""


def _any_event(slip: Slip) -> str:
    """`ANY EVENT EXCEPT A`, `ANY EVENT e BUT A` and `ANY BUT A`."""
    words = [lexeme.text.upper() for lexeme in slip.before[-3:]]
    said = words[-2:] == ["ANY", "EVENT"] or words[:2] == ["ANY", "EVENT"] or words[-2:-1] == ["ANY"]
    excluding = {slip.word, words[-1] if words else ""} & {"BUT", "EXCEPT", "NOT", "EXCLUDING"}
    return "write `ANY EVENT BUT A e`, or `ANY EVENT BUT (A, B) e`" if said and excluding else ""


def _last_item(slip: Slip) -> str:
    item = slip.item_before()
    names = [lexeme for lexeme in item if _is_free_name(lexeme)]
    return slip.quote(item) if item and len(names) == len(item) <= 2 else "A a"


def _is_free_name(lexeme: Lexeme) -> bool:
    return (lexeme.text.isidentifier() and not is_reserved(lexeme.text)) or lexeme.text.startswith("`")


OPERATOR_SLIPS: tuple[Callable[[Slip], str], ...] = (
    _declaration,
    _condition_as_item,
    _any_event,
    _misspelt_operator,
    _prefix_of_the_whole,
    _operator_without_brackets,
    _braces,
    _misplaced_repetition,
    _method,
    _policy,
)
