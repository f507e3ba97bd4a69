"""Records of JSON, as Kafka and text files have them: their columns, and what happens to those that are no events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ensue.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
