"""Reads Parquet, CSV, JSON and text files, and folders of them, as Arrow tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ensue.apps.cli.input_files import InputFile
from ensue.apps.cli.logs import LINE, format_of_lines, read_lines, read_log
from ensue.apps.cli.terminal import UsageError, counted, existing_file, messages
from ensue.apps.cli.times import read_times
from ensue.errors import Problem
from ensue.plan.inputs import without_unusable
from ensue.runtimes.tables import mixed_column, table_of


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as a table, and how it was read.

    `known` names the format of a log, `pattern` has its columns. `records` is the name of the list that has the rows,
    if JSON objects have nothing but a list. `one_document` says that a JSON file does not have an object on each line.
    """

    table: pa.Table
    format: str
    parse: str | None = None
    pattern: str | None = None
    known: str = ""
    separator: str = ","
    one_document: bool = False
    records: str = ""


SUFFIXES = ".parquet, .csv, .json, .jsonl, .ndjson, .log or .txt"
SEPARATORS = ",;\t|"
"""What can separate the columns of a CSV file: the one that its header has most often."""


def read_sources(
    given: Sequence[str], times: Sequence[str], order: Sequence[str] = (), parse: str | None = None
) -> dict[str, pa.Table] | pa.Table:
    """Reads one table, or one table per stream for STREAM=FILE. Parses text in the columns `times` as timestamps.

    If `order` has the column `line_number` and a table does not, the table gets it: the numbers of its rows. `parse` is
    the regular expression of text files.
    """
    named = [_split(item) for item in given]
    if len(named) == 1 and named[0][0] is None:
        return _read_table(named[0][1], times, order, parse)
    if any(stream is None for stream, _ in named):
        said = "with several event files, each file needs a stream"
        raise UsageError("unnamed-stream", said, "use --events STREAM=FILE")
    streams = [str(stream) for stream, _ in named]
    repeated = [stream for stream in streams if streams.count(stream) > 1]
    if repeated:
        raise UsageError("repeated-stream", f"stream `{repeated[0]}` has two files; expected one", "merge the files")
    return {stream: _read_table(path, times, order, parse) for stream, (_, path) in zip(streams, named, strict=True)}


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


def _format_of(given: InputFile) -> str:
    """Returns `parquet`, `csv`, `json` or `text`: of stdin from its content, of a file or a folder from its names."""
    if given.content is not None:
        return _format_of_content(given)
    path = given.path
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
        case ".log" | ".txt":
            return "json" if _start(InputFile(path)).startswith(b"{") else "text"
        case _:
            hint = "for a text file, name the columns with --parse REGEX"
            raise UsageError("unknown-format", f"file `{path}` has an unknown format; expected {SUFFIXES}", hint)


_JSON = re.compile(rb"\{|\[\s*[{\]]")


def _format_of_content(given: InputFile) -> str:
    """Returns the format of stdin. Lines without the format of a log are CSV."""
    start = _start(given)
    if start.startswith(b"PAR1"):
        return "parquet"
    if _JSON.match(start):
        return "json"
    return "csv" if format_of_lines(read_lines(given)) is None else "text"


def _start(given: InputFile) -> bytes:
    """Returns the first bytes of a file, compressed or not, without a byte order mark and blanks."""
    try:
        with given.open() as file:
            start: bytes = file.read(64)
    except OSError:  # a compressed file that cannot be read: reading all of it reports why
        return b""
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()


def _is_one_document(given: InputFile) -> bool:
    """Returns whether a JSON file is one list or one object of several lines, not an object on each line."""
    with given.open() as file:
        lines = (line.strip() for line in io.BufferedReader(file))
        first = next(filter(None, lines), b"").removeprefix(b"\xef\xbb\xbf")
    try:
        return not isinstance(json.loads(first), dict)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True


def read_data(path: Path, parse: str | None = None) -> DataFile:
    """Reads a file, a folder or stdin. `parse` is the regular expression of a text file."""
    return _read(InputFile.of(path), parse)


def _read(given: InputFile, parse: str | None) -> DataFile:
    if parse is not None and given.path.is_dir():
        raise UsageError("not-a-file", f"`{given.name}` is a folder; --parse requires a file", "pass one of its files")
    if parse is not None and given.content is None:
        existing_file(given.path)
    format = "text" if parse is not None else _format_of(given)
    if not given.path.is_dir() and format != "parquet" and _start(given).startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = "convert it, for example with `iconv -f UTF-16 -t UTF-8`"
        raise UsageError("unreadable-events", f"`{given.name}` is UTF-16; expected UTF-8", hint)
    try:
        if given.path.is_dir():
            return _read_folder(given.path, format)
        match format:
            case "parquet":
                # Parquet is compressed inside, and read from several places.
                file = given.path if given.content is None else pa.BufferReader(given.content)
                return DataFile(pyarrow.parquet.ParquetFile(file).read(), format)
            case "csv":
                return DataFile(_read_csv(given), format, separator=_separator_of(given))
            case "text":
                table, known = read_log(given, parse)
                return DataFile(table, format, parse, known.pattern, "" if parse is not None else known.name)
            case _:
                table, records = _read_json(given)
                return DataFile(table, format, one_document=_is_one_document(given), records=records)
    except (pa.ArrowException, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError("unreadable-events", f"cannot read `{given.name}` as {format}: {error}") from error


def _read_table(path: Path, times: Sequence[str], order: Sequence[str] = (), parse: str | None = None) -> pa.Table:
    given = InputFile.of(path)
    table = _read(given, parse).table
    if LINE in order and LINE not in table.column_names:
        table = table.append_column(LINE, pa.array(range(1, table.num_rows + 1), pa.int64()))
    for name in times:
        if table.column_names.count(name) <= 1:
            table = with_time(table, name, given.modified)
    return table


def with_time(table: pa.Table, name: str, modified: float) -> pa.Table:
    """Returns the table with a text column as timestamps. `a.b` is the field of a struct, and becomes a column.

    `modified` is when the file was last changed, for times without a year.
    """
    if name not in table.column_names:
        field = field_of(table, name)
        return table if field is None else with_time(table.append_column(name, field), name, modified)
    place = table.column_names.index(name)
    column, notation = read_times(table.column(name), modified)
    if notation is not None and notation.years:
        messages(
            f"times of `{name}` have no year: read as {notation.in_words()}, "
            f"the latest in which none is later than the file's last change"
        )
    return table.set_column(place, name, column)


def field_of(table: pa.Table, path: str) -> pa.ChunkedArray | None:
    """Returns the field `a.b` of a struct column as a column. None if there is none."""
    first, *rest = path.split(".")
    if not rest or first not in table.column_names:
        return None
    column = table.column(first)
    for name in rest:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def _read_folder(path: Path, format: str) -> DataFile:
    """Reads all files of a folder, with columns for subfolder names such as `day=2025-03-10`."""
    import pyarrow.dataset

    if format == "text":
        raise UsageError("not-a-file", f"`{path}` is a folder of text files; expected a file", "pass one of its files")
    table = pyarrow.dataset.dataset(path, format=format, partitioning="hive").to_table()
    match format:
        case "csv":
            return DataFile(_empty_as_null(table), format)
        case "json":
            first = min(file for file in path.rglob("*") if file.is_file() and not file.name.startswith(("_", ".")))
            table, records = _rows_of_list(table)
            return DataFile(table, format, one_document=_is_one_document(InputFile(first)), records=records)
        case _:
            return DataFile(table, format)


def _empty_as_null(table: pa.Table) -> pa.Table:
    """Makes empty text null, with and without quotes, as pandas and Spark do."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(place)
            filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column)
            table = table.set_column(place, field, filled)
    return table


LARGEST_BLOCK = 1 << 24
"""How many bytes are read at once: a row has to fit."""

_ISO_TIME = re.compile(r"\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_WRONG_TYPE = re.compile(r"In CSV column #(\d+): CSV conversion error")


def _read_csv(given: InputFile) -> pa.Table:
    """Reads a CSV file. A second column of the same name gets a number; a column of mixed types is text."""
    header = _csv_header(given)
    names = _distinct_names(header)
    if any(_ISO_TIME.match(name) for name in header):
        messages(f"warning: the first line of `{given.name}` has a time, but it is read as the names of the columns")
    reading = pyarrow.csv.ReadOptions(block_size=LARGEST_BLOCK)
    renamed = [f"`{name}`" for name, written in zip(names, header, strict=True) if written and name != written]
    if renamed:
        messages(
            f"warning: `{given.name}` has columns of the same name; the later ones are called {', '.join(renamed)}"
        )
    if names != header:
        reading = pyarrow.csv.ReadOptions(block_size=LARGEST_BLOCK, column_names=names, skip_rows=1)
    types: dict[str, Any] = {}
    while True:
        try:
            table = pyarrow.csv.read_csv(
                given.open(),
                read_options=reading,
                parse_options=pyarrow.csv.ParseOptions(delimiter=_separator_of(given), newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(column_types=types),
            )
            return _empty_as_null(table)
        except pa.ArrowInvalid as error:
            if "Expected" in str(error):
                _refuse_uneven(given, names)
            found = _WRONG_TYPE.search(str(error))
            if found is None or int(found[1]) >= len(names) or names[int(found[1])] in types:
                raise
            types[names[int(found[1])]] = pa.string()


def _refuse_uneven(given: InputFile, names: Sequence[str]) -> None:
    """Raises an error for the first row that has more or fewer cells than the header."""
    separator = _separator_of(given)
    with given.open() as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    line = 1
    for cells in rows:
        if cells and len(cells) != len(names):
            said = f"line {line} has {counted(len(cells), 'cell')}, but the header has {counted(len(names), 'column')}"
            hint = f"add the missing cells, or put a cell that contains `{separator}` in double quotes"
            raise UsageError("unreadable-events", f"cannot read `{given.name}` as csv: {said}", hint)
        line = rows.line_num + 1


def _first_line(given: InputFile) -> str:
    with given.open() as file:
        return str(file.read(1 << 20).decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r"))


def _separator_of(given: InputFile) -> str:
    """Returns what separates the columns of a CSV file: what its header has most often."""
    header = re.sub(r'"[^"]*"', "", _first_line(given))
    return max(SEPARATORS, key=header.count)


def _csv_header(given: InputFile) -> list[str]:
    """Returns the names in the first line of a CSV file."""
    return next(csv.reader(io.StringIO(_first_line(given)), delimiter=_separator_of(given)), [])


def _distinct_names(header: Sequence[str]) -> list[str]:
    """Returns the names of columns: a repeated name gets a number, an empty one its position.

    >>> _distinct_names(["id", "at", "id", ""])
    ['id', 'at', 'id_2', 'column_4']
    """
    names: list[str] = []
    for place, given in enumerate(header, 1):
        name, number = given or f"column_{place}", 2
        while name in names:
            name, number = f"{given or 'column'}_{number}", number + 1
        names.append(name)
    return names


def _read_json(given: InputFile) -> tuple[pa.Table, str]:
    """Reads one JSON object per line, one list of objects, or one object with nothing but such a list, and its name."""
    with given.open() as file:
        data = file.read().removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise UsageError("no-rows", f"`{given.name}` has no rows", "pass a file with at least one event")
    if data.lstrip().startswith(b"["):
        return table_of(_columns_of(json.loads(data.decode("utf-8")))), ""
    options = pyarrow.json.ReadOptions(block_size=LARGEST_BLOCK)
    try:
        return _rows_of_list(pyarrow.json.read_json(pa.BufferReader(data), read_options=options))
    except pa.ArrowInvalid:
        rows, records = _objects(data.decode("utf-8"))
        return _read_mixed(rows), records


def _rows_of_list(table: pa.Table) -> tuple[pa.Table, str]:
    """Returns the elements as rows, and the name of the list, if a list of objects is the only column."""
    kind = table.schema.field(0).type if table.num_columns == 1 else pa.null()
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return table, ""
    return pa.Table.from_struct_array(pc.list_flatten(table.column(0))), table.column_names[0]


def _objects(text: str) -> tuple[list[Any], str]:
    """Returns the objects of the lines, or of the only list of one object, and the name of that list."""
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        try:
            rows = [json.loads(text)]
        except json.JSONDecodeError:
            raise error from None
    if len(rows) == 1 and isinstance(rows[0], dict) and len(rows[0]) == 1:
        name, found = next(iter(rows[0].items()))
        if isinstance(found, list):
            return found, str(name)
    return rows, ""


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
