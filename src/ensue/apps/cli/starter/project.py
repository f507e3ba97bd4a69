"""`ensue init`: finds patterns in a file, writes a commented starter project for it, and shows the first match."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ensue.apps.cli.detect import plain_value
from ensue.apps.cli.files import read_data
from ensue.apps.cli.input_files import STDIN
from ensue.apps.cli.logs import LINE
from ensue.apps.cli.starter.events import events_of
from ensue.apps.cli.starter.files import PIPELINE, PROGRAM, README, Project, pipeline_text, program_text, readme_text
from ensue.apps.cli.starter.programs import TRIED, Finding, Trial, find_patterns, first_of
from ensue.apps.cli.starter.roles import Choice, find_roles
from ensue.apps.cli.terminal import UsageError, counted, messages, show
from ensue.apps.pipelines import read_pipeline_text

LONGEST_LINE = 160
"""The maximum number of characters of an event in a timeline."""

SHOWN_EVENTS = 8
"""The maximum number of events in a timeline."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A written project, and the first match of one of its patterns as lines of text."""

    project: Project
    rows: int
    first: tuple[str, ...]


def start_project(
    data: Path, folder: Path, time: str | None, type: str | None, key: str | None, force: bool, parse: str | None = None
) -> Starter:
    """Writes a project for a file of events. Raises an error if a file exists, unless `force` is set."""
    project, table, trial = propose_project(data, folder, time, type, key, parse)
    file, findings = project.file, list(project.findings)
    files = {
        PROGRAM: program_text(project),
        PIPELINE: pipeline_text(project),
        README: readme_text(project, next_commands(project, inside=True)),
    }
    _write(files, folder, force)
    if file.format == "parquet":
        _warn_of_nanoseconds(file.table.schema)
    # Check the new pipeline as a user's file: a starter project must have no problems.
    read_pipeline_text(files[PIPELINE], folder / PIPELINE)
    return Starter(project, table.num_rows, tuple(_first_match(trial, findings)))


def propose_project(
    data: Path, folder: Path, time: str | None, type: str | None, key: str | None, parse: str | None
) -> tuple[Project, pa.Table, Trial]:
    """Returns a project for a file of events, all rows of the file, and the rows on which the patterns were tried."""
    if str(data) == STDIN:
        raise UsageError("no-file", "patterns are proposed for a file, not for stdin", "save the events as a file")
    file = read_data(data, parse)
    table, roles = find_roles(file.table, data, time, type, key)
    tried = table.slice(0, TRIED)
    events, roles = events_of(tried, roles)
    trial = Trial(tried, events, roles)
    findings = find_patterns(trial)
    return Project(data, folder, file, table.schema, roles, events, tuple(findings)), table, trial


def report_project(starter: Starter, as_json: bool) -> None:
    """Writes the chosen columns, what was found, the first match and the next commands. JSON includes the reasons."""
    project, roles = starter.project, starter.project.roles
    chosen: dict[str, Choice | None] = {"time": roles.time, "type": roles.type, "key": roles.key, "order": roles.order}
    columns = {role: choice and choice.column for role, choice in chosen.items()}
    commands = next_commands(project)
    if as_json:
        reasons = {role: choice.why for role, choice in chosen.items() if choice}
        found = {each.candidate.name: each.count for each in project.findings}
        said = {**columns, "why": reasons, "folder": str(project.folder), "rows": min(starter.rows, TRIED)}
        show(json.dumps({**said, "matches": found, "next": commands}, ensure_ascii=False))
    streams = [] if roles.type is not None or not project.events.declarations else ["streams: see the program"]
    lines = [", ".join([*(f"{role}: {column or '-'}" for role, column in columns.items()), *streams])]
    if project.file.known:
        lines.insert(0, f"format: {project.file.known}")
    lines += _findings(project.findings, starter.rows)
    lines.append(f"Written to {project.folder}: {PROGRAM}, {PIPELINE}, {README}")
    lines += ["", *starter.first, "", "Next:", *(f"  {command}" for command in commands)]
    messages("\n".join(lines))


def _findings(findings: Sequence[Finding], rows: int) -> list[str]:
    part = f"in the first {TRIED:,} of {rows:,} rows" if rows > TRIED else f"in {counted(rows, 'row')}"
    lines = [f"Found {part}:"]
    width = max(len(each.candidate.name) for each in findings)
    for each in findings:
        lines.append(
            f"  {each.candidate.name.ljust(width)}  {counted(each.count, 'match', 'matches')}: {each.candidate.said}"
        )
    return lines


def next_commands(project: Project, inside: bool = False) -> list[str]:
    """Returns commands for matches, a page, near misses and Spark. With `inside`, they work in the folder itself."""
    roles, folder = project.roles, Path() if inside else project.folder
    data = os.path.relpath(project.data.absolute(), project.folder.absolute()) if inside else str(project.data)
    reading = ["--time", roles.time.column]
    if roles.type is not None and not project.events.declarations:
        reading += ["--type", roles.type.column]
    if roles.order is not None:
        reading += ["--order", roles.order.column]
    if project.file.parse is not None:
        reading += ["--parse", project.file.parse]
    program, name = str(folder / PROGRAM), project.findings[-1].candidate.name
    commands = [
        ["ensue", "detect", program, "--events", data, *reading],
        ["ensue", "report", program, "--events", data, *reading, "--output", str(folder / "report.html")],
        ["ensue", "why-not", program, "--pattern", name, "--events", data, *reading],
        ["ensue", "run", str(folder / PIPELINE)],
    ]
    return [shlex.join(command) for command in commands]


# --- the first match


def _first_match(trial: Trial, findings: list[Finding]) -> list[str]:
    """Returns the events of the first match of the rarest pattern, one line for each."""
    found = first_of(trial, findings)
    if found is None:
        return ["No match to show."]
    finding, row = found
    candidate = finding.candidate
    time = trial.roles.time.column
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for variable, stream in candidate.streams:
        value = row[variable]
        rows += [(stream, each) for each in (value if isinstance(value, list) else [value])]
    events = sorted(rows, key=lambda item: (item[1][time] is None, item[1][time]))
    key = trial.roles.key.column if trial.roles.key else None
    of_key = next((f", {key} = {_short(value)}" for name, value in _flat(rows[0][1]) if name == key), "") if key else ""
    lines = [f"First match of `{candidate.name}`{of_key}:"]
    hidden = {time, key, trial.roles.type.column if trial.roles.type else ""}
    left_out = max(0, len(events) - SHOWN_EVENTS)
    shown = events if not left_out else [*events[: SHOWN_EVENTS - 1], events[-1]]
    width = max(len(stream) for stream, _ in shown)
    for place, (stream, event) in enumerate(shown):
        if left_out and place == len(shown) - 1:
            lines.append(f"  ... {counted(left_out, 'more event')}")
        fields = ", ".join(
            f"{name}={_short(value)}" for name, value in _flat(event) if name not in hidden and value not in (None, "")
        )
        line = f"  {_moment(event[time])}  {stream.ljust(width)}  {fields}".rstrip()
        lines.append(line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}...")
    if candidate.missing:
        lines.append(f"  {candidate.missing}")
    return lines


def _flat(event: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns the plain fields of an event, its line first."""
    plain = [(name, value) for name, value in event.items() if not isinstance(value, dict | list)]
    return sorted(plain, key=lambda item: item[0] != LINE)


def _moment(value: Any) -> str:
    return value.isoformat(" ") if isinstance(value, dt.datetime) else str(value)


def _short(value: Any) -> str:
    text = " ".join(str(plain_value(value)).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


# --- files


def _warn_of_nanoseconds(schema: pa.Schema) -> None:
    fine = [f"`{field.name}`" for field in schema if pa.types.is_timestamp(field.type) and field.type.unit == "ns"]
    if fine:
        messages(
            f"warning: Spark cannot read timestamps in nanoseconds from Parquet: {', '.join(fine)}. "
            "`ensue detect` works. For `ensue run`, write the file with microseconds."
        )


def _write(files: Mapping[str, str], folder: Path, force: bool) -> None:
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        names = ", ".join(f"`{folder / name}`" for name in there)
        raise UsageError(
            "file-exists",
            f"would overwrite existing files: {names}",
            "pass another folder with --to, or --force",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("unwritable-file", f"cannot write to folder `{folder}`: {error.strerror}") from error
