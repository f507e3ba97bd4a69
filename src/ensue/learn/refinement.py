"""A fitted refinement: what it knows, how it is applied, and how well it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.expansion import Expansion
from ensue.engine.models import Model
from ensue.engine.refinement import Reading, codes_in
from ensue.errors import SchemaError, did_you_mean
from ensue.expr.kinds import NUMBERS, Kind
from ensue.expr.types import kind_of, readable_type
from ensue.learn.calibration import Evaluation
from ensue.learn.counting import count_events, opened, schema_of
from ensue.learn.inputs import (
    check_category,
    check_column,
    check_columns,
    checked_names,
    checked_number,
    checked_share,
)
from ensue.learn.refinement_calibration import calibrate

LIMIT = 1_000_000
BINS = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Refinement:
    """What events are likely to be, given their context: made by `ensue.fit_refinement` or `ensue.load_refinement`.

    `labels` are what an event can be. `evaluation` is that on the events held out, if there were any.
    """

    reading: Reading
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
        >>> from ensue.learn import fit_refinement
        >>> fit_refinement(seen, label="who", context="room").distribution(room="den")
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
        >>> from ensue.learn import fit_refinement
        >>> found = fit_refinement(seen, label="who", context="room").apply(pa.table({"t": [1], "room": ["den"]}))
        >>> found.drop_columns("alternatives").to_pylist()[0]
        {'t': 1, 'room': 'den', 'type': 'alice', 'probability': 0.875}
        """
        expansion = Expansion(
            self.reading,
            pa.array(self.labels),
            self.model,
            _checked_text(type, "type"),
            None if coarse is None else checked_names(coarse, "coarse"),
            probability,
            alternatives,
            None if id is None else checked_names(id, "id"),
            checked_share(minimum, "minimum"),
        )
        kind, given = opened(events)
        _check_expansion(schema_of(given), expansion)
        if kind is None:
            from ensue.runtimes.spark.refinement_tasks import expand_frame

            return expand_frame(given, expansion)
        return kind.from_arrow(expansion.expand(given))

    def evaluate(self, events: Any, *, bins: int = BINS, limit: int = LIMIT) -> Evaluation:
        """Compares the predictions with events whose label is known, of a table or DataFrame; others are left out.

        Take events that were not used for fitting: later ones, say. `bins` is the number of ranges of the reliability.
        """
        _, given = opened(events)
        schema = schema_of(given)
        check_category(schema, self.reading.label, "label")
        check_columns(schema, self.reading)
        counts = count_events(given, self.reading, checked_number(limit, "limit"))
        return evaluated(self, counts, checked_number(bins, "bins"))

    def save(self, path: str | Path) -> Path:
        """Writes it to a JSON file, for `ensue.load_refinement`."""
        from ensue.learn.files import write_refinement

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
    return checked_names(name, role)[0]


def _check_expansion(schema: pa.Schema, expansion: Expansion) -> None:
    check_columns(schema, expansion.reading)
    if expansion.reading.label in schema.names:
        check_category(schema, expansion.reading.label, "label")
    if expansion.coarse is not None or expansion.type in schema.names:
        check_category(schema, expansion.type, "type")
    for role, name in (("probability", expansion.probability), ("alternatives", expansion.alternatives)):
        if name is not None:
            check_column(schema, _checked_text(name, role), role)
        elif role in schema.names:
            raise SchemaError(
                "reserved-column",
                f"the table has a column `{role}`, which is a column of the result",
                f'pass `{role}="{role}"` if it says so of the events already, or rename it',
            )
    if expansion.alternatives is not None:
        check_category(schema, expansion.alternatives, "alternatives")
    if expansion.probability is not None:
        kind = readable_type(schema.field(expansion.probability).type)
        if kind_of(kind) not in (*NUMBERS, Kind.NULL):
            raise SchemaError(
                "probability-type",
                f"column `{expansion.probability}` of the table holds {kind}, which is no probability",
                "probabilities are numbers between 0 and 1",
            )
    for name in expansion.id or ():
        check_column(schema, name, "id")


__all__ = ["Refinement"]
