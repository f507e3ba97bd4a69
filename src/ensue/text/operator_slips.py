"""Hints for operators, repetitions, policies and declared streams that are not quite those of the language."""

from __future__ import annotations

from collections.abc import Callable

from ensue.errors import closest
from ensue.nodes.operators import OPERATORS
from ensue.text.hints import CLAUSES, Lexeme, Slip
from ensue.text.operands import REPETITIONS, foreign_policy, operator_form
from ensue.text.reserved import is_reserved

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
    "optional": "an item that may be missing is `A a*`, or an OR of both forms",
    "where": "write `A a [condition]`",
    "within": "write `SEQ(A a, B b) WITHIN 10 minutes`",
}
"""What the methods of FlinkCEP are here; in small letters."""


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
        return f"the patterns of {slip.word} stand in brackets: `{operator_form(slip.word)}`"
    if len(item) == 2 and item[0].text.upper() in OPERATORS and _is_name(slip.found):
        name = item[0].text.upper()
        return f"the patterns of {name} stand in brackets: `{operator_form(name)}`"
    return ""


def _prefix_of_the_whole(slip: Slip) -> str:
    """`PATTERN FIRST A a`."""
    words = [lexeme.text.upper() for lexeme in slip.before[-3:]]
    if len(words) == 3 and words[0] == "PATTERN" and words[1] in _PREFIXES and slip.after_pattern:
        return f"{words[1]} stands before an item of SEQ or AND: `SEQ(A a, {words[1]} B b)`"
    return ""


def _misplaced_repetition(slip: Slip) -> str:
    """`T{2} t` is `T t{2}`."""
    item = slip.item_before()
    words = [lexeme.text for lexeme in item]
    if not slip.after_pattern or slip.found is None or len(words) < 2 or words[1] not in ("{", "+", "*"):
        return ""
    if words[-1].upper() not in ("}", "+", "*", "ALL") or not _is_name(slip.found) or slip.word in CLAUSES:
        return ""
    return f"a repetition stands behind the variable: `{words[0]} {slip.found.text}{slip.quote(item[1:])}`"


def _braces(slip: Slip) -> str:
    """`T t{2..4}`, `T t{,4}` and `T t?`."""
    if slip.word == "?" and "_LBRACE" in slip.accepted:
        return _METHODS["optional"].replace("A a", _last_item(slip))
    if slip.previous_word == "{" or "_RBRACE" in slip.accepted:
        return REPETITIONS
    if slip.word == "ALL" and slip.previous_word in ("+", "*"):
        return f"`{slip.previous_word}` takes all that there are: leave ALL out"
    return ""


def _method(slip: Slip) -> str:
    """`A a.oneOrMore()` and `A a followedBy B b`."""
    if not slip.after_pattern or slip.found is None:
        return ""
    word = slip.after[0].text if slip.word == "." and slip.after else slip.found.text
    return _METHODS.get(word.lower(), "") if slip.word == "." or word.lower() not in ("where", "within") else ""


def _element(slip: Slip) -> str:
    """`t[1].temp` and `t[i-1].temp`."""
    if slip.word != "[" or "_DOT" not in slip.accepted or slip.previous is None:
        return ""
    name = slip.previous.text
    return f"fields of a list: `first({name}.x)`, `last({name}.x)`, `PREV({name}.x)`, or an aggregate over all of them"


def _policy(slip: Slip) -> str:
    """`AFTER MATCH SKIP PAST LAST ROW`, `MATCH SKIP TILL NEXT MATCH` and MATCH with nothing behind it."""
    if not {"_PARTITION", "_BY"} & slip.accepted or slip.found is None:
        return ""
    before = slip.before[-2:] if slip.previous_word not in ("MATCH", "AFTER") else slip.before[-1:]
    words = " ".join(lexeme.text for lexeme in (*before, slip.found, *slip.after[:5]))
    if slip.word == "MATCH":
        return foreign_policy(words) or "behind MATCH stands a policy, for example `MATCH RECENT`"
    return foreign_policy(words)


def _declaration(slip: Slip) -> str:
    """`CREATE STREAM s AS PATTERN ...`, `INSERT INTO s ...` and `STREAM s AS ...`."""
    words = [lexeme.text.upper() for lexeme in slip.statement[:1]]
    starts = "_PATTERN" in slip.accepted and slip.word in ("CREATE", "INSERT", "DECLARE", "DEFINE")
    if starts or (words == ["STREAM"] and {"NAME", "_FROM", "_PATTERN"} & slip.accepted and len(slip.statement) < 4):
        return "a stream of matches is declared with `STREAM name FROM PATTERN ...`"
    if words == ["STREAM"] and len(slip.statement) > 4 and slip.word in ("AND", "OR", "NOT", "("):
        return "the name behind STREAM is the only one: leave out the one behind PATTERN"
    return ""


def _any_event(slip: Slip) -> str:
    """`ANY EVENT EXCEPT A`, `ANY EVENT e BUT A` and `ANY BUT A`."""
    words = [lexeme.text.upper() for lexeme in slip.before[-3:]]
    said = words[-2:] == ["ANY", "EVENT"] or words[:2] == ["ANY", "EVENT"] or words[-2:-1] == ["ANY"]
    excluding = {slip.word, words[-1] if words else ""} & {"BUT", "EXCEPT", "NOT", "EXCLUDING"}
    return "write `ANY EVENT BUT A e`, or `ANY EVENT BUT (A, B) e`" if said and excluding else ""


def _last_item(slip: Slip) -> str:
    item = slip.item_before()
    names = [lexeme for lexeme in item if _is_name(lexeme)]
    return slip.quote(item) if item and len(names) == len(item) <= 2 else "A a"


def _is_name(lexeme: Lexeme) -> bool:
    return (lexeme.text.isidentifier() and not is_reserved(lexeme.text)) or lexeme.text.startswith("`")


OPERATOR_SLIPS: tuple[Callable[[Slip], str], ...] = (
    _declaration,
    _any_event,
    _misspelt_operator,
    _prefix_of_the_whole,
    _operator_without_brackets,
    _braces,
    _misplaced_repetition,
    _method,
    _element,
    _policy,
)
