"""The content of a page in few bytes: columns in place of records, each repeated text and proof once.

`assets/data.js` reads this form.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MATCH_COLUMNS = ("pattern", "lane", "start", "end", "complete", "span", "words", "id")


def packed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a page with packed events and matches; everything else stays as it is."""
    proofs = Proofs()
    events, matches = facts["events"], facts["matches"]
    return {
        **facts,
        "events": {
            **{name: column([event[name] for event in events]) for name in ("stream", "start", "fields")},
            "end": _changes(event["end"] if event["end"] != event["start"] else None for event in events),
            "lanes": column([tuple(event["lanes"]) for event in events]),
            "derived": [number for number, event in enumerate(events) if event.get("derived")],
            "values": [_values(events, number) for number in range(len(facts["fields"]))],
        },
        "matches": {
            **{name: column([match[name] for match in matches]) for name in MATCH_COLUMNS},
            "events": [runs(match["events"]) for match in matches],
            **_rows([match["row"] for match in matches]),
            "proof": [None if match["proof"] is None else proofs.number(match["proof"]) for match in matches],
        },
        "proofs": proofs.nodes,
    }


def column(values: Sequence[Any]) -> Any:
    """Return values as a list; or as distinct values and their places, if most are repeated.

    >>> column([7, 8]), column(["Paid", "Paid", "Paid", "Paid"])
    ([7, 8], {'of': ['Paid'], 'at': [0, 0, 0, 0]})
    """
    places: dict[Hashable, int] = {}
    of: list[Any] = []
    at = []
    for value in values:
        known = (type(value), _hashable(value))
        if known not in places:
            places[known] = len(of)
            of.append(value)
        at.append(places[known])
    return {"of": of, "at": at} if 2 * len(of) < len(at) else list(values)


def _hashable(value: Any) -> Hashable:
    return repr(value) if isinstance(value, list | tuple | dict) else value


def runs(numbers: Sequence[int]) -> list[int]:
    """Return a list of numbers in which a negative number stands for that many successors of the number before it.

    >>> runs([4, 7, 8, 9, 10, 2])
    [4, 7, -3, 2]
    """
    found: list[int] = []
    for place, number in enumerate(numbers):
        if place and number == numbers[place - 1] + 1:
            if found[-1] < 0:
                found[-1] -= 1
            else:
                found.append(-1)
        else:
            found.append(number)
    return found


def _changes(values: Iterable[Any]) -> dict[int, Any]:
    """Return the values that are not null, by their places."""
    return {place: value for place, value in enumerate(values) if value is not None}


def _values(events: Sequence[Mapping[str, Any]], fields: int) -> list[Any]:
    """Return the columns of the events that have the same fields."""
    rows = [event["values"] for event in events if event["fields"] == fields]
    return [column(values) for values in zip(*rows, strict=True)]


def _rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows as columns. `shapes` are the distinct lists of names, `shape` is the one of each row."""
    shapes: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        shapes.setdefault((*row,), []).append(row)
    numbers = {names: number for number, names in enumerate(shapes)}
    columns = [[column([row[name] for row in own]) for name in names] for names, own in shapes.items()]
    return {
        "shapes": [[*names] for names in shapes],
        "shape": column([numbers[*row,] for row in rows]),
        "rows": columns,
    }


@dataclass(slots=True)
class Proofs:
    """Parts of proofs, each once: kind, text, and, if it has them, its event and the numbers of its own parts."""

    nodes: list[list[Any]] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)

    def number(self, proof: Mapping[str, Any]) -> int:
        """Return the number of a proof; equal proofs have the same number."""
        parts = tuple(map(self.number, proof.get("because", ())))
        known = (proof["kind"], proof["text"], proof.get("event"), parts)
        if known not in self.numbers:
            self.numbers[known] = len(self.nodes)
            node: list[Any] = [proof["kind"], proof["text"]]
            if parts or "event" in proof:
                node.append(proof.get("event"))
            self.nodes.append([*node, runs(parts)] if parts else node)
        return self.numbers[known]
