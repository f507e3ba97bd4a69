"""What Spark keeps of a table is all that the engine would take, and little more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ensue
from ensue import QueryError
from harness import from_engine, input_of, load, plan_for
from inside import (
    Between,
    Binary,
    Call,
    Cast,
    Entry,
    Event,
    Expr,
    Field,
    InList,
    InputTable,
    IsNull,
    Like,
    Literal,
    Options,
    PatternQuery,
    QueryPlan,
    StructMember,
    Timestamp,
    Unary,
    catalog_of,
    find_candidates,
    needed_rows,
    parse_statements,
    plan_query,
    render_expression,
)
from strategies.patterns import cases

SCHEMA = """id int, type string, at timestamp, b tinyint, h smallint, i int, l bigint, m bigint, f float, d double,
  w double, v string, u string, p boolean, q boolean, day date, ts timestamp, ntz timestamp_ntz, dec decimal(10, 2),
  low string collate utf8_lcase, st struct<x: bigint, y: string>, ls array<bigint>, mp map<string, bigint>"""
NOON = datetime(2024, 1, 31, 12, 0, 0, 1)
VALUES: dict[str, list[Any]] = {
    "b": [0, 1, 2, -1, 127, -128, None],
    "h": [0, 1, 2, -3, 32767, -32768, None],
    "i": [0, 1, 2, 3, 2**31 - 1, -(2**31), None],
    "l": [0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "m": [0, 1, 2, 2**53 + 1, -(2**53) - 1, None],
    "f": [0.0, -0.0, 0.5, 0.1, 3.0, -1.5, math.nan, math.inf, -math.inf, None],
    "d": [0.0, -0.0, 0.5, 0.1, 3.0, 2.0**53, 9.3e18, math.nan, math.inf, -math.inf, None],
    "w": [0.0, -0.0, 0.5, 3.0, math.nan, None],
    "v": ["", "a", "b", "ab", "a%b", "A", "ä", "😀", "a\nb", "a_", "\\", "ab ", None],
    "u": ["", "a", "ab", "b", None],
    "p": [True, False, None],
    "q": [True, False, False, None],
    "day": [date(1, 1, 1), date(1969, 12, 31), date(2024, 1, 31), date(2024, 2, 1), date(9999, 12, 31), None],
    "ts": [
        NOON.replace(tzinfo=UTC),
        NOON.replace(hour=6, minute=30, tzinfo=UTC),
        datetime(1960, 1, 1, tzinfo=UTC),
        None,
    ],
    "ntz": [NOON, NOON.replace(hour=17, minute=30), datetime(1960, 1, 1), datetime(1, 1, 1), None],
    "dec": [Decimal("0.00"), Decimal("1.00"), Decimal("0.10"), Decimal("-1.50"), None],
    "low": ["a", "A", "b", None],
    "st": [{"x": 1, "y": "a"}, {"x": None, "y": "ab"}, None],
    "ls": [[1, 2], [1, None], [], [None], [2**53 + 1], None],
    "mp": [{"a": 1}, {"b": 2, "a": None}, {}, None],
}
ROWS = 210


@pytest.fixture(scope="module", autouse=True)
def far_from_utc(spark: SparkSession) -> Iterator[None]:
    """A session zone that would show in every moment that depends on it."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.fixture(scope="module", autouse=True)
def unnoted_lines() -> Iterator[None]:
    """Without noting the line that makes each column, which takes longer than everything else here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark.errors.utils._enable_debugging_cache", False)
        yield


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Rows of every type with the values that are easily got wrong, as a Parquet file."""
    rows = []
    for number in range(ROWS):
        # Steps without a common divisor bring every two values together in some row.
        cells = [
            values[(number * (place + 1) + number // 7) % len(values)] for place, values in enumerate(VALUES.values())
        ]
        moment = None if number % 50 == 49 else datetime(2024, 1, 31, 0, number % 60, tzinfo=UTC)
        rows.append((number, None if number % 40 == 39 else "AAB"[number % 3], moment, *cells))
    path = str(tmp_path_factory.mktemp("pushdown") / "events")
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


@pytest.fixture(scope="module")
def table(events: DataFrame) -> pa.Table:
    return events.orderBy("id").toArrow()


def plan_of(text: str, *inputs: InputTable) -> QueryPlan:
    parsed = parse_statements(text)
    (query,) = parsed.statements
    assert isinstance(query, PatternQuery)
    return plan_query(query, catalog_of(inputs), parsed.source)


def shape(table: pa.Table) -> InputTable:
    """The table of all types, without its rows."""
    return InputTable(table.slice(0, 0), "at", type="type")


def taken(plan: QueryPlan, item: InputTable) -> set[int]:
    """The rows that the engine takes for some variable of a plan."""
    store = load(plan, [item])
    return {
        int(row)
        for graph in plan.graphs
        for inner in graph.with_inner()
        for variable in inner.graph.variables
        for row in find_candidates(variable, inner.graph, store, plan.catalog).rows
    }


def kept(frame: DataFrame, filters: Sequence[Column | None]) -> list[set[int]]:
    """The rows that each filter keeps, by `id`, all found in one job."""
    columns = [F.lit(True) if one is None else F.coalesce(one, F.lit(False)) for one in filters]
    rows = frame.select("id", F.array(*columns).alias("keeps")).collect()
    return [{row.id for row in rows if row.keeps[place]} for place in range(len(filters))]


def condition_of(plans: Sequence[QueryPlan], item: InputTable, frame: DataFrame) -> Column:
    condition = needed_rows(plans, replace(item, table=item.table.slice(0, 0)), frame.schema)
    assert condition is not None
    return condition


# --- drawn predicates

orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
numbers = st.sampled_from(
    [0, 1, 2, 3, -1, 127, 128, -129, 40000, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
) | st.sampled_from(
    [0.0, -0.0, 0.5, 0.1, -1.5, 3.0, 126.5, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e300, 1e-300, -1e-300]
)
texts = st.sampled_from(["", "a", "b", "ab", "a%b", "A", "ä", "😀", "a\nb", "\\", "ab ", "zz"])
patterns = st.lists(st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "\\a", "a", "b", "ä", "😀", "\n"]), max_size=4)
noon = int(NOON.replace(tzinfo=UTC).timestamp()) * 10**9 + 1000
day = 86_400 * 10**9
moments = st.builds(
    Timestamp,
    st.sampled_from([noon, noon + 1, noon - 1, noon // day * day, noon // day * day + day, noon - 5 * 3600 * 10**9])
    | st.sampled_from([0, -1, -day, -(719162 * day), 2932896 * day + day - 1, 2932897 * day - 1, noon - noon % 1000]),
    st.booleans(),
)
null = st.just(Literal(None))
KINDS: list[tuple[str, st.SearchStrategy[Expr]]] = [
    ("b h i l m f d w dec", st.builds(Literal, numbers)),
    ("l i d f", st.builds(Literal, numbers)),
    ("v u low", st.builds(Literal, texts)),
    ("day ts ntz at t", moments),
]


def fields(names: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from(names.split()).map(lambda name: Field("a", name))


def atoms(names: str, literals: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    some, other = fields(names), literals | fields(names) | literals | null
    return st.one_of(
        st.builds(Binary, orders, some, other),
        st.builds(Binary, orders, literals, some),
        st.builds(Between, some, other, other, st.booleans()),
        st.builds(InList, some, st.lists(other, min_size=1, max_size=4).map(tuple), st.booleans()),
        st.builds(InList, some, st.lists(literals, min_size=11, max_size=14).map(tuple), st.booleans()),
        st.builds(IsNull, some, st.booleans()),
    )


booleans = fields("p q")
STRANGE: list[Expr] = [
    Binary(">", Binary("/", Field("a", "d"), Field("a", "w")), Literal(1)),
    IsNull(Binary("/", Field("a", "d"), Literal(0))),
    Call("startswith", (Field("a", "v"), Literal("a"))),
    Call("endswith", (Field("a", "v"), Literal("b"))),
    Call("contains", (Field("a", "v"), Literal("%"))),
    Call("contains", (Field("a", "v"), Literal(None))),
    Call("contains", (Field("a", "ls"), Literal(1))),
    Call("contains", (Field("a", "ls"), Literal(2.0**53))),
    Call("contains", (Field("a", "ls"), Literal(None))),
    Call("regexp_like", (Field("a", "v"), Literal("^[ab]|zz"))),
    Call("regexp_like", (Field("a", "v"), Literal("a.b"))),
    Call("regexp_like", (Field("a", "v"), Literal("b$"))),
    Like(Field("a", "v"), "a%", ignores_case=True),
    Binary(">", Cast(Field("a", "l"), "STRING"), Literal("1")),
    Binary("=", StructMember(Field("a", "st"), "x"), Literal(1)),
    Binary("!=", StructMember(Field("a", "st"), "y"), Literal("a")),
    Like(StructMember(Field("a", "st"), "y"), "a%"),
    IsNull(StructMember(Field("a", "st"), "x"), False),
    Binary("<", Entry(Field("a", "ls"), Literal(1)), Literal(5)),
    IsNull(Entry(Field("a", "ls"), Literal(-1)), False),
    Binary("=", Entry(Field("a", "mp"), Literal("a")), Literal(1)),
    InList(Entry(Field("a", "mp"), Literal("b")), (Literal(2), Literal(None)), True),
    Binary("=", Call("length", (Field("a", "v"),)), Literal(1)),
    Literal(True),
    Literal(False),
    Literal(None),
]
strange = st.sampled_from(STRANGE)
leaves = st.one_of(
    *(atoms(*kind) for kind in KINDS),
    st.builds(Like, fields("v u low"), patterns.map("".join), st.booleans()),
    booleans,
    st.builds(Binary, st.sampled_from(["=", "!="]), booleans, booleans | st.builds(Literal, st.booleans()) | null),
    strange,
)
predicates: st.SearchStrategy[Expr] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Unary, st.just("not"), inner) | st.builds(Binary, st.sampled_from(["and", "or"]), inner, inner)
    ),
    max_leaves=4,
)


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Examples of a strategy, to be judged together in one Spark job."""
    found = []

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


def planned(predicate: Expr, item: InputTable) -> QueryPlan | None:
    try:
        return plan_query(PatternQuery(Event("A", "a", predicate)), catalog_of((item,)))
    except QueryError:
        return None


def test_no_row_that_the_engine_takes_is_dropped(events: DataFrame, table: pa.Table) -> None:
    whole, item = InputTable(table, "at", type="type"), shape(table)
    found = [*drawn(predicates, 200), *STRANGE, *(Unary("not", one) for one in STRANGE)]
    judged = [(one, plan) for one in found if (plan := planned(one, item)) is not None]
    filters = [needed_rows([plan], item, events.schema) for _, plan in judged]
    selective = 0
    for (predicate, plan), rows in zip(judged, kept(events, filters), strict=True):
        assert taken(plan, whole) <= rows, render_expression(predicate)
        selective += len(rows) < ROWS // 2
    assert selective > len(judged) // 5 > 15


EXACT = """
TRUE
i = 1
1 = i
1 < i
2.5 >= i
i != 1
l = 9007199254740993
l > 9007199254740992.0
l >= 9007199254740993
b < 1000
b < -1000
i > 0.5
i <= 2.0
i = 0.5
i != 0.5
i IN (1, 2)
i IN (1, 2.0, 2.5, NULL)
i NOT IN (1, 2)
i NOT IN (1, NULL)
m BETWEEN 0 AND 2
b < i
d = 0
d <= 0
d < 0.0
d >= -0.0
d > -1 AND d < 3
d IN (0, 3)
f = 0
f >= 0 AND f < 3
f = 0.1
f IN (0.5, 3)
d IS NULL
d IS NOT NULL
v = 'a'
v != 'a'
v IN ('a', '😀')
v >= 'a' AND v < 'ä'
v LIKE 'a%'
v LIKE '%b'
v NOT LIKE '%b%'
v LIKE 'ab'
v LIKE ''
v LIKE 'a\\%b'
v = u
v IS NULL
p
NOT p
p = FALSE
p != q
NOT (p AND i > 0)
NOT (v = 'a' OR i = 1)
day = TIMESTAMP '2024-01-31'
day < TIMESTAMP '2024-01-31 00:00:01'
day >= TIMESTAMP '2024-01-31 00:00:01'
day IN (TIMESTAMP '2024-01-31', TIMESTAMP '1969-12-31')
ts = TIMESTAMP '2024-01-31 12:00:00.000001'
ts = TIMESTAMP '2024-01-31 17:30:00.000001+05:30'
ts > TIMESTAMP '2024-01-31 06:30:00.0000005'
ts <= TIMESTAMP '2024-01-31 12:00:00.000001999'
ntz = TIMESTAMP '2024-01-31 12:00:00.000001'
ntz < TIMESTAMP '2024-01-31 12:00:00.000001'
ntz IN (TIMESTAMP '1960-01-01', TIMESTAMP '2024-01-31 17:30:00.000001')
t >= TIMESTAMP '2024-01-31 00:30:00'
at < TIMESTAMP '2024-01-31 00:30:00'
e = at
low IS NULL
dec IS NOT NULL
""".strip().splitlines()


def test_common_predicates_are_exact(events: DataFrame, table: pa.Table) -> None:
    whole, item = InputTable(table, "at", type="type"), shape(table)
    plans = [plan_of(f"PATTERN A a [{predicate}]", item) for predicate in EXACT]
    filters = [needed_rows([plan], item, events.schema) for plan in plans]
    for predicate, plan, rows in zip(EXACT, plans, kept(events, filters), strict=True):
        wanted = taken(plan, whole)
        assert wanted <= rows, predicate
        # NaN is above all numbers in Spark and null for the engine.
        numbers = re.findall(r"\b[df]\b", predicate)
        assert all(any(is_nan(table, name, row) for name in numbers) for row in rows - wanted), predicate


APART = ["low != 'a'", "low > 'A'", "v NOT LIKE 'a_'", "v LIKE '_'", "dec > 0.1", "d + 1 > 1", "length(v) = 1 OR i = 1"]


@pytest.mark.parametrize("predicate", APART)
def test_what_spark_reads_otherwise_is_left_to_the_engine(events: DataFrame, table: pa.Table, predicate: str) -> None:
    item = shape(table)
    plans = [plan_of(f"PATTERN A a{text}", item) for text in (f" [{predicate}]", "")]
    filters = [str(condition_of([plan], item, events)) for plan in plans]
    assert filters[0] == filters[1]


def is_nan(table: pa.Table, name: str, row: int) -> bool:
    value = table.column(name)[row].as_py()
    return value is not None and math.isnan(value)


ZEROS = ["x = 0", "x >= 0", "x <= 0", "x IN (0, 5)", "x BETWEEN 0 AND 1", "x NOT IN (1, 2)", "NOT x < 0", "x = -0.0"]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_parquet_skips_no_negative_zero(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "zeros")
    frame = spark.createDataFrame([(n, (-0.0, -1.0)[n % 2]) for n in range(20)], f"at int, x {kind}").coalesce(1)
    frame.write.parquet(path)
    zeros = spark.read.parquet(path)
    item = InputTable(zeros.limit(0).toArrow(), "at", stream="A")
    for predicate in ZEROS:
        condition = condition_of([plan_of(f"PATTERN A a [{predicate}]", item)], item, zeros)
        assert {row["at"] for row in zeros.filter(condition).collect()} >= set(range(0, 20, 2)), predicate


def test_padded_text_is_left_to_the_engine(spark: SparkSession) -> None:
    # What a CHAR(5) column of a table looks like; Spark pads the literals that it is compared with.
    padded = F.col("word").alias("word", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    frame = spark.createDataFrame([(1, "a    "), (2, "b    ")], "at int, word string").select("at", padded)
    assert frame.filter(F.col("word") != "a").count() == 1
    item = InputTable(frame.toArrow(), "at", stream="A")
    plan = plan_of("PATTERN A a [word != 'a' AND word NOT IN ('a', 'b')]", item)
    assert len(taken(plan, item)) == 2
    assert frame.filter(condition_of([plan], item, frame)).count() == 2


def test_aggregates_of_lists_are_left_to_the_engine(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, [1, 2]), (2, []), (3, None)], "at int, l array<int>")
    item = InputTable(frame.toArrow(), "at", stream="A")
    aggregates = "count(l) > 1 AND NOT max(l) IN (1, 3) AND list(l) IS NOT NULL"
    plans = [plan_of(f"PATTERN A a{text}", item) for text in (f" [{aggregates}]", "")]
    assert taken(plans[0], item) == {0}
    filters = [str(condition_of([plan], item, frame)) for plan in plans]
    assert filters[0] == filters[1]


# --- whole queries


def test_queries_find_the_same_in_what_is_kept(spark: SparkSession) -> None:
    judged: list[tuple[QueryPlan, InputTable]] = []
    for (query, history), intervals in drawn(st.tuples(cases(intervals=True), st.booleans()), 60):
        # Each case has its own range of identifiers, so that all cases share a DataFrame.
        item = input_of([replace(event, id=event.id + 100 * len(judged)) for event in history], intervals)
        with suppress(QueryError):
            judged.append((plan_for(query, item), item))
    # In one piece: Spark 4.3 reads a table only up to an empty chunk.
    frame = spark.createDataFrame(pa.concat_tables([item.table for _, item in judged]).combine_chunks()).coalesce(1)
    filters = [needed_rows([plan], replace(item, table=item.table.slice(0, 0)), frame.schema) for plan, item in judged]
    dropped = 0
    for (plan, item), ids in zip(judged, kept(frame, filters), strict=True):
        few = item.table.filter(pc.is_in(item.table.column("id"), value_set=pa.array(ids, pa.int64())))
        assert from_engine(plan, replace(item, table=few), Options()) == from_engine(plan, item, Options())
        dropped += len(item.table) - len(few)
    assert dropped > 0


@pytest.fixture(scope="module")
def shared(spark: SparkSession) -> DataFrame:
    """Every combination of stream, keys, value and times, or none of them."""
    rows = product(("A", "B", "C", "D", None), (1, None), (0.5, math.nan, None), (0, 9, None), (7, None), (8, None))
    return spark.createDataFrame(
        [(place, *row) for place, row in enumerate(rows)],
        "id int, kind string, k int, g double, x int, begin int, until int",
    ).coalesce(1)


def test_a_row_has_times_and_keys_and_is_an_event_of_some_plan(shared: DataFrame) -> None:
    item = InputTable(shared.toArrow(), "begin", "until", type="kind")
    texts = ["PATTERN SEQ(A a [x > 1], NOT B b, C c) PARTITION BY k WITHIN 5", "PATTERN A a [x < 1] PARTITION BY g"]
    plans = [plan_of(text, item) for text in texts]
    first, second, both = kept(shared, [condition_of(some, item, shared) for some in (plans[:1], plans[1:], plans)])
    assert first == taken(plans[0], item)
    assert second == taken(plans[1], item)
    assert both == first | second


def test_plans_with_equal_keys_share_their_streams(shared: DataFrame) -> None:
    item = InputTable(shared.toArrow(), "begin", type="kind")
    texts = ["PATTERN A a [x > 1] PARTITION BY k", "PATTERN A z [z.x > 1] PARTITION BY k", "PATTERN B b PARTITION BY k"]
    plans = [plan_of(text, item) for text in texts]
    condition = condition_of(plans, item, shared)
    assert kept(shared, [condition]) == [set().union(*(taken(plan, item) for plan in plans))]
    assert str(condition).count(">(x, 1)") == str(condition).count("isNotNull(k)") == 1


def test_counting_needs_every_row(shared: DataFrame) -> None:
    item = InputTable(shared.limit(0).toArrow(), "begin", type="kind")
    plans = [plan_of(text, item) for text in ("PATTERN A a", "PATTERN SEQ(A a, B b) WITHIN 3 EVENTS")]
    assert needed_rows(plans[:1], item, shared.schema) is not None
    assert needed_rows(plans, item, shared.schema) is None


def test_a_table_of_one_stream(shared: DataFrame) -> None:
    tables = [InputTable(shared.toArrow(), "begin", stream=name) for name in "AB"]
    only_a = plan_of("PATTERN A a [x >= 9]", *tables)
    also_b = plan_of("PATTERN SEQ(A a [x >= 9], B b) PARTITION BY k WITHIN 1", *tables)
    filters = [condition_of(plans, item, shared) for plans in ([only_a], [also_b], [only_a, also_b]) for item in tables]
    rows = [row for row in tables[0].table.to_pylist() if row["begin"] is not None]
    high = {row["id"] for row in rows if row["x"] == 9}
    keyed = {row["id"] for row in rows if row["k"] is not None}
    assert kept(shared, filters) == [high, set(), high & keyed, keyed, high, keyed]


def test_a_query_that_never_holds_needs_nothing(shared: DataFrame) -> None:
    item = InputTable(shared.toArrow(), "begin", type="kind")
    plan = plan_of("PATTERN A a [x = NULL]", item)
    assert kept(shared, [condition_of([plan], item, shared)]) == [set()]


def test_names_of_columns_are_taken_literally(spark: SparkSession) -> None:
    names = ["id", "a.b", "two words", "tick`s", "`", "Über.`x`", "end"]
    frame = spark.createDataFrame([(n, n, n, n, "AB"[n % 2], n, n) for n in range(6)], names)
    item = InputTable(frame.toArrow(), "tick`s", "end", type="`")
    texts = [
        "PATTERN A a [`a.b` > 1]",
        "PATTERN A a [`two words` IN (2, 4)] PARTITION BY `a.b`",
        "PATTERN A a [`tick``s` > 1 AND `Über.``x``` < 4]",
        "PATTERN A a [a.s > 1 AND e < 4 AND a.`end` < 4]",
    ]
    plans = [plan_of(text, item) for text in texts]
    filters = [condition_of([plan], item, frame) for plan in plans]
    assert kept(frame, filters) == [taken(plan, item) for plan in plans] == [{2, 4}, {2, 4}, {2}, {2}]


@pytest.mark.parametrize(("time", "end"), [("e", "s"), ("e", None), ("s", "e"), ("t", "e"), ("s", "x"), ("x", None)])
def test_words_for_time_stand_for_the_time_columns(spark: SparkSession, time: str, end: str | None) -> None:
    used = [name for name in (time, end) if name is not None]
    frame = spark.createDataFrame([(n, n, n + 10) for n in range(6)], ["id", *used, "other"][:3])
    item = InputTable(frame.toArrow(), time, end, stream="A")
    plans = [plan_of(f"PATTERN A a [{text}]", item) for text in ("t > 3", "s > 3", "e > 13", "e < 3", f"{time} = 2")]
    filters = [condition_of([plan], item, frame) for plan in plans]
    assert kept(frame, filters) == [taken(plan, item) for plan in plans]


# --- files


def pushed(frame: DataFrame) -> str:
    with redirect_stdout(StringIO()) as output:
        frame.explain("formatted")
    (line,) = [line for line in output.getvalue().splitlines() if line.startswith("PushedFilters")]
    return line


def test_files_are_skipped_by_stream_and_value(events: DataFrame, table: pa.Table) -> None:
    item = shape(table)
    plan = plan_of("PATTERN SEQ(A a [i > 2.5 AND i + 1 > 2], B b, C c)", item)
    line = pushed(events.filter(condition_of([plan], item, events)))
    assert "IsNotNull(at)" in line
    assert "In(type, [A,B,C])" in line
    assert "Or(And(EqualTo(type,A),GreaterThan(i,2)),In(type, [B,C]))" in line


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("i >= 3", "GreaterThanOrEqual(i,3)"),
        ("b < 3", "LessThan(b,3)"),
        ("l IN (1, 2)", "In(l, [1,2])"),
        ("d > 1", "GreaterThan(d,1.0)"),
        ("v LIKE 'a%'", "StringStartsWith(v,a)"),
        ("day < TIMESTAMP '2024-01-31 12:00'", "LessThan(day,2024-02-01)"),
        ("t > TIMESTAMP '2024-01-31'", "GreaterThan(at,"),
        ("ntz > TIMESTAMP '2024-01-31'", "GreaterThan(ntz,2024-01-31T00:00)"),
        ("p", "EqualTo(p,true)"),
        ("v = u", "EqualTo(type,A)"),
    ],
)
def test_what_reaches_the_files(events: DataFrame, table: pa.Table, predicate: str, wanted: str) -> None:
    item = shape(table)
    plan = plan_of(f"PATTERN A a [{predicate}]", item)
    line = pushed(events.filter(condition_of([plan], item, events)))
    assert wanted in line
    assert "EqualTo(type,A)" in line


BLOCKED = {
    "numbers": pa.table({"x": pa.array([1, 2**31 - 1, None, 2**53, 2**53 + 1])}),
    "texts": pa.table({"x": ["a", None, "ab ", "A"]}),
    "floats": pa.table({"x": [0.0, 3.0, 0.1]}),
    "none": pa.table({"x": pa.array([], pa.string())}),
    "many": pa.table({"x": [str(number) for number in range(1001)]}),
}


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(
    ("operand", "name", "wanted"),
    [
        ("i", "numbers", "In(i, [1,2147483647"),
        ("l", "numbers", "In(l, [1,2147483647"),
        ("d", "numbers", ""),
        ("v", "texts", "In(v, [A,a,ab ])"),
        ("st.y", "texts", "In(st.y, ["),
        ("low", "texts", ""),
        ("dec", "numbers", ""),
        ("i", "floats", ""),
        ("d", "floats", ""),
        ("v", "none", ""),
        ("v", "many", ""),
    ],
)
def test_lookups_in_a_table(
    events: DataFrame, table: pa.Table, operand: str, name: str, wanted: str, negated: bool
) -> None:
    """A lookup of integers and texts reaches the files; what it finds is what the engine finds."""
    rows = "(st).y" if operand == "st.y" else operand
    query = f"TABLE {name}(x); PATTERN A a [{rows} {'NOT ' if negated else ''}IN {name}] RETURN a.id AS id"
    found = ensue.detect(events, query, time="at", type="type", tables={name: BLOCKED[name]})
    inside = ensue.detect(table, query, time="at", type="type", tables={name: BLOCKED[name]})
    assert sorted(row.id for row in found.collect()) == sorted(inside.column("id").to_pylist())
    assert inside.num_rows > 0 or (name in ("none", "many") and not negated)
    if wanted:
        assert (f"Not({wanted}" if negated else wanted) in pushed(found)
    elif name != "none":
        assert "In(" not in pushed(found).replace("In(type", "")
