"""Runs a pipeline on Spark: reads its sources, runs its program and writes the results, until it ends or is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.actions import act, spark_sink, webhook
from ensue.actions.bindings import Delivery, courier_of
from ensue.actions.delivery import Courier, Deliveries, Route
from ensue.actions.receivers import ACTION, ID, RESERVED
from ensue.api import run, tell_ties, violations
from ensue.apps.pipelines.columns import reading_of
from ensue.apps.pipelines.failures import Step, failures_in
from ensue.apps.pipelines.model import (
    ConsoleSink,
    Options,
    Pipeline,
    Sink,
    SourceOfEvents,
    SparkSinkOf,
    Table,
    WebhookSink,
)
from ensue.apps.pipelines.yaml_tree import FileValue, redact
from ensue.errors import Problem, QueryError
from ensue.explanation.report import HtmlReport, report
from ensue.plan.plans import Limits
from ensue.streams import start

# --- The Spark session and its packages


@contextmanager
def session_of(pipeline: Pipeline) -> Iterator[Any]:
    """Gives the running session, or a new one for this run. Raises an error if a format is missing."""
    from ensue.runtimes.spark.packages import takes_packages
    from ensue.runtimes.spark.session import running_session

    was_there, fresh = running_session() is not None, takes_packages()
    spark = _session(pipeline, fresh)
    try:
        _check_formats(pipeline, spark, running=not fresh)
        yield spark
    finally:
        if not was_there:
            spark.stop()


def values_of(options: Options) -> dict[str, str]:
    return {name: given.value for name, given in options.items()}


def formats_of(pipeline: Pipeline) -> dict[str, FileValue]:
    """Returns the formats of all sources, tables and sinks, each with its first position."""
    sinks = [*pipeline.sinks, *pipeline.actions.values()]
    tables = [*(source.table for source in pipeline.sources), *pipeline.tables.values()]
    given = [table.format for table in tables] + [sink.format for sink in sinks if isinstance(sink, SparkSinkOf)]
    return {format.value: format for format in reversed(given)}


def _session(pipeline: Pipeline, fresh: bool) -> Any:
    from ensue.runtimes.spark.packages import NotFetchedError, package_settings, session_with_packages
    from ensue.runtimes.spark.session import environment_settings

    own = pipeline.session
    master = None if own.master is None else own.master.value
    memory = None if own.memory is None else own.memory.value
    config = values_of(own.config)
    if fresh and not (master or "").startswith("sc://"):
        asked = [package.value for package in own.packages]
        config = package_settings(formats_of(pipeline), asked, config, environment_settings())
    try:
        return session_with_packages(pipeline.name, master, memory, config)
    except NotFetchedError as error:
        raise QueryError([_not_fetched(pipeline, error.packages)], pipeline.source) from error


def _not_fetched(pipeline: Pipeline, packages: str) -> Problem:
    """Returns the problem that Spark did not start. Spark has written the cause to stderr."""
    named = list(pipeline.session.packages)
    given = named[0] if named else next(iter(formats_of(pipeline).values()))
    return Problem(
        "pipeline-package",
        f"Spark could not start with packages {redact(packages, pipeline.hidden).replace(',', ', ')}",
        given.span,
        hint="see Spark's output above for the missing package; Spark downloads packages from Maven Central, "
        "or uses local jars from `spark: {config: {spark.jars: ...}}`",
    )


def _check_formats(pipeline: Pipeline, spark: Any, *, running: bool) -> None:
    from ensue.runtimes.spark.packages import lacks_format, missing_package_hint

    problems = [
        Problem(
            "pipeline-package",
            f"Spark has no format `{given.raw}`",
            given.span,
            hint=redact(missing_package_hint(format, running=running), pipeline.hidden),
        )
        for format, given in formats_of(pipeline).items()
        if lacks_format(spark, format)
    ]
    if problems:
        raise QueryError(problems, pipeline.source)


# --- Running a pipeline

Show: TypeAlias = "Callable[[str, pa.Table], None]"
"""Shows the rows of an output to the user."""

MATCH_ID = "match_id"
OFFSETS = frozenset({"startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp", "maxoffsetspertrigger"})
"""Options for the start of a Kafka stream. They are removed when Kafka is read as a table, from its beginning."""
PAUSE = 0.5
"""Seconds between two checks for a stop request."""


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The result of a run. `stopped` is true if a request stopped it; a stream then resumes at the next run."""

    stopped: bool = False
    deliveries: Deliveries | None = None


def run_pipeline(
    pipeline: Pipeline,
    show: Show,
    *,
    stop: Callable[[], bool] = lambda: False,
    upgrade: bool = False,
    log: Path | None = None,
) -> PipelineRun:
    """Runs a pipeline until it ends or `stop` returns True. Errors do not contain the values of variables.

    With `log`, Spark writes its log to this file instead of stderr, if it is started here.
    """
    with _session_for(pipeline, log) as spark:
        if stop():
            return PipelineRun(stopped=True)
        job = _Job(pipeline, spark, show)
        return job.stream(stop, upgrade) if pipeline.streaming else job.batch()


def report_pipeline(pipeline: Pipeline, *, title: str, most_keys: int) -> HtmlReport:
    """Returns a report on the program and the current contents of the sources. Streams are read from their start.

    It does not change the outputs or the checkpoint of the pipeline.
    """
    with _session_for(pipeline) as spark:
        return _Job(_as_batch(pipeline), spark, _show_nothing).report(title, most_keys)


def _as_batch(pipeline: Pipeline) -> Pipeline:
    def whole(source: SourceOfEvents) -> SourceOfEvents:
        table = source.table
        if table.format.value != "kafka":
            return source
        options = {name: value for name, value in table.options.items() if name.lower() not in OFFSETS}
        return replace(source, table=replace(table, options=options))

    return replace(pipeline, streaming=False, sources=tuple(map(whole, pipeline.sources)))


def _show_nothing(name: str, rows: pa.Table) -> None:
    """Discards rows: a report has no outputs."""


@contextmanager
def _session_for(pipeline: Pipeline, log: Path | None = None) -> Iterator[Any]:
    """Gives the Spark session of a pipeline. What fails is raised at a line of the file, without secrets."""
    from ensue.runtimes.spark.failures import log_in

    with failures_in(pipeline), nullcontext() if log is None else log_in(log), session_of(pipeline) as spark:
        yield spark


@dataclass(frozen=True, slots=True)
class _Job:
    pipeline: Pipeline
    spark: Any
    show: Show
    failed: list[tuple[Step, Exception]] = field(default_factory=list)
    """The outputs of a stream that failed. Spark only repeats the text of an error."""

    def batch(self) -> PipelineRun:
        own = self.pipeline
        sources = self._sources()
        events, reading = self._events(sources), self._reading()
        total = None
        for source in sources:
            if source.rejected is not None:
                total = _sum(total, self._write(*source.rejected))
        if own.violations is not None:
            columns = {key: reading[key] for key in ("time", "type") if key in reading}
            total = _sum(total, self._write("violations", own.violations, violations(events, own.program, **columns)))
        if own.outputs:
            found = run(events, own.program, match_id=self._needs_ids, **reading)
            try:
                for name, sink in own.outputs.items():
                    total = _sum(total, self._write(name, sink, found[name]))
                tell_ties(found)
            finally:
                found.release()
        if own.actions:
            total = _sum(total, act(events, own.program, self._receivers(), delivery=self._delivery(), **reading))
        return PipelineRun(deliveries=total)

    def report(self, title: str, most_keys: int) -> HtmlReport:
        events = self._events(self._sources())
        return report(events, self.pipeline.program, title=title, most_keys=most_keys, **self._reading())

    def _write(self, name: str, sink: Sink, rows: Any) -> Deliveries | None:
        from ensue.runtimes.spark.connectors import identified, write_frame

        with failures_in(self.pipeline, _writing_to(name, sink)):
            match sink:
                case ConsoleSink():
                    self.show(name, self._shown(rows.toArrow()))
                case SparkSinkOf():
                    write_frame(rows, self._writing(sink))
                case WebhookSink():
                    return self._courier(name, sink).deliver(identified(rows).toArrow())
        return None

    def stream(self, stop: Callable[[], bool], upgrade: bool) -> PipelineRun:
        running: list[Any] = []
        try:
            for start_one in self._streams(upgrade):
                running.append(start_one())
            return PipelineRun(stopped=not _wait(running, stop))
        except Exception:
            for step, error in self.failed:
                with failures_in(self.pipeline, step):
                    raise error from None
            raise
        finally:
            for query in running:
                query.stop()

    def _streams(self, upgrade: bool) -> Iterator[Callable[[], Any]]:
        """Yields functions that start the Spark streams: one for the program, and others for rejected records."""
        own, sources = self.pipeline, self._sources()
        events, reading = self._events(sources), self._reading()
        place = "" if own.checkpoint is None else own.checkpoint.value
        for source in sources:
            if source.rejected is not None:
                name, sink, rows = source.rejected
                yield partial(self._start_frame, rows, name, sink, f"{place}/{name}")
        states: dict[str, Any] = {"tick": _value(own.tick), "buckets": own.buckets}
        if own.violations is not None and not self._finds_results:
            columns = {key: reading[key] for key in ("time", "type") if key in reading}
            rows = violations(events, own.program, **columns, **states)
            yield partial(self._start_frame, rows, "violations", own.violations, f"{place}/violations")
        if self._finds_results:
            options = {**reading, **states, **self._others(sources), "checkpointLocation": f"{place}/program"}
            yield partial(self._start_program, events, {**options, "upgrade": upgrade, "emit": own.emit or "complete"})

    @property
    def _finds_results(self) -> bool:
        """Whether the program has results other than violations."""
        own = self.pipeline
        return bool(own.program.names or own.actions)

    def _start_program(self, events: Any, options: dict[str, Any]) -> Any:
        """Starts one stream for results, partial matches, late rows, violations and calls of actions."""
        own = self.pipeline
        options["trigger"] = self._trigger()
        if own.outputs or own.timed_out or not own.actions:
            options["to"] = {name: self._stream_sink(name, own.outputs.get(name)) for name in own.program.names}
        if own.actions:
            return act(events, own.program, self._receivers(), delivery=self._delivery(), **options)
        return start(events, own.program, match_id=self._needs_ids, **options)

    def _trigger(self) -> dict[str, Any] | None:
        """The trigger as `ensue.start` takes it."""
        given = values_of(self.pipeline.trigger)
        return {"availableNow": True} if "availableNow" in given else given or None

    def _others(self, sources: list[_Source]) -> dict[str, Any]:
        """Returns the sinks of late rows, partial matches and violations."""
        own = self.pipeline
        late = {source.stream: self._stream_sink(*source.late) for source in sources if source.late is not None}
        timed_out = {name: self._stream_sink(f"timed_out.{name}", sink) for name, sink in own.timed_out.items()}
        options: dict[str, Any] = {}
        if late:
            options["late"] = late if len(sources) > 1 else next(iter(late.values()))
        if timed_out:
            options["timed_out"] = timed_out
        if own.violations is not None:
            options["violations"] = self._stream_sink("violations", own.violations)
        return options

    def _start_frame(self, rows: Any, name: str, sink: Sink, checkpoint: str) -> Any:
        from ensue.runtimes.spark.connectors import start_frame

        return start_frame(rows, self._stream_sink(name, sink), checkpoint, self._trigger() or {})

    def _stream_sink(self, name: str, sink: Sink | None) -> Callable[[Any, int], None]:
        from ensue.runtimes.spark.connectors import MicroBatchSink

        match sink:
            case None:
                return _ignore
            case ConsoleSink():
                return _ConsoleRows(self, name)
            case SparkSinkOf():
                return _SinkOfOutput(self, _writing_to(name, sink), MicroBatchSink(self._writing(sink)))
            case WebhookSink():
                courier = self._courier(name, sink)
                return lambda rows, batch: _deliver(courier, rows)

    @property
    def _needs_ids(self) -> bool:
        """Whether rows need ids, as webhooks and Kafka do."""
        calls = (
            isinstance(sink, WebhookSink) or (isinstance(sink, SparkSinkOf) and sink.format.value == "kafka")
            for sink in (*self.pipeline.outputs.values(), *self.pipeline.timed_out.values())
        )
        return self.pipeline.match_id or any(calls)

    def _shown(self, rows: pa.Table) -> pa.Table:
        left_out = MATCH_ID in rows.column_names and not self.pipeline.match_id
        return rows.drop_columns([MATCH_ID]) if left_out else rows

    def _events(self, sources: list[_Source]) -> Any:
        """Returns one DataFrame, or one per stream."""
        frames = {source.stream: source.events for source in sources}
        return frames.get(None) if None in frames else frames

    def _sources(self) -> list[_Source]:
        several = len(self.pipeline.sources) > 1
        return [self._source(source, f".{source.stream}" if several else "") for source in self.pipeline.sources]

    def _source(self, source: SourceOfEvents, ending: str) -> _Source:
        from ensue.runtimes.spark.connectors import accepted, rejected, with_watermark

        frame = self._read(source.table, source.value, streaming=self.pipeline.streaming)
        wrong = None
        if source.value is not None:
            if not isinstance(source.rejected, str):
                wrong = (f"rejected{ending}", source.rejected, rejected(frame, source.time.value))
            frame = accepted(frame, source.time.value, failing=source.rejected == "fail")
        if source.watermark is not None:
            column = source.watermark_column or source.time
            with failures_in(self.pipeline, Step(column)):
                frame = with_watermark(frame, column.value, source.watermark.value)
        late = None if source.late is None else (f"late{ending}", source.late)
        return _Source(_value(source.stream), frame, late, wrong)

    def _read(self, table: Table, value: FileValue | None = None, *, streaming: bool) -> Any:
        """Returns the DataFrame of a table. What fails is at the key that it is about."""
        from ensue.runtimes.spark.connectors import SourceOptions, parsed_values, read_frame, with_column

        own = self.pipeline
        reading = SourceOptions(table.format.value, _value(table.path), values_of(table.options), _value(table.schema))
        with failures_in(own, Step(table.path or table.format, schema=table.schema)):
            frame = read_frame(self.spark, reading, streaming=streaming)
        if value is not None:
            with failures_in(own, Step(value)):
                frame = parsed_values(frame, value.value)
        for name, expression in table.columns.items():
            with failures_in(own, Step(expression)):
                frame = with_column(frame, name, expression.value)
        return frame

    def _writing(self, sink: SparkSinkOf) -> Any:
        from ensue.runtimes.spark.connectors import SinkOptions

        return SinkOptions(
            sink.format.value, _value(sink.path), values_of(sink.options), sink.mode, self.pipeline.match_id
        )

    def _reading(self) -> dict[str, Any]:
        """Returns the arguments of `ensue.run`, `ensue.start` and `ensue.actions.act` that describe the events."""
        columns = reading_of(self.pipeline)
        tables = {name: self._read(table, streaming=False) for name, table in self.pipeline.tables.items()}
        return {
            "time": columns.time,
            **({} if columns.type is None else {"type": columns.type}),
            "end": columns.end,
            "order": columns.order,
            "limits": Limits(matches=self.pipeline.limit),
            "tables": tables or None,
        }

    def _receivers(self) -> dict[str, Any]:
        return {name: _receiver(sink) for name, sink in self.pipeline.actions.items()}

    def _delivery(self) -> Delivery:
        own = self.pipeline.delivery
        return Delivery(own.retries, own.backoff, own.patience, _value(own.dead_letters), _value(own.journal))

    def _courier(self, name: str, sink: WebhookSink) -> RowCourier:
        return RowCourier(name, _receiver(sink), self._delivery())


@dataclass(frozen=True, slots=True)
class _Source:
    """A source as it is read: its events, and the sinks of late and rejected rows with their names in the output."""

    stream: str | None
    events: Any
    late: tuple[str, Sink] | None
    rejected: tuple[str, Sink, Any] | None


@dataclass(frozen=True, slots=True)
class RowCourier:
    """Posts the rows of an output. The id of a match is the id of its delivery."""

    name: str
    receiver: Any
    delivery: Delivery

    def deliver(self, rows: pa.Table) -> Deliveries:
        calls = row_calls(rows, self.name)
        parameters = tuple(calls.column_names[2:])
        courier: Courier = courier_of([Route(self.name, parameters, self.receiver)], self.delivery)
        return courier.deliver([calls])


def row_calls(rows: pa.Table, name: str) -> pa.Table:
    """Returns rows with an id as calls. Columns with a reserved name get an underscore.

    >>> row_calls(pa.table({"match_id": ["8f"], "action": ["pay"]}), "late").to_pylist()
    [{'delivery_id': '8f', 'action': 'late', 'action_': 'pay'}]
    """
    columns = {ID: rows.column(MATCH_ID), ACTION: pa.array([name] * rows.num_rows, pa.string())}
    for column in rows.column_names[1:]:
        columns[f"{column}_" if column in RESERVED else column] = rows.column(column)
    return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _ConsoleRows:
    """Shows the rows of each micro-batch that has rows."""

    job: _Job
    name: str

    def __call__(self, rows: Any, batch: int) -> None:
        table = self.job._shown(rows.toArrow())
        if table.num_rows:
            self.job.show(self.name, table)


@dataclass(frozen=True, slots=True)
class _SinkOfOutput:
    """Writes the rows of each micro-batch, and remembers the error if that fails."""

    job: _Job
    step: Step
    sink: Callable[[Any, int], None]

    def __call__(self, rows: Any, batch: int) -> None:
        try:
            self.sink(rows, batch)
        except Exception as error:
            self.job.failed.append((self.step, error))
            raise


def _writing_to(name: str, sink: Sink) -> Step:
    match sink:
        case SparkSinkOf():
            return Step(sink.path or sink.format, name, sink)
        case WebhookSink():
            return Step(sink.url)
        case ConsoleSink():
            return Step()


def _deliver(courier: RowCourier, rows: Any) -> None:
    from ensue.runtimes.spark.connectors import identified

    courier.deliver(identified(rows).toArrow())


def _ignore(rows: Any, batch: int) -> None:
    """Discards the rows of a pattern without an output."""


def _wait(running: list[Any], stop: Callable[[], bool]) -> bool:
    """Waits until all streams have ended. Returns False if a request stopped it before."""
    while not stop():
        # Wait for each, so that the error of one stream is raised while the others are running.
        ended = [query.awaitTermination(PAUSE) for query in running]
        if all(ended):
            return True
    return False


def _receiver(sink: Sink) -> Any:
    match sink:
        case WebhookSink():
            return webhook(sink.url.value, headers=values_of(sink.headers), timeout=sink.timeout)
        case SparkSinkOf():
            options = values_of(sink.options)
            if sink.path is not None:
                options["path"] = sink.path.value
            return spark_sink(sink.format.value, mode=sink.mode, **options)
        case ConsoleSink():
            raise AssertionError("the definition does not allow `console` for actions")


def _value(given: FileValue | None) -> str | None:
    return None if given is None else given.value


def _sum(left: Deliveries | None, right: Deliveries | None) -> Deliveries | None:
    return left if right is None else right if left is None else left + right
