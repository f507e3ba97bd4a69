"""A program over files of events, and its matches as tables, JSON or CSV."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ensue.analysis.declarations import streams_below
from ensue.api import run, violations
from ensue.apps.cli.check import read_text
from ensue.apps.cli.files import read_sources, read_tables
from ensue.apps.cli.terminal import UsageError, counted, messages, open_console, show
from ensue.errors import did_you_mean
from ensue.explanation import why_not
from ensue.explanation.report import HtmlReport, report
from ensue.lower.rulesets import heads_below
from ensue.plan.plans import DEFAULT_LIMITS, Limits
from ensue.programs import Program, parse

# --- Program files: reading, explaining, choosing a pattern.


def read_program(path: Path) -> Program:
    """The program in a file; problems cite the path as it was given."""
    return parse(read_text(path), str(path))


def explain_program(program: Program, pattern: str | None, time: str, as_json: bool, stages: bool = False) -> str:
    """What each pattern, or the one asked for, means and how it will run, or its stages; `time` names the time column.

    JSON is an object with the text of each pattern under its name.
    """
    if not as_json:
        return choose_pattern(program, pattern).explain(time=time, stages=stages)
    names = program.names if pattern is None else (pattern,)
    texts = {name: choose_pattern(program, name).explain(time=time, stages=stages) for name in names}
    return json.dumps(texts, indent=2, ensure_ascii=False)


def name_patterns(program: Program) -> Program:
    """The program with its names written into it, so that messages call a pattern as results do."""
    names = iter(program.names)
    named = (node if node.declares else replace(node, name=next(names)) for node in program.statements.statements)
    return Program(replace(program.statements, statements=tuple(named)))


def choose_pattern(program: Program, pattern: str | None) -> Program:
    """The program with only the pattern asked for, and the streams it stands on."""
    if pattern is None:
        return program
    if pattern not in program.names:
        raise UsageError(
            "no-such-pattern",
            f"the program has no pattern `{pattern}`; patterns: {', '.join(program.names)}",
            did_you_mean(pattern, program.names),
        )
    if pattern in program.statements.heads:
        return _only_head(program, pattern)
    node = program.statements.results[program.names.index(pattern)]
    below = streams_below(node, program.statements.statements)
    return Program(replace(program.statements, statements=(*below, replace(node, name=pattern))))


def _only_head(program: Program, head: str) -> Program:
    """The program without patterns, and only with the rules for a head and for those that it stands on."""
    statements = program.statements
    assert statements.ruleset is not None
    needed = heads_below(head, statements.ruleset)
    rules = tuple(rule for rule in statements.ruleset.rules if rule.head in needed)
    return Program(
        replace(statements, statements=statements.declared, ruleset=replace(statements.ruleset, rules=rules))
    )


# --- detect

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
    limits = DEFAULT_LIMITS if limit is None else Limits(matches=limit)
    named = read_tables(tables) if tables else None
    return run(
        sources,
        name_patterns(program),
        time=time,
        type=type,
        end=end,
        probability=probability,
        alternatives=alternatives,
        limits=limits,
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


# --- Questions about a program and files of events.


def why_not_in_files(
    program: Program,
    data: Sequence[str],
    time: str,
    type: str | None,
    end: str | None,
    name: str | None,
    examples: int,
    as_json: bool,
) -> str:
    """Why a pattern of the program does not match in the files, as text or as JSON."""
    sources = read_sources(data, [column for column in (time, end) if column is not None])
    found = why_not(sources, name_patterns(program), time=time, type=type, end=end, name=name, examples=examples)
    if not as_json:
        return found.to_text()
    steps = [plain_value(row) for row in found.table.to_pylist()]
    answer = {"name": found.name, "matches": found.matches, "verdict": found.verdict, "steps": steps}
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


# --- `ensue report`: a program over files of events, or a pipeline, as one HTML page.

PIPELINES = (".yaml", ".yml")
"""How the names of pipeline files end."""


def report_on_pipeline(file: Path, options: Sequence[str], title: str, most_keys: int, as_json: bool) -> HtmlReport:
    """What the program of a pipeline finds in its sources; `options` about events are what the file says itself."""
    from ensue.apps.cli.run import read_pipeline_file
    from ensue.apps.pipelines.runner import report_pipeline

    if options:
        raise UsageError(
            "pipeline-events",
            f"a pipeline file says what its events are, and {', '.join(options)} says it again",
            "leave these options out, or name an .ensue file",
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
    tables: Sequence[str],
    title: str,
    most_keys: int,
) -> HtmlReport:
    """What the program finds in the files."""
    if not events or time is None:
        raise UsageError(
            "missing-events",
            "a report on a program needs its events and their time",
            "--events DATA --time COLUMN; a pipeline file says these itself",
        )
    sources = read_sources(events, [column for column in (time, end) if column is not None])
    given = read_tables(tables)
    return report(
        sources, program, time=time, type=type, end=end, tables=given or None, title=title, most_keys=most_keys
    )


def write_report(page: HtmlReport, output: Path, as_json: bool) -> None:
    """Writes the page, says where it is and what it shows: in words on stderr, or as JSON on stdout."""
    try:
        page.save(output)
    except OSError as error:
        raise UsageError("unwritable-report", f"`{output}` cannot be written: {error.strerror}") from None
    facts = page.facts
    found = {pattern["name"]: pattern["count"] for pattern in facts["patterns"]}
    if as_json:
        said = {"report": str(output), "rows": facts["rows"], "matches": found, "shown": facts["leftOut"]}
        show(json.dumps(said, ensure_ascii=False))
        return
    lines = [f"{name}: {counted(count, 'match', 'matches')}" for name, count in found.items()]
    lines += [f"shown: {'; '.join(facts['leftOut'])}"] if facts["leftOut"] else []
    messages("\n".join([*lines, f"Written to {output}"]))
