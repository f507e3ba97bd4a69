"""The rule of the ETALIS paper about opening and closing prices, on prices of each minute of real trades.

The paper has daily prices of stocks; the trades at hand are of one afternoon, so a minute takes the place of a day.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

import ensue
from test_nasdaq import needs_trades, trades

pytestmark = needs_trades

RULES = """
STREAM minute(symbol, opening, closing);
RULE above(symbol, closing, opening) <-
    x: minute(symbol, _, closing), y: minute(symbol, opening, _), x before y, {x, y} within 1, opening > closing
"""


def minutes() -> list[dict[str, Any]]:
    """The first and the last price of every symbol in every minute."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in trades().sort_by("timestamp").to_pylist():
        number = row["timestamp"].hour * 60 + row["timestamp"].minute
        fresh = {"type": "minute", "time": number, "symbol": row["id"], "opening": row["price"]}
        found.setdefault((row["id"], number), fresh)["closing"] = row["price"]
    return list(found.values())


def test_opening_above_the_closing_price_before() -> None:
    rows = minutes()
    found = ensue.run(pa.Table.from_pylist(rows), RULES, time="time", type="type")["above"]
    in_turn = pairwise(sorted(rows, key=lambda row: (row["symbol"], row["time"])))
    expected = {
        (x["time"], y["time"], x["symbol"], x["closing"], y["opening"])
        for x, y in in_turn
        if x["symbol"] == y["symbol"] and y["time"] - x["time"] == 1 and y["opening"] > x["closing"]
    }
    assert len(expected) > 100
    assert {tuple(row.values()) for row in found.to_pylist()} == expected
    assert found.num_rows == len(expected)
