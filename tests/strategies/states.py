"""Random states, questions to them and events for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from inside import (
    Arrow,
    Both,
    Chance,
    Change,
    Constant,
    CountTest,
    Drift,
    Either,
    Field,
    Literal,
    Location,
    Move,
    NotSo,
    Observe,
    Places,
    Response,
    Someone,
    Start,
    StateCondition,
    StateStatement,
    Ticks,
    Wander,
)

STREAMS = ("M", "S", "W")
COLUMNS = ("person", "source", "target", "share")
shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])


@st.composite
def arrows(draw: DrawFn, values: tuple[str, ...]) -> tuple[Arrow, ...]:
    found = []
    for source in draw(st.lists(st.sampled_from(values), unique=True, min_size=1, max_size=3)):
        others = [value for value in values if value != source]
        targets = draw(st.lists(st.sampled_from(others), unique=True, min_size=1, max_size=2))
        sizes = draw(st.sampled_from([(0.1, 0.2), (0.5, 0.5), (1.0, 0.0), (0.7, 0.3)]))
        found += [Arrow(source, target, size) for target, size in zip(targets, sizes, strict=False)]
    return tuple(found)


@st.composite
def changes(draw: DrawFn, variables: tuple[str, ...], values: tuple[str, ...]) -> Change:
    one = st.builds(Constant, st.sampled_from(variables)) | st.just(Field("x", "person"))
    source = st.builds(Constant, st.sampled_from(values)) | st.just(Field("x", "source"))
    target = st.builds(Constant, st.sampled_from(values)) | st.just(Field("x", "target"))
    number = st.none() | st.builds(Literal, shares) | st.just(Field("x", "share"))
    some = st.sampled_from([Someone("anyone"), Someone("everyone")])
    seen = st.sampled_from([Someone("anyone"), Someone("nobody")])
    return draw(
        st.one_of(
            st.builds(Move, one | some, st.none() | source, target, number),
            st.builds(Wander, one | st.just(Someone("everyone")), arrows(values)),
            st.builds(Observe, one, target, number),
            st.builds(Observe, seen, target, number, st.none() | st.builds(Literal, shares)),
            st.builds(Observe, one, target, st.none(), st.none(), arrows(values)),
        )
    )


@st.composite
def starts(draw: DrawFn, variables: tuple[str, ...], values: tuple[str, ...]) -> tuple[Start, ...]:
    def chances() -> SearchStrategy[Any]:
        single = st.builds(lambda value: (Chance(value, 1.0),), st.sampled_from(values))
        return st.none() | single | st.just((Chance(values[0], 0.8), Chance(values[1], 0.2)))

    if draw(st.booleans()):
        return draw(st.just(()) | st.builds(lambda own: (Start(None, own),), chances()))
    named = draw(st.lists(st.sampled_from(variables), unique=True, min_size=1))
    return tuple(Start(name, draw(chances())) for name in named)


@st.composite
def states(draw: DrawFn, keyed: bool = True) -> StateStatement:
    """A state over streams of STREAMS whose events have COLUMNS, by key `k` if `keyed`."""
    variables = ("a", "b", "c")[: draw(st.integers(1, 3))]
    values = ("u", "v", "w")[: draw(st.integers(2, 3))]
    own = st.builds(Response, st.sampled_from(STREAMS), st.just("x"), changes(variables, values))
    drift = st.builds(
        lambda size, who, way: Drift(Ticks(size), Wander(who, way)),
        st.integers(1, 4),
        st.sampled_from([Someone("everyone"), Constant(variables[0])]),
        arrows(values),
    )
    return StateStatement(
        "s",
        variables,
        values,
        ("k",) if keyed else (),
        draw(starts(variables, values)),
        tuple(draw(st.lists(own, min_size=1, max_size=4))),
        draw(st.none() | drift),
    )


@st.composite
def conditions(draw: DrawFn, state: StateStatement) -> StateCondition:
    places = st.builds(
        lambda values, negated: Places(tuple(values), negated),
        st.lists(st.sampled_from(state.values), unique=True, min_size=1, max_size=2),
        st.booleans(),
    )
    who = st.sampled_from(
        [*(Constant(name) for name in state.variables), *(Someone(w) for w in ("anyone", "everyone", "nobody"))]
    )
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    atom: SearchStrategy[StateCondition] = st.builds(Location, who, places) | st.builds(
        CountTest, places, operators, st.integers(0, 3)
    )
    return draw(
        st.recursive(
            atom,
            lambda part: st.builds(NotSo, part) | st.builds(Both, part, part) | st.builds(Either, part, part),
            max_leaves=4,
        )
    )


@st.composite
def events(draw: DrawFn, state: StateStatement, strange: bool = True) -> list[dict[str, Any]]:
    """Events in the order in which they arrive; with `strange` some lack a key or name what is not declared."""
    odd: list[Any] = [None, "strange"] if strange else []
    row = st.fixed_dictionaries(
        {
            "t": st.integers(0, 12) | st.sampled_from([3, 5]),
            "type": st.sampled_from([*STREAMS, "other"]),
            "k": st.sampled_from([1, 2, *([None] if strange else [])]),
            "person": st.sampled_from([*state.variables, *state.variables, *odd]),
            "source": st.sampled_from([*state.values, *state.values, *odd]),
            "target": st.sampled_from([*state.values, *state.values, *odd]),
            "share": shares,
            "p": st.sampled_from([1.0, 1.0, 0.5, 0.0]),
        }
    )
    return draw(st.lists(row, max_size=12))
