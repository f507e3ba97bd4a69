"""The description that `ensue.start` stores in a checkpoint, so that a different query is rejected before it starts."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ensue.engine.snapshot import query_text, same_queries
from ensue.engine.stage import needed_columns
from ensue.errors import StateError
from ensue.plan.comparison import missing_events
from ensue.plan.inputs import InputTable, catalog_of
from ensue.plan.planner import plan_query
from ensue.plan.plans import QueryPlan
from ensue.runtimes.spark.bucket import BucketTask
from ensue.text.citations import functions_in
from ensue.text.parser import parse_statements

MANIFEST = "ensue-manifest"
MANIFEST_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The queries of one stateful stream, their inputs, and the earlier queries whose state they continue."""

    keys: tuple[str, ...]
    buckets: int
    eager: bool
    queries: str
    inputs: tuple[dict[str, Any], ...]
    predecessors: tuple[str, ...] = ()
    version: int = MANIFEST_VERSION
    joined: tuple[str, ...] = ()
    """The fields by whose values events are in buckets if there are no keys: `Login.user`."""


def manifest_of(task: BucketTask, inputs: Sequence[InputTable], buckets: int, joined: tuple[str, ...] = ()) -> Manifest:
    queries = query_text(task.plans, task.derivations, task.states, task.inputs)
    return Manifest(task.keys, buckets, task.eager, queries, tuple(map(_described, inputs)), joined=joined)


def _described(item: InputTable) -> dict[str, Any]:
    stream = None if item.stream is None else str(item.stream)
    schema = base64.b64encode(item.table.schema.serialize().to_pybytes()).decode()
    columns = {"stream": stream, "time": item.time, "end": item.end, "type": item.type}
    return {**columns, "order": list(item.order) or None, "schema": schema}


def read_manifests(spark: SparkSession, checkpoint: str) -> dict[tuple[str, ...], Manifest]:
    """Return the newest manifest of each stream in a checkpoint, by its keys; empty for a new checkpoint."""
    try:
        lines = [row[0] for row in spark.read.text(f"{checkpoint}/{MANIFEST}").collect()]
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return {}
        raise
    entries = sorted((json.loads(line) for line in lines), key=lambda entry: entry["number"])
    found: dict[tuple[str, ...], Manifest] = {}
    for entry in entries:
        entry.pop("number")
        if entry.get("version") != MANIFEST_VERSION:
            raise StateError(
                "state-version",
                f"the checkpoint has version {entry.get('version')}; this release reads version {MANIFEST_VERSION}",
                "continue with the release that wrote it, or use a new checkpoint",
            )
        lists = {name: tuple(entry.get(name, ())) for name in ("keys", "inputs", "predecessors", "joined")}
        manifest = Manifest(**{**entry, **lists})
        found[manifest.keys] = manifest
    return found


def write_manifests(spark: SparkSession, checkpoint: str, manifests: Sequence[Manifest], number: int) -> None:
    lines = [(json.dumps({**asdict(manifest), "number": number}),) for manifest in manifests]
    spark.createDataFrame(lines, "value string").coalesce(1).write.mode("append").text(f"{checkpoint}/{MANIFEST}")


def succeed(
    before: Manifest, after: Manifest, plans: Sequence[QueryPlan], inputs: Sequence[InputTable], upgrade: bool
) -> Manifest:
    """Return the manifest with which queries continue from a checkpoint; raise an error if they cannot."""
    if before.buckets != after.buckets:
        raise StateError(
            "bucket-count",
            f"the checkpoint has {before.buckets} buckets, but `buckets` is {after.buckets}",
            f"pass `buckets={before.buckets}`, or use a new checkpoint",
        )
    if _by_columns(before) != _by_columns(after):
        raise StateError(
            "state-shape",
            "the checkpoint was written with different tables or column names",
            "pass the same tables in the same order, with the same `time`, `type`, `end` and `order`",
        )
    if same_queries(before.queries, after.queries) and before.eager == after.eager:
        return before
    if not upgrade:
        raise StateError(
            "state-query",
            "the checkpoint belongs to a different query",
            "use a new checkpoint, or pass `upgrade=True` to continue with the kept events; the query was:\n"
            + before.queries,
        )
    if before.eager != after.eager:
        raise StateError(
            "state-emit",
            "the checkpoint belongs to a query with another `emit`, so some matches would be reported twice or never",
            "keep the same `emit`, or use a new checkpoint",
        )
    if _has_constraints(before) or _has_constraints(after):
        raise StateError(
            "state-constraints",
            "a query with constraints on traces cannot be changed in an existing checkpoint",
            "keep the query and its constraints, or use a new checkpoint; the query was:\n" + before.queries,
        )
    if _suppresses(before) or _suppresses(after):
        raise StateError(
            "state-suppress",
            "a query with SUPPRESS cannot be changed in an existing checkpoint",
            "keep the query, or use a new checkpoint; the query was:\n" + before.queries,
        )
    if _declares_streams(before) or _declares_streams(after):
        raise StateError(
            "state-streams",
            "a program with declared streams cannot be changed in an existing checkpoint",
            "keep the program, or use a new checkpoint; the program was:\n" + before.queries,
        )
    if _asks_states(before) or _asks_states(after):
        raise StateError(
            "state-streams",
            "a program with STATEs cannot be changed in an existing checkpoint",
            "keep the program, or use a new checkpoint; the program was:\n" + before.queries,
        )
    _check_buckets(before, after)
    for text in (*before.predecessors, before.queries):
        check_succession(text, before, plans, inputs)
    return replace(after, predecessors=(*before.predecessors, before.queries))


def _check_buckets(before: Manifest, after: Manifest) -> None:
    """Raise a StateError if events with equal values in the fields that are compared now are in several buckets."""
    moved = sorted({*after.joined} - {*before.joined})
    if moved:
        raise StateError(
            "state-reach",
            "the events in the checkpoint are not sufficient for the changed query; it needs events in buckets by "
            + " = ".join(moved),
            f"use a new checkpoint; the events are in buckets by {' = '.join(before.joined)}",
        )


def _has_constraints(manifest: Manifest) -> bool:
    return bool(parse_statements(manifest.queries).constraints)


def _suppresses(manifest: Manifest) -> bool:
    return any(query.suppress is not None for query in parse_statements(manifest.queries).statements)


def _asks_states(manifest: Manifest) -> bool:
    return bool(parse_statements(manifest.queries).states)


def _declares_streams(manifest: Manifest) -> bool:
    statements = parse_statements(manifest.queries)
    return bool(statements.declared or statements.heads or statements.selections)


def check_succession(text: str, before: Manifest, plans: Sequence[QueryPlan], inputs: Sequence[InputTable]) -> None:
    """Raise a StateError if the events kept for the earlier queries are not sufficient."""
    old_inputs = tuple(_input(entry) for entry in before.inputs)
    catalog = catalog_of(old_inputs)
    statements = parse_statements(text, functions=functions_in(tuple(plan.query for plan in plans)))
    old = [plan_query(node, catalog, statements.source) for node in statements.statements]
    missing = missing_events(old, plans)
    for old_item, item in zip(old_inputs, inputs, strict=True):
        kept = needed_columns(old, old_item).schema
        for field in needed_columns(plans, item).schema:
            place = kept.get_field_index(field.name)
            if place < 0:
                missing.append(f"column `{field.name}` of the {item.label}")
            elif kept.field(place).type != field.type:
                missing.append(
                    f"column `{field.name}` of the {item.label} as {field.type}, not {kept.field(place).type}"
                )
    if missing:
        raise StateError(
            "state-reach",
            "the events in the checkpoint are not sufficient for the changed query; it needs " + "; ".join(missing),
            "use a new checkpoint, or a query that needs no more than the kept events; the query was:\n" + text,
        )


def _by_columns(manifest: Manifest) -> list[dict[str, Any]]:
    """The columns of the tables by role; an older manifest has no entry `order`."""
    return [{"order": None, **entry, "schema": None} for entry in manifest.inputs]


def _input(entry: Mapping[str, Any]) -> InputTable:
    table = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(entry["schema"]))).empty_table()
    order = tuple(entry.get("order") or ())
    return InputTable(table, entry["time"], entry["end"], entry["stream"], entry["type"], order=order)
