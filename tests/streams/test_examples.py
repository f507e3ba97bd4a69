"""Small programs of statements that use each other's matches, with answers that are worked out by hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue import EnsueError, EnsueWarning, QueryError

Event = tuple[str, int, int | None, int]
"""Stream, time, key, number."""

VISITS = """
    STREAM Visit FROM PATTERN SEQ(Enter e, Leave l) PARTITION BY who WITHIN 10 RETURN e.who AS who, e.n AS n, l.n AS m;
"""

DAY: tuple[Event, ...] = (
    ("Enter", 1, 1, 1),
    ("Enter", 2, 2, 2),
    ("Leave", 4, 1, 3),
    ("Pay", 5, 1, 4),
    ("Leave", 6, 2, 5),
    ("Enter", 8, 1, 6),
    ("Pay", 9, 2, 7),
    ("Leave", 12, 1, 8),
    ("Pay", 30, 1, 9),
)


MOST_CUTS = 8
"""About how many cuts are tried; properties draw others."""


def table(events: Sequence[Event]) -> pa.Table:
    streams, times, keys, numbers = zip(*events, strict=True) if events else ((), (), (), ())
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "type": pa.array(streams, pa.string()),
            "who": pa.array(keys, pa.int64()),
            "n": pa.array(numbers, pa.int64()),
        }
    )


def at_once(program: str, events: Sequence[Event]) -> list[dict[str, Any]]:
    return ensue.detect(table(events), program, time="t", type="type").to_pylist()


def in_steps(program: str, events: Sequence[Event], watermarks: Sequence[int], restoring: bool) -> list[dict[str, Any]]:
    """The matches step by step, in the order of the steps; each step gives the events up to its watermark."""
    found: list[dict[str, Any]] = []
    detector = ensue.Detector(program, time="t", type="type")
    after = -1
    for watermark in watermarks:
        batch = [event for event in events if after < event[1] <= watermark]
        found += detector.advance(table(batch), watermark=watermark).matches.to_pylist()
        after = watermark
        if restoring:
            saved, detector = detector.snapshot(), ensue.Detector(program, time="t", type="type")
            detector.restore(saved)
    return found + detector.finish(table([event for event in events if event[1] > after])).matches.to_pylist()


def check(program: str, events: Sequence[Event], expected: list[dict[str, Any]]) -> None:
    """At once, and by some cuts into three steps at times of events, with and without a restart after each step."""
    assert at_once(program, events) == expected
    times = sorted({event[1] for event in events})
    pairs = list(combinations(times, 2))
    for first, second in [(-1, -1), *pairs[:: max(1, len(pairs) // MOST_CUTS)]]:
        for restoring in (False, True):
            assert in_steps(program, events, (first, second), restoring) == expected


def test_a_match_is_an_event_from_its_start_to_its_end() -> None:
    program = VISITS + "PATTERN Visit v RETURN v.who, v.n, v.m, v.s AS since, v.e AS until"
    check(
        program,
        DAY,
        [
            {"who": 1, "n": 1, "m": 3, "since": 1, "until": 4},
            {"who": 2, "n": 2, "m": 5, "since": 2, "until": 6},
            {"who": 1, "n": 6, "m": 8, "since": 8, "until": 12},
        ],
    )


def test_a_visit_without_paying_soon_is_complete_when_that_is_known() -> None:
    """NOT at the end of the upper pattern, over an event that lasts."""
    program = (
        VISITS
        + """
        PATTERN SEQ(Visit v, NOT Pay p) PARTITION BY who WITHIN 8 RETURN v.n, v.m"""
    )
    check(program, DAY, [{"n": 6, "m": 8}])


def test_what_lacks_something_is_an_event_when_its_window_has_closed() -> None:
    """NOT at the end of the lower pattern: the event ends when the match is complete."""
    program = """
        STREAM Unpaid FROM PATTERN SEQ(Leave l, NOT Pay p) PARTITION BY who WITHIN 2 RETURN l.who AS who, l.n AS n;
        PATTERN SEQ(Unpaid u, Pay p) PARTITION BY who RETURN u.n, u.s AS since, u.e AS until, p.n AS paid
    """
    check(
        program,
        DAY,
        [{"n": 5, "since": 6, "until": 8, "paid": 7}, {"n": 8, "since": 12, "until": 14, "paid": 9}],
    )


def test_a_declared_stream_is_forbidden_like_any_other() -> None:
    program = (
        VISITS
        + """
        PATTERN SEQ(Pay one, NOT Visit v, Pay two) PARTITION BY who RETURN one.n AS one, two.n AS two"""
    )
    check(program, DAY, [])
    elsewhere = [event for event in DAY if event[:2] != ("Leave", 12)]
    check(program, elsewhere, [{"one": 4, "two": 9}])


def test_three_levels_with_keys_of_their_own() -> None:
    """Visits by person, pairs of visits by nothing, pairs of pairs by the number of the first."""
    program = (
        VISITS
        + """
        STREAM Pair FROM PATTERN AND(Visit one, Visit two) WHERE one.n < two.n WITHIN 11 RETURN one.n AS n, two.n AS m;
        PATTERN AND(Pair a, Pair b) WHERE a.m < b.m PARTITION BY n RETURN a.n, a.m AS first, b.m AS second
    """
    )
    check(program, DAY, [{"n": 1, "first": 2, "second": 6}])


def test_statements_may_use_what_is_declared_below_them_and_at_two_levels() -> None:
    """The same stream of the table is read by both statements."""
    program = (
        """
        PATTERN SEQ(Visit v, Enter e) PARTITION BY who RETURN v.n, e.n AS again;
    """
        + VISITS
    )
    check(program, DAY, [{"n": 1, "again": 6}])


def test_one_program_has_many_results_of_one_stream() -> None:
    program = (
        VISITS
        + """
        PATTERN paid SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n, p.n AS paid;
        PATTERN visits (Visit v) RETURN v.n;
        PATTERN payments (Pay p) RETURN p.n
    """
    )
    found = ensue.run(table(DAY), program, time="t", type="type")
    assert list(found) == ["paid", "visits", "payments"]
    assert found["paid"].to_pylist() == [{"n": 1, "paid": 4}, {"n": 2, "paid": 7}]
    assert found["visits"].to_pylist() == [{"n": 1}, {"n": 2}, {"n": 6}]
    assert found["payments"].num_rows == 3


def test_batches_hold_the_same_matches() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who RETURN v.n, p.n AS paid"
    batches = ensue.detect_batches(table(DAY), program, time="t", type="type")
    found = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(found, key=str) == sorted(at_once(program, DAY), key=str)
    assert len(found) == 4


def test_statements_in_python() -> None:
    """A list of queries is one program, whatever each of them is given as."""
    visit = (
        ensue.seq("Enter e", "Leave l").partition_by("who").within(10).returning("e.who AS who", "e.n AS n")
    ).as_stream("Visit")
    paid = "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n, p.n AS paid"
    expected = [{"n": 1, "paid": 4}, {"n": 2, "paid": 7}]
    assert ensue.detect(table(DAY), [paid, visit], time="t", type="type").to_pylist() == expected
    found = ensue.run(table(DAY), [visit, paid, ensue.event("Pay", "p")], time="t", type="type")
    assert (found["pattern_1"].to_pylist(), found["pattern_2"].num_rows) == (expected, 3)
    with pytest.raises(QueryError, match="found list"):
        ensue.detect(table(DAY), [], time="t", type="type")


def test_tables_per_stream() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n, p.n AS paid"
    tables = {
        stream: table([event for event in DAY if event[0] == stream]).drop_columns("type")
        for stream in ("Pay", "Leave", "Enter")
    }
    expected = [{"n": 1, "paid": 4}, {"n": 2, "paid": 7}]
    assert ensue.detect(tables, program, time="t").to_pylist() == expected
    detector = ensue.Detector(program, time="t")
    first = detector.advance({"Enter": tables["Enter"], "Leave": tables["Leave"], "Pay": tables["Pay"]}, watermark=5)
    assert first.matches.to_pylist() == expected[:1]
    assert detector.finish().matches.to_pylist() == expected[1:]


def test_without_return_the_fields_of_every_variable_are_columns() -> None:
    program = """
        STREAM Visit FROM PATTERN SEQ(Enter e, Leave l) PARTITION BY who WITHIN 5;
        PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8
    """
    match = at_once(program, DAY)[0]
    assert match["who"] == 1
    assert match["v"] == {
        **{"who": 1, "start": 1, "end": 4},
        **{"e_t": 1, "e_type": "Enter", "e_who": 1, "e_n": 1},
        **{"l_t": 4, "l_type": "Leave", "l_who": 1, "l_n": 3},
    }
    asked = program.replace("WITHIN 8", "WHERE v.l_n = 3 WITHIN 8 RETURN v.who, v.e_n, v.l_t")
    check(asked, DAY, [{"who": 1, "e_n": 1, "l_t": 4}])


def test_the_key_of_a_match_is_known_whichever_branch_it_took() -> None:
    program = """
        STREAM Seen FROM PATTERN OR(Enter e, Leave l) PARTITION BY who;
        PATTERN SEQ(Seen a, Seen b) PARTITION BY who WITHIN 3 RETURN a.e_n AS one, b.l_n AS two
    """
    check(program, DAY, [{"one": 1, "two": 3}])


def test_a_stream_that_nothing_uses_costs_nothing_but_is_checked() -> None:
    program = "STREAM Many FROM PATTERN AND(Enter a, Enter b, Enter c, Leave d); PATTERN Pay p WHERE p.n = 4 RETURN p.n"
    assert ensue.detect(table(DAY), program, time="t", type="type", limits=ensue.Limits(matches=1)).to_pylist() == [
        {"n": 4}
    ]
    with pytest.raises(QueryError, match="has no field `m`"):
        at_once("STREAM Many FROM PATTERN Enter e RETURN e.m; PATTERN Pay p", DAY)


def test_the_limit_holds_for_streams_too() -> None:
    program = "STREAM Pair FROM PATTERN AND(Enter a, Enter b); PATTERN Pair p WHERE p.s > 100 RETURN p.s AS s"
    with pytest.raises(EnsueError, match="pattern `Pair` has more than 5 matches"):
        ensue.detect(table(DAY), program, time="t", type="type", limits=ensue.Limits(matches=5))


def test_tables_without_rows() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, NOT Pay p) PARTITION BY who WITHIN 8 RETURN v.n, v.s AS since"
    empty = ensue.detect(table([]), program, time="t", type="type")
    assert empty.num_rows == 0
    assert empty.schema == pa.schema([("n", pa.int64()), ("since", pa.int64())])
    assert in_steps(program, [], (1, 2), restoring=True) == []


def test_types_that_are_learned_later_reach_the_upper_level() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n, p.n AS paid"
    detector = ensue.Detector(program, time="t", type="type")
    nothing = table([]).drop_columns("n").append_column("n", pa.nulls(0))
    assert detector.advance(nothing, watermark=0).matches.num_rows == 0
    assert detector.advance(table(DAY), watermark=40).matches.to_pylist() == [{"n": 1, "paid": 4}, {"n": 2, "paid": 7}]


def test_rows_of_the_tables_are_counted_once() -> None:
    rows = [*DAY, ("Enter", 13, None, 10), ("Pay", 14, None, 11)]
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        report = ensue.run(table(rows), program, time="t", type="type").reports["pattern_1"]
    assert (report.rows, report.null_keys, report.matches) == (11, 1, 2)
    assert [str(warning.message) for warning in said] == ["1 row ignored: no key"]
    detector = ensue.Detector(program, time="t", type="type")
    with pytest.warns(EnsueWarning, match="1 row ignored: no key"):
        detector.advance(table(rows), watermark=14)
    with pytest.warns(EnsueWarning, match="at or before the watermark"):
        late = detector.advance(table([("Leave", 11, 1, 12)]), watermark=20).late
    assert late.num_rows == 1
    assert (detector.report.rows, detector.report.late, detector.report.matches) == (12, 1, 2)


def test_events_without_their_key_are_no_rows_that_were_lost() -> None:
    """A null in a column of RETURN that is a key above: nothing of the table took no part."""
    program = """
        STREAM Seen FROM PATTERN OR(Enter e, Pay p) RETURN e.who AS who, e.n AS n;
        PATTERN SEQ(Seen a, Leave b) PARTITION BY who WITHIN 5 RETURN a.n
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert at_once(program, DAY) == [{"n": 1}, {"n": 2}, {"n": 6}]


def test_state_is_forgotten_at_every_level() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 12 RETURN v.n"
    detector = ensue.Detector(program, time="t", type="type")
    detector.advance(table(DAY), watermark=12)
    assert detector.kept_rows > 0
    assert detector.advance(None, watermark=100).matches.num_rows == 0
    assert detector.kept_rows == 0
    assert detector.report.peak_held > 0


def test_another_program_does_not_go_on_from_a_state() -> None:
    program = VISITS + "PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n"
    detector = ensue.Detector(program, time="t", type="type")
    detector.advance(table(DAY[:5]), watermark=6)
    other = ensue.Detector(program.replace("WITHIN 10", "WITHIN 9"), time="t", type="type")
    with pytest.raises(EnsueError, match="another query"):
        other.restore(detector.snapshot())


def test_constraints_hold_below_and_leave_the_upper_level_alone() -> None:
    program = (
        VISITS
        + """
        PATTERN SEQ(Visit v, Pay p) PARTITION BY who WITHIN 8 RETURN v.n, p.n AS paid;
        CONSTRAINT PRIOR(Enter, Pay) PARTITION BY who
    """
    )
    assert at_once(program, DAY) == [{"n": 1, "paid": 4}, {"n": 2, "paid": 7}]


def test_eager_statements_have_no_not_at_any_level() -> None:
    program = """
        STREAM Unpaid FROM PATTERN SEQ(Leave l, NOT Pay p) PARTITION BY who WITHIN 2 RETURN l.n AS n;
        PATTERN Unpaid u
    """
    with pytest.raises(QueryError, match="eager"):
        ensue.detect(table(DAY), program, time="t", type="type", emit="eager")


def test_columns_of_a_stream_have_names_of_their_own() -> None:
    program = "STREAM Visit FROM PATTERN Enter e RETURN e.n AS `ensue:start`; PATTERN Visit v"
    with pytest.raises(QueryError, match="is reserved by Ensue") as caught:
        at_once(program, DAY)
    assert caught.value.code == "reserved-column"


def test_the_event_of_a_stream_is_no_row_of_its_name() -> None:
    """The table has rows called like the declared stream: the statement says what it is."""
    program = VISITS + "PATTERN Visit v WHERE v.n > 1 RETURN v.n"
    with pytest.warns(EnsueWarning, match="1 row of type `Visit` ignored"):
        assert at_once(program, [*DAY, ("Visit", 3, 1, 77)]) == [{"n": 2}, {"n": 6}]
    misspelt = VISITS + "PATTERN SEQ(Visit v, Pya p) PARTITION BY who RETURN v.n"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert at_once(misspelt, DAY) == []
    assert [str(warning.message) for warning in said] == [
        "column `type` has no value `Pya`; did you mean `Pay`?",
    ]
    assert said[0].filename == __file__


def test_lists_are_columns_of_a_stream_too() -> None:
    program = """
        STREAM Round FROM PATTERN Enter e{2} PARTITION BY who;
        PATTERN SEQ(Round r, Pay p) PARTITION BY who RETURN r.who, r.e_n AS entered, p.n AS paid, lineage(r) AS ids
    """
    found = at_once(program, DAY)
    assert [{**row, "ids": len(row["ids"])} for row in found] == [{"who": 1, "entered": [1, 6], "paid": 9, "ids": 2}]
    check(program, DAY, found)


def test_the_lineage_of_a_list_is_that_of_its_elements() -> None:
    program = (
        VISITS
        + """
        PATTERN SEQ(Enter a, COLLECT Visit v, Pay p) WHERE p.n = 9 AND a.n = 2
        RETURN lineage(v) AS visits, lineage(a) AS one, lineage() AS everything, count(v) AS n
    """
    )
    (row,) = found = at_once(program, DAY)
    assert row["n"] == 1
    own = {
        stream: ensue.detect(table(DAY), f"PATTERN {stream} x RETURN x.n, lineage(x) AS ids", time="t", type="type")
        for stream in ("Enter", "Leave", "Pay")
    }
    names = {line["n"]: line["ids"][0] for lines in own.values() for line in lines.to_pylist()}
    assert row["visits"] == [names[6], names[8]]
    assert row["one"] == [names[2]]
    assert row["everything"] == [names[2], names[6], names[8], names[9]]
    check(program, DAY, found)


def test_a_variable_of_another_branch_has_no_lineage() -> None:
    program = "PATTERN OR(Enter e, Pay p) WHERE e.n = 1 AND p.n = 4 RETURN lineage(e) AS e, lineage(p) AS p"
    assert [(row["e"] is None, row["p"] is None) for row in at_once(program, DAY)] == [(False, True), (True, False)]


def test_equal_events_have_ids_of_their_own() -> None:
    twice = [("Enter", 1, 1, 1), ("Enter", 1, 1, 1), ("Leave", 4, 1, 3)]
    found = at_once(VISITS + "PATTERN Visit v RETURN lineage(v) AS ids", twice)
    assert len({tuple(row["ids"]) for row in found}) == 2
    assert len({row["ids"][0] for row in found}) == 2
    assert len({row["ids"][1] for row in found}) == 1


def test_two_patterns_without_a_name_can_both_have_a_context() -> None:
    events = pa.table({"t": [1, 2, 3, 4], "type": ["A", "A", "B", "C"]})
    pattern = "PATTERN SEQ(A a, B b, C c) WITHIN 9 MATCH {} RETURN a.t AS a"
    found = ensue.run(events, "; ".join(map(pattern.format, ("RECENT", "CHRONICLE"))), time="t", type="type")
    assert [found[name].column("a").to_pylist() for name in ("pattern_1", "pattern_2")] == [[2], [1]]


def test_a_condition_aggregates_what_an_inner_operator_has_listed() -> None:
    events = pa.table({"t": [1, 2, 3, 4, 5, 6, 7], "type": list("AABCABC"), "x": [1, 5, 0, 3, 1, 0, 3]})
    query = "PATTERN SEQ(A a, B b, C c) WHERE max(a.x) {} c.x MATCH CUMULATIVE RETURN list(a.t) AS a, c.t AS c"
    below = ensue.detect(events, query.format("<"), time="t", type="type").to_pylist()
    above = ensue.detect(events, query.format(">"), time="t", type="type").to_pylist()
    assert below == [{"a": [5], "c": 7}]
    assert above == [{"a": [1, 2], "c": 4}]
