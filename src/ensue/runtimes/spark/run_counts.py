"""What the tasks of a batch count, sent to the driver by an accumulator: matches, and ties that matter."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from ensue.engine.sources import Report, Tie
from ensue.errors import EnsueNotice, user_place, warn

PAUSE = 0.1
"""Seconds between two looks at the running jobs."""

Counts = dict[int, tuple[tuple[int, Counter[Tie]], ...]]
"""For each partition, the number of matches and the ties of each query. Another action computes the same again, and
so does a task that is repeated; both replace what is known of a partition."""


class LatestCounts(AccumulatorParam[Counts]):
    """Adds the counts of partitions on the driver, and says that there are new ones."""

    def __init__(self, changed: Callable[[], None] | None = None) -> None:
        self._changed = changed

    def __reduce__(self) -> tuple[type[LatestCounts], tuple[()]]:
        return LatestCounts, ()

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802 (Spark's word)
        known = {**value1, **value2}
        if self._changed is not None and any(ties for of_queries in value2.values() for _, ties in of_queries):
            self._changed()
        return known


class RunCounts:
    """The counts of some queries that run together, and the notice about ties, which is given once.

    Spark does not tell Python when an action ends. Counts arrive while it runs; a thread that exists only if there are
    ties waits for the end of the jobs that run then, and gives the notice. A program that ends waits for it.
    """

    def __init__(self, context: SparkContext, queries: int) -> None:
        self._context, self._queries, self._place = context, queries, user_place()
        self._told: set[Tie] = set()
        self._teller: threading.Thread | None = None
        self.accumulator: Accumulator[Counts] = context.accumulator({}, LatestCounts(self._changed))

    def reports(self) -> list[Report]:
        """The matches and ties of each query in the partitions that were computed; waits for the notice about them."""
        if self._teller is not None:
            self._teller.join()
        return self._known()

    def _known(self) -> list[Report]:
        reports = [Report() for _ in range(self._queries)]
        for of_queries in list(self.accumulator.value.values()):
            for report, (matches, ties) in zip(reports, of_queries, strict=True):
                report.matches += matches
                report.ties.update(ties)
        return reports

    def _changed(self) -> None:
        if self._teller is None or not self._teller.is_alive():
            self._teller = threading.Thread(target=self._tell, name="ensue-ties")
            self._teller.start()

    def _tell(self) -> None:
        time.sleep(PAUSE)
        running = self._running()
        while running & self._running():
            time.sleep(PAUSE)
        for report in self._known():
            for words in report.tie_words(self._told):
                warn(words, EnsueNotice, self._place)
            self._told |= {*report.ties}

    def _running(self) -> set[int]:
        try:
            return {*self._context.statusTracker().getActiveJobsIds()}
        except (Py4JError, AttributeError):
            # The context has been stopped.
            return set()


def counts_for(session: SparkSession, queries: int) -> RunCounts | None:
    """Counts for a batch of this session; None with Spark Connect, which has no accumulators."""
    try:
        return RunCounts(session.sparkContext, queries)
    except PySparkAttributeError:
        return None


def add_counts(accumulator: Accumulator[Counts], reports: Sequence[Report]) -> None:
    """Sends the counts of this task to the driver."""
    task: Any = TaskContext.get()
    accumulator.add({task.partitionId(): tuple((report.matches, report.ties) for report in reports)})
