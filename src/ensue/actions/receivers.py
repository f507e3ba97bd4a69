"""What takes the calls of an action: a Python function, or an object that takes calls one by one or as a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from ensue.actions.calls import ID, Call
from ensue.errors import SchemaError


class Rejected(Exception):  # noqa: N818 (it says what becomes of the call)
    """Raised by a receiver for a call that it will never take: the call is a dead letter at once."""


@runtime_checkable
class CallReceiver(Protocol):
    """Takes calls one by one; what it raises says that the call was not delivered."""

    def deliver(self, call: Call) -> None: ...


@runtime_checkable
class TableReceiver(Protocol):
    """Takes the calls of a step in one table: `delivery_id`, `action` and the arguments.

    What it raises says that the table was not delivered.
    """

    def deliver_table(self, calls: pa.Table) -> None: ...


Receiver: TypeAlias = "CallReceiver | TableReceiver"
ReceiverLike: TypeAlias = "Receiver | Callable[..., object]"


@dataclass(frozen=True, slots=True)
class FunctionReceiver:
    """A Python function; one with a parameter `delivery_id` is handed the id of the delivery as well."""

    function: Callable[..., object]

    def deliver(self, call: Call) -> None:
        named = dict(call.named or {})
        if takes_id(self.function):
            named[ID] = call.delivery_id
        self.function(*call.positional, **named)


def receiver_of(action: str, given: object) -> Receiver:
    """The receiver that was handed over for an action."""
    if isinstance(given, CallReceiver | TableReceiver):
        return given
    if not callable(given):
        raise SchemaError(
            "receiver-type",
            f"the receiver of `{action}` is a {type(given).__name__}",
            "pass a Python function, or one of `ensue.webhook`, `ensue.table_sink`, `ensue.kafka`, `ensue.spark_sink`",
        )
    if inspect.iscoroutinefunction(given):
        raise SchemaError(
            "receiver-type",
            f"the receiver of `{action}` is an async function, which a call alone does not run",
            "pass a plain function, for example one that calls `asyncio.run`",
        )
    return FunctionReceiver(given)


def takes_id(function: Callable[..., object]) -> bool:
    """Whether a function has a parameter for the id of the delivery."""
    signature = signature_of(function)
    parameter = None if signature is None else signature.parameters.get(ID)
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def misfit(receiver: Receiver, parameters: tuple[str | None, ...]) -> tuple[str, str] | None:
    """Why a function cannot be called with arguments of these names (None: without one), and what it takes."""
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
    """The parameters of a function; None for some that are written in C and do not tell."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
