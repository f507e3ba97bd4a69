"""Draws the answers over the day as one SVG: lines show the beliefs, grey areas show the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

LEFT, WIDTH, RIGHT = 150, 820, 20
HEIGHT, GAP, TOP, BOTTOM = 70, 26, 30, 30
COLORS = {"alice": "#c2410c", "bob": "#1d4ed8", "count": "#15803d"}
SHOWN = {"off": "#e5e7eb", "news": "#c2410c", "sports": "#1d4ed8", "weather": "#facc15"}
"""The colors of the display's contents."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One question: the belief and the truth at every event, between 0 and `most`."""

    title: str
    color: str
    believed: Sequence[float]
    so: Sequence[float]
    most: int = 1


def draw(answers: pa.Table, truth: pa.Table) -> str:
    """Draws the three questions of the paper, and the content of the display."""
    return "\n".join(_drawing(answers, _panels(answers, truth))) + "\n"


def _panels(answers: pa.Table, truth: pa.Table) -> list[Panel]:
    alice, bob = truth.column("alice").to_pylist(), truth.column("bob").to_pylist()
    home = [float((a != "outside") + (b != "outside")) for a, b in zip(alice, bob, strict=True)]
    panels = [Panel("how many at home", COLORS["count"], answers.column("at_home").to_pylist(), home, most=2)]
    for person, places in (("alice", alice), ("bob", bob)):
        believed = answers.column(f"{person}_bedroom").to_pylist()
        so = [float(place == "bedroom") for place in places]
        panels.append(Panel(f"{person} in bedroom", COLORS[person], believed, so))
    so = [float(place != "outside") for place in alice]
    panels.append(Panel("alice at home", COLORS["alice"], answers.column("alice_home").to_pylist(), so))
    return panels


def _drawing(answers: pa.Table, panels: Sequence[Panel]) -> Iterator[str]:
    times = answers.column("t").to_pylist()
    midnight = times[0].replace(hour=0, minute=0, second=0)
    hours = [(time - midnight).total_seconds() / 3600 for time in times]
    first, last = int(hours[0]), 24
    across = [LEFT + WIDTH * (hour - first) / (last - first) for hour in hours]
    width, band = LEFT + WIDTH + RIGHT, TOP + len(panels) * (HEIGHT + GAP)
    height = band + HEIGHT // 2 + BOTTOM
    box = f"0 0 {width} {height}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="13">'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield f'<text x="{LEFT}" y="18">lines: beliefs; grey: truth</text>'
    for place, panel in enumerate(panels):
        yield from _panel(panel, across, TOP + place * (HEIGHT + GAP))
    yield from _display(answers.column("display").to_pylist(), across, band)
    for hour in range(first, last + 1, 2):
        x = LEFT + WIDTH * (hour - first) / (last - first)
        yield f'<text x="{x:.0f}" y="{height - 10}" text-anchor="middle">{hour}:00</text>'
    yield "</svg>"


def _panel(panel: Panel, across: Sequence[float], top: float) -> Iterator[str]:
    def up(value: float) -> float:
        return top + HEIGHT * (1 - value / panel.most)

    bottom = top + HEIGHT
    so, believed = (_steps(across, [up(value) for value in values]) for values in (panel.so, panel.believed))
    yield f'<path d="M{across[0]:.1f} {bottom}L{so}V{bottom}Z" fill="#d1d5db"/>'
    yield f'<path d="M{believed}" fill="none" stroke="{panel.color}" stroke-width="1.5"/>'
    yield f'<path d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#888"/>'
    yield f'<text x="{LEFT - 22}" y="{top + HEIGHT / 2:.0f}" text-anchor="end">{panel.title}</text>'
    for value in range(panel.most + 1):
        yield f'<text x="{LEFT - 6}" y="{up(value) + 4:.0f}" text-anchor="end">{value}</text>'


def _steps(across: Sequence[float], heights: Sequence[float]) -> str:
    """Returns a path that keeps its height until the next event, up to the end of the day. It only has the changes."""
    path, before = [f"{across[0]:.1f} {heights[0]:.1f}"], f"{heights[0]:.1f}"
    for x, y in zip(across[1:], heights[1:], strict=True):
        if f"{y:.1f}" != before:
            before = f"{y:.1f}"
            path.append(f"H{x:.1f}V{before}")
    return "".join([*path, f"H{LEFT + WIDTH}"])


def _display(contents: Sequence[str], across: Sequence[float], top: float) -> Iterator[str]:
    """Draws a band with the colors of the display's contents, and a legend."""
    yield f'<text x="{LEFT - 22}" y="{top + 16}" text-anchor="end">display</text>'
    begins = [place for place in range(len(contents)) if place == 0 or contents[place] != contents[place - 1]]
    ends = [*(across[place] for place in begins[1:]), float(LEFT + WIDTH)]
    for place, end in zip(begins, ends, strict=True):
        x, shown = across[place], contents[place]
        yield f'<rect x="{x:.1f}" y="{top}" width="{end - x:.1f}" height="20" fill="{SHOWN[shown]}"/>'
    for place, (shown, color) in enumerate(SHOWN.items()):
        x = LEFT + WIDTH - 340 + 90 * place
        yield f'<rect x="{x}" y="8" width="12" height="12" fill="{color}"/><text x="{x + 17}" y="18">{shown}</text>'
