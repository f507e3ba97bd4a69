"""Calls as rows of files: Parquet, CSV or JSON lines in a folder, each delivery once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from ensue.actions.calls import ID, to_json, without_ids
from ensue.actions.journal import Journal
from ensue.errors import SchemaError, did_you_mean

INDEX = "_delivered.sqlite"
"""The ids of a folder. Like every file whose name begins with `_`, readers of tables pass over it."""

_FILE = "file "
"""What stands before the names of files in the index; no id has a blank."""


@dataclass(frozen=True, slots=True)
class TableSink:
    """A folder of files. See `table_sink`."""

    folder: Path
    format: str

    def deliver_table(self, calls: pa.Table) -> None:
        """Writes the calls that are not there yet, as one file."""
        with Journal(self.folder / INDEX) as index:
            self._index_files(index)
            fresh = without_ids(calls, index.known(calls.column(ID).to_pylist()))
            if fresh.num_rows:
                ids = fresh.column(ID).to_pylist()
                name = f"{hashlib.blake2b(''.join(ids).encode(), digest_size=16).hexdigest()}.{self.format}"
                self._write(fresh, name)
                index.add([*ids, _FILE + name])

    def _index_files(self, index: Journal) -> None:
        """Adds the files that were written by a process that died before it could say so."""
        names = sorted(path.name for path in self.folder.glob(f"*.{self.format}") if not path.name.startswith("_"))
        known = index.known([_FILE + name for name in names])
        for name in names:
            if _FILE + name not in known:
                index.add([*self._ids_of(name), _FILE + name])

    def _ids_of(self, name: str) -> list[str]:
        reader = "json" if self.format == "jsonl" else self.format
        table = pyarrow.dataset.dataset(self.folder / name, format=reader).to_table(columns=[ID])
        ids: list[str] = table.column(ID).cast(pa.string()).to_pylist()
        return ids

    def _write(self, calls: pa.Table, name: str) -> None:
        """The file is there whole or not at all."""
        hidden = self.folder / f"_{name}.{os.getpid()}"
        WRITERS[self.format](calls, hidden)
        hidden.rename(self.folder / name)


def _write_parquet(calls: pa.Table, path: Path) -> None:
    pyarrow.parquet.write_table(calls, path)


def _write_csv(calls: pa.Table, path: Path) -> None:
    for place, field in enumerate(calls.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else to_json(value) for value in calls.column(place).to_pylist()]
            calls = calls.set_column(place, field.name, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(calls, path)


def _write_lines(calls: pa.Table, path: Path) -> None:
    path.write_text("".join(to_json(row) + "\n" for row in calls.to_pylist()), encoding="utf-8")


WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "jsonl": _write_lines,
}


def table_sink(path: str | Path, *, format: str = "parquet") -> TableSink:
    """A receiver that writes calls to a folder, as files of `format` "parquet", "csv" or "jsonl" (JSON lines).

    A row has `delivery_id`, `action` and the arguments. A delivery that is in the folder is not written again, also
    after a crash. The folder is one of this machine (on Spark, of the driver); `ensue.spark_sink` writes to others.
    """
    if format not in WRITERS:
        hint = did_you_mean(str(format), WRITERS) or f"formats: {', '.join(WRITERS)}"
        raise SchemaError("table-format", f"there is no format {format!r} of table files", hint)
    return TableSink(Path(path), format)
