"""Finds problems in the incidents of a real help desk: prints counts and, with --report, writes a page.

    python examples/incidents/run.py bpic2013_incidents.csv.gz --report incidents.html

The file has one row for each status change of an incident. README.md names its source.
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
SHOWN = 3
GROUPS = {
    "ping_pong": ("one", "other"),
    "pushed_back": ("front_group", "behind_group"),
    "reopened": ("solved_by",),
    "no_answer": ("support_group",),
}
"""The columns by which the matches are counted."""


def read_incidents(path: Path) -> pa.Table:
    """Reads the status changes, with their times as timestamps."""
    types = csv.ConvertOptions(column_types={"time": pa.timestamp("s", "UTC")})
    return csv.read_csv(path, convert_options=types)


def find(incidents: pa.Table) -> Mapping[str, pa.Table]:
    return ensue.run(incidents, ensue.parse(PROGRAM), time="time", type="activity")


def most_affected(matches: pa.Table, columns: tuple[str, ...]) -> Iterator[str]:
    """Yields the groups with the most matches. For a ping-pong, it does not matter which of the two groups started."""
    rows = zip(*(matches.column(name).to_pylist() for name in columns), strict=True)
    counted = Counter(tuple(sorted(row)) if "other" in columns else row for row in rows)
    for groups, count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"{count} of {', '.join(groups)}"


def summary(incidents: pa.Table, found: Mapping[str, pa.Table]) -> Iterator[str]:
    total = compute.count_distinct(incidents.column("case")).as_py()
    yield f"{incidents.num_rows:,} status changes of {total:,} incidents"
    for name, matches in found.items():
        affected = compute.count_distinct(matches.column("incident")).as_py()
        share = f"{affected:,} incidents ({affected / total:.1%})"
        yield f"{name}: {matches.num_rows:,} matches in {share}; {'; '.join(most_affected(matches, GROUPS[name]))}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Finds problems in the incidents of a help desk.")
    parser.add_argument("incidents", type=Path, help="bpic2013_incidents.csv.gz; README.md names its source")
    parser.add_argument("--report", type=Path, help="write a page with timelines of incidents")
    chosen = parser.parse_args()
    incidents = read_incidents(chosen.incidents)
    print("\n".join(summary(incidents, find(incidents))))
    if chosen.report is not None:
        page = ensue.report(incidents, ensue.parse(PROGRAM), time="time", type="activity", title="Incidents")
        print(f"Written to {page.save(chosen.report)}")


if __name__ == "__main__":
    main()
