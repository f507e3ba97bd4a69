"""A session's state as one Arrow table that carries its version, its query and its watermark."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.engine.session import Session
from ensue.engine.sources import InputTable, Report
from ensue.errors import StateError
from ensue.lang.render import render_query
from ensue.plan.model import QueryPlan

STATE_VERSION = 1
METADATA = b"ensue.state"
REQUIRED = {"version", "query", "watermark", "per_stream", "report", "tables"}


def snapshot(session: Session, per_stream: bool) -> pa.Table:
    """The state as one table: column `source` numbers the input, one struct column per input holds its kept events.

    `per_stream` says whether batches come as one table per stream.
    """
    counts = [table.num_rows for table in session.state]
    columns = {"source": pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))}
    for place, table in enumerate(session.state):
        before, after = sum(counts[:place]), sum(counts[place + 1 :])
        columns[_column_name(place)] = _struct_column(table, before, after)
    header = {
        "version": STATE_VERSION,
        "query": query_text(session.plans),
        "watermark": session.watermark,
        "per_stream": per_stream,
        "report": asdict(session.report),
        "tables": [
            {**_columns(item), "schema": base64.b64encode(item.table.schema.serialize().to_pybytes()).decode()}
            for item in session.inputs
        ],
    }
    return pa.table(columns).replace_schema_metadata({METADATA: json.dumps(header).encode()})


def query_text(plans: Iterable[QueryPlan]) -> str:
    """The queries of a session, by which its state is known."""
    return ";\n".join(render_query(plan.query) for plan in plans)


def restore(session: Session, saved: pa.Table, predecessors: Collection[str] = ()) -> None:
    """Puts a saved state into a session of the same query over tables of the same shape.

    `predecessors` are other queries, as texts, whose kept events are known to suffice.
    """
    header = read_header(saved)
    text = query_text(session.plans)
    if header["query"] != text and header["query"] not in predecessors:
        raise StateError(
            "state-query",
            "the saved state belongs to another query",
            f"it was saved by:\n{header['query']}",
        )
    for item, before in zip(session.inputs, header["tables"], strict=False):
        changed = [name for name, column in _columns(item).items() if before[name] != column]
        if changed:
            raise StateError(
                "state-shape",
                f"the state was saved with {changed[0]} {before[changed[0]]!r}, not {_columns(item)[changed[0]]!r}",
                "name the same columns as before",
            )
    sources = np.asarray(saved.column("source").to_numpy())
    tables: list[pa.Table] = []
    for place, expected in enumerate(session.state):
        name = _column_name(place)
        label = session.inputs[place].label
        if name not in saved.column_names:
            raise StateError("state-shape", f"the saved state has no events of the {label}", "give the same tables")
        tables.append(_unpack(saved.column(name), sources == place, expected.schema, label))
    session.state = tables
    session.watermark = header["watermark"]
    session.report = Report(**header["report"])


def saved_schemas(saved: pa.Table) -> dict[str | None, pa.Schema]:
    """The schemas of the tables that a saved state was fed with, by stream (None: the one table of all streams)."""
    return {
        item["stream"]: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(item["schema"])))
        for item in read_header(saved)["tables"]
    }


def _columns(item: InputTable) -> dict[str, str | None]:
    """Which stream a table holds and which columns it was read by."""
    return {"stream": item.stream, "time": item.time, "end": item.end, "type": item.type}


def read_header(saved: pa.Table) -> dict[str, Any]:
    """What a saved state says about itself; raises a StateError if it is none, or of another version."""
    header: dict[str, Any] = {}
    if isinstance(saved, pa.Table):
        try:
            header = json.loads((saved.schema.metadata or {}).get(METADATA, b"{}"))
        except ValueError:
            header = {}
    if not isinstance(header, dict) or "version" not in header:
        raise StateError("not-a-state", "this is not a state that Ensue has saved", "pass what `snapshot()` gave")
    if header["version"] != STATE_VERSION:
        raise StateError(
            "state-version",
            f"the saved state has version {header['version']}; this release reads version {STATE_VERSION}",
            "restore it with the release that saved it, or start anew from the source",
        )
    if not header.keys() >= REQUIRED or "source" not in saved.column_names:
        raise StateError("not-a-state", "the saved state is not complete", "pass what `snapshot()` gave, unchanged")
    return header


def _column_name(place: int) -> str:
    return f"events_{place}"


def _struct_column(table: pa.Table, before: int, after: int) -> pa.ChunkedArray:
    kind = pa.struct(list(table.schema))
    rows = table.combine_chunks().to_struct_array() if table.num_rows else pa.chunked_array([], kind)
    chunks = [pa.nulls(before, kind), *(chunk.cast(kind) for chunk in rows.chunks), pa.nulls(after, kind)]
    return pa.chunked_array(chunks, kind)


def _unpack(column: pa.ChunkedArray, mask: np.ndarray, schema: pa.Schema, label: str) -> pa.Table:
    saved: Sequence[str] = [field.name for field in column.type]
    missing = [name for name in schema.names if name not in saved]
    if missing:
        raise StateError(
            "state-shape",
            f"the saved events of the {label} have no column `{missing[0]}`",
            f"saved: {', '.join(saved)}; now: {', '.join(schema.names)}",
        )
    own = column.filter(pa.array(mask))
    arrays = [
        pa.chunked_array([chunk.field(name) for chunk in own.chunks], column.type.field(name).type)
        for name in schema.names
    ]
    return pa.table(arrays, names=schema.names).cast(schema)
