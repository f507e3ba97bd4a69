"""Smoothed counts say what the recursion over contexts says."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensue
from draws import share
from ensue import LimitError
from refinement.archives import Seen, expected_distribution, seen_events, table_of

FEATURES = ["room", "home", "hour", "weekday", "previous"]
COLUMNS = {"label": "who", "time": "at", "partition_by": "home"}


def applied(refinement: ensue.learn.Refinement, table: pa.Table) -> list[dict[str, float]]:
    """The distribution of each row of a table with a column `n` that numbers the rows."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for row in refinement.apply(table, type="kind", coarse="Person").to_pylist():
        found[row["n"]][row["kind"]] = row["probability"]
    return [found[number] for number in range(table.num_rows)]


@share(1)
@given(
    seen_events, st.lists(st.sampled_from(FEATURES), min_size=1, max_size=4, unique=True), st.sampled_from([1, 3, 0.5])
)
def test_smoothed_counts(events: list[Seen], context: list[str], smoothing: float) -> None:
    refinement = ensue.learn.fit(table_of(events), context=context, smoothing=smoothing, **COLUMNS)
    asked = [*events, Seen(7, None, "attic", 1)]
    whole = table_of(asked).append_column("kind", pa.array(["Person"] * len(asked)))
    rows = whole.append_column("n", pa.array(range(len(asked))))
    found = applied(refinement, rows)
    for event, distribution in zip(asked, found, strict=True):
        if event.who is None:
            expected = expected_distribution(context, event, events, Fraction(smoothing))
            assert distribution == pytest.approx({label: float(share) for label, share in expected.items()})
        else:
            assert distribution == {event.who: 1.0}


def test_a_context_by_hand() -> None:
    seen = pa.table({"who": ["alice", "alice", "bob", "bob"], "room": ["den", "den", "den", "hall"]})
    refinement = ensue.learn.fit(seen, label="who", context="room")
    # No context: (2 + 1/2) / 5. In the den: (2 + 1/2) / 4 and (1 + 1/2) / 4.
    assert refinement.distribution() == pytest.approx({"alice": 0.5, "bob": 0.5})
    assert refinement.distribution(room="den") == pytest.approx({"alice": 0.625, "bob": 0.375})
    assert refinement.distribution(room="attic") == refinement.distribution()
    stronger = ensue.learn.fit(seen, label="who", context="room", smoothing=5)
    assert stronger.distribution(room="hall") == pytest.approx({"alice": 2.5 / 6, "bob": 3.5 / 6})


def test_clocks_of_a_zone() -> None:
    """After the change to summer time, noon in Berlin is 10 o'clock in UTC, and before it 11."""
    noons = pd.to_datetime(["2024-03-30 11:00", "2024-03-31 10:00"], utc=True)
    seen = pd.DataFrame({"at": noons.repeat(2), "who": ["alice", "bob", "alice", "bob"]})
    refinement = ensue.learn.fit(seen, label="who", context=["hour", "weekday"], time="at", zone="Europe/Berlin")
    assert refinement.counts.column("feature_0").unique().to_pylist() == ["12"]
    assert refinement.counts.column("feature_1").to_pylist() == ["5", "5", "6", "6"]


def test_times_without_a_zone_are_read_as_they_are() -> None:
    seen = pd.DataFrame({"at": pd.to_datetime(["2024-07-01 23:30"] * 2), "who": ["alice", "bob"]})
    refinement = ensue.learn.fit(seen, label="who", context=["hour", "weekday"], time="at", zone="Asia/Tokyo")
    assert refinement.counts.select(["feature_0", "feature_1"]).to_pylist()[0] == {"feature_0": "23", "feature_1": "0"}


def test_a_column_comes_before_what_could_be_derived() -> None:
    seen = pa.table({"who": ["alice", "bob"], "previous": ["x", "y"]})
    refinement = ensue.learn.fit(seen, label="who", context="previous")
    assert refinement.counts.column("feature_0").to_pylist() == ["x", "y"]


def test_previous_skips_what_is_not_known_and_what_is_not_earlier() -> None:
    seen = pa.table(
        {"t": [1, 1, 2, 3, 3, 4], "who": ["bob", "alice", None, "alice", "bob", "carol"], "home": [1, 1, 1, 1, 2, None]}
    )
    refinement = ensue.learn.fit(seen, label="who", context="previous", time="t", partition_by="home")
    rows = refinement.counts.select(["feature_0", "label", "count"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("bob", "alice", 1),
        (None, "alice", 1),
        (None, "bob", 2),
        (None, "carol", 1),
    ]


def test_categories_of_any_kind_are_compared_as_texts() -> None:
    rows = {"who": ["alice", "bob", "bob"], "floor": [1, 2, 2], "lit": [True, False, False]}
    coded = pd.DataFrame(rows).astype({"who": "category", "floor": "category"})
    models = [
        ensue.learn.fit(table, label="who", context=["floor", "lit"])
        for table in (pa.table(rows), coded, pl.DataFrame(rows))
    ]
    assert models[0].distribution(floor="2", lit=False)["bob"] > 0.8
    for other in models[1:]:
        assert other.counts.equals(models[0].counts)
    assert models[0].distribution(floor=2, lit="false") == models[0].distribution(floor="2", lit=False)


def test_a_model_is_no_larger_than_allowed() -> None:
    seen = pa.table({"who": ["alice", "bob"] * 5, "n": range(10)})
    assert len(ensue.learn.fit(seen, label="who", context="n", most_counts=20).labels) == 2
    with pytest.raises(LimitError, match="10 contexts times 2 labels are more than the limit of 19"):
        ensue.learn.fit(seen, label="who", context="n", most_counts=19)
