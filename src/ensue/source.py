"""`ensue.events`: a table of events whose columns are described once, with the functions of Ensue as methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ensue import api, beliefs, explanation, process, streams
from ensue.actions import act
from ensue.arguments import helpful
from ensue.beliefs import Beliefs
from ensue.constraints import ConstraintsLike
from ensue.detector import Detector
from ensue.engine.diagrams import MOST_NODES, SAMPLES
from ensue.errors import SchemaError, did_you_mean
from ensue.explanation import report as reports
from ensue.plan.plans import DEFAULT_LIMITS, NO_LIMITS, Limits
from ensue.plan.program_plans import ColumnNames, Columns, OrderColumns
from ensue.plan.states import LARGEST_JOINT
from ensue.programs import QueryLike
from ensue.python.values import WindowLike
from ensue.runtimes.tables import DescribedEvents, are_frames, column_names, kind_of_table, shape_in_words

if TYPE_CHECKING:
    import pyarrow as pa

    from ensue.nodes.states import Measure
    from ensue.runtimes.spark.handle import StreamHandle


class Events(DescribedEvents):
    """Events with their columns described; made by `ensue.events`. `table` is the table, or one per stream.

    Each method is the function of the same name, without the arguments that describe columns. A function that has no
    use for a column, such as `probability` in `why_not`, ignores it.
    """

    @helpful
    def detect(
        self,
        query: QueryLike,
        *,
        limits: Limits = DEFAULT_LIMITS,
        match_id: bool = False,
        emit: str = "complete",
        buckets: int | None = None,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
    ) -> Any:
        """The matches of a query, as the kind of table that the events are; see `ensue.detect`."""
        return api.detect(
            self,
            query,
            limits=limits,
            match_id=match_id,
            emit=emit,
            buckets=buckets,
            constraints=constraints,
            tables=tables,
            since=since,
            until=until,
        )

    @helpful
    def detect_batches(
        self,
        query: QueryLike,
        *,
        limits: Limits = NO_LIMITS,
        match_id: bool = False,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
    ) -> Iterator[pa.RecordBatch]:
        """The matches of a query as Arrow record batches; see `ensue.detect_batches`."""
        return api.detect_batches(
            self,
            query,
            limits=limits,
            match_id=match_id,
            constraints=constraints,
            tables=tables,
            since=since,
            until=until,
        )

    @helpful
    def run(
        self,
        query: QueryLike,
        *,
        limits: Limits = DEFAULT_LIMITS,
        match_id: bool = False,
        emit: str = "complete",
        buckets: int | None = None,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
    ) -> api.Results:
        """The matches of every pattern of a program, by name; see `ensue.run`."""
        return api.run(
            self,
            query,
            limits=limits,
            match_id=match_id,
            emit=emit,
            buckets=buckets,
            constraints=constraints,
            tables=tables,
            since=since,
            until=until,
        )

    @helpful
    def violations(
        self,
        query: QueryLike | None = None,
        *,
        constraints: ConstraintsLike | None = None,
        partition_by: str | Sequence[str] = (),
        buckets: int | None = None,
    ) -> Any:
        """The traces that break a constraint; see `ensue.violations`."""
        return api.violations(self, query, constraints=constraints, partition_by=partition_by, buckets=buckets)

    @helpful
    def any_match(
        self,
        query: QueryLike,
        *,
        window: WindowLike | None = None,
        most_nodes: int = MOST_NODES,
        samples: int = SAMPLES,
        tables: Mapping[str, Any] | None = None,
    ) -> Any:
        """The probability that a query has at least one match; see `ensue.any_match`."""
        return api.any_match(self, query, window=window, most_nodes=most_nodes, samples=samples, tables=tables)

    @helpful
    def why_not(
        self,
        query: QueryLike,
        *,
        name: str | None = None,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        examples: int = 3,
        where: Any = None,
    ) -> explanation.WhyNot:
        """Why a pattern has no matches, or no more than it has; see `ensue.why_not`."""
        return explanation.why_not(
            self, query, name=name, constraints=constraints, tables=tables, examples=examples, where=where
        )

    @helpful
    def justify(
        self,
        query: QueryLike,
        match: str | Mapping[str, Any],
        *,
        name: str | None = None,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        ways: int = 3,
        where: Any = None,
    ) -> explanation.Proof:
        """What proves a match; see `ensue.justify`."""
        return explanation.justify(
            self, query, match, name=name, constraints=constraints, tables=tables, ways=ways, where=where
        )

    @helpful
    def report(
        self,
        query: QueryLike,
        *,
        limits: Limits = DEFAULT_LIMITS,
        constraints: ConstraintsLike | None = None,
        tables: Mapping[str, Any] | None = None,
        since: Any = None,
        until: Any = None,
        title: str | None = None,
        most_keys: int = 200,
        most_events: int = 5_000,
        most_matches: int = 2_000,
    ) -> reports.HtmlReport:
        """A run as one HTML page; see `ensue.report`."""
        return reports.report(
            self,
            query,
            limits=limits,
            constraints=constraints,
            tables=tables,
            since=since,
            until=until,
            title=title,
            most_keys=most_keys,
            most_events=most_events,
            most_matches=most_matches,
        )

    @helpful
    def beliefs(
        self, query: QueryLike, *, at: Any = None, policy: str = "error", largest_joint: int = LARGEST_JOINT
    ) -> Beliefs:
        """What is believed of the states of a program after the events; see `ensue.beliefs.of`."""
        return beliefs.of(self, query, at=at, policy=policy, largest_joint=largest_joint)

    @helpful
    def track(
        self,
        query: QueryLike,
        measures: Mapping[str, str | Measure],
        *,
        before: bool = False,
        reason: str | None = None,
        policy: str = "error",
        largest_joint: int = LARGEST_JOINT,
        buckets: int | None = None,
    ) -> Any:
        """Every event with what is believed of its key; see `ensue.beliefs.track`."""
        return beliefs.track(
            self,
            query,
            measures,
            before=before,
            reason=reason,
            policy=policy,
            largest_joint=largest_joint,
            buckets=buckets,
        )

    @helpful
    def mine(
        self,
        *,
        partition_by: str | Iterable[str],
        share: float = 1.0,
        support: int = 1,
        kinds: str | Iterable[str] | None = None,
    ) -> process.Proposal:
        """Constraints that the events obey, as a proposal; see `ensue.process.mine`."""
        return process.mine(self, partition_by=partition_by, share=share, support=support, kinds=kinds)

    @helpful
    def act(self, query: QueryLike, actions: Mapping[str, Any], **options: Any) -> Any:
        """Calls the actions of a program's ON statements; `options` are those of `ensue.actions.act`."""
        return act(self, query, actions, **options)

    @helpful
    def start(self, query: QueryLike, **options: Any) -> StreamHandle:
        """Runs a program on streaming DataFrames; `options` are those of `ensue.start`."""
        return streams.start(self, query, **options)

    @helpful
    def detector(self, query: QueryLike, **options: Any) -> Detector:
        """A detector for batches with these columns; `options` are those of `ensue.Detector`.

        >>> import pyarrow as pa
        >>> table = pa.table({"t": [1, 2], "type": ["A", "B"]})
        >>> detector = events(table, time="t", type="type").detector("PATTERN SEQ(A a, B b) RETURN b.t AS at")
        >>> detector.finish(table).matches.to_pylist()
        [{'at': 2}]
        """
        return Detector(query, **{**self._arguments(), **options})

    def __repr__(self) -> str:
        lines = [f"Events: {_shape(self.table)}"]
        lines += [f"  {role}: {_column(given)}" for role, given in self._roles()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{role}</th><td>{escape(_column(given))}</td></tr>" for role, given in self._roles())
        return f"<div><strong>Events</strong>: {escape(_shape(self.table))}<table>{rows}</table></div>"

    def _arguments(self) -> dict[str, Any]:
        """The description as arguments."""
        own = {**dict(self._roles()), "tables": self.offered}
        return {name: given for name, given in own.items() if given is not None}

    def _roles(self) -> Iterator[tuple[str, object]]:
        own = self.columns
        yield "time", own.time
        for role in ("type", "end", "order", "probability", "alternatives"):
            if getattr(own, role) is not None:
                yield role, getattr(own, role)
        if self.tick is not None:
            yield "tick", self.tick
        if self.offered:
            yield "tables", ", ".join(self.offered)


@helpful
def events(
    table: Any,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    probability: str | None = None,
    alternatives: str | None = None,
    tick: str | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Events:
    """Describes the columns of events once, for several queries and questions.

    `table` is a pyarrow, pandas or polars table or a Spark DataFrame, or a mapping of one per stream. The other
    arguments are those of `ensue.detect`. Of `tables`, each program uses those that it declares with TABLE.

    >>> import pyarrow as pa
    >>> table = pa.table({"t": [1, 2, 4], "type": ["Order", "Paid", "Shipped"], "id": [7, 7, 7]})
    >>> source = events(table, time="t", type="type")
    >>> source
    Events: pyarrow table, 3 rows, columns t, type, id
      time: t
      type: type
    >>> source.detect("PATTERN SEQ(Order o, Shipped s) PARTITION BY id RETURN s.t AS at").to_pylist()
    [{'at': 4}]
    >>> source.why_not("PATTERN SEQ(Paid p, Order o) PARTITION BY id").verdict
    'no match: SEQ: p before o failed once, closest 1 late'
    """
    columns = [column_names(one) for one in _by_stream(table).values()]
    for name in (order,) if isinstance(order, str) else order or ():
        if not any(name in names for names in columns):
            names = list(dict.fromkeys(own for known in columns for own in known))
            raise SchemaError(
                "no-such-column",
                f"no table has a column `{name}` for `order`; columns: {', '.join(names)}",
                did_you_mean(name, names) or "pass `order=` with one of these columns",
            )
    for stream, one in _by_stream(table).items():
        names = column_names(one)
        for role, given in (("time", time), ("type", type), ("end", end)):
            column = given.get(stream or "") if isinstance(given, Mapping) else given
            if isinstance(column, str) and column not in names:
                raise SchemaError(
                    "no-such-column",
                    f"the table has no column `{column}` for `{role}`; columns: {', '.join(names)}",
                    did_you_mean(column, names) or f"pass `{role}=` with one of them",
                )
    return Events(table, Columns(time, type, end, probability, alternatives, order), tick, offered=tables)


def _by_stream(table: Any) -> Mapping[str | None, Any]:
    return table if isinstance(table, Mapping) else {None: table}


def _shape(table: Any) -> str:
    """The kind of a table, or of each table, its rows if they are known, and its columns."""
    if isinstance(table, Mapping):
        return "; ".join(f"{stream}: {_shape(one)}" for stream, one in table.items())
    if are_frames(table):
        return f"{'streaming' if table.isStreaming else 'static'} Spark DataFrame, {shape_in_words(table)}"
    return f"{kind_of_table(table).name} table, {shape_in_words(table)}"


def _column(given: object) -> str:
    if isinstance(given, list | tuple):
        return ", ".join(map(str, given))
    if isinstance(given, Mapping):
        return ", ".join(f"{stream}: {name}" for stream, name in given.items())
    return str(given)
