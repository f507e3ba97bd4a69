"""The strategies of operators, lists and policies draw what they promise; the oracle's completions are late enough."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from inside import (
    CHRONICLE,
    CONTEXTS,
    RECENT,
    STRICT,
    And,
    AnyEvent,
    Binary,
    Call,
    Event,
    Expr,
    Field,
    Literal,
    NamedPattern,
    Not,
    Operation,
    Or,
    Pattern,
    PatternQuery,
    Pick,
    Repeat,
    Seq,
    Ticks,
)
from oracle.oracle import OracleEvent, matches, matches_between
from oracle.tree import walk
from oracle.wellformed import problems
from strategies.operators import (
    ANY_EVENT_BUT,
    LISTS,
    OPERATIONS,
    Case,
    cases_with_lists,
    cases_with_operators,
    cases_with_picks,
)
from strategies.policies import (
    cases_with_composites,
    cases_with_consumption,
    cases_with_contexts,
    cases_with_sequences,
)

pytestmark = pytest.mark.slow

Cases = Callable[..., st.SearchStrategy[Case]]
ALL: tuple[Cases, ...] = (
    cases_with_operators,
    cases_with_lists,
    cases_with_picks,
    cases_with_contexts,
    cases_with_composites,
    cases_with_sequences,
    cases_with_consumption,
)
each = pytest.mark.parametrize("cases", ALL, ids=lambda cases: cases.__name__)
fixed = settings(max_examples=100, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])


def of_both_kinds(cases: Cases) -> st.SearchStrategy[Case]:
    """Points and intervals."""
    return st.booleans().flatmap(lambda intervals: cases(intervals=intervals))


@each
def test_what_is_drawn_is_well_formed_and_matches(cases: Cases) -> None:
    seen: Counter[str] = Counter()
    seconds: list[float] = []

    @fixed
    @given(of_both_kinds(cases))
    def count(case: Case) -> None:
        query, history = case
        assert problems(query) == set()
        started = time.process_time()
        seen["matching"] += bool(matches(query, history))
        seconds.append(time.process_time() - started)
        seen["pairs"] += 1

    count()
    # In 100 draws the share has been seen between 0.25 and 0.65.
    assert seen["matching"] > 0.1 * seen["pairs"]
    assert sorted(seconds)[len(seconds) * 9 // 10] < 0.1


EACH_FORM = {
    **{operator: cases_with_operators(intervals=True, operators=(operator,)) for operator in OPERATIONS},
    **{kind: cases_with_lists(intervals=True, lists=(kind,)) for kind in LISTS},
    **{policy: cases_with_contexts(policies=(policy,)) for policy in CONTEXTS},
}


@pytest.mark.parametrize("form", EACH_FORM)
def test_every_form_is_drawn(form: str) -> None:
    @settings(fixed, max_examples=25)
    @given(EACH_FORM[form])
    def check(case: Case) -> None:
        query, _ = case
        assert form in (query.policy, *(_form_of(part) for _, part in walk(query.pattern)))

    check()


@pytest.mark.parametrize("form", EACH_FORM)
def test_every_form_matches(form: str) -> None:
    """One of 250 draws does; of the rarest, APERIODIC* and UNLESS, it is about one of six."""
    once = settings(fixed, max_examples=250, phases=[Phase.generate])
    query, history = find(EACH_FORM[form], lambda case: bool(matches(*case)), settings=once)
    assert matches(query, history)


def _form_of(part: Pattern) -> str:
    match part:
        case Operation():
            return part.operator
        case Repeat():
            return "COLLECT" if part.every else "REPEAT"
        case Event(AnyEvent()):
            return ANY_EVENT_BUT
    return ""


@each
def test_what_is_known_at_a_watermark_decides_the_matches_up_to_it(cases: Cases) -> None:
    """The completion of the oracle is late enough: later events change nothing."""

    @fixed
    @given(of_both_kinds(cases), st.integers(-1, 26))
    def check(case: Case, watermark: int) -> None:
        query, history = case
        known = [event for event in history if event.e <= watermark]
        now = matches_between(query, known, -math.inf, watermark)
        later = matches_between(query, history, -math.inf, watermark)
        assert sorted(now, key=repr) == sorted(later, key=repr)

    check()


@fixed
@given(of_both_kinds(cases_with_operators), st.integers(0, 24))
def test_two_steps_are_one(case: tuple[PatternQuery, list[OracleEvent]], watermark: int) -> None:
    """Up to a watermark, and from there to the end: together all matches, where no PERIODIC outlives the input."""
    query, history = case
    last = max((event.e for event in history), default=0)
    watermark = min(watermark, last)
    steps = [matches_between(query, history, *step) for step in ((-math.inf, watermark), (watermark, math.inf))]
    assert Counter([*steps[0], *steps[1]]) == Counter(matches(query, history))


def test_the_check_sees_what_is_wrong() -> None:
    a, b, c = Event("A", "a"), Event("B", "b"), Event("C", "c")
    listed = Seq((a, Repeat(b, 0, None, every=True), c))
    count = Call("count", (Field(None, "b"),))
    previous = Binary(">", Field("b", "x"), Call("prev", (Field("b", "x"),)))
    related = Binary(">", Field("b", "x"), Call("avg", (Field("b", "x"),)))
    wrong: list[tuple[str, PatternQuery]] = [
        ("misplaced-collect", PatternQuery(Repeat(a, 0, None, every=True))),
        ("misplaced-collect", PatternQuery(Or((a, Repeat(b, 1, None, every=True))))),
        ("no-positive-item", PatternQuery(Seq((Repeat(a, 0, None, every=True),)), within=Ticks(5))),
        ("nested-repeat", PatternQuery(Repeat(Seq((a, Repeat(b, 2, 2))), 2, 2))),
        ("nested-repeat", PatternQuery(Operation("APERIODIC*", (a, Repeat(b, 2, 2), c)))),
        ("open-scope", PatternQuery(Seq((a, Repeat(b, 0, None, every=True))))),
        ("misplaced-pick", PatternQuery(Or((Pick(a, False), b)))),
        ("misplaced-pick", PatternQuery(Seq((a, Not(Seq((Pick(b, False), c))), Event("D"))))),
        ("misplaced-pick", PatternQuery(Seq((Pick(a, False),)))),
        ("endless-last", PatternQuery(Seq((a, Pick(b, True))))),
        ("endless-periodic", PatternQuery(Operation("PERIODIC", (a,), Ticks(5)))),
        ("policy-operator", PatternQuery(listed, policy=RECENT)),
        ("policy-operator", PatternQuery(Operation("NEXT", (a, b)), policy=CHRONICLE)),
        ("policy-operator", PatternQuery(Seq((a, Seq((b, Not(c))), Event("D"))), policy=RECENT)),
        ("policy-operator", PatternQuery(And((a, b)), policy=STRICT)),
        ("policy-combination", PatternQuery(Seq((a, b)), policy=RECENT, consume=True)),
        ("variable-in-two-scopes", PatternQuery(Operation("NOTFOLLOWS", (a, a), Ticks(5)))),
        ("misplaced-prev", PatternQuery(listed, where=Binary("or", previous, Binary(">", count, Literal(1))))),
        ("list-and-aggregate", PatternQuery(listed, where=related)),
        ("two-lists", PatternQuery(listed, where=Binary(">", Call("sum", (Field("a", "x"),)), Literal(1)))),
    ]
    for code, query in wrong:
        assert code in problems(query), (code, query)


def test_the_check_accepts_what_is_right() -> None:
    a, b, c = Event("A", "a"), Event("B", "b"), Event("C", "c")
    condition: Expr = Binary(">", Call("count", (Field(None, "b"),)), Literal(1))
    right = [
        PatternQuery(Seq((a, Repeat(b, 0, None, every=True), c)), where=condition),
        PatternQuery(Repeat(Seq((a, b)), 2, 3), where=Binary("<", Field("a", "x"), Field("b", "x"))),
        PatternQuery(Seq((a, Pick(b, True))), within=Ticks(5)),
        PatternQuery(Seq((a, NamedPattern(Pick(b, False).item, "p"), c))),
        PatternQuery(Operation("PERIODIC", (a,), Ticks(5)), within=Ticks(20)),
        PatternQuery(Seq((Not(c), a, b)), within=Ticks(5), policy=RECENT),
        PatternQuery(Operation("NOTFOLLOWS", (a, b), Ticks(5)), where=Binary("=", Field("a", "x"), Field("b", "x"))),
    ]
    assert [problems(query) for query in right] == [set()] * len(right)
