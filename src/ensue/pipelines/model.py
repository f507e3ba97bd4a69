"""A pipeline as values: what was read from a file, checked, with the values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ensue.pipelines.variables import Given
from ensue.programs import Program

Options = Mapping[str, Given]


@dataclass(frozen=True, slots=True)
class Table:
    """What Spark reads."""

    format: Given
    path: str | None
    options: Options
    schema: str | None
    columns: Mapping[str, Given]


@dataclass(frozen=True, slots=True)
class SourceOfEvents:
    """A table or stream of events, and which of its columns mean what."""

    table: Table
    stream: str | None
    value: str | None
    time: str
    type: str | None
    end: str | None
    watermark: str | None
    watermark_column: str | None


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Rows go to stdout."""


@dataclass(frozen=True, slots=True)
class SparkSinkOf:
    """Rows go to a sink of Spark."""

    format: Given
    path: str | None
    options: Options
    mode: str


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """Each row is posted to an address."""

    url: Given
    headers: Options
    timeout: float


Sink = ConsoleSink | SparkSinkOf | WebhookSink


@dataclass(frozen=True, slots=True)
class Delivery:
    """How calls are delivered."""

    dead_letters: str | None = None
    journal: str | None = None
    retries: int = 5
    backoff: str = "1 second"
    patience: str = "1 minute"


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session that a pipeline wants."""

    master: str | None = None
    memory: str | None = None
    config: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that can be described and run."""

    file: Path
    name: str
    streaming: bool
    program: Program
    program_file: str | None
    sources: tuple[SourceOfEvents, ...]
    tables: Mapping[str, Table]
    outputs: Mapping[str, Sink]
    actions: Mapping[str, Sink]
    delivery: Delivery
    checkpoint: str | None
    trigger: str | None
    limit: int | None
    match_id: bool
    emit: str | None
    tick: str | None
    buckets: int | None
    session: Session
    used: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables of the environment that it uses, with values that must not be shown."""
