"""Turns what fails while a pipeline runs into problems at lines of its file: errors of Spark, and of Ensue's runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ensue.apps.pipelines.columns import cleaned, in_file, located
from ensue.apps.pipelines.model import Pipeline, SourceOfEvents, SparkSinkOf
from ensue.apps.pipelines.yaml_tree import FileValue
from ensue.errors import CodedError, LimitError, Problem, QueryError, SetupError, StateError
from ensue.runtimes.spark.failures import SparkFailure, failure_of

_FILE = re.compile(r"(?:reading file|Path does not exist:|is not a Parquet file[^\n]*?) (?:file:)?(/?\S+?)\.?(?=\s|$)")
_MISMATCH = re.compile(r"Parquet column \[(.*?)\]\. Expected Spark type (.*?), actual Parquet type (\w+)")
_RECORD = re.compile(r"\[USER_RAISED_EXCEPTION\] error\[pipeline-record\]: ([^\n]*)")
_OWN = re.compile(r"error\[([a-z-]+)\]: (.*?)(?:\nhint: (.*))?$", re.DOTALL)
_NAME = re.compile(r"with name (`.*?`) cannot be resolved\.(?: Did you mean one of the following\? \[(.*)\])?")
_CITED = re.compile(r"== SQL \([^)]*\) ==\n(.*?)\n\s*\^", re.DOTALL)
_KAFKA = re.compile(
    r"KafkaAdminClient|bootstrap|kafka[^\n]*TimeoutException|UnknownTopicOrPartition|TimeoutException[^\n]*(topic|node)"
)
_UNWRITABLE = re.compile(
    r"Mkdirs failed|mkdir of|ermission denied|not a directory|AccessDenied|AccessControlException|No space left|"
    r"Read-only file system"
)
_CHECKPOINT = re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|CANNOT_LOAD_CHECKPOINT|INVALID_CHECKPOINT|FAIL_TO_LOAD_STATE")
_UNREADABLE_SQL = ("PARSE_SYNTAX_ERROR", "UNSUPPORTED_DATATYPE", "UNRESOLVED_ROUTINE", "INVALID_SCHEMA")
_SPARKS_LOG = "the last lines of Spark's log have more"


@dataclass(frozen=True, slots=True)
class Step:
    """What a run is doing: the value of the file that it works with, and the output that it writes, if any."""

    place: FileValue | None = None
    output: str = ""
    sink: SparkSinkOf | None = None
    schema: FileValue | None = None
    """The columns and types with which it reads a source."""


NOTHING = Step()


@contextmanager
def failures_in(pipeline: Pipeline, step: Step = NOTHING) -> Iterator[None]:
    """Raises what fails as a QueryError at a line of the pipeline file, without the values of variables."""
    try:
        yield
    except SetupError:
        raise
    except QueryError as error:
        raise in_file(error, pipeline) from error.__cause__
    except CodedError as error:
        raise QueryError([cleaned(_of_run(error, pipeline), pipeline.hidden)], pipeline.source) from error
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise QueryError([cleaned(problem_of(failure, pipeline, step), pipeline.hidden)], pipeline.source) from error


def _of_run(error: CodedError, pipeline: Pipeline) -> Problem:
    """The problem of an error of Ensue: about the checkpoint, or about the columns of a source."""
    problem = located(error, pipeline)
    if isinstance(error, LimitError):
        return replace(problem, span=None, hint="set `limit` of the pipeline, or use a more selective pattern")
    if isinstance(error, StateError) and pipeline.checkpoint is not None:
        return replace(problem, span=pipeline.checkpoint.span)
    return problem


def problem_of(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem:
    """Returns the problem of a failure of Spark. The first rule that knows the failure decides."""
    found = next(filter(None, (rule(failure, pipeline, step) for rule in _RULES)), None)
    if found is not None:
        return found
    span = None if step.place is None else step.place.span
    return Problem("pipeline-spark", f"Spark raised an error: {failure.message}", span, hint=_SPARKS_LOG)


def _gone(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    if not failure.is_gone:
        return None
    hint = "it was killed, or ran out of memory: see `memory` of `spark`; the same command runs the pipeline again"
    return Problem("pipeline-spark", failure.message, hint=hint)


def _record(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """A record that is not an event, in a source without `rejected`."""
    found = _RECORD.search(failure.text)
    if found is None:
        return None
    failing = (source for source in pipeline.sources if source.value is not None and source.rejected == "fail")
    place = next((source.value for source in failing if source.value is not None), None)
    hint = "to continue after such records, add `rejected` to the source: a sink for them, or `ignore`"
    return Problem("pipeline-record", found[1].strip(), None if place is None else place.span, hint=hint)


def _own(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """An error of Ensue in a task, such as an overflow in a condition or too many matches."""
    found = _OWN.match(failure.message)
    if found is None:
        return None
    given = pipeline.program_file or pipeline.query
    span = None if given is None else given.span
    code, (message, *rest) = found[1], found[2].split("\n")
    label = next((line.partition("--> ")[2] for line in rest if "--> " in line), "")
    return Problem(code, message, span, f"at {label}" if label else "", (found[3] or "").strip())


def _file(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """A file that Spark cannot read as the source says."""
    found = _FILE.search(failure.text)
    if found is None:
        return None
    source, name = _source_of(found[1], pipeline, step), PurePosixPath(found[1]).name
    place = step.place if source is None else source.table.path or source.table.format
    span = None if place is None else place.span
    format = "" if source is None else source.table.format.raw
    if failure.condition == "PATH_NOT_FOUND":
        said = found[1] if place is None else pipeline.source.quote(place.span)
        return Problem("pipeline-file", f"`{said}` not found", span, hint="check the path, and that it has files")
    if other := _MISMATCH.search(failure.text):
        column, expected, stored = other.groups()
        declared = "`schema` declares" if source is not None and source.table.schema is not None else "other files have"
        message = f"column `{column}` has different types: `{name}` has {stored}, {declared} {expected.upper()}"
        hint = "Spark does not convert columns of Parquet files: write the file again with this type"
        return Problem("pipeline-files", message, span, hint=hint)
    if "FILE_NOT_EXIST" in failure.text:
        hint = "keep files until the run has read them, and do not change files that are there"
        return Problem("pipeline-file", f"file `{name}` was removed or changed while it was read", span, hint=hint)
    if "MALFORMED_RECORD" in failure.text:
        hint = "correct the file, or remove the option `mode: FAILFAST`: values of other types are then null"
        message = f"`{name}` has a record that does not have the declared columns and types"
        return Problem("pipeline-files", message, span, hint=hint)
    if "FOOTER" in failure.text or "is not a Parquet file" in failure.text or "FAILED_READ_FILE" in failure.text:
        hint = "move the file out of the folder, or correct `format`"
        message = f"`{name}` cannot be read as {format}" if format else f"`{name}` cannot be read"
        return Problem("pipeline-files", message, span, hint=hint)
    return None


def _source_of(file: str, pipeline: Pipeline, step: Step) -> SourceOfEvents | None:
    """The source that has a file: the one with the longest path that the file starts with."""
    starts = [
        (source.table.path.value.split("*")[0].removeprefix("file:").lstrip("/"), source)
        for source in pipeline.sources
        if source.table.path is not None
    ]
    fitting = [(len(start), source) for start, source in starts if file.lstrip("/").startswith(start.rstrip("/"))]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _folder(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    if failure.condition not in ("UNABLE_TO_INFER_SCHEMA", "CANNOT_MERGE_SCHEMAS") or step.place is None:
        return None
    said = pipeline.source.quote(step.place.span)
    if failure.condition == "CANNOT_MERGE_SCHEMAS":
        types = " and ".join(re.findall(r'"STRUCT<(.*?)>"', failure.message))
        hint = "write the files again with the same types, or remove `mergeSchema`"
        return Problem("pipeline-files", f"files of `{said}` have different types: {types}", step.place.span, hint=hint)
    hint = "put files in it first, or declare the columns with `schema: id BIGINT, at TIMESTAMP, ...`"
    return Problem("pipeline-files", f"`{said}` has no files, so its columns are unknown", step.place.span, hint=hint)


def _column(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """A column or a function that Spark does not find, or Spark SQL that it cannot read."""
    if step.place is None:
        return None
    span = step.place.span
    if found := _NAME.search(failure.message):
        names = (found[2] or "").replace("`", "")
        hint = f"did you mean `{names.split(', ')[0]}`?" if names else "use a column of the source"
        message = f"the source has no column {found[1]}"
        return Problem("no-such-column", message, span, f"columns: {names}" if names else "", hint)
    if failure.condition == "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE":
        hint = "add `watermark_column` with a timestamp column, or convert the time with `columns`"
        return Problem("time-type", "the column of the watermark must be a timestamp", span, hint=hint)
    if failure.condition.startswith(_UNREADABLE_SQL):
        span = span if step.schema is None else step.schema.span
        message = (
            f"Spark cannot read `{pipeline.source.quote(span)}`: {failure.message.partition(' on search path')[0]}"
        )
        return Problem("pipeline-value", message, span, hint="see the SQL reference of Spark")
    return None


def _value(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """A value for which an expression of `columns` fails, such as a text that is not a number."""
    cited = _CITED.search(failure.text)
    tables = [*(source.table for source in pipeline.sources), *pipeline.tables.values()]
    given = [(name, value) for table in tables for name, value in table.columns.items()]
    if cited is None or not given:
        return None
    hits = [(name, value) for name, value in given if value.value.strip() == cited[1].strip()]
    if not hits:
        return None
    name, expression = hits[0]
    sentence = failure.message.partition("\n")[0]
    for advice in (" Correct the value", " Use `try_", " If necessary"):
        sentence = sentence.partition(advice)[0]
    hint = "use `try_cast` in place of CAST: the column is then null for such values"
    if "CAST" not in failure.condition:
        hint = "exclude such values in the expression, for example with CASE WHEN"
    return Problem("pipeline-column", f"column `{name}` cannot be computed: {sentence}", expression.span, hint=hint)


def _kafka(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """A broker that does not answer, or a topic that does not exist."""
    tables = [step.sink] if step.sink is not None and step.sink.format.value == "kafka" else []
    options = [own.options for own in tables] or [source.table.options for source in pipeline.sources]
    servers = next((own["kafka.bootstrap.servers"] for own in options if "kafka.bootstrap.servers" in own), None)
    if servers is None or not _KAFKA.search(failure.text):
        return None
    if "UnknownTopicOrPartition" in failure.text:
        topics = next((own[key] for own in options for key in ("subscribe", "topic") if key in own), servers)
        hint = "create the topic before the run, or correct its name"
        return Problem("pipeline-kafka", f"Kafka has no topic `{topics}`", topics.span, hint=hint)
    message = f"no Kafka broker can be reached at `{servers}`"
    hint = "check the addresses, that a broker is running, and the security options"
    return Problem("pipeline-kafka", message, servers.span, hint=hint)


def _checkpoint(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    own = pipeline.checkpoint
    if own is None or step.output:
        return None
    if "CONCURRENT_STREAM_LOG_UPDATE" in failure.text:
        hint = "stop the other run, or use another `checkpointLocation`"
        return Problem(
            "pipeline-checkpoint",
            f"another run uses the checkpoint `{pipeline.source.quote(own.span)}`",
            own.span,
            hint=hint,
        )
    if _CHECKPOINT.search(failure.text) or (_UNWRITABLE.search(failure.message) and own.value in failure.message):
        message = f"the checkpoint cannot be used: {failure.message}"
        hint = "use a folder that this process can write, and that only this pipeline uses"
        return Problem("pipeline-checkpoint", message, own.span, hint=hint)
    return None


def _output(failure: SparkFailure, pipeline: Pipeline, step: Step) -> Problem | None:
    """An output that cannot be written."""
    sink = step.sink
    if not step.output or sink is None:
        return None
    place = sink.path or sink.format
    if failure.condition == "PATH_ALREADY_EXISTS":
        hint = "add `mode: overwrite` or `mode: append`, or use another path"
        return Problem("pipeline-sink", f"output `{step.output}`: its path exists already", place.span, hint=hint)
    message = f"output `{step.output}` cannot be written: {failure.message}"
    if failure.condition == "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE":
        return Problem("pipeline-sink", message, sink.format.span, hint="use `json` or `parquet`")
    if _UNWRITABLE.search(failure.text):
        hint = "check that the folder exists, has space, and can be written by this process"
        return Problem("pipeline-sink", message, place.span, hint=hint)
    return None


_Rule = Callable[[SparkFailure, Pipeline, Step], "Problem | None"]
_RULES: tuple[_Rule, ...] = (_gone, _record, _own, _file, _folder, _column, _value, _kafka, _checkpoint, _output)
