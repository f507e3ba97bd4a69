"""Counts which constraints the traces of a log obey, in one pass over the events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.engine.events import Request, key_column
from ensue.engine.keys import encode_columns
from ensue.engine.sources import EventSource, Report
from ensue.errors import LimitError
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import group_by_key
from ensue.kernels.traces import Matrix, count_pairs

MOST_STREAMS = 2_000
"""The maximum number of streams; their counts take 64 MB."""

KINDS = ("ENDS", "EXCLUSIVE", "PRIOR", "REQUIRE")
"""The kinds of constraints, in the order in which they are proposed."""


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """The number of traces in which streams occur together and in order; rows and columns are the places of `streams`.

    `together[a, b]` are the traces with both, `ordered[a, b]` those of them in which no `a` is later than a `b`.
    `together[a, a]` are the traces with `a`, `ordered[a, a]` those in which nothing is later than the first `a`.
    """

    streams: tuple[str, ...]
    together: Matrix
    ordered: Matrix

    def add(self, keys: Sequence[Sequence[pa.Array]], codes: Codes, firsts: Int64s, lasts: Int64s) -> int:
        """Adds all traces of a log, or of those keys that are nowhere else; returns the number of rows without a key.

        `keys[k][i]` is key column `k` of table `i`. A row means that a stream, by its place, occurs from `firsts` to
        `lasts`.
        """
        encoded, key_count = encode_columns(keys)
        of_rows = np.concatenate(encoded)
        order, offsets = group_by_key(of_rows, key_count)
        count_pairs(offsets, codes[order], firsts[order], lasts[order], self.together, self.ordered)
        return len(of_rows) - len(order)


def no_traces(streams: Collection[str]) -> TraceCounts:
    """Empty counts. Streams are sorted by name; an empty name is left out."""
    named = sorted({*streams} - {""})
    check_stream_count(len(named))
    shape = (len(named), len(named))
    return TraceCounts(tuple(named), np.zeros(shape, np.int64), np.zeros(shape, np.int64))


def check_stream_count(number: int) -> None:
    """Raises a LimitError if there are too many pairs of streams to count."""
    if number > MOST_STREAMS:
        raise LimitError(
            "too-many-streams",
            f"the log has more than {MOST_STREAMS:,} streams",
            "use a `type` column with fewer distinct values, such as an activity, or remove rows of rare streams",
        )


def count_traces(
    sources: Sequence[EventSource], partition_by: tuple[str, ...], time_type: pa.DataType, report: Report
) -> TraceCounts:
    """Counts the traces of tables. Rows without a time, a stream or a key are ignored and counted in the report."""
    named = [_streams_of_rows(source) for source in sources]
    counts = no_traces({name for names, _ in named for name in names})
    place = {name: number for number, name in enumerate(counts.streams)}
    used, codes = [], []
    for source, (names, own) in zip(sources, named, strict=True):
        # The last one is that of rows without a stream, whose code is -1.
        of_row = np.array([*(place.get(name, -1) for name in names), -1], np.int32)[own]
        report.null_types += int(np.count_nonzero((of_row < 0) & (own >= 0)))
        rows = np.flatnonzero(of_row >= 0 if source.valid is None else (of_row >= 0) & source.valid)
        if len(rows):
            used.append((source, rows))
            codes.append(of_row[rows])
    if not used:
        return counts
    request = Request(counts.streams, partition_by, time_type, counting=False)
    columns = [
        [key_column(source, name, request).take(pa.array(rows)) for source, rows in used] for name in partition_by
    ]
    times = np.concatenate([source.starts[rows] for source, rows in used])
    report.null_keys += counts.add(columns, np.concatenate(codes), times, times)
    return counts


def _streams_of_rows(source: EventSource) -> tuple[list[str], Codes]:
    """The streams of a table, and the stream of each row; -1 for none."""
    item = source.input
    if item.stream is not None:
        return [str(item.stream)], np.zeros(len(source.starts), np.int32)
    assert item.type is not None
    encoded = source.column(item.type).cast(pa.string()).dictionary_encode()
    # Before the names become Python's own: there may be as many as rows.
    check_stream_count(len(encoded.dictionary) - 1)
    codes: Codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes


def proposed_constraints(counts: TraceCounts, share: float, support: int, kinds: Collection[str]) -> pa.Table:
    """The constraints that hold in at least this share of the traces they apply to, if there are enough of these.

    They are ordered by kind, then by how often they hold, then by how often they apply, then by name.
    """
    found = [_CountedPairs.of(kind, counts).where(share, support) for kind in KINDS if kind in kinds]
    table = pa.concat_tables([part.table(counts.streams) for part in found])
    return table.combine_chunks()


@dataclass(frozen=True, slots=True)
class _CountedPairs:
    """Constraints of one kind; `second` is None for constraints on one stream."""

    kind: str
    first: Int64s
    second: Int64s | None
    support: Int64s
    holds: Int64s

    @staticmethod
    def of(kind: str, counts: TraceCounts) -> _CountedPairs:
        """Every constraint of a kind, with the number of traces that it applies to and of those that obey it."""
        together, ordered = counts.together, counts.ordered
        occurs = together.diagonal()
        number = len(counts.streams)
        if kind == "ENDS":
            return _CountedPairs(kind, np.arange(number), None, occurs, ordered.diagonal())
        if kind == "EXCLUSIVE":
            first, second = np.triu_indices(number, k=1)
            both = together[first, second]
            # All traces without the rarer stream obey it, however many there are.
            rarer = np.minimum(occurs[first], occurs[second])
            return _CountedPairs(kind, first, second, rarer, rarer - both)
        first, second = np.nonzero(~np.eye(number, dtype=bool))
        both = together[first, second]
        if kind == "PRIOR":
            return _CountedPairs(kind, first, second, both, ordered[first, second])
        return _CountedPairs(kind, first, second, occurs[first], both)

    @property
    def share(self) -> np.ndarray:
        return self.holds / np.maximum(self.support, 1)

    def where(self, share: float, support: int) -> _CountedPairs:
        """The proposed constraints, in order."""
        kept = np.flatnonzero((self.support >= support) & (self.share >= share))
        names = [self.first[kept]] if self.second is None else [self.second[kept], self.first[kept]]
        chosen = kept[np.lexsort([*names, -self.support[kept], -self.share[kept]])]
        second = None if self.second is None else self.second[chosen]
        return _CountedPairs(self.kind, self.first[chosen], second, self.support[chosen], self.holds[chosen])

    def table(self, streams: tuple[str, ...]) -> pa.Table:
        places = np.column_stack([self.first] if self.second is None else [self.first, self.second])
        names = pa.array(streams, pa.string()).take(pa.array(places.ravel()))
        offsets = np.arange(len(places) + 1, dtype=np.int32) * places.shape[1]
        return pa.table(
            {
                "kind": pa.repeat(self.kind, len(places)),
                "streams": pa.ListArray.from_arrays(offsets, names),
                "support": self.support,
                "holds": self.holds,
                "share": self.share,
            }
        )
