"""Receivers that write calls to Spark sinks, Kafka, files and webhooks."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet

from ensue.actions.delivery import Journal
from ensue.actions.receivers import ACTION, ID, Call, RejectedCall, TableReceiver, to_json, without_ids
from ensue.errors import SchemaError, did_you_mean


@runtime_checkable
class OnSpark(TableReceiver, Protocol):
    """A receiver that writes with a Spark session."""

    def on(self, session: Any) -> TableReceiver:
        """Returns the same receiver for this session."""
        ...


@dataclass(frozen=True, slots=True)
class SparkSink:
    """A Spark sink. See `spark_sink`."""

    format: str
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: Any = field(default=None, repr=False)

    def deliver_table(self, calls: pa.Table) -> None:
        from ensue.runtimes.spark.connectors import write_rows

        write_rows(self.session, calls, self.format, self.mode, self.options)

    def on(self, session: Any) -> SparkSink:
        return replace(self, session=session)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A Kafka topic. See `kafka`."""

    sink: SparkSink

    def deliver_table(self, calls: pa.Table) -> None:
        self.sink.deliver_table(kafka_records(calls))

    def on(self, session: Any) -> KafkaTopic:
        return KafkaTopic(self.sink.on(session))


def kafka_records(calls: pa.Table) -> pa.Table:
    """Returns the calls as Kafka records: the id is the key, the call as JSON is the value.

    >>> calls = pa.table({"delivery_id": ["8f2b"], "action": ["notify"], "arg_1": [7]})
    >>> kafka_records(calls).to_pylist()
    [{'key': '8f2b', 'value': '{"delivery_id": "8f2b", "action": "notify", "arguments": {"arg_1": 7}}'}]
    """
    own = (ID, ACTION)
    values = [
        to_json({**{name: row[name] for name in own}, "arguments": {k: v for k, v in row.items() if k not in own}})
        for row in calls.to_pylist()
    ]
    return pa.table({"key": calls.column(ID), "value": pa.array(values, pa.string())})


def spark_sink(format: str, *, mode: str = "append", **options: str) -> SparkSink:
    """Returns a receiver that writes calls with Spark, such as `spark_sink("parquet", path="s3://...")`.

    A row has `delivery_id`, `action` and the arguments. `format`, `mode` and the options are those of Spark's
    `DataFrame.write`. After a failure, rows can be written twice; use `delivery_id` to remove duplicates.
    """
    return SparkSink(format, mode, dict(options))


def kafka(topic: str, servers: str, **options: str) -> KafkaTopic:
    """Returns a receiver that writes calls to a Kafka topic with Spark. The key is the delivery id, the value is JSON.

    `servers` is a list such as "one:9092,two:9092". Options are those of Spark's Kafka sink, for example
    `**{"kafka.security.protocol": "SSL"}`. Spark requires the package `org.apache.spark:spark-sql-kafka-0-10`.
    """
    return KafkaTopic(SparkSink("kafka", "append", {"kafka.bootstrap.servers": servers, "topic": topic, **options}))


# --- Files: Parquet, CSV or JSON lines

INDEX = "_delivered.sqlite"
"""The file with the ids of a folder. Readers of tables skip files whose names start with `_`."""

_FILE = "file "
"""The prefix of file names in the index. Ids do not contain spaces."""


@dataclass(frozen=True, slots=True)
class TableSink:
    """A folder of files. See `table_sink`."""

    folder: Path
    format: str

    def deliver_table(self, calls: pa.Table) -> None:
        """Writes the calls that are not in the folder yet to one file."""
        with Journal(self.folder / INDEX) as index:
            self._index_files(index)
            fresh = without_ids(calls, index.known(calls.column(ID).to_pylist()))
            if fresh.num_rows:
                ids = fresh.column(ID).to_pylist()
                name = f"{hashlib.blake2b(''.join(ids).encode(), digest_size=16).hexdigest()}.{self.format}"
                self._write(fresh, name)
                index.add([*ids, _FILE + name])

    def _index_files(self, index: Journal) -> None:
        """Adds files to the index that were written by a process that died before it updated the index."""
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
        """Writes a file atomically."""
        hidden = self.folder / f"_{name}.{os.getpid()}"
        WRITERS[self.format](calls, hidden)
        hidden.rename(self.folder / name)


def _write_parquet(calls: pa.Table, path: Path) -> None:
    pyarrow.parquet.write_table(calls, path)


def _write_csv(calls: pa.Table, path: Path) -> None:
    for place, column in enumerate(calls.schema):
        if pa.types.is_nested(column.type):
            texts = [None if value is None else to_json(value) for value in calls.column(place).to_pylist()]
            calls = calls.set_column(place, column.name, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(calls, path)


def _write_lines(calls: pa.Table, path: Path) -> None:
    path.write_text("".join(to_json(row) + "\n" for row in calls.to_pylist()), encoding="utf-8")


WRITERS: Mapping[str, Callable[[pa.Table, Path], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "jsonl": _write_lines,
}


def table_sink(path: str | Path, *, format: str = "parquet") -> TableSink:
    """Returns a receiver that writes calls to files in a folder. `format` is "parquet", "csv" or "jsonl" (JSON lines).

    A row has `delivery_id`, `action` and the arguments. Each delivery is written once, even after a crash. The folder
    must be local (on Spark, local to the driver); use `spark_sink` for other storage.
    """
    if format not in WRITERS:
        hint = did_you_mean(str(format), WRITERS) or f"use one of: {', '.join(WRITERS)}"
        raise SchemaError("table-format", f"unknown table format {format!r}", hint)
    return TableSink(Path(path), format)


# --- Webhooks

WORTH_REPEATING = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Responses of 400 to 499 after which a request is retried. After the others it is rejected."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects, because a redirected POST would become a GET without a body."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts each call to a URL. See `webhook`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0

    def deliver(self, call: Call) -> None:
        sent = {"Content-Type": "application/json", **self.headers, "Idempotency-Key": call.delivery_id}
        request = urllib.request.Request(self.url, call.to_json().encode(), sent, method="POST")
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in WORTH_REPEATING:
                    raise RejectedCall(f"HTTP {error.code} {error.reason}") from error
                raise


def webhook(url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 10.0) -> Webhook:
    """Returns a receiver that posts each call to `url` as `{"delivery_id": ..., "action": ..., "arguments": {...}}`.

    The id is also the header `Idempotency-Key`. A response of 200 to 299 means that the call was delivered. The call is
    retried after 408, 409, 425, 429, 500 and above, after `timeout` seconds without a response, and if the connection
    fails. After any other response, including a redirect, it is not retried.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError(
            "webhook-url", f"a webhook requires an http or https URL, found {url!r}", "start it with `https://`"
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise SchemaError("delivery-option", f"`timeout` must be a number of seconds greater than 0, found {timeout!r}")
    return Webhook(url, dict(headers or {}), float(timeout))
