"""Whether predicted probabilities can be trusted: scores, reliability, and a picture of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ensue.errors import counted

SIZE, MARGIN = 400, 50
LARGEST_DOT, SMALLEST_DOT = 12.0, 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """How well a refinement told what events were whose label is known.

    `log_loss` and `brier` are means over the `events`; smaller is better, and 0 is perfect. `reliability` has a row for
    each range of predicted probabilities, over all labels: what was `predicted` on average, and the share in which it
    was `observed`. If both agree everywhere, the probabilities can be taken at their word. Events with a label that was
    not in the archive are `unknown`, and in no other number.
    """

    events: int
    unknown: int
    log_loss: float
    brier: float
    reliability: pa.Table

    def __repr__(self) -> str:
        unknown = f", and {self.unknown:,} of unknown labels" if self.unknown else ""
        lines = [f"Evaluation on {self.events:,} events{unknown}: log loss {self.log_loss:.4f}, Brier {self.brier:.4f}"]
        lines += [
            f"  {row['from']:.2f} to {row['to']:.2f}: predicted {row['predicted']:.3f}, "
            f"observed {row['observed']:.3f}, {counted(row['count'], 'time', 'times')}"
            for row in self.reliability.to_pylist()
        ]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """Draws the reliability into an SVG file: predicted against observed, dots as large as their counts say."""
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
