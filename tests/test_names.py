"""The keys of names and streams, which ids of matches are made of: each has its own, and those of words stay."""

from __future__ import annotations

from itertools import product

import pytest

from inside import (
    Ancestry,
    AnyEvent,
    Chain,
    ContextStage,
    Edge,
    Further,
    Handle,
    NameValue,
    OneOf,
    Other,
    Round,
    Stream,
    Tick,
    UnnamedVariable,
    WithRow,
    key_of,
    stream_key,
)

TEXTS = (
    *(
        "A",
        "B",
        "p",
        "other",
        "tick",
        "1",
        "s",
        "A 2",
        "other A",
        "A#1",
        "p#1",
        "A[1]",
        "A.s",
        "`",
        "`A`",
        "``A``",
        "*",
    ),
    *("*\nA", "A\nB", "A, B", "A`, `B", "ANY EVENT", "ANY EVENT BUT (A, B)", "`ANY EVENT`", "causes#1", "one of A"),
    *("one(A)", "tick(A, 1)", "A+B", "A+B#1.1", "causes#parents", "causes#chains", "stream(`ANY EVENT`)"),
)


def streams() -> list[Stream]:
    made: list[Stream] = [AnyEvent(), Ancestry("parents"), Ancestry("chains")]
    made += [AnyEvent((one,)) for one in TEXTS] + [AnyEvent((one, two)) for one, two in product(TEXTS, TEXTS)]
    made += [ContextStage(text, number) for text, number in product(TEXTS, (1, 2))]
    made += [WithRow(base, table, 1, 1) for base, table in product(TEXTS, TEXTS)]
    made += [WithRow(WithRow("A", "B", 1, 1), table, 1, 2) for table in TEXTS]
    return [*TEXTS, *made]


def names() -> list[NameValue]:
    simple: list[NameValue] = [*TEXTS, Chain(1), Chain(2)]
    simple += [Further(text, number) for text, number in product(TEXTS, (1, 2))]
    simple += [Edge(text, side) for text, side in product(TEXTS, "se")]
    simple += [UnnamedVariable(stream, number) for stream, number in product(streams(), (1, 2))]
    nested: list[NameValue] = [kind(name) for kind, name in product((Other, OneOf), simple)]
    nested += [Round(name, number) for name, number in product(simple, (0, 1))]
    return [*simple, *nested, *(Round(name, 0) for name in nested), *(Other(name) for name in nested)]


def test_every_stream_has_a_key_of_its_own() -> None:
    found = streams()
    assert len({*map(stream_key, found)}) == len({*found}) == len(found)


def test_every_name_has_a_key_of_its_own() -> None:
    found = names()
    assert len({*map(key_of, found)}) == len({*found}) == len(found)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("b", "b"),
        ("order line", "`order line`"),
        (UnnamedVariable("B", 2), "B#2"),
        (UnnamedVariable(AnyEvent(("A", "B")), 1), "`ANY EVENT BUT (A, B)`#1"),
        (Round("b", 1), "b[2]"),
        (Round(UnnamedVariable("B", 1), 0), "B#1[1]"),
        (Other("b"), "other b"),
        (Edge("w", "e"), "w.e"),
        (Tick("PRECEDES", 1), "PRECEDES#1"),
        (Handle(ContextStage("pattern", 2), "words"), "pattern#2"),
    ],
)
def test_keys_that_ids_of_matches_have_been_made_of(name: NameValue, key: str) -> None:
    assert key_of(name) == key


@pytest.mark.parametrize(
    ("stream", "key"),
    [("A", "A"), ("order line", "order line"), (AnyEvent(), "*"), (AnyEvent(("A", "B")), "*\nA\nB"), ("*", "`*`")],
)
def test_keys_that_ids_of_events_have_been_made_of(stream: Stream, key: str) -> None:
    assert stream_key(stream) == key
