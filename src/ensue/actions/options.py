"""How calls are delivered, as the user says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.actions.delivery import Courier, Policy, Route
from ensue.actions.journal import Journal
from ensue.actions.receivers import TableReceiver
from ensue.actions.tables import table_sink
from ensue.errors import QueryError, SchemaError
from ensue.nodes.expressions import Duration
from ensue.python.literals import WindowLike, window

PathLike: TypeAlias = "str | Path"
DeadLettersLike: TypeAlias = "str | Path | list[dict[str, Any]] | TableReceiver"


@dataclass(frozen=True, slots=True)
class ListOfRows:
    """Dead letters as rows of a list of the user."""

    rows: list[dict[str, Any]]

    def deliver_table(self, calls: pa.Table) -> None:
        self.rows.extend(calls.to_pylist())


def courier_of(
    routes: Sequence[Route],
    retries: int,
    backoff: WindowLike,
    patience: WindowLike,
    dead_letters: DeadLettersLike | None,
    delivered: PathLike | None,
) -> Courier:
    """What delivers along these routes."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise SchemaError("delivery-option", f"`retries` is a number from 0, not {retries!r}")
    policy = Policy(retries, _seconds("backoff", backoff), _seconds("patience", patience))
    journal = None if delivered is None else Path(delivered)
    if journal is not None:
        # What is wrong with it is said before anything runs.
        Journal(journal).close()
    return Courier(tuple(routes), policy, _letters(dead_letters), journal)


def _seconds(option: str, given: WindowLike) -> float:
    try:
        length = window(given)
    except (QueryError, TypeError, ValueError):
        length = None
    if not isinstance(length, Duration):
        raise SchemaError("delivery-option", f"`{option}` is a length of time such as '1 second', not {given!r}")
    return length.nanoseconds / 1e9


def _letters(given: object) -> TableReceiver | None:
    match given:
        case None:
            return None
        case str() | Path():
            return table_sink(given)
        case list():
            return ListOfRows(given)
        case TableReceiver():
            return given
    raise SchemaError(
        "delivery-option",
        f"`dead_letters` is a folder, a list or a receiver of tables, not {given!r}",
        "pass a path, or one of `ensue.table_sink`, `ensue.spark_sink`, `ensue.kafka`",
    )
