"""A pipeline on Spark: reads its sources, runs its program, writes what it finds, until it ends or is told to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from ensue.actions import act, spark_sink, webhook
from ensue.actions.calls import ACTION, ID, RESERVED
from ensue.actions.delivery import Courier, Deliveries, Route
from ensue.actions.options import courier_of
from ensue.api import run
from ensue.errors import CodedError
from ensue.pipelines.model import (
    ConsoleSink,
    Options,
    Pipeline,
    Sink,
    SourceOfEvents,
    SparkSinkOf,
    Table,
    WebhookSink,
)
from ensue.pipelines.variables import redact
from ensue.reports import HtmlReport, report
from ensue.streams import start

Show: TypeAlias = "Callable[[str, pa.Table], None]"
"""Shows rows of an output to whoever has started the pipeline."""

MATCH_ID = "match_id"
OFFSETS = frozenset({"startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp", "maxoffsetspertrigger"})
"""Options that say where a stream of Kafka begins; as a table, it is read from its beginning."""
PAUSE = 0.5
"""Seconds between two looks whether the pipeline shall stop."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did. `stopped` says that it was told to stop before its end; a stream goes on at the next run."""

    stopped: bool = False
    deliveries: Deliveries | None = None


def run_pipeline(
    pipeline: Pipeline, show: Show, *, stop: Callable[[], bool] = lambda: False, upgrade: bool = False
) -> Ran:
    """Runs a pipeline to its end, or until `stop` gives True. Values of variables are in no error that it raises."""
    with _session_of(pipeline) as spark:
        job = _Job(pipeline, spark, show)
        return job.stream(stop, upgrade) if pipeline.streaming else job.batch()


def report_pipeline(pipeline: Pipeline, *, title: str, most_keys: int) -> HtmlReport:
    """What the program of a pipeline finds in its sources as they are now; streams are read from their start.

    Nothing is written to its outputs, and its checkpoint stays as it is.
    """
    with _session_of(pipeline) as spark:
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
    """A report has no outputs."""


@contextmanager
def _session_of(pipeline: Pipeline) -> Iterator[Any]:
    """The Spark session that a pipeline wants; one that was there before stays. Errors show no secrets."""
    from ensue.runtimes.spark.pipelines import spark_errors
    from ensue.runtimes.spark.session import running_session, spark_session

    with _without_secrets(pipeline.used):
        was_there = running_session() is not None
        wanted = pipeline.session
        spark = spark_session(pipeline.name, master=wanted.master, memory=wanted.memory, config=_values(wanted.config))
        try:
            with spark_errors():
                yield spark
        finally:
            if not was_there:
                spark.stop()


@contextmanager
def _without_secrets(used: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except CodedError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        message = str(error).removeprefix(f"error[{error.code}]: ").removesuffix(hint)
        clean = redact(message, used), redact(error.hint, used)
        if clean == (message, error.hint):
            raise
        raise type(error)(error.code, *clean) from None


@dataclass(frozen=True, slots=True)
class _Job:
    pipeline: Pipeline
    spark: Any
    show: Show

    def batch(self) -> Ran:
        events, reading = self._events(), self._reading()
        total = None
        if self.pipeline.outputs:
            found = run(self.pipeline.program, events, match_id=self._needs_ids, **reading)
            try:
                for name, sink in self.pipeline.outputs.items():
                    total = _sum(total, self._write(name, sink, found[name]))
            finally:
                found.release()
        if self.pipeline.actions:
            own = self._delivery_options()
            total = _sum(total, act(self.pipeline.program, events, self._receivers(), **reading, **own))
        return Ran(deliveries=total)

    def report(self, title: str, most_keys: int) -> HtmlReport:
        return report(self._events(), self.pipeline.program, title=title, most_keys=most_keys, **self._reading())

    def _write(self, name: str, sink: Sink, rows: Any) -> Deliveries | None:
        from ensue.runtimes.spark.pipelines import write_frame

        match sink:
            case ConsoleSink():
                self.show(name, self._shown(rows.toArrow()))
            case SparkSinkOf():
                write_frame(rows, self._writing(sink))
            case WebhookSink():
                return self._courier(name, sink).deliver(rows.toArrow())
        return None

    def stream(self, stop: Callable[[], bool], upgrade: bool) -> Ran:
        events, reading = self._events(), self._reading()
        own, checkpoint = self.pipeline, str(self.pipeline.checkpoint)
        reading |= {"emit": own.emit or "complete", "tick": own.tick, "buckets": own.buckets, "upgrade": upgrade}
        reading |= {"available_now": True} if own.trigger in ("available-now", "once") else {"every": own.trigger}
        running = []
        try:
            if own.outputs:
                sinks = {name: self._stream_sink(name) for name in own.program.names}
                place = f"{checkpoint}/outputs"
                running.append(
                    start(own.program, events, to=sinks, checkpoint=place, match_id=self._needs_ids, **reading)
                )
            if own.actions:
                options = {**reading, **self._delivery_options(), "checkpoint": f"{checkpoint}/actions"}
                running.append(act(own.program, events, self._receivers(), **options))
            return Ran(stopped=not _wait(running, stop))
        finally:
            for query in running:
                query.stop()

    def _stream_sink(self, name: str) -> Callable[[Any, int], None]:
        from ensue.runtimes.spark.pipelines import MicroBatchSink

        sink = self.pipeline.outputs.get(name)
        match sink:
            case None:
                return _ignore
            case ConsoleSink():
                return _Shown(self, name)
            case SparkSinkOf():
                return MicroBatchSink(self._writing(sink))
            case WebhookSink():
                courier = self._courier(name, sink)
                return lambda rows, batch: _deliver(courier, rows)

    @property
    def _needs_ids(self) -> bool:
        """Webhooks and Kafka know a row by its id."""
        calls = (
            isinstance(sink, WebhookSink) or (isinstance(sink, SparkSinkOf) and sink.format.value == "kafka")
            for sink in self.pipeline.outputs.values()
        )
        return self.pipeline.match_id or any(calls)

    def _shown(self, rows: pa.Table) -> pa.Table:
        left_out = self._needs_ids and not self.pipeline.match_id
        return rows.drop_columns([MATCH_ID]) if left_out else rows

    def _events(self) -> Any:
        """One DataFrame, or one per stream."""
        frames = {source.stream: self._frame(place) for place, source in enumerate(self.pipeline.sources)}
        return frames.get(None) if None in frames else frames

    def _frame(self, place: int) -> Any:
        from ensue.runtimes.spark.pipelines import read_frame, with_watermark

        source, streaming = self.pipeline.sources[place], self.pipeline.streaming
        frame = read_frame(self.spark, self._reading_of(source.table, source.value), streaming=streaming)
        if source.watermark is None:
            return frame
        return with_watermark(frame, source.watermark_column or source.time, source.watermark)

    def _reading_of(self, table: Table, value: str | None = None) -> Any:
        from ensue.runtimes.spark.pipelines import Reading

        options, columns = _values(table.options), _values(table.columns)
        return Reading(table.format.value, table.path, options, table.schema, value, columns)

    def _writing(self, sink: SparkSinkOf) -> Any:
        from ensue.runtimes.spark.pipelines import Writing

        return Writing(sink.format.value, sink.path, _values(sink.options), sink.mode, self.pipeline.match_id)

    def _reading(self) -> dict[str, Any]:
        """What `ensue.run`, `ensue.start` and `ensue.act` are told about the events."""
        from ensue.runtimes.spark.pipelines import read_frame

        sources = self.pipeline.sources
        tables = {
            name: read_frame(self.spark, self._reading_of(table), streaming=False)
            for name, table in self.pipeline.tables.items()
        }
        common = {"limit": self.pipeline.limit, "tables": tables or None}
        if sources[0].stream is None:
            return {"time": sources[0].time, "type": sources[0].type, "end": sources[0].end, **common}
        ends = {source.stream: source.end for source in sources if source.end is not None}
        return {"time": {source.stream: source.time for source in sources}, "end": ends or None, **common}

    def _receivers(self) -> dict[str, Any]:
        return {name: _receiver(sink) for name, sink in self.pipeline.actions.items()}

    def _delivery_options(self) -> dict[str, Any]:
        own = self.pipeline.delivery
        return {
            "retries": own.retries,
            "backoff": own.backoff,
            "patience": own.patience,
            "dead_letters": own.dead_letters,
            "delivered": own.journal,
        }

    def _courier(self, name: str, sink: WebhookSink) -> RowCourier:
        return RowCourier(name, _receiver(sink), self._delivery_options())


@dataclass(frozen=True, slots=True)
class RowCourier:
    """Posts the rows of an output; the id of a match is that of its delivery."""

    name: str
    receiver: Any
    options: Mapping[str, Any]

    def deliver(self, rows: pa.Table) -> Deliveries:
        calls = row_calls(rows, self.name)
        parameters = tuple(calls.column_names[2:])
        courier: Courier = courier_of([Route(self.name, parameters, self.receiver)], **self.options)
        return courier.deliver([calls])


def row_calls(rows: pa.Table, name: str) -> pa.Table:
    """Rows with an id as calls. Columns that are called as those of a call get an underscore.

    >>> row_calls(pa.table({"match_id": ["8f"], "action": ["pay"]}), "late").to_pylist()
    [{'delivery_id': '8f', 'action': 'late', 'action_': 'pay'}]
    """
    columns = {ID: rows.column(MATCH_ID), ACTION: pa.array([name] * rows.num_rows, pa.string())}
    for column in rows.column_names[1:]:
        columns[f"{column}_" if column in RESERVED else column] = rows.column(column)
    return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Shows the rows of micro-batches that have some."""

    job: _Job
    name: str

    def __call__(self, rows: Any, batch: int) -> None:
        table = self.job._shown(rows.toArrow())
        if table.num_rows:
            self.job.show(self.name, table)


def _deliver(courier: RowCourier, rows: Any) -> None:
    courier.deliver(rows.toArrow())


def _ignore(rows: Any, batch: int) -> None:
    """The output of a pattern that the pipeline does not name."""


def _wait(running: list[Any], stop: Callable[[], bool]) -> bool:
    """Waits until all have ended; False if it was told to stop before."""
    while not stop():
        # Each is waited for, so that what ends one of them is raised although the others go on.
        ended = [query.wait(PAUSE) for query in running]
        if all(ended):
            return True
    return False


def _receiver(sink: Sink) -> Any:
    match sink:
        case WebhookSink():
            return webhook(sink.url.value, headers=_values(sink.headers), timeout=sink.timeout)
        case SparkSinkOf():
            options = _values(sink.options)
            if sink.path is not None:
                options["path"] = sink.path
            return spark_sink(sink.format.value, mode=sink.mode, **options)
        case ConsoleSink():
            raise AssertionError("the definition lets no action go to the console")


def _values(options: Options) -> dict[str, str]:
    return {name: given.value for name, given in options.items()}


def _sum(left: Deliveries | None, right: Deliveries | None) -> Deliveries | None:
    return left if right is None else right if left is None else left + right
