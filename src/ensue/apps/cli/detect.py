"""`ensue detect`, `violations`, `why-not` and `report`: run programs over files of events, and write the results."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ensue.api import run, violations
from ensue.apps.cli.files import read_sources, read_tables
from ensue.apps.cli.input_files import STDIN
from ensue.apps.cli.program_files import name_patterns
from ensue.apps.cli.terminal import UsageError, counted, messages, open_console, show, with_options
from ensue.explanation import why_not
from ensue.explanation.report import HtmlReport, report
from ensue.plan.plans import DEFAULT_LIMITS, Limits
from ensue.programs import Program
from ensue.python.values import duration_text

# --- `ensue detect` and `ensue violations`

SHOWN_ROWS = 20
"""The default of `--rows` for tables."""


def detect_in_files(
    program: Program,
    events: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    order: list[str] | None,
    limit: int | None,
    tables: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    parse: str | None = None,
) -> Mapping[str, pa.Table]:
    """Returns the matches of each pattern by name. Without a `limit`, the default of `ensue.run` applies.

    `tables` are files for the TABLEs of the program, as NAME=FILE. Only matches that complete after `since` and not
    after `until` are returned.
    """
    sources = read_sources(events, [name for name in (time, end) if name is not None], order or (), parse)
    limits = DEFAULT_LIMITS if limit is None else Limits(matches=limit)
    named = read_tables(tables) if tables else None
    return run(
        sources,
        name_patterns(program),
        time=time,
        type=type,
        end=end,
        order=order,
        probability=probability,
        alternatives=alternatives,
        limits=limits,
        tables=named,
        since=_moment(since),
        until=_moment(until),
    )


def _moment(text: str | None) -> str | int | None:
    """Returns a time as an integer if it is one, otherwise as text, which the engine parses as ISO 8601."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def violations_in_files(
    program: Program, events: Sequence[str], time: str, type: str | None, keys: Sequence[str], parse: str | None
) -> pa.Table:
    """Returns the traces that break a constraint. `keys` are the partition keys of constraints without PARTITION BY."""
    sources = read_sources(events, [time], parse=parse)
    found: pa.Table = violations(sources, program, time=time, type=type, partition_by=keys)
    return found


def write_matches(
    found: Mapping[str, pa.Table], format: str, shown: int | None, words: tuple[str, str] = ("match", "matches")
) -> None:
    """Writes matches to stdout. JSON is one object with a list of matches per pattern. CSV supports one pattern.

    `words` are the singular and the plural for the count.
    """
    if format == "json":
        rows = {name: [plain_value(row) for row in _head(table, shown).to_pylist()] for name, table in found.items()}
        show(json.dumps(rows, ensure_ascii=False, allow_nan=False))
    elif format == "csv":
        if len(found) != 1:
            raise UsageError(
                "several-patterns",
                f"CSV supports only one pattern; found: {', '.join(found)}",
                "choose one with --pattern NAME",
            )
        show(_as_csv(_head(next(iter(found.values())), shown)).rstrip("\n"))
    else:
        terminal = open_console()
        for name, table in found.items():
            terminal.print(matches_table(table, SHOWN_ROWS if shown is None else shown, title=name))
    for name, table in found.items():
        messages(f"{name}: {counted(table.num_rows, *words)}")


def matches_table(matches: pa.Table, shown: int, title: str = "") -> Group:
    """Returns the first rows as a table, with the number of omitted rows."""
    rest = matches.num_rows - shown
    # Not the title and caption of the table itself, because rich wraps those to its width.
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
        case datetime.timedelta():
            return duration_text(value)
        case dict() | list():
            return json.dumps(plain_value(value), ensure_ascii=False)
        case _:
            return str(value)


def plain_value(value: Any) -> Any:
    """Returns a value for JSON: timestamps as ISO 8601 text, durations as seconds, NaN as null, bytes as base64."""
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


# --- `ensue why-not`


def why_not_in_files(
    program: Program,
    events: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    order: list[str] | None,
    tables: Sequence[str],
    pattern: str | None,
    examples: int,
    as_json: bool,
    parse: str | None = None,
) -> str:
    """Explains why a pattern does not match in the files, as text or as JSON."""
    sources = read_sources(events, [column for column in (time, end) if column is not None], order or (), parse)
    found = why_not(
        sources,
        name_patterns(program),
        time=time,
        type=type,
        end=end,
        order=order,
        tables=read_tables(tables) if tables else None,
        name=pattern,
        examples=examples,
    )
    if not as_json:
        return with_options(found.to_text())
    steps = [plain_value(row) for row in found.table.to_pylist()]
    answer = {"name": found.name, "matches": found.matches, "verdict": found.verdict, "steps": steps}
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


# --- `ensue report`

PIPELINES = (".yaml", ".yml")
"""The suffixes of pipeline files."""


def report_on_pipeline(file: Path, options: Sequence[str], title: str, most_keys: int, as_json: bool) -> HtmlReport:
    """Returns a report on the program and the sources of a pipeline. `options` are event options, which it refuses."""
    from ensue.apps.cli.run import read_pipeline_file
    from ensue.apps.pipelines.runner import report_pipeline

    if options:
        raise UsageError(
            "pipeline-events",
            f"a pipeline file defines its own events; unsupported: {', '.join(options)}",
            "remove these options, or pass an .ensue file",
        )
    pipeline = read_pipeline_file(file, as_json)
    messages(f"Reading the sources of {pipeline.name} on Spark ...")
    return report_pipeline(pipeline, title=title, most_keys=most_keys)


def report_on_files(
    program: Program,
    events: Sequence[str],
    time: str | None,
    type: str | None,
    end: str | None,
    order: list[str] | None,
    tables: Sequence[str],
    title: str,
    most_keys: int,
    parse: str | None = None,
) -> HtmlReport:
    """Returns a report on a program and files of events."""
    if not events or time is None:
        raise UsageError(
            "missing-events",
            "a report on a program requires events and their time column",
            "add --events DATA --time COLUMN, or pass a pipeline file",
        )
    sources = read_sources(events, [column for column in (time, end) if column is not None], order or (), parse)
    given = read_tables(tables)
    return report(
        sources,
        program,
        time=time,
        type=type,
        end=end,
        order=order,
        tables=given or None,
        title=title,
        most_keys=most_keys,
    )


def write_report(page: HtmlReport, output: Path, as_json: bool) -> None:
    """Writes the page to a file or to stdout, and a summary: as text to stderr, or as JSON to stdout."""
    try:
        if str(output) == STDIN:
            show(page.html.rstrip("\n"))
        else:
            page.save(output)
    except OSError as error:
        raise UsageError("unwritable-report", f"cannot write `{output}`: {error.strerror}") from None
    facts = page.facts
    found = {pattern["name"]: pattern["count"] for pattern in facts["patterns"]}
    if as_json:
        said = {"report": str(output), "rows": facts["rows"], "matches": found, "shown": facts["leftOut"]}
        show(json.dumps(said, ensure_ascii=False))
        return
    lines = [f"{name}: {counted(count, 'match', 'matches')}" for name, count in found.items()]
    lines += [f"shown: {'; '.join(facts['leftOut'])}"] if facts["leftOut"] else []
    lines += [f"Written to {output}"] if str(output) != STDIN else []
    messages("\n".join(lines))
