"""Counting the contexts of events, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ensue.engine.refinement import Reading, context_of, count_contexts, previous_labels, text_of
from ensue.errors import LimitError
from ensue.runtimes.tables import TableKind, are_frames, kind_of_table, without_views


def is_frame(events: Any) -> bool:
    """Whether this is one Spark DataFrame."""
    return not isinstance(events, Mapping) and are_frames(events)


def opened(events: Any) -> tuple[TableKind | None, Any]:
    """A DataFrame as it is, without a kind, or any other table as Arrow, with its kind."""
    if is_frame(events):
        return None, events
    kind = kind_of_table(events)
    return kind, without_views(kind.to_arrow(events))


def schema_of(events: Any) -> pa.Schema:
    """The columns of an opened table or DataFrame."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import columns_of

        return columns_of(events).schema
    return events.schema


def count_events(events: Any, reading: Reading, limit: int) -> pa.Table:
    """How often each context came with each label, for those of an opened table or DataFrame whose label is known."""
    if is_frame(events):
        from ensue.runtimes.spark.refinement_tasks import count_frame

        counts = count_frame(events, reading, limit)
    else:
        counts = _count_table(events, reading)
    _check_size(counts, limit)
    return counts


def _check_size(counts: pa.Table, limit: int) -> None:
    """A distribution over the labels for each context has to fit into memory."""
    contexts = counts.group_by(counts.column_names[:-2]).aggregate([]).num_rows
    labels = len(counts.column("label").unique())
    if contexts * labels > limit:
        raise LimitError(
            "refinement-size",
            f"at least {contexts:,} contexts times {labels:,} labels are more than the limit of {limit:,}",
            "name fewer features, or such with fewer values; or set a larger `limit=`",
        )


def _count_table(table: pa.Table, reading: Reading) -> pa.Table:
    labels = text_of(table.column(reading.label), reading.label)
    previous = previous_labels(table, reading, labels) if reading.looks_back else None
    return count_contexts(context_of(table, reading, previous), labels)
