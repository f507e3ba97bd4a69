"""What cannot be fitted, and what is said about it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ensue

SEEN = pa.table({"t": [1, 2], "who": ["alice", "bob"], "room": ["den", None], "heat": [0.5, 0.7], "tags": [["x"], []]})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"label": "whom"}, "no-such-column"),
        ({"label": 5}, "column-name"),
        ({"label": "heat"}, "category-type"),
        ({"context": []}, "no-context"),
        ({"context": ["rooms"]}, "no-such-column"),
        ({"context": ["who"]}, "label-as-context"),
        ({"context": ["heat"]}, "category-type"),
        ({"context": [None]}, "column-name"),
        ({"context": ["hour"]}, "context-needs"),
        ({"context": ["previous"], "time": "t"}, "context-needs"),
        ({"context": ["previous"], "time": "t", "partition_by": "tags"}, "key-type"),
        ({"context": ["previous"], "time": "heat", "partition_by": "room"}, "time-type"),
        ({"context": ["previous"], "time": "t", "partition_by": "house"}, "no-such-column"),
        ({"context": ["hour"], "time": "t"}, "no-clock"),
        ({"context": ["hour"], "time": "at"}, "no-such-column"),
        ({"zone": "Mars/Olympus"}, "unknown-time-zone"),
        ({"zone": "../etc"}, "unknown-time-zone"),
        ({"smoothing": 0}, "number-range"),
        ({"smoothing": float("inf")}, "number-range"),
        ({"smoothing": float("nan")}, "number-range"),
        ({"holdout": 1.0}, "number-range"),
        ({"holdout": True}, "number-range"),
        ({"holdout": 1e-9}, "nothing-held-out"),
        ({"seed": -1}, "limit-type"),
        ({"most_counts": 0}, "limit-type"),
        ({"model": "forest"}, "model-name"),
        ({"model": None}, "model-name"),
        ({"model": "logistic"}, "logistic-table"),
    ],
)
def test_options(options: dict[str, object], code: str) -> None:
    with pytest.raises(ensue.EnsueError) as caught:
        ensue.learn.fit(SEEN, **{"label": "who", "context": ["room"], **options})
    assert caught.value.code == code  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("labels", "code"), [([None, None], "no-labels"), (["alice", None], "one-label"), (["alice", "alice"], "one-label")]
)
def test_labels(labels: list[str | None], code: str) -> None:
    archive = pa.table({"who": pa.array(labels, pa.string()), "room": ["den", "hall"]})
    with pytest.raises(ensue.SchemaError) as caught:
        ensue.learn.fit(archive, label="who", context="room")
    assert caught.value.code == code


def test_one_table() -> None:
    with pytest.raises(ensue.SchemaError, match="found dict"):
        ensue.learn.fit({"Person": SEEN}, label="who", context="room")


def test_features_have_names() -> None:
    refinement = ensue.learn.fit(SEEN, label="who", context="room")
    with pytest.raises(ensue.SchemaError, match="unknown feature `roam`; available: room"):
        refinement.distribution(roam="den")
