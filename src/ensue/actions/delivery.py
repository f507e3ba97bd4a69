"""Delivers calls: retries with growing pauses, actions in parallel, until each call is delivered or a dead letter."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.actions import receivers
from ensue.errors import StateError

# --- The journal of delivered ids

_TABLE = "CREATE TABLE IF NOT EXISTS delivered (id TEXT PRIMARY KEY) WITHOUT ROWID"
_FITTING = 500
"""The number of ids per query; SQLite allows at least 999."""


class Journal:
    """The ids of deliveries in an SQLite file. `add` returns when the ids are on the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Journal(f"{folder}/delivered.sqlite") as journal:
    ...     journal.add(["a"])
    ...     journal.known(["a", "b"])
    {'a'}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._reporting():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            with self._connection:
                self._connection.execute(_TABLE)

    def known(self, ids: Sequence[str]) -> set[str]:
        """Returns the ids that were added before."""
        found: set[str] = set()
        with self._lock, self._reporting():
            for begin in range(0, len(ids), _FITTING):
                some = ids[begin : begin + _FITTING]
                places = ", ".join("?" * len(some))
                rows = self._connection.execute(f"SELECT id FROM delivered WHERE id IN ({places})", some)
                found.update(row[0] for row in rows)
        return found

    def add(self, ids: Iterable[str]) -> None:
        """Adds ids that are not in the journal yet."""
        with self._lock, self._reporting(), self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", [(one,) for one in ids])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise StateError(
                "journal",
                f"cannot open or write the delivery journal `{self.path.name}`: {error}",
                "pass the path of a new file, or of a journal that Ensue has written",
            ) from error

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- Delivery

LONGEST_PAUSE = 30.0
"""The longest pause between two rounds, in seconds."""

PATIENCE = 60.0
"""Seconds after the start of a step during which failed calls are retried."""

GIVEN_UP_AFTER = 3
"""After `PATIENCE` and this many failures in a row, the remaining calls are not tried."""

MOMENT = pa.timestamp("us", "UTC")
DEAD_LETTERS = pa.schema(
    [
        (receivers.ID, pa.string()),
        (receivers.ACTION, pa.string()),
        ("arguments", pa.string()),
        ("error", pa.string()),
        ("attempts", pa.int64()),
        ("first_attempt", MOMENT),
        ("last_attempt", MOMENT),
    ]
)


@dataclass(frozen=True, slots=True)
class Route:
    """The receiver of the calls of one ON statement. `parameters` are the names of the arguments; None: no name."""

    action: str
    parameters: tuple[str | None, ...]
    receiver: receivers.Receiver


Part: TypeAlias = "tuple[Route, pa.Table]"
"""A route and its calls in one step."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a failed call is retried, the first pause in seconds, and the time limit for retries in one step."""

    retries: int = 5
    backoff: float = 1.0
    patience: float = PATIENCE

    def pause(self, number: int) -> float:
        """Returns the seconds to wait before round `number`, counted from 1.

        >>> [Policy().pause(number) for number in (1, 2, 3, 4, 5, 6, 2000)]
        [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        """
        return min(self.backoff * 2.0 ** min(number - 1, 64), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The result of delivering calls. `repeated` counts the calls that the journal already had.

    `retried` counts the other calls that needed more than one attempt. `dead_letters` are the undelivered calls.
    """

    delivered: int = 0
    repeated: int = 0
    retried: int = 0
    dead_letters: pa.Table = field(default_factory=DEAD_LETTERS.empty_table, repr=False)

    @property
    def failed(self) -> int:
        return int(self.dead_letters.num_rows)

    def __add__(self, other: Deliveries) -> Deliveries:
        return Deliveries(
            self.delivered + other.delivered,
            self.repeated + other.repeated,
            self.retried + other.retried,
            pa.concat_tables([self.dead_letters, other.dead_letters]),
        )


@dataclass(slots=True)
class _Parcel:
    """A unit of delivery (one call, or all calls of a step), and its result."""

    calls: tuple[receivers.Call, ...]
    hand_over: Callable[[], None]
    attempts: int = 0
    first: datetime | None = None
    last: datetime | None = None
    error: str = ""
    taken: bool = False
    hopeless: bool = False


class _Line:
    """The calls of one action, in order. `parts` are the calls of each ON statement with this action."""

    def __init__(
        self, parts: Sequence[Part], policy: Policy, journal: Journal | None, stopped: threading.Event
    ) -> None:
        self._parts = parts
        self._policy = policy
        self._journal = journal
        self._stopped = stopped
        self._deadline = time.monotonic() + policy.patience
        self._failures_in_a_row = 0

    def deliver(self) -> Deliveries:
        fresh = [(route, self._without_known(table)) for route, table in self._parts]
        parcels = [parcel for route, table in fresh for parcel in _parcels(route, table)]
        self._rounds(parcels)
        return Deliveries(
            sum(len(parcel.calls) for parcel in parcels if parcel.taken),
            sum(table.num_rows for _, table in self._parts) - sum(table.num_rows for _, table in fresh),
            sum(len(parcel.calls) for parcel in parcels if parcel.attempts > 1),
            _dead_letters([parcel for parcel in parcels if not parcel.taken]),
        )

    def _without_known(self, calls: pa.Table) -> pa.Table:
        return (
            calls
            if self._journal is None
            else receivers.without_ids(calls, self._journal.known(calls.column(receivers.ID).to_pylist()))
        )

    def _rounds(self, parcels: list[_Parcel]) -> None:
        """Tries all calls in order, then retries the failed ones in the same way."""
        waiting = parcels
        for number in range(self._policy.retries + 1):
            if number and not self._pause(self._policy.pause(number)):
                return
            for parcel in waiting:
                self._attempt(parcel)
            waiting = [parcel for parcel in waiting if not (parcel.taken or parcel.hopeless)]
            if not waiting:
                return

    def _pause(self, seconds: float) -> bool:
        """Waits and returns True, or returns False if the deadline does not allow it."""
        return time.monotonic() + seconds < self._deadline and not self._stopped.wait(seconds)

    def _attempt(self, parcel: _Parcel) -> None:
        if self._given_up:
            parcel.error = parcel.error or "not tried: the receiver failed repeatedly"
            return
        parcel.attempts += 1
        parcel.last = datetime.now(UTC)
        parcel.first = parcel.first or parcel.last
        try:
            parcel.hand_over()
        except Exception as error:  # noqa: BLE001 (a receiver is the user's: whatever it raises, detection goes on)
            parcel.error = f"{type(error).__name__}: {error}"
            parcel.hopeless = isinstance(error, receivers.RejectedCall)
            self._failures_in_a_row += not parcel.hopeless
            return
        parcel.taken = True
        self._failures_in_a_row = 0
        if self._journal is not None:
            self._journal.add(call.delivery_id for call in parcel.calls)

    @property
    def _given_up(self) -> bool:
        if self._stopped.is_set():
            return True
        return self._failures_in_a_row >= GIVEN_UP_AFTER and time.monotonic() > self._deadline


def _parcels(route: Route, table: pa.Table) -> list[_Parcel]:
    calls, receiver = tuple(receivers.calls_of(table, route.parameters)), route.receiver
    if not isinstance(receiver, receivers.TableReceiver):
        return [_Parcel((call,), partial(receiver.deliver, call)) for call in calls]
    return [_Parcel(calls, partial(receiver.deliver_table, table))] if calls else []


def _dead_letters(parcels: Sequence[_Parcel]) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            receivers.ID: call.delivery_id,
            receivers.ACTION: call.action,
            "arguments": receivers.to_json(call.arguments),
            "error": parcel.error,
            "attempts": parcel.attempts,
            "first_attempt": parcel.first,
            "last_attempt": parcel.last,
        }
        for parcel in parcels
        for call in parcel.calls
    ]
    return pa.Table.from_pylist(rows, DEAD_LETTERS)


@dataclass(frozen=True, slots=True)
class Courier:
    """Delivers the calls of each step. It has no open files, so that Spark can serialize it."""

    routes: tuple[Route, ...]
    policy: Policy = Policy()
    dead_letters: receivers.TableReceiver | None = None
    journal: Path | None = None

    def deliver(self, tables: Sequence[pa.Table]) -> Deliveries:
        """Delivers the calls of one step, one table per route. Actions do not wait for each other.

        Each call is delivered or becomes a dead letter. An error is raised only if the dead letters or the journal
        cannot be written.
        """
        by_action: dict[str, list[Part]] = {}
        for route, table in zip(self.routes, tables, strict=True):
            if table.num_rows:
                by_action.setdefault(route.action, []).append((route, table))
        if not by_action:
            return Deliveries()
        stopped = threading.Event()
        with ExitStack() as stack:
            journal = stack.enter_context(Journal(self.journal)) if self.journal is not None else None
            pool = stack.enter_context(ThreadPoolExecutor(len(by_action), "ensue-action"))
            # Whatever the reason for leaving, do not wait for pauses.
            stack.callback(stopped.set)
            lines = [_Line(parts, self.policy, journal, stopped) for parts in by_action.values()]
            outcome = sum(pool.map(_Line.deliver, lines), Deliveries())
        if self.dead_letters is not None and outcome.failed:
            self.dead_letters.deliver_table(outcome.dead_letters)
        return outcome
