"""Hints for rules that are not quite those of the language: those of ETALIS, XChangeEQ, Prolog and SQL."""

from __future__ import annotations

from collections.abc import Callable

from ensue.errors import closest
from ensue.nodes.rules import RELATIONS
from ensue.text.hints import Lexeme, Slip, item_of
from ensue.text.reserved import is_reserved

_ARROWS = ("<-", ":-")
_STATEMENTS = ("RULE", "FACT", "TABLE", "STREAM", "ON", "PATTERN", "CONSTRAINT")
_WORDS = (*sorted(RELATIONS), "causes")
_BETWEEN_EVENTS = {"SEQ": "before", "THEN": "before", "->": "before", "EQ": "equals"}
"""What stands between events elsewhere, and the relation between their names that it is here."""
_INSTEAD_OF_CLAUSES = {
    "WHERE": "a condition is an item like the others: write `,` before it, without WHERE",
    "WITHIN": "write `{o, s} within 5 minutes` as an item, with the names of the items that it is about",
    "RETURN": "what a rule gives stands in its head: `RULE name(id, total = p * q) <- ...`",
    "PARTITION": "a name that stands in several items is the same in all of them; PARTITION BY is for patterns",
    "AS": "the name of an item stands before it: `c: shipped(id)`",
    "OR": "write a rule for each of the alternatives, with the same head",
    "AND": "items are separated with `,`",
    "&": "items are separated with `,`",
}
_WHILE = "write `while w: not a(...)` or `while w: collect a(...)`, where `w` is the name of an item or a timer"


def _without_keyword(slip: Slip) -> str:
    """`late(id) <- order(id)`, `vip(7)`, `DETECT ... ON ... END`, `WHEN a o DO f()` and `CREATE TABLE t(x)`."""
    if "_RULE" not in slip.accepted or slip.found is None:
        return ""
    rest = item_of((slip.found, *slip.after), (";",))
    words = [lexeme.text.upper() for lexeme in rest]
    if slip.word == "DETECT":
        return "a rule is `RULE head(...) <- item, item`: the head first, and no ON and END"
    if slip.word == "CREATE" and words[1:2] == ["TABLE"]:
        return "a table is declared with `TABLE price(product, amount)`: the names of its columns alone"
    if slip.word in ("WHEN", "IF") and "DO" in words:
        return "an action is `ON head variable WHERE condition DO action(...)`"
    if not _is_name(slip.found) or words[1:2] != ["("]:
        return ""
    rule = any(word in _ARROWS for word in words)
    return f"a rule starts with RULE: `RULE {slip.found.text}(...) <- ...`" if rule else "a fact starts with FACT"


def _without_body(slip: Slip) -> str:
    """`RULE vip(7)` and `RULE vip(7) <-`."""
    if slip.word not in ("", ";") or _first(slip) != "RULE":
        return ""
    head = tuple(lexeme for lexeme in slip.statement[1:] if lexeme.text not in _ARROWS)
    if "_ARROW" in slip.accepted or slip.previous_word in _ARROWS:
        return f"a rule has items behind `<-`; what always holds is a fact: `FACT {slip.quote(head)}`"
    return ""


def _other_arrow(slip: Slip) -> str:
    """`RULE late(id) <= order(id)`, `RULE late(id) IF order(id)` and `RULE late <- order(id)`."""
    if _first(slip) != "RULE":
        return ""
    if slip.word in _ARROWS and slip.accepted == {"_LPAR"} and slip.previous:
        return f"a head has brackets, also where nothing stands in them: `{slip.previous.text}()`"
    return "write `<-` between the head and the items" if "_ARROW" in slip.accepted and slip.found else ""


def _open_head(slip: Slip) -> str:
    """`RULE late(id <- o: order(id)`."""
    bracket = slip.open_bracket()
    if slip.word != ":" or bracket is None or _first(slip) != "RULE":
        return ""
    line, column = slip.source.position(bracket.start)
    return f"the `(` at line {line}, column {column} is not closed"


def _named_column(slip: Slip) -> str:
    """`RULE late(id AS x) <- ...`."""
    if slip.word != "AS" or _first(slip) not in ("RULE", "ON") or slip.open_bracket() is None or _in_body(slip):
        return ""
    value = slip.item_before()
    name = slip.after[0].text if slip.after else "x"
    return f"write `{name} = {slip.quote(value)}`" if value else ""


def _next_statement(slip: Slip) -> str:
    """A statement that begins where the one before has no `;`."""
    if slip.word not in _STATEMENTS or "_SEMICOLON" not in slip.accepted or _first(slip) not in _STATEMENTS[:5]:
        return ""
    return "statements are separated with `;`" if slip.after and _is_name(slip.after[0]) else ""


def _full_stop(slip: Slip) -> str:
    """`RULE late(id) <- order(id).`"""
    if slip.word == "." and "_SEMICOLON" in slip.accepted and _first(slip) in _STATEMENTS[:5]:
        return "a statement ends with `;`"
    return ""


def _pattern_in_body(slip: Slip) -> str:
    """`RULE late(id) <- SEQ(order o, shipped s)`."""
    bracket = slip.open_bracket()
    if not _in_body(slip) or bracket is None or slip.before.index(bracket) == 0:
        return ""
    if slip.before[slip.before.index(bracket) - 1].text.upper() != "SEQ":
        return ""
    return "a pattern is a statement, `STREAM name FROM PATTERN SEQ(...)`, and its name an item; or write `x before y`"


def _between_events(slip: Slip) -> str:
    """`a SEQ b`, `order(id) before shipped(id)` and `o before shipped(id)`."""
    if not _in_body(slip) or slip.found is None:
        return ""
    item = slip.item_before()
    relation = _BETWEEN_EVENTS.get(slip.word) or (slip.word.lower() if slip.word.lower() in _WORDS else "")
    if len(item) > 1 and item[1].text.lower() in _WORDS:
        if relation and len(item) == 3:
            return f"relations do not chain: write `, {item[2].text} {relation} ...`"
        if slip.word == "(":
            return f"a relation is between names of items: `y: {item[-1].text}(...), {item[0].text} {item[1].text} y`"
    if relation and "_COMMA" in slip.accepted:
        return (
            f"name the items and relate the names: `x: a(...), y: b(...), x {relation} y`; or use the name of a "
            "`STREAM name FROM PATTERN ...`"
        )
    return ""


def _misspelt_relation(slip: Slip) -> str:
    """`o befor s`, `order o` and XChangeEQ's `event o: order(...)`."""
    item = slip.item_before()
    if not _in_body(slip) or "RELATION" not in slip.accepted or slip.found is None or len(item) != 1:
        return ""
    if not _is_name(slip.found) or item[0].text.upper() == "WHILE":
        return ""
    relation = closest(slip.found.text, _WORDS)
    if relation and slip.after and _is_name(slip.after[0]):
        return f"did you mean `{relation}`?"
    if slip.after[:1] and slip.after[0].text == ":":
        return f"leave `{item[0].text}` out: a name, a colon, and what it is"
    return f"an event is written `{slip.found.text}: {item[0].text}(...)`"


def _while(slip: Slip) -> str:
    r"""`while not shipped(id)`, `while w shipped(id)`, `not w: shipped(id)` and Prolog's `\+ shipped(id)`."""
    if not _in_body(slip):
        return ""
    item = [lexeme.text.upper() for lexeme in slip.item_before()]
    bracket = slip.open_bracket()
    called = slip.before[slip.before.index(bracket) - 1 :][:1] if bracket else ()
    misses_interval = "WHILE" in (*item[:1], *(lexeme.text.upper() for lexeme in called)) and item[2:3] != [":"]
    misses_word = "_COLLECT" in slip.accepted
    labels_not = item[:1] == ["NOT"] and slip.word == ":"
    return _WHILE if misses_interval or misses_word or labels_not or slip.word == "\\" else ""


def _together(slip: Slip) -> str:
    """`{o s} within 5` and `(o, s) within 5`."""
    if not _in_body(slip):
        return ""
    if "_RBRACE" in slip.accepted:
        return "names are separated with `,`: `{o, s} within 5`"
    bracket = slip.open_bracket()
    closing = [*(lexeme.text.upper() for lexeme in slip.after), ""]
    ends = [place for place, word in enumerate(closing[:-1]) if word == ")" and closing[place + 1] == "WITHIN"]
    if slip.word != "," or "_COMMA" in slip.accepted or bracket is None or not ends:
        return ""
    names = (*slip.before[slip.before.index(bracket) + 1 :], slip.found, *slip.after[: ends[0]])
    return f"write `{{{slip.quote(tuple(filter(None, names)))}}} within ...`"


def _clause_in_body(slip: Slip) -> str:
    """`... WHERE q < 5`, `... WITHIN 5`, `... AND ...`."""
    return _INSTEAD_OF_CLAUSES.get(slip.word, "") if _in_body(slip) and "_COMMA" in slip.accepted else ""


def _arguments(slip: Slip) -> str:
    """`o: order`, `w: extend o`, `FACT vip`, `order{{ id }}` and `TABLE price(product TEXT)`."""
    first = _first(slip)
    if first not in _STATEMENTS[:5] and slip.start != "rule_items":
        return ""
    if slip.accepted == {"_LPAR"} and slip.word in ("+", "-"):
        return "an interval is a timer, such as `w: extend(o, 6 hours)`"
    if slip.accepted == {"_LPAR"} and slip.previous:
        return f"what belongs to `{slip.previous.text}` stands in brackets: `{slip.previous.text}(...)`"
    if slip.word == "{" and "_LPAR" in slip.accepted:
        return "arguments stand in `(` and `)`"
    if first in ("TABLE", "STREAM") and {"_COMMA", "_RPAR"} <= slip.accepted and slip.found and _is_name(slip.found):
        return "columns have no type here: write their names, with `,` between"
    return ""


def _declaration(slip: Slip) -> str:
    """`STREAM order` and `STREAM span PARENT up ID id`."""
    if _first(slip) != "STREAM":
        return ""
    if slip.word == "ID" and "PARENT" in {lexeme.text.upper() for lexeme in slip.statement}:
        return "ID stands before PARENT"
    if len(slip.statement) == 2 and slip.word in ("", ";"):
        return "say something of it: its attributes, `STREAM order(id, qty)`, or what it is made of, FROM PATTERN"
    return ""


def _action(slip: Slip) -> str:
    """`ON overdue DO notify()`, `ON overdue o IF ...`, `ON overdue o notify()` and a WHERE behind DO."""
    words = [lexeme.text.upper() for lexeme in slip.statement]
    if words[:1] != ["ON"]:
        return ""
    if len(words) == 2 or (len(words) == 3 and words[2] == "DO"):
        return f"name the event: `ON {slip.statement[-1 if len(words) == 2 else 1].text} o WHERE ... DO ...`"
    if slip.word == "WHERE":
        return "WHERE stands before DO"
    if slip.word in ("IF", "WHEN", "HAVING"):
        return "a condition stands behind WHERE"
    return "write DO before the action" if "_DO" in slip.accepted and slip.found else ""


def _first(slip: Slip) -> str:
    """The first word of the statement."""
    return slip.statement[0].text.upper() if slip.statement else ""


def _in_body(slip: Slip) -> bool:
    arrow = any(lexeme.text in _ARROWS for lexeme in slip.statement)
    return slip.start == "rule_items" or (_first(slip) == "RULE" and arrow)


def _is_name(lexeme: Lexeme) -> bool:
    return (lexeme.text.isidentifier() and not is_reserved(lexeme.text)) or lexeme.text.startswith("`")


RULE_SLIPS: tuple[Callable[[Slip], str], ...] = (
    _without_keyword,
    _without_body,
    _next_statement,
    _full_stop,
    _other_arrow,
    _open_head,
    _named_column,
    _while,
    _pattern_in_body,
    _between_events,
    _misspelt_relation,
    _together,
    _clause_in_body,
    _declaration,
    _action,
    _arguments,
)
