"""Tables and streams by format and options, as pipeline files name them, and what Spark says when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.errors import SchemaError
from ensue.runtimes.spark.session import running_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ensue.runtimes.spark.handle import StreamHandle

FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
ID = "match_id"
_LONGEST = 2000
_CITED_RECORD = "error[pipeline-record]: "


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read. `value` are the columns in the JSON of a column `value`, `columns` expressions by their names."""

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None
    value: str | None = None
    columns: Mapping[str, str] | None = None


def read_frame(spark: SparkSession, reading: SourceOptions, *, streaming: bool) -> DataFrame:
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
class SinkOptions:
    """Where rows go. Without `keeps_id`, the id of a match is left out."""

    format: str
    path: str | None
    options: Mapping[str, str]
    mode: str
    keeps_id: bool = True


def write_frame(rows: DataFrame, writing: SinkOptions) -> None:
    """Writes a DataFrame of the past."""
    _write(rows, writing, writing.path, writing.mode)


@dataclass(frozen=True, slots=True)
class MicroBatchSink:
    """Writes micro-batches. Each has a folder of files of its own: a repeated one takes the place of the first."""

    writing: SinkOptions

    def __call__(self, rows: DataFrame, batch: int) -> None:
        if rows.isEmpty():
            return
        own = self.writing
        if own.path is not None and own.format in FILES:
            _write(rows, own, f"{own.path.rstrip('/')}/batch={batch}", "overwrite")
        else:
            _write(rows, own, own.path, own.mode)


def _write(rows: DataFrame, writing: SinkOptions, path: str | None, mode: str) -> None:
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
) -> StreamHandle:
    """Starts a stream whose micro-batches go to a function."""
    from ensue.runtimes.spark.handle import StreamHandle

    writer: Any = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query = (writer.trigger(**trigger) if trigger else writer).start()
    return StreamHandle(frame.sparkSession, checkpoint, (query,), status=False)


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
    if _CITED_RECORD in text:
        message = text.rpartition(_CITED_RECORD)[2].partition("\n")[0]
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


# --- Records of JSON, as Kafka and text files have them: their columns, and what happens to those that are no events.

KAFKA_COLUMNS = ("key", "topic", "timestamp")
"""What Kafka knows of a record and events have as `kafka_key`, `kafka_topic`, ..."""

PLACE = ("topic", "partition", "offset", "timestamp")
"""Where Kafka has a record."""

_RECORD, _CORRUPT, _ROW = "_ensue_record", "_ensue_corrupt", "_ensue_row"
NOT_JSON = "it is not JSON of the columns of `value`"
NO_TIME = "it has no time"


def parsed_values(frame: DataFrame, schema: str) -> DataFrame:
    """The columns in the JSON of `value`, what Kafka knows, and the record itself, for `accepted` and `rejected`."""
    from pyspark.sql import functions as spark_functions
    from pyspark.sql.types import StructType

    if "value" not in frame.columns:
        raise SchemaError(
            "no-such-column",
            f"the source has no column `value` with JSON; columns: {', '.join(frame.columns)}",
            "`value` is for Kafka and for text files; leave it out, or say the columns with `schema`",
        )
    column = spark_functions.col
    text = column("value").cast("string").alias("value")
    record = spark_functions.struct(text, *(name for name in PLACE if name in frame.columns)).alias(_RECORD)
    columns: Any = StructType.fromDDL(schema)
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    parsed = spark_functions.from_json(text, columns.add(_CORRUPT, "string"), options).alias("parsed")
    known = [name for name in KAFKA_COLUMNS if name in frame.columns]
    others = [(column(name).cast("string") if name == "key" else column(name)).alias(f"kafka_{name}") for name in known]
    return frame.select(parsed, *others, record).select("parsed.*", *(f"kafka_{name}" for name in known), _RECORD)


def accepted(frame: DataFrame, time: str, *, failing: bool) -> DataFrame:
    """The events among records. With `failing` a record that is none ends the run, otherwise it is left out."""
    from pyspark.sql import functions as spark_functions

    there, problem = frame.where(_has_text()), _problem(time)
    if not failing:
        return _events(there.where(problem.isNull()))
    # Every column is one of the checked row: whichever is looked at first, the record has been checked.
    row = spark_functions.struct(*(name for name in frame.columns if name not in (_RECORD, _CORRUPT)))
    checked = spark_functions.when(problem.isNotNull(), spark_functions.raise_error(_message(frame, problem)))
    return there.select(checked.otherwise(row).alias(_ROW)).select(f"{_ROW}.*")


def rejected(frame: DataFrame, time: str) -> DataFrame:
    """The records that are no events: their text, where Kafka has them, and why."""
    found = frame.where(_has_text()).withColumn("problem", _problem(time))
    return found.where("problem IS NOT NULL").select(f"{_RECORD}.*", "problem")


def _events(frame: DataFrame) -> DataFrame:
    return frame.drop(_RECORD, _CORRUPT)


def _has_text() -> Column:
    """Empty lines, and records with which Kafka marks a key as deleted, are neither events nor mistakes."""
    from pyspark.sql import functions as spark_functions

    return spark_functions.trim(f"{_RECORD}.value") != ""


def _problem(time: str) -> Column:
    from pyspark.sql import functions as spark_functions

    return spark_functions.when(spark_functions.col(_CORRUPT).isNotNull(), NOT_JSON).when(
        spark_functions.col(time).isNull(), NO_TIME
    )


def _message(frame: DataFrame, problem: Column) -> Column:
    """Says which record it is, in one line; its text may be anybody's secret, so it is not in it."""
    from pyspark.sql import functions as spark_functions

    record: Any = frame.schema[_RECORD].dataType
    text = [spark_functions.lit("error[pipeline-record]: a record is no event: "), problem]
    for name in PLACE[:3]:
        if name in record.fieldNames():
            text += [spark_functions.lit(f", {name} "), spark_functions.col(f"{_RECORD}.{name}").cast("string")]
    return spark_functions.concat(*text, spark_functions.lit("\n"))


# --- Tables of calls to the sinks of Spark.


def write_rows(
    session: SparkSession | None, rows: pa.Table, format: str, mode: str, options: Mapping[str, Any]
) -> None:
    """Writes a table by way of a session: the one given, else the one of this process, else a new one."""
    # Spark loses what stands behind a chunk without rows.
    frame: Any = (session or running_session() or spark_session()).createDataFrame(rows.combine_chunks())
    frame.write.format(format).mode(mode).options(**options).save()


def session_of(frames: Any) -> SparkSession:
    """The session of a DataFrame, or of those of a mapping."""
    frame = next(iter(frames.values())) if isinstance(frames, Mapping) else frames
    session: SparkSession = frame.sparkSession
    return session


def is_streaming(frames: Any) -> bool:
    """Whether any of these DataFrames is a stream."""
    return any(frame.isStreaming for frame in (frames.values() if isinstance(frames, Mapping) else [frames]))
