"""The paper's numbers, hidden Markov models by matrices, policies, and what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hmmlearn.hmm import CategoricalHMM

import ensue
from inside import format_text

HOME = """
STATE location OF alice, bob IN (living, den, kitchen, outside)
  PARTITION BY home
  STARTS outside
  ON Moved m: MOVE ANYONE FROM m.source TO m.target
  ON Entered e: MOVE e.person FROM outside TO living
  ON Seen s: OBSERVE s.person IN s.source RELIABILITY 0.9
"""


def rows(*events: tuple[Any, ...]) -> pa.Table:
    names = ("t", "type", "home", "person", "source", "target")
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.string(), pa.string(), pa.string())
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    return pa.Table.from_pylist([dict(zip(names, event, strict=True)) for event in events], schema)


def chance(table: pa.Table, condition: str, program: str = HOME, **options: Any) -> float:
    found = ensue.beliefs.of(table, program, time="t", type="type", **options).probability(condition)
    [value] = found.column("probability").to_pylist()
    return value


def test_a_sighting_of_reliability_nine_tenths_turns_half_and_half_into_nine_and_one() -> None:
    for model in ("RELIABILITY 0.9", "ERRORS (den -> kitchen 0.1, kitchen -> den 0.1)"):
        program = f"STATE s OF alice IN (den, kitchen) ON Seen s: OBSERVE alice IN s.source {model}"
        seen = rows((1, "Seen", 1, None, "den", None))
        assert chance(seen, "alice in den", program) == pytest.approx(0.9, abs=1e-12)
        assert chance(seen, "alice in kitchen", program) == pytest.approx(0.1, abs=1e-12)


def test_who_alone_was_in_the_living_room_is_who_went_to_the_den() -> None:
    events = rows((1, "Entered", 1, "alice", None, None), (2, "Moved", 1, None, "living", "den"))
    assert chance(events, "alice in den") == 1.0
    assert chance(events, "bob in outside") == 1.0


def test_of_two_in_the_living_room_each_is_equally_likely_to_have_gone() -> None:
    both = [(1, "Entered", 1, "alice", None, None), (1, "Entered", 1, "bob", None, None)]
    events = rows(*both, (2, "Moved", 1, None, "living", "den"))
    assert chance(events, "alice in den") == 0.5
    assert chance(events, "alice in den and bob in living") == 0.5
    assert chance(events, "everyone in den") == 0.0
    told = ensue.beliefs.of(events, HOME, time="t", type="type").given("bob in den").probability("alice in living")
    assert told.column("probability").to_pylist() == [1.0]


def test_a_hidden_markov_model_is_filtered_as_by_the_forward_algorithm_and_by_a_library() -> None:
    random = np.random.default_rng(11)
    size, steps = 4, 200
    transition = random.dirichlet(np.full(size, 0.7), size).round(3)
    emission = random.dirichlet(np.full(size, 0.7), size).round(3)
    for matrix in (transition, emission):
        matrix[np.diag_indices(size)] += 1 - matrix.sum(axis=1)
    names = [f"v{number}" for number in range(size)]

    def arrows(matrix: np.ndarray) -> str:
        pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
        return ", ".join(f"{names[i]} -> {names[j]} {float(matrix[i, j])!r}" for i, j in pairs)

    program = f"""
    STATE chain OF x IN ({", ".join(names)})
      ON Step s: MOVE x BY ({arrows(transition)})
      ON Step s: OBSERVE x IN s.seen ERRORS ({arrows(emission)})
    """
    observed = random.integers(0, size, steps)
    table = pa.table({"t": range(steps), "type": ["Step"] * steps, "seen": [names[number] for number in observed]})
    columns = {name: f"P(x in {name})" for name in names}
    found = ensue.beliefs.track(table, program, columns, time="t", type="type").select(names).to_pandas().to_numpy()
    forward = np.full(size, 1 / size)
    for step in range(steps):
        forward = (forward @ transition) * emission[:, observed[step]]
        forward /= forward.sum()
        np.testing.assert_allclose(found[step], forward, atol=1e-9)
    model = CategoricalHMM(size, init_params="", params="")
    model.startprob_, model.transmat_, model.emissionprob_ = np.full(size, 1 / size) @ transition, transition, emission
    for seen in (1, 2, 20, steps):
        posterior = model.predict_proba(observed[:seen].reshape(-1, 1))
        np.testing.assert_allclose(found[seen - 1], posterior[-1], atol=1e-9)


def test_time_alone_moves_by_powers_of_the_transition() -> None:
    program = """STATE s OF a IN (x, y) STARTS x ON Sign s: OBSERVE a IN x RELIABILITY 0.5
      EVERY 10 MOVE BY (x -> y 0.1, y -> x 0.2)"""
    table = pa.table({"t": [5], "type": ["Sign"]})
    matrix = np.array([[0.9, 0.1], [0.2, 0.8]])
    for moment, periods in ((5, 0), (9, 0), (10, 1), (39, 3), (10_000_005, 1_000_000)):
        found = ensue.beliefs.of(table, program, time="t", type="type", at=moment).probability("a in x")
        wanted = np.linalg.matrix_power(matrix, periods)[0, 0]
        assert found.column("probability").to_pylist() == [pytest.approx(wanted, abs=1e-9)]


IMPOSSIBLE = (
    (1, "Entered", 1, "alice", None, None),
    (2, "Entered", 1, "alice", None, None),
    (3, "Moved", 1, None, "living", "den"),
)


def test_a_contradiction_says_which_event_and_which_state() -> None:
    with pytest.raises(ensue.QueryError) as raised:
        chance(rows(*IMPOSSIBLE), "alice in den")
    assert raised.value.code == "state-contradiction"
    said = raised.value.problems[0].message
    assert "`Entered` at 2, home 1" in said
    assert "alice: living 1" in said
    assert raised.value.line == 6


def test_contradicting_events_are_skipped_and_handed_back() -> None:
    with pytest.warns(ensue.EnsueWarning, match="1 row ignored: contradiction .state `location`"):
        found = ensue.beliefs.of(rows(*IMPOSSIBLE), HOME, time="t", type="type", policy="skip")
    assert found.probability("alice in den").column("probability").to_pylist() == [1.0]
    assert found.ignored.select(["t", "ensue_reason"]).to_pylist() == [
        {"t": 2, "ensue_reason": "ignored: contradiction (state `location`)"}
    ]


@pytest.mark.filterwarnings("ignore::ensue.EnsueWarning")
def test_a_reset_begins_anew_and_then_takes_the_event() -> None:
    both = rows(*((moment, "Entered", 1, who, None, None) for moment, who in ((1, "alice"), (1, "bob"), (2, "alice"))))
    assert chance(both, "bob in outside and alice in living", policy="reset") == 1.0


def test_what_is_not_declared_is_an_error_or_handed_back() -> None:
    events = rows((1, "Entered", 1, "carol", None, None), (2, "Moved", 1, None, "outside", "livng"))
    with pytest.raises(ensue.QueryError, match="unknown variable `carol` of state `location` in `person`") as raised:
        chance(events, "alice in den")
    assert raised.value.code == "state-value"
    with pytest.warns(ensue.EnsueWarning, match="2 rows ignored: undeclared variable or value"):
        found = ensue.beliefs.of(events, HOME, time="t", type="type", policy="skip")
    assert found.ignored.num_rows == 2
    assert found.probability("everyone in outside").column("probability").to_pylist() == [1.0]


def test_rows_without_a_time_key_or_value_are_counted_and_handed_back() -> None:
    events = rows(
        (None, "Entered", 1, "alice", None, None),
        (1, "Entered", None, "alice", None, None),
        (1, "Entered", 1, None, None, None),
    )
    with pytest.warns(ensue.EnsueWarning):
        found = ensue.beliefs.of(events, HOME, time="t", type="type")
    assert [row["ensue_reason"] for row in found.ignored.to_pylist()] == [
        "ignored: no timestamp (state `location`)",
        "ignored: no key (state `location`)",
        "ignored: missing value (state `location`)",
    ]


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), None])
def test_a_probability_lies_between_0_and_1(value: float | None) -> None:
    events = rows((1, "Entered", 1, "alice", None, None)).append_column("p", pa.array([value], pa.float64()))
    with pytest.raises(ensue.SchemaError, match=r"row 0 of the table has .* in column `p`") as raised:
        chance(events, "alice in den", probability="p")
    assert raised.value.code == "probability-value"


def test_an_uncertain_event_mixes_what_is_with_it_and_without() -> None:
    events = rows((1, "Entered", 1, "alice", None, None)).append_column("p", pa.array([0.7]))
    assert chance(events, "alice in living", probability="p") == pytest.approx(0.7)
    assert (
        chance(rows(*IMPOSSIBLE[:2]).append_column("p", pa.array([1.0, 0.7])), "alice in living", probability="p") == 1
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("STATE s OF a IN (x)", "state-domain"),
        ("STATE s OF a, a IN (x, y)", "state-repeats"),
        ("STATE s OF a IN (x, y, x)", "state-repeats"),
        ("STATE s OF a IN (x, y); STATE t OF a IN (u, v)", "state-repeats"),
        ("STATE s OF a IN (x, y) STARTS z", "state-unknown"),
        ("STATE s OF a IN (x, y) STARTS b: x", "state-unknown"),
        ("STATE s OF a IN (x, y) STARTS (x 0.5, y 0.4)", "state-probability"),
        ("STATE s OF a IN (x, y) STARTS x STARTS y", "duplicate-clause"),
        ("STATE s OF a IN (x, y) ON M m: MOVE b TO x", "state-unknown"),
        ("STATE s OF a IN (x, y) ON M m: MOVE a TO z", "state-unknown"),
        ("STATE s OF a IN (x, y) ON M m: MOVE n.who TO x", "unknown-variable"),
        ("STATE s OF a IN (x, y) ON M m: MOVE NOBODY TO x", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: MOVE ANYONE BY (x -> y 0.5)", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: MOVE a BY (x -> y 1.5)", "state-probability"),
        ("STATE s OF a IN (x, y, z) ON M m: MOVE a BY (x -> y 0.6, x -> z 0.6)", "state-probability"),
        ("STATE s OF a IN (x, y) ON M m: MOVE a BY (x -> x 0.5)", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: OBSERVE EVERYONE IN x", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: OBSERVE a IN x RELIABILITY 2", "state-probability"),
        ("STATE s OF a IN (x, y) ON M m: OBSERVE a IN x FALSE ALARM 0.1", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: OBSERVE ANYONE IN x ERRORS (x -> y 0.1)", "state-change"),
        ("STATE s OF a IN (x, y) ON M m: OBSERVE a IN x RELIABILITY 0.9 ERRORS (x -> y 0.1)", "state-change"),
        ("STATE s OF a IN (x, y) EVERY 5 EVENTS MOVE BY (x -> y 0.1)", "window-size"),
        ("STATE s OF a IN (x, y) EVERY 5 MOVE m.who BY (x -> y 0.1)", "state-change"),
        ("STATE s OF a", "syntax"),
    ],
)
def test_what_is_wrong_with_a_state_is_said_before_there_are_events(text: str, code: str) -> None:
    with pytest.raises(ensue.QueryError) as raised:
        ensue.parse(text)
    assert raised.value.code == code
    assert raised.value.line == 1


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("alice in attic", "state-unknown"),
        ("carol in den", "state-unknown"),
        ("alice in den and door in open", "state-mixed"),
        ("alice in open", "state-mixed"),
        ("count(shared) > 0", "state-mixed"),
        ("alice den", "syntax"),
        ("", "empty-query"),
    ],
)
def test_what_is_wrong_with_a_question(question: str, code: str) -> None:
    program = "STATE p OF alice IN (den, shared) ON A a: MOVE alice TO den; STATE d OF door IN (open, shared)"
    found = ensue.beliefs.of(pa.table({"t": [1], "type": ["A"]}), program, time="t", type="type")
    with pytest.raises(ensue.QueryError) as raised:
        found.probability(question)
    assert raised.value.code == code
    assert found.of("d").probability("count(shared) > 0").column("probability").to_pylist() == [0.5]


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        ("MOVE m.who TO x", {}, "no-such-field"),
        ("MOVE m.flag TO x", {}, "state-column"),
        ("MOVE a TO x PROBABILITY m.who2", {}, "no-such-field"),
        ("MOVE a TO x PROBABILITY m.type", {}, "probability-value"),
        ("MOVE a TO x", {"probability": "chance"}, "no-such-column"),
        ("MOVE a TO x", {"policy": "ignore"}, "state-policy"),
        ("MOVE a TO x", {"largest_joint": 0}, "limit-type"),
    ],
)
def test_what_is_wrong_with_the_events(change: str, options: dict[str, Any], code: str) -> None:
    table = pa.table({"t": [1], "type": ["M"], "flag": [True]})
    with pytest.raises(ensue.EnsueError) as raised:
        ensue.beliefs.of(table, f"STATE s OF a IN (x, y) ON M m: {change}", time="t", type="type", **options)
    assert raised.value.code == code  # type: ignore[attr-defined]


def test_a_program_without_a_state_has_no_beliefs() -> None:
    with pytest.raises(ensue.QueryError) as raised:
        ensue.beliefs.of(pa.table({"t": [1]}), "PATTERN A a", time="t")
    assert raised.value.code == "no-state-declared"


def test_results_are_of_the_kind_of_the_events() -> None:
    table = rows((1, "Entered", 1, "alice", None, None))
    for frame, kind in ((table.to_pandas(), pd.DataFrame), (pl.from_arrow(table), pl.DataFrame)):
        found = ensue.beliefs.of(frame, HOME, time="t", type="type")
        assert isinstance(found.joint("alice"), kind)
        assert isinstance(found.ignored, kind)
        assert isinstance(ensue.beliefs.track(frame, HOME, {"n": "E(count(living))"}, time="t", type="type"), kind)
    per_stream = ensue.beliefs.track({"Entered": table}, HOME, {"n": "E(count(living))"}, time="t")
    assert per_stream["Entered"].column("n").to_pylist() == [1.0]


def test_before_is_the_belief_without_the_event() -> None:
    table = rows((1, "Entered", 1, "alice", None, None), (2, "Entered", 1, "bob", None, None))
    for limit in (4096, 1):
        found = ensue.beliefs.track(
            table, HOME, {"n": "E(count(living))"}, time="t", type="type", before=True, largest_joint=limit
        )
        assert found.column("n").to_pylist() == [0.0, 1.0]


def test_late_events_are_handed_back() -> None:
    tracker = ensue.Detector(HOME, time="t", type="type")
    tracker.advance(rows((5, "Entered", 1, "alice", None, None)), watermark=5)
    with pytest.warns(ensue.EnsueWarning, match="at or before the watermark"):
        step = tracker.advance(rows((4, "Entered", 1, "bob", None, None)), watermark=6)
    assert step.late.column("person").to_pylist() == ["bob"]
    assert tracker.beliefs().probability("bob in outside").column("probability").to_pylist() == [1.0]


def test_an_error_leaves_a_tracker_as_it_was() -> None:
    tracker = ensue.Detector(HOME, time="t", type="type")
    tracker.advance(rows(IMPOSSIBLE[0]), watermark=1)
    before = tracker.snapshot()
    with pytest.raises(ensue.QueryError):
        tracker.advance(rows(IMPOSSIBLE[1]), watermark=2)
    assert tracker.snapshot().equals(before)
    other = ensue.Detector("STATE s OF a IN (x, y)", time="t", type="type")
    with pytest.raises(ensue.StateError) as raised:
        other.restore(before)
    assert raised.value.code == "state-query"


def test_formatting_keeps_a_state_and_its_comments() -> None:
    text = "-- who is where\nstate s of a in (x,y) starts evenly on M m: move a to y;"
    assert format_text(text) == "-- who is where\nSTATE s OF a IN (x, y)\n  STARTS EVENLY\n  ON M m: MOVE a TO y;\n"


LEAK = """
STATE location OF alice, bob IN (kitchen, den, outside) PARTITION BY home STARTS outside
  ON Entered e: MOVE e.person FROM outside TO e.source;
PATTERN SEQ(Leak l) WHERE P(anyone in kitchen) > 0.9 RETURN l.home AS home, l.MOST LIKELY(alice) AS alice
"""


def test_patterns_use_state() -> None:
    leaks = rows(
        (1, "Leak", 1, None, None, None),
        (2, "Entered", 1, "alice", "kitchen", None),
        (3, "Leak", 1, None, None, None),
        (4, "Leak", 2, None, None, None),
    )
    for frame in (leaks, {"Leak": leaks.filter(pa.array([True, False, True, True])), "Entered": leaks.slice(1, 1)}):
        options = {"time": "t"} if isinstance(frame, dict) else {"time": "t", "type": "type"}
        assert ensue.detect(frame, LEAK, **options).to_pylist() == [{"home": 1, "alice": "kitchen"}]
        assert ensue.run(frame, LEAK, **options)["pattern_1"].num_rows == 1
    assert ensue.parse(ensue.parse(LEAK).to_text()) == ensue.parse(LEAK)
    local = LEAK.replace("WHERE P(anyone in kitchen) > 0.9", "").replace("Leak l", "Leak l [E(count(kitchen)) = 1]")
    assert ensue.detect(leaks, local, time="t", type="type").num_rows == 1


def test_questions_of_several_events_say_at_which() -> None:
    with pytest.raises(ensue.QueryError) as raised:
        ensue.parse(LEAK.replace("SEQ(Leak l)", "SEQ(Leak l, Leak m)"))
    assert raised.value.code == "unqualified-field"


def test_streams_and_heads_may_be_called_p_and_e() -> None:
    program = ensue.parse("RULE e(x) <- p(x), x > 5; PATTERN SEQ(P p, E e) WHERE p.e = e.p")
    assert program.names == ("pattern_1", "e")


def test_a_state_in_python_is_that_of_its_text() -> None:
    built = ensue.beliefs.state(
        "location",
        ["alice", "bob"],
        ["den", "living room"],
        partition_by="home",
        starts={"alice": {"den": 0.5, "living room": 0.5}, "bob": None},
        on={"Seen s": ["MOVE s.who TO den PROBABILITY 0.5", "OBSERVE s.who IN s.room"]},
        every=("5", "MOVE BY (den -> `living room` 0.5)"),
    )
    assert ensue.parse(built.to_text()).statements.states == (built.node,)
    with pytest.raises(ensue.QueryError, match="state-unknown"):
        ensue.beliefs.state("s", ["a"], ["x", "y"], on={"M m": "MOVE b TO x"})
    events = pa.table({"t": [1], "type": ["M"]})
    simple = ensue.beliefs.state("s", ["a"], ["x", "y"], on={"M m": "MOVE a TO y"}, starts="x")
    found = ensue.beliefs.of(events, simple, time="t", type="type").probability("a in y")
    assert found.column("probability").to_pylist() == [1.0]
