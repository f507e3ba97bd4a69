"""Delivering calls: in rounds with growing pauses, actions side by side, until each is taken or a dead letter."""

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

# --- What has been delivered, in a file: ids that outlast the process.

_TABLE = "CREATE TABLE IF NOT EXISTS delivered (id TEXT PRIMARY KEY) WITHOUT ROWID"
_FITTING = 500
"""How many ids one question asks for; SQLite takes at least 999."""


class Journal:
    """The ids of deliveries, kept in an SQLite file. Each `add` is on the disk when it returns.

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
        """Those of the ids that have been added before."""
        found: set[str] = set()
        with self._lock, self._reporting():
            for begin in range(0, len(ids), _FITTING):
                some = ids[begin : begin + _FITTING]
                places = ", ".join("?" * len(some))
                rows = self._connection.execute(f"SELECT id FROM delivered WHERE id IN ({places})", some)
                found.update(row[0] for row in rows)
        return found

    def add(self, ids: Iterable[str]) -> None:
        """Keeps ids; those that are there already stay."""
        with self._lock, self._reporting(), self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO delivered VALUES (?)", [(one,) for one in ids])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise StateError(
                "journal",
                f"the journal of deliveries `{self.path.name}` cannot be used: {error}",
                "pass the path of a new file, or of one that Ensue has made",
            ) from error

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- delivery

LONGEST_PAUSE = 30.0
"""Seconds beyond which pauses between rounds do not grow."""

PATIENCE = 60.0
"""Seconds after the beginning of a step from which nothing is tried again."""

GIVEN_UP_AFTER = 3
"""So many failures in a row, once there is no more patience, and what is left is not tried at all."""

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
    """Where the calls of one ON statement go; `parameters` are the names of its arguments (None: without one)."""

    action: str
    parameters: tuple[str | None, ...]
    receiver: receivers.Receiver


Part: TypeAlias = "tuple[Route, pa.Table]"
"""A route and the calls of a step that go there."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a call is tried again, after how many seconds at first, and for how long in one step."""

    retries: int = 5
    backoff: float = 1.0
    patience: float = PATIENCE

    def pause(self, number: int) -> float:
        """Seconds before round `number`, from 1.

        >>> [Policy().pause(number) for number in (1, 2, 3, 4, 5, 6, 2000)]
        [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        """
        return min(self.backoff * 2.0 ** min(number - 1, 64), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of calls. `repeated` are those that the journal says were delivered before.

    `retried` are those of the others that took more than one attempt, `dead_letters` those that were never taken.
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
    """What is handed over at once: a call, or all calls of a step; and what has become of it."""

    calls: tuple[receivers.Call, ...]
    hand_over: Callable[[], None]
    attempts: int = 0
    first: datetime | None = None
    last: datetime | None = None
    error: str = ""
    taken: bool = False
    hopeless: bool = False


class _Line:
    """The calls of one action, in their order; `parts` are those of each ON that names it."""

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
        """Tries all in order, then those that were not taken again, and so on."""
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
        """Waits; False if there is no patience for it."""
        return time.monotonic() + seconds < self._deadline and not self._stopped.wait(seconds)

    def _attempt(self, parcel: _Parcel) -> None:
        if self._given_up:
            parcel.error = parcel.error or "not tried, because the receiver had taken nothing for some time"
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
    """Delivers the calls of every step. It holds no open file, so that Spark can send it to where it delivers."""

    routes: tuple[Route, ...]
    policy: Policy = Policy()
    dead_letters: receivers.TableReceiver | None = None
    journal: Path | None = None

    def deliver(self, tables: Sequence[pa.Table]) -> Deliveries:
        """Delivers the calls of one step, a table for each route. Actions do not wait for each other.

        Every call ends as delivered or as a dead letter; only dead letters or a journal that cannot be written raise.
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
            # On the way out, for whatever reason, nobody waits for pauses.
            stack.callback(stopped.set)
            lines = [_Line(parts, self.policy, journal, stopped) for parts in by_action.values()]
            outcome = sum(pool.map(_Line.deliver, lines), Deliveries())
        if self.dead_letters is not None and outcome.failed:
            self.dead_letters.deliver_table(outcome.dead_letters)
        return outcome
