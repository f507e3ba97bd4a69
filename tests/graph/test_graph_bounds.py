"""The closure of bounds: complete, minimal, and contradictions shown as cycles."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from draws import share
from inside import FAR, Bound, Limit, Point, Reason, close, extend

POINTS = [Point(name, "s") for name in "abc"]
bounds = st.lists(
    st.builds(
        Bound,
        st.sampled_from(POINTS),
        st.sampled_from(POINTS),
        st.builds(Limit, st.integers(-3, 3), st.booleans()),
        st.builds(Reason, st.text("xyz", min_size=1)),
    ),
    max_size=6,
)


def holds(bound: Bound, values: dict[Point, float]) -> bool:
    difference = values[bound.left] - values[bound.right]
    return difference < bound.limit.value if bound.limit.strict else difference <= bound.limit.value


def solutions(given_bounds: list[Bound]) -> list[dict[Point, float]]:
    """Every assignment of quarters in reach, the first point at zero; three points need no finer grid."""
    grid = [step / 4 for step in range(-28, 29)]
    assignments = (dict(zip(POINTS, (0.0, *rest), strict=True)) for rest in product(grid, repeat=len(POINTS) - 1))
    return [values for values in assignments if all(holds(bound, values) for bound in given_bounds)]


@share(0.6)
@given(bounds)
def test_closure_says_exactly_what_the_solutions_say(given_bounds: list[Bound]) -> None:
    network = close(POINTS, given_bounds)
    found = solutions(given_bounds)
    assert (network.contradiction is None) == bool(found)
    if network.contradiction is not None:
        return
    for left, right in product(POINTS, repeat=2):
        limit = network.limit(left, right)
        if limit is None:
            continue
        greatest = max(values[left] - values[right] for values in found)
        assert limit.value - 1 <= greatest <= limit.value


@given(bounds)
def test_a_contradiction_is_a_cycle_that_adds_up_to_less_than_nothing(given_bounds: list[Bound]) -> None:
    contradiction = close(POINTS, given_bounds).contradiction
    if contradiction is None:
        return
    cycle = contradiction.cycle
    total = Limit(0, False)
    for bound, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        assert bound in given_bounds
        assert bound.right == following.left
        total = Limit(total.value + bound.limit.value, total.strict or bound.limit.strict)
    assert total.tighter_than(Limit(0, False))


def test_limits_beyond_all_times_do_not_overflow() -> None:
    assert Limit(10**30, False).whole == FAR
    assert Limit(-(10**30), True).whole == -FAR


@given(bounds, st.integers(0, 6))
def test_extending_a_closed_network_is_closing_all_at_once(given_bounds: list[Bound], cut: int) -> None:
    at_once = close(POINTS, given_bounds)
    few = [bound for bound in given_bounds[:cut] if {bound.left, bound.right} <= set(POINTS[:2])]
    extended = extend(close(POINTS[:2], few), POINTS, given_bounds)
    assert (extended.contradiction is None) == (at_once.contradiction is None)
    if at_once.contradiction is None:
        for left, right in product(POINTS, repeat=2):
            assert extended.limit(left, right) == at_once.limit(left, right)
