"""Maven packages for formats that Spark does not include: what a session needs, and hints about missing ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.runtimes.spark.session import running_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = "spark.jars.packages"
_PLACES = (PACKAGES, "spark.jars", "spark.driver.extraClassPath")
BUILT_IN = (
    "binaryFile",
    "console",
    "csv",
    "jdbc",
    "json",
    "memory",
    "noop",
    "orc",
    "parquet",
    "rate",
    "socket",
    "text",
)
OF_SPARK = {"kafka": "spark-sql-kafka-0-10_2.13", "avro": "spark-avro_2.13"}
"""Formats whose packages have the same version as Spark."""

OTHERS = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION",
    "hudi": "org.apache.hudi:hudi-sparkSPARK-bundle_2.13:VERSION",
}
_SETTINGS = {
    "delta": (
        "`spark.sql.extensions: io.delta.sql.DeltaSparkSessionExtension` and "
        "`spark.sql.catalog.spark_catalog: org.apache.spark.sql.delta.catalog.DeltaCatalog`"
    )
}


def package_settings(
    formats: Iterable[str], packages: Sequence[str], config: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return `config` with all packages of a new session: the requested ones, and those of Spark's own formats.

    `known` are the settings of the environment. Packages that are already available are not added.

    >>> made = package_settings(["kafka", "csv"], ["a:b:1"], {}, {})
    >>> made["spark.jars.packages"].split(":")[:4]
    ['a', 'b', '1,org.apache.spark', 'spark-sql-kafka-0-10_2.13']
    """
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    there = ",".join([arguments, *packages, *(source.get(key, "") for source in (config, known) for key in _PLACES)])
    missing = [
        package_of(format)
        for format in dict.fromkeys(formats)
        if (artifact := OF_SPARK.get(format)) and artifact not in there and not _with_spark(artifact)
    ]
    wanted = [*packages, *missing]
    if not wanted:
        return dict(config)
    before = config.get(PACKAGES, known.get(PACKAGES, ""))
    return {**config, PACKAGES: ",".join([*filter(None, [before]), *wanted])}


class NotFetchedError(Exception):
    """Spark did not start, probably because it could not download packages."""

    def __init__(self, packages: str) -> None:
        self.packages = packages
        super().__init__(packages)


def session_with_packages(name: str, master: str | None, memory: str | None, config: Mapping[str, str]) -> SparkSession:
    """Call `ensue.spark_session`; raise NotFetchedError if Spark did not start and had packages to download."""
    from pyspark.errors import PySparkRuntimeError

    try:
        return spark_session(name, master=master, memory=memory, config=config)
    except PySparkRuntimeError as error:
        if PACKAGES not in config:
            raise
        raise NotFetchedError(config[PACKAGES]) from error


def takes_packages() -> bool:
    """Return True if Spark has not started yet in this process; a running Spark cannot add packages."""
    import pyspark

    context = getattr(pyspark, "SparkContext", None)
    started = context is None or context._gateway is not None
    return not started and "PYSPARK_GATEWAY_PORT" not in os.environ and running_session() is None


def package_of(format: str) -> str:
    """Return the package of one of Spark's own formats, for the installed PySpark."""
    import pyspark

    return f"org.apache.spark:{OF_SPARK[format]}:{pyspark.__version__}"


def _with_spark(artifact: str) -> bool:
    """Return True if the local Spark installation includes the jar."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return any((home / "jars").glob(f"{artifact}-*.jar"))


def lacks_format(spark: SparkSession, format: str) -> bool:
    """Return True if Spark does not find the format; does not read or write anything."""
    from pyspark.errors import PySparkException

    if format in BUILT_IN:
        return False
    try:
        _ = spark.read.format(format).load().schema
    except Exception as error:
        if not isinstance(error, PySparkException) and not hasattr(error, "java_exception"):
            raise
        # An available format fails with other errors, for example about missing options.
        return "DATA_SOURCE_NOT_FOUND" in str(error)
    return False


def missing_package_hint(format: str, *, running: bool) -> str:
    """Return what to add for a format: to the pipeline, or to the command that started Spark if it was `running`."""
    if format in OF_SPARK:
        package, rest = package_of(format), ""
    elif format in OTHERS:
        package, rest = OTHERS[format].replace("SPARK", _spark_line()), " (with the version for this Spark)"
    else:
        package, rest = "GROUP:ARTIFACT:VERSION", " (the package of this format)"
    settings = f", and {_SETTINGS[format]} to its `config`" if format in _SETTINGS else ""
    if running:
        return f"Spark was already running; start it with `--packages {package}`{rest}{settings}"
    return f"add `packages: [{package}]`{rest} to `spark`{settings}"


def _spark_line() -> str:
    """Return Spark's version without the last number, as in the names of other packages."""
    import pyspark

    return ".".join(pyspark.__version__.split(".")[:2])
