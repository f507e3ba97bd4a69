"""`ensue bench --on spark` measures the same matches as in this process, and leaves the session running."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from ensue import parse
from inside import Work, measure


def test_a_pattern_is_measured_on_spark(spark: SparkSession) -> None:
    events = pa.table({"t": [1, 2, 9], "type": ["A", "B", "A"]})
    work = Work("pair", parse("PATTERN pair SEQ(A a, B b) WITHIN 5"), events, "t", "type")
    (speed,) = measure([work], on_spark=True, repeat=1)
    assert (speed.runtime, speed.events, speed.matches, speed.units) == ("Spark, batch", 3, 1, None)
    assert speed.seconds > 0
    assert spark.range(1).count() == 1
