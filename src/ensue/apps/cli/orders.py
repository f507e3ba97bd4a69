"""A drawn stream of order fulfilment: most orders go well, some go wrong in ways that a pattern can find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ensue.apps.cli.terminal import UsageError, counted, messages

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
MONDAY = 1_741_564_800
"""2025-03-10 00:00 UTC in seconds: the first orders."""

Seconds = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]
FIRST_ORDER = 100_001


@dataclass(slots=True)
class _Drawing:
    """Events as they are drawn, one array per call; seconds count from `MONDAY`, orders are numbered from 0."""

    random: np.random.Generator
    amounts: npt.NDArray[np.float64]
    tables: list[pa.Table] = field(default_factory=list)

    def chance(self, share: float) -> Chosen:
        return self.random.random(len(self.amounts)) < share

    def hours(self, typical: float) -> Seconds:
        """Waiting times around `typical` hours, with a long tail."""
        return self.random.lognormal(np.log(typical * HOUR), 0.4, len(self.amounts))

    def add(
        self,
        stream: str,
        chosen: Chosen,
        at: Seconds,
        severity: npt.NDArray[np.int64] | None = None,
        channels: Sequence[str] = (),
    ) -> None:
        """One event for each chosen order, at a whole second; its channel is drawn from `channels`."""
        orders = np.flatnonzero(chosen)
        count = len(orders)
        picked = self.random.choice(list(channels), count).tolist() if channels else [None] * count
        self.tables.append(
            pa.table(
                {
                    "t": pa.array((MONDAY + at[orders]).astype(np.int64), pa.timestamp("s", "UTC")),
                    "type": pa.array([stream] * count, pa.string()),
                    "order_id": pa.array(orders + FIRST_ORDER, pa.int64()),
                    "amount": pa.array(self.amounts[orders], pa.float64()),
                    "severity": pa.nulls(count, pa.int64()) if severity is None else pa.array(severity[orders]),
                    "channel": pa.array(picked, pa.string()),
                }
            )
        )


def draw_orders(count: int, seed: int) -> pa.Table:
    """The events of `count` orders placed within one week, each followed to its end, in order of time."""
    random = np.random.default_rng(seed)
    drawing = _Drawing(random, np.round(random.lognormal(4.0, 0.8, count), 2))
    placed = random.uniform(0, WEEK, count)
    shipped, at_shipping = _draw_fulfilment(drawing, placed)
    delivered = shipped & ~drawing.chance(0.01)
    at_delivery = at_shipping + drawing.hours(30)
    drawing.add("Delivered", delivered, at_delivery)
    drawing.add("Delivered", delivered & drawing.chance(0.01), at_delivery + drawing.hours(20))
    _draw_complaints(drawing, delivered, at_delivery)
    return pa.concat_tables(drawing.tables).sort_by([("t", "ascending"), ("order_id", "ascending")])


def _draw_fulfilment(drawing: _Drawing, placed: Seconds) -> tuple[Chosen, Seconds]:
    """Placed, paid, packed, shipped or cancelled on the way; which orders were shipped, and when."""
    everyone = np.ones(len(placed), bool)
    drawing.add("Placed", everyone, placed)
    paid = ~drawing.chance(0.05)
    at_payment = placed + np.where(drawing.chance(0.02), drawing.hours(70), drawing.hours(0.5))
    drawing.add("Paid", paid, at_payment)
    packed = np.where(paid, ~drawing.chance(0.01), drawing.chance(0.2))
    at_packing = np.where(paid & drawing.chance(0.98), at_payment, placed) + drawing.hours(8)
    drawing.add("Packed", packed, at_packing)
    cancelled = drawing.chance(0.04)
    at_cancelling = placed + drawing.hours(10)
    at_shipping = at_packing + np.where(drawing.chance(0.03), drawing.hours(60), drawing.hours(9))
    drawing.add("Cancelled", cancelled, at_cancelling)
    shipped = packed & ~drawing.chance(0.01) & ~(cancelled & (at_cancelling < at_shipping))
    drawing.add("Shipped", shipped, at_shipping)
    return shipped, at_shipping


def _draw_complaints(drawing: _Drawing, delivered: Chosen, at_delivery: Seconds) -> None:
    complaining = delivered & drawing.chance(0.06)
    at_complaint = at_delivery + drawing.hours(12)
    severity = drawing.random.integers(1, 6, len(delivered))
    drawing.add("Complaint", complaining, at_complaint, severity)
    drawing.add("Reply", complaining & drawing.chance(0.9), at_complaint + 60.0, channels=["automatic"])
    drawing.add(
        "Reply", complaining & drawing.chance(0.85), at_complaint + drawing.hours(10), channels=["mail", "phone"]
    )


def write_orders(count: int, seed: int, path: Path) -> None:
    """Writes the events of `count` orders to a file, in the format that its name says."""
    writers = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise UsageError("unknown-format", f"orders are written as .parquet or .csv, not as `{path}`")
    events = draw_orders(count, seed)
    try:
        write(events, path)
    except OSError as error:
        raise UsageError("unwritable-file", f"`{path}` cannot be written: {error.strerror}") from error
    messages(f"Written to {path}: {counted(events.num_rows, 'event')} of {counted(count, 'order')}")
