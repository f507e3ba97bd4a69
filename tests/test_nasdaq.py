"""Ten nested queries over an hour of trades of nine symbols: counts, the oracle on a slice, batches on the whole.

The queries are in the manner of Liu, Rundensteiner and others, "High-performance nested CEP query processing over event
streams", with the shapes of `cases/7_stocks.txt`. Times have a resolution of a second, so many are equal.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

import ensue
from inside import parse_statements
from oracle.oracle import OracleEvent, matches

TRADES = Path(__file__).parents[2] / "shared" / "data" / "nasdaq_trades.csv"
MADE_UP = Path(__file__).parent / "data" / "trades.csv"
needs_trades = pytest.mark.skipif(not TRADES.exists(), reason=f"the trades are not at {TRADES}")
each_source = pytest.mark.parametrize(
    "source", [pytest.param(MADE_UP, id="made up"), pytest.param(TRADES, id="real", marks=needs_trades)]
)

QUERIES = {
    "q1": "PATTERN SEQ(AAPL a, AVGO v, NVDA n) WITHIN 10 seconds",
    "q2": "PATTERN SEQ(AAPL a, NOT MSFT m, NVDA n) WITHIN 10 seconds",
    "q3": "PATTERN SEQ(AAPL a, NOT SEQ(MSFT m, AMD d), NVDA n) WITHIN 10 seconds",
    "q4": "PATTERN SEQ(AVGO v, SEQ(MSFT m, NOT AMD d), SEQ(NVDA n, TSLA t)) WITHIN 10 seconds",
    "q5": "PATTERN SEQ(AVGO v, AND(MSFT m, AMD d), NVDA n) WITHIN 6 seconds",
    "q6": "PATTERN SEQ(AVGO v, OR(MSFT m, AMD d), NVDA n) WITHIN 10 seconds",
    "q7": "PATTERN SEQ(AAPL a, NOT AND(MSFT m, AMD d), NVDA n) WITHIN 10 seconds",
    "q8": "PATTERN SEQ(AAPL a, NOT OR(MSFT m, AMD d), NVDA n) WITHIN 10 seconds",
    "q9": "PATTERN SEQ(AAPL a, NOT SEQ(MSFT m, NOT AMD d), NVDA n) WITHIN 10 seconds",
    "q10": "PATTERN SEQ(AAPL a, NOT SEQ(MSFT m, NOT SEQ(AMD d, NOT OR(AMZN z, AVGO v))), NVDA n) "
    "WHERE n.price > a.price WITHIN 10 seconds",
}
# Found by the oracle as well, in slices of twenty seconds that overlap by the window.
COUNTS = {
    "q1": 3940,
    "q2": 2813,
    "q3": 4338,
    "q4": 2032,
    "q5": 2185,
    "q6": 7346,
    "q7": 2996,
    "q8": 1368,
    "q9": 6607,
    "q10": 6244,
}
BATCHES = 20
SLICE = (datetime(2023, 9, 5, 16, 30), datetime(2023, 9, 5, 16, 30, 40))
EPOCH = datetime(1970, 1, 1)

each_query = pytest.mark.parametrize("name", QUERIES)


@cache
def trades(source: Path = TRADES) -> pa.Table:
    """All trades, with `row` to tell trades apart; times in microseconds."""
    table = pa.csv.read_csv(source).select(["timestamp", "id", "price"])
    times = table.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    table = table.set_column(0, "timestamp", times)
    return table.append_column("row", pa.array(range(table.num_rows), pa.int64()))


def between(source: Path, since: datetime, until: datetime) -> pa.Table:
    """The trades with since <= time < until."""
    times = trades(source).column("timestamp")
    inside = pc.and_(pc.greater_equal(times, pa.scalar(since)), pc.less(times, pa.scalar(until)))
    return trades(source).filter(inside)


def bindings(found: pa.Table) -> Counter[tuple[tuple[str, int], ...]]:
    """The matches as (variable, row) pairs."""
    names = [field.name for field in found.schema if pa.types.is_struct(field.type)]
    rows = {name: pc.struct_field(found.column(name), "row").to_pylist() for name in names}
    return Counter(
        tuple(sorted((name, rows[name][place]) for name in names if rows[name][place] is not None))
        for place in range(found.num_rows)
    )


def detect(table: pa.Table, name: str) -> pa.Table:
    return ensue.detect(table, QUERIES[name], time="timestamp", type="id")


@needs_trades
@each_query
def test_count_over_the_hour(name: str) -> None:
    assert detect(trades(), name).num_rows == COUNTS[name]


@each_source
@each_query
def test_slice_against_the_oracle(name: str, source: Path) -> None:
    table = between(source, *SLICE)
    events = [
        OracleEvent(row["row"], row["id"], time, time, {"price": row["price"]})
        for row in table.to_pylist()
        for time in [(row["timestamp"] - EPOCH) // timedelta(microseconds=1) * 1000]
    ]
    expected = matches(parse_statements(QUERIES[name]).statements[0], events)
    assert expected
    assert bindings(detect(table, name)) == Counter(match.bindings for match in expected)


@each_source
@each_query
def test_batches_give_the_same(name: str, source: Path) -> None:
    detector = ensue.Detector(QUERIES[name], time="timestamp", type="id")
    since, length = datetime(2023, 9, 5, 16), timedelta(hours=1) / BATCHES
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for number in range(BATCHES):
        until = since + length
        step = detector.advance(between(source, since, until), watermark=until - timedelta(microseconds=1))
        assert step.late.num_rows == 0
        found += bindings(step.matches)
        since = until
        if source == TRADES:
            assert detector.kept_rows < trades().num_rows / 10, f"state grows: batch {number}"
    found += bindings(detector.finish().matches)
    assert found == bindings(detect(trades(source), name))
