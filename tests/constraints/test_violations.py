"""Traces that break constraints, against a reference that looks at each trace by itself."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ensue
from constraints.strategies import STREAMS, constraint_sets, modest
from inside import (
    Clause,
    Constraint,
    Ends,
    EndsWithin,
    Law,
    Prior,
    clauses_of,
    contradictory_constraints,
    render_constraint,
)

Row = tuple[int, int, str]
"""A time, a key and a stream."""

Violation = tuple[int, str, str, int, str | None, int | None]
"""A key, a constraint, the event that breaks it, the one that it clashes with."""


def traces_of(rows: list[Row], constraints: tuple[Constraint, ...]) -> list[list[Row]]:
    """The rows of one key, cut where a trace has ended."""
    ends = {stream for constraint in constraints if isinstance(constraint, Ends) for stream in constraint.streams}
    limits = [constraint.window.count for constraint in constraints if isinstance(constraint, EndsWithin)]
    traces: list[list[Row]] = []
    for row in sorted(rows):
        current = traces[-1] if traces else []
        ended = any(stream in ends and time < row[0] for time, _, stream in current)
        expired = any(row[0] - current[0][0] > limit for limit in limits) if current else False
        if not current or ended or expired:
            traces.append([])
        traces[-1].append(row)
    return traces


def broken(trace: list[Row], following: Row | None, constraints: tuple[Constraint, ...]) -> list[Violation]:
    """What one trace breaks; `following` is the next event of its key."""
    key = trace[0][1]
    first: dict[str, int] = {}
    for time, _, stream in trace:
        first.setdefault(stream, time)
    found: list[Violation] = []
    limits = [constraint.window.count for constraint in constraints if isinstance(constraint, EndsWithin)]
    for constraint in constraints:
        text = render_constraint(constraint)
        if isinstance(constraint, Prior) and constraint.later in first:
            since = first[constraint.later]
            after = [time for time, _, stream in trace if stream == constraint.earlier and time > since]
            found += [(key, text, constraint.earlier, after[0], constraint.later, since)] if after else []
        by_clause = [entry for clause in clauses_of(constraint) for entry in clause_broken(clause, first, key, text)]
        found += sorted(by_clause, key=lambda entry: (entry[3], entry[5] or 0))[:1]
    endings = sorted((first[s], s) for c in constraints if isinstance(c, Ends) for s in c.streams if s in first)
    expired = following is not None and any(following[0] - trace[0][0] > limit for limit in limits)
    if endings and following is not None and not expired:
        when = endings[0][0]
        which = next(
            c for c in constraints if isinstance(c, Ends) and any(first.get(stream) == when for stream in c.streams)
        )
        found.append((key, render_constraint(which), following[2], following[0], "", when))
    return found


def clause_broken(clause: Clause, first: dict[str, int], key: int, text: str) -> list[Violation]:
    if not clause.body <= first.keys():
        return []
    times = sorted((first[stream], stream) for stream in clause.body)
    if clause.head is None:
        return [(key, text, "", times[-1][0], "", times[-2][0])]
    return [] if clause.head in first else [(key, text, "", times[-1][0], None, None)]


def shown(row: Violation) -> tuple[object, ...]:
    """Without the names where events tie; where several constraints end a trace, any one of them is named."""
    return (row[0], row[1].split("(")[0] if row[1].startswith("ENDS") else row[1], row[3], row[5])


@modest
@given(
    constraints=constraint_sets(STREAMS),
    rows=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.sampled_from(STREAMS)), max_size=14),
    cuts=st.lists(st.integers(0, 30), max_size=3),
)
def test_violations_are_those_of_the_reference(
    constraints: tuple[Constraint, ...], rows: list[Row], cuts: list[int]
) -> None:
    named = {stream for constraint in constraints for stream in constraint.streams}
    assume(named and not contradictory_constraints(Law(constraints)))
    rows = sorted(row for row in rows if row[2] in named)
    judged_at_end = not any(isinstance(constraint, Ends | EndsWithin) for constraint in constraints)
    expected: Counter[tuple[object, ...]] = Counter()
    for key in {row[1] for row in rows}:
        traces = traces_of([row for row in rows if row[1] == key], constraints)
        for trace, following in zip(traces, [*(trace[0] for trace in traces[1:]), None], strict=True):
            open_ended = not judged_at_end and not is_over(trace, following, constraints)
            found = broken(trace, following, constraints)
            expected.update(shown(entry) for entry in found if not (open_ended and entry[4] is None))
    table = pa.table(
        {
            "t": pa.array([row[0] for row in rows], pa.int64()),
            "k": pa.array([row[1] for row in rows], pa.int64()),
            "type": pa.array([row[2] for row in rows], pa.string()),
        }
    )
    text = ";\n".join(f"CONSTRAINT {render_constraint(constraint)} PARTITION BY k" for constraint in constraints)
    assert seen(ensue.violations(table, text, time="t", type="type")) == expected
    pattern = f"PATTERN SEQ({min(named)} a, {max(named)} b) PARTITION BY k WITHIN 3 EVENTS"
    detector = ensue.Detector(pattern, time="t", type="type", constraints=text, violations=True)
    by_steps: Counter[tuple[object, ...]] = Counter()
    before = -1
    try:
        detector.advance(table.slice(0, 0), watermark=before)
    except ensue.QueryError as error:
        if error.code not in ("never-lawful", "contradictory-constraints"):
            raise
        return
    for cut in sorted({*cuts, 30}):
        part = table.filter((pa.compute.field("t") > before) & (pa.compute.field("t") <= cut))
        by_steps += seen(detector.advance(part, watermark=cut).violations)
        before = cut
    by_steps += seen(detector.finish().violations)
    assert by_steps == expected


def is_over(trace: list[Row], following: Row | None, constraints: tuple[Constraint, ...]) -> bool:
    """Whether the trace has ended: by an event, by another trace, or, at the end of time, by its lifetime."""
    ends = {stream for constraint in constraints if isinstance(constraint, Ends) for stream in constraint.streams}
    timed = any(isinstance(constraint, EndsWithin) for constraint in constraints)
    return following is not None or timed or any(stream in ends for _, _, stream in trace)


def seen(table: pa.Table) -> Counter[tuple[object, ...]]:
    rows = ((row["k"], row["constraint"], "", row["at"], "", row["other_at"]) for row in table.to_pylist())
    return Counter(map(shown, rows))


def test_three_that_exclude_each_other_are_one_violation() -> None:
    table = pa.table({"t": [1, 2, 3], "type": ["A", "B", "C"], "k": [1, 1, 1]})
    found = ensue.violations(
        table, constraints="CONSTRAINT EXCLUSIVE(A, B, C)", partition_by="k", time="t", type="type"
    )
    assert [(row["event"], row["at"], row["other"]) for row in found.to_pylist()] == [("B", 2, "A")]


def test_a_trace_that_only_lasts_cannot_be_broken() -> None:
    table = pa.table({"t": [1], "type": ["A"], "k": [1]})
    with pytest.raises(ensue.QueryError) as caught:
        ensue.violations(table, "CONSTRAINT ENDS WITHIN 5 PARTITION BY k", time="t", type="type")
    assert caught.value.code == "no-constraint"


@pytest.mark.parametrize("backwards", [False, True])
def test_events_of_one_moment_break_no_order(backwards: bool) -> None:
    """Only what lies strictly after breaks PRIOR, in whichever order rows of one time come."""
    rows = [(5, "A", 1), (5, "B", 1), (5, "A", 2), (5, "B", 2), (6, "A", 2)]
    times, types, keys = zip(*(rows[::-1] if backwards else rows), strict=True)
    table = pa.table({"t": times, "type": types, "k": keys})
    found = ensue.violations(table, "CONSTRAINT PRIOR(A, B) PARTITION BY k", time="t", type="type").to_pylist()
    assert [(row["k"], row["event"], row["at"], row["other_at"]) for row in found] == [(2, "A", 6, 5)]
