"""The dataclasses of a checked pipeline, with the values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ensue.apps.pipelines.yaml_tree import FileValue
from ensue.errors import Source
from ensue.programs import Program

Options = Mapping[str, FileValue]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that Spark reads."""

    format: FileValue
    path: FileValue | None
    options: Options
    schema: FileValue | None
    columns: Mapping[str, FileValue]


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Writes rows to stdout."""


@dataclass(frozen=True, slots=True)
class SparkSinkOf:
    """Writes rows to a Spark sink."""

    format: FileValue
    path: FileValue | None
    options: Options
    mode: str


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """Posts each row to a URL."""

    url: FileValue
    headers: Options
    timeout: float


Sink = ConsoleSink | SparkSinkOf | WebhookSink


@dataclass(frozen=True, slots=True)
class SourceOfEvents:
    """A table or stream of events, and the roles of its columns."""

    table: Table
    stream: FileValue | None
    value: FileValue | None
    time: FileValue
    type: FileValue | None
    end: FileValue | None
    order: tuple[FileValue, ...]
    watermark: FileValue | None
    watermark_column: FileValue | None
    late: Sink | None
    rejected: Sink | Literal["fail", "ignore"]
    """What to do with records that cannot be read as events."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Settings for the delivery of calls."""

    dead_letters: FileValue | None = None
    journal: FileValue | None = None
    retries: int = 5
    backoff: str = "1s"
    patience: str = "1m"


@dataclass(frozen=True, slots=True)
class Session:
    """Settings of the Spark session."""

    master: FileValue | None = None
    memory: FileValue | None = None
    packages: tuple[FileValue, ...] = ()
    config: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline."""

    file: Path
    source: Source = field(repr=False)
    """The text of the file with masked secrets, for problems that Spark finds."""
    name: str
    streaming: bool
    program: Program
    program_file: FileValue | None
    query: FileValue | None
    sources: tuple[SourceOfEvents, ...]
    tables: Mapping[str, Table]
    outputs: Mapping[str, Sink]
    timed_out: Mapping[str, Sink]
    violations: Sink | None
    actions: Mapping[str, Sink]
    delivery: Delivery
    checkpoint: FileValue | None
    trigger: Options
    """Spark's word for when micro-batches start, and its value."""
    limit: int | None
    match_id: bool
    emit: str | None
    tick: FileValue | None
    buckets: int | None
    session: Session
    variables: tuple[str, ...] = ()
    """The environment variables that the pipeline uses."""
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret values, each with the text to show instead."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """All sinks of rows, without the receivers of actions."""
        of_sources = [
            sink
            for source in self.sources
            for sink in (source.late, source.rejected)
            if sink is not None and not isinstance(sink, str)
        ]
        found = (*self.outputs.values(), *self.timed_out.values(), *of_sources)
        return found if self.violations is None else (*found, self.violations)

    @property
    def calls(self) -> bool:
        """Whether the pipeline has actions or webhooks."""
        return bool(self.actions) or any(isinstance(sink, WebhookSink) for sink in self.sinks)
