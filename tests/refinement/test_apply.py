"""Coarse events as alternatives, and patterns over these."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ensue
from ensue import SchemaError

SEEN = pa.table({"who": ["alice", "alice", "bob", "bob"], "room": ["den", "den", "den", "hall"]})
"""In the den it is alice with 0.625, in the hall bob with (1 + 1/2) / 2, anywhere else both with 0.5."""

REFINED = {"probability": "probability", "alternatives": "alternatives"}


@pytest.fixture(scope="module")
def refinement() -> ensue.learn.Refinement:
    return ensue.learn.fit(SEEN, label="who", context="room")


def test_each_event_becomes_alternatives(refinement: ensue.learn.Refinement) -> None:
    found = refinement.apply(pa.table({"t": [1, 2], "room": ["hall", "den"]}))
    assert found.column_names == ["t", "room", "type", "probability", "alternatives"]
    assert found.column("t").to_pylist() == [1, 1, 2, 2]
    assert found.column("type").to_pylist() == ["alice", "bob", "alice", "bob"]
    assert found.column("probability").to_pylist() == [0.25, 0.75, 0.625, 0.375]
    one, same, two, also = found.column("alternatives").to_pylist()
    assert (one, two) == (same, also)
    assert one != two
    assert len(one) == 32


def test_detect_over_what_was_applied(refinement: ensue.learn.Refinement) -> None:
    coarse = pa.table(
        {
            "t": [1, 2, 3],
            "type": ["Person", "Alarm", "Person"],
            "room": ["den", None, "hall"],
            "p": [0.8, 1.0, 1.0],
        }
    )
    refined = refinement.apply(coarse, coarse="Person", probability="p")
    assert refined.num_rows == 5
    columns = {"time": "t", "type": "type", "probability": "p", "alternatives": "alternatives"}
    query = "PATTERN SEQ(alice a, Alarm m, bob b) WITHIN 5 RETURN PROBABILITY() AS p"
    assert ensue.detect(refined, query, **columns).to_pylist() == [{"p": pytest.approx(0.8 * 0.625 * 0.75)}]
    nobody = "PATTERN SEQ(Alarm m, NOT alice a, NOT bob b) WITHIN 5 RETURN PROBABILITY() AS p"
    assert ensue.detect(refined, nobody, **columns).to_pylist() == []
    not_alice = "PATTERN SEQ(Alarm m, NOT alice a) WITHIN 5 RETURN PROBABILITY() AS p"
    assert ensue.detect(refined, not_alice, **columns).to_pylist() == [{"p": pytest.approx(0.75)}]


def test_what_is_left_out_is_none_of_these(refinement: ensue.learn.Refinement) -> None:
    refined = refinement.apply(pa.table({"t": [1, 2], "room": ["hall", "den"]}), minimum=0.3)
    assert refined.column("type").to_pylist() == ["bob", "alice", "bob"]
    query = "PATTERN SEQ(bob b, NOT alice a) WITHIN 5 RETURN PROBABILITY() AS p"
    assert ensue.detect(refined, query, time="t", type="type", **REFINED).to_pylist()[0] == {
        "p": pytest.approx(0.75 * 0.375)
    }
    assert refinement.apply(pa.table({"t": [1], "room": ["hall"]}), minimum=0.9).num_rows == 0


def test_equal_events_are_different_events(refinement: ensue.learn.Refinement) -> None:
    twice = pa.table({"t": [1, 1], "room": ["den", "den"]})
    refined = refinement.apply(twice)
    assert len(set(refined.column("alternatives").to_pylist())) == 2
    assert refined.equals(refinement.apply(twice))
    by_time = refinement.apply(pa.table({"t": [1, 2, 2], "room": ["den", "den", "hall"]}), id="t")
    assert len(set(by_time.column("alternatives").to_pylist())) == 2


def test_alternatives_stay_alternatives(refinement: ensue.learn.Refinement) -> None:
    given = pa.table(
        {
            "t": [1, 1, 2],
            "type": ["Person", "Cat", "Person"],
            "room": ["den"] * 3,
            "p": [0.6, 0.4, 1.0],
            "g": [7, 7, None],
        }
    )
    refined = refinement.apply(given, coarse=["Person"], probability="p", alternatives="g")
    assert refined.column("p").to_pylist() == pytest.approx([0.375, 0.225, 0.4, 0.625, 0.375])
    assert refined.column("g").to_pylist()[:3] == ["7"] * 3
    assert len(set(refined.column("g").to_pylist())) == 2


def test_known_events_stay_certain(refinement: ensue.learn.Refinement) -> None:
    refined = refinement.apply(pa.table({"who": ["bob", None], "room": ["den", "hall"]}))
    rows = refined.select(["type", "probability"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("bob", 1.0), ("alice", 0.25), ("bob", 0.75)]
    assert refined.column("alternatives").to_pylist()[0] is None


def test_the_type_may_be_the_label() -> None:
    """One column says alice, bob or, where it is not known who, Person."""
    archive = pa.table({"t": [1, 2, 3, 4], "what": ["alice", "bob", "alice", "bob"], "home": [1] * 4})
    refinement = ensue.learn.fit(archive, label="what", context="previous", time="t", partition_by="home")
    later = pa.table({"t": [5, 6, 7], "what": ["alice", "Person", "Door"], "home": [1] * 3})
    refined = refinement.apply(later, type="what", coarse="Person")
    assert refined.column("what").to_pylist() == ["alice", "alice", "bob", "Door"]
    after_alice = refinement.distribution(previous="alice")
    assert refined.column("probability").to_pylist() == [1.0, after_alice["alice"], after_alice["bob"], 1.0]


def test_tables_of_any_kind(refinement: ensue.learn.Refinement) -> None:
    rows = {"t": [1], "room": ["den"]}
    expected = refinement.apply(pa.table(rows)).to_pylist()
    pandas, polars = refinement.apply(pd.DataFrame(rows)), refinement.apply(pl.DataFrame(rows))
    assert pandas.to_dict("records") == expected
    assert polars.to_dicts() == expected


def test_no_events(refinement: ensue.learn.Refinement) -> None:
    empty = pa.table({"t": pa.array([], pa.int64()), "room": pa.array([], pa.string())})
    assert refinement.apply(empty).num_rows == 0


def test_missing_values_are_values() -> None:
    seen = pa.table({"who": ["alice", "bob", "bob"], "room": ["den", None, None]})
    refinement = ensue.learn.fit(seen, label="who", context="room")
    found = refinement.apply(pa.table({"room": pa.array([None], pa.string())}))
    assert dict(zip(found.column("type").to_pylist(), found.column("probability").to_pylist(), strict=True)) == (
        refinement.distribution(room=None)
    )
    assert refinement.distribution(room=None)["bob"] > refinement.distribution(room="hall")["bob"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"t": [1]}, {}, "no column `room` for `context`"),
        ({"room": ["den"]}, {"coarse": "Person"}, "no column `type` for `type`"),
        ({"room": ["den"]}, {"id": "event"}, "no column `event` for `id`"),
        ({"room": ["den"], "probability": [1.0]}, {}, "has a column `probability`"),
        ({"room": ["den"], "alternatives": [1]}, {}, "has a column `alternatives`"),
        ({"room": ["den"]}, {"minimum": 1.5}, "`minimum` must be at least 0 and at most 1, found 1.5"),
        ({"room": ["den"], "p": [1.5]}, {"probability": "p"}, "has 1.5 in row 0"),
        (
            {"room": ["den"], "p": ["x"]},
            {"probability": "p"},
            "must be numeric to be used as a probability, but is string",
        ),
        ({"room": [0.5]}, {}, "column `room` for `context` is double"),
        ({"room": ["den"]}, {"type": 5}, "`type` must be a column name, found 5"),
    ],
)
def test_what_cannot_be_applied(
    refinement: ensue.learn.Refinement, columns: dict[str, list[object]], options: dict[str, object], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        refinement.apply(pa.table(columns), **options)
