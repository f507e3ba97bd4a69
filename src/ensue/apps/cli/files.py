"""Reads Parquet, CSV and JSON files, and folders of them, as Arrow tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ensue.apps.cli.terminal import UsageError, existing_file
from ensue.errors import Problem
from ensue.plan.inputs import without_unusable
from ensue.runtimes.tables import mixed_column, table_of

_LARGEST_BLOCK = 2**31 - 1
"""The size in bytes of the largest block that Arrow can read."""

SUFFIXES = ".parquet, .csv, .json, .jsonl or .ndjson"


def read_sources(given: Sequence[str], times: Sequence[str]) -> dict[str, pa.Table] | pa.Table:
    """Reads one table, or one table per stream for STREAM=FILE. Parses text in the columns `times` as timestamps."""
    named = [_split(item) for item in given]
    if len(named) == 1 and named[0][0] is None:
        return _read_table(named[0][1], times)
    if any(stream is None for stream, _ in named):
        said = "with several event files, each file needs a stream"
        raise UsageError("unnamed-stream", said, "use --events STREAM=FILE")
    streams = [str(stream) for stream, _ in named]
    repeated = [stream for stream in streams if streams.count(stream) > 1]
    if repeated:
        raise UsageError("repeated-stream", f"stream `{repeated[0]}` has two files; expected one", "merge the files")
    return {stream: _read_table(path, times) for stream, (_, path) in zip(streams, named, strict=True)}


def read_tables(given: Sequence[str]) -> dict[str, pa.Table]:
    """Reads the tables that are given as NAME=FILE."""
    named = [_split(item) for item in given]
    if any(name is None for name, _ in named):
        raise UsageError("unnamed-table", "--table requires the name of the TABLE", "use --table NAME=FILE")
    return {str(name): _read_table(path, ()) for name, path in named}


def _split(item: str) -> tuple[str | None, Path]:
    stream, equals, path = item.partition("=")
    if not equals or not stream or Path(item).exists():
        return None, Path(item)
    return stream, Path(path)


def format_of(path: Path) -> str:
    """Returns `parquet`, `csv` or `json`, from the name of a file or of the files in a folder."""
    if not path.is_dir():
        return _format_of_file(existing_file(path))
    inside = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))]
    formats = {_format_of_file(file) for file in inside}
    if len(formats) != 1:
        found = f"`{path}` has files of several formats: {', '.join(sorted(formats))}; expected one format"
        raise UsageError("unknown-format", found if formats else f"folder `{path}` has no files; expected {SUFFIXES}")
    return formats.pop()


def _format_of_file(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".zst", ".bz2")]
    match suffixes[-1] if suffixes else "":
        case ".parquet":
            return "parquet"
        case ".csv":
            return "csv"
        case ".json" | ".jsonl" | ".ndjson":
            return "json"
        case _:
            raise UsageError("unknown-format", f"file `{path}` has an unknown format; expected {SUFFIXES}")


def _read_table(path: Path, times: Sequence[str]) -> pa.Table:
    format = format_of(path)
    try:
        table = _read_folder(path, format) if path.is_dir() else _read_file(path, format)
    except (pa.ArrowInvalid, pa.ArrowTypeError, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError("unreadable-events", f"cannot read `{path}` as {format}: {error}") from error
    for name in times:
        if table.column_names.count(name) == 1:
            place = table.column_names.index(name)
            table = table.set_column(place, name, as_time(table.column(name)))
    return table


def _read_file(path: Path, format: str) -> pa.Table:
    match format:
        case "parquet":
            return pyarrow.parquet.ParquetFile(path).read()
        case "csv":
            return _read_csv(path)
        case _:
            return _read_json(path)


def _read_folder(path: Path, format: str) -> pa.Table:
    """Reads all files of a folder, with columns for subfolder names such as `day=2025-03-10`."""
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(path, format=format, partitioning="hive").to_table()
    return _empty_as_null(table) if format == "csv" else table


def _read_csv(path: Path) -> pa.Table:
    """Reads a CSV file; a column whose cells have several types is text."""
    try:
        table = pyarrow.csv.read_csv(path)
    except pa.ArrowInvalid:
        # Arrow infers the types from the first block of the file, so let all of it be the first block.
        data = pa.input_stream(path).read()
        if not 0 < len(data) <= _LARGEST_BLOCK:
            raise
        options = pyarrow.csv.ReadOptions(block_size=len(data))
        table = pyarrow.csv.read_csv(pa.BufferReader(data), read_options=options)
    return _empty_as_null(table)


def _empty_as_null(table: pa.Table) -> pa.Table:
    """Makes empty text null, with and without quotes, as pandas and Spark do."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(place)
            filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column)
            table = table.set_column(place, field, filled)
    return table


def _read_json(path: Path) -> pa.Table:
    """Reads one JSON object per line, or one JSON list of objects."""
    with path.open("rb") as file:
        if file.read(64).lstrip().startswith(b"["):
            return table_of(_columns_of(json.loads(path.read_text(encoding="utf-8"))))
    try:
        return pyarrow.json.read_json(path)
    except pa.ArrowInvalid:
        lines = pa.input_stream(path).read().decode("utf-8").splitlines()
        return _read_mixed([json.loads(line) for line in lines if line.strip()])


def _read_mixed(rows: list[Any]) -> pa.Table:
    """Reads the columns whose values have one type as Arrow does, and remembers the problem of the others."""
    problems = {name: column for name, column in _columns_of(rows) if isinstance(column, Problem)}
    kept = (json.dumps({name: value for name, value in row.items() if name not in problems}) for row in rows)
    data = "\n".join(kept).encode()
    options = pyarrow.json.ReadOptions(block_size=max(len(data), 1))
    return without_unusable(pyarrow.json.read_json(pa.BufferReader(data), read_options=options), problems)


def _columns_of(rows: Any) -> list[tuple[str, pa.Array | Problem]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise pa.ArrowInvalid("expected JSON objects")
    names = dict.fromkeys(name for row in rows for name in row)
    return [(name, _column(name, [row.get(name) for row in rows])) for name in names]


def _column(name: str, values: list[Any]) -> pa.Array | Problem:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return mixed_column(name, values)


def as_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Parses a text column as timestamps if all values are ISO 8601. Returns any other column unchanged."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pc.cast(column, kind)
        except pa.ArrowInvalid:
            continue
    return column
