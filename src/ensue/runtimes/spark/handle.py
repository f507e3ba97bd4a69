"""Running streams: start queries, write the results of each micro-batch to sinks, show progress."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from html import escape
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from ensue.engine.snapshot import functions_called
from ensue.engine.sources import UNORDERED, Report, Tie, notice_of_ties
from ensue.errors import EnsueNotice, counted, warn
from ensue.runtimes.spark.batch import all_patterns, of_patterns
from ensue.runtimes.spark.bucket import BucketTask
from ensue.runtimes.spark.failures import WithoutTraces
from ensue.runtimes.spark.manifest import Manifest, manifest_of, read_manifests, succeed, write_manifests
from ensue.runtimes.spark.stream import StreamPlan, matches_in, unpacked
from ensue.runtimes.tables import together_schema

# --- progress line on stderr

INTERVAL = 0.5
"""Seconds between updates of the progress line."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Total counts over all micro-batches so far."""

    batches: int = 0
    rows: int = 0
    matches: int = 0
    late: int = 0
    rate: float = 0.0
    watermark: str = ""
    ties: int = 0
    labelled: Mapping[str, int] = field(default_factory=dict)
    """The numbers of ties by their labels."""

    def line(self) -> str:
        """Format the totals in one line.

        >>> Totals(batches=3, rows=12000, matches=7, late=1, rate=4000.0, watermark="2024-01-31 12:00:00").line()
        '3 micro-batches, 12,000 rows, 7 matches, 1 late row, 4,000 rows/s, watermark 2024-01-31 12:00:00'
        """
        parts = [
            counted(self.batches, "micro-batch", "micro-batches"),
            _many(self.rows, "row", "rows"),
            _many(self.matches, "match", "matches"),
            *([_many(self.late, "late row", "late rows")] if self.late else []),
            *([_many(self.ties, "tie", "ties")] if self.ties else []),
            *([f"{self.rate:,.0f} rows/s"] if self.rate else []),
            *([f"watermark {self.watermark}"] if self.watermark else []),
        ]
        return ", ".join(parts)


KINDS = ("matches", "timed_out", "late", "ties")
"""The counts that every stream has; all others are numbers of ties by their labels."""


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


class Progress:
    """Adds up the progress of queries and counts each micro-batch once. Keeps only the newest report of each run."""

    def __init__(self) -> None:
        self._before = Totals()
        self._newest: dict[str, Mapping[str, Any]] = {}

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add the reports of a run in order. Spark may report a micro-batch again with higher counts."""
        for report in reports:
            known = self._newest.get(str(report["runId"]))
            if known is not None and int(report["batchId"]) < int(known["batchId"]):
                continue
            if known is not None and int(report["batchId"]) > int(known["batchId"]):
                self._before = _with(self._before, known)
            self._newest[str(report["runId"])] = report

    def totals(self) -> Totals:
        return reduce(_with, self._newest.values(), self._before)


def _with(totals: Totals, report: Mapping[str, Any]) -> Totals:
    """Add one micro-batch to the totals."""
    counts = _counts(report)
    labels = [name for name in counts if name not in KINDS and name not in totals.labelled]
    reached = (report.get("eventTime") or {}).get("watermark") or ""
    shown = "" if reached.startswith("1970-01-01T00:00:00") else reached.removesuffix(".000Z").replace("T", " ")
    return Totals(
        totals.batches + 1,
        # Spark Connect only fills these numbers for sources.
        totals.rows + sum(int(source["numInputRows"]) for source in report["sources"]),
        totals.matches + int(counts.get("matches", 0)),
        totals.late + int(counts.get("late", 0)),
        sum(float(source["processedRowsPerSecond"] or 0.0) for source in report["sources"]),
        max(totals.watermark, shown),
        totals.ties + int(counts.get("ties", 0)),
        {name: totals.labelled.get(name, 0) + int(counts.get(name, 0)) for name in (*totals.labelled, *labels)},
    )


def _counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a micro-batch by name; Spark Connect gives the names apart from the values."""
    row = (report.get("observedMetrics") or {}).get("ensue")
    if row is None:
        return {}
    found = row.asDict()
    if "schema" not in found:
        return dict(found)
    return dict(zip((field["name"] for field in found["schema"]["fields"]), found["values"], strict=True))


class TieNotice:
    """What to say about ties, each once; `ties` are those that the queries may have."""

    def __init__(self, ties: Iterable[Tie] = ()) -> None:
        self.ties = tuple(ties)
        self._told: set[Tie] = set()
        self._told_sum = False
        self._lock = threading.Lock()

    def words(self, totals: Totals) -> str:
        """Return what has not been said before; "" if there is nothing."""
        with self._lock:
            found = Counter({tie: count for tie in self.ties if (count := totals.labelled.get(tie.label, 0))})
            words = Report(matches=totals.matches, ties=found).ties_in_words(self._told)
            self._told |= {*found}
            if totals.ties and not found and not self._told_sum:
                self._told_sum = True
                return f"{_many(totals.ties, 'result depends', 'results depend')} {UNORDERED}"
            return notice_of_ties(words) if words else ""


class StatusLine:
    """Shows the totals of queries in one line and updates it until the queries end. Ties are said once, above it."""

    def __init__(
        self, queries: Sequence[StreamingQuery], console: Console | None = None, notice: TieNotice | None = None
    ) -> None:
        self._queries = queries
        self._notice = notice or TieNotice()
        self._console = console or Console(stderr=True)
        self._progress = Progress()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="ensue-status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=5)

    def _show(self) -> None:
        with self._console.status("waiting for the first micro-batch") as status:
            while not self._ended.wait(INTERVAL) and any(query.isActive for query in self._queries):
                self._read()
                if self._progress.totals().batches:
                    status.update(self._progress.totals().line())
        self._read()
        self._console.print(self._progress.totals().line(), highlight=False)

    def _read(self) -> None:
        for query in self._queries:
            self._progress.add(query.recentProgress)
        if words := self._notice.words(self._progress.totals()):
            self._console.print(words, highlight=False, markup=False)


# --- handle of a running stream

TURN: Any = 0.2
"""Seconds to wait for one stream before checking the next; Spark accepts fractions, whatever its types say."""

BETWEEN_NOTICES = 10.0
"""Seconds between two searches for new ties while waiting for the end of a stream."""

Sink: TypeAlias = "str | Callable[[DataFrame, int], None]"
"""Where rows go: a folder of Parquet files, or a function of the rows of a micro-batch and its number."""


@dataclass(frozen=True, slots=True)
class Target:
    """A sink and the outputs it receives, all with the same columns; `names` are patterns that share one table."""

    sink: Sink
    numbers: tuple[int, ...]
    names: tuple[str, ...] = ()


def targets_of(
    sinks: Sequence[tuple[Sink, tuple[int, ...]]], one_place: Sink | None, results: Mapping[int, str]
) -> tuple[Target, ...]:
    """Return the targets of the sinks; if there is one place for all results, it receives all named results."""
    targets = [Target(sink, numbers) for sink, numbers in sinks]
    if one_place is None or not results:
        return tuple(targets)
    others = [target for target in targets if target.numbers[0] not in results]
    return Target(one_place, tuple(results), tuple(results.values())), *others


@dataclass(frozen=True, slots=True)
class TargetWriter:
    """Writes the outputs of each micro-batch to their sinks."""

    task: BucketTask
    targets: tuple[Target, ...]

    def __call__(self, found: DataFrame, batch: int) -> None:
        kept = found.persist()
        matches = matches_in(kept, self.task)
        if sum(target.numbers[0] < len(self.task.plans) for target in self.targets) > 1:
            matches = matches.persist()
        try:
            filled = {row["output"] for row in kept.select("output").collect()}
            for target in self.targets:
                rows = self._rows(target, kept, matches)
                if callable(target.sink):
                    target.sink(rows, batch)
                elif batch == 0 or filled.intersection(target.numbers):
                    write_folder(rows, batch, target.sink)
        finally:
            matches.unpersist()
            kept.unpersist()

    def _rows(self, target: Target, kept: DataFrame, matches: DataFrame) -> DataFrame:
        task, number = self.task, target.numbers[0]
        if number >= len(task.plans):
            return unpacked(kept, target.numbers, task.schema_of(number))
        if target.names:
            own = [task.matches[place] for place in target.numbers]
            names = dict(zip(target.numbers, target.names, strict=True))
            return all_patterns(matches, task.carrier, names, own, together_schema(target.names, own))
        if len(task.plans) == 1:
            return matches
        return of_patterns(matches, task.carrier, target.numbers, task.matches[number].names)


def write_folder(rows: DataFrame, batch: int, folder: str) -> None:
    """Write a micro-batch to its own folder, so that a retry overwrites the first attempt."""
    rows.write.mode("overwrite").parquet(f"{folder}/batch={batch}")


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """Queries with the same keys, which run on one stateful stream, and the targets of its outputs."""

    plan: StreamPlan
    targets: tuple[Target, ...]

    @property
    def folder(self) -> str:
        """The folder of this stream in the checkpoint; its name contains the keys."""
        return folder_of(self.plan.task.keys)


def folder_of(keys: Sequence[str]) -> str:
    return "by-" + "-".join(quote(key, safe="") for key in keys) if keys else "all"


def start_groups(
    spark: SparkSession,
    groups: Sequence[StreamGroup],
    checkpoint: str,
    trigger: Mapping[str, Any],
    upgrade: bool,
    status: bool | None,
) -> StreamHandle:
    """Check that the checkpoint fits the queries, and start them."""
    checkpoint = checkpoint.rstrip("/")
    known = read_manifests(spark, checkpoint)
    manifests = [_manifest(group, known, upgrade) for group in groups]
    changed = [manifest for manifest in manifests if known.get(manifest.keys) != manifest]
    if changed:
        write_manifests(spark, checkpoint, changed, time.time_ns())
    queries = [
        _start(_with_predecessors(group, manifest), f"{checkpoint}/{group.folder}", trigger)
        for group, manifest in zip(groups, manifests, strict=True)
    ]
    functions: dict[str, object] = {}
    for task in (group.plan.task for group in groups):
        functions |= functions_called(task.plans, task.derivations, task.inputs)
    ties = [tie for group in groups for tie in group.plan.task.ties]
    return StreamHandle(spark, checkpoint, tuple(queries), status, ties, functions)


def _manifest(group: StreamGroup, known: Mapping[tuple[str, ...], Manifest], upgrade: bool) -> Manifest:
    plan = group.plan
    items = [entry.item for entry in plan.inputs]
    joined = () if plan.joined is None else plan.joined.described
    manifest = manifest_of(plan.task, items, plan.buckets, joined)
    before = known.get(manifest.keys)
    return manifest if before is None else succeed(before, manifest, plan.task.plans, items, upgrade)


def _with_predecessors(group: StreamGroup, manifest: Manifest) -> StreamGroup:
    task = replace(group.plan.task, predecessors=frozenset(manifest.predecessors))
    return replace(group, plan=replace(group.plan, task=task))


def _start(group: StreamGroup, checkpoint: str, trigger: Mapping[str, Any]) -> StreamingQuery:
    found = group.plan.counted(group.plan.found())
    write = WithoutTraces(TargetWriter(group.plan.task, group.targets))
    writer = found.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


class StreamHandle:
    """The running stream of `ensue.start`. It has the methods and properties of Spark's `StreamingQuery`.

    Ensue runs one Spark query for each set of partition keys; `queries` are Spark's own handles. As a context manager,
    it stops the stream at the end of the block.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        queries: tuple[StreamingQuery, ...],
        status: bool | None,
        ties: Iterable[Tie] = (),
        functions: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.checkpointLocation = checkpoint
        """The folder that the stream was started with."""
        self.queries = queries
        """Spark's own handles, one for each set of partition keys."""
        self._spark = spark
        self._functions = functions
        self._line: StatusLine | None = None
        self._notice = TieNotice(ties)
        if sys.stderr.isatty() if status is None else status:
            self._line = StatusLine(queries, notice=self._notice)
            self._line.start()

    @property
    def name(self) -> str | None:
        """The name of the query; None if it has no name or there are several."""
        return self.queries[0].name if len(self.queries) == 1 else None

    @property
    def id(self) -> str:
        """Spark's id of the query, the same after a restart; of several queries, separated by commas."""
        return ",".join(str(query.id) for query in self.queries)

    @property
    def runId(self) -> str:
        """Spark's id of this run; of several queries, separated by commas."""
        return ",".join(str(query.runId) for query in self.queries)

    @property
    def isActive(self) -> bool:
        """Whether a query is running."""
        return any(query.isActive for query in self.queries)

    @property
    def status(self) -> dict[str, Any]:
        """The current status, as Spark reports it: `message`, `isDataAvailable` and `isTriggerActive`.

        Of several queries, the message has that of each, and the flags say whether any of them is true.
        """
        found = [query.status for query in self.queries]
        messages = dict.fromkeys(str(one["message"]) for one in found)
        flags = {name: any(one[name] for one in found) for name in ("isDataAvailable", "isTriggerActive")}
        return {"message": "; ".join(messages), **flags}

    @property
    def lastProgress(self) -> Any:
        """Spark's newest progress report of any query; None before the first."""
        return next(reversed(self.recentProgress), None)

    @property
    def recentProgress(self) -> list[Any]:
        """Spark's recent progress reports of all queries, ordered by time."""
        self._tell_ties()
        reports = [report for query in self.queries for report in query.recentProgress]
        return sorted(reports, key=lambda report: str(report["timestamp"]))

    def exception(self) -> Any:
        """The exception that ended a query, or None."""
        return next((error for query in self.queries if (error := query.exception()) is not None), None)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Waits until the stream has ended, for at most `timeout` seconds. Returns whether it has ended.

        Raises the exception that ended a query, even if others are still running.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting, told = list(self.queries), time.monotonic()
        while waiting:
            # Wait for each in turn, so that the exception of one query is raised while the others still run.
            waiting = [query for query in waiting if not query.awaitTermination(TURN)]
            if time.monotonic() >= told + BETWEEN_NOTICES:
                self._tell_ties()
                told = time.monotonic()
            if waiting and deadline is not None and time.monotonic() >= deadline:
                self._tell_ties()
                return False
        self._end_line()
        self._tell_ties()
        return True

    def processAllAvailable(self) -> None:
        """Waits until all rows that are available now have been processed. For tests."""
        for query in self.queries:
            query.processAllAvailable()
        self._tell_ties()

    def stop(self) -> None:
        """Stops the stream. `ensue.start` with the same `checkpointLocation` resumes it."""
        for query in self.queries:
            query.stop()
        self._end_line()
        self._tell_ties()

    def state(self) -> DataFrame:
        """Return the kept events per key and what each key waits for; see `ensue.stream_state`."""
        from ensue.runtimes.spark.state import read_state_of

        return read_state_of(self._spark, self.checkpointLocation, self._functions)

    def _totals(self) -> Totals:
        progress = Progress()
        for query in self.queries:
            progress.add(query.recentProgress)
        return progress.totals()

    def _tell_ties(self) -> None:
        """Emit a notice about ties, unless the status line has said it."""
        if self._notice.ties and (words := self._notice.words(self._totals())):
            warn(words, EnsueNotice)

    def _condition(self) -> str:
        if self.isActive:
            return "running"
        return "stopped" if self.exception() is None else "failed"

    def _end_line(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None

    def __repr__(self) -> str:
        queries = counted(len(self.queries), "query", "queries")
        recent = self._totals().line()
        return (
            f"<StreamHandle: {self._condition()}, {queries}, {recent}, checkpointLocation={self.checkpointLocation!r}>"
        )

    def _repr_html_(self) -> str:
        """The state of the stream as a table, for a notebook."""
        totals, error = self._totals(), self.exception()
        rows = {
            "stream": self._condition(),
            "status": self.status["message"],
            "recent micro-batches": f"{totals.batches:,}",
            "rows": f"{totals.rows:,}",
            "matches": f"{totals.matches:,}",
            "late rows": f"{totals.late:,}",
            "ties": f"{totals.ties:,}" if totals.ties else "",
            "watermark": totals.watermark,
            "checkpointLocation": self.checkpointLocation,
            "exception": "" if error is None else str(error).partition("\n")[0],
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items() if text)
        return f"<table>{cells}</table>"

    def __enter__(self) -> StreamHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
