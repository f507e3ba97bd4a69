"""Tables and streams by format and options, as pipeline files name them, and what Spark says when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ensue.errors import SchemaError
from ensue.runtimes.spark.records import parsed_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ensue.runtimes.spark.handle import Running

FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
ID = "match_id"
_LONGEST = 2000
_RECORD = "error[pipeline-record]: "


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read. `value` are the columns in the JSON of a column `value`, `columns` expressions by their names."""

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None
    value: str | None = None
    columns: Mapping[str, str] | None = None


def read_frame(spark: SparkSession, reading: Reading, *, streaming: bool) -> DataFrame:
    """The DataFrame, or the streaming one."""
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format(reading.format).options(**reading.options)
    if reading.schema is not None:
        reader = reader.schema(reading.schema)
    frame: DataFrame = reader.load(reading.path) if reading.path is not None else reader.load()
    if reading.value is not None:
        frame = parsed_values(frame, reading.value)
    for name, expression in (reading.columns or {}).items():
        from pyspark.sql import functions as spark_functions

        frame = frame.withColumn(name, spark_functions.expr(expression))
    return frame


@dataclass(frozen=True, slots=True)
class Writing:
    """Where rows go. Without `keeps_id`, the id of a match is left out."""

    format: str
    path: str | None
    options: Mapping[str, str]
    mode: str
    keeps_id: bool = True


def write_frame(rows: DataFrame, writing: Writing) -> None:
    """Writes a DataFrame of the past."""
    _write(rows, writing, writing.path, writing.mode)


@dataclass(frozen=True, slots=True)
class MicroBatchSink:
    """Writes micro-batches. Each has a folder of files of its own: a repeated one takes the place of the first."""

    writing: Writing

    def __call__(self, rows: DataFrame, batch: int) -> None:
        if rows.isEmpty():
            return
        own = self.writing
        if own.path is not None and own.format in FILES:
            _write(rows, own, f"{own.path.rstrip('/')}/batch={batch}", "overwrite")
        else:
            _write(rows, own, own.path, own.mode)


def _write(rows: DataFrame, writing: Writing, path: str | None, mode: str) -> None:
    if writing.format == "kafka":
        rows = _kafka_records(rows)
    elif not writing.keeps_id:
        rows = rows.drop(ID)
    writer = rows.write.format(writing.format).mode(mode).options(**writing.options)
    if path is None:
        writer.save()
    else:
        writer.save(path)


def _kafka_records(rows: DataFrame) -> DataFrame:
    """A record per row: the row as JSON, and its id as key."""
    from pyspark.sql import functions as spark_functions

    value = spark_functions.to_json(spark_functions.struct(*rows.columns)).alias("value")
    return identified(rows).select(spark_functions.col(ID).alias("key"), value)


def identified(rows: DataFrame) -> DataFrame:
    """The rows with an id in front: that of the match, or, for rows that are no matches, a hash of their contents."""
    from pyspark.sql import functions as spark_functions

    if ID in rows.columns:
        return rows
    text = spark_functions.to_json(spark_functions.struct(*rows.columns))
    return rows.select(spark_functions.sha2(text, 256).alias(ID), "*")


def start_frame(
    frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: str, trigger: Mapping[str, Any]
) -> Running:
    """Starts a stream whose micro-batches go to a function."""
    from ensue.runtimes.spark.handle import Running

    writer: Any = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query = (writer.trigger(**trigger) if trigger else writer).start()
    return Running(frame.sparkSession, checkpoint, (query,), status=False)


def with_watermark(frame: DataFrame, column: str, length: str) -> DataFrame:
    return frame.withWatermark(column, length)


@contextmanager
def spark_errors() -> Iterator[None]:
    """What Spark raises comes as an error of one code, without Java's part of the message."""
    from pyspark.errors import PySparkException

    try:
        yield
    except Exception as error:
        if isinstance(error, PySparkException) or hasattr(error, "java_exception"):
            raise _as_ours(error) from error
        raise


def _as_ours(error: Exception) -> SchemaError:
    text = str(error)
    if _RECORD in text:
        message = text.rpartition(_RECORD)[2].partition("\n")[0]
        hint = "add `rejected` to the source: a place for such records, or `ignore`; the run then goes on"
        return SchemaError("pipeline-record", message, hint)
    return SchemaError("pipeline-spark", _said(error))


def _said(error: Exception) -> str:
    text = str(error).partition("\n\tat ")[0].partition("\n\nJVM stacktrace")[0].strip()
    if text.startswith("An error occurred while calling"):
        text = text.partition("\n: ")[2] or text
    if "error[" in text:
        # An error of Ensue in a worker: Spark puts its own words before it.
        text = text[text.rindex("error[") :]
    return f"Spark says: {text[:_LONGEST]}"
