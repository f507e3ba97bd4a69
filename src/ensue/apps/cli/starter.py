"""`ensue init`: guesses the time, type and key columns of a table and writes a commented starter project for it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.files import as_time, format_of, read_sources
from ensue.apps.cli.terminal import UsageError, messages, show
from ensue.apps.pipelines import read_pipeline_text
from ensue.text.reserved_words import quote_name, quote_stream, quote_word

# --- The proposal: columns and a first pattern

TIME_NAMES = re.compile(
    r"^(t|ts|at|time|timestamp|date|datetime|when|epoch)$|(_at|_ts|_time|time|timestamp|_date|_epoch)$", re.I
)
TYPE_NAMES = re.compile(r"^(type|kind|event|event_type|event_name|eventtype|action|activity|status|state|name)$", re.I)
KEY_NAMES = re.compile(r"(^|_)(id|key|user|customer|account|order|session|device|case|host|ip)$|[a-z]Id$|_id$", re.I)
MOST_TYPES = 60
LENGTHS = {
    "1 minute": 60,
    "2 minutes": 120,
    "5 minutes": 300,
    "10 minutes": 600,
    "30 minutes": 1800,
    "1 hour": 3600,
    "2 hours": 7200,
    "6 hours": 21600,
    "12 hours": 43200,
    "1 day": 86400,
    "2 days": 172800,
    "7 days": 604800,
}
"""Round durations, in seconds."""

SAMPLE = 200_000
"""The maximum number of rows to inspect."""

YEAR = 31_557_600
TICKS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Units of integer times since 1970, and how many of each make a second."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A column, and the reason for the choice."""

    column: str
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The role of each column, and two streams whose events often follow each other for one key.

    `ticks` is the unit of integer times since 1970.
    """

    time: Choice
    type: Choice | None
    key: Choice | None
    first: str
    second: str
    window: str
    ticks: str = ""


def propose(table: pa.Table, time: str | None, type: str | None, key: str | None) -> Proposal:
    """Proposes columns from the schema and the first rows. Uses the given columns unchanged."""
    head = table.slice(0, SAMPLE)
    for role, name in (("--time", time), ("--type", type), ("--key", key)):
        if name is not None and name not in head.column_names:
            columns = ", ".join(head.column_names)
            raise UsageError("no-such-column", f"{role} has unknown column `{name}`; available: {columns}")
    if head.num_rows == 0:
        raise UsageError("no-rows", "the table has no rows", "pass a file with at least one event")
    chosen_time = _given(time) or _choose_time(head)
    others = [name for name in head.column_names if name != chosen_time.column]
    chosen_type = _given(type) or _choose_type(head, others)
    rest = [name for name in others if chosen_type is None or name != chosen_type.column]
    chosen_key = _given(key) or _choose_key(head, rest)
    kind = head.schema.field(chosen_time.column).type
    first, second, window = _frequent_pair(head, chosen_time, chosen_type, chosen_key)
    ticks = _ticks(head.column(chosen_time.column)) if pa.types.is_integer(kind) else ""
    return Proposal(chosen_time, chosen_type, chosen_key, first, second, window, ticks)


def _given(name: str | None) -> Choice | None:
    return None if name is None else Choice(name, "set by you")


# --- time


def _choose_time(table: pa.Table) -> Choice:
    """Chooses timestamps, then integers with a name like a time, then integers that look like a time since 1970."""
    types = {field.name: field.type for field in table.schema}
    moments = [name for name, kind in types.items() if pa.types.is_timestamp(kind)]
    if moments:
        return _best(moments, TIME_NAMES, "timestamps")
    integers = [name for name, kind in types.items() if pa.types.is_integer(kind)]
    called = [name for name in integers if TIME_NAMES.search(name)]
    if called:
        return Choice(called[0], "integers, and the name suggests a time")
    counting = [name for name in integers if _ticks(table.column(name))]
    if counting:
        return _best(counting, TIME_NAMES, f"{_ticks(table.column(counting[0]))} since 1970")
    raise UsageError("no-time", f"no time column found; available columns: {', '.join(types)}", _time_hint(types))


def _time_hint(types: Mapping[str, pa.DataType]) -> str:
    if len(types) == 1 and (name := next(iter(types))) and re.search(r"[;\t|]", name):
        return "save the file with commas as separators, or as Parquet"
    floats = [name for name, kind in types.items() if pa.types.is_floating(kind) and TIME_NAMES.search(name)]
    if floats:
        return f"convert `{floats[0]}` from floating point to timestamps or integers"
    return "set it with --time COLUMN; text must be ISO 8601"


def _ticks(column: pa.ChunkedArray) -> str:
    """Returns the unit in which all integers are times since 1970 between 2000 and 2100; "" if there is none."""
    least, greatest = (value.as_py() for value in pc.min_max(column).values())
    if least is None:
        return ""
    fitting = (word for word, each in TICKS.items() if 30 * YEAR * each <= least and greatest <= 130 * YEAR * each)
    return next(fitting, "")


# --- type and key


def _best(names: Sequence[str], wanted: re.Pattern[str], what: str) -> Choice:
    """Chooses the first column with a suitable name, otherwise the first. `what` is what all of them contain."""
    called = next((name for name in names if wanted.search(name)), names[0])
    others = [f"`{name}`" for name in names if name != called]
    if not others:
        return Choice(called, f"the only column with {what}")
    return Choice(called, f"a column with {what}; others: {', '.join(others)}")


def _choose_type(table: pa.Table, names: Sequence[str]) -> Choice | None:
    fitting = [name for name in names if 2 <= _distinct_texts(table, name) <= min(MOST_TYPES, table.num_rows // 2)]
    if not fitting:
        return None
    return _best(fitting, TYPE_NAMES, "few distinct texts")


def _choose_key(table: pa.Table, names: Sequence[str]) -> Choice | None:
    """Chooses a column with repeated values and a name like a key."""
    for name in names:
        kind = _plain(table.schema.field(name).type)
        is_key = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_key and KEY_NAMES.search(name):
            values = _distinct(table.column(name))
            if 1 < values < table.num_rows:
                return Choice(name, f"{values:,} distinct values, and the name suggests a key")
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _distinct_texts(table: pa.Table, name: str) -> int:
    kind = _plain(table.schema.field(name).type)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return _distinct(table.column(name)) if is_text else 0


def _distinct(column: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(column.cast(_plain(column.type))).as_py())


# --- a first pattern


def _frequent_pair(table: pa.Table, time: Choice, type: Choice | None, key: Choice | None) -> tuple[str, str, str]:
    """Returns the two streams that follow each other most often for one key, and a window that fits most pairs."""
    kind = table.schema.field(time.column).type
    any_window = "100" if pa.types.is_integer(kind) else "1 hour"
    if type is None:
        return "Event", "Event", any_window
    times = pc.cast(table.column(time.column), pa.int64())
    columns = {"t": times, "type": table.column(type.column).cast(pa.string())}
    columns["key"] = table.column(key.column) if key is not None else pa.nulls(table.num_rows)
    rows = pa.table(columns).sort_by([("key", "ascending"), ("t", "ascending")])
    before, after = rows.slice(0, max(0, rows.num_rows - 1)), rows.slice(1)
    same = pc.equal(before.column("key"), after.column("key")) if key is not None else pa.scalar(True)
    fits = pc.and_(pc.not_equal(before.column("type"), after.column("type")), same)
    pairs = pa.table(
        {
            "first": before.column("type"),
            "second": after.column("type"),
            "gap": pc.subtract(after.column("t"), before.column("t")),
        }
    ).filter(fits)
    if pairs.num_rows == 0:
        kinds = sorted(value for value in pc.unique(rows.column("type")).to_pylist() if value) or ["Event"]
        return kinds[0], kinds[-1], any_window
    counted = pairs.group_by(["first", "second"]).aggregate([("gap", "count")])
    best = counted.sort_by([("gap_count", "descending"), ("first", "ascending")]).to_pylist()[0]
    chosen = pairs.filter(
        pc.and_(pc.equal(pairs.column("first"), best["first"]), pc.equal(pairs.column("second"), best["second"]))
    )
    most = float(pc.quantile(chosen.column("gap"), 0.9)[0].as_py() or 0)
    return best["first"], best["second"], _window(most, kind)


def _window(gap: float, kind: pa.DataType) -> str:
    """Returns the shortest round duration that covers the gap.

    >>> _window(250, pa.int64()), _window(90, pa.timestamp("s")), _window(5_000_000, pa.timestamp("us"))
    ('250', '2 minutes', '1 minute')
    """
    if not pa.types.is_timestamp(kind):
        return str(max(1, int(gap)))
    seconds = gap / {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
    fitting = (length for length, size in LENGTHS.items() if size >= seconds)
    return next(fitting, f"{int(seconds // 86400) + 1} days")


# --- The project files

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
"""Arrow types and their Spark types. Other types, except timestamps, are read as text."""

YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML does not read as text."""


def start_project(
    data: Path, folder: Path, time: str | None, type: str | None, key: str | None, force: bool
) -> Proposal:
    """Writes a project for a table. Raises an error if a file exists, unless `force` is set."""
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
    # Check the new pipeline as a user's file: a starter project must have no problems.
    read_pipeline_text(files[PIPELINE], folder / PIPELINE)
    return proposal


def report_project(own: Proposal, data: Path, folder: Path, as_json: bool) -> None:
    """Writes the chosen columns and the next command. JSON includes the reasons."""
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
    """Returns a command that shows the first matches without Spark."""
    type = ["--type", own.type.column] if own.type else []
    return shlex.join(
        ["ensue", "detect", str(folder / PROGRAM), "--events", str(data), "--time", own.time.column, *type]
    )


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


def _program(own: Proposal) -> str:
    first, second = quote_stream(own.first), quote_stream(own.second)
    by = quote_name(own.key.column) if own.key else ""
    partition = f"\n  PARTITION BY {by}" if own.key else ""
    key = f"a.{quote_word(own.key.column)} AS {by}, " if own.key else ""
    per = f" with the same `{_one_line(own.key.column)}`" if own.key else ""
    time = quote_word(own.time.column)
    said_first, said_second = _one_line(own.first), _one_line(own.second)
    ticks = f"-- Times are {own.ticks} since 1970, so windows are in {own.ticks} too.\n" if own.ticks else ""
    return f"""\
-- Two events{per}: `{said_second}` follows `{said_first}` within {own.window}.
{ticks}-- Change the streams, the window and the RETURN columns. `ensue check {PROGRAM}` reports problems.
-- `ensue explain {PROGRAM} --time {shlex.quote(_one_line(own.time.column))}` explains the patterns.
PATTERN followed
  SEQ({first} a, {second} b){partition}
  WITHIN {own.window}
  RETURN {key}a.{time} AS began, b.{time} AS ended;

-- The opposite: `{said_first}` without a `{said_second}` within {own.window}.
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
        type = f"\n    type: {_name(own.type.column)}          # stream of an event: {_one_line(own.type.why)}"
    if own.key:
        key = f"\n# The program groups events by `{_one_line(own.key.column)}`: {own.key.why}."
    return f"""\
# An Ensue pipeline. `ensue run {PIPELINE} --dry-run` describes it, `ensue run {PIPELINE}` runs it.
# `ensue schema` prints the JSON schema of this file for editors. Set secrets as environment variables: ${{NAME}}.
name: starter{key}
program: {PROGRAM}

sources:
  - format: {format}        # any Spark format: parquet, csv, json, delta, kafka, jdbc, ...
    path: {_quoted(_relative(data, folder))}{options}{given}
    time: {_name(own.time.column)}          # time of an event: {_one_line(own.time.why)}{type}

outputs:
  followed: console         # or a Spark sink, as below, or `webhook: https://...`
  not_followed:
    format: json
    path: out/not_followed
    mode: overwrite

# To run it as a stream, set `mode: stream`, remove `mode: overwrite` above, set `path` to a folder of files, and add
#   to the source:   schema: {columns}
#                    watermark: 10 minutes
#   to the pipeline: checkpointLocation: checkpoint
#                    trigger:
#                      processingTime: 10 seconds
"""


def _readme(data: Path, folder: Path, own: Proposal) -> str:
    type = f" --type {shlex.quote(own.type.column)}" if own.type else ""
    time, events = shlex.quote(own.time.column), shlex.quote(_relative(data, folder))
    guesses = (("time", own.time), ("type", own.type), ("key", own.key))
    reasons = "\n".join(
        f"- {role}: `{_one_line(choice.column)}` ({_one_line(choice.why)})" if choice else f"- {role}: none found"
        for role, choice in guesses
    )
    return f"""\
# Starter project

`{PROGRAM}` has two patterns over `{data.name}`. `{PIPELINE}` defines the source of the events and the outputs.

    ensue detect {PROGRAM} --events {events} --time {time}{type}
    ensue run {PIPELINE} --dry-run
    ensue run {PIPELINE}

The first command does not need Spark and is the fastest way to try a pattern. The last one runs the pipeline on Spark.
Ensue guessed these columns. If a guess is wrong, change it in both files:

{reasons}
"""


def _format(data: Path) -> tuple[str, str]:
    """Returns the Spark format of the data, and its options as YAML for the pipeline."""
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
    """Returns a name for YAML, quoted if necessary."""
    plain = re.fullmatch(r"[A-Za-z_]\w*", column, re.ASCII) and column.lower() not in YAML_WORDS
    return column if plain else _quoted(column)


def _one_line(text: str) -> str:
    """Returns the text on one line, so that it does not end a comment."""
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """Returns the text in single quotes for YAML."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
