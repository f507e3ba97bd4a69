"""What `explain` says of operators, lists, moments and the choice among matches."""

from __future__ import annotations

import re
from io import StringIO
from unittest.mock import patch

import pytest

import ensue
from inside import check_files


def section(text: str, title: str) -> list[str]:
    """The lines of one section of an explanation."""
    found = [part.splitlines() for part in ensue.explain(text).split("\n\n") if part.splitlines()[0] == title]
    return [line.removeprefix("  ") for line in found[0][1:]] if found else []


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (
            "NOTFOLLOWS(B b, D d, 5m)",
            ["NOTFOLLOWS ends 5m after b", "no D d that occurs after b and at most 5m later"],
        ),
        ("NOTPRECEDES(B b, D d, 5)", ["no D d that occurs before b and at most 5 earlier"]),
        ("NOTFOLLOWS(B b, SEQ(C c, D d), 5)", ["no SEQ(C c, D d) that ends after b and at most 5 later"]),
        ("APERIODIC(A a, B b, C c)", ["no C c that occurs no earlier than a and no later than b"]),
        (
            "UNLESS(B b)(A a, C c)",
            ["no B b that occurs after a and before c", "no C c that ends earlier and occurs after a"],
        ),
        (
            "PERIODIC(A a, 5m, C c) AS p WITHIN 1h",
            ["p.e: a moment every 5m after a, up to 1h", "no C c that occurs after a and no later than p.e"],
        ),
        ("PERIODIC*(A a, 5, C c) AS p", ["p: the list of moments, every 5 after a and up to c"]),
        ("APERIODIC*(A a, B b, C c)", ["b: the list of every B b that occurs after a and before c, possibly empty"]),
        ("SEQ(A a, T t+, B b)", ["t: the list of every T t after a and before b, at least 1"]),
        ("SEQ(A a, T t{2,4} ALL, B b)", ["t: the list of every T t after a and before b, 2 to 4"]),
        ("SEQ(A a, T t{3} ALL, B b)", ["t: the list of every T t after a and before b, exactly 3"]),
        (
            "SEQ(A a, B b, T t{0,2} ALL) WITHIN 9",
            ["t: the list of every T t after b and up to 9 after the start of the match, at most 2"],
        ),
        ("SEQ(NOTFOLLOWS(A a, B b, 5), NOT C c, D d)", ["no C c later than 5 after a and before d"]),
        ("SIMULTANEOUS(A a, B b)", ["a and b at the same time"]),
        ("EXCEPT(E e, SEQ(A a, B b))", ["no SEQ(A a, B b) that ends with e"]),
        ("CONCURRENT(A a, B b)", ["a and b overlap"]),
        ("FOLLOWS(A a, AND(B b, C c), 5)", ["  c no later than b", "  b before c"]),
        ("NEXT(A a, B b)", ["b is the next event after a, with no event between"]),
        ("SEQ(A a, B b) WHERE b.t > a.t + 5", ["a before b by more than 5"]),
        ("SEQ(A a, FIRST B b, C c)", ["no B b that ends earlier in an otherwise equal match"]),
    ],
)
def test_graph_says_what_operators_mean(pattern: str, lines: list[str]) -> None:
    said = section(f"PATTERN {pattern}", "GRAPH")
    assert [line for line in lines if line not in said] == []


def test_conditions_on_lists_and_rounds_are_said_as_they_are_written() -> None:
    collected = "PATTERN SEQ(A a, T t+, B b) WHERE avg(t.temp) > a.limit AND t.temp > PREV(t.temp)"
    assert section(collected, "GRAPH")[-2:] == ["avg(t.temp) > a.limit", "t.temp > prev(t.temp)"]
    rounds = section("PATTERN SEQ(A a, B b{2}) WHERE b.x > PREV(b.x) AND sum(b.x) > 3", "GRAPH")
    assert rounds[-2:] == ["b[2].x > b[1].x", "sum([b[1].x, b[2].x]) > 3"]


def test_conditions_on_a_moment_name_it_as_it_is_written() -> None:
    assert "p.e > 10" in section("PATTERN PERIODIC(A a, 5, C c) AS p WHERE p.e > 10", "GRAPH")


def test_of_many_rounds_the_fewest_are_shown() -> None:
    said = section("PATTERN SEQ(A a, B b{2,9}) WITHIN 5", "GRAPH")
    assert said[0] == "branch 1 of 8: b 2 times"
    assert said[-1] == "branch 8 of 8: b 9 times, in order, otherwise like an earlier branch"
    assert sum("b[2]: an event of B" in line for line in said) == 1
    assert section("PATTERN SEQ(A a, B b{2,9}) WITHIN 5", "STATE") == [
        "A as a: kept for 5",
        "B as b: kept for 5 if a came before",
        "bounded",
    ]


def test_branches_that_differ_in_more_than_rounds_are_all_shown() -> None:
    said = section("PATTERN SEQ(A a, OR(B b{1,2}, C c)) WITHIN 5", "GRAPH")
    assert sum("otherwise like an earlier branch" in line for line in said) == 1
    assert "  c: an event of C" in said


def test_the_list_of_a_chain_ends_with_the_match() -> None:
    said = section("PATTERN SEQ(A a, RELATIVE+(B b)) WITHIN 5", "GRAPH")
    assert "b: the list of every B b after a and before one of b, and of that match itself" in said


# -- choice ------------------------------------------------------------------------------------------------------------


def test_a_query_that_says_nothing_of_choice_has_no_such_section() -> None:
    assert "CHOICE" not in ensue.explain("PATTERN SEQ(A a, B b) WITHIN 5")


@pytest.mark.parametrize("clause", ["MATCH UNRESTRICTED", "SHARE", "MATCH UNRESTRICTED SHARE"])
def test_the_default(clause: str) -> None:
    said = section(f"PATTERN SEQ(A a, B b) WITHIN 5 {clause}", "CHOICE")
    assert said == ["all matches are reported; events are shared"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("RECENT", "the latest a before it that fits; no event is used up"),
        ("CHRONICLE", "the oldest open a before it that fits; both events are used up"),
        ("CONTINUOUS", "every open a before it that fits, one match each; the initiators are used up"),
        ("CUMULATIVE", "all open a before it that fit, as lists in one match; the initiators are used up"),
    ],
)
def test_contexts(policy: str, words: str) -> None:
    said = section(f"PATTERN SEQ(A a, B b) WITHIN 5 MATCH {policy}", "CHOICE")
    assert said[0] == f"1. SEQ(A a, B b): each b with {words}"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("AND(A a, B b)", "whichever of a and b ends later, with the latest other that fits"),
        ("CONCURRENT(A a, B b)", "whichever of a and b ends later, with the latest other that fits"),
        ("FOLLOWS(A a, B b, 5)", "each b with the latest a that fits and ends at most 5 before it"),
        ("PRIOR(A a, B b)", "each b with the latest a that fits and ends before it"),
        ("SIMULTANEOUS(A a, B b)", "each b with the latest a that fits and ends with it"),
        ("UNLESS(X x)(A a, B b)", "each b with the latest a that fits and for which it is the first partner"),
        ("APERIODIC(A a, B b, X x)", "each b with the latest a before it that fits"),
        ("RELATIVE(A, B b)", "each b with the latest A before it that fits"),
    ],
)
def test_contexts_at_every_operator(pattern: str, words: str) -> None:
    said = section(f"PATTERN {pattern} MATCH RECENT", "CHOICE")
    text = pattern.replace("RELATIVE", "SEQ")
    assert said[0] == f"1. {text}: {words}; no event is used up"


def test_operators_of_a_context_are_folded_from_the_left() -> None:
    text = "PATTERN SEQ(A a, B b, OR(C c, D)) WHERE a.x = c.x PARTITION BY id WITHIN 5 MATCH CHRONICLE"
    assert section(text, "CHOICE")[:3] == [
        "1. OR(C c, D): every match of its items",
        "2. SEQ(A a, B b): each b with the oldest open a before it that fits; both events are used up",
        "3. SEQ(SEQ(A a, B b), OR(C c, D)): each (c or D) with the oldest open (a, b) before it that fits; both events are used up",  # noqa: E501
    ]
    graph = section(text, "GRAPH")
    assert graph[graph.index("operator 3") :] == [
        "operator 3",
        "  (a, b): a match of operator 2",
        "  (c or D): a match of operator 1",
        "  (a, b) before (c or D), all within 5",
        "  (a, b) lasts at most 5",
        "  (c or D) lasts at most 5",
        "  a.x = c.x",
    ]
    assert "#" not in ensue.explain(text).replace("D#1", "")
    assert section(text, "STATE")[-1] == "for each kept event, the state records whether it is used up"
    assert section(text, "SPARK") == [
        "batch: its operators run together, shuffled by id; time is not sliced",
        "stream: keys of id in buckets, one state each",
    ]


def test_operands_that_could_be_the_same_event() -> None:
    text = "PATTERN AND(SEQ(A a, B b), A c) WITHIN 5 MATCH RECENT"
    assert section(text, "CHOICE")[1] == "2. A c: every event that fits"
    assert section(text, "GRAPH")[-1] == "  a and c are different events"


def test_aggregates_of_what_an_operator_has_listed() -> None:
    text = "PATTERN SEQ(A a, B b, C c) WHERE max(a.x) < c.x WITHIN 5 MATCH CUMULATIVE"
    assert section(text, "GRAPH")[-1] == "  max(a.x) < c.x"


def test_what_is_judged_after_a_context_has_chosen() -> None:
    text = "PATTERN SEQ(A a, B b, NOT C c) WITHIN 5 MATCH {}"
    last = "2. SEQ(SEQ(A a, B b), NOT C c): checked last, for each chosen (a, b)"
    assert section(text.format("RECENT"), "CHOICE")[1] == last
    assert section(text.format("CHRONICLE"), "CHOICE")[1] == f"{last}; events that a rejected match used stay used"


def test_a_context_without_pairs() -> None:
    assert section("PATTERN A a MATCH RECENT", "CHOICE")[-1] == "there are no pairs to choose from"


def test_a_context_is_explained_in_python_and_in_programs_as_well() -> None:
    text = "PATTERN SEQ(A a, B b, C c) WITHIN 5 MATCH RECENT"
    assert ensue.parse(text).explain() == ensue.explain(text) == ensue.parse(text).queries[0].explain()
    program = f"STREAM S FROM {text} RETURN a.x AS x; PATTERN p SEQ(S s, D d) WITHIN 5"
    said = ensue.parse(program).explain()
    assert "2. SEQ(SEQ(A a, B b), C c): each c with the latest (a, b) before it that fits" in said
    assert "S: the matches of this pattern, used by p" in said
    assert "#" not in said


def test_a_context_that_cannot_be_is_refused() -> None:
    with pytest.raises(ensue.QueryError, match="policy-operator"):
        ensue.explain("PATTERN SEQ(A a, B b+, C c) MATCH RECENT")


def test_first_and_last() -> None:
    assert section("PATTERN SEQ(A a, FIRST B b, LAST C c) WITHIN 5", "CHOICE") == [
        "FIRST B b: among matches that differ only in this item, the one in which it ends earliest",
        "LAST C c: among matches that differ only in this item, the one in which it ends latest",
        "a match is reported when its window closes, because a later event could still change the choice",
        "events are shared",
    ]
    assert len(section("PATTERN SEQ(A a, LAST B b, C c) WITHIN 5", "CHOICE")) == 2


def test_match_next_goes_from_event_to_event() -> None:
    text = "PATTERN SEQ(A a, NOT X x, B b, C c) WITHIN 5 MATCH NEXT CONSUME"
    assert section(text, "CHOICE") == [
        "a: every event",
        "b: the earliest event after a that fits a",
        "c: the earliest event after b that fits a, b",
        "NOT is checked after all events are bound; if it fails, no later event is tried",
        "CONSUME: each event is used in one match only; matches are taken by completion time, then by start",
        "a match that needs a used event is not reported and uses no event",
    ]
    assert "bind a, b, c in this order; each binds the next event that fits" in section(text, "PLAN")


def test_match_strict_takes_neighbours() -> None:
    said = section("PATTERN SEQ(A a, SEQ(B, C c)) MATCH STRICT", "CHOICE")
    assert said[0] == "B: the next event of the partition after a, of any stream"
    assert said[1] == "c: the next event of the partition after B, of any stream"


RULES = """
STREAM order(id, q); STREAM shipped(id, z);
RULE overdue(id) <- o: order(id, q), w: extend(o, 6h), while w: not shipped(id, _), q < 10;
RULE report(id, n = count(c)) <- d: overdue(id), w: from_end_backward(d, 24h), while w: collect c: shipped(_, _)
"""


def test_rules_are_explained_one_by_one() -> None:
    text = ensue.parse(RULES).explain()
    assert text.count("RULE\n") == 2
    assert "w ends 6h after o" in text
    assert "w starts 1d before the end of d" in text
    assert "overdue: the events that the rules with this head derive, a result and used by report" in text


def test_what_is_not_stored_and_what_waits_for_a_partner_is_said() -> None:
    """The streaming and the suppressed side of a join, read off the closed bounds."""
    text = ensue.parse(RULES).explain()
    assert "shipped as shipped: kept for 6h if o came before" in text
    assert "overdue as d: not kept" in text


def test_the_keys_of_a_rule_are_what_all_its_events_share() -> None:
    """They need no condition any more, so that the absence is decided without enumeration."""
    text = ensue.parse(RULES).explain()
    assert "events are grouped by id and sorted by time" in text
    assert "absence of shipped: checked by the earliest completion after each start, without enumeration" in text


def test_what_patterns_share() -> None:
    """Only what runs on the same events: another key, or constraints, have events of their own."""
    program = ensue.parse(
        """
        PATTERN p SEQ(A a [v = 1], NOT SEQ(B b, D d), C c) PARTITION BY k WITHIN 9;
        PATTERN q SEQ(A x [v = 1], NOT SEQ(B y, D z), E e) PARTITION BY k WITHIN 9;
        PATTERN r SEQ(A x [v = 2], OR(E e, F f)) PARTITION BY k WITHIN 9;
        PATTERN s SEQ(A x [v = 2], E e) PARTITION BY k WITHIN 9;
        PATTERN t SEQ(A a [v = 2], E e) WITHIN 9
        """
    ).explain()
    p, q, r, s, t = program.split("PATTERN\n")[1:]

    def shared(text: str) -> list[str]:
        return [line.strip() for line in text.split("SHARED\n")[1].rstrip().splitlines()]

    assert shared(p) == [
        "matches of SEQ(B b, D d): computed once, shared with q",
        "events of A[v = 1]: computed once, shared with q",
        "events of B: computed once, shared with q",
        "events of D: computed once, shared with q",
    ]
    assert "matches of SEQ(B y, D z): computed once, shared with p" in shared(q)
    assert shared(r)[0] == "matches of branch 1: computed once, shared with s"
    assert shared(s) == [
        "matches: computed once, shared with r",
        "events of A[v = 2]: computed once, shared with r",
        "events of E: computed once, shared with q, r",
    ]
    assert "SHARED" not in t


@pytest.mark.parametrize("clauses", ["", "MATCH RECENT "])
def test_spans_are_shown_as_written_and_planned_as_what_they_mean(clauses: str) -> None:
    """So `check` accepts them, and so does the pattern that uses the column: it has the name of the function."""
    items = "AND(A a, B b)" if clauses else "SEQ(COLLECT B b, A a)"
    program = f"""
    STREAM s FROM PATTERN {items} WITHIN 9 {clauses}RETURN span_start(), span_end() AS until;
    PATTERN q SEQ(s x, C c) WHERE c.t - x.span_start > 2 AND x.until < c.t WITHIN 20 RETURN x.span_start
    """
    text = ensue.explain(program)
    assert "RETURN span_start(), span_end() AS until" in text
    assert "match span" not in text
    assert not problems_of(program)


def problems_of(text: str) -> list[object]:
    """What `ensue check -` finds in a text."""
    with patch("sys.stdin", StringIO(text)):
        return [finding.rendered for finding in check_files(["-"])]


def test_durations_have_the_form_of_a_query() -> None:
    """Nothing that is explained spells a unit out, and the query can be typed back."""
    text = "PATTERN SEQ(A a, NOT C c, B b) WHERE b.t - a.t >= 90 seconds WITHIN 1 day 2 hours"
    explained = ensue.explain(text)
    assert re.findall(r"[0-9] (?:ns|us|ms|s|seconds?|min|minutes?|h|hours?|d|days?|weeks?)\b", explained) == []
    for part in (
        "WITHIN 1d 2h",
        "a before b by at least 1m 30s, all within 1d 2h",
        "kept for 1d 2h",
        "slices of 17d 8h",
    ):
        assert part in explained
    query = explained.partition("PATTERN\n")[2].partition("\n\n")[0]
    assert ensue.parse(query).statements == ensue.parse(text).statements


DURING = "RULE inside(k) <- x: a(k=k), y: b(k=k), x during y"


def test_intervals_are_explained_with_and_without_the_name_of_the_end_column() -> None:
    lines = ["x: an event of a", "y: an event of b", "y and x overlap, x ends before y ends"]
    unknown = ensue.explain(DURING)
    assert all(line in unknown for line in lines)
    assert "requires events with a duration: set `end` to the column with their ends" in unknown
    for known in (ensue.explain(DURING, end="until"), ensue.parse(DURING).explain(end="until")):
        assert all(line in known for line in lines)
        assert "requires events with a duration" not in known


def test_a_rule_of_xchangeeq_over_intervals_is_explained() -> None:
    """Rule (5) of the paper on XChangeEQ: `during` cannot hold for points."""
    rule = "RULE d(u, v, w, x) <- i: a(u, v), j: b(v, w), k: c(w, x), i before k, j during k"
    assert "k and j overlap, j ends before k ends" in ensue.explain(rule)


def test_branches_that_need_durations_are_not_left_out() -> None:
    explained = ensue.explain("PATTERN OR(CONCURRENT(a x, b y), a z)")
    assert "branch 1 of 2" in explained
    assert "requires events with a duration" in explained
    assert "duration" not in ensue.explain("PATTERN OR(SEQ(a x, b y), a z)").partition("PLAN")[0]


def test_what_even_intervals_cannot_satisfy_is_refused() -> None:
    with pytest.raises(ensue.QueryError) as caught:
        ensue.explain("RULE h(k) <- x: a(k=k), y: b(k=k), x during y, y during x")
    assert caught.value.code == "never-holds"
    assert "duration" not in str(caught.value)


def test_a_query_in_python_is_explained_with_an_end_column() -> None:
    pattern = ensue.seq("A a", "B b")
    assert "requires events" not in pattern.explain(end="until")
    assert pattern.as_pattern("p").explain(end="until").startswith("PATTERN")


SPARK = {
    "PATTERN SEQ(A a, B b) WHERE a.src = b.dst WITHIN 5": [
        "batch: shuffled by a.src = b.dst and time slices of 80 that overlap by 5",
        "stream: keys of a.src = b.dst in buckets, one state each",
    ],
    "PATTERN SEQ(A a, A b) WHERE a.src = b.dst": [
        "batch: shuffled by a.src = b.dst, rows of A once for each of src, dst; time is not sliced, because "
        "the duration of a match is not limited",
        "stream: in one task, with one state, because it would need rows of A once for each of src, dst",
    ],
    "PATTERN SEQ(A a, A b) WHERE a.src = b.dst WITHIN 5": [
        "batch: shuffled by time slices of 80 that overlap by 5",
        "stream: in one task, with one state, because it would need rows of A once for each of src, dst",
    ],
    "CONSTRAINT PRIOR(A, B) PARTITION BY k; PATTERN SEQ(A a, B b) WHERE a.src = b.dst PARTITION BY k": [
        "batch: shuffled by k; time is not sliced, because constraints apply to whole traces",
        "stream: keys of k in buckets, one state each",
    ],
    "RULE h(u) <- x: A(src=u), y: B(dst=u)": [
        "batch: its rules and their result, shuffled by x.src = y.dst; time is not sliced",
        "stream: keys of x.src = y.dst in buckets, one state each",
    ],
    "RULE h(w) <- x: A(src=u, w=w), y: B(dst=u)": [
        "batch: its rules and their result in one task, because they share no key that their streams keep",
        "stream: in one task, with one state, for the same reason",
    ],
}


@pytest.mark.parametrize("text", SPARK)
def test_where_events_go_on_spark(text: str) -> None:
    assert section(text, "SPARK") == SPARK[text]


def test_on_a_stream_a_pattern_runs_with_the_others_without_a_key() -> None:
    one, two = "PATTERN one SEQ(A a, B b) WHERE a.src = b.dst", "PATTERN two SEQ(A a, C c) WHERE a.src = c.x"
    apart = "stream: in one task with the other statements without PARTITION BY, because"
    text = ensue.parse(f"{one}; {two}").explain()
    assert "batch: shuffled by a.src = b.dst; " in text
    assert "stream: keys of a.src = b.dst in buckets, one state each" in text
    assert f"{apart} no equality connects `a` and `d`" in ensue.parse(f"{one}; PATTERN three SEQ(A a, D d)").explain()
