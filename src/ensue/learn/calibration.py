"""Evaluate predicted probabilities: scores, reliability, and a plot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ensue.engine.refinement import Model, codes_in, feature_columns, predict, sums_by_place
from ensue.engine.uncertainty import Floats
from ensue.errors import counted

SIZE, MARGIN = 400, 50
LARGEST_DOT, SMALLEST_DOT = 12.0, 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How well a refinement predicted the known labels of events.

    `log_loss` and `brier` are means over the `events`; smaller is better, and 0 is perfect. `reliability` has a row for
    each range of predicted probabilities, over all labels: the mean `predicted` probability, and the `observed` share.
    If both agree everywhere, the probabilities are well calibrated. `unknown` counts events with a label that was not
    in the training data; they are in no other number.
    """

    events: int
    unknown: int
    log_loss: float
    brier: float
    reliability: pa.Table

    def __repr__(self) -> str:
        unknown = f", {self.unknown:,} with unknown labels" if self.unknown else ""
        lines = [f"Evaluation on {self.events:,} events{unknown}: log loss {self.log_loss:.4f}, Brier {self.brier:.4f}"]
        lines += [
            f"  {row['from']:.2f} to {row['to']:.2f}: predicted {row['predicted']:.3f}, "
            f"observed {row['observed']:.3f}, {counted(row['count'], 'time', 'times')}"
            for row in self.reliability.to_pylist()
        ]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """Write a reliability diagram to an SVG file: predicted against observed, with dots sized by count."""
        written = Path(path)
        written.write_text("\n".join(_svg(self)) + "\n", encoding="utf-8")
        return written


def _svg(evaluation: Evaluation) -> Iterator[str]:
    whole, end = SIZE + 2 * MARGIN, MARGIN + SIZE
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" font-family="sans-serif">'
    yield f'<rect width="{whole}" height="{whole}" fill="white"/>'
    yield f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#888"/>'
    yield f'<line x1="{MARGIN}" y1="{end}" x2="{end}" y2="{MARGIN}" stroke="#888" stroke-dasharray="4 4"/>'
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<text x="{_across(tick):.1f}" y="{end + 18}" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="{MARGIN - 8}" y="{_up(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
    yield f'<text x="{whole / 2}" y="{whole - 10}" text-anchor="middle">predicted</text>'
    yield f'<text x="14" y="{whole / 2}" text-anchor="middle" transform="rotate(-90 14 {whole / 2})">observed</text>'
    title = f"log loss {evaluation.log_loss:.4f}, Brier score {evaluation.brier:.4f}, {evaluation.events:,} events"
    yield f'<text x="{whole / 2}" y="{MARGIN - 16}" text-anchor="middle">{title}</text>'
    yield from _dots(evaluation.reliability)
    yield "</svg>"


def _dots(reliability: pa.Table) -> Iterator[str]:
    rows = reliability.to_pylist()
    most = max((row["count"] for row in rows), default=1)
    points = " ".join(f"{_across(row['predicted']):.1f},{_up(row['observed']):.1f}" for row in rows)
    yield f'<polyline points="{points}" fill="none" stroke="#1f77b4"/>'
    for row in rows:
        radius = max(SMALLEST_DOT, LARGEST_DOT * (row["count"] / most) ** 0.5)
        yield (
            f'<circle cx="{_across(row["predicted"]):.1f}" cy="{_up(row["observed"]):.1f}" r="{radius:.1f}" '
            f'fill="#1f77b4" fill-opacity="0.7"><title>predicted {row["predicted"]:.3f}, observed '
            f"{row['observed']:.3f}, {row['count']:,} times</title></circle>"
        )


def _across(value: float) -> float:
    return MARGIN + SIZE * value


def _up(value: float) -> float:
    return MARGIN + SIZE * (1 - value)


# --- comparing predicted probabilities with known labels

SMALLEST = np.finfo(np.float64).tiny
"""Replaces probabilities that underflow to zero, before taking the logarithm."""


def calibrate(model: Model, labels: pa.Array, counts: pa.Table, bins: int) -> Evaluation:
    """Compare the model with the counts of events, some of which have a label that it knows."""
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
    """Return, for each non-empty bin, the mean prediction and the observed share."""
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
    """Split counts into training and held-out counts: each event is held out with probability `share`.

    Events with the same context and label are equal, so only the number of held-out events is random.
    """
    numbers = counts.column("count").to_numpy()
    held = np.random.default_rng(seed).binomial(numbers, share)
    return _with_counts(counts, numbers - held), _with_counts(counts, held)


def _with_counts(counts: pa.Table, numbers: np.ndarray) -> pa.Table:
    place = counts.num_columns - 1
    return counts.set_column(place, "count", pa.array(numbers, pa.int64())).filter(pa.array(numbers > 0))
