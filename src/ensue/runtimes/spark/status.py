"""A live line on stderr about streams that run."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from ensue.errors import counted

INTERVAL = 0.5
"""Seconds between two looks at the progress."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What streams have done so far."""

    batches: int = 0
    rows: int = 0
    matches: int = 0
    late: int = 0
    rate: float = 0.0
    watermark: str = ""

    def line(self) -> str:
        """The totals in one line.

        >>> Totals(batches=3, rows=12000, matches=7, late=1, rate=4000.0, watermark="2024-01-31 12:00:00").line()
        '3 micro-batches, 12,000 rows, 7 matches, 1 late row, 4,000 rows/s, watermark 2024-01-31 12:00:00'
        """
        parts = [
            counted(self.batches, "micro-batch", "micro-batches"),
            _many(self.rows, "row", "rows"),
            _many(self.matches, "match", "matches"),
            *([_many(self.late, "late row", "late rows")] if self.late else []),
            *([f"{self.rate:,.0f} rows/s"] if self.rate else []),
            *([f"watermark {self.watermark}"] if self.watermark else []),
        ]
        return ", ".join(parts)


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


class Progress:
    """Adds up the progress of queries, each micro-batch once. Of each run only the newest report is kept."""

    def __init__(self) -> None:
        self._before = Totals()
        self._newest: dict[str, Mapping[str, Any]] = {}

    def add(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Takes reports of a run in their order. A micro-batch may be reported again, when it has become more."""
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
    """The totals with one more micro-batch, which says how fast it went."""
    counts = _counts(report)
    reached = (report.get("eventTime") or {}).get("watermark") or ""
    shown = "" if reached.startswith("1970-01-01T00:00:00") else reached.removesuffix(".000Z").replace("T", " ")
    return Totals(
        totals.batches + 1,
        # Only sources have the numbers on Spark Connect.
        totals.rows + sum(int(source["numInputRows"]) for source in report["sources"]),
        totals.matches + int(counts.get("matches", 0)),
        totals.late + int(counts.get("late", 0)),
        sum(float(source["processedRowsPerSecond"] or 0.0) for source in report["sources"]),
        max(totals.watermark, shown),
    )


def _counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a micro-batch has counted, by name; Spark Connect gives the names apart from the values."""
    row = (report.get("observedMetrics") or {}).get("ensue")
    if row is None:
        return {}
    found = row.asDict()
    if "schema" not in found:
        return dict(found)
    return dict(zip((field["name"] for field in found["schema"]["fields"]), found["values"], strict=True))


class StatusLine:
    """Shows the totals of queries in one line that is written anew until they end; then it stays."""

    def __init__(self, queries: Sequence[StreamingQuery], console: Console | None = None) -> None:
        self._queries = queries
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
