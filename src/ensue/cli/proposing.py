"""What a table of events probably means: its time, its type, its key, and a first pattern that its rows have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ensue.cli.reporting import UsageError

TIME_NAMES = re.compile(r"^(t|ts|at|time|timestamp|date|datetime|when)$|(_at|_ts|_time|time|timestamp|_date)$", re.I)
TYPE_NAMES = re.compile(r"^(type|kind|event|event_type|event_name|eventtype|action|activity|status|state|name)$", re.I)
KEY_NAMES = re.compile(r"(^|_)(id|key|user|customer|account|order|session|device|case|host|ip)$|[a-z]Id$|_id$", re.I)
MOST_TYPES = 60
LENGTHS = {
    "1 minute": 60,
    "2 minutes": 120,
    "5 minutes": 300,
    "10 minutes": 600,
    "30 minutes": 1800,
    "1 hour": 3600,
    "2 hours": 7200,
    "6 hours": 21600,
    "12 hours": 43200,
    "1 day": 86400,
    "2 days": 172800,
    "7 days": 604800,
}
"""Round lengths of time, in seconds."""

SAMPLE = 200_000
"""Rows that are looked at."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Which column means what, and two streams of which one often comes before the other under one key."""

    time: str
    type: str | None
    key: str | None
    first: str
    second: str
    window: str
    integer_time: bool


def propose(table: pa.Table, time: str | None, type: str | None, key: str | None) -> Proposal:
    """Looks at the columns and the first rows; what is given is taken as it is."""
    head = table.slice(0, SAMPLE)
    for role, name in (("--time", time), ("--type", type), ("--key", key)):
        if name is not None and name not in head.column_names:
            columns = ", ".join(head.column_names)
            raise UsageError("no-such-column", f"the table has no column `{name}` for {role}; columns: {columns}")
    time = time or _best([name for name in head.column_names if _is_time(head, name)], TIME_NAMES)
    if time is None:
        columns = ", ".join(head.column_names)
        raise UsageError("no-time", f"no column looks like a time; columns: {columns}", "name it with --time COLUMN")
    others = [name for name in head.column_names if name != time]
    type = type or _best([name for name in others if _is_type(head, name)], TYPE_NAMES)
    key = key or _best([name for name in others if name != type and _is_key(head, name)], KEY_NAMES)
    integer = pa.types.is_integer(head.schema.field(time).type)
    first, second, window = _frequent_pair(head, time, type, key, integer)
    return Proposal(time, type, key, first, second, window, integer)


def _best(names: Sequence[str], wanted: re.Pattern[str]) -> str | None:
    """The first column whose name fits, else the first."""
    return next((name for name in names if wanted.search(name)), next(iter(names), None))


def _is_time(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return pa.types.is_timestamp(kind) or (pa.types.is_integer(kind) and TIME_NAMES.search(name) is not None)


def _is_type(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    distinct = pc.count_distinct(table.column(name)).as_py()
    return bool(2 <= distinct <= MOST_TYPES and distinct * 2 <= table.num_rows)


def _is_key(table: pa.Table, name: str) -> bool:
    """Values that come back, and more than a few of them."""
    kind = table.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    if KEY_NAMES.search(name) is None:
        return False
    return bool(1 < pc.count_distinct(table.column(name)).as_py() < table.num_rows)


def _frequent_pair(
    table: pa.Table, time: str, type: str | None, key: str | None, integer: bool
) -> tuple[str, str, str]:
    """The two streams that follow one another most often under one key, and a window that most such pairs fit."""
    if type is None:
        return "Event", "Event", "100" if integer else "1 hour"
    columns = {"t": table.column(time).cast(pa.int64()), "type": table.column(type).cast(pa.string())}
    columns["key"] = table.column(key) if key is not None else pa.nulls(table.num_rows)
    rows = pa.table(columns).sort_by([("key", "ascending"), ("t", "ascending")])
    before, after = rows.slice(0, max(0, rows.num_rows - 1)), rows.slice(1)
    same = pc.equal(before.column("key"), after.column("key")) if key is not None else pa.scalar(True)
    fits = pc.and_(pc.not_equal(before.column("type"), after.column("type")), same)
    pairs = pa.table(
        {
            "first": before.column("type"),
            "second": after.column("type"),
            "gap": pc.subtract(after.column("t"), before.column("t")),
        }
    ).filter(fits)
    if pairs.num_rows == 0:
        kinds = sorted(value for value in pc.unique(rows.column("type")).to_pylist() if value is not None)
        return kinds[0], kinds[-1], "100" if integer else "1 hour"
    counted = pairs.group_by(["first", "second"]).aggregate([("gap", "count")])
    best = counted.sort_by([("gap_count", "descending"), ("first", "ascending")]).to_pylist()[0]
    chosen = pairs.filter(
        pc.and_(pc.equal(pairs.column("first"), best["first"]), pc.equal(pairs.column("second"), best["second"]))
    )
    most = float(pc.quantile(chosen.column("gap"), 0.9)[0].as_py())
    return best["first"], best["second"], _window(most, table.schema.field(time).type)


def _window(gap: float, kind: pa.DataType) -> str:
    """A round length of time that is not shorter.

    >>> _window(250, pa.int64()), _window(90, pa.timestamp("s")), _window(5_000_000, pa.timestamp("us"))
    ('250', '2 minutes', '1 minute')
    """
    if not pa.types.is_timestamp(kind):
        return str(max(1, int(gap)))
    seconds = gap / {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
    fitting = (length for length, size in LENGTHS.items() if size >= seconds)
    return next(fitting, f"{int(seconds // 86400) + 1} days")
