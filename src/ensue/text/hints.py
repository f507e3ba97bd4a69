"""The place where reading a text stopped, and what stands around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from ensue.errors import Source
from ensue.text.values import shorten

CLAUSES = ("WHERE", "PARTITION", "WITHIN", "MATCH", "CONSUME", "SHARE", "HAVING", "RETURN")


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word, number, quoted text or sign of the source, read without regard to the grammar."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Slip:
    """Where reading stopped: what stood before, what was found, and what could have stood there."""

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
        """The text of some lexemes that stand side by side, on one line and cut where it is long."""
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
        """What was read of the statement."""
        return tuple(reversed(tuple(takewhile(lambda lexeme: lexeme.text != ";", reversed(self.before)))))

    @property
    def clause(self) -> str:
        """The first word of the clause that is being read; empty before the first clause."""
        words = (lexeme.text.upper() for lexeme in reversed(self.before))
        return next((word for word in words if word in (*CLAUSES, "PATTERN", ";")), "")

    @property
    def after_pattern(self) -> bool:
        """Whether a pattern could end here: AS may follow, and no operator unless a query's name was read."""
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
        """What stands before the slip, back to the last PATTERN, arrow, comma or bracket that encloses it."""
        ends = ("PATTERN", ";", ",", "<-", ":-")
        return tuple(reversed(_until(reversed(self.before), ends, opening=")]", closing="([")))


def item_of(lexemes: Iterable[Lexeme], ends: tuple[str, ...]) -> tuple[Lexeme, ...]:
    """The lexemes up to one of the ends, or to a bracket that closes what encloses them."""
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
