"""Fitted refinements: fit, apply, evaluate, save and load them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.arguments import helpful
from ensue.engine.refinement import (
    ContextColumns,
    Expansion,
    Feature,
    Logistic,
    Model,
    codes_in,
    feature_columns,
    smoothed_counts,
)
from ensue.errors import SchemaError, StateError, did_you_mean
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.types import kind_of, readable_type
from ensue.learn import inputs
from ensue.learn.calibration import Evaluation, calibrate, split_counts
from ensue.runtimes.tables import DescribedEvents

MOST_COUNTS = 1_000_000
BINS = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Refinement:
    """Predicts the labels of events from their context. Created by `ensue.learn.fit` or `ensue.learn.load`.

    `labels` are the possible labels. `evaluation` is the evaluation on held-out events, if any were held out.
    """

    reading: ContextColumns
    labels: tuple[str, ...]
    model: Model
    counts: pa.Table
    smoothing: float
    evaluation: Evaluation | None = None

    def __repr__(self) -> str:
        events = int(self.counts.column("count").to_numpy().sum())
        return (
            f"Refinement of `{self.reading.label}` to {len(self.labels)} labels by {', '.join(self.context)}, "
            f"from {events:,} events"
        )

    @property
    def context(self) -> tuple[str, ...]:
        """The features of the context."""
        return tuple(feature.name for feature in self.reading.features)

    def distribution(self, **context: object) -> dict[str, float]:
        """Return the probability of each label in a context. A feature that is not given has an unseen value.

        >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
        >>> from ensue.learn import fit
        >>> fit(seen, label="who", context="room").distribution(room="den")
        {'alice': 0.875, 'bob': 0.125}
        """
        for name in context:
            if name not in self.context:
                raise SchemaError(
                    "unknown-feature",
                    f"unknown feature `{name}`; available: {', '.join(self.context)}",
                    did_you_mean(name, self.context),
                )
        codes = [
            codes_in(_single(context[name]), words) if name in context else np.array([-1])
            for name, words in zip(self.context, self.model.vocabularies, strict=True)
        ]
        found = self.model.predict(codes)
        return dict(zip(self.labels, found.distributions[found.lines[0]].tolist(), strict=True))

    def apply(
        self,
        events: Any,
        *,
        type: str = "type",
        coarse: str | Iterable[str] | None = None,
        probability: str | None = None,
        alternatives: str | None = None,
        id: str | Iterable[str] | None = None,
        minimum: float = 0.0,
    ) -> Any:
        """Expand coarse events into alternatives: one row for each possible label of an event, in the events' order.

        `events` is a pyarrow, pandas or polars table, or a static or streaming Spark DataFrame. The result has the same
        kind, with the label in the column `type`, its probability in the column `probability`, and in the column
        `alternatives` an id that the rows of one event share. Pass it to `ensue.detect(..., probability="probability",
        alternatives="alternatives")`.

        With `coarse`, only events of these types are refined; all others stay unchanged. An event whose label is known
        (in the `label` column used for fitting, if the table has it) stays one row with that type. `probability` and
        `alternatives` name existing columns of the events: the probabilities are multiplied, and existing alternatives
        still exclude each other. Labels with a probability below `minimum` are dropped; the remaining probabilities
        then sum to less than 1, and the rest is the probability of none of them.

        `id` names the columns that identify an event. Without it, all columns identify the event, and equal events are
        numbered. On a stream they are not numbered: events that are equal in all columns count as one.

        >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
        >>> from ensue.learn import fit
        >>> found = fit(seen, label="who", context="room").apply(pa.table({"t": [1], "room": ["den"]}))
        >>> found.drop_columns("alternatives").to_pylist()[0]
        {'t': 1, 'room': 'den', 'type': 'alice', 'probability': 0.875}
        """
        expansion = Expansion(
            self.reading,
            pa.array(self.labels),
            self.model,
            _checked_text(type, "type"),
            None if coarse is None else inputs.checked_names(coarse, "coarse"),
            probability,
            alternatives,
            None if id is None else inputs.checked_names(id, "id"),
            inputs.checked_share(minimum, "minimum"),
        )
        kind, given = inputs.opened(events)
        _check_expansion(inputs.schema_of(given), expansion)
        if kind is None:
            from ensue.runtimes.spark.refinement_tasks import expand_frame

            return expand_frame(given, expansion)
        return kind.from_arrow(expansion.expand(given))

    def evaluate(self, events: Any, *, bins: int = BINS, most_counts: int = MOST_COUNTS) -> Evaluation:
        """Compare the predictions with events of a table or DataFrame; events without a label are ignored.

        Use events that were not used for fitting, for example later ones. `bins` is the number of reliability ranges.
        """
        _, given = inputs.opened(events)
        schema = inputs.schema_of(given)
        inputs.check_category(schema, self.reading.label, "label")
        inputs.check_columns(schema, self.reading)
        counts = inputs.count_events(given, self.reading, inputs.checked_number(most_counts, "most_counts"))
        return evaluated(self, counts, inputs.checked_number(bins, "bins"))

    def save(self, path: str | Path) -> Path:
        """Write the refinement to a JSON file that `ensue.learn.load` reads."""
        from ensue.learn.refinement import write_refinement

        return write_refinement(self, Path(path))


def evaluated(refinement: Refinement, counts: pa.Table, bins: int = BINS) -> Evaluation:
    """Evaluate the refinement on counts of labelled events."""
    labels = pa.array(refinement.labels)
    if not pc.any(pc.is_in(counts.column("label"), value_set=labels), min_count=0).as_py():
        raise SchemaError(
            "no-labels",
            f"no event has a known label in column `{refinement.reading.label}`",
            f"labels: {', '.join(refinement.labels)}",
        )
    return calibrate(refinement.model, labels, counts, bins)


def _single(value: object) -> pa.Array:
    return pa.array([value]).cast(pa.string())


def _checked_text(name: str, role: str) -> str:
    return inputs.checked_names(name, role)[0]


def _check_expansion(schema: pa.Schema, expansion: Expansion) -> None:
    inputs.check_columns(schema, expansion.reading)
    if expansion.reading.label in schema.names:
        inputs.check_category(schema, expansion.reading.label, "label")
    if expansion.coarse is not None or expansion.type in schema.names:
        inputs.check_category(schema, expansion.type, "type")
    for role, name in (("probability", expansion.probability), ("alternatives", expansion.alternatives)):
        if name is not None:
            inputs.check_column(schema, _checked_text(name, role), role)
        elif role in schema.names:
            raise SchemaError(
                "reserved-column",
                f"the table already has a column `{role}`, which the result adds",
                f'pass `{role}="{role}"` if it has this meaning for the events, or rename it',
            )
    if expansion.alternatives is not None:
        inputs.check_category(schema, expansion.alternatives, "alternatives")
    if expansion.probability is not None:
        kind = readable_type(schema.field(expansion.probability).type)
        if kind_of(kind) not in (*NUMBERS, Kind.NULL):
            raise SchemaError(
                "probability-type",
                f"column `{expansion.probability}` must be numeric to be used as a probability, but is {kind}",
                "use numbers between 0 and 1",
            )
    for name in expansion.id or ():
        inputs.check_column(schema, name, "id")


__all__ = ["Refinement"]


# --- JSON files

FORMAT, VERSION = "ensue-refinement", 1


def write_refinement(refinement: Refinement, path: Path) -> Path:
    """Write the file completely or not at all."""
    evaluation = refinement.evaluation
    content = {
        "format": FORMAT,
        "version": VERSION,
        "reading": asdict(refinement.reading),
        "labels": refinement.labels,
        "smoothing": refinement.smoothing,
        "counts": [column.to_pylist() for column in refinement.counts.columns],
        "logistic": _written_logistic(refinement.model),
        "evaluation": None
        if evaluation is None
        else {
            "events": evaluation.events,
            "unknown": evaluation.unknown,
            "log_loss": evaluation.log_loss,
            "brier": evaluation.brier,
            "reliability": evaluation.reliability.to_pydict(),
        },
    }
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return unfinished.replace(path)


def _written_logistic(model: Model) -> dict[str, Any] | None:
    if not isinstance(model, Logistic):
        return None
    return {
        "vocabularies": [words.to_pylist() for words in model.vocabularies],
        "weights": [weights.tolist() for weights in model.weights],
        "intercepts": model.intercepts.tolist(),
    }


def load(path: str | Path) -> Refinement:
    """Load a refinement that `Refinement.save` wrote to a file.

    >>> import tempfile
    >>> from ensue.learn import fit
    >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load(fit(seen, label="who", context="room").save(f"{folder}/who.json"))
    Refinement of `who` to 2 labels by room, from 3 events
    """
    content = _content(Path(path))
    try:
        return _read(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, pa.ArrowException) as error:
        raise _not_a_refinement(f"`{path}` is not a complete refinement") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _not_a_refinement(f"file `{path}` does not exist") from error
    except (OSError, ValueError) as error:
        raise _not_a_refinement(f"`{path}` is not a JSON file") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _not_a_refinement(f"`{path}` does not contain a refinement")
    if content.get("version") != VERSION:
        raise StateError(
            "refinement-version",
            f"`{path}` has version {content.get('version')!r}, but this release of Ensue reads version {VERSION}",
            "fit and save it again, or use the release that wrote it",
        )
    return content


def _not_a_refinement(message: str) -> StateError:
    return StateError("not-a-refinement", message, "pass a file written by `Refinement.save`")


def _read(content: dict[str, Any]) -> Refinement:
    given = content["reading"]
    features = tuple(Feature(**feature) for feature in given["features"])
    reading = ContextColumns(given["label"], features, given["time"], tuple(given["partition_by"]), given["zone"])
    *texts, numbers = content["counts"]
    names = [*feature_columns(len(features)), "label", "count"]
    columns = [*(pa.array(values, pa.string()) for values in texts), pa.array(numbers, pa.int64())]
    counts, labels = pa.table(columns, names=names), tuple(content["labels"])
    smoothing = float(content["smoothing"])
    if content["logistic"] is None:
        model: Model = smoothed_counts(counts, pa.array(labels, pa.string()), smoothing)
    else:
        model = _read_logistic(content["logistic"])
    return Refinement(reading, labels, model, counts, smoothing, _read_evaluation(content["evaluation"]))


def _read_logistic(given: dict[str, Any]) -> Logistic:
    return Logistic(
        tuple(pa.array(words, pa.string()) for words in given["vocabularies"]),
        tuple(np.array(weights, np.float64) for weights in given["weights"]),
        np.array(given["intercepts"], np.float64),
    )


def _read_evaluation(given: dict[str, Any] | None) -> Evaluation | None:
    if given is None:
        return None
    reliability = pa.table(given["reliability"])
    return Evaluation(given["events"], given["unknown"], given["log_loss"], given["brier"], reliability)


# --- `ensue.learn.fit`

COUNTS, LOGISTIC = "counts", "logistic"
MODELS = (COUNTS, LOGISTIC)


@helpful
def fit(
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
    most_counts: int = MOST_COUNTS,
) -> Refinement:
    """Learn from archived events who or what an event is, given its context.

    `events` is a pyarrow, pandas or polars table or a Spark DataFrame. The column `label` has the known labels; rows
    without a label are ignored. `context` lists features, the most informative first: columns of text, integers or
    booleans, and, if there is no column of that name, "hour" and "weekday" (Monday is 0) of the column `time`, and
    "previous", the last known label at an earlier time among the events with the same `partition_by`. Timestamps with a
    time zone are converted to local time in `zone`. A missing value counts as a separate value.

    The model "counts" smooths the counts of each context with the distribution of the context without its last feature;
    `smoothing` is the weight of this distribution as a number of events. "logistic" is a Spark ML classifier for
    DataFrames with a weight for each feature; `smoothing` is the strength of its ridge penalty.

    With `holdout`, each event is held out with this probability, drawn with `seed`, and `evaluation` of the result is
    the evaluation on these events. `most_counts` is the maximum number of contexts times labels.

    >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
    >>> fit(seen, label="who", context="room")
    Refinement of `who` to 2 labels by room, from 3 events
    """
    strength = inputs.checked_share(smoothing, "smoothing", most=float("inf"), open_ended=True)
    share = None if holdout is None else inputs.checked_share(holdout, "holdout", open_ended=True)
    drawn, most = inputs.checked_number(seed, "seed", least=0), inputs.checked_number(most_counts, "most_counts")
    if isinstance(events, DescribedEvents):
        own = events.columns.time
        events, time = events.table, own if time is None and isinstance(own, str) else time
    _check_model(model, events)
    _, given = inputs.opened(events)
    reading = inputs.checked_reading(inputs.schema_of(given), label, context, time, partition_by, zone)
    counts = inputs.count_events(given, reading, most)
    if share is None:
        return _fitted(given, reading, counts, model, strength)
    learned, held = split_counts(counts, share, drawn)
    refinement = _fitted(given, reading, learned, model, strength)
    if not held.num_rows:
        raise SchemaError(
            "nothing-held-out",
            f"no event was held out with `holdout={share:g}`: too few events",
            "pass more events or a larger share, or evaluate on other events with `Refinement.evaluate`",
        )
    return replace(refinement, evaluation=evaluated(refinement, held))


def _fitted(events: Any, reading: ContextColumns, counts: pa.Table, model: str, smoothing: float) -> Refinement:
    labels = sorted(counts.column("label").unique().to_pylist())
    if not labels:
        raise SchemaError(
            "no-labels",
            f"no event has a label in column `{reading.label}`",
            "pass archived events with known labels",
        )
    if len(labels) == 1:
        raise SchemaError(
            "one-label",
            f"all events have the same label `{labels[0]}` in column `{reading.label}`",
            "pass archived events with at least two labels",
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
            f"unknown model {model!r}; available: {', '.join(repr(name) for name in MODELS)}",
            did_you_mean(model, MODELS) if isinstance(model, str) else "pass one of these models",
        )
    if model == LOGISTIC and not inputs.is_frame(events):
        raise SchemaError(
            "logistic-table",
            "the model 'logistic' requires a Spark DataFrame",
            "convert the table with `spark.createDataFrame(...)`; the fitted model does not need Spark",
        )
