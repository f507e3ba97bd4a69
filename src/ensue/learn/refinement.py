"""A fitted refinement: what it knows, how it is applied, and how well it does."""

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
    """What events are likely to be, given their context: made by `ensue.learn.fit` or `ensue.learn.load`.

    `labels` are what an event can be. `evaluation` is that on the events held out, if there were any.
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
        """The features that it looks at."""
        return tuple(feature.name for feature in self.reading.features)

    def distribution(self, **context: object) -> dict[str, float]:
        """How probable each label is in a context. A feature that is not named has a value that never came.

        >>> seen = pa.table({"who": ["alice", "alice", "bob"], "room": ["den", "den", "hall"]})
        >>> from ensue.learn import fit
        >>> fit(seen, label="who", context="room").distribution(room="den")
        {'alice': 0.875, 'bob': 0.125}
        """
        for name in context:
            if name not in self.context:
                raise SchemaError(
                    "unknown-feature",
                    f"there is no feature `{name}` in the context; features: {', '.join(self.context)}",
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
        """Coarse events as alternatives: a row for each label that an event may have, in the order of the events.

        `events` is a pyarrow, pandas or polars table, a Spark DataFrame or a stream. The result is of the same kind,
        with the label in the column `type`, how probable it is in the column `probability`, and in the column
        `alternatives` an id that the rows of one event share: ready for `ensue.detect(..., probability="probability",
        alternatives="alternatives")`.

        With `coarse`, only events of these types are refined, and all others stay as they are. An event whose label is
        known (in the column that was `label` when fitting, if there is one) stays one row, of that type.
        `probability` and `alternatives` name columns that the events have already: the probabilities are multiplied,
        and what excluded each other still does. Labels less probable than `minimum` are left out; what is missing to 1
        is the probability that it was none of the others.

        `id` names columns that tell events apart. Without it all columns do so, and equal events are counted; on a
        stream, where they are not, events that are equal in all columns would be one.

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
        """Compares the predictions with events whose label is known, of a table or DataFrame; others are left out.

        Take events that were not used for fitting: later ones, say. `bins` is the number of ranges of the reliability.
        """
        _, given = inputs.opened(events)
        schema = inputs.schema_of(given)
        inputs.check_category(schema, self.reading.label, "label")
        inputs.check_columns(schema, self.reading)
        counts = inputs.count_events(given, self.reading, inputs.checked_number(most_counts, "most_counts"))
        return evaluated(self, counts, inputs.checked_number(bins, "bins"))

    def save(self, path: str | Path) -> Path:
        """Writes it to a JSON file, for `ensue.learn.load`."""
        from ensue.learn.refinement import write_refinement

        return write_refinement(self, Path(path))


def evaluated(refinement: Refinement, counts: pa.Table, bins: int = BINS) -> Evaluation:
    """How well the refinement tells the labels of events, given as counts."""
    labels = pa.array(refinement.labels)
    if not pc.any(pc.is_in(counts.column("label"), value_set=labels), min_count=0).as_py():
        raise SchemaError(
            "no-labels",
            f"no event has a label of the refinement in column `{refinement.reading.label}`",
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
                f"the table has a column `{role}`, which is a column of the result",
                f'pass `{role}="{role}"` if it says so of the events already, or rename it',
            )
    if expansion.alternatives is not None:
        inputs.check_category(schema, expansion.alternatives, "alternatives")
    if expansion.probability is not None:
        kind = readable_type(schema.field(expansion.probability).type)
        if kind_of(kind) not in (*NUMBERS, Kind.NULL):
            raise SchemaError(
                "probability-type",
                f"column `{expansion.probability}` of the table holds {kind}, which is no probability",
                "probabilities are numbers between 0 and 1",
            )
    for name in expansion.id or ():
        inputs.check_column(schema, name, "id")


__all__ = ["Refinement"]


# --- Refinements as JSON files.

FORMAT, VERSION = "ensue-refinement", 1


def write_refinement(refinement: Refinement, path: Path) -> Path:
    """Writes the file, whole or not at all."""
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
    """The refinement that `Refinement.save` wrote to a file.

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
        raise _not_a_refinement(f"`{path}` lacks parts of a refinement") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _not_a_refinement(f"there is no file `{path}`") from error
    except (OSError, ValueError) as error:
        raise _not_a_refinement(f"`{path}` is no JSON file") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _not_a_refinement(f"`{path}` holds no refinement")
    if content.get("version") != VERSION:
        raise StateError(
            "refinement-version",
            f"`{path}` is of version {content.get('version')!r}, and this Ensue reads version {VERSION}",
            "fit and save it again, or use the Ensue that wrote it",
        )
    return content


def _not_a_refinement(message: str) -> StateError:
    return StateError("not-a-refinement", message, "pass a file that `Refinement.save` wrote")


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


# --- Fitting a refinement to archived events: `ensue.learn.fit`.

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
    is that on those. A model of more than `most_counts` contexts times
    labels is an error.

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
            f"there are so few events that none was held out with `holdout={share:g}`",
            "pass more events, or a larger share; or evaluate on others with `Refinement.evaluate`",
        )
    return replace(refinement, evaluation=evaluated(refinement, held))


def _fitted(events: Any, reading: ContextColumns, counts: pa.Table, model: str, smoothing: float) -> Refinement:
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
    if model == LOGISTIC and not inputs.is_frame(events):
        raise SchemaError(
            "logistic-table",
            "the model 'logistic' is fitted by Spark, to a DataFrame",
            "pass `spark.createDataFrame(...)` of the table; the fitted model needs no Spark",
        )
