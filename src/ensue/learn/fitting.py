"""Fitting a refinement to archived events: `ensue.fit_refinement`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ensue.engine.models import Model, smoothed_counts
from ensue.engine.refinement import Reading
from ensue.errors import SchemaError, did_you_mean
from ensue.learn.counting import count_events, is_frame, opened, schema_of
from ensue.learn.inputs import checked_number, checked_reading, checked_share
from ensue.learn.refinement import LIMIT, Refinement, evaluated
from ensue.learn.refinement_calibration import split_counts

COUNTS, LOGISTIC = "counts", "logistic"
MODELS = (COUNTS, LOGISTIC)


def fit_refinement(
    events: Any,
    *,
    label: str,
    context: str | Iterable[str],
    time: str | None = None,
    partition_by: str | Iterable[str] | None = None,
    zone: str = "UTC",
    model: str = COUNTS,
    smoothing: float = 1.0,
    holdout: float | None = None,
    seed: int = 0,
    limit: int = LIMIT,
) -> Refinement:
    """Learns from archived events who or what an event is likely to be, given its context.

    `events` is a pyarrow, pandas or polars table or a Spark DataFrame. The column `label` says what an event was; rows
    without it are left out. `context` lists features, the most telling first: columns of text, integers or booleans,
    and, where there is no column of that name, "hour" and "weekday" (Monday is 0) of the column `time`, and
    "previous": the last known label at an earlier time among the events with the same `partition_by`. Instants are read
    on the clocks of `zone`. A missing value is a value like any other.

    The model "counts" smooths the counts of each context with the distribution of the context without its last
    feature, with the weight of so many events as `smoothing` says. "logistic" is a classifier of Spark ML for
    DataFrames, in which each feature has a weight of its own; `smoothing` is the strength of its ridge.

    With `holdout`, each event is held out with this probability, drawn by `seed`, and the `evaluation` of the result
    is that on those. At most so many contexts times labels as `limit` says are kept.

    >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
    >>> fit_refinement(seen, label="who", context="room")
    Refinement of `who` to 2 labels by room, from 3 events
    """
    strength = checked_share(smoothing, "smoothing", most=float("inf"), open_ended=True)
    share = None if holdout is None else checked_share(holdout, "holdout", open_ended=True)
    drawn, most = checked_number(seed, "seed", least=0), checked_number(limit, "limit")
    _check_model(model, events)
    _, given = opened(events)
    reading = checked_reading(schema_of(given), label, context, time, partition_by, zone)
    counts = count_events(given, reading, most)
    if share is None:
        return _fitted(given, reading, counts, model, strength)
    learned, held = split_counts(counts, share, drawn)
    refinement = _fitted(given, reading, learned, model, strength)
    if not held.num_rows:
        raise SchemaError(
            "nothing-held-out",
            f"there are so few events that none was held out with `holdout={share:g}`",
            "pass more events, or a larger share; or evaluate on others with `Refinement.evaluate`",
        )
    return replace(refinement, evaluation=evaluated(refinement, held))


def _fitted(events: Any, reading: Reading, counts: pa.Table, model: str, smoothing: float) -> Refinement:
    labels = sorted(counts.column("label").unique().to_pylist())
    if not labels:
        raise SchemaError(
            "no-labels",
            f"no event to learn from has a label in column `{reading.label}`",
            "pass archived events of which it is known what they were",
        )
    if len(labels) == 1:
        raise SchemaError(
            "one-label",
            f"all events to learn from are `{labels[0]}` by column `{reading.label}`: nothing to tell apart",
            "pass archived events of at least two labels",
        )
    return Refinement(reading, tuple(labels), _model(events, counts, labels, model, smoothing), counts, smoothing)


def _model(events: Any, counts: pa.Table, labels: list[str], model: str, smoothing: float) -> Model:
    if model == COUNTS:
        return smoothed_counts(counts, pa.array(labels), smoothing)
    from ensue.runtimes.spark.refinement_tasks import fit_logistic

    return fit_logistic(events, counts, pa.array(labels), smoothing)


def _check_model(model: object, events: Any) -> None:
    if model not in MODELS:
        raise SchemaError(
            "model-name",
            f"{model!r} is no model; models: {', '.join(repr(name) for name in MODELS)}",
            did_you_mean(model, MODELS) if isinstance(model, str) else "pass one of them",
        )
    if model == LOGISTIC and not is_frame(events):
        raise SchemaError(
            "logistic-table",
            "the model 'logistic' is fitted by Spark, to a DataFrame",
            "pass `spark.createDataFrame(...)` of the table; the fitted model needs no Spark",
        )
