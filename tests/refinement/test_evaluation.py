"""Scores and reliability against numbers worked out by hand, and the events held out."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue import SchemaError

SEEN = pa.table({"who": ["alice", "alice", "bob", "bob"], "room": ["den", "den", "den", "hall"]})
"""In the den it is alice with 0.625 and bob with 0.375, in the hall alice with 0.25 and bob with 0.75."""


@pytest.fixture(scope="module")
def refinement() -> ensue.learn.Refinement:
    return ensue.learn.fit(SEEN, label="who", context="room")


def test_numbers_by_hand(refinement: ensue.learn.Refinement) -> None:
    later = pa.table({"who": ["alice", "bob", "bob", None, "carol"], "room": ["den", "den", "hall", "den", "den"]})
    found = refinement.evaluate(later, bins=4)
    assert (found.events, found.unknown) == (3, 1)
    assert found.log_loss == pytest.approx(-(math.log(0.625) + math.log(0.375) + math.log(0.75)) / 3)
    assert found.brier == pytest.approx((2 * 0.375**2 + 2 * 0.625**2 + 2 * 0.25**2) / 3)
    rows = found.reliability.to_pylist()
    assert [(row["from"], row["to"], row["count"]) for row in rows] == [(0.25, 0.5, 3), (0.5, 0.75, 2), (0.75, 1.0, 1)]
    assert [row["predicted"] for row in rows] == pytest.approx([(0.375 + 0.375 + 0.25) / 3, 0.625, 0.75])
    assert [row["observed"] for row in rows] == pytest.approx([1 / 3, 1 / 2, 1])
    assert "log loss 0.5795" in repr(found)


def test_the_picture(refinement: ensue.learn.Refinement, tmp_path: Path) -> None:
    found = refinement.evaluate(SEEN)
    drawn = ElementTree.parse(found.plot(tmp_path / "reliability.svg")).getroot()
    dots = drawn.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == found.reliability.num_rows
    first = found.reliability.to_pylist()[0]
    assert float(dots[0].get("cx", "")) == pytest.approx(50 + 400 * first["predicted"], abs=0.1)
    assert float(dots[0].get("cy", "")) == pytest.approx(450 - 400 * first["observed"], abs=0.1)


def test_what_is_held_out_is_not_learned() -> None:
    drawn = np.random.default_rng(3)
    rooms = drawn.choice(["den", "hall", "attic"], 3000)
    is_alice = drawn.random(3000) < np.select([rooms == "den", rooms == "hall"], [0.9, 0.3], 0.5)
    seen = pa.table({"room": rooms, "who": np.where(is_alice, "alice", "bob")})
    fit = {"label": "who", "context": "room"}
    held = ensue.learn.fit(seen, holdout=0.2, seed=1, **fit)
    assert held.evaluation is not None
    learned = int(held.counts.column("count").to_numpy().sum())
    assert held.evaluation.events + learned == 3000
    assert 500 < held.evaluation.events < 700
    again, other = (ensue.learn.fit(seen, holdout=0.2, seed=seed, **fit).evaluation for seed in (1, 2))
    assert again is not None
    assert other is not None
    assert again.log_loss == held.evaluation.log_loss != other.log_loss
    for row in held.evaluation.reliability.to_pylist():
        assert row["predicted"] == pytest.approx(row["observed"], abs=0.1)
    entropy = -sum(p * math.log(p) for p in (0.9, 0.1, 0.3, 0.7, 0.5, 0.5)) / 3
    assert held.evaluation.log_loss == pytest.approx(entropy, abs=0.05)


def test_events_without_a_known_label(refinement: ensue.learn.Refinement) -> None:
    with pytest.raises(SchemaError, match="no event has a known label"):
        refinement.evaluate(pa.table({"who": ["carol"], "room": ["den"]}))
    with pytest.raises(SchemaError, match="no column `who` for `label`"):
        refinement.evaluate(pa.table({"room": ["den"]}))
