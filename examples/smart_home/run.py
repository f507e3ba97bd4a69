"""Where is everybody? Tracks two people in a simulated smart home, finds alerts, and measures the accuracy.

    python examples/smart_home/run.py

Prints a summary and writes a folder: `answers.csv`, `home.svg`, and `alerts.html`, a page with the alerts. The truth is
known, because it is a simulation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from chart import draw
from numpy.typing import NDArray
from pyarrow import csv
from simulate import PEOPLE, PLACES, Day, draw_day

import ensue

PROGRAM = Path(__file__).with_name("home.ensue")
Numbers = NDArray[np.float64]

QUESTIONS = {
    "at_home": "E(count(not outside))",
    "nobody_home": "P(count(not outside) = 0)",
    "one_home": "P(count(not outside) = 1)",
    "two_home": "P(count(not outside) = 2)",
    "alice_home": "P(alice not in outside)",
    "anyone_living": "P(anyone in living)",
    "only_alice_living": "P(alice in living and bob not in living)",
    "only_bob_living": "P(bob in living and alice not in living)",
    **{f"{person}_{place}": f"P({person} in {place})" for person in PEOPLE for place in PLACES},
    **{person: f"MOST LIKELY({person})" for person in PEOPLE},
}
"""The columns of the answers. The display is in the living room, so it asks who is there."""

SOMEBODY = 0.3
"""The display is off if the probability that anyone is there is lower than this."""

SURE = 0.8
"""The display shows a person's program if the probability that this person is there alone is at least this."""

BINS = 5


def answer(events: pa.Table) -> pa.Table:
    """Returns the beliefs and the content of the display after each event."""
    tracked = ensue.beliefs.track(events, ensue.parse(PROGRAM), QUESTIONS, time="t", type="type")
    return with_display(tracked)


def with_display(tracked: pa.Table) -> pa.Table:
    return tracked.append_column("display", pa.array(display(tracked).tolist(), pa.string()))


def display(tracked: pa.Table) -> NDArray[np.str_]:
    """Returns news for Alice, sports for Bob, the weather for both or if unsure, and off for nobody."""
    anyone, alice, bob = (numbers(tracked, f"{who}_living") for who in ("anyone", "only_alice", "only_bob"))
    return np.select([anyone < SOMEBODY, alice >= SURE, bob >= SURE], ["off", "news", "sports"], "weather")


def wanted_display(truth: pa.Table) -> NDArray[np.str_]:
    """Returns what the display would show if it knew where everybody is."""
    alice, bob = (texts(truth, person) == "living" for person in PEOPLE)
    return np.select([~alice & ~bob, alice & ~bob, bob & ~alice], ["off", "news", "sports"], "weather")


def find(events: pa.Table) -> Mapping[str, pa.Table]:
    return ensue.run(events, ensue.parse(PROGRAM), time="t", type="type")


def calibration(answers: pa.Table, truth: pa.Table) -> list[tuple[float, float, int]]:
    """Returns for each range the mean stated probability, the observed frequency, and the number of statements."""
    said = np.concatenate([numbers(answers, f"{person}_{place}") for person in PEOPLE for place in PLACES])
    so = np.concatenate([texts(truth, person) == place for person in PEOPLE for place in PLACES])
    ranges = np.minimum((said * BINS).astype(np.int64), BINS - 1)
    found = [(said[ranges == which], so[ranges == which]) for which in range(BINS)]
    return [(float(values.mean()), float(true.mean()), len(values)) for values, true in found if len(values)]


def summary(day: Day, answers: pa.Table, alerts: Mapping[str, pa.Table]) -> Iterator[str]:
    yield f"{day.events.num_rows} events in one day"
    yield from (judged_place(person, day, answers) for person in PEOPLE)
    count = sum((texts(day.truth, person) != "outside").astype(np.int64) for person in PEOPLE)
    yield f"people at home: mean error {np.abs(numbers(answers, 'at_home') - count).mean():.2f}"
    shown, wanted = texts(answers, "display"), wanted_display(day.truth)
    wrong = np.isin(shown, ["news", "sports"]) & (shown != wanted)
    yield f"display: correct {np.mean(shown == wanted):.0%}, program of the other person {wrong.mean():.0%}"
    for said, so, statements in calibration(answers, day.truth):
        yield f"  stated probability {said:.2f}, observed frequency {so:.2f} ({statements:,} statements)"
    leaks = texts(day.events, "type") == "Leak"
    yield f"{leaks.sum()} leaks, {(leaks & kitchen_empty(day.truth)).sum()} of them while nobody was in the kitchen"
    for name, rows in alerts.items():
        yield f"{name}: {rows.num_rows}"
        for row in rows.to_pylist():
            found = ", ".join(f"{column} {value:.2f}" for column, value in row.items() if column != "at")
            yield f"  {row['at']:%H:%M} {found}"


def judged_place(person: str, day: Day, answers: pa.Table) -> str:
    true, told = texts(day.truth, person), texts(answers, person)
    usual = max(PLACES, key=lambda place: np.count_nonzero(true == place))
    right, guessed = np.mean(told == true), np.mean(true == usual)
    return f"{person}: most likely place correct {right:.0%} (always guessing {usual}: {guessed:.0%})"


def kitchen_empty(truth: pa.Table) -> NDArray[np.bool_]:
    places = np.stack([texts(truth, person) for person in PEOPLE])
    return np.asarray(np.all(places != "kitchen", axis=0))


def numbers(table: pa.Table, column: str) -> Numbers:
    return np.asarray(table.column(column).to_numpy(), np.float64)


def texts(table: pa.Table, column: str) -> NDArray[np.str_]:
    return np.asarray(table.column(column).to_pylist(), np.str_)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tracks where everybody is during a day, and measures the accuracy.")
    parser.add_argument("--output", type=Path, default=Path("smart_home"), help="the folder to write")
    parser.add_argument("--seed", type=int, default=5, help="random seed of the day (default: %(default)s)")
    chosen = parser.parse_args()
    folder: Path = chosen.output
    folder.mkdir(parents=True, exist_ok=True)
    day = draw_day(chosen.seed)
    answers = answer(day.events)
    csv.write_csv(answers, folder / "answers.csv")
    (folder / "home.svg").write_text(draw(answers, day.truth), encoding="utf-8")
    page = ensue.report(day.events, ensue.parse(PROGRAM), time="t", type="type", title="A smart home")
    print("\n".join(summary(day, answers, find(day.events))))
    print(f"Written to {folder / 'home.svg'} and {page.save(folder / 'alerts.html')}")


if __name__ == "__main__":
    main()
