"""A pipeline as values: what was read from a file, checked, with the values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ensue.apps.pipelines.yaml_tree import Given
from ensue.errors import Source
from ensue.programs import Program

Options = Mapping[str, Given]


@dataclass(frozen=True, slots=True)
class Table:
    """What Spark reads."""

    format: Given
    path: Given | None
    options: Options
    schema: Given | None
    columns: Mapping[str, Given]


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Rows go to stdout."""


@dataclass(frozen=True, slots=True)
class SparkSinkOf:
    """Rows go to a sink of Spark."""

    format: Given
    path: Given | None
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
class SourceOfEvents:
    """A table or stream of events, and which of its columns mean what."""

    table: Table
    stream: Given | None
    value: Given | None
    time: Given
    type: Given | None
    end: Given | None
    watermark: Given | None
    watermark_column: Given | None
    late: Sink | None
    rejected: Sink | Literal["fail", "ignore"]
    """What happens to records that are no events."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How calls are delivered."""

    dead_letters: Given | None = None
    journal: Given | None = None
    retries: int = 5
    backoff: str = "1 second"
    patience: str = "1 minute"


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session that a pipeline wants."""

    master: Given | None = None
    memory: Given | None = None
    packages: tuple[Given, ...] = ()
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
    program_file: Given | None
    query: Given | None
    sources: tuple[SourceOfEvents, ...]
    tables: Mapping[str, Table]
    outputs: Mapping[str, Sink]
    timed_out: Mapping[str, Sink]
    violations: Sink | None
    actions: Mapping[str, Sink]
    delivery: Delivery
    checkpoint: Given | None
    trigger: Given | None
    limit: int | None
    match_id: bool
    emit: str | None
    tick: Given | None
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
