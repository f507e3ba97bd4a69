"""Logs to mine, and an obvious answer: trace by trace, constraint by constraint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations

import pyarrow as pa
from hypothesis import strategies as st

from inside import Constraint, Ends, Exclusive, Prior, Require

Row = tuple[int | None, str | None, int | None]
"""Key, stream and time of an event."""

Trace = list[tuple[str, int]]
"""The events of a trace: stream and time, in any order."""

Found = tuple[str, tuple[str, ...], int, int, float]
"""Kind, streams, support, holds and share of a constraint."""

COLUMNS = {"time": "t", "type": "type", "partition_by": "id"}
STREAMS = ("A", "B", "C", "order line")


def rows(complete: bool = False, least: int = 0) -> st.SearchStrategy[list[Row]]:
    """Few keys, streams and times, so that there is much in common."""
    rarely = st.none() if not complete else st.nothing()
    return st.lists(
        st.tuples(
            st.integers(0, 5) | rarely,
            st.sampled_from([*STREAMS, *([] if complete else [""])]) | rarely,
            st.integers(-3, 3) | rarely,
        ),
        min_size=least,
        max_size=25,
    )


def table(log: Sequence[Row]) -> pa.Table:
    keys, streams, times = zip(*log, strict=True) if log else ((), (), ())
    return pa.table(
        {"id": pa.array(keys, pa.int64()), "type": pa.array(streams, pa.string()), "t": pa.array(times, pa.int64())}
    )


def traces(log: Sequence[Row]) -> list[Trace]:
    found: dict[int, Trace] = defaultdict(list)
    for key, stream, time in log:
        if key is not None and stream and time is not None:
            found[key].append((stream, time))
    return list(found.values())


def times_of(stream: str, trace: Trace) -> list[int]:
    return [time for name, time in trace if name == stream]


def relevant(constraint: Constraint, log: Sequence[Trace]) -> list[Trace]:
    """The traces that a constraint is judged by, as docs/constraints.md defines them."""
    match constraint:
        case Prior(earlier, later):
            return [trace for trace in log if times_of(earlier, trace) and times_of(later, trace)]
        case Exclusive((a, b)):
            with_a, with_b = ([trace for trace in log if times_of(stream, trace)] for stream in (a, b))
            return with_a if len(with_a) < len(with_b) else with_b
        case Require(stream, _) | Ends((stream,)):
            return [trace for trace in log if times_of(stream, trace)]
    raise AssertionError(constraint)


def is_lawful(constraint: Constraint, trace: Trace) -> bool:
    """Section 9 of the semantics, word by word."""
    present = {stream for stream, _ in trace}
    match constraint:
        case Prior(earlier, later):
            return not any(a > b for a in times_of(earlier, trace) for b in times_of(later, trace))
        case Exclusive(streams):
            return len(present & {*streams}) <= 1
        case Require(stream, required):
            return stream not in present or required in present
        case Ends(streams):
            return not any(after > end for stream in streams for end in times_of(stream, trace) for _, after in trace)
    raise AssertionError(constraint)


def candidates(log: Sequence[Trace]) -> Iterator[tuple[str, Constraint]]:
    streams = sorted({stream for trace in log for stream, _ in trace})
    for stream in streams:
        yield "ENDS", Ends((stream,))
    for a, b in permutations(streams, 2):
        if a < b:
            yield "EXCLUSIVE", Exclusive((a, b))
        yield "PRIOR", Prior(a, b)
        yield "REQUIRE", Require(a, b)


def expected(log: Sequence[Row], share: float = 1.0, support: int = 1) -> list[Found]:
    """What a proposal has to say, in its order."""
    found: list[Found] = []
    for kind, constraint in candidates(traces(log)):
        about = relevant(constraint, traces(log))
        holds = sum(is_lawful(constraint, trace) for trace in about)
        if len(about) >= support and holds / max(len(about), 1) >= share:
            found.append((kind, constraint.streams, len(about), holds, holds / len(about)))
    return sorted(found, key=lambda row: (row[0], -row[4], -row[2], row[1]))
