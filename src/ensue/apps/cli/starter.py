"""`ensue init`: a commented starter project for a table of events."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from ensue.apps.cli.files import as_time, format_of, read_sources
from ensue.apps.cli.proposing import TIME_NAMES, Proposal, propose
from ensue.apps.cli.terminal import UsageError, messages, show
from ensue.apps.pipelines import read_pipeline_text
from ensue.text.reserved import quote_name, quote_stream, quote_word

PROGRAM, PIPELINE, README = "program.ensue", "pipeline.yaml", "README.md"
DDL = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
}
"""Types of Arrow as those of Spark; every other one that is no time is read as text."""

YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML takes for something else than a text."""


def start_project(
    data: Path, folder: Path, time: str | None, type: str | None, key: str | None, force: bool
) -> Proposal:
    """Looks at the table and writes the project; files that are there stay, unless `force`."""
    table = read_sources([str(data)], [])
    assert isinstance(table, pa.Table)
    for place, name in enumerate(table.column_names):
        if name == time or TIME_NAMES.search(name):
            table = table.set_column(place, name, as_time(table.column(name)))
    proposal = propose(table, time, type, key)
    files = {
        PROGRAM: _program(proposal),
        PIPELINE: _pipeline(data, folder, table.schema, proposal),
        README: _readme(data, folder, proposal),
    }
    _write(files, folder, force)
    if _format(data)[0] == "parquet":
        _warn_of_nanoseconds(table.schema)
    # What was just written is read as a user's file is: a starter project has no problems.
    read_pipeline_text(files[PIPELINE], folder / PIPELINE)
    return proposal


def report_project(own: Proposal, data: Path, folder: Path, as_json: bool) -> None:
    """Says what was chosen, and what to do next; JSON also says why, as the files do."""
    chosen = {"time": own.time, "type": own.type, "key": own.key}
    columns = {role: choice and choice.column for role, choice in chosen.items()}
    if as_json:
        reasons = {role: choice.why for role, choice in chosen.items() if choice}
        show(json.dumps({**columns, "why": reasons, "folder": str(folder)}, ensure_ascii=False))
    messages(
        ", ".join(f"{role}: {column or '-'}" for role, column in columns.items())
        + f"\nWritten to {folder}: {PROGRAM}, {PIPELINE}, {README}\nNext: {first_try(data, folder, own)}"
    )


def first_try(data: Path, folder: Path, own: Proposal) -> str:
    """The command that shows first matches, without Spark."""
    type = ["--type", own.type.column] if own.type else []
    return shlex.join(
        ["ensue", "detect", str(folder / PROGRAM), "--events", str(data), "--time", own.time.column, *type]
    )


def _warn_of_nanoseconds(schema: pa.Schema) -> None:
    fine = [f"`{field.name}`" for field in schema if pa.types.is_timestamp(field.type) and field.type.unit == "ns"]
    if fine:
        messages(
            f"warning: {', '.join(fine)} counts nanoseconds, which Spark does not read from Parquet; "
            "`ensue detect` does. For `ensue run`, write the file again in microseconds."
        )


def _write(files: Mapping[str, str], folder: Path, force: bool) -> None:
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        names = ", ".join(f"`{folder / name}`" for name in there)
        raise UsageError(
            "file-exists", f"{names} would be overwritten", "--to FOLDER writes elsewhere, --force overwrites"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("unwritable-file", f"`{folder}` cannot be written to: {error.strerror}") from error


def _program(own: Proposal) -> str:
    first, second = quote_stream(own.first), quote_stream(own.second)
    by = quote_name(own.key.column) if own.key else ""
    partition = f"\n  PARTITION BY {by}" if own.key else ""
    key = f"a.{quote_word(own.key.column)} AS {by}, " if own.key else ""
    per = f" of the same `{_one_line(own.key.column)}`" if own.key else ""
    time = quote_word(own.time.column)
    said_first, said_second = _one_line(own.first), _one_line(own.second)
    ticks = f"-- Times are {own.ticks} since 1970, and so windows are numbers of {own.ticks}.\n" if own.ticks else ""
    return f"""\
-- Two events{per}, one after the other: `{said_second}` follows `{said_first}` within {own.window}.
{ticks}-- Change the streams, the window and what is returned; `ensue check {PROGRAM}` says what is wrong,
-- `ensue explain {PROGRAM} --time {shlex.quote(_one_line(own.time.column))}` what the pattern means and how it runs.
PATTERN followed
  SEQ({first} a, {second} b){partition}
  WITHIN {own.window}
  RETURN {key}a.{time} AS began, b.{time} AS ended;

-- The opposite: `{said_first}`, and no `{said_second}` for {own.window}.
PATTERN not_followed
  SEQ({first} a, NOT {second} b){partition}
  WITHIN {own.window}
  RETURN {key}a.{time} AS began;
"""


def _pipeline(data: Path, folder: Path, schema: pa.Schema, own: Proposal) -> str:
    format, options = _format(data)
    columns = _ddl(schema, format)
    given = f"\n    schema: {columns}" if format != "parquet" else ""
    type = key = ""
    if own.type:
        type = f"\n    type: {_name(own.type.column)}          # the stream of an event; {_one_line(own.type.why)}"
    if own.key:
        key = f"\n# Events belong together by `{_one_line(own.key.column)}`: {own.key.why}. The program uses it."
    return f"""\
# A pipeline of Ensue. `ensue run {PIPELINE} --dry-run` shows what it does, `ensue run {PIPELINE}` does it.
# `ensue schema` prints the JSON schema of this file, for editors. Secrets stand in the environment: ${{NAME}}.
name: starter{key}
program: {PROGRAM}

sources:
  - format: {format}        # any format that Spark knows: parquet, csv, json, delta, kafka, jdbc, ...
    path: {_quoted(_relative(data, folder))}{options}{given}
    time: {_name(own.time.column)}          # when an event happened; {_one_line(own.time.why)}{type}

outputs:
  followed: console         # or a sink of Spark, as below, or `webhook: https://...`
  not_followed:
    format: json
    path: out/not_followed
    mode: overwrite

# As a stream: say `mode: stream`, take `mode: overwrite` out above, name a folder of files as `path`, and add
#   to the source:   schema: {columns}
#                    watermark: 10 minutes
#   to the pipeline: checkpoint: checkpoint
#                    trigger: 10 seconds
"""


def _readme(data: Path, folder: Path, own: Proposal) -> str:
    type = f" --type {shlex.quote(own.type.column)}" if own.type else ""
    time, events = shlex.quote(own.time.column), shlex.quote(_relative(data, folder))
    guesses = (("time", own.time), ("type", own.type), ("key", own.key))
    reasons = "\n".join(
        f"- {role}: `{_one_line(choice.column)}`, {_one_line(choice.why)}" if choice else f"- {role}: none found"
        for role, choice in guesses
    )
    return f"""\
# Starter project

`{PROGRAM}` has two patterns over `{data.name}`, `{PIPELINE}` says where events come from and where matches go.

    ensue detect {PROGRAM} --events {events} --time {time}{type}
    ensue run {PIPELINE} --dry-run
    ensue run {PIPELINE}

The first needs no Spark and is the fastest way to try a pattern; the last runs the pipeline on Spark.
What was guessed, and why; where it is wrong, change it in both files:

{reasons}
"""


def _format(data: Path) -> tuple[str, str]:
    """The format of Spark for the data, and its options as they stand in the pipeline."""
    format = format_of(data)
    if format == "csv":
        return format, "\n    options: {header: true}"
    if format == "json" and data.is_file():
        with data.open("rb") as file:
            if file.read(64).lstrip().startswith(b"["):
                return format, "\n    options: {multiLine: true}"
    return format, ""


def _ddl(schema: pa.Schema, format: str) -> str:
    return _quoted(", ".join(f"`{field.name.replace('`', '``')}` {_type(field.type, format)}" for field in schema))


def _type(kind: pa.DataType, format: str) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if format == "parquet" and kind.tz is None else "TIMESTAMP"
    return DDL.get(str(kind), "STRING")


def _relative(data: Path, folder: Path) -> str:
    return Path(os.path.relpath(data.absolute(), folder.absolute())).as_posix()


def _name(column: str) -> str:
    """A name as YAML takes it: as it is, if nothing else could be meant."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", column, re.ASCII) and column.lower() not in YAML_WORDS
    return column if plain else _quoted(column)


def _one_line(text: str) -> str:
    """A text that ends no comment."""
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """A text between single quotes, as YAML takes every text."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
