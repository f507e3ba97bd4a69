"""Finds problems and broken rules in the incidents of a real help desk, and writes a page with timelines.

    python examples/incidents/run.py bpic2013_incidents.csv.gz

The file has one row for each status change of an incident. README.md names its source. Without an argument, the example
reads the file in `../shared/data` next to the repository, or else made-up incidents.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, csv

import ensue

PROGRAM = Path(__file__).with_name("incidents.ensue")
RULES = Path(__file__).with_name("rules.ensue")
REAL = Path(__file__).parents[3] / "shared" / "data" / "bpic2013_incidents.csv.gz"
MADE_UP = Path(__file__).with_name("made_up.csv.gz")
SHOWN = 3
GROUPS = {
    "ping_pong": ("one", "other"),
    "pushed_back": ("front_group", "behind_group"),
    "reopened": ("solved_by",),
    "no_answer": ("support_group",),
    "left_in_queue": ("support_group",),
}
"""The columns by which the matches are counted."""


def read_incidents(path: Path) -> pa.Table:
    """Reads the status changes, with their times as timestamps."""
    types = csv.ConvertOptions(column_types={"time": pa.timestamp("s", "UTC")})
    return csv.read_csv(path, convert_options=types)


def find(incidents: pa.Table) -> Mapping[str, pa.Table]:
    return ensue.run(incidents, ensue.parse(PROGRAM), time="time", type="activity")


def find_broken_rules(incidents: pa.Table) -> pa.Table:
    """Returns a row for each incident and each rule that it breaks. Rules are about the status, not the activity."""
    return ensue.violations(incidents, ensue.parse(RULES), time="time", type="status")


def most_affected(matches: pa.Table, columns: tuple[str, ...]) -> Iterator[str]:
    """Yields the groups with the most matches. For a ping-pong, it does not matter which of the two groups started."""
    rows = zip(*(matches.column(name).to_pylist() for name in columns), strict=True)
    counted = Counter(tuple(sorted(row)) if "other" in columns else row for row in rows)
    for groups, count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"{count} of {', '.join(groups)}"


def summary(incidents: pa.Table, found: Mapping[str, pa.Table], broken: pa.Table) -> Iterator[str]:
    total = compute.count_distinct(incidents.column("case")).as_py()
    yield f"{incidents.num_rows:,} status changes of {total:,} incidents"
    for name, matches in found.items():
        affected = compute.count_distinct(matches.column("incident")).as_py()
        share = f"{affected:,} incidents ({affected / total:.1%})"
        yield f"{name}: {matches.num_rows:,} matches in {share}; {'; '.join(most_affected(matches, GROUPS[name]))}"
    pairs = {(row["constraint"], row["case"]) for row in broken.to_pylist()}
    for rule, count in sorted(Counter(rule for rule, _ in pairs).items()):
        yield f"{rule}: broken by {count:,} incidents ({count / total:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Finds problems in the incidents of a help desk.")
    parser.add_argument("incidents", type=Path, nargs="?", help="bpic2013_incidents.csv.gz; README.md names its source")
    parser.add_argument("--output", type=Path, default=Path("incidents.html"), help="the page to write")
    chosen = parser.parse_args()
    path = chosen.incidents or (REAL if REAL.is_file() else MADE_UP)
    if not path.is_file():
        parser.error(f"no incidents at {path}; README.md says where to get them")
    if path.samefile(MADE_UP):
        print("These incidents are made up. README.md says where to get the real ones.")
    incidents = read_incidents(path)
    print("\n".join(summary(incidents, find(incidents), find_broken_rules(incidents))))
    page = ensue.report(incidents, ensue.parse(PROGRAM), time="time", type="activity", title="Incidents")
    print(f"Written to {page.save(chosen.output)}")


if __name__ == "__main__":
    main()
