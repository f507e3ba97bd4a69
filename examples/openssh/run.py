"""Answers seven questions to the raw log of an SSH server, and writes a page with the matches.

    python examples/openssh/run.py loghub_openssh_2k.log

README.md names the source of the log, and says what the answers mean. Without an argument, the example reads the log in
`../shared/data` next to the repository, or else a made-up log.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa

import ensue

PROGRAM = Path(__file__).with_name("openssh.ensue")
REAL = Path(__file__).parents[3] / "shared" / "data" / "loghub_openssh_2k.log"
MADE_UP = Path(__file__).with_name("made_up.log")
LINE = re.compile(r"(\w{3} +\d+ [\d:]{8}) \S+ sshd\[(\d+)\]: (.*)")
SAMPLE = "Dec 10 06:55:46 LabSZ sshd[24200]: Connection closed by 10.0.0.7 [preauth]"
YEAR = 2024
"""Syslog does not write the year. A leap year has every day that a log can contain."""

WATCHED = pa.table({"ip": ["5.188.10.180", "183.62.140.253", "185.190.58.151"]})
"""The rows of TABLE watched."""

SHOWN = 3
QUESTIONS = {
    "spraying": "Which addresses try five users or more?",
    "brute_force": "Which addresses fail 20 times or more?",
    "never_closed": "After which failures was the connection never closed?",
    "broken_in": "Who logs in after three failures or more?",
    "left_open": "Which sessions are still open after 8 hours?",
    "on_watch_list": "Which addresses of the watch list fail?",
    "unverified": "Which hosts without a valid name fail, and disconnect at once?",
}


def read_log(path: Path) -> pa.Table:
    """Reads the lines that sshd wrote. The number of a line is its place in the file, which is the order of events."""
    rows = []
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        found = LINE.fullmatch(text.rstrip())
        if found is not None:
            time, pid, message = found.groups()
            rows.append((number, datetime.strptime(f"{YEAR} {time}", "%Y %b %d %H:%M:%S"), int(pid), message))
    columns = {"line": pa.int64(), "at": pa.timestamp("s"), "pid": pa.int64(), "message": pa.string()}
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return pa.table([pa.array(own, kind) for own, kind in zip(values, columns.values(), strict=True)], [*columns])


def find(log: pa.Table, order: str | None = "line") -> ensue.Results:
    return ensue.run(log, ensue.parse(PROGRAM), time="at", order=order, tables={"watched": WATCHED})


def answers(found: ensue.Results) -> Iterator[str]:
    """Yields each question with the number of its answers and the first of them."""
    for name, question in QUESTIONS.items():
        matches = found[name]
        yield f"\n{question} {name}: {matches.num_rows}"
        for row in matches.slice(0, SHOWN).to_pylist():
            yield "  " + ", ".join(f"{column} {written(value)}" for column, value in row.items())
        if matches.num_rows > SHOWN:
            yield f"  ... and {matches.num_rows - SHOWN} more"


def written(value: object) -> str:
    return f"{value:%H:%M:%S}" if isinstance(value, datetime) else str(value)


def without_order(log: pa.Table, found: ensue.Results) -> Iterator[str]:
    """Yields the answers that change if lines of the same second have no order, and the notices of Ensue."""
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always", ensue.EnsueNotice)
        loose = find(log, order=None)
    yield "\nWithout order=, lines of the same second are not ordered:"
    for name in QUESTIONS:
        if loose[name].num_rows != found[name].num_rows:
            yield f"  {name}: {loose[name].num_rows} instead of {found[name].num_rows}"
    yield f"  with ALLOWING TIES, never_closed: {loose['never_closed_with_ties'].num_rows}"
    for notice in notices:
        yield f"  {notice.message}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers questions to the log of an SSH server.")
    parser.add_argument("log", type=Path, nargs="?", help="loghub_openssh_2k.log; README.md names its source")
    parser.add_argument("--output", type=Path, default=Path("openssh.html"), help="the page to write")
    chosen = parser.parse_args()
    path = chosen.log or (REAL if REAL.is_file() else MADE_UP)
    if not path.is_file():
        parser.error(f"no log at {path}; README.md says where to get one")
    log = read_log(path)
    if not log.num_rows:
        parser.error(f"no lines of sshd in {path}; a line looks like: {SAMPLE}")
    if path.samefile(MADE_UP):
        print("This log is made up. README.md says where to get the real one.")
    print(f"{log.num_rows:,} lines of sshd")
    found = find(log)
    print("\n".join((*answers(found), *without_order(log, found))))
    page = ensue.report(
        log, ensue.parse(PROGRAM), time="at", order="line", tables={"watched": WATCHED}, title="An SSH server"
    )
    print(f"\nWritten to {page.save(chosen.output)}")


if __name__ == "__main__":
    main()
