"""Calls of actions: what a receiver is handed, one by one or as a table, and as JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ID, ACTION = "delivery_id", "action"
"""The columns that a table of calls has before its arguments."""

RESERVED = frozenset({ID, ACTION})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an action. The same event gives the same `delivery_id` in every run.

    `positional` are the arguments without a name, `named` those with one.
    """

    delivery_id: str
    action: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name; those without one are called `arg_1`, `arg_2`, ... by their place.

        >>> Call("8f2b", "notify", (7,), {"urgent": True}).arguments
        {'arg_1': 7, 'urgent': True}
        """
        unnamed = {f"arg_{place}": value for place, value in enumerate(self.positional, start=1)}
        return {**unnamed, **(self.named or {})}

    def to_json(self) -> str:
        """The call as one JSON object."""
        return to_json({ID: self.delivery_id, ACTION: self.action, "arguments": self.arguments})


def column_names(parameters: tuple[str | None, ...]) -> tuple[str, ...]:
    """The columns of the arguments in a table of calls; None is an argument without a name."""
    return tuple(name or f"arg_{place}" for place, name in enumerate(parameters, start=1))


def calls_of(table: pa.Table, parameters: tuple[str | None, ...]) -> Iterator[Call]:
    """The calls of a table, in order."""
    names = column_names(parameters)
    unnamed = [name for name, parameter in zip(names, parameters, strict=True) if parameter is None]
    named = [name for name in parameters if name is not None]
    for row in table.to_pylist():
        yield Call(row[ID], row[ACTION], tuple(row[name] for name in unnamed), {name: row[name] for name in named})


def without_ids(calls: pa.Table, known: Iterable[str]) -> pa.Table:
    """The calls of a table whose ids are not among those known."""
    return calls.filter(pc.invert(pc.is_in(calls.column(ID), pa.array(list(known), pa.string()))))


def to_json(value: Any) -> str:
    """JSON for any value of a table: moments as ISO text, bytes as base64, what is no number in JSON as text.

    >>> to_json({"at": datetime(2024, 5, 1, 12), "x": float("nan")})
    '{"at": "2024-05-01T12:00:00", "x": "NaN"}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _infinite(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return str(value)


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
