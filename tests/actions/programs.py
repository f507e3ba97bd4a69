"""What the tests of actions share: a program, and a receiver that fails as often as it is told to."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pyarrow as pa

from ensue.actions import Delivery

LATE = """
    STREAM late FROM PATTERN SEQ(Order o, NOT Paid p) PARTITION BY id WITHIN 5
    RETURN o.id AS id, o.qty AS qty, o.t AS at;
    ON late l DO notify(l.id, qty = l.qty)
"""
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}


def fast(**options: Any) -> dict[str, Any]:
    """The columns, and a delivery that hardly pauses."""
    return {**COLUMNS, "delivery": Delivery(**{"backoff": "1 millisecond", **options})}


FAST = fast()


def orders(ids: range = range(4), paid: int = 1) -> pa.Table:
    """An order at time `id` for each id; the one of id `paid` is paid in time."""
    times, kinds, numbers = [*ids, paid + 2], ["Order"] * len(ids) + ["Paid"], [*ids, paid]
    table = pa.table({"t": times, "type": kinds, "id": numbers, "qty": [10 * number for number in numbers]})
    return table.sort_by("t")


class Flaky:
    """Raises at the first `failures` calls for each id, and remembers what it took; -1: raises always."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.taken: list[Any] = []
        self.ids: list[str] = []
        self.attempts: Counter[Any] = Counter()
        self.threads: set[int] = set()

    def __call__(self, id: int, qty: int | None = None, *, delivery_id: str) -> None:
        self.threads.add(threading.get_ident())
        self.attempts[id] += 1
        if self.failures < 0 or self.attempts[id] <= self.failures:
            raise ConnectionError(f"nobody at home for {id}")
        self.taken.append((id, qty))
        self.ids.append(delivery_id)
