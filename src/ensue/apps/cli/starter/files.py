"""The files that `ensue init` writes: a program, a pipeline and a README."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.files import DataFile, field_of
from ensue.apps.cli.logs import LINE, groups_of, one_group
from ensue.apps.cli.starter.events import Events, one_line
from ensue.apps.cli.starter.programs import Finding
from ensue.apps.cli.starter.roles import Choice, Roles, is_text
from ensue.text.formatter import format_text

PROGRAM, PIPELINE, README = "program.ensue", "pipeline.yaml", "README.md"
DDL = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
}
"""Arrow types and their Spark types. Other types, except times and nested ones, are read as text."""

YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML does not read as text."""


@dataclass(frozen=True, slots=True)
class Project:
    """What `ensue init` has found: the file, the roles of its columns, its events and patterns with matches.

    `schema` has the time as timestamps.
    """

    data: Path
    folder: Path
    file: DataFile
    schema: pa.Schema
    roles: Roles
    events: Events
    findings: tuple[Finding, ...]

    @property
    def written_times(self) -> bool:
        """Whether the file has its times as text."""
        table, name = self.file.table, self.roles.time.column
        column = table.column(name) if name in table.column_names else field_of(table, name)
        return column is not None and is_text(column.type)


# --- the program


def program_text(own: Project) -> str:
    """Returns the program, in the standard form."""
    time = one_line(own.roles.time.column)
    ticks = own.roles.ticks
    head = [
        "-- Change the streams, the windows and the RETURN columns.",
        f"-- `ensue check {PROGRAM}` reports problems.",
        f"-- `ensue explain {PROGRAM} --time {shlex.quote(time)}` explains the patterns.",
    ]
    if ticks:
        head.append(f"-- Times are {ticks} since 1970, so windows are in {ticks} too.")
    parts = ["\n".join(head)]
    if own.events.declarations:
        parts[0] += "\n" + own.events.declarations
    for each in own.findings:
        parts.append(f"-- {_sentence(one_line(each.candidate.said))}.\n{each.candidate.text()}")
    return format_text("\n\n".join(parts) + "\n")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- the pipeline


def pipeline_text(own: Project) -> str:
    """Returns the pipeline."""
    roles = own.roles
    given = f"\n    schema: {_ddl(own)}" if own.file.format in ("csv", "json") else ""
    type = order = key = ""
    if roles.type and not own.events.declarations:
        type = f"\n    type: {_name(roles.type.column)}          # stream of an event: {one_line(roles.type.why)}"
    if roles.order:
        order = f"\n    order: {_name(roles.order.column)}          # {one_line(roles.order.why)}"
    if roles.key and own.events.key:
        key = f"\n# The program groups events by `{one_line(roles.key.column)}`: {one_line(roles.key.why)}."
    outputs = []
    for place, each in enumerate(own.findings):
        name = each.candidate.name
        if place == 1:
            outputs.append(f"  {name}:\n    format: json\n    path: out/{name}\n    mode: overwrite")
        else:
            note = "         # or a Spark sink, or `webhook: https://...`" if place == 0 else ""
            outputs.append(f"  {name}: console{note}")
    lines = "\n".join(outputs)
    several = "# Line numbers order the rows of one file: without another order, remove `order` for a stream.\n"
    ordered = several if roles.order is not None and roles.order.column == LINE else ""
    # A stream of files needs a schema.
    streaming = f"schema: {_ddl(own)}\n#                    " if own.file.format == "parquet" else ""
    return f"""\
# An Ensue pipeline. `ensue run {PIPELINE} --dry-run` describes it, `ensue run {PIPELINE}` runs it.
# `ensue schema` prints the JSON schema of this file for editors. Set secrets as environment variables: ${{NAME}}.
name: starter{key}
program: {PROGRAM}

sources:
  - format: {own.file.format}        # any Spark format: parquet, csv, json, delta, kafka, jdbc, ...
    path: {_quoted(relative(own.data, own.folder))}{_options(own)}{given}{_columns(own)}
    time: {_name(roles.time.column)}          # time of an event: {one_line(roles.time.why)}{type}{order}

outputs:
{lines}

# To run it as a stream, set `mode: stream`, remove `mode: overwrite`, set `path` to a folder of files, and add
#   to the source:   {streaming}watermark: 10m
#   to the pipeline: checkpointLocation: checkpoint
#                    trigger:
#                      processingTime: 10s
{ordered}"""


def _options(own: Project) -> str:
    options: dict[str, str] = {}
    if own.file.format == "csv":
        options["header"] = "true"
        if own.file.separator != ",":
            options["sep"] = _quoted(own.file.separator.replace("\t", "\\t"))
        options |= {"escape": "'\"'"} | ({"multiLine": "true"} if _has_line_breaks(own.file.table) else {})
    elif own.file.one_document:
        options["multiLine"] = "true"
    said = ", ".join(f"{name}: {value}" for name, value in options.items())
    return f"\n    options: {{{said}}}" if said else ""


def _has_line_breaks(table: pa.Table) -> bool:
    texts = (column for column in table.columns if pa.types.is_string(column.type))
    return any(pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py() for column in texts)


def _columns(own: Project) -> str:
    """Returns the columns that Spark computes: parts of lines, times in other notations, the number of the row."""
    roles, found = own.roles, dict[str, str]()
    if own.file.pattern is not None:
        for name in groups_of(own.file.pattern):
            pattern = _spark_literal(one_group(own.file.pattern, name))
            found[name] = f"nullif(regexp_extract(value, {pattern}, 1), '')"
    if own.file.records:
        found |= _columns_of_records(own.file)
    time = roles.time.column
    if roles.notation is not None:
        text = _spark_path(time, own.file.table)
        if time in found:
            # The expression names the text several times.
            written = f"{time}_text"
            while written in found:
                written += "_"
            found[written], text = found.pop(time), _spark_name(written)
        found[time] = roles.notation.spark(text)
    elif own.file.pattern is not None:
        found[time] = f"try_cast({found[time]} AS TIMESTAMP)"
    elif own.file.format == "parquet" and own.written_times:
        found[time] = f"try_cast({_spark_path(time, own.file.table)} AS TIMESTAMP)"
    elif time not in own.file.table.column_names:
        text = pa.types.is_timestamp(own.schema.field(time).type)
        found[time] = (
            f"CAST({_spark_path(time, own.file.table)} AS TIMESTAMP)" if text else _spark_path(time, own.file.table)
        )
    made = own.file.pattern is not None or LINE not in own.file.table.column_names
    if roles.order is not None and roles.order.column == LINE and made:
        # In one file, Spark numbers the rows in their order.
        found[LINE] = "1 + monotonically_increasing_id()"
    if not found:
        return ""
    # A block needs no quotes around the quotes of regular expressions.
    lines = {name: f"|-\n        {value}" if "'" in value else _quoted(value) for name, value in found.items()}
    return "\n    columns:" + "".join(f"\n      {_name(name)}: {value}" for name, value in lines.items())


def _columns_of_records(file: DataFile) -> dict[str, str]:
    """Returns the columns that make each element of the list a row, with its fields as columns."""
    row = file.records
    while row in file.table.column_names:
        row += "_row"
    columns = {name: f"{_spark_name(row)}.{_spark_name(name)}" for name in file.table.column_names}
    return {row: f"explode({_spark_name(file.records)})"} | columns


def _spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _spark_path(name: str, table: pa.Table) -> str:
    parts = [name] if name in table.column_names else name.split(".")
    return ".".join(map(_spark_name, parts))


def _spark_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _ddl(own: Project) -> str:
    """Returns the columns of the file, with times as they are in the file if Spark has to read their notation."""
    roles, format = own.roles, own.file.format
    fields = []
    between = ":" if own.file.records else ""
    for field in own.file.table.schema:
        kind = field.type
        if field.name == roles.time.column and roles.notation is None:
            kind = own.schema.field(field.name).type
        fields.append(f"{_spark_name(field.name)}{between} {_type(kind, format)}")
    text = ", ".join(fields)
    return _quoted(f"{_spark_name(own.file.records)} ARRAY<STRUCT<{text}>>" if own.file.records else text)


def _type(kind: pa.DataType, format: str) -> str:
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, format)
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if format == "parquet" and kind.tz is None else "TIMESTAMP"
    if pa.types.is_struct(kind) and kind.num_fields:
        fields = (f"{_spark_name(field.name)}: {_type(field.type, format)}" for field in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{_type(kind.value_type, format)}>"
    return DDL.get(str(kind), "STRING")


def relative(data: Path, folder: Path) -> str:
    """Returns the path of the data from the folder of the project."""
    return Path(os.path.relpath(data.absolute(), folder.absolute())).as_posix()


def _name(column: str) -> str:
    """Returns a name for YAML, quoted if necessary."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", column, re.ASCII) and column.lower() not in YAML_WORDS
    return column if plain else _quoted(column)


def _quoted(text: str) -> str:
    """Returns the text in single quotes for YAML."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


# --- the README


def readme_text(own: Project, commands: Sequence[str]) -> str:
    """Returns the README. `commands` work in the folder of the project."""
    roles = own.roles
    guesses: Mapping[str, Choice | None] = {
        "time": roles.time,
        "type": roles.type,
        "key": roles.key if own.events.key else None,
        "order": roles.order,
    }
    reasons = "\n".join(
        f"- {role}: `{one_line(choice.column)}` ({one_line(choice.why)})" if choice else f"- {role}: none found"
        for role, choice in guesses.items()
    )
    if roles.notation is not None:
        years = roles.notation.in_words()
        said = f"- The times are read as `{roles.notation.layout}`."
        if years:
            said += f" They have no year: {years} is the latest in which none is later than the file's last change."
        reasons += f"\n{said}"
    found = "\n".join(f"- `{each.candidate.name}`: {one_line(each.candidate.said)}" for each in own.findings)
    listed = "\n".join(f"    {command}" for command in commands)
    return f"""\
# Starter project

`{PROGRAM}` has patterns over `{own.data.name}`. `{PIPELINE}` defines the source of the events and the outputs.

{found}

{listed}

The first command does not need Spark and is the fastest way to try a pattern. The last one runs the pipeline on Spark.
Ensue guessed these columns. If a guess is wrong, change it in both files:

{reasons}
"""
