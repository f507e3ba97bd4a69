"""What a user of DataFrames meets in batch: the answers and columns of a local run, lazy plans, errors first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import ensue
from ensue import EnsueError
from inside import carried, slices
from spark.test_cases_batch import SETTINGS, collect_together, frame_of, frames_of, settings, unreadable
from test_incidents import ABANDONED, PING_PONG, REOPENED, log, needs_incidents
from test_nasdaq import COUNTS, QUERIES, bindings, needs_trades, trades

QUERY = "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 5"
RETURNING = QUERY + " RETURN a.id AS id, a.t AS first, b.t AS last"
EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "id": [7, 7, 8, 8]})
FOUND = [{"id": 7, "first": 1, "last": 2}, {"id": 8, "first": 3, "last": 4}]
COLUMNS: Mapping[str, Any] = {"time": "t", "type": "type"}
ZONE = {"spark.sql.session.timeZone": "Asia/Kolkata"}


@pytest.fixture(scope="module", autouse=True)
def _small_jobs(spark: SparkSession) -> Iterator[None]:
    with settings(spark, {**SETTINGS, "spark.sql.shuffle.partitions": "2"}):
        yield


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return frame_of(spark, EVENTS)


def detect(events: Any, query: Any = QUERY, **options: Any) -> Any:
    return ensue.detect(events, query, **{**COLUMNS, **options})


def rows(found: pa.Table | DataFrame) -> list[dict[str, Any]]:
    table = found.toArrow() if isinstance(found, DataFrame) else found
    return sorted(table.to_pylist(), key=repr)


def with_column(name: str, values: Any, table: pa.Table = EVENTS) -> pa.Table:
    values = values if isinstance(values, pa.Array) else pa.array(values)
    if name in table.column_names:
        return table.set_column(table.schema.get_field_index(name), name, values)
    return table.append_column(name, values)


def plan_text(frame: DataFrame) -> str:
    text = StringIO()
    with redirect_stdout(text):
        frame.explain("formatted")
    return text.getvalue()


def result_schema_of(local: pa.Table) -> pa.Schema:
    """The columns of a local result with microseconds for other units, which Spark does not have."""
    return pa.schema([pa.field(field.name, carried(field.type)) for field in local.schema])


# --- the same answers as in this process, many by one job


@dataclass(frozen=True, slots=True)
class Scenario:
    """A query over tables; `matches` is how many there are, so that nothing equal to nothing is no success."""

    tables: pa.Table | dict[str, pa.Table]
    matches: int
    query: str = QUERY
    columns: Mapping[str, Any] = field(default_factory=lambda: COLUMNS)


def pairs(ones: pa.Array, others: pa.Array) -> Scenario:
    """Every key of the one table once more in the other, in a different order."""
    back = range(len(others) - 1, -1, -1)
    tables = {
        "A": pa.table({"t": range(len(ones)), "id": ones}),
        "B": pa.table({"t": range(20, 20 + len(others)), "id": others.take(list(back))}),
    }
    return Scenario(tables, 12, "PATTERN SEQ(A a, B b) PARTITION BY id", {"time": "t"})


def called(name: str) -> Scenario:
    """Columns, streams and variables of any name."""
    quoted = "`" + name.replace("`", "``") + "`"
    table = pa.table({f"{name} time": [1, 2, 3], f"{name} type": [name] * 3, name: [7, 7, 8]})
    query = f"PATTERN SEQ({quoted} {quoted}, {quoted} b) WHERE b.{quoted} = 7 PARTITION BY {quoted} WITHIN 5"
    return Scenario(table, 1, query, {"time": f"{name} time", "type": f"{name} type"})


NUMBERS = range(12)
DAYS = [date(2024, 1, 1) + timedelta(days=number) for number in NUMBERS]
MIDNIGHTS = [datetime(day.year, day.month, day.day) for day in DAYS]
ODD_ONES = pa.table({"t": [1, 2, 3], "id": [DAYS[:2]] * 3})

SCENARIOS = {
    "two keys": Scenario(EVENTS, 2),
    "no row": Scenario(EVENTS.slice(0, 0), 0),
    "no time": Scenario(with_column("t", pa.nulls(4, pa.int64())), 0),
    "no time in some rows": Scenario(with_column("t", [1, None, 3, 4]), 1),
    "no key": Scenario(with_column("id", pa.nulls(4, pa.int64())), 0),
    "no key in some rows": Scenario(with_column("id", [None, None, 8, 8]), 1),
    "NaN is no key": Scenario(with_column("id", [float("nan"), float("nan"), 8.0, 8.0]), 1),
    "no key in windows over events": Scenario(
        with_column("id", [None, None, 8, 8]), 1, "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 2 EVENTS"
    ),
    "no type in some rows": Scenario(with_column("type", ["A", None, "A", "B"]), 1),
    "two key columns": Scenario(
        with_column("zone", ["x", "x", "x", "y"]), 1, "PATTERN SEQ(A a, B b) PARTITION BY zone, id WITHIN 5"
    ),
    "keys that would fall together if glued": Scenario(
        with_column("zone", ["11", "1", "2", "2"], with_column("id", ["1", "11", "1", "1"])),
        1,
        "PATTERN SEQ(A a, B b) PARTITION BY id, zone",
    ),
    "the time as key": Scenario(
        pa.table({"t": [1, 1, 2], "type": ["A", "B", "B"]}), 1, "PATTERN AND(A a, B b) PARTITION BY t WITHIN 5"
    ),
    "the word for time as key": Scenario(
        {"A": pa.table({"at": NUMBERS}), "B": pa.table({"on": NUMBERS, "until": NUMBERS})},
        len(NUMBERS),
        "PATTERN AND(A a, B b) PARTITION BY t",
        {"time": {"A": "at", "B": "on"}, "end": {"B": "until"}},
    ),
    "the word for the end as key": Scenario(
        {"A": pa.table({"at": NUMBERS}), "B": pa.table({"on": [0] * 12, "until": NUMBERS})},
        len(NUMBERS),
        "PATTERN AND(A a, B b) PARTITION BY e",
        {"time": {"A": "at", "B": "on"}, "end": {"B": "until"}},
    ),
    "float keys of both zeros": Scenario(with_column("id", [0.0, -0.0, -0.0, 0.0]), 3),
    "small float keys of both zeros": Scenario(with_column("id", pa.array([0.0, -0.0, -0.0, 0.0], pa.float32())), 3),
    "keys of two zeros in two tables": Scenario(
        {"A": pa.table({"t": [1], "id": [0.0]}), "B": pa.table({"t": [2], "id": [-0.0]})}, 1, QUERY, {"time": "t"}
    ),
    "keys of large texts": Scenario(with_column("id", ["x" * 5000, "x" * 5000, "ß\u0000x", "ß\u0000x"]), 2),
    "integer keys and floats": pairs(pa.array(NUMBERS), pa.array(NUMBERS).cast(pa.float64())),
    "integer keys of two widths": pairs(pa.array(NUMBERS).cast(pa.int8()), pa.array(NUMBERS)),
    "integer keys and decimals": pairs(pa.array(NUMBERS), pa.array(map(Decimal, NUMBERS), pa.decimal128(12, 3))),
    "decimal keys of two scales": pairs(
        pa.array([Decimal(number) / 2 for number in NUMBERS], pa.decimal128(38, 18)),
        pa.array([Decimal(number) / 2 for number in NUMBERS], pa.decimal128(10, 3)),
    ),
    "decimal keys and floats": pairs(
        pa.array([Decimal(number) / 2 for number in NUMBERS], pa.decimal128(10, 3)),
        pa.array([number / 2 for number in NUMBERS]),
    ),
    "small float keys and floats": pairs(
        pa.array([number / 8 for number in NUMBERS], pa.float32()), pa.array([number / 8 for number in NUMBERS])
    ),
    "date keys and timestamps": pairs(pa.array(DAYS), pa.array(MIDNIGHTS, pa.timestamp("us"))),
    "date keys and instants": pairs(pa.array(DAYS), pa.array(MIDNIGHTS, pa.timestamp("us", "UTC"))),
    "timestamp keys and instants": pairs(
        pa.array(MIDNIGHTS, pa.timestamp("us")), pa.array(MIDNIGHTS, pa.timestamp("us", "UTC"))
    ),
    "keys of no type": Scenario(
        {"A": pa.table({"t": [1], "id": [7]}), "B": pa.table({"t": [2], "id": pa.nulls(1)})}, 0, QUERY, {"time": "t"}
    ),
    "a table that no query names": Scenario(
        {"A": EVENTS, "B": EVENTS, "C": ODD_ONES}, 2, "PATTERN SEQ(A a, B b) PARTITION BY id", {"time": "t"}
    ),
    "a table that no query names and that lacks the key": Scenario(
        {"A": EVENTS, "B": EVENTS, "C": ODD_ONES.drop_columns("id")},
        2,
        "PATTERN SEQ(A a, B b) PARTITION BY id",
        {"time": "t"},
    ),
    "an empty table of several": Scenario({"A": EVENTS, "B": EVENTS.slice(0, 0)}, 0, QUERY, {"time": "t"}),
    "one stream without a type column": Scenario(
        EVENTS, 2, "PATTERN SEQ(Click a, Click b) PARTITION BY id WITHIN 5", {"time": "t"}
    ),
    "ends, some before their start": Scenario(
        with_column("until", [2, 1, 3, 9]), 1, QUERY.replace("5", "9"), {**COLUMNS, "end": "until"}
    ),
    "dates as times": Scenario(
        with_column("t", DAYS[:4]), 2, "PATTERN SEQ(A a, NOT C c, B b) PARTITION BY id WITHIN 1 day"
    ),
    "dates and timestamps as times": Scenario(
        {"A": pa.table({"t": DAYS}), "B": pa.table({"t": pa.array(MIDNIGHTS, pa.timestamp("us"))})},
        11,
        "PATTERN SEQ(A a, B b) WITHIN 1 day",
        {"time": "t"},
    ),
    "small integers as times": Scenario(with_column("t", pa.array([-128, -127, 126, 127], pa.int8())), 2),
    "times around zero": Scenario(with_column("t", [-3, 1, -1, 1]), 2),
    "times before 1970": Scenario(
        with_column("t", pa.array([-7_000_001, -3_000_000, -1, 1], pa.timestamp("us"))), 2, QUERY + " seconds"
    ),
    "the largest times": Scenario(with_column("t", [-(2**61) + 1, -(2**61) + 2, 2**61 - 2, 2**61 - 1]), 2),
    "the largest window": Scenario(
        with_column("t", [-(2**61) + 1, 2**61 - 1, 2**61 - 3, 2**61 - 2]), 2, QUERY.replace("5", str(2**63 - 1))
    ),
    "no window and no key": Scenario(EVENTS, 3, "PATTERN SEQ(A a, B b)"),
    "a window and no key": Scenario(EVENTS, 2, "PATTERN SEQ(A a, B b) WITHIN 1"),
    "a window of nothing": Scenario(with_column("t", [1, 1, 3, 4]), 1, "PATTERN AND(A a, B b) WITHIN 0"),
    "events alone": Scenario(EVENTS, 4, "PATTERN OR(A a, B b)"),
    "nothing but the interval": Scenario(EVENTS, 2, "PATTERN SEQ(A, B) PARTITION BY id WITHIN 5"),
    "columns of nothing": Scenario(with_column("gone", pa.nulls(4)), 2),
    "returned columns of every type": Scenario(
        with_column("note", ["x", "y", None, "z"]),
        2,
        "PATTERN SEQ(A a, OR(B b, C c)) PARTITION BY id WITHIN 5 RETURN a.id, b.t - a.t AS wait, a.id / 2 AS half,"
        " a.id > 7 AS large, upper(a.note) AS loud, a.note || 'x' AS longer, NULL AS nothing, 5 AS five, c.id AS other,"
        " TIMESTAMP '2024-01-01' AS day, 5 minutes AS pause, CASE WHEN a.id > 7 THEN c.note END AS maybe, 1.5 AS n",
    ),
    "variables called like other columns": Scenario(EVENTS, 2, "PATTERN SEQ(A start, B id) PARTITION BY id WITHIN 5"),
    "variables that differ only by case": Scenario(EVENTS, 2, "PATTERN SEQ(A x, B X) PARTITION BY id WITHIN 5"),
    **{f"columns called {name}": called(name) for name in ("a.b", "a b", "a`b", "a:b", "ä", "SEQ", "%", "x" * 70)},
}


@pytest.fixture(scope="module")
def scenarios(spark: SparkSession) -> dict[str, pa.Table]:
    """The results of all scenarios on Spark."""
    results = [
        ensue.detect(frames_of(spark, scenario.tables), scenario.query, match_id=True, **scenario.columns)
        for scenario in SCENARIOS.values()
    ]
    return dict(zip(SCENARIOS, collect_together(results), strict=True))


@pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")
@pytest.mark.parametrize("name", SCENARIOS)
def test_same_as_local(name: str, scenarios: dict[str, pa.Table]) -> None:
    """The rows, the names and types of the columns, and the ids of the matches."""
    scenario = SCENARIOS[name]
    local = ensue.detect(scenario.tables, scenario.query, match_id=True, **scenario.columns)
    assert local.num_rows == scenario.matches
    assert rows(scenarios[name]) == rows(local)
    assert scenarios[name].schema == result_schema_of(local)


# --- columns of every type, in a session far from UTC

NOON = datetime(2024, 3, 10, 12, 30, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")
PLACE = pa.struct({"x": pa.float32(), "inner": pa.struct({"at": INSTANT, "n": pa.int16()})})
EVERY_TYPE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, None]),
    "short": (pa.int16(), [-32768, None]),
    "int": (pa.int32(), [-(2**31), None]),
    "long": (pa.int64(), [-(2**63), None]),
    "float": (pa.float32(), [0.1, None]),
    "double": (pa.float64(), [0.1, None]),
    "amount": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), None]),
    "flag": (pa.bool_(), [True, None]),
    "day": (pa.date32(), [date(1, 1, 1), None]),
    "at": (INSTANT, [NOON, None]),
    "ntz": (pa.timestamp("us"), [datetime(1, 1, 1, 2, 30), None]),
    "raw": (pa.binary(), [b"\x00\xff", None]),
    "text": (pa.string(), ["ä\u0000😀", None]),
    "gap": (pa.duration("us"), [timedelta(days=-1, microseconds=1), None]),
    "words": (pa.list_(pa.string()), [["x", None], None]),
    "moments": (pa.list_(INSTANT), [[NOON, None], []]),
    "tags": (pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], None]),
    "visits": (pa.map_(pa.string(), INSTANT), [[("k", NOON)], []]),
    "place": (PLACE, [{"x": 0.5, "inner": {"at": NOON, "n": 7}}, {"x": None, "inner": None}]),
    "places": (pa.list_(PLACE), [[{"x": 0.5, "inner": {"at": NOON, "n": 7}}, None], None]),
}
WIDE = pa.table(
    {
        "t": pa.array([NOON, NOON + timedelta(seconds=1)], INSTANT),
        "type": ["A", "B"],
        **{name: pa.array(values, kind) for name, (kind, values) in EVERY_TYPE.items()},
    }
)
WIDE_QUERY = "PATTERN SEQ(A a, B b) WITHIN 5 seconds"
SIMPLE = [name for name, (kind, _) in EVERY_TYPE.items() if not pa.types.is_nested(kind) and kind != pa.binary()]
WIDE_RETURNING = (
    f"{WIDE_QUERY} RETURN {', '.join(f'a.{name}' for name in SIMPLE)}, hour(a.t) AS hour, day(a.at) AS date, b.t AS b"
)


@pytest.mark.parametrize("shape", ["one table", "two tables"])
def test_columns_of_every_type(shape: str, spark: SparkSession) -> None:
    """Whole events and RETURN; instants are read in UTC, whatever the session's zone."""
    tables: Any = WIDE
    if shape == "two tables":
        tables = {name: WIDE.take([place]).drop_columns("type") for place, name in enumerate("AB")}
    columns = COLUMNS if shape == "one table" else {"time": "t"}
    queries = [WIDE_QUERY, WIDE_RETURNING]
    with settings(spark, ZONE):
        found = collect_together([ensue.detect(frames_of(spark, tables), query, **columns) for query in queries])
    for query, table in zip(queries, found, strict=True):
        local = ensue.detect(tables, query, **columns)
        assert table.to_pylist() == local.to_pylist()
        assert table.schema == result_schema_of(local)
    assert found[1].column("hour").to_pylist() == [12]


@pytest.mark.slow
def test_keys_are_all_types_that_can_be_compared(spark: SparkSession) -> None:
    both = pa.concat_tables([WIDE.take([0]), WIDE.take([0]).set_column(1, "type", pa.array(["B"]))])
    both = both.set_column(0, "t", WIDE["t"])
    frame = frame_of(spark, both)
    keys = [name for name in SIMPLE if name not in ("float", "double")]
    with settings(spark, ZONE):
        found = collect_together([detect(frame, f"{WIDE_QUERY} PARTITION BY {key}") for key in keys])
    for key, table in zip(keys, found, strict=True):
        assert table.to_pylist() == detect(both, f"{WIDE_QUERY} PARTITION BY {key}").to_pylist(), key
        assert table.num_rows == 1, key


def test_times_that_the_clocks_of_the_session_skip(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where clocks go forward, some times of day are none; a timestamp without a zone has them all the same."""
    monkeypatch.setattr(slices, "OVERLAPS_PER_SLICE", 1)
    times = [datetime(2024, 3, 10) + timedelta(minutes=10 * number) for number in range(36)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us"))})
    query = "PATTERN SEQ(A a, A b) WITHIN 10 minutes"
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "8"}):
        found = rows(ensue.detect(frame_of(spark, table), query, time="t"))
    assert len(found) == 35
    assert found == rows(ensue.detect(table, query, time="t"))


# --- lazy


def test_nothing_runs_before_an_action(spark: SparkSession) -> None:
    """Nor when results are kept for several patterns; only small local tables are read when Spark plans."""
    columns = ["id AS t", "if(id % 2 = 0, 'A', 'B') AS type", "7L AS id"]
    frame = unreadable(spark.range(4)).selectExpr(*columns)
    one = detect(frame, RETURNING)
    several = ensue.run(frame, f"{QUERY}; {RETURNING}", **COLUMNS)
    assert one.columns == ["id", "first", "last"]
    assert several["pattern_1"].columns == ["id", "start", "end", "a", "b"]
    for found in (one, several["pattern_2"]):
        with pytest.raises(PySparkException, match="a row was read"):
            found.collect()
    several.release()


# --- several patterns

PROGRAM = """
PATTERN pair SEQ(A a, B b) PARTITION BY id WITHIN 5;
PATTERN lone SEQ(A a, NOT B b) PARTITION BY id WITHIN 1 RETURN a.t AS t;
PATTERN x_and_X SEQ(A x, B X) PARTITION BY id WITHIN 5;
PATTERN any_pair SEQ(A a, B b) WITHIN 2
"""


@pytest.fixture(scope="module")
def parquet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The events, with columns that no query needs, in files."""
    folder = str(tmp_path_factory.mktemp("events") / "events.parquet")
    table = with_column("x", [1.0, 2.0, 3.0, 4.0], with_column("note", ["w", "x", "y", "z"]))
    frame_of(spark, table).write.parquet(folder)
    return spark.read.parquet(folder)


def test_patterns_with_the_same_keys_share_a_scan_and_a_shuffle(parquet: DataFrame) -> None:
    found = ensue.run(parquet, PROGRAM, match_id=True, **COLUMNS)
    assert list(found) == ["pair", "lone", "x_and_X", "any_pair"]
    plans = [plan_text(frame) for frame in (*found.shared, found["any_pair"])]
    assert len(plans) == 2
    for text in plans:
        assert len(re.findall(r"^\(\d+\) Exchange", text, re.MULTILINE)) == 1
        assert len(re.findall(r"^\(\d+\) Scan parquet", text, re.MULTILINE)) == 1
    local = ensue.run(parquet.toArrow(), PROGRAM, match_id=True, **COLUMNS)
    for name, table in local.items():
        assert rows(found[name]) == rows(table), name
        assert found[name].toArrow().schema == table.schema
    assert found.shared[0].storageLevel.useMemory
    found.release()
    assert not found.shared[0].storageLevel.useMemory


def test_all_matches_come_in_one_action(parquet: DataFrame) -> None:
    found, local = (ensue.run(events, PROGRAM, **COLUMNS) for events in (parquet, parquet.toArrow()))
    together = found.together()
    assert together.toArrow().schema == local.together().schema
    assert rows(together) == rows(local.together())
    assert {row["pattern"] for row in together.collect()} == {name for name, own in local.items() if own.num_rows}
    found.release()


def test_a_column_of_two_types_does_not_fit_into_one_table(parquet: DataFrame) -> None:
    number, text = (f"PATTERN {name} (A a) PARTITION BY id RETURN a.{name} AS x" for name in ("t", "note"))
    for program in (f"{number}; {text}", f"{number}; PATTERN (A a) PARTITION BY id RETURN a.t AS pattern"):
        for events in (parquet, parquet.toArrow()):
            found = ensue.run(events, program, **COLUMNS)
            with pytest.raises(ensue.SchemaError, match="one-table"):
                found.together()


def test_matches_feed_another_pattern(spark: SparkSession) -> None:
    """As events at their end, and as events that last from their start to their end."""
    table = pa.table({"t": range(8), "type": ["A", "B"] * 4, "id": [1, 1, 2, 2, 1, 1, 2, 2]})
    local = detect(table, QUERY.replace("5", "1"))
    first = detect(frame_of(spark, table), QUERY.replace("5", "1"))
    query = "PATTERN SEQ(Pair p, NOT Pair other, Pair q) PARTITION BY id WITHIN 10"
    asked: list[dict[str, Any]] = [{"time": "end"}, {"time": "start", "end": "end"}]
    found = collect_together([ensue.detect(first, query, **columns) for columns in asked])
    for table, columns in zip(found, asked, strict=True):
        expected = ensue.detect(local, query, **columns)
        assert expected.num_rows == 2
        assert rows(table) == rows(expected)


# --- plans


def test_files_are_filtered_and_only_needed_columns_read(parquet: DataFrame) -> None:
    query = "PATTERN SEQ(A a [x > 1.5], B b) PARTITION BY id WITHIN 5 RETURN a.t AS t"
    text = plan_text(detect(parquet, query))
    (filters,) = re.findall(r"PushedFilters: \[(.*)\]", text)
    (schema,) = re.findall(r"ReadSchema: struct<(.*)>", text)
    assert {part.split(":")[0] for part in schema.split(",")} == {"t", "type", "id", "x"}
    assert "In(type, [A,B])" in filters
    assert "IsNotNull(t)" in filters
    assert "IsNotNull(id)" in filters
    assert "GreaterThan(x,1.5)" in filters


def test_work_is_spread_where_there_is_a_window(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In slices of time, also that of a single key; without a window there are none."""
    monkeypatch.setattr(slices, "OVERLAPS_PER_SLICE", 1)
    frame = frame_of(spark, pa.table({"t": range(200), "type": ["A", "B"] * 100, "id": [7] * 200}))
    queries = {
        "no key": "PATTERN SEQ(A a, B b) WITHIN 1",
        "hot key": "PATTERN SEQ(A a, B b) PARTITION BY id WITHIN 1",
        "no window": "PATTERN SEQ(A a, B b) PARTITION BY id",
        "neither": "PATTERN SEQ(A a, B b)",
    }
    found = {name: detect(frame, query + " RETURN a.t AS t") for name, query in queries.items()}
    assert found["neither"].rdd.getNumPartitions() == 1
    parts = [
        result.select(F.lit(name).alias("name"), F.spark_partition_id().alias("task")) for name, result in found.items()
    ]
    together = parts[0].union(parts[1]).union(parts[2])
    counts = together.groupBy("name").agg(F.count("*").alias("rows"), F.countDistinct("task").alias("tasks")).collect()
    assert {row["name"]: (row["rows"], row["tasks"]) for row in counts} == {
        "no key": (100, 2),
        "hot key": (100, 2),
        "no window": (5050, 1),
    }


def test_a_runaway_query_stops_and_names_the_key(spark: SparkSession) -> None:
    table = pa.table({"t": range(40), "type": ["A"] * 20 + ["B"] * 20, "id": ["calm"] * 2 + ["busy"] * 38})
    with pytest.raises(PySparkException) as caught:
        detect(
            frame_of(spark, table),
            "PATTERN hot SEQ(A a, B b) PARTITION BY id WITHIN 50",
            limits=ensue.Limits(matches=10),
        ).collect()
    for part in (
        "error[too-many-matches]",
        "pattern `hot` has more than 10 matches",
        "id = 'busy'",
        "`limits=ensue.Limits(matches=...)`",
    ):
        assert part in str(caught.value)


# --- errors come before any job


def refused(action: Callable[[], object], code: str, *parts: str) -> None:
    with pytest.raises(EnsueError) as caught:
        action()
    assert getattr(caught.value, "code", None) == code, str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def frame_with(spark: SparkSession, schema: str) -> DataFrame:
    """A frame of these columns that cannot be read."""
    return unreadable(spark.range(1)).select(
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in StructType.fromDDL(schema))
    )


BASE = "t bigint, type string, id bigint"
BAD_SCHEMAS = {
    "no time": ("ts bigint, type string, id bigint", "no-such-column", ["no column `t` for `time`", "mean `ts`?"]),
    "no type": ("t bigint, typ string, id bigint", "no-such-column", ["no column `type` for `type`", "mean `typ`?"]),
    "no key": (
        "t bigint, type string, ids bigint",
        "no-such-field",
        ["PARTITION BY uses field `id`", "did you mean `ids`"],
    ),
    "time in another case": ("T bigint, type string, id bigint", "no-such-column", ["did you mean `T`?"]),
    "float time": ("t double, type string, id bigint", "time-type", ["column `t`", "double"]),
    "text time": ("t string, type string, id bigint", "time-type", ["column `t`", "string"]),
    "decimal time": ("t decimal(10, 2), type string, id bigint", "time-type", ["column `t`", "must be a timestamp"]),
    "interval time": ("t interval day to second, type string, id bigint", "time-type", ["column `t`", "duration"]),
    "type of numbers": ("t bigint, type double, id bigint", "stream-type", ["column `type` must be text", "double"]),
    "type of bytes": ("t bigint, type binary, id bigint", "stream-type", ["column `type` must be text", "binary"]),
    "list key": ("t bigint, type string, id array<int>", "type-clash", ["PARTITION BY uses `id`", "cannot be"]),
    "map key": ("t bigint, type string, id map<string, int>", "type-clash", ["PARTITION BY uses `id`", "cannot be"]),
    "struct key": ("t bigint, type string, id struct<x: int>", "type-clash", ["PARTITION BY uses `id`", "cannot be"]),
    "binary key": ("t bigint, type string, id binary", "type-clash", ["PARTITION BY uses `id`", "cannot be"]),
    "months as a key": ("t bigint, type string, id interval month", "column-type", ["column `id`", ".drop('id')"]),
    "time and another case": (f"{BASE}, T int", "duplicate-column", ["`t` and `T`"]),
    "a name of ours": (f"{BASE}, `ensue:slice` int", "reserved-column", ["`ensue:slice`"]),
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_columns_that_cannot_be_used(name: str, spark: SparkSession) -> None:
    schema, code, parts = BAD_SCHEMAS[name]
    frame = frame_with(spark, schema)
    refused(lambda: detect(frame), code, *parts)
    refused(lambda: ensue.run(frame, QUERY, **COLUMNS), code, *parts)


UNUSABLE = {
    "months": (["INTERVAL '1' MONTH AS x"], "column-type", ["column `x`", "interval", ".drop('x')"]),
    "calendar interval": (["make_interval(1) AS x"], "column-type", ["column `x` of the table is interval"]),
    "nested months": (["named_struct('gap', INTERVAL '1' MONTH) AS x"], "column-type", ["column `x`"]),
    "names that differ by case": (["1 AS x", "2 AS X"], "duplicate-column", ["`x` and `X`", "caseSensitive"]),
    "a name twice": (["1 AS x", "2 AS x"], "duplicate-column", ["two columns `x`"]),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_columns_that_only_a_query_that_uses_them_refuses(name: str, spark: SparkSession) -> None:
    columns, code, parts = UNUSABLE[name]
    frame = frame_of(spark, EVENTS).selectExpr("*", *columns)
    assert rows(detect(frame, RETURNING)) == FOUND
    refused(lambda: detect(frame, QUERY.replace("B b", "B b [x = 1]")), code, "query:1:23", *parts)
    with pytest.warns(ensue.EnsueWarning, match="events in the results lack column `[xX]`"):
        found = detect(frame)
    assert [list(row["a"]) for row in rows(found)] == [["t", "type", "id"]] * 2


def test_columns_of_one_table_of_several_are_named_with_it(spark: SparkSession) -> None:
    good, bad = frame_with(spark, BASE), frame_with(spark, f"{BASE}, gap interval month")
    query = QUERY.replace("B b", "B b [gap = 1]")
    refused(lambda: ensue.detect({"A": good, "B": bad}, query, time="t"), "column-type", "table of stream `B`", "`gap`")


@pytest.mark.slow
def test_names_that_differ_only_by_case_where_spark_is_told_to_see_it(spark: SparkSession) -> None:
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        table = with_column("ID", [1, 2, 3, 4])
        assert rows(detect(frame_of(spark, table))) == rows(detect(table))


def test_tables_that_do_not_go_together(spark: SparkSession) -> None:
    frame = frame_with(spark, BASE)
    stream = spark.readStream.format("rate").load().selectExpr("value AS t", "value AS id")
    text = frame.withColumn("id", F.lit("x"))
    naive, zoned = (frame.withColumn("t", F.lit(None).cast(kind)) for kind in ("timestamp_ntz", "timestamp"))
    pandas = pd.DataFrame({"t": [1], "id": [1]})
    for tables, code, part in (
        ({"A": frame, "B": pandas}, "mixed-frames", "Spark DataFrames"),
        ({"A": stream, "B": frame}, "mixed-frames", "streams"),
        ({"A": frame, "B": text}, "type-clash", "number in `A` but text in `B`"),
        ({"A": naive, "B": zoned}, "time-mix", "time zone"),
        ({"A": frame, "B": zoned}, "time-mix", "integers"),
        ({"A": frame, "Bb": frame}, "unknown-stream", "did you mean `Bb`?"),
        ({1: frame}, "stream-name", "1"),
    ):
        window = QUERY if code != "time-mix" else f"{QUERY} seconds"
        refused(lambda tables=tables, window=window: ensue.detect(tables, window, time="t"), code, part)


def test_what_works_in_this_process_says_who_takes_frames(spark: SparkSession) -> None:
    frame = frame_with(spark, BASE)
    refused(lambda: ensue.detect_batches(frame, QUERY, **COLUMNS), "spark-frame", "`ensue.detect`")
    detector = ensue.Detector(QUERY, **COLUMNS)
    refused(lambda: detector.advance(frame, watermark=1), "spark-frame", "`ensue.detect`")


# --- where frames come from


def test_views_tables_and_cached_frames(spark: SparkSession, events: DataFrame) -> None:
    events.createOrReplaceTempView("happened")
    cached = events.filter("t > 0").cache()
    frames = [
        spark.table("happened"),
        spark.sql("SELECT h.t, h.type, h.id, g.id AS other FROM happened h JOIN happened g USING (t)"),
        cached,
        events.alias("e").select("e.*"),
        events.orderBy("t").limit(100),
    ]
    try:
        found = collect_together([detect(frame, RETURNING) for frame in frames])
    finally:
        cached.unpersist()
        spark.catalog.dropTempView("happened")
    assert [rows(table) for table in found] == [FOUND] * len(frames)


# --- real data


@needs_incidents
def test_incidents(spark: SparkSession) -> None:
    program = ";".join((PING_PONG, REOPENED, ABANDONED))
    found = ensue.run(frame_of(spark, log()), program, time="time", type="activity", match_id=True)
    local = ensue.run(log(), program, time="time", type="activity", match_id=True)
    for name, table in local.items():
        assert table.num_rows > 100
        assert rows(found[name]) == rows(table), name
    found.release()


@pytest.mark.slow
@needs_trades
def test_trades(spark: SparkSession) -> None:
    """Without a key, so in slices of time; each of the results has thousands of rows."""
    frame = frame_of(spark, trades())
    names = ["q2", "q4", "q10"]
    columns = {"time": "timestamp", "type": "id"}
    found = collect_together([ensue.detect(frame, QUERIES[name], **columns) for name in names])
    for name, table in zip(names, found, strict=True):
        assert table.num_rows == COUNTS[name]
        assert bindings(table) == bindings(ensue.detect(trades(), QUERIES[name], **columns))
