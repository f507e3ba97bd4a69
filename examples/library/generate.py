"""Generates a day in the library: readings as Parquet files in the order of arrival, and the expected results.

    python examples/library/generate.py FOLDER [--seed 7] [--visits 110] [--files 6]

The expected results come from the generated stories, never from Ensue. Each story has its own people and books, and
stories are apart at counters and doors, so that they do not affect each other.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("t", pa.timestamp("us", "UTC")),
        ("type", pa.string()),
        ("kind", pa.string()),
        ("tag", pa.string()),
        ("reader", pa.string()),
    ]
)
REPORTED = pa.schema(
    [
        ("t", pa.timestamp("us", "UTC")),
        ("type", pa.string()),
        ("book_id", pa.string()),
        ("loc_id", pa.string()),
        ("person_id", pa.string()),
    ]
)
"""The columns of the report's streams Book and Checkout."""

OPENING = datetime(2025, 3, 10, 9, tzinfo=UTC)
SECOND = 1000
"""Times are milliseconds since the opening."""

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
LIMIT = 3
READERS = {"shelf": 12, "counter": 2, "door": 2}
STREAMS = {"shelf": "ShelfReading", "counter": "CounterReading", "door": "DoorReading"}
APART = {"counter": 90 * SECOND, "door": 40 * SECOND}
"""The minimum distance between two stories at one reader."""

LONGEST_QUEUE = 15 * MINUTE
"""The longest time that a story waits for a reader, so that it ends within two hours."""

MOST_DELAY = 20 * SECOND
"""The longest delay of a reading."""


def moment(at: int) -> datetime:
    return OPENING + timedelta(milliseconds=at)


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A tag in front of a reader."""

    at: int
    stream: str
    kind: str
    tag: str
    reader: str

    def __str__(self) -> str:
        return describe(moment(self.at), self.stream, self.tag, self.reader)


def describe(at: datetime, stream: str, tag: str, reader: str) -> str:
    """Returns a reading as one line, as in the expected alerts."""
    return f"{at.isoformat()} {stream} of {tag} by {reader}"


@dataclass(frozen=True, slots=True)
class Loan:
    """A book that someone borrowed: the time when it was read with the card, and all readings that show it."""

    person: str
    book: str
    at: int
    readings: frozenset[Reading]


@dataclass(slots=True)
class Day:
    """The generated stories: their readings, and the expected results."""

    random: Random
    readings: list[Reading] = field(default_factory=list)
    expected: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"BookliftingAlert": [], "ConfusionAlert": [], "OverlimitAlert": [], "Loans": []}
    )
    taken: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    tags: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    # Building blocks of the stories.

    def new(self, kind: str) -> str:
        """Returns a new tag for a book or a person."""
        self.tags[kind] += 1
        return f"{kind}-{self.tags[kind]}"

    def people(self, count: int) -> list[str]:
        return [self.new("person") for _ in range(count)]

    def reader(self, place: str) -> str:
        return f"{place}-{self.random.randint(1, READERS[place])}"

    def between(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def free(self, place: str, earliest: int) -> tuple[str, int]:
        """Returns a reader at this place, and a time at or after `earliest` when no other story uses it."""
        reader, at = self.reader(place), earliest
        while any(abs(at - other) < APART[place] for other in self.taken[reader]):
            at += self.between(SECOND, 10 * SECOND)
        if at > earliest + LONGEST_QUEUE:
            raise ValueError(f"too many visits for the {place}s; use fewer visits")
        self.taken[reader].append(at)
        return reader, at

    def read(self, reader: str, tag: str, at: int) -> Reading:
        """Adds the first reading of a tag and a few repetitions. Returns the first."""
        stream = STREAMS[reader.partition("-")[0]]
        first = Reading(at, stream, tag.partition("-")[0], tag, reader)
        self.readings.append(first)
        for _ in range(self.between(0, 3)):
            at += self.between(SECOND // 3, 3 * SECOND)
            self.readings.append(Reading(at, stream, first.kind, tag, reader))
        return first

    # Actions of people. Each returns the readings that show it.

    def pick(self, at: int, count: int = 1) -> dict[str, Reading]:
        """Takes books from a shelf. Some of them were read on a shelf before."""
        picked = {}
        for _ in range(count):
            book, shelf = self.new("book"), self.reader("shelf")
            if self.chance(0.4):
                self.read(self.reader("shelf"), book, at - self.between(2 * MINUTE, 20 * MINUTE))
            picked[book] = self.read(shelf, book, at + self.between(0, MINUTE))
        return picked

    def check_out(self, person: str, books: Iterable[str], earliest: int) -> list[Loan]:
        """Reads a card and then the books at a counter, sometimes after the card of another person."""
        counter, at = self.free("counter", earliest)
        if self.chance(0.3):
            self.read(counter, self.new("person"), at - self.between(2 * SECOND, 8 * SECOND))
        card = self.read(counter, person, at)
        read = [self.read(counter, book, at + self.between(SECOND, 20 * SECOND)) for book in books]
        loans = [Loan(person, book.tag, book.at, frozenset({card, book})) for book in read]
        self.expect_loans(loans)
        return loans

    def pass_door(self, tags: Sequence[str], earliest: int) -> dict[str, Reading]:
        """Moves books and people through a door together, within 4 seconds or in the same millisecond."""
        door, at = self.free("door", earliest)
        spread = 0 if self.chance(0.2) else 4 * SECOND
        if self.chance(0.2):
            self.readings.append(Reading(at, "DoorReading", "unknown", "umbrella", door))
        return {tag: self.read(door, tag, at + self.between(0, spread)) for tag in tags}

    def turbo(self, person: str, shelved: dict[str, Reading], earliest: int) -> list[Loan]:
        """Moves a person through the door with books that are not checked out."""
        passed = self.pass_door([*shelved, person], earliest)
        loans = [
            Loan(person, book, passed[book].at, frozenset({shelf, passed[book], passed[person]}))
            for book, shelf in shelved.items()
        ]
        self.expect_loans(loans)
        return loans

    # Expected results.

    def expect(self, alert: str, readings: Iterable[Reading] = (), **columns: Any) -> None:
        row = dict(columns, at=moment(columns["at"]).isoformat())
        if alert != "Loans":
            row["readings"] = sorted(map(str, readings))
        self.expected[alert].append(row)

    def expect_loans(self, loans: Iterable[Loan]) -> None:
        for loan in loans:
            self.expect("Loans", person=loan.person, book=loan.book, at=loan.at)

    def expect_booklifting(self, shelf: Reading, door: Reading) -> None:
        columns = {"book": door.tag, "shelf": shelf.reader, "door": door.reader}
        self.expect("BookliftingAlert", [shelf, door], **columns, at=door.at)

    # The stories. Each starts at `at` and ends within two hours unless noted otherwise.

    def honest(self, at: int) -> None:
        """Books are checked out at the counter, and leave; a friend may leave at the same time."""
        person, *friend = self.people(self.between(1, 2))
        books = self.pick(at, self.between(1, LIMIT))
        loans = self.check_out(person, books, at + 10 * MINUTE)
        self.pass_door([*books, person, *friend], loans[-1].at + self.between(1, 10) * MINUTE)

    def hurried(self, at: int) -> None:
        """Books are not checked out, but leave with one person: a turbo-checkout."""
        self.turbo(self.new("person"), self.pick(at, self.between(1, LIMIT)), at + self.between(2, 40) * MINUTE)

    def theft(self, at: int) -> None:
        """A book leaves with nobody near it. It may have been on the counter, or someone may follow too late."""
        [(book, shelf)] = self.pick(at).items()
        if self.chance(0.4):
            counter, seen = self.free("counter", at + 10 * MINUTE)
            self.read(counter, book, seen)
        passed = self.pass_door([book], at + 30 * MINUTE)[book]
        self.expect_booklifting(shelf, passed)
        if self.chance(0.5):
            self.read(passed.reader, self.new("person"), passed.at + self.between(6 * SECOND, 9 * SECOND))

    def confusion(self, at: int) -> None:
        """A book leaves between several people."""
        people = self.people(self.between(2, 3))
        [(book, shelf)] = self.pick(at).items()
        passed = self.pass_door([book, *people], at + self.between(5, 30) * MINUTE)
        door = passed[book]
        columns = {"book": book, "persons": sorted(people), "door": door.reader}
        self.expect("ConfusionAlert", [shelf, *passed.values()], **columns, at=door.at)

    def too_many(self, at: int) -> None:
        """Someone takes more books than allowed, some over the counter and the others through the door."""
        person, count = self.new("person"), self.between(LIMIT + 1, LIMIT + 3)
        over_the_counter = self.pick(at, self.between(1, count - 1))
        loans = self.check_out(person, over_the_counter, at + 10 * MINUTE)
        others = self.pick(at + 30 * MINUTE, count - len(over_the_counter))
        loans += self.turbo(person, others, at + 40 * MINUTE)
        for loan in loans:
            so_far = [own for own in loans if own.at <= loan.at]
            if len(so_far) > LIMIT:
                readings = {reading for own in so_far for reading in own.readings}
                self.expect("OverlimitAlert", readings, person=person, book=loan.book, books=len(so_far), at=loan.at)

    def twice_a_day(self, at: int) -> None:
        """Someone takes as many books, but half of them three hours later, which is allowed."""
        person = self.new("person")
        self.check_out(person, self.pick(at, LIMIT), at + 5 * MINUTE)
        self.turbo(person, self.pick(at + 3 * HOUR, LIMIT), at + 3 * HOUR + 10 * MINUTE)

    def returned(self, at: int) -> None:
        """A book is borrowed, returned, shelved, and then stolen. It is one loan."""
        person = self.new("person")
        [book] = self.pick(at)
        [loan] = self.check_out(person, [book], at + 5 * MINUTE)
        out = self.pass_door([book, person], loan.at + 5 * MINUTE)
        back = self.pass_door([book, person], out[book].at + 20 * MINUTE)
        shelf = self.read(self.reader("shelf"), book, back[book].at + 15 * MINUTE)
        self.expect_booklifting(shelf, self.pass_door([book], shelf.at + 15 * MINUTE)[book])

    def brought_back(self, at: int) -> None:
        """A book that was borrowed long ago is returned at the counter and put on its shelf."""
        book, person = self.new("book"), self.new("person")
        came = self.pass_door([book, person], at)
        counter, seen = self.free("counter", came[book].at + 5 * MINUTE)
        self.read(counter, book, seen)
        self.read(self.reader("shelf"), book, seen + 30 * MINUTE)

    def reading_room(self, at: int) -> None:
        """Someone comes, looks at books, and leaves without one."""
        person = self.new("person")
        self.pass_door([person], at)
        self.pick(at + 5 * MINUTE, 3)
        self.pass_door([person], at + 50 * MINUTE)

    def finish(self) -> None:
        """Adds a heartbeat of every reader every ten minutes, up to half an hour after the last reading."""
        last = max(reading.at for reading in self.readings) + 30 * MINUTE
        readers = [f"{place}-{number}" for place, count in READERS.items() for number in range(1, count + 1)]
        for at in (*range(0, last, 10 * MINUTE), last):
            self.readings += [Reading(at, "Heartbeat", "reader", reader, reader) for reader in readers]


STORIES = (
    Day.honest, Day.hurried, Day.theft, Day.honest, Day.confusion, Day.too_many, Day.hurried,
    Day.twice_a_day, Day.returned, Day.brought_back, Day.reading_room,
)  # fmt: skip


def draw_day(seed: int, visits: int) -> Day:
    """Generates a day with this number of stories, of each kind in turn, that start in the first four hours."""
    day = Day(Random(seed))
    for number in range(visits):
        STORIES[number % len(STORIES)](day, day.between(30 * MINUTE, 4 * HOUR))
    day.finish()
    return day


def table_of(day: Day) -> pa.Table:
    """Returns the readings in the order of arrival, each with a small delay."""
    arrived = sorted(sorted(day.readings), key=lambda reading: reading.at + day.between(0, MOST_DELAY))
    rows = [(moment(read.at), read.stream, read.kind, read.tag, read.reader) for read in arrived]
    return pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), SCHEMA)


def draw_exits(seed: int, count: int = 60) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Generates the report's streams Book and Checkout at a door, and the books that leave without a checkout.

    A checkout counts up to a minute before the book leaves, at the counter, and up to 2 seconds after, at the door.
    Each book leaves once. Some are read again at the door, at most 2 seconds later, and each reading is an alert.
    """
    random, rows, lifted = Random(seed), [], []
    for number in range(count):
        at, book = number * 10 * SECOND + random.randint(0, 5) * SECOND, f"book-{number + 1}"
        story = number % len(CHECKOUTS)
        shortest, longest = CHECKOUTS[story]
        readings = [at, at + random.randint(100, 2 * SECOND)] if random.random() < 0.2 else [at]
        checkout = at + random.randint(shortest, longest)
        rows += [(moment(time), "Book", book, "door-1", None) for time in readings]
        if story:
            place = "counter-1" if checkout < at else "door-1"
            rows.append((moment(checkout), "Checkout", book, place, f"person-{number + 1}"))
        lifted += [
            {"book_id": book, "loc_id": "door-1", "t": moment(time)}
            for time in readings
            if not (story and -MINUTE <= checkout - time <= 2 * SECOND and checkout != time)
        ]
    rows.sort(key=lambda row: row[0])
    return pa.table(dict(zip(REPORTED.names, zip(*rows, strict=True), strict=True)), REPORTED), lifted


CHECKOUTS = (
    (0, 0),  # none
    (-55 * SECOND, -SECOND),
    (100, 2 * SECOND),
    (-3 * MINUTE, -MINUTE - 1),
    (4 * SECOND + 1, 8 * SECOND),
)
"""When the checkout of a book is, in milliseconds after its first reading at the door, for each story in turn."""


def write_day(folder: Path, day: Day, files: int) -> None:
    """Writes `readings/*.parquet` and `expected.json`.

    Spark reads files in the order of their modification times, so each is a second newer than the previous one.
    """
    table = table_of(day)
    (folder / "readings").mkdir(parents=True)
    now = time.time() - files
    for number in range(files):
        first, last = (table.num_rows * place // files for place in (number, number + 1))
        path = folder / "readings" / f"{number:04}.parquet"
        pq.write_table(table.slice(first, last - first), path)
        os.utime(path, (now + number, now + number))
    (folder / "expected.json").write_text(json.dumps(day.expected, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Generates a day in the library: readings/*.parquet and expected.json."
    )
    parser.add_argument("folder", type=Path, help="folder to write to; must not contain `readings`")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--visits", type=int, default=110, help="number of stories (default: %(default)s)")
    parser.add_argument("--files", type=int, default=6)
    chosen = parser.parse_args()
    day = draw_day(chosen.seed, chosen.visits)
    write_day(chosen.folder, day, chosen.files)
    found = ", ".join(f"{len(rows)} {name}" for name, rows in day.expected.items())
    print(f"{len(day.readings)} readings in {chosen.files} files; expected: {found}")


if __name__ == "__main__":
    main()
