"""Columns with room behind them: what was written stays, whoever goes on from it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inside import Room, joined

COLUMNS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "short": (pa.int16(), st.integers(-9, 9)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(max_size=3)),
    "large": (pa.large_string(), st.text(max_size=3)),
    "moment": (pa.timestamp("us", "UTC"), st.integers(0, 99)),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "exact": (pa.decimal128(9, 2), st.decimals(-9, 9, places=2)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=2)),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table with nulls, which may be cut out of a larger one."""
    rows = draw(st.integers(0, 6))
    columns = []
    for kind, values in COLUMNS.values():
        drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns.append(pa.array(drawn, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(drawn, kind))
    table = pa.table(columns, schema=SCHEMA)
    return table.slice(draw(st.integers(0, rows)))


@given(data=st.data())
def test_rows_stay_whoever_goes_on_from_them(data: st.DataObject) -> None:
    """Tables grow out of each other in any way; each is what its parts say, also after others have grown."""
    grown: list[tuple[pa.Table, tuple[Room | None, ...], pa.Table]] = [(first := data.draw(tables()), (), first)]
    for _ in range(data.draw(st.integers(1, 6))):
        table, rooms, expected = data.draw(st.sampled_from(grown))
        more = data.draw(tables())
        rows = np.array(
            data.draw(st.lists(st.integers(0, more.num_rows - 1), max_size=4)) if more.num_rows else [], int
        )
        longer, after = joined(table, rooms, more, rows)
        grown.append((longer, after, pa.concat_tables([expected, more.take(pa.array(rows))])))
        for found, _, wanted in grown:
            found.validate(full=True)
            assert found.to_pylist() == wanted.to_pylist()


def test_columns_of_another_type_are_brought_to_that_of_the_table() -> None:
    table = pa.table({"d": pa.array([date(2026, 1, 1)]), "x": ["a"], "n": [Decimal(1)]})
    more = pa.table(
        {"x": pa.array(["b", "c"]).dictionary_encode(), "d": [None, date(2026, 1, 2)], "n": [Decimal(2)] * 2}
    )
    found, _ = joined(table, (), more, np.array([1]))
    assert found.to_pylist()[1] == {"d": date(2026, 1, 2), "x": "c", "n": Decimal(2)}


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_room_doubles(kind: pa.DataType) -> None:
    """A thousand rows, one by one, are copied a few times only."""
    table, rooms, made = pa.table({"x": pa.array([], kind)}), (), set()
    one = pa.table({"x": pa.array([7]).cast(kind)})
    for _ in range(1000):
        table, rooms = joined(table, rooms, one, np.array([0]))
        made.add(id(rooms[0]))
    assert table.column("x").to_pylist() == [one.column("x")[0].as_py()] * 1000
    assert len(made) < 40
