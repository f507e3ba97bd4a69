"""The columns of a source without Spark: from its definition, and from a look at its local files."""

from __future__ import annotations

import csv
import glob
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ensue.apps.pipelines.ddl import TYPES, UNKNOWN, read_ddl
from ensue.apps.pipelines.model import Table

MOST_FILES = 200
"""How many files of a source are opened, in the order of their names."""
MOST_BYTES = 1 << 23
"""How much of the JSON of a source is read. Columns that only occur later are not known."""

FIXED = {
    "binaryFile": "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY",
    "kafka": "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT",
    "rate": "timestamp TIMESTAMP, value BIGINT",
    "rate-micro-batch": "timestamp TIMESTAMP, value BIGINT",
    "socket": "value STRING",
    "text": "value STRING",
}
"""The columns of formats that always have the same."""
OF_KAFKA = "kafka_key STRING, kafka_topic STRING, kafka_timestamp TIMESTAMP"
FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
SELECTING = frozenset(
    {"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "basepath", "encoding", "charset"}
)
"""Options that change which files Spark reads, or how: these files are left to Spark."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class OtherType:
    """Two files that have a column with different types."""

    column: str
    file: str
    type: str
    other_file: str
    other_type: str
    is_refused: bool
    """Whether Spark cannot read the column from all files. Otherwise it reads text."""
    wider: str = ""
    """The type with which Spark can read the column from both files, if there is one."""


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns of a table. The type null means that only Spark knows the type.

    Without `complete`, there may be more columns. `others` are the columns with several types.
    """

    schema: pa.Schema
    complete: bool = True
    others: tuple[OtherType, ...] = ()
    headers: tuple[str, ...] = ()
    """Sentences about CSV files whose header does not have the columns in the order in which Spark reads them."""
    is_empty: bool = False
    """Whether there is no file, so that Spark cannot know the columns."""

    def with_fields(self, fields: Iterable[pa.Field]) -> SourceColumns:
        """The same with further columns. A column with the same name is replaced."""
        made = {own.name: own for own in self.schema} | {own.name: own for own in fields}
        return SourceColumns(pa.schema(list(made.values())), self.complete, self.others, self.headers, self.is_empty)


def declared(ddl: str) -> list[pa.Field] | None:
    """Returns the columns of a DDL text; None if only Spark can read it."""
    schema = read_ddl(ddl)
    return None if schema is None else list(schema)


def columns_of(table: Table) -> SourceColumns | None:
    """Returns the columns that Spark reads, before `value` and `columns`; None if only Spark knows them."""
    format, options = table.format.value, {name.lower(): given.value for name, given in table.options.items()}
    files = None if table.path is None or SELECTING & options.keys() else _files_of(table.path.value)
    partitions = [] if files is None else [pa.field(name, UNKNOWN) for name in _partitions(files)]
    if format in FIXED:
        return SourceColumns(_read(FIXED[format])).with_fields(partitions if format in FILES else ())
    if table.schema is not None:
        fields = declared(table.schema.value)
        if fields is None:
            return None
        # Folders such as `day=2025-03-10` are columns as well, and those at an address cannot be seen.
        known = SourceColumns(pa.schema(fields), complete=files is not None or format not in FILES)
        return _checked_files(known, format, options, files or []).with_fields(
            item for item in partitions if item.name not in known.schema.names
        )
    if files is None or format not in ("csv", "json", "parquet"):
        return None
    if not files:
        return SourceColumns(pa.schema([]), is_empty=True)
    found = _READERS[format](files[:MOST_FILES], options)
    if found is None:
        return None
    seen = found if len(files) <= MOST_FILES else SourceColumns(found.schema, False, found.others, found.headers)
    return seen.with_fields(partitions)


def _read(ddl: str) -> pa.Schema:
    schema = read_ddl(ddl)
    assert schema is not None
    return schema


def _checked_files(known: SourceColumns, format: str, options: dict[str, str], files: Sequence[Path]) -> SourceColumns:
    """The declared columns, with the files that do not fit them."""
    names = known.schema.names
    if format == "parquet":
        read = [(file, schema) for file in files[:MOST_FILES] if (schema := _footer(file)) is not None]
        given = {own.name: own.type for own in known.schema}
        others = (
            OtherType(own.name, file.name, in_ddl(own.type), "`schema`", in_ddl(given[own.name]), True)
            for file, schema in read
            for own in schema
            if own.name in given and not _is_read_as(own.type, given[own.name])
        )
        once = {item.column: item for item in reversed(list(others))}
        return SourceColumns(known.schema, known.complete, tuple(once.values()))
    if format == "csv" and _is_true(options.get("header")):
        headers = (
            f"`{file.name}` has the columns {_listed(header)}, but `schema` declares {_listed(names)}"
            for file in files[:MOST_FILES]
            if (header := _header(file, options)) and sorted(header) == sorted(names) and header != names
        )
        first = next(headers, None)
        return SourceColumns(known.schema, known.complete, headers=() if first is None else (first,))
    return known


# --- files


def _files_of(path: str) -> list[Path] | None:
    """Returns the files that Spark reads at a path, in the order of their names; None if they cannot be seen."""
    if path.startswith("file:"):
        path = path.removeprefix("file:").replace("///", "/", 1)
    if _ADDRESS.match(path) or "{" in path:
        return None
    found = [Path(path)] if Path(path).exists() else [Path(name) for name in sorted(glob.glob(path))]
    try:
        return [file for place in found for file in ([place] if place.is_file() else _inside(place))]
    except OSError:
        return None


def _inside(folder: Path) -> Iterator[Path]:
    for place in sorted(folder.iterdir()):
        if place.name.startswith((".", "_")) and "=" not in place.name:
            continue
        if place.is_dir():
            yield from _inside(place)
        elif place.stat().st_size:
            yield place


def _partitions(files: Iterable[Path]) -> list[str]:
    names = (part.partition("=")[0] for file in files for part in file.parts[:-1] if "=" in part)
    return list(dict.fromkeys(name for name in names if name))


def _is_true(option: str | None) -> bool:
    return option is not None and option.lower() == "true"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# --- Parquet

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def _parquet(files: Sequence[Path], options: dict[str, str]) -> SourceColumns | None:
    read = [(file, schema) for file in files if (schema := _footer(file)) is not None]
    if not read:
        return None
    fields: dict[str, tuple[Path, pa.DataType]] = {}
    others: dict[str, OtherType] = {}
    for file, schema in read:
        for own in schema:
            first, kind = fields.setdefault(own.name, (file, own.type))
            either = _is_read_as(own.type, kind), _is_read_as(kind, own.type)
            if own.name not in others and not all(either):
                wider = in_ddl(kind) if either[0] else in_ddl(own.type) if either[1] else ""
                others[own.name] = OtherType(
                    own.name, file.name, in_ddl(own.type), first.name, in_ddl(kind), True, wider
                )
    schema = pa.schema([(name, UNKNOWN if name in others else kind) for name, (_, kind) in fields.items()])
    return SourceColumns(schema, len(read) == len(files), tuple(others.values()))


def _footer(file: Path) -> pa.Schema | None:
    """The columns of a Parquet file with the types that Spark reads; None if it cannot be read."""
    try:
        schema = pyarrow.parquet.read_schema(file)
    except (OSError, pa.ArrowException):
        return None
    return pa.schema([(own.name, _as_spark(own.type)) for own in schema]) if len(schema.names) else schema


def _as_spark(kind: pa.DataType) -> pa.DataType:
    """The type that Spark reads for a column of Parquet; null for those that it reads in another way."""
    if pa.types.is_dictionary(kind):
        return _as_spark(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return UNKNOWN if kind.unit == "ns" else pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if pa.types.is_struct(kind):
        return pa.struct([(own.name, _as_spark(own.type)) for own in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_as_spark(kind.value_type))
    unsigned = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    if kind in unsigned:
        return unsigned[kind]
    return kind if kind in TYPES.values() or pa.types.is_decimal128(kind) else UNKNOWN


def _is_read_as(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads a stored type as the declared one. It does not change numbers to text, for example."""
    if pa.types.is_null(stored) or pa.types.is_null(wanted) or stored == wanted:
        return True
    if stored in _INTEGERS:
        # Parquet stores all but the largest in 32 bits.
        small = stored != pa.int64()
        return bool(wanted == pa.int64() or pa.types.is_decimal(wanted)) or (
            small and wanted in (*_INTEGERS, pa.float64())
        )
    if pa.types.is_timestamp(stored) or pa.types.is_date(stored):
        return bool(pa.types.is_timestamp(wanted) or wanted == pa.int64())
    if pa.types.is_float32(stored):
        return bool(wanted == pa.float64())
    if pa.types.is_string(stored) or pa.types.is_binary(stored):
        return bool(pa.types.is_string(wanted) or pa.types.is_binary(wanted))
    return bool(pa.types.is_nested(stored) or pa.types.is_decimal(stored))


def in_ddl(kind: pa.DataType) -> str:
    """A type in Spark's words.

    >>> in_ddl(pa.int64()), in_ddl(pa.timestamp("us", "UTC")), in_ddl(pa.list_(pa.string()))
    ('BIGINT', 'TIMESTAMP', 'ARRAY<STRING>')
    """
    if pa.types.is_list(kind):
        return f"ARRAY<{in_ddl(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{own.name}: {in_ddl(own.type)}' for own in kind)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    names = {own: name for name, own in reversed(TYPES.items())} | {pa.int32(): "INT", pa.int64(): "BIGINT"}
    return names.get(kind, str(kind).upper())


# --- CSV


def _csv(files: Sequence[Path], options: dict[str, str]) -> SourceColumns | None:
    headed = _is_true(options.get("header"))
    headers = [(file, header) for file in files if (header := _header(file, options))]
    if not headers:
        return None
    first, names = headers[0]
    if not headed:
        names = [f"_c{place}" for place in range(len(names))]
    if len({name.lower() for name in names}) < len(names) or "" in names:
        # Spark renames repeated columns.
        return None
    unlike = (
        f"`{first.name}` has the columns {_listed(names)}, but `{file.name}` has {_listed(header)}"
        for file, header in headers[1:]
        if headed and header != names
    )
    guessed = _is_true(options.get("inferschema"))
    others = _mixed_csv(headers, names, options, headed) if guessed else ()
    kind = UNKNOWN if guessed else pa.string()
    mixed = {item.column for item in others}
    schema = pa.schema([(name, pa.string() if name in mixed else kind) for name in names])
    return SourceColumns(schema, others=tuple(others), headers=tuple(unlike)[:1])


def _header(file: Path, options: dict[str, str]) -> list[str]:
    rows = _rows(file, options, 1)
    return rows[0] if rows else []


def _rows(file: Path, options: dict[str, str], most: int) -> list[list[str]]:
    """The first rows of a CSV file; none if it cannot be read here."""
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    quote = options.get("quote", '"')
    if len(separator) != 1 or len(quote) != 1 or "comment" in options:
        return []
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            text = stream.read(1 << 20).decode("utf-8-sig", errors="replace")
    except (OSError, pa.ArrowException):
        return []
    lines = (line for line in io.StringIO(text) if line.strip())
    rows = csv.reader(lines, delimiter=separator, quotechar=quote)
    try:
        return [row for row, _ in zip(rows, range(most), strict=False)]
    except csv.Error:
        return []


LOOKED_AT = 1000
"""How many rows of a CSV file are read to see which types its columns have."""


def _mixed_csv(
    headers: Sequence[tuple[Path, list[str]]], names: Sequence[str], options: dict[str, str], headed: bool
) -> list[OtherType]:
    seen: dict[str, dict[str, str]] = {name: {} for name in names}
    for file, _ in headers:
        rows = _rows(file, options, LOOKED_AT)[int(headed) :]
        for place, name in enumerate(names):
            kinds = {_kind_of_text(row[place]) for row in rows if place < len(row) and row[place]}
            kind = "STRING" if "STRING" in kinds else next(iter(kinds), "") if len(kinds) == 1 else ""
            if kind:
                seen[name].setdefault(kind, file.name)
    return list(_with_text(seen))


def _with_text(seen: dict[str, dict[str, str]]) -> Iterator[OtherType]:
    """The columns that are text in one file and something else in another: Spark reads all of it as text."""
    for name, kinds in seen.items():
        other = next((kind for kind in kinds if kind != "STRING"), None)
        if other is not None and "STRING" in kinds:
            yield OtherType(name, kinds["STRING"], "STRING", kinds[other], other, is_refused=False)


def _kind_of_text(text: str) -> str:
    for pattern, kind in ((r"[+-]?\d+", "BIGINT"), (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", "DOUBLE")):
        if re.fullmatch(pattern, text.strip()):
            return kind
    # A text that starts with a digit may be a time, which Spark recognizes.
    return "" if text.strip()[:1].isdigit() else "STRING"


# --- JSON


@dataclass(slots=True)
class _JsonColumn:
    """What the values of a JSON field are: the file of the first value of each type, and the fields of objects."""

    kinds: dict[str, str] = field(default_factory=dict)
    fields: dict[str, _JsonColumn] = field(default_factory=dict)
    elements: _JsonColumn | None = None

    def add(self, value: Any, file: str) -> None:
        match value:
            case None:
                return
            case dict():
                self.kinds.setdefault("STRUCT", file)
                for name, inner in value.items():
                    self.fields.setdefault(name, _JsonColumn()).add(inner, file)
            case list():
                self.kinds.setdefault("ARRAY", file)
                self.elements = self.elements or _JsonColumn()
                for inner in value:
                    self.elements.add(inner, file)
            case _:
                kinds = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}
                self.kinds.setdefault(kinds.get(type(value), "STRING"), file)

    def type(self, complete: bool) -> pa.DataType:
        """The type that Spark infers; null if further rows could change it."""
        kinds = set(self.kinds)
        if not kinds:
            return UNKNOWN
        if kinds == {"STRUCT"}:
            fields = [(name, own.type(complete)) for name, own in self.fields.items()]
            return pa.struct(fields) if complete else UNKNOWN
        if kinds == {"ARRAY"}:
            assert self.elements is not None
            return pa.list_(self.elements.type(complete)) if complete else UNKNOWN
        if len(kinds) > 1 and not kinds <= {"BIGINT", "DOUBLE"}:
            return pa.string()
        if not complete:
            return UNKNOWN
        return TYPES["DOUBLE" if "DOUBLE" in kinds else kinds.pop()]


def _json(files: Sequence[Path], options: dict[str, str]) -> SourceColumns | None:
    if options.keys() - {"multiline", "mode"}:
        # Other options change what Spark reads as a number, a time or a name.
        return None
    top, complete, left = _JsonColumn(), True, MOST_BYTES
    for file in files:
        rows, whole = _objects(file, left, _is_true(options.get("multiline")))
        if rows is None:
            return None
        left -= min(file.stat().st_size, left)
        complete = complete and whole
        for row in rows:
            top.add(row, file.name)
    if not top.fields:
        return None
    schema = pa.schema([(name, own.type(complete)) for name, own in sorted(top.fields.items())])
    others = _with_text({name: own.kinds for name, own in top.fields.items()})
    return SourceColumns(schema, complete, tuple(others))


def _objects(file: Path, most: int, multiline: bool) -> tuple[list[dict[str, Any]] | None, bool]:
    """The objects of a JSON file, and whether they are all of them. None if the file cannot be read here."""
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            data = stream.read(most + 1)
    except (OSError, pa.ArrowException):
        return None, False
    whole = len(data) <= most
    text = data[:most].decode("utf-8-sig", errors="replace")
    rows: list[Any] = []
    if multiline:
        if not whole:
            return None, False
        try:
            given = json.loads(text)
        except ValueError:
            return None, False
        rows = given if isinstance(given, list) else [given]
    else:
        for line in text.splitlines()[: None if whole else -1]:
            try:
                rows.append(json.loads(line) if line.strip() else None)
            except ValueError:
                # A line that is not JSON: Spark adds a column for it.
                whole = False
    found = [row for item in rows for row in (item if isinstance(item, list) else [item]) if isinstance(row, dict)]
    return found, whole


_READERS = {"csv": _csv, "json": _json, "parquet": _parquet}
