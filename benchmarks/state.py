"""Measures the speed of probabilistic state: events per second in one process, and ratios within one run.

python benchmarks/state.py
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import ensue

ROOMS = ("living", "den", "kitchen", "bedroom", "bath", "outside")
PEOPLE = ("alice", "bob")
TARGET = 500_000

PROGRAM = """
STATE location OF {people} IN (living, den, kitchen, bedroom, bath, outside)
  PARTITION BY home
  ON Moved m: MOVE ANYONE FROM m.source TO m.target PROBABILITY 0.9
  ON Seen s: OBSERVE s.person IN s.room RELIABILITY 0.9
  ON Motion o: OBSERVE ANYONE IN o.room RELIABILITY 0.9 FALSE ALARM 0.05
  ON Wander w: MOVE w.person BY (living -> den 0.3, den -> living 0.2, kitchen -> living 0.5)
"""


def homes(events: int, keys: int, people: tuple[str, ...]) -> pa.Table:
    """Events of all four kinds, in the order of time, over so many homes."""
    random = np.random.default_rng(7)

    def texts(values: tuple[str, ...]) -> pa.Array:
        indices = pa.array(random.integers(0, len(values), events, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(indices, pa.array(values)).cast(pa.string())

    return pa.table(
        {
            "t": np.arange(events, dtype=np.int64),
            "type": texts(("Moved", "Seen", "Motion", "Wander")),
            "home": random.integers(0, keys, events),
            "person": texts(people),
            "source": texts(ROOMS),
            "target": texts(ROOMS),
            "room": texts(ROOMS),
        }
    )


def seconds(run: Callable[[], object], runs: int) -> float:
    """The best of some runs."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def figures(events: int, keys: int, runs: int) -> list[dict[str, object]]:
    """Everything that is measured."""
    table, program = homes(events, keys, PEOPLE), PROGRAM.format(people=", ".join(PEOPLE))
    many = tuple(f"person_{number}" for number in range(10))
    crowd, crowded = homes(events, keys, many), PROGRAM.format(people=", ".join(many))
    columns = {"kitchen": "P(anyone in kitchen)", "at_home": "E(count(not outside))", "best": "MOST LIKELY(alice)"}
    options = {"time": "t", "type": "type"}
    ensue.beliefs.of(table.slice(0, 100), program, **options)  # kernels are compiled
    exact = seconds(lambda: ensue.beliefs.of(table, program, **options), runs)
    uncertain = table.append_column("p", pa.array(np.full(events, 0.9)))
    mixed = seconds(lambda: ensue.beliefs.of(uncertain, program, probability="p", **options), runs)
    tracked = seconds(lambda: ensue.beliefs.track(table, program, columns, **options), runs)
    apart = seconds(lambda: ensue.beliefs.of(table, program, largest_joint=1, **options), runs)
    large = seconds(lambda: ensue.beliefs.of(crowd, crowded, **options), runs)
    rate = events / exact
    return [
        {
            "name": "2 people, 6 rooms",
            "value": rate,
            "measure": "events/s",
            "target": TARGET,
            "reached": rate >= TARGET,
            "at_most": False,
        },
        {"name": "with a probability of every event", "value": mixed / exact, "measure": "times", "at_most": True},
        {"name": "three columns at every event", "value": tracked / exact, "measure": "times", "at_most": True},
        {"name": "variables kept apart", "value": apart / exact, "measure": "times", "at_most": True},
        {"name": "10 people, 6 rooms, kept apart", "value": large / exact, "measure": "times", "at_most": True},
    ]


def main() -> None:
    """Runs and prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ensue.EnsueNotice)
    found = figures(given.events, given.keys, given.runs)
    if given.format == "json":
        print(json.dumps(found))
        return
    for figure in found:
        target = (
            f"  (target {figure['target']:,}: {'yes' if figure['reached'] else 'no'})" if "target" in figure else ""
        )
        print(f"{figure['name']:<40} {figure['value']:>14,.2f} {figure['measure']}{target}")


if __name__ == "__main__":
    main()
