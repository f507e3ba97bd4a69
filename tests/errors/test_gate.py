"""A program that is not well formed is refused by every entry point: the same code at the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ensue

EVENTS = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "k": [1, 1, 1], "x": [1, 2, 3]})
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}
GOOD = "PATTERN SEQ(A a, B b) WITHIN 5"


def _state() -> ensue.Detector:
    detector = ensue.Detector(GOOD, **COLUMNS)
    detector.advance(EVENTS, watermark=2)
    return detector


ENTRY_POINTS: dict[str, Callable[[Any], object]] = {
    "explain": lambda program: ensue.explain(program),
    "detect": lambda program: ensue.detect(EVENTS, program, **COLUMNS),
    "detect_batches": lambda program: list(ensue.detect_batches(EVENTS, program, **COLUMNS)),
    "run": lambda program: ensue.run(program, EVENTS, **COLUMNS),
    "violations": lambda program: ensue.violations(EVENTS, program, **COLUMNS),
    "Detector": lambda program: ensue.Detector(program, **COLUMNS),
    "Reactor": lambda program: ensue.Reactor(program, {}, **COLUMNS),
    "act": lambda program: ensue.act(program, EVENTS, {}, **COLUMNS),
    "start": lambda program: ensue.start(program, EVENTS, to="matches", checkpoint="checkpoint", **COLUMNS),
    "why_not": lambda program: ensue.why_not(EVENTS, program, **COLUMNS),
    "justify": lambda program: ensue.justify(EVENTS, program, "0", **COLUMNS),
    "waiting": lambda program: ensue.waiting(program, _state()),
    "report": lambda program: ensue.report(EVENTS, program, **COLUMNS),
    "any_match": lambda program: ensue.any_match(EVENTS, program, **COLUMNS),
    "beliefs": lambda program: ensue.beliefs(EVENTS, program, **COLUMNS),
    "track": lambda program: ensue.track(EVENTS, program, columns={}, **COLUMNS),
    "StateTracker": lambda program: ensue.StateTracker(program, **COLUMNS),
}


def refusal(call: Callable[[], object]) -> tuple[str, int | None, int | None]:
    """The code and the place of the query error that a call raises."""
    with pytest.raises(ensue.QueryError) as caught:
        call()
    return caught.value.code, caught.value.line, caught.value.column


PASSED_THROUGH = (
    "PATTERN SEQ(A a, B b) WITHIN 5; STATE s OF x IN (y, y)",
    "PATTERN SEQ(A a, B b) WITHIN 5; HIERARCHY A > (A 0.5, B 0.5)",
)
"""What `parse` refuses and other entry points once let through."""


@pytest.mark.parametrize("text", PASSED_THROUGH)
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_what_parse_refuses_is_refused_everywhere(name: str, text: str) -> None:
    assert refusal(lambda: ENTRY_POINTS[name](text)) == refusal(lambda: ensue.parse(text))
