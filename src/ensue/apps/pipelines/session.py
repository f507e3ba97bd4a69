"""The Spark session of a pipeline: with the packages that its formats need, and a look whether Spark finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ensue.apps.pipelines.model import Options, Pipeline, SparkSinkOf
from ensue.apps.pipelines.variables import Given, redact
from ensue.errors import Problem, QueryError


@contextmanager
def session_of(pipeline: Pipeline) -> Iterator[Any]:
    """The session that is there, or a new one, which ends with the run. What it lacks is said before anything runs."""
    from ensue.runtimes.spark.packages import takes_packages
    from ensue.runtimes.spark.session import running_session

    was_there, fresh = running_session() is not None, takes_packages()
    spark = _session(pipeline, fresh)
    try:
        _check_formats(pipeline, spark, running=not fresh)
        yield spark
    finally:
        if not was_there:
            spark.stop()


def values_of(options: Options) -> dict[str, str]:
    return {name: given.value for name, given in options.items()}


def formats_of(pipeline: Pipeline) -> dict[str, Given]:
    """The formats of all that is read and written, each with the first place that names it."""
    sinks = [*pipeline.sinks, *pipeline.actions.values()]
    tables = [*(source.table for source in pipeline.sources), *pipeline.tables.values()]
    given = [table.format for table in tables] + [sink.format for sink in sinks if isinstance(sink, SparkSinkOf)]
    return {format.value: format for format in reversed(given)}


def _session(pipeline: Pipeline, fresh: bool) -> Any:
    from ensue.runtimes.spark.packages import NotFetchedError, package_settings, session_with_packages
    from ensue.runtimes.spark.session import environment_settings

    own = pipeline.session
    master = None if own.master is None else own.master.value
    memory = None if own.memory is None else own.memory.value
    config = values_of(own.config)
    if fresh and not (master or "").startswith("sc://"):
        asked = [package.value for package in own.packages]
        config = package_settings(formats_of(pipeline), asked, config, environment_settings())
    try:
        return session_with_packages(pipeline.name, master, memory, config)
    except NotFetchedError as error:
        raise QueryError([_not_fetched(pipeline, error.packages)], pipeline.source) from error


def _not_fetched(pipeline: Pipeline, packages: str) -> Problem:
    """Spark did not start. What it was told about packages is shown; what went wrong, Spark has written to stderr."""
    named = list(pipeline.session.packages)
    given = named[0] if named else next(iter(formats_of(pipeline).values()))
    return Problem(
        "pipeline-package",
        f"Spark did not start with the packages {redact(packages, pipeline.hidden).replace(',', ', ')}",
        given.span,
        hint="Spark has said above which it did not find: it looks in Maven Central when a package is first used; "
        "jars that are there already go to `spark`, `config: {spark.jars: ...}`",
    )


def _check_formats(pipeline: Pipeline, spark: Any, *, running: bool) -> None:
    from ensue.runtimes.spark.packages import lacks_format, missing_package_hint

    problems = [
        Problem(
            "pipeline-package",
            f"Spark finds no format `{given.raw}`",
            given.span,
            hint=redact(missing_package_hint(format, running=running), pipeline.hidden),
        )
        for format, given in formats_of(pipeline).items()
        if lacks_format(spark, format)
    ]
    if problems:
        raise QueryError(problems, pipeline.source)
