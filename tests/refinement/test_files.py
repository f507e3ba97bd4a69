"""A refinement that was saved is the same when it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import ensue
from ensue import StateError

SEEN = pa.table(
    {
        "t": pa.array([0, 3600, 7200, 90_000, 93_600, 97_200], pa.timestamp("s")),
        "who": ["alice", "alice", "bob", "bob", "ålice", "bob"],
        "room": ["den", None, "den", "hall", "den", "hall"],
        "home": [1, 1, 2, 1, 1, 2],
    }
)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[ensue.learn.Refinement, Path]:
    refinement = ensue.learn.fit(
        SEEN, label="who", context=["room", "hour", "previous"], time="t", partition_by="home", holdout=0.2, seed=5
    )
    return refinement, refinement.save(tmp_path / "who.json")


def test_round_trip(saved: tuple[ensue.learn.Refinement, Path]) -> None:
    refinement, path = saved
    loaded = ensue.learn.load(path)
    assert repr(loaded) == repr(refinement)
    coarse = SEEN.drop_columns("who").append_column("who", pa.nulls(6, pa.string()))
    assert loaded.apply(coarse).equals(refinement.apply(coarse))
    assert refinement.evaluation is not None
    assert repr(loaded.evaluation) == repr(refinement.evaluation)
    assert [file.name for file in path.parent.iterdir()] == ["who.json"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("not json", "not-a-refinement", "is not a JSON file"),
        ("[1, 2]", "not-a-refinement", "does not contain a refinement"),
        ('{"format": "other"}', "not-a-refinement", "does not contain a refinement"),
        ('{"format": "ensue-refinement", "version": 99}', "refinement-version", "has version 99"),
        (
            '{"format": "ensue-refinement", "version": 1, "labels": []}',
            "not-a-refinement",
            "is not a complete refinement",
        ),
    ],
)
def test_other_files(tmp_path: Path, text: str, code: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StateError, match=message) as caught:
        ensue.learn.load(path)
    assert caught.value.code == code


def test_a_file_that_lost_a_part(saved: tuple[ensue.learn.Refinement, Path]) -> None:
    content = json.loads(saved[1].read_text("utf-8"))
    for part in ("reading", "labels", "smoothing", "counts", "logistic", "evaluation"):
        saved[1].write_text(json.dumps({key: value for key, value in content.items() if key != part}), "utf-8")
        with pytest.raises(StateError, match="is not a complete refinement"):
            ensue.learn.load(saved[1])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="does not exist"):
        ensue.learn.load(tmp_path / "who.json")
