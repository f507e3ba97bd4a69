"""A program over Spark DataFrames: Spark finds and counts the matches, a few keys come into this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ensue.analysis.declarations import declarations, streams_of
from ensue.analysis.scopes import counts_events
from ensue.api import run
from ensue.explanation.report.facts import Counts, step_of
from ensue.explanation.report.found import keys_of_head
from ensue.explanation.report.lanes import Key, choose_keys
from ensue.explanation.report.limits import BINS, Limits
from ensue.lower.phases import Checked, Lowered
from ensue.plan.program_plans import Columns, FixedTables, plan_queries
from ensue.plan.states import refuse_questions
from ensue.programs import Program


@dataclass(frozen=True, slots=True)
class Asked:
    """The DataFrames and the program; `options` are those that `ensue.run` takes besides."""

    events: Any
    written: Checked
    statements: Lowered
    columns: Columns
    fixed: FixedTables
    options: Mapping[str, Any]


def sample(asked: Asked, limits: Limits) -> tuple[Any, Counts]:
    """The events of the keys that are shown as Arrow tables, and what there is in all."""
    from ensue.runtimes.spark.collecting import refuse_stream
    from ensue.runtimes.spark.frames import empty_tables
    from ensue.runtimes.spark.sample import Sampler, found_frame

    for frame in asked.events.values() if isinstance(asked.events, Mapping) else (asked.events,):
        refuse_stream(frame)
    refuse_questions(
        asked.statements,
        "needs all events of the state, but a report on a DataFrame reads only the keys that it shows",
        "add the answer as a column with `ensue.track` first, and use that column in the pattern",
    )
    planned = plan_queries(empty_tables(asked.events), asked.statements, asked.columns, True, asked.fixed)
    heads = {made.name: keys_of_head(made) for made in planned.derivations if made.name in asked.written.heads}
    columns = asked.columns
    results = run(
        Program(_without_returns(asked.written)),
        asked.events,
        time=columns.time,
        type=columns.type,
        end=columns.end,
        **asked.options,
    )
    plans = zip(results.items(), planned.plans, strict=True)
    found = [
        found_frame(name, heads.get(name, plan.query.partition_by), name in heads, frame)
        for (name, frame), plan in plans
    ]
    sampler = Sampler(asked.events, columns, planned, _streams(asked.statements), found)
    try:
        with sampler.keeping():
            return _sampled(sampler, limits)
    finally:
        results.release()


def _without_returns(statements: Checked) -> Checked:
    """The statements with results that show their keys and times."""
    shown = (node if node.declares else replace(node, returns=()) for node in statements.statements)
    return replace(statements, statements=tuple(shown))


def _streams(statements: Lowered) -> Sequence[str] | None:
    """The streams that the program looks at; None: all."""
    declared = declarations(statements.statements)
    streams = [name for name in streams_of(statements.statements) if name not in declared]
    constrained = [name for entry in statements.constraints for name in entry.constraint.streams]
    counting = any(map(counts_events, statements.statements))
    named = [name for name in streams if isinstance(name, str)]
    if counting or len(named) < len(streams):
        return None
    return list(dict.fromkeys((*named, *constrained)))


def _sampled(sampler: Any, limits: Limits) -> tuple[Any, Counts]:
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
