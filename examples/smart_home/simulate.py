"""Simulates a day in the home: the reports of the sensors, and where everybody really was.

Ensue never sees the truth; it is used to evaluate the answers. A person stays in a room for a while, chooses the next
one, and walks there through the rooms in between. Sensors report this, with the error rates of `home.ensue`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pyarrow as pa

PEOPLE = ("alice", "bob")
ROOMS = ("living", "den", "kitchen", "bedroom", "bath")
PLACES = (*ROOMS, "outside")
CAMERAS = ("living", "den", "kitchen")
"""The rooms with a camera."""

DOORS = {"den": "living", "kitchen": "living", "bedroom": "living", "outside": "living", "bath": "bedroom"}
"""The room from which one enters each place. All ways meet in the living room."""

HABITS = {
    "alice": {"living": 3, "den": 4, "kitchen": 3, "bedroom": 3, "bath": 2, "outside": 1},
    "bob": {"living": 4, "den": 2, "kitchen": 2, "bedroom": 3, "bath": 2, "outside": 3},
}
STAYS = {"living": 35, "den": 50, "kitchen": 20, "bedroom": 40, "bath": 10, "outside": 110}
"""The mean length of a stay, in minutes."""

MORNING = datetime(2025, 3, 10, 6)
MINUTE = 60
DAY = 18 * 60 * MINUTE
"""Times are seconds since the morning."""

STEP = 12
"""The seconds that it takes to cross a room."""

DOOR_MISSES, DOOR_INVENTS = 0.02, 0.02
TAG_ERRS = 0.1
CAMERA_INVENTS = 0.05
TAG_EVERY, CAMERA_EVERY = 20 * MINUTE, 15 * MINUTE
OTHERS = {"Stove": 6, "Leak": 5, "Call": 6}

SCHEMA = pa.schema(
    [("t", pa.timestamp("s")), ("type", pa.string())]
    + [(name, pa.string()) for name in ("person", "room", "source", "target")]
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A person goes from one place to the next."""

    at: int
    person: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a sensor. Missing fields are None."""

    at: int
    type: str
    person: str | None = None
    room: str | None = None
    source: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Day:
    """The events, and for each of them where everybody was at its time: one column per person."""

    events: pa.Table
    truth: pa.Table


def draw_day(seed: int) -> Day:
    random = Random(seed)
    passages = sorted((walk for person in PEOPLE for walk in walks(random, person)), key=lambda walk: walk.at)
    reports = [
        *doors(random, passages),
        *tags(random, passages),
        *cameras(random, passages),
        *household(random, passages),
    ]
    reports.sort(key=lambda report: report.at)
    rows = [
        {
            "t": MORNING + timedelta(seconds=report.at),
            **{name: getattr(report, name) for name in SCHEMA.names[1:]},
        }
        for report in reports
    ]
    truth = {person: [place_of(passages, person, report.at) for report in reports] for person in PEOPLE}
    return Day(pa.Table.from_pylist(rows, SCHEMA), pa.table(truth))


def walks(random: Random, person: str) -> Iterator[Passage]:
    """Yields the passages of a person during the day, starting in the bedroom."""
    place, at = "bedroom", random.randint(30 * MINUTE, 90 * MINUTE)
    while at < DAY:
        chances = {room: chance for room, chance in HABITS[person].items() if room != place}
        [goal] = random.choices(list(chances), list(chances.values()))
        for source, target in steps(place, goal):
            yield Passage(at, person, source, target)
            at += STEP
        place = goal
        at += MINUTE + round(random.expovariate(1 / (STAYS[place] * MINUTE)))


def steps(place: str, goal: str) -> Iterator[tuple[str, str]]:
    """Yields the doors on the way from one place to another."""
    there, back = to_living(goal), to_living(place)
    while len(there) > 1 and len(back) > 1 and there[-2] == back[-2]:
        there.pop()
        back.pop()
    way = [*back, *reversed(there[:-1])]
    yield from pairwise(way)


def to_living(place: str) -> list[str]:
    way = [place]
    while way[-1] in DOORS:
        way.append(DOORS[way[-1]])
    return way


def place_of(passages: Sequence[Passage], person: str, at: int) -> str:
    """Returns where a person is at a time, after the passages at that time."""
    done = [walk.target for walk in passages if walk.person == person and walk.at <= at]
    return done[-1] if done else "bedroom"


def doors(random: Random, passages: Sequence[Passage]) -> Iterator[Report]:
    """Yields door reports. The front door knows who comes in; all other passages are reported without a name."""
    for walk in passages:
        if walk.source == "outside":
            yield Report(walk.at, "Unlocked", person=walk.person)
        elif random.random() >= DOOR_MISSES:
            yield Report(walk.at, "Moved", source=walk.source, target=walk.target)
        if random.random() < DOOR_INVENTS:
            source, target = random.choice([pair for pair in DOORS.items() if "outside" not in pair])
            yield Report(random.randrange(DAY), "Moved", source=source, target=target)


def tags(random: Random, passages: Sequence[Passage]) -> Iterator[Report]:
    """Yields tag reports from time to time. No answer means outside, and one answer in ten is wrong."""
    for person in PEOPLE:
        for at in now_and_then(random, TAG_EVERY):
            place = place_of(passages, person, at)
            wrong = random.random() < TAG_ERRS
            yield Report(at, person, room=random.choice([p for p in PLACES if p != place]) if wrong else place)


def cameras(random: Random, passages: Sequence[Passage]) -> Iterator[Report]:
    """Yields camera reports of somebody, a few of them false."""
    for room in CAMERAS:
        for at in now_and_then(random, CAMERA_EVERY):
            occupied = any(place_of(passages, person, at) == room for person in PEOPLE)
            if occupied or random.random() < CAMERA_INVENTS:
                yield Report(at, "Person", room=room)


def household(random: Random, passages: Sequence[Passage]) -> Iterator[Report]:
    """Yields stove events while somebody is in the kitchen, and leaks and calls at any time."""
    cooking = [at for at in range(0, DAY, 7 * MINUTE) if "kitchen" in (place_of(passages, p, at) for p in PEOPLE)]
    yield from (Report(at, "Stove") for at in random.sample(cooking, min(OTHERS["Stove"], len(cooking))))
    for kind in ("Leak", "Call"):
        yield from (Report(random.randrange(DAY), kind) for _ in range(OTHERS[kind]))


def now_and_then(random: Random, every: int) -> Iterator[int]:
    at = random.randrange(every)
    while at < DAY:
        yield at
        at += random.randint(every // 2, every * 3 // 2)
