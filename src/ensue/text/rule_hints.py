"""Hints for mistakes in rules, such as the syntax of ETALIS, XChangeEQ, Prolog and SQL."""

from __future__ import annotations

from collections.abc import Callable

from ensue.errors import closest
from ensue.nodes.patterns import OPERATORS
from ensue.nodes.rules import RELATIONS
from ensue.text.hints import Lexeme, Slip, item_of
from ensue.text.reserved_words import is_reserved

_ARROWS = ("<-", ":-")
_STATEMENTS = ("RULE", "FACT", "TABLE", "STREAM", "ON", "PATTERN", "CONSTRAINT")
_WORDS = (*sorted(RELATIONS), "causes")
_BETWEEN_EVENTS = {"SEQ": "before", "THEN": "before", "->": "before", "EQ": "equals"}
"""Operators between events in other systems, and the relation to use instead."""
_INSTEAD_OF_CLAUSES = {
    "WHERE": "write `,` instead of WHERE: a condition is an item",
    "WITHIN": "write `{o, s} within 5m` as an item, with the names of the items",
    "RETURN": "write the output columns in the head: `RULE name(id, total = p * q) <- ...`",
    "PARTITION": "use the same name in several items to require equal values; PARTITION BY is only for patterns",
    "AS": "write the name of an item before it: `c: shipped(id)`",
    "&": "separate items with `,`",
}
_WHILE = "write `while w: not a(...)` or `while w: collect a(...)`, where `w` is the name of an item or a timer"


def _without_keyword(slip: Slip) -> str:
    """`late(id) <- order(id)`, `vip(7)`, `DETECT ... ON ... END`, `WHEN a o DO f()` and `CREATE TABLE t(x)`."""
    if "_RULE" not in slip.accepted or slip.found is None:
        return ""
    rest = item_of((slip.found, *slip.after), (";",))
    words = [lexeme.text.upper() for lexeme in rest]
    if slip.word == "DETECT":
        return "write `RULE head(...) <- item, item`: the head first, without ON and END"
    if slip.word == "CREATE" and words[1:2] == ["TABLE"]:
        return "declare a table with `TABLE price(product, amount)`: only the names of its columns"
    if slip.word in ("WHEN", "IF") and "DO" in words:
        return "write an action as `ON head variable WHERE condition DO action(...)`"
    if not _is_name(slip.found) or words[1:2] != ["("]:
        return ""
    if any(word in _ARROWS for word in words):
        return f"a rule starts with RULE: `RULE {slip.found.text}(...) <- ...`"
    if words[0] in ("SEQ", "AND", "OR", *OPERATORS):
        return f"start a query with PATTERN: `PATTERN {words[0]}(...)`"
    return "a fact starts with FACT"


def _without_body(slip: Slip) -> str:
    """`RULE vip(7)` and `RULE vip(7) <-`."""
    if slip.word not in ("", ";") or _first(slip) != "RULE":
        return ""
    head = tuple(lexeme for lexeme in slip.statement[1:] if lexeme.text not in _ARROWS)
    if "_ARROW" in slip.accepted or slip.previous_word in _ARROWS:
        return f"a rule needs items after `<-`; write a fact as `FACT {slip.quote(head)}`"
    return ""


def _other_arrow(slip: Slip) -> str:
    """`RULE late(id) <= order(id)`, `RULE late(id) IF order(id)` and `RULE late <- order(id)`."""
    if _first(slip) != "RULE":
        return ""
    if slip.word in _ARROWS and slip.accepted == {"_LPAR"} and slip.previous:
        return f"the head of a rule needs parentheses, even without arguments: `{slip.previous.text}()`"
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
    """A statement after one that does not end with `;`."""
    if slip.word not in _STATEMENTS or "_SEMICOLON" not in slip.accepted or _first(slip) not in _STATEMENTS[:5]:
        return ""
    return "separate statements with `;`" if slip.after and _is_name(slip.after[0]) else ""


def _full_stop(slip: Slip) -> str:
    """`RULE late(id) <- order(id).`"""
    if slip.word == "." and "_SEMICOLON" in slip.accepted and _first(slip) in _STATEMENTS[:5]:
        return "end a statement with `;`"
    return ""


def _pattern_in_body(slip: Slip) -> str:
    """`RULE late(id) <- SEQ(order o, shipped s)`."""
    bracket = slip.open_bracket()
    if not _in_body(slip) or bracket is None or slip.before.index(bracket) == 0:
        return ""
    if slip.before[slip.before.index(bracket) - 1].text.upper() != "SEQ":
        return ""
    return "declare `STREAM name FROM PATTERN SEQ(...)` and use its name as an item, or write `x before y`"


def _between_events(slip: Slip) -> str:
    """`a SEQ b`, `order(id) before shipped(id)` and `o before shipped(id)`."""
    if not _in_body(slip) or slip.found is None:
        return ""
    item = slip.item_before()
    relation = _BETWEEN_EVENTS.get(slip.word) or (slip.word.lower() if slip.word.lower() in _WORDS else "")
    if len(item) > 1 and item[1].text.lower() in _WORDS:
        if relation and len(item) == 3:
            return f"relations cannot be chained: write `, {item[2].text} {relation} ...`"
        if slip.word == "(":
            return f"relations take names of items: `y: {item[-1].text}(...), {item[0].text} {item[1].text} y`"
    if relation and "_COMMA" in slip.accepted:
        return (
            f"name the items and relate the names: `x: a(...), y: b(...), x {relation} y`; or declare "
            "`STREAM name FROM PATTERN ...` and use its name"
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
        return f"remove `{item[0].text}`: write an event as `name: stream(...)`"
    return f"write an event as `{slip.found.text}: {item[0].text}(...)`"


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
    """`{o s} within 5`."""
    return "separate names with `,`: `{o, s} within 5`" if _in_body(slip) and "_RBRACE" in slip.accepted else ""


def _clause_in_body(slip: Slip) -> str:
    """`... WHERE q < 5`, `... WITHIN 5`, `... AND ...`."""
    return _INSTEAD_OF_CLAUSES.get(slip.word, "") if _in_body(slip) and "_COMMA" in slip.accepted else ""


def _arguments(slip: Slip) -> str:
    """`o: order`, `w: extend o`, `FACT vip`, `order{{ id }}` and `TABLE price(product TEXT)`."""
    first = _first(slip)
    if first not in _STATEMENTS[:5] and slip.start != "rule_items":
        return ""
    if slip.accepted == {"_LPAR"} and slip.word in ("+", "-"):
        return "write an interval as a timer, such as `w: extend(o, 6h)`"
    if slip.accepted == {"_LPAR"} and slip.previous:
        return f"put the arguments of `{slip.previous.text}` in parentheses: `{slip.previous.text}(...)`"
    if slip.word == "{" and "_LPAR" in slip.accepted:
        return "put arguments in `(` and `)`"
    if first in ("TABLE", "STREAM") and {"_COMMA", "_RPAR"} <= slip.accepted and slip.found and _is_name(slip.found):
        return "write only the names of the columns, separated by `,`: columns have no types here"
    return ""


def _declaration(slip: Slip) -> str:
    """`STREAM order` and `STREAM span PARENT up ID id`."""
    if _first(slip) != "STREAM":
        return ""
    if slip.word == "ID" and "PARENT" in {lexeme.text.upper() for lexeme in slip.statement}:
        return "write ID before PARENT"
    if len(slip.statement) == 2 and slip.word in ("", ";"):
        return "list the attributes, as in `STREAM order(id, qty)`, or define the stream with FROM PATTERN"
    return ""


def _action(slip: Slip) -> str:
    """`ON overdue DO notify()`, `ON overdue o IF ...`, `ON overdue o notify()` and a WHERE after DO."""
    words = [lexeme.text.upper() for lexeme in slip.statement]
    if words[:1] != ["ON"]:
        return ""
    if len(words) == 2 or (len(words) == 3 and words[2] == "DO"):
        return f"name the event: `ON {slip.statement[-1 if len(words) == 2 else 1].text} o WHERE ... DO ...`"
    if slip.word == "WHERE":
        return "write WHERE before DO"
    if slip.word in ("IF", "WHEN", "HAVING"):
        return "write the condition after WHERE"
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
