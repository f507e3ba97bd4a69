"""A program with a stream, which `test_crash.py` kills and starts again: `crash_program.py detect|start FOLDER [last]`.

It says `started` once the stream runs, and goes on until it is killed; with `last`, until all files have been read.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import ensue
from ensue.runtimes.spark.frames import spark_schema

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("t", INSTANT),
        pa.field("type", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("x", pa.float64()),
    ]
)
DELAY = "2 seconds"
BUCKETS = 2
"""Few states: it is the crash that counts here, not the load."""

PAIR = "PATTERN pair SEQ(A a, NOT B b, C c) PARTITION BY id WITHIN 4 seconds"
ALONE = "PATTERN alone SEQ(A a, NOT C c) PARTITION BY id WITHIN 2 seconds RETURN a.id AS id, a.t AS at"


def main(way: str, folder: str, last: bool) -> None:
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
    spark = ensue.spark_session("crash", master="local[1]", memory="512m", config=settings)
    reader = spark.readStream.schema(spark_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    events = reader.parquet(f"{folder}/in").withWatermark("t", DELAY)
    if way == "detect":
        found = ensue.detect(events, PAIR, time="t", type="type", match_id=True, buckets=BUCKETS)
        writer = found.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer = writer.trigger(availableNow=True) if last else writer
        query = writer.start(f"{folder}/pair")
        say("started")
        query.awaitTermination()
    else:
        running = ensue.start(
            events,
            f"{PAIR}; {ALONE}",
            to={"pair": f"{folder}/pair", "alone": f"{folder}/alone"},
            checkpointLocation=f"{folder}/checkpoint",
            time="t",
            type="type",
            match_id=True,
            trigger={"availableNow": True} if last else None,
            buckets=BUCKETS,
        )
        say("started")
        running.awaitTermination()
    spark.stop()


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["last"])
