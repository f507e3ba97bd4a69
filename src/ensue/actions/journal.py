"""What has been delivered, in a file: ids that outlast the process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from ensue.errors import StateError

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
