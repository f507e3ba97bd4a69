"""What Spark says when a run fails, as problems at lines of the pipeline file. No Spark is started.

The texts are those of Spark 4, shortened. `tests/spark/test_pipelines.py` makes Spark fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import ensue
from inside import Step, failures_in, read_pipeline_text

TEXT = """\
mode: stream
query: PATTERN pair SEQ(Order o, Paid p) PARTITION BY id WITHIN 1 hour
sources:
  - stream: Order
    format: parquet
    path: orders
    schema: at TIMESTAMP, id BIGINT
    columns: {number: CAST(id AS INT)}
    time: at
    watermark: 0 seconds
  - stream: Paid
    format: kafka
    options: {kafka.bootstrap.servers: "broker:9092", subscribe: paid}
    value: at TIMESTAMP, id BIGINT
    time: at
    watermark: 0 seconds
outputs:
  pair: {format: parquet, path: "out/${FOLDER}"}
checkpointLocation: checkpoint
"""
MISMATCH = (
    "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file "
    "file://FOLDER/orders/b.parquet. Data type mismatches when reading Parquet column [id]. Expected Spark type "
    "bigint, actual Parquet type BINARY. SQLSTATE: KD001"
)
STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
TRACE = "\n\tat org.apache.spark.Any.thing(Any.scala:1)\nCaused by: "
JAVA = "An error occurred while calling o284.parquet.\n: "


class Py4JJavaError(Exception):
    """As py4j raises it: the text has the trace of Java."""


class Py4JNetworkError(Exception):
    """As py4j raises it if Java does not answer."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Any:
    (tmp_path / "orders").mkdir()
    return read_pipeline_text(TEXT, tmp_path / "pipeline.yaml", {"FOLDER": "hunter2"})


def failed(pipeline: Any, error: Exception, step: Any = None) -> ensue.QueryError:
    with pytest.raises(ensue.QueryError) as caught, failures_in(pipeline, step or Step()):
        raise error
    assert caught.value.__cause__ is error
    for part in ("hunter2", "\tat ", "SQLSTATE", "Traceback"):
        assert part not in str(caught.value)
    return caught.value


FAILURES: list[tuple[str, str, int | None, str, str]] = [
    (MISMATCH, "pipeline-files", 6, "`b.parquet` has BINARY, `schema` declares BIGINT", "write the file again"),
    (
        STREAM + MISMATCH + " SQLSTATE: XXKST\n=== Streaming Query ===\n[ANY_OTHER] error[pipeline-record]: x",
        "pipeline-files",
        6,
        "`b.parquet` has BINARY",
        "write the file again",
    ),
    (
        JAVA + "org.apache.spark.SparkException: [FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while "
        "reading file file:FOLDER/orders/x.parquet. Could not read footer. SQLSTATE: KD001",
        "pipeline-files",
        6,
        "`x.parquet` cannot be read as parquet",
        "move the file",
    ),
    (
        JAVA + "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading "
        "file file://FOLDER/orders/x.parquet. File does not exist. SQLSTATE: KD001",
        "pipeline-file",
        6,
        "file `x.parquet` was removed or changed",
        "keep files",
    ),
    (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://FOLDER/orders/x.json.  SQLSTATE: KD001"
        + TRACE
        + "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records",
        "pipeline-files",
        6,
        "`x.json` has a record",
        "FAILFAST",
    ),
    (
        '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT" because it is malformed. '
        "Correct the value as per the syntax. SQLSTATE: 22018\n== SQL (line 1, position 1) ==\nCAST(id AS INT)\n^^^^\n",
        "pipeline-column",
        8,
        "column `number` cannot be computed: The value 'x'",
        "try_cast",
    ),
    (
        STREAM
        + "[USER_RAISED_EXCEPTION] error[pipeline-record]: a record cannot be read: no timestamp\n SQLSTATE: P0001",
        "pipeline-record",
        14,
        "a record cannot be read: no timestamp",
        "add `rejected`",
    ),
    (
        STREAM + "Failed to create new KafkaAdminClient" + TRACE + "org.apache.kafka.common.config.ConfigException: "
        "No resolvable bootstrap urls given in bootstrap.servers",
        "pipeline-kafka",
        13,
        "no Kafka broker can be reached at `broker:9092`",
        "a broker is running",
    ),
    (
        STREAM + "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this",
        "pipeline-kafka",
        13,
        "Kafka has no topic `paid`",
        "create the topic",
    ),
    (
        JAVA + "java.io.IOException: mkdir of file:FOLDER/checkpoint failed" + TRACE + "java.io.IOException: "
        "mkdir of file:FOLDER/checkpoint failed",
        "pipeline-checkpoint",
        19,
        "the checkpoint cannot be used",
        "a folder that this process can write",
    ),
    (
        STREAM + "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
        "pipeline-checkpoint",
        19,
        "another run uses the checkpoint",
        "stop the other run",
    ),
    (
        JAVA + "org.apache.spark.SparkException: error[expression-overflow]: 9 * 9 is too large\nhint: use DOUBLE"
        "\n\n\tat org.apache",
        "expression-overflow",
        2,
        "9 * 9 is too large",
        "use DOUBLE",
    ),
    ("[SOMETHING_NEW] Nobody knows ${FOLDER} hunter2. SQLSTATE: 1", "pipeline-spark", None, "Nobody knows", "log"),
]


@pytest.mark.parametrize(("text", "code", "line", "message", "hint"), FAILURES)
def test_failures_are_at_lines(
    pipeline: Any, tmp_path: Path, text: str, code: str, line: int | None, message: str, hint: str
) -> None:
    kind = StreamingQueryException if text.startswith("[STREAM") else Py4JJavaError
    error = failed(pipeline, kind(text.replace("FOLDER/", f"{tmp_path}/")))
    assert (error.code, error.line) == (code, line)
    assert message in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        (
            "[PATH_ALREADY_EXISTS] Path file:/out/hunter2 already exists. Set mode. SQLSTATE: 42K04",
            "pipeline-sink",
            "output `pair`: its path exists already",
            "mode: overwrite",
        ),
        (
            JAVA + "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 19.0 failed 1 "
            "times, most recent failure: Lost task 0.0 in stage 19.0 (TID 33) (here executor driver): "
            "java.io.IOException: Mkdirs failed to create file:/out/hunter2/_temporary",
            "pipeline-sink",
            "output `pair` cannot be written: Mkdirs failed to create file:/out/${FOLDER}/_temporary",
            "has space",
        ),
        (
            "[UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE] The CSV datasource doesn't support the column `a`. SQLSTATE: 0A000",
            "pipeline-sink",
            "output `pair` cannot be written: The CSV datasource",
            "use `json`",
        ),
        (
            "[SOMETHING_NEW] Nobody knows. SQLSTATE: 1",
            "pipeline-spark",
            "Spark raised an error: Nobody knows.",
            "log",
        ),
    ],
)
def test_outputs_that_fail(pipeline: Any, text: str, code: str, message: str, hint: str) -> None:
    sink = pipeline.outputs["pair"]
    error = failed(pipeline, Py4JJavaError(text), Step(sink.path, "pair", sink))
    assert (error.code, error.line) == (code, 18)
    assert message in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: file:/else. SQLSTATE: 42K03", "pipeline-file", "`orders` not found"),
        ("[UNABLE_TO_INFER_SCHEMA] Unable to infer. SQLSTATE: 42KD9", "pipeline-files", "`orders` has no files"),
        (
            '[CANNOT_MERGE_SCHEMAS] Failed merging:\n"STRUCT<id: BIGINT>"\n"STRUCT<id: STRING>". SQLSTATE: 42KD9',
            "pipeline-files",
            "different types: id: BIGINT and id: STRING",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idd` cannot be resolved. Did you mean one of the "
            "following? [`id`, `t`]. SQLSTATE: 42703; line 1 pos 0;",
            "no-such-column",
            "the source has no column `idd`",
        ),
        (
            '[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `t` has the invalid type "BIGINT". SQLSTATE: 42K09',
            "time-type",
            "the column of the watermark must be a timestamp",
        ),
        (
            "[UNRESOLVED_ROUTINE] Cannot resolve routine `f` on search path [`x`]. SQLSTATE: 42883; line 1 pos 0",
            "pipeline-value",
            "Spark cannot read `orders`: Cannot resolve routine `f`",
        ),
    ],
)
def test_sources_that_fail_at_the_start(pipeline: Any, text: str, code: str, message: str) -> None:
    error = failed(pipeline, AnalysisException(text), Step(pipeline.sources[0].table.path))
    assert (error.code, error.line) == (code, 6)
    assert message in str(error)
    assert error.hint


def test_a_process_of_spark_that_has_ended(pipeline: Any) -> None:
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused")):
        found = failed(pipeline, error)
        assert found.code == "pipeline-spark"
        assert "Spark's Java process has ended" in str(found)
        assert "memory" in found.hint


def test_errors_of_ensue_get_a_line(pipeline: Any) -> None:
    state = failed(pipeline, ensue.StateError("state-query", "the checkpoint is of another query", "use --upgrade"))
    assert (state.code, state.line, state.hint) == ("state-query", 19, "use --upgrade")
    column = failed(pipeline, ensue.SchemaError("time-type", "column `at` must be a timestamp, but is hunter2"))
    assert (column.code, column.line) == ("time-type", 9)
    limit = failed(pipeline, ensue.LimitError("match-limit", "more than 3 matches", "pass `limits=`"))
    assert (limit.code, limit.line) == ("match-limit", None)
    assert "set `limit`" in limit.hint


def test_other_errors_are_not_changed(pipeline: Any) -> None:
    with pytest.raises(ZeroDivisionError), failures_in(pipeline):
        raise ZeroDivisionError
    with pytest.raises(ensue.SetupError), failures_in(pipeline):
        raise ensue.SetupError("no-java", "no Java was found")
