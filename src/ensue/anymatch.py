"""How probable it is that anything happened: `ensue.any_match`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Loaded, load_tables, warn_set_aside
from ensue.engine.anymatch import SAMPLES
from ensue.engine.anymatch import any_match as found_any
from ensue.engine.diagrams import MOST_NODES
from ensue.engine.output import key_column_of
from ensue.engine.rows import MatchChunk
from ensue.engine.stage import Member
from ensue.engine.traces import Watched
from ensue.errors import LimitError, SchemaError, citing
from ensue.graph.bounds import TimeScale
from ensue.lower.phases import Lowered
from ensue.nodes.patterns import Events
from ensue.plan.plans import Options
from ensue.plan.program_plans import ColumnNames, Columns
from ensue.programs import QueryLike, single_statement
from ensue.python.literals import WindowLike
from ensue.python.literals import window as window_of
from ensue.runtimes.fixed import fixed_tables
from ensue.runtimes.tables import are_frames


def any_match(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    window: WindowLike | None = None,
    most_nodes: int = MOST_NODES,
    samples: int = SAMPLES,
    tables: Mapping[str, Any] | None = None,
) -> Any:
    """How probable it is that a query has at least one match: a row for each key that may have one.

    Events that several matches share are counted once. With `window`, a length of time, there is a row for each key and
    each such stretch of time in which a match may end, counted from the beginning of time (1970, or 0).

    `exact` says whether the probability is exact. Where matches depend on each other in so many ways that this would
    take a diagram of more than `most_nodes`, it is estimated from `samples` worlds drawn at random, and with a
    confidence of 99.9 percent it is off by at most `error`.

    >>> table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"], "p": [0.5, 0.5, 0.5]})
    >>> query = "PATTERN SEQ(A a, B b) WITHIN 5"
    >>> any_match(table, query, time="t", type="type", probability="p").to_pylist()
    [{'probability': 0.375, 'exact': True, 'error': 0.0}]
    """
    _check_numbers(most_nodes, samples)
    statements = single_statement(query)
    columns = Columns(time, type, end, probability, alternatives)
    if are_frames(events):
        from ensue.runtimes.spark.anymatch import any_match_of_frames

        def in_process(part: Any) -> pa.Table:
            return _any_of_tables(part, statements, columns, window, most_nodes, samples, tables)[1]

        return any_match_of_frames(events, statements, columns, in_process)
    kind, table = _any_of_tables(events, statements, columns, window, most_nodes, samples, tables)
    return kind.from_arrow(table)


def _check_numbers(most_nodes: object, samples: object) -> None:
    for role, given in (("most_nodes", most_nodes), ("samples", samples)):
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise LimitError("limit-type", f"`{role}` is a number, at least 1, not {given!r}")


def _any_of_tables(
    events: Any,
    statements: Lowered,
    columns: Columns,
    window: WindowLike | None,
    most_nodes: int,
    samples: int,
    tables: Mapping[str, Any] | None,
) -> tuple[Any, pa.Table]:
    options = Options(lineage=True, limit=None)
    loaded = load_tables(events, statements, columns, False, fixed_tables(tables, statements), options)
    ticks = None if window is None else _ticks(window, loaded)
    step = loaded.run(_chunks)
    warn_set_aside(step.reports[0])
    return loaded.kind, _table(step.outputs[0], loaded, ticks, most_nodes, samples)


def _chunks(member: Member, watched: Watched, chunks: Iterator[MatchChunk], options: Options) -> list[MatchChunk]:
    with citing(member.plan.source):
        return list(chunks)


def _ticks(window: WindowLike, loaded: Loaded) -> int:
    size, unit = window_of(window), loaded.planned.plans[0].catalog.unit
    ticks = None if isinstance(size, Events) else TimeScale(unit).ticks(size)
    if ticks is None or ticks < 1:
        raise SchemaError("window-length", f"`window` is a length of time, not {window!r}", 'pass "1 hour", say')
    return ticks


def _table(chunks: Sequence[MatchChunk], loaded: Loaded, ticks: int | None, most_nodes: int, samples: int) -> pa.Table:
    plan = loaded.planned.plans[0]
    keys = [chunk.space.keys(chunk.rows).astype(np.int64) for chunk in chunks]
    windows = [
        np.zeros(len(own), np.int64) if ticks is None else chunk.ends // ticks
        for chunk, own in zip(chunks, keys, strict=True)
    ]
    pairs = np.concatenate(
        [np.empty((0, 2), np.int64), *(np.stack(both, axis=1) for both in zip(keys, windows, strict=True))]
    )
    different, first, owner = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    owners = np.split(owner.ravel(), np.cumsum([len(own) for own in keys])[:-1]) if chunks else []
    found = found_any(chunks, owners, most_nodes, samples)
    names = plan.query.partition_by
    arrays = {name: _key_values(chunks, name, first, loaded) for name in names}
    if ticks is not None:
        begins = different[:, 1] * ticks
        arrays["window_start"] = pa.array(begins).view(plan.catalog.time_type)
        arrays["window_end"] = pa.array(begins + ticks).view(plan.catalog.time_type)
    probability, error = found.probability, found.error
    if not names and ticks is None and not len(probability):
        probability, error = np.zeros(1), np.zeros(1)
    return pa.table({**arrays, "probability": probability, "exact": error == 0, "error": error})


def _key_values(chunks: Sequence[MatchChunk], name: str, rows: np.ndarray, loaded: Loaded) -> pa.Array:
    plan = loaded.planned.plans[0]
    if not chunks:
        schema = loaded.planned.inputs[0].table.schema
        return pa.nulls(0, schema.field(name).type if name in schema.names else plan.catalog.time_type)
    parts = [key_column_of(chunk, name, plan.catalog) for chunk in chunks]
    return pa.chunked_array(parts).combine_chunks().take(pa.array(rows))


__all__ = ["any_match"]
