"""The content of a page as one value of JSON types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analysis.declarations import declarations, streams_of
from ensue.analysis.scopes import counts_events
from ensue.api import LoadedProgram, run
from ensue.engine.sources import EventSource
from ensue.engine.views import members_of
from ensue.errors import Problem, QueryError, counted
from ensue.explanation.near_misses import moment_in_words
from ensue.explanation.report.lanes import (
    BINS,
    Int64s,
    Key,
    LaneGroup,
    PageLimits,
    ResultMatches,
    choose_keys,
    group_lanes,
    keys_of_head,
    on_axis,
)
from ensue.explanation.report.marks import Chooser, Marks, ShownMatches
from ensue.lower.phases import CheckedProgram, LoweredProgram
from ensue.nodes.names import Ancestry, AnyEvent, BodyOf, ContextStage, in_words
from ensue.plan.description import Explanation
from ensue.plan.picture import drawings
from ensue.plan.program_plans import Columns, FixedTables, plan_queries
from ensue.plan.states import refuse_questions
from ensue.programs import Program
from ensue.runtimes.tables import DescribedEvents


@dataclass(frozen=True, slots=True)
class Counts:
    """The total counts, if the page shows only a sample selected elsewhere, for example by Spark.

    `rows` and `streams` count all rows and the rows of each stream; `keys` counts keys by their columns, and `shown`
    are the keys on the page. For each pattern there are the number of `matches`, how many of them end in each step of
    time, and the matches that may be shown, by key, start and end.
    """

    rows: int
    streams: Mapping[str, int]
    matches: Mapping[str, int]
    bars: Mapping[str, Sequence[int]]
    first_matches: Mapping[str, Sequence[tuple[Key, int, int]]]
    keys: Mapping[tuple[str, ...], int]
    shown: Mapping[tuple[str, ...], Sequence[Key]]
    first: int | None
    last: int | None
    ties: Sequence[str] = ()
    """What the results depend on among events at the same time."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Builds the content of a page. `explained` are the statements of the program by name, as written."""

    loaded: LoadedProgram
    found: Sequence[ResultMatches]
    explained: Sequence[tuple[str, Explanation]]
    limits: PageLimits
    title: str
    counts: Counts | None = None

    def collected(self) -> dict[str, Any]:
        """Return the whole content: lanes, events, matches with proofs, patterns with plans, and what was omitted."""
        chosen = None if self.counts is None else self.counts.shown
        groups = group_lanes(self.found, self.loaded, self.limits.keys, chosen)
        marks = Marks(self.loaded)
        allowed = None if self.counts is None else self.counts.first_matches
        shown = Chooser(self.loaded, self.found, groups, marks, allowed).shown(self.limits.matches)
        lanes: list[dict[str, Any]] = [{"label": label} for group in groups for label in group.labels()]
        per_lane = max(1, self.limits.events // max(1, len(lanes)))
        totals: dict[int, int] = {}
        for group in groups:
            totals |= marks.add(group, per_lane, shown.first_starts)
        events, fields = marks.shown()
        for number, lane in enumerate(lanes):
            lane |= {"events": totals.get(number, 0), "matches": shown.totals.get(number, 0)}
        first, last = self._range()
        sample = self._sample(groups, lanes, events, shown)
        return {
            "title": self.title,
            "time": self._time(first, last),
            "rows": self.loaded.report.rows if self.counts is None else self.counts.rows,
            "setAside": self.loaded.report.ignored,
            "patterns": [self._pattern(one, first, last) for one in self.found],
            "statements": [_statement(name, entry) for name, entry in self.explained],
            "streams": self._streams(groups, events),
            "lanes": lanes,
            "fields": fields,
            "events": events,
            "matches": shown.matches,
            "ties": self._ties(),
            "sample": sample,
            "leftOut": [words for part in sample.values() for words in part],
        }

    # --- time

    @property
    def _time_type(self) -> pa.DataType:
        return self.loaded.planned.plans[0].catalog.time_type

    @property
    def _given(self) -> list[EventSource]:
        return [source for source in self.loaded.sources if not source.input.derived]

    def _range(self) -> tuple[int | None, int | None]:
        """Return the first start and the last end of all events."""
        if self.counts is not None:
            return self.counts.first, self.counts.last
        valid = [slice(None) if source.valid is None else source.valid for source in self._given]
        starts = [source.starts[own] for source, own in zip(self._given, valid, strict=True)]
        ends = [source.ends[own] for source, own in zip(self._given, valid, strict=True)]
        return (
            min((int(own.min()) for own in starts if len(own)), default=None),
            max((int(own.max()) for own in ends if len(own)), default=None),
        )

    def _time(self, first: int | None, last: int | None) -> dict[str, Any]:
        moments = pa.types.is_timestamp(self._time_type)
        if first is None or last is None:
            return {"moments": moments, "first": None, "last": None, "step": 1, "words": "no events"}
        words = [moment_in_words(tick, self._time_type) for tick in (first, last)]
        return {
            "moments": moments,
            "first": on_axis(first, self._time_type),
            "last": on_axis(last, self._time_type),
            "step": on_axis(step_of(first, last), self._time_type),
            "words": words[0] if first == last else " to ".join(words),
        }

    # --- patterns and streams

    def _pattern(self, one: ResultMatches, first: int | None, last: int | None) -> dict[str, Any]:
        count = len(one) if self.counts is None else self.counts.matches[one.name]
        if first is None or last is None:
            bars = [0] * BINS
        else:
            bars = bars_of(one.ends, first, last) if self.counts is None else [*self.counts.bars[one.name]]
        read = [
            {
                "stream": in_words(entry.stream),
                "variable": entry.variable,
                "events": entry.events,
                "kept": entry.kept,
            }
            for entry in one.read
        ]
        return {
            "name": one.name,
            "kind": "rule" if one.is_head else "pattern",
            "keys": list(one.keys),
            "count": count,
            "bars": bars,
            # With Spark, this process has only a sample of the events, so its counts do not cover all events.
            "read": read if self.counts is None else [],
        }

    def _streams(self, groups: Sequence[LaneGroup], events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Describe the streams that the program uses, and other streams whose events are shown, with row counts."""
        known = {name for group in groups for name in group.streams if not isinstance(name, AnyEvent)}
        derived = {in_words(derivation.name) for derivation in self.loaded.planned.derivations}
        inner = {
            str(made.name)
            for made in self.loaded.planned.derivations
            if isinstance(made.name, ContextStage | Ancestry | BodyOf)
        }
        shown = {str(event["stream"]) for event in events} - inner
        names = sorted({str(name) for name in known if isinstance(name, str)} | shown)
        # Spark counts the events of heads as matches; it does not count those of other declared streams.
        rows = self._rows() if self.counts is None else {**self.counts.matches, **self.counts.streams}
        unknown = None if self.counts is not None else 0
        return [
            {"name": name, "rows": rows.get(name, unknown if name in derived else 0), "derived": name in derived}
            for name in names
        ]

    def _rows(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for source in self.loaded.sources:
            item = source.input
            for name in item.views:
                time_type = self.loaded.planned.plans[0].catalog.time_type
                rows[str(name)] = len(members_of(source, name, time_type))
            if item.stream is not None:
                rows[in_words(item.stream)] = item.table.num_rows
            else:
                counts = pc.value_counts(source.column(str(item.type)).cast(pa.string()))
                rows |= dict(zip(map(str, counts.field(0).to_pylist()), counts.field(1).to_pylist(), strict=True))
        return rows

    def _ties(self) -> list[str]:
        """Say what the results depend on among events at the same time."""
        if self.counts is not None:
            return [*self.counts.ties]
        return [words for one in self.found for words in one.report.tie_words()]

    # --- what was omitted

    def _sample(
        self,
        groups: Sequence[LaneGroup],
        lanes: Sequence[Mapping[str, Any]],
        events: Sequence[Any],
        shown: ShownMatches,
    ) -> dict[str, list[str]]:
        """Say what is shown of what, where it is not all: `50 of 1,203 keys (id)`."""
        keys = []
        for group in groups:
            total = group.total if self.counts is None else self.counts.keys.get(group.keys, group.total)
            if group.keys and total > len(group.shown):
                keys.append(f"{len(group.shown):,} of {counted(total, 'key', 'keys')} ({', '.join(group.keys)})")
        in_lanes = sum(int(lane["events"]) for lane in lanes)
        drawn = sum(len(event["lanes"]) for event in events)
        found = sum(len(one) for one in self.found) if self.counts is None else sum(self.counts.matches.values())
        matches = len(shown.matches)
        return {
            "keys": keys,
            "events": [f"{drawn:,} of {counted(in_lanes, 'event', 'events')} of these keys"] * (in_lanes > drawn),
            "matches": [f"{matches:,} of {counted(found, 'match', 'matches')}"] * (found > matches),
            "proofs": [f"{shown.proofs:,} of {counted(matches, 'proof', 'proofs')}"] * (matches > shown.proofs),
        }


def step_of(first: int, last: int) -> int:
    """Return the length of each of `BINS` equal parts of the time between two times.

    >>> step_of(0, 119), step_of(0, 120), step_of(7, 7)
    (2, 3, 1)
    """
    return (last - first) // BINS + 1


def bars_of(times: Int64s, first: int, last: int) -> list[int]:
    """Count the times in each part of an interval; times outside count in the first or last part.

    >>> sum(bars_of(np.array([0, 5, 99, 200]), 0, 99))
    4
    """
    places = np.clip((times - first) // step_of(first, last), 0, BINS - 1)
    return [int(count) for count in np.bincount(places, minlength=BINS)]


def _statement(name: str, entry: Explanation) -> dict[str, Any]:
    (kind, text), *sections = entry.sections
    return {
        "name": name,
        "kind": kind.lower(),
        "text": "\n".join(text),
        "drawings": drawings(entry),
        "sections": [{"title": title, "lines": list(lines)} for title, lines in sections],
    }


# --- Spark: find and count the matches there, collect a sample of the keys


@dataclass(frozen=True, slots=True)
class FrameRequest:
    """The DataFrames and the program; `options` are the other arguments of `ensue.run`."""

    events: Any
    written: CheckedProgram
    statements: LoweredProgram
    columns: Columns
    fixed: FixedTables
    options: Mapping[str, Any]
    offered: Mapping[str, Any] | None = None


def sample(asked: FrameRequest, limits: PageLimits) -> tuple[Any, Counts]:
    """Collect the events of the keys on the page as Arrow tables; also return the total counts."""
    from ensue.runtimes.spark.frames import empty_tables, refuse_stream
    from ensue.runtimes.spark.sample import Sampler, found_frame

    for frame in asked.events.values() if isinstance(asked.events, Mapping) else (asked.events,):
        refuse_stream(frame)
    refuse_questions(
        asked.statements,
        "needs all events of the state, but a report on a DataFrame reads only the keys that it shows",
        "add the answer as a column with `ensue.beliefs.track` first, and use that column in the pattern",
    )
    if asked.statements.selections:
        problem = Problem(
            "selected-report",
            "a report on a DataFrame reads only the keys that it shows, but streams of rows compute their keys",
            asked.statements.selections[0].span,
            hint="collect the rows first: `ensue.report(frame.toArrow(), ...)`",
        )
        raise QueryError([problem], asked.statements.source)
    planned = plan_queries(empty_tables(asked.events), asked.statements, asked.columns, True, asked.fixed)
    heads = {made.name: keys_of_head(made) for made in planned.derivations if made.name in asked.written.heads}
    columns = asked.columns
    source = DescribedEvents(asked.events, columns, offered=asked.offered)
    results = run(source, Program(_without_returns(asked.written)), **asked.options)
    plans = zip(results.items(), planned.plans, strict=True)
    found = [
        found_frame(name, heads.get(name, plan.query.partition_by), name in heads, frame)
        for (name, frame), plan in plans
    ]
    sampler = Sampler(asked.events, columns, planned, _streams(asked.statements), found)
    try:
        with sampler.keeping():
            events, counts = _sampled(sampler, limits)
        ties = [words for report in results.reports.values() for words in report.tie_words()]
        return events, replace(counts, ties=ties)
    finally:
        results.release()


def _without_returns(statements: CheckedProgram) -> CheckedProgram:
    """Return the statements with results that have their keys and times."""
    shown = (node if node.declares else replace(node, returns=()) for node in statements.statements)
    return replace(statements, statements=tuple(shown))


def _streams(statements: LoweredProgram) -> Sequence[str] | None:
    """Return the streams that the program uses; None for all."""
    declared = declarations(statements.statements)
    streams = [name for name in streams_of(statements.statements) if name not in declared]
    constrained = [name for entry in statements.constraints for name in entry.constraint.streams]
    counting = any(map(counts_events, statements.statements))
    named = [name for name in streams if isinstance(name, str)]
    if counting or len(named) < len(streams):
        return None
    return list(dict.fromkeys((*named, *constrained)))


def _sampled(sampler: Any, limits: PageLimits) -> tuple[Any, Counts]:
    rows, streams, first, last = sampler.rows()
    step = 1 if first is None or last is None else step_of(first, last)
    bars = {one.name: sampler.bars(one, first or 0, step, BINS) for one in sampler.found}
    matches = {name: sum(own) for name, own in bars.items()}
    groups: dict[tuple[str, ...], list[Any]] = {}
    for one in sampler.found:
        groups.setdefault(one.keys, []).append(one)
    share = max(1, limits.keys // len(groups))
    shown: dict[tuple[str, ...], list[Key]] = {}
    totals: dict[tuple[str, ...], int] = {}
    for keys, own in groups.items():
        others, totals[keys] = sampler.first_keys(keys, 2 * share) if keys else ([], 1)
        matched = [sampler.matched_keys(one, share) for one in own if keys and matches[one.name]]
        shown[keys] = choose_keys(matched, others, share)
    first_ones = {one.name: sampler.first_matches(one, shown[one.keys], limits.matches) for one in sampler.found}
    starts = {one.name: first_ones[one.name][0][1] for one in sampler.found if not one.keys and first_ones[one.name]}
    counts = Counts(rows, streams, matches, bars, first_ones, totals, shown, first, last)
    return sampler.collected(shown, starts), counts
