"""A program over files of events, and its matches as tables, JSON or CSV."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ensue.api import run, violations
from ensue.apps.cli.cli_terminal import open_console
from ensue.apps.cli.files import read_sources, read_tables
from ensue.apps.cli.programs import name_patterns
from ensue.apps.cli.terminal import UsageError, counted, messages, show
from ensue.plan.plans import DEFAULT_LIMIT
from ensue.programs import Program

SHOWN_ROWS = 20
"""Rows of a table that are shown unless `--rows` says otherwise."""


def detect_in_files(
    program: Program,
    events: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    limit: int | None,
    tables: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
) -> Mapping[str, pa.Table]:
    """The matches of each pattern, by name; without a `limit`, as many as `ensue.run` gives without one.

    `tables` are files for the TABLEs of the program, as NAME=FILE. What completes after `since` and not after `until`
    is given.
    """
    sources = read_sources(events, [name for name in (time, end) if name is not None])
    most = DEFAULT_LIMIT if limit is None else limit
    named = read_tables(tables) if tables else None
    return run(
        name_patterns(program),
        sources,
        time=time,
        type=type,
        end=end,
        probability=probability,
        alternatives=alternatives,
        limit=most,
        tables=named,
        since=_moment(since),
        until=_moment(until),
    )


def _moment(text: str | None) -> str | int | None:
    """A moment as it was written: an integer where it is one, else a text, which the engine reads as ISO 8601."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def violations_in_files(
    program: Program, events: Sequence[str], time: str, type: str | None, keys: Sequence[str]
) -> pa.Table:
    """The traces that break a constraint of the program; `keys` say what a trace is, where the program does not."""
    sources = read_sources(events, [time])
    found: pa.Table = violations(sources, program, time=time, type=type, partition_by=keys)
    return found


def write_matches(
    found: Mapping[str, pa.Table], format: str, shown: int | None, words: tuple[str, str] = ("match", "matches")
) -> None:
    """Writes matches to stdout. JSON is one object with a list of matches per pattern; CSV takes one pattern only.

    `words` are what one and several of them are called.
    """
    if format == "json":
        rows = {name: [plain_value(row) for row in _head(table, shown).to_pylist()] for name, table in found.items()}
        show(json.dumps(rows, ensure_ascii=False, allow_nan=False))
    elif format == "csv":
        if len(found) != 1:
            raise UsageError(
                "several-patterns", f"CSV holds one pattern; patterns: {', '.join(found)}", "choose with --pattern"
            )
        show(_as_csv(_head(next(iter(found.values())), shown)).rstrip("\n"))
    else:
        terminal = open_console()
        for name, table in found.items():
            terminal.print(matches_table(table, SHOWN_ROWS if shown is None else shown, title=name))
    for name, table in found.items():
        messages(f"{name}: {counted(table.num_rows, *words)}")


def matches_table(matches: pa.Table, shown: int, title: str = "") -> Group:
    """The first rows as a table for people; says how many there are when that is not all."""
    rest = matches.num_rows - shown
    # Not the title and caption of the table itself: those would be wrapped to its width.
    above = [Text(title, style="italic", no_wrap=True, overflow="ignore")] if title else []
    below = [Text(f"... and {rest:,} more", style="dim italic")] if rest > 0 else []
    return Group(*above, _table(_head(matches, shown)), *below)


def _table(matches: pa.Table) -> Table:
    table = Table()
    for field in matches.schema:
        table.add_column(escape(field.name), justify="right" if pa.types.is_primitive(field.type) else "left")
    for row in matches.to_pylist():
        table.add_row(*(escape(_readable(value)) for value in row.values()))
    return table


def _head(table: pa.Table, shown: int | None) -> pa.Table:
    return table if shown is None else table.slice(0, shown)


def _readable(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime.datetime():
            return value.isoformat(" ")
        case dict() | list():
            return json.dumps(plain_value(value), ensure_ascii=False)
        case _:
            return str(value)


def plain_value(value: Any) -> Any:
    """A value as JSON has it: moments as ISO 8601 text, durations as seconds, NaN as null, bytes as base64."""
    match value:
        case dict():
            return {key: plain_value(part) for key, part in value.items()}
        case list():
            return [plain_value(part) for part in value]
        case float():
            return value if math.isfinite(value) else None
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def _as_csv(table: pa.Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in table.to_pylist():
        values = [plain_value(value) for value in row.values()]
        writer.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value for value in values
        )
    return text.getvalue()
