"""HIERARCHY: a finer event is one of all coarser streams; a coarser one may be one of a finer, as its levels say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from ensue import QueryError
from inside import format_text

LEVELS = "HIERARCHY Object > Person > (alice 0.5, bob 0.25); HIERARCHY Object > (Person 0.75, Pet 0.25)"
LEAVES = {
    "Object": {"alice": 0.375, "bob": 0.1875, "Person": 0.1875, "Pet": 0.25},
    "Person": {"alice": 0.5, "bob": 0.25, "Person": 0.25},
}
"""What an event of a coarser stream turns out to be; a Person may be neither of the two."""

KINDS = {
    "Object": ("Object", "Person", "Pet", "alice", "bob"),
    "Person": ("Person", "alice", "bob"),
    "alice": ("alice",),
    "bob": ("bob",),
    "Pet": ("Pet",),
    "Door": ("Door",),
}
PATTERNS = (
    "SEQ({alice} a, {Door} d)",
    "SEQ({Person} a, NOT {alice} n, {Door} d)",
    "SEQ({alice} a, {Person} b)",
    "AND({alice} a, {bob} b)",
    "SEQ({Object} a, NOT SEQ({Person} m, {Pet} n), {Door} d)",
    "SEQ({bob} a, NOT {Object} n, {bob} b)",
)
COLUMNS = {"time": "t", "type": "type"}


def rendered(pattern: str, name: str | None) -> str:
    """The pattern, with streams by their names, or with what events are called in them."""

    def event(stream: str) -> str:
        return stream if name is None else f"ANY EVENT {{}} [{name} IN ({', '.join(map(repr, KINDS[stream]))})]"

    text = pattern
    for stream in KINDS:
        for variable in "abdmn":
            found = f"{{{stream}}} {variable}"
            text = text.replace(found, event(stream).format(variable) if name else f"{stream} {variable}")
    return f"PATTERN {text} WITHIN 6"


def worlds(kinds: list[str], chances: list[float]) -> Iterator[tuple[float, list[str | None]]]:
    """What every event turns out to be; None: it is not real."""
    outcomes = [
        [*((chance * share, leaf) for leaf, share in LEAVES.get(kind, {kind: 1.0}).items()), (1 - chance, None)]
        for kind, chance in zip(kinds, chances, strict=True)
    ]
    for chosen in product(*outcomes):
        weight = 1.0
        for chance, _ in chosen:
            weight *= chance
        if weight:
            yield weight, [leaf for _, leaf in chosen]


def ids(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(value["id"] for value in row.values() if isinstance(value, dict))


@pytest.mark.parametrize("pattern", PATTERNS)
@share(0.25)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(("Object", "Person", "alice", "bob", "Pet", "Door", "Door")),
            st.integers(0, 5),
            st.sampled_from((1.0, 1.0, 0.5)),
        ),
        max_size=4,
    )
)
def test_levels_are_worlds(rows: list[tuple[str, int, float]], pattern: str) -> None:
    kinds, times, chances = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    columns = {"id": list(range(len(rows))), "t": pa.array(times, pa.int64())}
    table = pa.table({**columns, "type": pa.array(kinds, pa.string()), "p": pa.array(chances, pa.float64())})
    found: dict[object, float] = {}
    for row in ensue.detect(table, f"{LEVELS}; {rendered(pattern, None)}", **COLUMNS, probability="p").to_pylist():
        found[ids(row)] = row["probability"]
    expected: dict[object, float] = defaultdict(float)
    for weight, leaves in worlds(kinds, chances):
        world = pa.table(
            {**columns, "type": pa.array(["x"] * len(rows), pa.string()), "kind": pa.array(leaves, pa.string())}
        )
        real = world.filter(pa.array([leaf is not None for leaf in leaves], pa.bool_()))
        for row in ensue.detect(real, rendered(pattern, "kind"), **COLUMNS).to_pylist():
            expected[ids(row)] += weight
    assert found == pytest.approx(dict(expected), abs=1e-9)


def test_without_shares_members_are_equally_likely() -> None:
    table = pa.table({"t": [1], "type": ["Person"]})
    query = "HIERARCHY Person > (alice, bob, carol 0.5); PATTERN (alice a) RETURN PROBABILITY() AS p"
    assert ensue.detect(table, query, **COLUMNS).to_pylist() == [{"p": 0.25}]


def test_one_event_is_one_person_at_most() -> None:
    """Whether anybody was there is certain, whoever it was."""
    table = pa.table({"t": [1, 2], "type": ["Person", "Door"]})
    levels, options = "HIERARCHY Person > (alice 0.6, bob 0.4)", COLUMNS
    query = f"{levels}; PATTERN SEQ(OR(alice a, bob b), Door d) WITHIN 5"
    (row,) = ensue.any_match(table, query, **options).to_pylist()
    assert row["probability"] == pytest.approx(1.0)
    assert ensue.detect(table, f"{levels}; PATTERN AND(alice a, bob b) WITHIN 5", **options).num_rows == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("HIERARCHY A > (b, c); HIERARCHY D > b", "two-levels"),
        ("HIERARCHY A > b > A", "hierarchy-circle"),
        ("HIERARCHY A > (b 0.7, c 0.7)", "level-sum"),
        ("HIERARCHY A > (b 1.7, c)", "level-share"),
        ("HIERARCHY A > (b -0.1, c)", "level-share"),
        ("HIERARCHY A", "syntax"),
    ],
)
def test_what_is_no_hierarchy(text: str, code: str) -> None:
    with pytest.raises(QueryError) as raised:
        ensue.parse(f"{text}; PATTERN (b x)")
    assert raised.value.problems[0].code == code


def test_tables_of_their_own_have_no_levels() -> None:
    with pytest.raises(QueryError, match="`type` column"):
        ensue.detect({"A": pa.table({"t": [1]})}, "HIERARCHY A > b; PATTERN (A x)", time="t")


def test_a_text_with_levels_parses_back() -> None:
    program = ensue.parse(f"{LEVELS}; PATTERN (alice a)")
    assert ensue.parse(program.to_text()) == program
    assert format_text("hierarchy  A>(b .5,c);  pattern (b x)") == "HIERARCHY A > (b 0.5, c);\nPATTERN b x;\n"
