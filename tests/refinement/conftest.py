"""The Spark session of the tests in tests/spark."""

from spark.conftest import spark as spark
