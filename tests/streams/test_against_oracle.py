"""Programs of two statements: what the oracle says of one are events for what it says of the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ensue
from ensue import Detector, Program, QueryError
from harness import events_table
from inside import Event, Field, Pattern, PatternQuery, Return, Statements, positive_names, streams_of
from inside import children_of_pattern as children
from oracle.oracle import OracleEvent, matches
from strategies.histories import FIELDS, batches
from strategies.patterns import cases, queries

pytestmark = pytest.mark.filterwarnings("ignore::ensue.errors.EnsueWarning")

FIRST_DERIVED = 1000
Binding = tuple[str, object]


def with_stream(pattern: Pattern, old: str, new: str) -> Pattern:
    """The pattern over another stream."""
    if isinstance(pattern, Event):
        return replace(pattern, stream=new) if pattern.stream == old else pattern
    inner = tuple(with_stream(child, old, new) for child in children(pattern))
    return replace(pattern, items=inner) if hasattr(pattern, "items") else replace(pattern, item=inner[0])


def declared(name: str, query: PatternQuery) -> PatternQuery:
    """The statement that declares a stream: its events have the fields of the first variable.

    Events of the table that are called like the stream are none of it.
    """
    pattern = with_stream(query.pattern, name, "E")
    variable = positive_names(pattern)[0]
    returns = tuple(Return(Field(variable, field), field) for field in FIELDS)
    return replace(query, pattern=pattern, name=name, declares=True, returns=returns)


@st.composite
def programs(draw: st.DrawFn, *, intervals: bool = False) -> tuple[Program, list[OracleEvent]]:
    """A program of a declared stream and a pattern that uses it, and a history."""
    lower = draw(queries().filter(lambda query: bool(positive_names(query.pattern))))
    upper, history = draw(cases(intervals=intervals))
    name = draw(st.sampled_from(streams_of([upper])))
    program = Program(Statements((upper, declared(name, lower))))
    assume(is_plannable(program))
    return ensue.parse(program.to_text()), history


def is_plannable(program: Program) -> bool:
    try:
        ensue.detect(events_table([]), program, time="time", type="type")
    except QueryError as error:
        if error.code not in ("never-holds", "derived-positions"):
            raise
        return False
    return True


def derived_events(query: PatternQuery, history: list[OracleEvent]) -> dict[OracleEvent, frozenset[int]]:
    """The events of the declared stream, by the oracle, and the events of which each is made."""
    by_id = {event.id: event for event in history}
    variable = positive_names(query.pattern)[0]
    made: dict[OracleEvent, frozenset[int]] = {}
    for match in matches(query, history):
        bindings = dict(match.bindings)
        if match.completion == float("inf"):
            continue
        fields = by_id[bindings[variable]].fields if variable in bindings else dict.fromkeys(FIELDS)
        event = OracleEvent(FIRST_DERIVED + len(made), query.name, match.start, int(match.completion), fields)
        made[event] = frozenset(bindings.values())
    return made


class Expected:
    """What the oracle says of a program."""

    def __init__(self, program: Program, history: list[OracleEvent]) -> None:
        upper, lower = program.statements.results[0], program.statements.declared[0]
        self.made = derived_events(lower, history)
        known = [event for event in history if event.stream != lower.name]
        self.by_id = {event.id: event for event in (*known, *self.made)}
        self.matches = matches(upper, [*known, *self.made])

    def bindings(self, after: float, until: float) -> Counter[tuple[Binding, ...]]:
        return Counter(
            tuple((name, self._shown(event)) for name, event in match.bindings if isinstance(name, str))
            for match in self.matches
            if after < match.completion <= until
        )

    def _shown(self, number: int) -> object:
        event = self.by_id[number]
        return number if number < FIRST_DERIVED else (*event.fields.values(), event.s, event.e)

    def members(self) -> Counter[frozenset[int]]:
        """For each match the events of the table of which it is made."""
        below = {event.id: members for event, members in self.made.items()}
        return Counter(
            frozenset().union(*(below.get(event, frozenset([event])) for _, event in match.bindings))
            for match in self.matches
        )


def shown_bindings(table: pa.Table) -> Counter[tuple[Binding, ...]]:
    names = [field.name for field in table.schema if pa.types.is_struct(field.type)]
    return Counter(
        tuple(
            sorted(
                (name, row[name]["id"] if "id" in row[name] else tuple(row[name].values()))
                for name in names
                if row[name] is not None
            )
        )
        for row in table.to_pylist()
    )


@given(case=programs(), data=st.data(), restoring=st.booleans())
def test_any_cut_of_points(case: tuple[Program, list[OracleEvent]], data: st.DataObject, restoring: bool) -> None:
    check_cut(*case, data, None, restoring)


@given(case=programs(intervals=True), data=st.data(), restoring=st.booleans())
def test_any_cut_of_intervals(case: tuple[Program, list[OracleEvent]], data: st.DataObject, restoring: bool) -> None:
    check_cut(*case, data, "until", restoring)


def check_cut(
    program: Program, history: list[OracleEvent], data: st.DataObject, end: str | None, restoring: bool
) -> None:
    expected = Expected(program, history)

    def new_detector() -> Detector:
        return Detector(program, time="time", type="type", end=end, match_id=True)

    detector, after, ids = new_detector(), float("-inf"), []
    for events, watermark in data.draw(batches(history)):
        step = detector.advance(events_table(events), watermark=watermark)
        assert shown_bindings(step.matches) == expected.bindings(after, watermark)
        assert step.late.num_rows == 0
        ids += step.matches.column("match_id").to_pylist()
        after = watermark
        if restoring:
            saved = detector.snapshot()
            detector = new_detector()
            detector.restore(saved)
    last = detector.finish(events_table([]))
    assert shown_bindings(last.matches) == expected.bindings(after, float("inf"))
    ids += last.matches.column("match_id").to_pylist()
    at_once = ensue.detect(events_table(history), program, time="time", type="type", end=end, match_id=True)
    assert shown_bindings(at_once) == expected.bindings(float("-inf"), float("inf"))
    assert len(set(ids)) == len(ids)
    assert sorted(ids) == sorted(at_once.column("match_id").to_pylist())


@given(case=programs())
def test_lineage_names_the_events_below(case: tuple[Program, list[OracleEvent]]) -> None:
    program, history = case
    expected = Expected(program, history)
    table = events_table(history)
    streams = sorted({event.stream for event in history})
    names = {}
    for stream in streams:
        own = ensue.detect(table, f"PATTERN {stream} v RETURN v.id AS id, lineage(v) AS ids", time="time", type="type")
        names |= {row["ids"][0]: row["id"] for row in own.to_pylist()}
    asking = ensue.parse(_returning_lineage(program).to_text())
    found = ensue.detect(table, asking, time="time", type="type").to_pylist()
    assert Counter(frozenset(names[name] for name in row["ids"]) for row in found) == expected.members()
    times = {event.id: (event.s, event.e) for event in history}
    for row in found:
        order = [times[names[name]] for name in row["ids"]]
        assert order == sorted(order)
        assert len(set(row["ids"])) == len(row["ids"])


def _returning_lineage(program: Program) -> Program:
    upper, lower = program.statements.results[0], program.statements.declared[0]
    column = ensue.parse("PATTERN A a RETURN lineage() AS ids").statements.statements[0].returns[0]
    return Program(Statements((lower, replace(upper, returns=(column,)))))
