"""Syntax errors: what the parser expected and found, in terms of the language, with hints for common mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from lark import UnexpectedInput

from ensue.errors import Problem, QueryError, Source, Span, did_you_mean
from ensue.text.hints import CLAUSES, CONSTRAINT_SLIPS, HABITS, OPERATOR_SLIPS, Lexeme, Slip
from ensue.text.reserved_words import is_reserved, quote_name
from ensue.text.rule_hints import RULE_SLIPS
from ensue.text.values import shorten, unit_hint

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*)|'(?:[^']|'')*'|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[0-9]+(?:\.[0-9]+)?|\w+|==|<>|!=|<=|>=|\|\||&&|<-(?!-)|:-|->|.",
    re.DOTALL,
)
_END = "$END"
_CONTENTS = {
    "pattern": "pattern", "expression": "expression", "window": "window", "returns": "columns to return",
    "rule_items": "item of a rule", "given_argument": "argument",
    "measure": "question about a state", "state_condition": "condition on a state",
    "response": "change of a state", "drift": "change of a state",
}  # fmt: skip
_STATEMENTS = ("_RULE", "_PATTERN", "_STREAM", "_CONSTRAINT", "_FACT", "_TABLE", "_HIERARCHY", "_STATE", "_ON")
_KEYWORDS = frozenset(terminal.strip("_") for terminal in _STATEMENTS)
# Sets of terminals with one phrase for each; the first terminal is only accepted where all the others are.
_EXPRESSION = (
    "SCIENTIFIC", "INTEGER", "DECIMAL", "STRING", "_TRUE", "_FALSE", "_NULL", "_TIMESTAMP", "_SAME", "_CASE", "NAME",
    "QUOTED", "MINUS", "_LPAR", "_NOT", "_P", "_E", "_MOST_LIKELY",
)  # fmt: skip
_GROUPS = (
    ("a statement (PATTERN, STREAM, CONSTRAINT, RULE, FACT, TABLE, HIERARCHY, STATE or ON)", _STATEMENTS),
    ("an item of a rule", ("_WHILE", "_LBRACE", *_EXPRESSION)),
    ("an argument", ("ATTRIBUTE", *_EXPRESSION)),
    ("an expression", _EXPRESSION),
    ("a constraint", ("_PRIOR", "_EXCLUSIVE", "_REQUIRE", "_ENDS", "NAME", "QUOTED")),
    (
        "a pattern",
        ("_SEQ", "_AND", "_OR", "_NOT", "_BANG", "_LPAR", "NAME", "QUOTED", "OPERATOR", "_ANY_EVENT", "_FIRST", "_LAST",
         "_COLLECT"),
    ),
    (
        "an operator",
        ("DIVIDE", "STAR", "PLUS", "MINUS", "CONCAT", "COMPARISON", "_IN", "_NOT", "_BETWEEN", "_LIKE", "_ILIKE", "_IS",
         "_AND", "_OR", "_LSQB"),
    ),
    ("an operator", ("CONCAT", "COMPARISON", "_IN", "_NOT", "_BETWEEN", "_LIKE", "_ILIKE", "_IS", "_AND", "_OR")),
    ("an operator", ("_OR", "_AND")),
    (
        "a clause (WHERE, PARTITION BY, WITHIN, ALLOWING TIES, MATCH, CONSUME, SHARE, HAVING, SUPPRESS or RETURN)",
        (
            "_ALLOWING_TIES",
            "_MATCH",
            "_WHERE",
            "_PARTITION",
            "_WITHIN",
            "_CONSUME",
            "_SHARE",
            "_HAVING",
            "_SUPPRESS_FOR",
            "_RETURN",
        ),
    ),
    ("a number", ("INTEGER", "DECIMAL", "MINUS")),
    ("a name", ("NAME", "QUOTED")),
    ("a name", ("WORD", "QUOTED", "_P", "_E", "_MOST_LIKELY")),
    ("a question (P, E or MOST LIKELY)", ("_P", "_E", "_MOST_LIKELY")),
    ("a repetition", ("_LBRACE", "PLUS", "STAR")),
)  # fmt: skip
_WORDS = {
    "_COMMA": "`,`", "_RPAR": "`)`", "_RSQB": "`]`", "_LPAR": "`(`", "_LSQB": "`[`", "_DOT": "`.`",
    "_SEMICOLON": "`;`", "UNIT": "a unit of time", "STRING": "text in quotes",
    "COMPARISON": "a comparison", "CONCAT": "`||`", "PLUS": "`+`", "MINUS": "`-`", "_RBRACE": "`}`", "EVENTS": "EVENTS",
    "_PARTITION": "PARTITION BY", "_PATTERN": "PATTERN", "_STREAM": "STREAM", "_CONSTRAINT": "CONSTRAINT",
    "_ARROW": "`<-`", "_COLON": "`:`", "_EQUALS": "`=`", "RELATION": "a relation", "_LBRACE": "`{`",
}  # fmt: skip


def explain_syntax(unexpected: UnexpectedInput, source: Source, start: str) -> QueryError:
    """The error to raise instead of the parser's exception."""
    lexemes = tuple(_lexemes(source.text))
    if not lexemes:
        return QueryError([_empty(start)], source)
    slip = _slip(unexpected, source, start, lexemes)
    return QueryError([_unclosed_quote(slip) or _unexpected(slip)], source)


def _lexemes(text: str) -> Iterator[Lexeme]:
    for found in _TOKEN.finditer(text):
        if found["blank"] is None:
            yield Lexeme(found[0], found.start())


def _slip(unexpected: UnexpectedInput, source: Source, start: str, lexemes: tuple[Lexeme, ...]) -> Slip:
    token = getattr(unexpected, "token", None)
    at_end = token is not None and token.type == _END
    offset = len(source.text) if at_end else unexpected.pos_in_stream or 0
    before = tuple(lexeme for lexeme in lexemes if lexeme.end <= offset)
    found, *after = lexemes[len(before) :] or (None,)
    slip = Slip(source, start, _accepted(unexpected), before, found, tuple(filter(None, after)))
    if slip.in_constraint and "_LSQB" in slip.accepted:
        # The grammar reads a variable and a condition there, but they are never accepted.
        return replace(slip, accepted=slip.accepted - {"NAME", "QUOTED", "_LSQB"})
    return slip


def _accepted(unexpected: UnexpectedInput) -> frozenset[str]:
    accepts: Callable[[], set[str]] = unexpected.interactive_parser.accepts
    # A state in which nothing is accepted is that of a complete text.
    return frozenset(accepts()) or frozenset({_END})


def _empty(start: str) -> Problem:
    if start == "statements":
        return Problem("empty-query", "the text contains no query", Span(0, 0), hint="start a query with PATTERN")
    return Problem("empty-query", f"the text contains no {_CONTENTS[start]}", Span(0, 0))


def _unclosed_quote(slip: Slip) -> Problem | None:
    if slip.found is None or slip.found.text not in ("'", '"', "`"):
        return None
    quote, span = slip.found.text, Span(slip.found.start, slip.found.end)
    kind = "name" if quote == "`" else "text"
    hint = (
        "write a backtick inside a name twice" if quote == "`" else f"write `{quote * 2}` for a `{quote}` inside text"
    )
    return Problem("syntax", f"the {kind} that starts here has no closing quote", span, hint=hint)


def _unexpected(slip: Slip) -> Problem:
    expectation = _expectation(slip.accepted)
    after = f" after `{shorten(slip.previous.text)}`" if slip.previous else ""
    if slip.found is None:
        found, end = "end of input", slip.previous.end if slip.previous else 0
        span = Span(end, end)
    else:
        found, span = f"`{shorten(slip.found.text)}`", Span(slip.found.start, slip.found.end)
    hint = next((text for text in (rule(slip) for rule in _HINTS) if text), "")
    return Problem("syntax", f"expected {expectation}{after}, found {found}", span, hint=hint)


def _expectation(accepted: frozenset[str]) -> str:
    rest, phrases = set(accepted), []
    if {"_LSQB", "DIVIDE"} <= rest and "_LPAR" not in rest:
        # After a field: another dot is one of many ways to go on.
        rest.discard("_DOT")
    for phrase, terminals in _GROUPS:
        if terminals[0] in rest:
            phrases.append(phrase)
            rest.difference_update(terminals)
    singles = [terminal for terminal in _WORDS if terminal in rest]
    keywords = sorted(rest.difference(_WORDS, {_END}))
    phrases += [_WORDS[terminal] for terminal in singles] + [terminal.strip("_") for terminal in keywords]
    phrases += ["end of input"] if _END in rest else []
    return " or ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1])))


# Hints: each function recognizes one mistake and returns its fix, or an empty text.


def _foreign_sign(slip: Slip) -> str:
    signs = {
        "&&": "write AND", "&": "write AND", "|": "write OR; `||` joins text", "!": "write NOT, or `!=`",
        "{": "use `(` and `)` to group", "~": "write NOT",
        "``": "a name must not be empty",
    }  # fmt: skip
    return signs.get(slip.word, "")


def _reversed_comparison(slip: Slip) -> str:
    return f"write `{slip.word}=`" if slip.previous_word == "=" and slip.word in (">", "<") else ""


def _unknown_unit(slip: Slip) -> str:
    if "UNIT" in slip.accepted and slip.found and slip.word.isidentifier() and not is_reserved(slip.word):
        return unit_hint(slip.found.text)
    return ""


def _missing_by(slip: Slip) -> str:
    if "_BY" in slip.accepted and slip.found and slip.word.isidentifier():
        return f"write `PARTITION BY {slip.found.text}`"
    return ""


def _partition_variable(slip: Slip) -> str:
    if slip.word == "." and slip.clause == "PARTITION":
        return (
            "PARTITION BY takes the names of fields, without a variable; a nested field gets a name with "
            "`STREAM s FROM events RETURN user.id AS id`"
        )
    return ""


def _keyword_as_name(slip: Slip) -> str:
    # Where a value is expected, AND or OR means that an operand is missing.
    operand_missing = slip.word in ("AND", "OR") and "INTEGER" in slip.accepted
    if slip.found and is_reserved(slip.found.text) and "NAME" in slip.accepted and not operand_missing:
        return f"{slip.word} is a keyword; to use it as a name, put it in backticks"
    return ""


def _not_a_statement(slip: Slip) -> str:
    if "_PATTERN" in slip.accepted and slip.found:
        return did_you_mean(slip.found.text, _KEYWORDS) or "start a query with PATTERN"
    return ""


def _missing_semicolon(slip: Slip) -> str:
    # After a stream of a constraint, PATTERN was read as a variable.
    starts = {slip.word, slip.previous_word if slip.after_constraint else ""} & _KEYWORDS
    return "separate statements with `;`" if starts and "_SEMICOLON" in slip.accepted else ""


def _named_event(slip: Slip) -> str:
    words = [lexeme.text for lexeme in (*slip.before[-3:], *([slip.found] if slip.found else []))]
    if len(words) == 4 and words[0].upper() == "PATTERN" and all(map(_is_name, words)):
        named = f"PATTERN {words[1]} ({words[2]} {words[3]})"
        return f"to name the query, write `{named}`; {_blanks(words[1:])}"
    return ""


def _name_with_blanks(slip: Slip) -> str:
    words = [*slip.item_before(), *([slip.found] if slip.found else [])]
    follows_name = bool(slip.after) and _is_name(slip.after[0].text)
    if slip.after_pattern and len(words) == 3 and all(_is_name(word.text) for word in words) and not follows_name:
        return f"{_blanks([word.text for word in words])}; separate items with `,`"
    return ""


def _blanks(words: list[str]) -> str:
    return f"for a name with spaces, use backticks: {quote_name(' '.join(words[:-1]))} {words[-1]}"


def _is_name(word: str) -> bool:
    return word.isidentifier() and not is_reserved(word)


def _unclosed_bracket(slip: Slip) -> str:
    bracket = slip.open_bracket()
    closing = {"(": "]", "[": ")"}
    if bracket is None or (slip.found and slip.word not in (";", closing[bracket.text], *CLAUSES)):
        return ""
    line, column = slip.source.position(bracket.start)
    return f"the `{bracket.text}` at line {line}, column {column} is not closed"


def _unopened_bracket(slip: Slip) -> str:
    opening = {")": "(", "]": "["}.get(slip.word)
    return f"there is no open `{opening}` here" if opening and slip.open_bracket() is None else ""


def _surplus_comma(slip: Slip) -> str:
    # `SEQ(A a, Return r)`: the keyword is meant as a stream.
    if len(slip.after) > 1 and _is_name(slip.after[0].text) and slip.after[1].text in (",", ")", "["):
        return ""
    return "remove the `,`" if slip.previous_word == "," and slip.word in (")", "", ";", *CLAUSES) else ""


def _missing_comma(slip: Slip) -> str:
    if "_COMMA" in slip.accepted and slip.found and (slip.word[0].isalpha() or slip.word[0] in "_`("):
        return "separate items with `,`"
    return ""


def _clause_word(slip: Slip) -> str:
    if slip.found and "_PARTITION" in slip.accepted and slip.word.isidentifier():
        return did_you_mean(slip.word, CLAUSES)
    return ""


def _name_after_window(slip: Slip) -> str:
    if slip.word != "AS" or "_PARTITION" not in slip.accepted:
        return ""
    return "put the part with WITHIN in parentheses before AS: here WITHIN is a clause of the query"


def _missing_operator(slip: Slip) -> str:
    return "join conditions with AND or OR" if "_OR" in slip.accepted and slip.word.isidentifier() else ""


_HINTS: tuple[Callable[[Slip], str], ...] = (
    *CONSTRAINT_SLIPS,
    *RULE_SLIPS,
    *OPERATOR_SLIPS,
    *HABITS,
    _foreign_sign,
    _reversed_comparison,
    _not_a_statement,
    _missing_semicolon,
    _missing_by,
    _partition_variable,
    _surplus_comma,
    _keyword_as_name,
    _unclosed_bracket,
    _unopened_bracket,
    _clause_word,
    _unknown_unit,
    _named_event,
    _name_with_blanks,
    _missing_comma,
    _name_after_window,
    _missing_operator,
)
