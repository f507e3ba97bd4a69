"""Read and write tables and streams by format and options, as in pipeline files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.errors import SchemaError
from ensue.runtimes.moments import spark_interval
from ensue.runtimes.spark.session import running_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ensue.runtimes.spark.handle import StreamHandle

FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
ID = "match_id"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read."""

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None


def read_frame(spark: SparkSession, reading: SourceOptions, *, streaming: bool) -> DataFrame:
    """Return the static or streaming DataFrame."""
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.format(reading.format).options(**reading.options)
    if reading.schema is not None:
        reader = reader.schema(reading.schema)
    frame: DataFrame = reader.load(reading.path) if reading.path is not None else reader.load()
    return frame


def with_column(frame: DataFrame, name: str, expression: str) -> DataFrame:
    """Return the DataFrame with a column that a Spark SQL expression computes."""
    from pyspark.sql import functions as spark_functions

    return frame.withColumn(name, spark_functions.expr(expression))


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write rows. Without `keeps_id`, the id of a match is dropped."""

    format: str
    path: str | None
    options: Mapping[str, str]
    mode: str
    keeps_id: bool = True


def write_frame(rows: DataFrame, writing: SinkOptions) -> None:
    """Write a static DataFrame."""
    _write(rows, writing, writing.path, writing.mode)


@dataclass(frozen=True, slots=True)
class MicroBatchSink:
    """Writes each micro-batch to its own folder, so that a retry overwrites the first attempt."""

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
    """Return one record per row: the row as JSON, with its id as the key."""
    from pyspark.sql import functions as spark_functions

    value = spark_functions.to_json(spark_functions.struct(*rows.columns)).alias("value")
    return identified(rows).select(spark_functions.col(ID).alias("key"), value)


def identified(rows: DataFrame) -> DataFrame:
    """Add an id as the first column: the id of the match, or a hash of the contents for other rows."""
    from pyspark.sql import functions as spark_functions

    if ID in rows.columns:
        return rows
    text = spark_functions.to_json(spark_functions.struct(*rows.columns))
    return rows.select(spark_functions.sha2(text, 256).alias(ID), "*")


def start_frame(
    frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: str, trigger: Mapping[str, Any]
) -> StreamHandle:
    """Start a stream and pass its micro-batches to a function."""
    from ensue.runtimes.spark.failures import WithoutTraces
    from ensue.runtimes.spark.handle import StreamHandle

    writer: Any = frame.writeStream.foreachBatch(WithoutTraces(sink)).option("checkpointLocation", checkpoint)
    words = {word: spark_interval(value) if isinstance(value, str) else value for word, value in trigger.items()}
    query = (writer.trigger(**words) if words else writer).start()
    return StreamHandle(frame.sparkSession, checkpoint, (query,), status=False)


def with_watermark(frame: DataFrame, column: str, length: str) -> DataFrame:
    """The rows with a watermark, `length` behind the largest time of the column."""
    return frame.withWatermark(column, spark_interval(length))


# --- JSON records from Kafka and text files: their columns, and records that cannot be read

KAFKA_COLUMNS = ("key", "topic", "timestamp")
"""The columns of a Kafka record that events get as `kafka_key`, `kafka_topic`, ..."""

PLACE = ("topic", "partition", "offset", "timestamp")
"""The columns that locate a Kafka record."""

_RECORD, _CORRUPT, _ROW = "_ensue_record", "_ensue_corrupt", "_ensue_row"
NOT_JSON = "not JSON with the columns of `value`"
NO_TIME = "no timestamp"


def parsed_values(frame: DataFrame, schema: str) -> DataFrame:
    """Return the columns in the JSON of `value`, Kafka's columns, and the record for `accepted` and `rejected`."""
    from pyspark.sql import functions as spark_functions
    from pyspark.sql.types import StructType

    if "value" not in frame.columns:
        raise SchemaError(
            "no-such-column",
            f"the source has no column `value` with JSON; columns: {', '.join(frame.columns)}",
            "remove `value` (it is for Kafka and text files), or specify the columns with `schema`",
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
    """Return the records that are events. Other records end the run if `failing`, otherwise they are ignored."""
    from pyspark.sql import functions as spark_functions

    there, problem = frame.where(_has_text()), _problem(time)
    if not failing:
        return _events(there.where(problem.isNull()))
    # Every column comes from the checked row, so the record is checked whichever column is read first.
    row = spark_functions.struct(*(name for name in frame.columns if name not in (_RECORD, _CORRUPT)))
    checked = spark_functions.when(problem.isNotNull(), spark_functions.raise_error(_message(frame, problem)))
    return there.select(checked.otherwise(row).alias(_ROW)).select(f"{_ROW}.*")


def rejected(frame: DataFrame, time: str) -> DataFrame:
    """Return the records that are not events: their text, their location in Kafka, and the reason."""
    found = frame.where(_has_text()).withColumn("problem", _problem(time))
    return found.where("problem IS NOT NULL").select(f"{_RECORD}.*", "problem")


def _events(frame: DataFrame) -> DataFrame:
    return frame.drop(_RECORD, _CORRUPT)


def _has_text() -> Column:
    """Return False for empty lines and for Kafka records that mark a key as deleted; they are ignored."""
    from pyspark.sql import functions as spark_functions

    return spark_functions.trim(f"{_RECORD}.value") != ""


def _problem(time: str) -> Column:
    from pyspark.sql import functions as spark_functions

    return spark_functions.when(spark_functions.col(_CORRUPT).isNotNull(), NOT_JSON).when(
        spark_functions.col(time).isNull(), NO_TIME
    )


def _message(frame: DataFrame, problem: Column) -> Column:
    """Return one line that locates the record. It does not contain the text, which may be secret."""
    from pyspark.sql import functions as spark_functions

    record: Any = frame.schema[_RECORD].dataType
    text = [spark_functions.lit("error[pipeline-record]: a record cannot be read as an event: "), problem]
    for name in PLACE[:3]:
        if name in record.fieldNames():
            text += [spark_functions.lit(f", {name} "), spark_functions.col(f"{_RECORD}.{name}").cast("string")]
    return spark_functions.concat(*text, spark_functions.lit("\n"))


# --- writing tables with Spark


def write_rows(
    session: SparkSession | None, rows: pa.Table, format: str, mode: str, options: Mapping[str, Any]
) -> None:
    """Write a table with the given session, or the running one, or a new one."""
    # Spark loses the rows after an empty chunk.
    frame: Any = (session or running_session() or spark_session()).createDataFrame(rows.combine_chunks())
    frame.write.format(format).mode(mode).options(**options).save()


def session_of(frames: Any) -> SparkSession:
    """Return the session of a DataFrame, or of the DataFrames of a mapping."""
    frame = next(iter(frames.values())) if isinstance(frames, Mapping) else frames
    session: SparkSession = frame.sparkSession
    return session


def is_streaming(frames: Any) -> bool:
    """Return True if any of the DataFrames is a stream."""
    return any(frame.isStreaming for frame in (frames.values() if isinstance(frames, Mapping) else [frames]))
