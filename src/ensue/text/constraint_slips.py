"""Hints for constraints that are not quite those of the language."""

from __future__ import annotations

from collections.abc import Callable

from ensue.errors import closest
from ensue.text.constraints import FORMS
from ensue.text.hints import CLAUSES, Lexeme, Slip, item_of

_OTHER_WORDS = {
    "BEFORE": "PRIOR", "PRECEDES": "PRIOR", "PRECEDENCE": "PRIOR", "SEQ": "PRIOR", "THEN": "PRIOR",
    "XOR": "EXCLUSIVE", "EXCLUDES": "EXCLUSIVE", "EXCLUDE": "EXCLUSIVE", "MUTEX": "EXCLUSIVE",
    "REQUIRES": "REQUIRE", "NEEDS": "REQUIRE", "RESPONSE": "REQUIRE",
    "END": "ENDS", "TERMINATES": "ENDS", "TERMINAL": "ENDS", "LAST": "ENDS", "FINAL": "ENDS",
}  # fmt: skip
_ARROWS = ("->", "=", "=>", "-")
_KINDS = (
    "constraints are PRIOR, EXCLUSIVE, REQUIRE, ENDS and ENDS WITHIN, or streams joined by AND that IMPLIES another"
)


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
    return "write `ENDS WITHIN` and a time" if words[1] == "ENDS" and slip.word.isdecimal() else ""


def _infix_form(slip: Slip) -> str:
    """`CONSTRAINT A BEFORE B` and `CONSTRAINT PRIOR A, B`."""
    statement, words = slip.statement, _words(slip)
    if not slip.in_constraint or len(words) != 3 or slip.found is None:
        return ""
    if words[1] in FORMS and slip.word in (",", ""):
        return f"the streams of {words[1]} stand in parentheses: `{words[1]}(A, B)`"
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
            else "streams before IMPLIES are joined by AND"
        )
    if "IMPLIES" not in _words(slip):
        return ""
    each = "; write one constraint for each" if slip.word != "OR" else ""
    return f"one stream stands behind IMPLIES{each}"


def _nested(slip: Slip) -> str:
    """`PRIOR(A, SEQ(B, C))` and `EXCLUSIVE(A OR B, C)`."""
    if not slip.in_constraint or "_COMMA" not in slip.accepted or slip.open_bracket() is None:
        return ""
    if slip.word == "(":
        return "constraints are over streams: names, no patterns"
    return "streams are separated with `,`" if slip.word in ("AND", "OR") else ""


def _misplaced_not(slip: Slip) -> str:
    return "NOT stands only directly behind IMPLIES" if slip.in_constraint and slip.word == "NOT" else ""


def _foreign_clause(slip: Slip) -> str:
    """`CONSTRAINT PRIOR(A, B) WITHIN 5`."""
    if not slip.after_constraint or slip.word not in CLAUSES:
        return ""
    return "PARTITION BY is the only clause of a constraint, and stands once"


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
