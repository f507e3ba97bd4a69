"""Learned refinement on DataFrames: Spark counts contexts and fits classifiers; workers apply models to Arrow data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own convention)
from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType, VariantType

from ensue.engine import refinement
from ensue.engine.sources import one_chunk
from ensue.errors import SchemaError
from ensue.plan.inputs import InputTable
from ensue.runtimes.spark.batch import ticks
from ensue.runtimes.spark.frames import FrameInput, carried, empty_table, spark_schema
from ensue.runtimes.spark.java import require_pyspark
from ensue.runtimes.spark.pushdown import column
from ensue.runtimes.spark.session import advise
from ensue.runtimes.spark.stream import DELAY
from ensue.runtimes.spark.worker import spare_imports

PREVIOUS_LABEL, NUMBER = "ensue:previous", "ensue:number"
HOUR_MICROS = 3_600_000_000
FIRST_WEEKDAY = 3
"""1970-01-01 was a Thursday; Monday is 0."""

NESTED = (ArrayType, MapType, StructType, VariantType)


def columns_of(frame: DataFrame) -> pa.Table:
    """Return an empty table with the columns of a DataFrame."""
    require_pyspark()
    return empty_table(frame, "table")


def count_frame(frame: DataFrame, reading: refinement.ContextColumns, limit: int) -> pa.Table:
    """Count how often each context has each label, in one job; return at most `limit` + 1 rows."""
    if frame.isStreaming:
        raise SchemaError(
            "streaming-frame",
            "fitting needs a static (batch) DataFrame, but this one is a stream",
            "read the DataFrame with `spark.read`; `Refinement.apply` supports streams",
        )
    advise(frame.sparkSession)
    label = column(reading.label).cast("string")
    if reading.looks_back:
        frame = frame.withColumn(PREVIOUS_LABEL, _previous_label(frame, reading, label))
    names = refinement.feature_columns(len(reading.features))
    context = _context(frame, reading)
    rows = frame.select(*(value.alias(name) for value, name in zip(context, names, strict=True)), label.alias("label"))
    counts = rows.dropna(subset=["label"]).groupBy(*names, "label").count().limit(limit + 1).toArrow()
    return refinement.in_order(counts)


def _context(frame: DataFrame, reading: refinement.ContextColumns) -> list[Column]:
    """Return the same texts that `context_of` returns for tables."""
    found = []
    for feature in reading.features:
        if feature.kind == refinement.COLUMN:
            found.append(column(feature.name).cast("string"))
        elif feature.kind == refinement.PREVIOUS:
            found.append(column(PREVIOUS_LABEL))
        else:
            hours = F.floor(_on_the_clock(frame, reading) / F.lit(HOUR_MICROS))
            days = F.floor(hours / F.lit(24)) + F.lit(FIRST_WEEKDAY)
            number = F.pmod(hours, F.lit(24)) if feature.kind == refinement.HOUR else F.pmod(days, F.lit(7))
            found.append(number.cast("string"))
    return found


def _on_the_clock(frame: DataFrame, reading: refinement.ContextColumns) -> Column:
    """Return the local time of the zone in microseconds."""
    assert reading.time is not None
    if isinstance(frame.schema[reading.time].dataType, TimestampType):
        return F.unix_micros(F.from_utc_timestamp(column(reading.time), reading.zone))
    return _ticks(frame, reading.time)


def _ticks(frame: DataFrame, name: str) -> Column:
    return ticks(FrameInput(frame, InputTable(pa.table({}), name)), name)


def _previous_label(frame: DataFrame, reading: refinement.ContextColumns, label: Column) -> Column:
    """Return the same label that `previous_labels` returns for tables."""
    assert reading.time is not None
    moment = _ticks(frame, reading.time)
    keys = [column(name) for name in reading.partition_by]
    is_known = label.isNotNull() & moment.isNotNull()
    earlier = Window.partitionBy(*keys).orderBy(moment).rangeBetween(Window.unboundedPreceding, -1)
    last = F.max(F.when(is_known, F.struct(moment.alias("time"), label.alias("label")))).over(earlier)
    has_key = moment.isNotNull()
    for key in keys:
        has_key &= key.isNotNull()
    return F.when(has_key, last.getField("label"))


def fit_logistic(frame: DataFrame, counts: pa.Table, labels: pa.Array, ridge: float) -> refinement.Logistic:
    """Fit a multinomial logistic regression with Spark ML, on contexts weighted by their counts."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import OneHotEncoder, VectorAssembler

    vocabularies, codes = refinement.encoded_context(counts)
    names = refinement.feature_columns(len(codes))
    weights = counts.column("count").cast(pa.float64())
    own = refinement.codes_in(counts.column("label").combine_chunks(), labels)
    coded = pa.table([*codes, own, weights], names=[*names, "label", "weight"])
    rows = frame.sparkSession.createDataFrame(coded)
    vectors = [f"{name}_vector" for name in names]
    encoder = OneHotEncoder(inputCols=names, outputCols=vectors, dropLast=False)
    assembler = VectorAssembler(inputCols=vectors, outputCol="features")
    rows = assembler.transform(encoder.fit(rows).transform(rows))
    regression = LogisticRegression(
        family="multinomial", weightCol="weight", regParam=ridge / float(np.sum(weights)), standardization=False
    )
    fitted = regression.fit(rows)
    coefficients = fitted.coefficientMatrix.toArray().T
    ends = np.cumsum([len(words) for words in vocabularies])[:-1]
    return refinement.Logistic(vocabularies, tuple(np.split(coefficients, ends)), fitted.interceptVector.toArray())


def expand_frame(frame: DataFrame, expansion: refinement.Expansion) -> DataFrame:
    """Expand coarse events of a static or streaming DataFrame into alternatives; the result is lazy."""
    table = columns_of(frame)
    reading = expansion.reading
    if frame.isStreaming and reading.looks_back:
        raise SchemaError(
            "previous-on-stream",
            "the feature 'previous' is not supported on a stream",
            "fit without 'previous', or with a column `previous` that the source provides",
        )
    returned = expansion.expand(table).schema
    returned = pa.schema([pa.field(field.name, carried(field.type)) for field in returned])
    rows = frame
    if reading.looks_back:
        rows = rows.withColumn(PREVIOUS_LABEL, _previous_label(frame, reading, _known_label(expansion)))
    if not frame.isStreaming and expansion.id is None:
        rows = rows.withColumn(NUMBER, _number_among_equals(frame))
    names = tuple(frame.columns)
    found = rows.mapInArrow(_ExpandTask(expansion, names, returned), spark_schema(returned))
    return found.select(*(_marked(frame, name) for name in found.columns))


def _known_label(expansion: refinement.Expansion) -> Column:
    label = column(expansion.reading.label).cast("string")
    if expansion.reading.label != expansion.type or expansion.coarse is None:
        return label
    return F.when(~label.isin(*expansion.coarse), label)


def _number_among_equals(frame: DataFrame) -> Column:
    telling = [column(field.name) for field in frame.schema if not isinstance(field.dataType, NESTED)]
    return F.row_number().over(Window.partitionBy(*telling).orderBy(F.lit(0))).cast("long") - F.lit(1)


def _marked(frame: DataFrame, name: str) -> Column:
    """Restore the watermark of the column, because workers do not preserve it."""
    metadata = frame.schema[name].metadata if name in frame.columns else {}
    return column(name).alias(name, metadata=metadata) if DELAY in metadata else column(name)


@dataclass(frozen=True, slots=True)
class _ExpandTask:
    """Expands the rows of a partition, one batch at a time."""

    expansion: refinement.Expansion
    names: tuple[str, ...]
    returned: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_imports()
        for batch in batches:
            table = pa.Table.from_batches([batch])
            previous = one_chunk(table.column(PREVIOUS_LABEL)) if PREVIOUS_LABEL in batch.schema.names else None
            numbers = np.zeros(batch.num_rows, np.int64)
            if NUMBER in batch.schema.names:
                numbers = table.column(NUMBER).to_numpy()
            found = self.expansion.expand(table.select(self.names), previous, numbers)
            yield from found.cast(self.returned).to_batches()
