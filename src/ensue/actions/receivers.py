"""Calls of actions and their receivers: Python functions, and objects that accept single calls or tables of calls."""

from __future__ import annotations

import base64
import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from ensue.errors import SchemaError

# --- Calls

ID, ACTION = "delivery_id", "action"
"""The columns before the arguments in a table of calls."""

RESERVED = frozenset({ID, ACTION})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an action. The same event has the same `delivery_id` in every run.

    `positional` are the arguments without a name, `named` are the arguments with a name.
    """

    delivery_id: str
    action: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name. Arguments without a name are called `arg_1`, `arg_2`, ... by position.

        >>> Call("8f2b", "notify", (7,), {"urgent": True}).arguments
        {'arg_1': 7, 'urgent': True}
        """
        unnamed = {f"arg_{place}": value for place, value in enumerate(self.positional, start=1)}
        return {**unnamed, **(self.named or {})}

    def to_json(self) -> str:
        """Returns the call as one JSON object."""
        return to_json({ID: self.delivery_id, ACTION: self.action, "arguments": self.arguments})


def column_names(parameters: tuple[str | None, ...]) -> tuple[str, ...]:
    """Returns the columns of the arguments in a table of calls. None is an argument without a name."""
    return tuple(name or f"arg_{place}" for place, name in enumerate(parameters, start=1))


def calls_of(table: pa.Table, parameters: tuple[str | None, ...]) -> Iterator[Call]:
    """Yields the calls of a table, in order."""
    names = column_names(parameters)
    unnamed = [name for name, parameter in zip(names, parameters, strict=True) if parameter is None]
    named = [name for name in parameters if name is not None]
    for row in table.to_pylist():
        yield Call(row[ID], row[ACTION], tuple(row[name] for name in unnamed), {name: row[name] for name in named})


def without_ids(calls: pa.Table, known: Iterable[str]) -> pa.Table:
    """Returns the calls of a table without those whose ids are known."""
    return calls.filter(pc.invert(pc.is_in(calls.column(ID), pa.array(list(known), pa.string()))))


def to_json(value: Any) -> str:
    """Returns any value of a table as JSON: times as ISO 8601 text, bytes as base64, NaN and infinity as text.

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


# --- Receivers


class RejectedCall(Exception):  # noqa: N818 (it says what becomes of the call)
    """Raised by a receiver to refuse a call permanently. The call becomes a dead letter without a retry."""


@runtime_checkable
class CallReceiver(Protocol):
    """Receives calls one by one. An exception means that the call was not delivered."""

    def deliver(self, call: Call) -> None: ...


@runtime_checkable
class TableReceiver(Protocol):
    """Receives the calls of a step as one table with the columns `delivery_id`, `action` and the arguments.

    An exception means that the table was not delivered.
    """

    def deliver_table(self, calls: pa.Table) -> None: ...


Receiver: TypeAlias = "CallReceiver | TableReceiver"
ReceiverLike: TypeAlias = "Receiver | Callable[..., object]"


@dataclass(frozen=True, slots=True)
class FunctionReceiver:
    """Calls a Python function. A function with a parameter `delivery_id` also gets the id of the delivery."""

    function: Callable[..., object]

    def deliver(self, call: Call) -> None:
        named = dict(call.named or {})
        if takes_id(self.function):
            named[ID] = call.delivery_id
        self.function(*call.positional, **named)


def receiver_of(action: str, given: object) -> Receiver:
    """Returns the receiver of an action."""
    if isinstance(given, CallReceiver | TableReceiver):
        return given
    if not callable(given):
        raise SchemaError(
            "receiver-type",
            f"the receiver of `{action}` must be a function or a receiver object, found {type(given).__name__}",
            "pass a function, `webhook(...)`, `table_sink(...)`, `kafka(...)` or `spark_sink(...)` of `ensue.actions`",
        )
    if inspect.iscoroutinefunction(given):
        raise SchemaError(
            "receiver-type",
            f"the receiver of `{action}` is an async function, which is not supported",
            "pass a synchronous function, for example one that calls `asyncio.run`",
        )
    return FunctionReceiver(given)


def takes_id(function: Callable[..., object]) -> bool:
    """Returns whether a function has a parameter for the id of the delivery."""
    signature = signature_of(function)
    parameter = None if signature is None else signature.parameters.get(ID)
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def misfit(receiver: Receiver, parameters: tuple[str | None, ...]) -> tuple[str, str] | None:
    """Returns why a function does not accept these arguments, and its signature; None if it accepts them."""
    if not isinstance(receiver, FunctionReceiver):
        return None
    signature = signature_of(receiver.function)
    if signature is None:
        return None
    named: dict[str, Any] = {name: None for name in parameters if name is not None}
    if takes_id(receiver.function):
        named[ID] = None
    try:
        signature.bind(*(None for name in parameters if name is None), **named)
    except TypeError as error:
        return str(error), str(signature)
    return None


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """Returns the signature of a function; None for functions in C without one."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
