"""Every case of `tests/cases` on Spark, in batch: the same rows and types as in this process, the same refusals.

A job costs more than a case. So the results of many cases, each a struct column, go through one job together.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ensue
from case_files import Case, input_of, render_results, render_rows
from case_oracle import heads_of
from ensue import EnsueWarning, QueryError, SchemaError
from inside import counts_events, slices, spark_schema
from test_cases import (
    ALL,
    codes_of,
    columns_of,
    detect,
    each,
    has_rules,
    is_beyond_sample,
    node_of,
    run_rules,
    without_completion,
)

RESULTS_PER_JOB = 16
MOST_SHUFFLED = 40
ACCEPTED = [case for _, case in ALL if not case.errors]
SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield
    for name, earlier in before.items():
        assert earlier is not None
        spark.conf.set(name, earlier)


@pytest.fixture(scope="module", autouse=True)
def _small_jobs(spark: SparkSession) -> Iterator[None]:
    with settings(spark, SETTINGS):
        yield


# --- cases as DataFrames


def frames_of(spark: SparkSession, tables: pa.Table | dict[str, pa.Table]) -> DataFrame | dict[str, DataFrame]:
    if isinstance(tables, dict):
        return {name: frame_of(spark, table) for name, table in tables.items()}
    return frame_of(spark, tables)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    if table.num_rows == 0:
        return spark.createDataFrame([], spark_schema(table.schema))
    return spark.createDataFrame(table.combine_chunks(), spark_schema(table.schema))


def detect_frames(case: Case, frames: Any) -> dict[str, DataFrame]:
    """The results by name, for rules; a pattern alone has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EnsueWarning)
        if has_rules(case):
            tables = case.fixed_tables()
            found = ensue.run(frames, case.query, **columns_of(case), tables=tables)
        else:
            found = {"": ensue.detect(frames, case.query, **columns_of(case))}
    assert all(isinstance(frame, DataFrame) for frame in found.values())
    return dict(found)


def collect_together(results: Sequence[DataFrame]) -> list[pa.Table]:
    """The rows of several results by few jobs: the number of the result, and one struct column for each of them."""
    if len(results) > RESULTS_PER_JOB:
        return collect_together(results[:RESULTS_PER_JOB]) + collect_together(results[RESULTS_PER_JOB:])
    names = [f"result_{place}" for place in range(len(results))]
    absent = [F.lit(None).cast(result.schema).alias(name) for name, result in zip(names, results, strict=True)]
    parts = [
        result.select(
            F.lit(place).alias("place"), *absent[:place], F.struct("*").alias(names[place]), *absent[place + 1 :]
        )
        for place, result in enumerate(results)
    ]
    together = reduce(DataFrame.union, parts).toArrow()
    places = together.column("place").to_numpy()
    return [
        pa.Table.from_struct_array(together.column(name).filter(pa.array(places == place)).combine_chunks())
        for place, name in enumerate(names)
    ]


def differ_by_case(case: Case) -> bool:
    """Whether there are columns that Spark only tells apart if it is told to."""
    tables = input_of(case, [])
    schemas = [table.schema for table in (tables.values() if isinstance(tables, dict) else [tables])]
    return any(len({name.lower() for name in schema.names}) < len(schema.names) for schema in schemas)


class Found:
    """The results of cases on Spark, found in groups when the first of a group is asked for.

    Those of the sample that `make test` runs are groups of their own.
    """

    def __init__(self, spark: SparkSession, cases: Sequence[Case], seed: int | None = None) -> None:
        self.spark = spark
        self.random = random.Random(seed) if seed is not None else None
        self.groups: list[Sequence[Case]] = []
        for sensitive, beyond in product((False, True), (False, True)):
            alike = [case for case in cases if (differ_by_case(case), is_beyond_sample(case)) == (sensitive, beyond)]
            self.groups += [alike[begin : begin + RESULTS_PER_JOB] for begin in range(0, len(alike), RESULTS_PER_JOB)]
        self.tables: dict[str, dict[str, pa.Table]] = {}

    def __getitem__(self, case: Case) -> dict[str, pa.Table]:
        if case.title not in self.tables:
            group = next(group for group in self.groups if case in group)
            with settings(self.spark, {"spark.sql.caseSensitive": str(differ_by_case(case)).lower()}):
                results = [detect_frames(one, self.frames(one)) for one in group]
                found = iter(collect_together([frame for by_name in results for frame in by_name.values()]))
            for one, by_name in zip(group, results, strict=True):
                self.tables[one.title] = {name: next(found) for name in by_name}
        return self.tables[case.title]

    def frames(self, case: Case) -> DataFrame | dict[str, DataFrame]:
        events = case.parsed_events()
        if self.random is not None:
            self.random.shuffle(events)
        return frames_of(self.spark, input_of(case, events))


# --- the tests


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    return Found(spark, ACCEPTED)


def test_titles_tell_cases_apart() -> None:
    assert len({case.title for case in ACCEPTED}) == len(ACCEPTED)


@each(((path, case) for path, case in ALL if not case.errors), is_slow=is_beyond_sample)
def test_batch(case: Case, found: Found) -> None:
    tables = found[case]
    assert sorted(rows_of(case, tables)) == sorted(map(without_completion, case.rows))
    local = (
        run_rules(case, case.parsed_events())
        if has_rules(case)
        else {"": detect(case, case.parsed_events(), case.query)}
    )
    assert {name: table.schema for name, table in tables.items()} == {name: one.schema for name, one in local.items()}


def rows_of(case: Case, tables: Mapping[str, pa.Table]) -> list[str]:
    return render_results(tables, heads_of(case)) if has_rules(case) else render_rows(tables[""])


# --- rows in any order, over slices of time


PATTERNS = [case for case in ACCEPTED if not has_rules(case)]
SLICED = [case for case in PATTERNS if "WITHIN" in case.query and not counts_events(node_of(case))]
SAMPLE = SLICED[:: -(-len(SLICED) // MOST_SHUFFLED)]


@pytest.fixture(scope="module")
def shuffled(spark: SparkSession) -> Iterator[Found]:
    """As many slices as there can be, several tasks, and rows in a random order."""
    with pytest.MonkeyPatch.context() as patch, settings(spark, {"spark.sql.shuffle.partitions": "3"}):
        patch.setattr(slices, "OVERLAPS_PER_SLICE", 1)
        yield Found(spark, SAMPLE, seed=7)


@each(((path, case) for path, case in ALL if case in SAMPLE), is_slow=is_beyond_sample)
def test_rows_in_any_order_and_many_slices(case: Case, shuffled: Found) -> None:
    assert sorted(rows_of(case, shuffled[case])) == sorted(map(without_completion, case.rows))


# --- refusals


def unreadable(frame: DataFrame) -> DataFrame:
    """The frame; a job that reads a row of it fails."""
    return frame.filter(F.raise_error(F.lit("a row was read")).isNull())


def unreadable_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    row = [F.lit(None).cast(field.dataType).alias(field.name) for field in spark_schema(table.schema)]
    return unreadable(spark.range(1)).select(*row)


def unreadable_frames(spark: SparkSession, case: Case) -> DataFrame | dict[str, DataFrame]:
    tables = input_of(case, [])
    if isinstance(tables, dict):
        return {name: unreadable_frame(spark, table) for name, table in tables.items()}
    return unreadable_frame(spark, tables)


@each(((path, case) for path, case in ALL if case.errors), is_slow=is_beyond_sample)
def test_refusal(case: Case, spark: SparkSession) -> None:
    """Before anything runs; what only rows can show is said by the job that reads them."""
    if case.errors == ["time-range"]:
        with pytest.raises(PySparkException, match=r"error\[time-range\]"):
            detect_frames(case, frames_of(spark, input_of(case, case.parsed_events())))[""].collect()
        return
    with pytest.raises((QueryError, SchemaError)) as refusal:
        detect_frames(case, unreadable_frames(spark, case))
    assert codes_of(refusal.value) == case.errors
