"""Calls as rows of any sink that Spark can write to, Kafka among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ensue.actions.calls import ACTION, ID, to_json
from ensue.actions.receivers import TableReceiver


@runtime_checkable
class OnSpark(TableReceiver, Protocol):
    """A receiver that writes by way of a Spark session."""

    def on(self, session: Any) -> TableReceiver:
        """The same receiver on this session."""
        ...


@dataclass(frozen=True, slots=True)
class SparkSink:
    """A sink of Spark. See `spark_sink`."""

    format: str
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: Any = field(default=None, repr=False)

    def deliver_table(self, calls: pa.Table) -> None:
        from ensue.runtimes.spark.actions import write_rows

        write_rows(self.session, calls, self.format, self.mode, self.options)

    def on(self, session: Any) -> SparkSink:
        return replace(self, session=session)


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of Kafka. See `kafka`."""

    sink: SparkSink

    def deliver_table(self, calls: pa.Table) -> None:
        self.sink.deliver_table(kafka_records(calls))

    def on(self, session: Any) -> KafkaTopic:
        return KafkaTopic(self.sink.on(session))


def kafka_records(calls: pa.Table) -> pa.Table:
    """The records of calls: the id is the key, the call as JSON the value.

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
    """A receiver that writes calls with Spark: `spark_sink("parquet", path="s3://...")`, `spark_sink("jdbc", ...)`.

    A row has `delivery_id`, `action` and the arguments; `format`, `mode` and the options are those of Spark's
    `DataFrame.write`. Rows are written again if Spark did not say that they were written: by `delivery_id` the reader
    of the sink can tell.
    """
    return SparkSink(format, mode, dict(options))


def kafka(topic: str, servers: str, **options: str) -> KafkaTopic:
    """A receiver that writes calls to a topic of Kafka, with Spark: the key is the delivery id, the value JSON.

    `servers` is a list such as "one:9092,two:9092"; options are those of Spark's Kafka sink, for example
    `**{"kafka.security.protocol": "SSL"}`. Spark needs its package `org.apache.spark:spark-sql-kafka-0-10` for it.
    """
    return KafkaTopic(SparkSink("kafka", "append", {"kafka.bootstrap.servers": servers, "topic": topic, **options}))
