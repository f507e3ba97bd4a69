"""A pipeline as values: what was read from a file, checked, with the values of its variables."""

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
    """What Spark reads."""

    format: FileValue
    path: FileValue | None
    options: Options
    schema: FileValue | None
    columns: Mapping[str, FileValue]


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Rows go to stdout."""


@dataclass(frozen=True, slots=True)
class SparkSinkOf:
    """Rows go to a sink of Spark."""

    format: FileValue
    path: FileValue | None
    options: Options
    mode: str


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """Each row is posted to an address."""

    url: FileValue
    headers: Options
    timeout: float


Sink = ConsoleSink | SparkSinkOf | WebhookSink


@dataclass(frozen=True, slots=True)
class SourceOfEvents:
    """A table or stream of events, and which of its columns mean what."""

    table: Table
    stream: FileValue | None
    value: FileValue | None
    time: FileValue
    type: FileValue | None
    end: FileValue | None
    watermark: FileValue | None
    watermark_column: FileValue | None
    late: Sink | None
    rejected: Sink | Literal["fail", "ignore"]
    """What happens to records that are no events."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How calls are delivered."""

    dead_letters: FileValue | None = None
    journal: FileValue | None = None
    retries: int = 5
    backoff: str = "1 second"
    patience: str = "1 minute"


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session that a pipeline wants."""

    master: FileValue | None = None
    memory: FileValue | None = None
    packages: tuple[FileValue, ...] = ()
    config: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that can be described and run."""

    file: Path
    source: Source = field(repr=False)
    """The text of the file, secrets masked, for problems that Spark finds."""
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
    """The variables of the environment that it uses."""
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What must not be shown, and what is shown instead."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """All places to which rows go; calls of actions not among them."""
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
        """Whether it calls somebody: actions, or webhooks that take rows."""
        return bool(self.actions) or any(isinstance(sink, WebhookSink) for sink in self.sinks)
