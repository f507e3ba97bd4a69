"""How well predicted probabilities agree with what happened."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ensue.engine.models import Floats, Model, predict, sums_by_place
from ensue.engine.refinement import codes_in, feature_columns
from ensue.learn.calibration import Evaluation

SMALLEST = np.finfo(np.float64).tiny
"""What counts as the logarithm's argument where a probability is too small for a number."""


def calibrate(model: Model, labels: pa.Array, counts: pa.Table, bins: int) -> Evaluation:
    """Compares the model with the counts of events, some of which have a label that it knows."""
    codes = codes_in(counts.column("label").combine_chunks(), labels)
    numbers = counts.column("count").to_numpy().astype(np.float64)
    known = codes >= 0
    context = [counts.column(name).combine_chunks() for name in feature_columns(counts.num_columns - 2)]
    prediction = predict(model, context)
    predicted = prediction.distributions
    cells = prediction.lines[known] * len(labels) + codes[known]
    happened = sums_by_place(cells, numbers[known], predicted.size).reshape(predicted.shape)
    events = happened.sum()
    tries = happened.sum(axis=1, keepdims=True)
    squares = (tries * predicted**2).sum() - 2 * (happened * predicted).sum() + events
    return Evaluation(
        events=int(events),
        unknown=int(numbers[~known].sum()),
        log_loss=float(-(happened * np.log(np.maximum(predicted, SMALLEST))).sum() / events),
        brier=float(squares / events),
        reliability=_reliability(predicted, happened, np.broadcast_to(tries, predicted.shape), bins),
    )


def _reliability(predicted: Floats, happened: Floats, tries: Floats, bins: int) -> pa.Table:
    """Of each bin that something was predicted in: the mean prediction, and how often it came true."""
    places = np.minimum((predicted * bins).astype(np.int64), bins - 1).ravel()
    number = sums_by_place(places, tries.ravel(), bins)
    filled = np.flatnonzero(number)
    sums = [sums_by_place(places, part.ravel(), bins) for part in (tries * predicted, happened)]
    return pa.table(
        {
            "from": filled / bins,
            "to": (filled + 1) / bins,
            "predicted": sums[0][filled] / number[filled],
            "observed": sums[1][filled] / number[filled],
            "count": number[filled].astype(np.int64),
        }
    )


def split_counts(counts: pa.Table, share: float, seed: int) -> tuple[pa.Table, pa.Table]:
    """Counts to learn from, and counts held out: each event is held out with this probability.

    Events of one context and label are alike, so that only the number of those held out is drawn.
    """
    numbers = counts.column("count").to_numpy()
    held = np.random.default_rng(seed).binomial(numbers, share)
    return _with_counts(counts, numbers - held), _with_counts(counts, held)


def _with_counts(counts: pa.Table, numbers: np.ndarray) -> pa.Table:
    place = counts.num_columns - 1
    return counts.set_column(place, "count", pa.array(numbers, pa.int64())).filter(pa.array(numbers > 0))
