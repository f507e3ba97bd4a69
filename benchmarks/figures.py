"""Figures of a benchmark: measured ratios with their targets, as a table or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result: a measured ratio and its target, if there is one."""

    name: str
    value: float
    measure: str
    target: float | None
    at_most: bool = True
    note: str = ""

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.at_most else self.value >= self.target


def show(figures: list[Figure]) -> None:
    table = Table("figure", "value", "measure", "target", "reached", "note")
    for figure in figures:
        sign = "≤" if figure.at_most else "≥"
        compared = figure.target is not None
        table.add_row(
            figure.name,
            f"{figure.value:.2f}",
            figure.measure,
            f"{sign} {figure.target:g}" if compared else "",
            ("yes" if figure.reached else "NO") if compared else "",
            figure.note,
        )
    Console().print(table)


def give(figures: list[Figure], form: str) -> None:
    """Prints the figures as `json` or as a `table`."""
    if form == "json":
        print(json.dumps([{**asdict(figure), "reached": figure.reached} for figure in figures], indent=2))
    else:
        show(figures)
