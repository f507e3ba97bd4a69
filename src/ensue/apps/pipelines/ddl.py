"""Reads columns and types in Spark's DDL (`id BIGINT, at TIMESTAMP`) as an Arrow schema, without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from ensue.errors import did_you_mean

_TOKEN = re.compile(r"""\s*(?:`((?:[^`]|``)+)`|(\w+)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|([<>(),:]))""")

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
"""Spark's types without parameters. Types that are not here have the type null, which fits everything."""

_OTHERS = "DECIMAL DEC NUMERIC CHAR CHARACTER VARCHAR ARRAY MAP STRUCT INTERVAL VARIANT VOID TIME GEOMETRY GEOGRAPHY"
UNKNOWN = pa.null()
"""The type of a column whose type is only known to Spark."""


class DdlError(Exception):
    """The text is not columns and types. `hint` says what to write."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


def read_ddl(text: str) -> pa.Schema | None:
    """Returns the columns of a DDL text, or None if only Spark can read it. Raises DdlError for a misspelt type.

    >>> read_ddl("id BIGINT, place STRUCT<city: STRING, `zip code`: INT> COMMENT 'of the sender'")
    id: int64
    place: struct<city: string, zip code: int32>
      child 0, city: string
      child 1, zip code: int32
    """
    reader = _Reader(_tokens(text))
    try:
        if reader.word(0).upper() == "STRUCT" and reader.sign(1) == "<":
            return pa.schema(list(reader.type()))
        return pa.schema(reader.fields(""))
    except _Unreadable:
        return None


class _Unreadable(Exception):  # noqa: N818 (the caller leaves the text to Spark)
    """The text is in a form that this reader does not know."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A name (`quoted` if in backticks), or a sign. A text in quotes is a sign as well."""

    text: str
    named: bool = False
    quoted: bool = False


def _tokens(text: str) -> list[_Token]:
    tokens, place, end = [], 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            return [_Token("?")]
        quoted, word, literal, sign = found.groups()
        if quoted is not None:
            tokens.append(_Token(quoted.replace("``", "`"), True, True))
        else:
            tokens.append(_Token(word or literal or sign, word is not None))
        place = found.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._place = tokens, 0

    def word(self, ahead: int) -> str:
        """The next unquoted word; empty if there is something else."""
        token = self._at(ahead)
        return token.text if token is not None and token.named and not token.quoted else ""

    def sign(self, ahead: int = 0) -> str:
        """The next sign; empty if there is something else."""
        token = self._at(ahead)
        return "" if token is None or token.named else token.text

    def fields(self, closing: str) -> list[pa.Field]:
        """Reads fields up to the closing sign; with an empty one, to the end."""
        fields = []
        while True:
            name = self._at(0)
            if name is None or not name.named:
                raise _Unreadable
            self._place += 1
            if self.sign() == ":":
                self._place += 1
            elif self._at(0) is None or self.sign() in (",", ">"):
                raise DdlError(f"column `{name.text}` has no type", f"write `{name.text} STRING`, for example")
            fields.append(pa.field(name.text, self.type()))
            self._skip_rest()
            if self.sign() == ",":
                self._place += 1
            elif self.sign() == closing and (closing or self._at(0) is None):
                self._place += bool(closing)
                return fields
            else:
                raise _Unreadable

    def type(self) -> pa.DataType:
        """Reads a type."""
        name = self.word(0).upper()
        self._place += 1
        match name, self.sign():
            case "STRUCT", "<":
                self._place += 1
                return pa.struct(self.fields(">"))
            case "ARRAY", "<":
                return pa.list_(self._parameters(1)[0])
            case "MAP", "<":
                key, value = self._parameters(2)
                return pa.map_(key, value)
            case (("DECIMAL" | "DEC" | "NUMERIC"), sign):
                numbers = self._numbers() if sign == "(" else [10]
                return pa.decimal128(*numbers) if 1 <= len(numbers) <= 2 and 1 <= numbers[0] <= 38 else UNKNOWN
            case (("CHAR" | "CHARACTER" | "VARCHAR"), "("):
                self._numbers()
                return pa.string()
        if name in TYPES:
            return TYPES[name]
        if name not in _OTHERS.split():
            if hint := did_you_mean(name, [*TYPES, *_OTHERS.split()]):
                raise DdlError(f"unknown type `{name}`", hint)
            raise _Unreadable
        return UNKNOWN

    def _parameters(self, count: int) -> list[pa.DataType]:
        found = []
        for sign in ["<", *[","] * (count - 1)]:
            if self.sign() != sign:
                raise _Unreadable
            self._place += 1
            found.append(self.type())
        if self.sign() != ">":
            raise _Unreadable
        self._place += 1
        return found

    def _numbers(self) -> list[int]:
        numbers = []
        while self.sign() != ")":
            self._place += 1
            if not self.word(0).isdecimal():
                raise _Unreadable
            numbers.append(int(self.word(0)))
            self._place += 1
        self._place += 1
        return numbers

    def _skip_rest(self) -> None:
        """Skips what can follow a type: NOT NULL, COMMENT, COLLATE, the units of an interval."""
        while self._at(0) is not None and self.sign() not in (",", ">"):
            self._place += 1

    def _at(self, ahead: int) -> _Token | None:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else None
