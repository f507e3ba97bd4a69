"""Graphs as pictures: what is written in them, where what is absent lies, and that they are well-formed."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import ensue

SVG = "{http://www.w3.org/2000/svg}"


def pictures(query: str) -> list[ElementTree.Element]:
    """The graphs of a program as a notebook shows them."""
    shown = ElementTree.fromstring(f"<body>{ensue.parse(query)._repr_html_()}</body>")
    return list(shown.iter(f"{SVG}svg"))


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def middle_of(picture: ElementTree.Element, wanted: str) -> float:
    return next(float(text.get("x", "")) for text in picture.iter(f"{SVG}text") if text.text == wanted)


def test_events_bounds_and_the_window() -> None:
    [picture] = pictures("PATTERN SEQ(A a, B b [x > 1]) WHERE b.t - a.t >= 5 AND b.t - a.t <= 7 WITHIN 10")
    assert texts(picture) == ["≥ 5, ≤ 7", "a", "A", "b", "B", "b.x > 1", "within 10"]


def test_what_is_absent_lies_where_it_is_forbidden() -> None:
    [picture] = pictures("PATTERN SEQ(NOT X x, A a, NOT Y y, B b, NOT Z z) WITHIN 10")
    order = ["no X x", "a", "no Y y", "b", "no Z z"]
    places = [middle_of(picture, wanted) for wanted in order]
    assert places == sorted(places)


def test_lists_are_drawn_below_the_events() -> None:
    [picture] = pictures("PATTERN SEQ(A a, COLLECT T t{2,}, B b) WITHIN 10")
    assert "t: every T t, 2 or more" in texts(picture)


def test_each_branch_has_a_picture_and_longer_ones_none() -> None:
    branches = pictures("PATTERN SEQ(A a, OR(B b, C c)) WITHIN 10")
    assert [texts(picture)[0] for picture in branches] == ["branch 1 of 2", "branch 2 of 2"]
    assert len(pictures("PATTERN SEQ(A a, B b{2,4}) WITHIN 10")) == 1


@pytest.mark.parametrize("condition", ["a.x < 'b & c'", "a.x = '<script>'"])
def test_conditions_are_text(condition: str) -> None:
    query = ensue.parse(f"PATTERN SEQ(A a, B b) WHERE {condition} WITHIN 10")
    [picture] = pictures(query.to_text())
    assert condition in texts(picture)
    assert "<script" not in query._repr_html_()


def test_a_query_in_python_is_shown_and_one_that_means_nothing_yet_is_text() -> None:
    whole = ensue.seq("A a", "B b").within(5).as_pattern("p")
    assert "<svg" in whole._repr_html_()
    unfinished = ensue.seq("A a", ensue.absent("B b")).as_pattern("p")
    assert unfinished._repr_html_() == "<pre>PATTERN p\n  SEQ(A a, NOT B b)</pre>"
