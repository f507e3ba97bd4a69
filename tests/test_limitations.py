"""docs/limitations.md is right: every cell of its tables is tried, and what it refuses has the code that it names.

A cell with `-` has no case. On Spark, what is supported is only tried by `make test-all`: it runs jobs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ensue

PAGE = Path(__file__).parent.parent / "docs" / "limitations.md"
COLUMNS = {"time": "t", "type": "type"}
TIMES = [datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(1, 7)]
EVENTS = pa.table(
    {
        "t": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "type": list("ABCABC"),
        "k": [1] * 6,
        "x": range(6),
        "p": [0.5] * 6,
        "until": pa.array(TIMES, pa.timestamp("us", "UTC")),
    }
)
ALL = "PARTITION BY k WITHIN 5 seconds"
PAIR = f"PATTERN SEQ(A a, B b) {ALL}"
STATE = "STATE s OF alice IN (den, bath) ON B m: MOVE alice TO den;"
ASKS = f"{STATE} PATTERN SEQ(A a, B b) WHERE b.P(alice in den) > 0.5 {ALL}"
CONSTRAINT = f"CONSTRAINT PRIOR(A, C) PARTITION BY k; PATTERN SEQ(A a, C c) {ALL}"
ELEMENTS = """
STREAM Row FROM events WHERE x > 2;
STREAM Part FROM events UNNEST split(type, ',') AS part RETURN part, k;
"""
DECLARED = f"STREAM S FROM PATTERN SEQ(A p, B q) {ALL} RETURN p.k AS k, p.x AS x, p.type AS type;"


def tables(heading: str) -> dict[str, dict[str, str]]:
    """The rows of the table below a heading: what is in each column."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def wanted(cell: str) -> str:
    """The code that a cell begins with, or `yes`."""
    found = re.match(r"`([a-z-]+)`|yes$", cell)
    assert found, cell
    return found[1] or "yes"


def answer(call: Callable[[], Any]) -> str:
    """The code with which a call is refused, or `yes`."""
    try:
        call()
    except ensue.EnsueError as error:
        return str(error.code)  # type: ignore[attr-defined]
    return "yes"


# --- by runtime


@dataclass(frozen=True)
class Place:
    """A runtime: a column of the first table, and events of the kind that it takes."""

    name: str
    events: Any
    by_end: Any
    """The same with a watermark on the end."""

    def run(self, query: str, events: Any = None, **options: Any) -> Any:
        given = self.by_end if "end" in options and events is None else self.events if events is None else events
        options = {**COLUMNS, **options}
        if isinstance(given, dict):
            options.pop("type")
        if self.name == "Detector":
            return ensue.Detector(query, **options).finish(given)
        return ensue.detect(given, query, **options)


def by_stream(place: Place) -> Any:
    """One table per stream, of different kinds."""
    if "Spark" in place.name:
        return {"A": place.events, "B": EVENTS}
    return {"A": EVENTS, "B": EVENTS.to_pandas()}


def with_time(place: Place, kind: str) -> Any:
    """The events with another kind of time."""
    if "Spark" in place.name:
        return place.events.withColumn("at", place.events["t"].cast(kind))
    cast = {"bigint": pa.int64(), "timestamp_ntz": pa.timestamp("us")}[kind]
    return EVENTS.append_column("at", EVENTS["t"].cast(cast))


def changed(place: Place) -> None:
    """Resumes from the state of another query."""
    other = PAIR.replace("5", "6")
    if place.name == "Detector":
        detector = ensue.Detector(PAIR, **COLUMNS)
        detector.advance(EVENTS, watermark=TIMES[2])
        ensue.Detector(other, **COLUMNS).restore(detector.snapshot())
    else:
        with tempfile.TemporaryDirectory() as folder:
            options = {"to": f"{folder}/matches", "checkpointLocation": f"{folder}/checkpoint", **COLUMNS}
            ensue.start(place.events, PAIR, **options).stop()
            ensue.start(place.events, other, **options).stop()


def start(place: Place) -> None:
    """Tables in a process are not streams."""
    if place.name == "stream on Spark":
        ensue.start(EVENTS, PAIR, to="nowhere", checkpointLocation="nowhere", **COLUMNS)
    else:
        place.run(PAIR)
        place.run(PAIR, EVENTS.to_pandas())


FEATURES: dict[str, Callable[[Place], Any]] = {
    "patterns, absences, windows, repetition, policies": lambda place: [
        place.run(f"PATTERN {pattern}")
        for pattern in (f"SEQ(A a, NOT B b, C c+) {ALL}", f"SEQ(A a, B b) {ALL} MATCH RECENT", "NEXT(A a, B b{2})")
    ],
    "declared streams": lambda place: place.run(f"{DECLARED} PATTERN SEQ(S s, C c) {ALL}"),
    "rules, also recursive ones": lambda place: place.run(
        "RULE h(k, x) <- A(k=k, x=x); RULE h(k, y) <- h(k, x), B(k=k, x=y), x < y; PATTERN (h s)"
    ),
    "streams of rows, elements of lists (UNNEST)": lambda place: place.run(
        f"{ELEMENTS} PATTERN SEQ(Part p, Row r) {ALL}"
    ),
    "constraints": lambda place: place.run(CONSTRAINT),
    "uncertain events": lambda place: place.run(PAIR, probability="p"),
    "questions to a STATE": lambda place: place.run(ASKS),
    "questions to a STATE, events with an `end`": lambda place: place.run(ASKS, end="until"),
    "constraints, events with an `end`": lambda place: place.run(CONSTRAINT, end="until"),
    "pyarrow, pandas and polars tables": start,
    "Spark DataFrames": lambda place: place.run(PAIR, place.by_end if place.name == "Detector" else place.events),
    "tables of different kinds in one call": lambda place: place.run(PAIR, by_stream(place)),
    "integer time": lambda place: place.run(PAIR.replace(" seconds", ""), with_time(place, "bigint"), time="at"),
    "timestamps without a time zone": lambda place: place.run(PAIR, with_time(place, "timestamp_ntz"), time="at"),
    "`since` and `until`": lambda place: place.run(PAIR, since=TIMES[1], until=TIMES[3]),
    '`emit="eager"`': lambda place: place.run(PAIR, emit="eager"),
    "`ensue.detect_batches`": lambda place: list(ensue.detect_batches(place.events, PAIR, **COLUMNS)),
    "`ensue.violations`": lambda place: ensue.violations(place.events, CONSTRAINT, **COLUMNS),
    "`ensue.why_not`, `ensue.justify`": lambda place: [
        ensue.why_not(place.events, PAIR, **COLUMNS),
        ensue.justify(place.events, f"{PAIR} RETURN b.x AS x", {"x": 1}, **COLUMNS),
    ],
    "`ensue.report`": lambda place: ensue.report(place.events, PAIR, **COLUMNS),
    "`ensue.report` with a STATE": lambda place: ensue.report(place.events, ASKS, **COLUMNS),
    "`ensue.report` with streams of rows": lambda place: ensue.report(
        place.events, f"{ELEMENTS} PATTERN SEQ(Part p, Row r) {ALL}", **COLUMNS
    ),
    "`ensue.any_match`": lambda place: ensue.any_match(place.events, PAIR, **COLUMNS, probability="p"),
    "`ensue.any_match` with a STATE": lambda place: ensue.any_match(place.events, ASKS, **COLUMNS, probability="p"),
    "beliefs after all events": lambda place: ensue.beliefs.of(place.events, ASKS, **COLUMNS),
    "mining constraints": lambda place: ensue.process.mine(place.events, **COLUMNS, partition_by="k"),
    "resume with a changed query": changed,
}


@pytest.fixture(scope="module")
def frames(spark: Any) -> dict[str, Place]:
    fields = ["t", "'A' AS type", "1L AS k", "1L AS x", "0.5D AS p", "t AS until"]
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "t").selectExpr(*fields)
    batch = spark.createDataFrame(EVENTS)
    return {
        "batch on Spark": Place("batch on Spark", batch, batch),
        "stream on Spark": Place("stream on Spark", *(stream.withWatermark(by, "1 second") for by in ("t", "until"))),
    }


def cells(heading: str, on_spark: Callable[[str, str], bool]) -> list[Any]:
    """The cells of a table as parameters: row, column, what it says."""
    found = []
    for row, columns in tables(heading).items():
        for column, cell in columns.items():
            marks = [pytest.mark.spark] if on_spark(row, column) else []
            marks += [pytest.mark.slow] if marks and cell == "yes" else []
            if cell != "-":
                found.append(pytest.param(row, column, wanted(cell), id=f"{row} | {column}", marks=marks))
    return found


def _needs_frames(row: str, column: str) -> bool:
    return "Spark" in column or (row, column) == ("Spark DataFrames", "Detector")


@pytest.mark.parametrize(("row", "column", "code"), cells("By runtime", _needs_frames))
def test_feature_on_a_runtime(row: str, column: str, code: str, request: pytest.FixtureRequest) -> None:
    if not _needs_frames(row, column):
        place = Place(column, EVENTS, EVENTS)
    elif column == "Detector":
        place = Place(column, EVENTS, request.getfixturevalue("frames")["batch on Spark"].events)
    else:
        place = request.getfixturevalue("frames")[column]
    assert answer(lambda: FEATURES[row](place)) == code


def test_every_feature_is_in_the_table() -> None:
    assert list(FEATURES) == list(tables("By runtime"))


# --- by kind of event

PATTERNS: dict[str, tuple[str, ...]] = {
    "SEQ, AND, OR, WITHIN": (
        f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL}",
        f"PATTERN AND(<A> a, OR(B b, C c)) <WHERE> {ALL}",
    ),
    "NOT": (f"PATTERN SEQ(<A> a, NOT B b, C c) <WHERE> {ALL}", f"PATTERN SEQ(<A> a, NOT B b) <WHERE> {ALL}"),
    "NOTFOLLOWS, APERIODIC, UNLESS": (
        f"PATTERN NOTFOLLOWS(<A> a, B b, 3 seconds) <WHERE> {ALL}",
        f"PATTERN APERIODIC(<A> a, C b, B c) <WHERE> {ALL}",
        f"PATTERN UNLESS(B b)(<A> a, C c) <WHERE> {ALL}",
    ),
    "FIRST, LAST": (
        f"PATTERN SEQ(<A> a, FIRST B b) <WHERE> {ALL}",
        f"PATTERN SEQ(<A> a, LAST B b, C c) <WHERE> {ALL}",
    ),
    "`x{2}`": (f"PATTERN SEQ(<A> a, B b{{2}}) <WHERE> {ALL}",),
    "COLLECT, `x+`, `x*`": tuple(
        f"PATTERN SEQ(<A> a, {item}, C c) <WHERE> {ALL}" for item in ("COLLECT B b", "B b+", "B b*")
    ),
    "a NOT inside a list, a list inside a NOT": (
        f"PATTERN SEQ(<A> a, COLLECT SEQ(B b, NOT A n, B d), C c) <WHERE> {ALL}",
        f"PATTERN SEQ(<A> a, NOT SEQ(B b, COLLECT B d, C e), C c) <WHERE> {ALL}",
    ),
    "UNLESS inside a NOT": (f"PATTERN SEQ(<A> a, NOT UNLESS(C u)(B x, B z), C c) <WHERE> {ALL}",),
    "an aggregate of text": (f"PATTERN SEQ(<A> a, COLLECT B b, C c) <WHERE> {ALL} RETURN first(b.type) AS kind",),
    "WITHIN n EVENTS, NEXT": (
        "PATTERN SEQ(<A> a, B b) <WHERE> PARTITION BY k WITHIN 3 EVENTS",
        f"PATTERN NEXT(<A> a, B b) <WHERE> {ALL}",
    ),
    "MATCH STRICT": (f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} MATCH STRICT",),
    "MATCH NEXT": (f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} MATCH NEXT",),
    "MATCH RECENT and the other contexts": tuple(
        f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} MATCH {context}"
        for context in ("RECENT", "CHRONICLE", "CONTINUOUS", "CUMULATIVE")
    ),
    "CONSUME": (f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} CONSUME",),
    "SUPPRESS": (f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} SUPPRESS FOR 5 seconds",),
    "`lineage()`": (f"PATTERN SEQ(<A> a, B b) <WHERE> {ALL} RETURN lineage() AS ids",),
    "declared streams": (
        f"STREAM D FROM PATTERN SEQ(<A> a, C c) <WHERE> {ALL} RETURN a.k AS k; PATTERN SEQ(D d, C c) {ALL}",
    ),
    "rules": ("RULE h(k) <- a: <A>(k=k), b: B(k=k)<AND>; PATTERN (h x)",),
    "a constraint on these events": (
        f"CONSTRAINT PRIOR(<A>, C) PARTITION BY k; PATTERN SEQ(<A> a, C c) <WHERE> {ALL}",
    ),
    "the constraint ENDS": (f"CONSTRAINT ENDS(<A>) PARTITION BY k; PATTERN SEQ(B b, <A> a) <WHERE> {ALL}",),
    "a STATE that these events change": (
        f"STATE z OF bob IN (hall, attic) ON <A> m: MOVE bob TO hall; PATTERN SEQ(<A> a, C c) <WHERE> {ALL}",
    ),
    "a question to a STATE about these events": (f"{STATE} PATTERN (<A> a) WHERE a.P(alice in den) > 0.5 {ALL}",),
}
UNCERTAIN, DERIVED, ASKING, LASTING, EAGER = (
    "uncertain events",
    "events of declared streams and rules",
    "questions to a STATE",
    "events with an `end`",
    '`emit="eager"`',
)


def filled(pattern: str, column: str) -> str:
    """The text of a pattern for a column."""
    asking = column == ASKING and "alice" not in pattern
    question = "a.P(alice in den) > 0.5"
    text = pattern.replace("<WHERE>", f"WHERE {question}" if asking else "")
    text = text.replace("<AND>", f", {question}" if asking else "").replace("<A>", "S" if column == DERIVED else "A")
    return f"{DECLARED if column == DERIVED else ''} {STATE if asking else ''} {text}"


@pytest.mark.parametrize(("row", "column", "code"), cells("By kind of event", lambda _, column: column == EAGER))
def test_pattern_over_a_kind_of_event(row: str, column: str, code: str, request: pytest.FixtureRequest) -> None:
    place = Place("batch in process", EVENTS, EVENTS)
    options: dict[str, Any] = {UNCERTAIN: {"probability": "p"}, LASTING: {"end": "until"}}.get(column, {})
    if column == EAGER:
        place, options = request.getfixturevalue("frames")["stream on Spark"], {"emit": "eager"}
    for pattern in PATTERNS[row]:
        text = filled(pattern, column)
        assert answer(lambda text=text: place.run(text, **options)) == code, text  # type: ignore[misc]


def test_every_pattern_is_in_the_table() -> None:
    assert list(PATTERNS) == list(tables("By kind of event"))


# --- by policy

PARTS: dict[str, tuple[str, ...]] = {
    "SEQ, ANY EVENT, WITHIN for a part": (
        "SEQ(A a, SEQ(B b, C c))",
        "SEQ(A a, ANY EVENT b)",
        "SEQ((SEQ(A a, B b) WITHIN 3 seconds), C c)",
    ),
    "NOT between items of SEQ or at the end": ("SEQ(A a, NOT B b, C c)", "SEQ(A a, NOT B b)"),
    "AND, OR": ("AND(A a, B b)", "OR(A a, B b)"),
    "NOT inside AND": ("AND(A a, B b, NOT C c)",),
    "FOLLOWS, NOTFOLLOWS, PRIOR, SIMULTANEOUS, APERIODIC, UNLESS": (
        "FOLLOWS(A a, B b, 3 seconds)",
        "NOTFOLLOWS(A a, B b, 3 seconds)",
        "PRIOR(A a, B b)",
        "SIMULTANEOUS(A a, B b)",
        "APERIODIC(A a, B b, C c)",
        "UNLESS(B b)(A a, C c)",
    ),
    "NEXT, EXCEPT, ANY, `APERIODIC*`, `PERIODIC`, `PERIODIC*`, `RELATIVE+`": (
        "NEXT(A a, B b)",
        "ANY(2, A a, B b, C c)",
        "EXCEPT(A a, SEQ(B b, A c))",
        "APERIODIC*(A a, B b, C c)",
        "PERIODIC(A a, 1 second, C c)",
        "PERIODIC*(A a, 1 second, C c)",
        "SEQ(RELATIVE+(A a), B b)",
    ),
    "repetition, COLLECT": ("SEQ(A a, B b{2})", "SEQ(A a, B b+, C c)", "SEQ(A a, COLLECT B b, C c)"),
    "FIRST, LAST": ("SEQ(A a, FIRST B b)", "SEQ(A a, LAST B b, C c)"),
    "WITHIN n EVENTS": ("SEQ(A a, B b)",),
    "CONSUME": ("SEQ(A a, B b)",),
    "SUPPRESS": ("SEQ(A a, B b)",),
}
ADDED = {"CONSUME": "CONSUME", "SUPPRESS": "SUPPRESS FOR 5 seconds"}
"""The rows that are clauses of their own."""


@pytest.mark.parametrize(("row", "column", "code"), cells("By policy", lambda _, __: False))
def test_part_under_a_policy(row: str, column: str, code: str) -> None:
    place = Place("batch in process", EVENTS, EVENTS)
    words = re.sub("^MATCH ", "", column).replace("MATCH ", "").split(", ")
    policies = [column] if column == "CONSUME" else [f"MATCH {word}" for word in words]
    window = "3 EVENTS" if row == "WITHIN n EVENTS" else "5 seconds"
    for policy in policies:
        for part in PARTS[row]:
            text = f"PATTERN {part} PARTITION BY k WITHIN {window} {policy} {ADDED.get(row, '')}"
            assert answer(lambda text=text: place.run(text)) == code, text  # type: ignore[misc]


def test_every_part_is_in_the_table() -> None:
    assert list(PARTS) == list(tables("By policy"))
