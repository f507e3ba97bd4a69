"""Every case of `tests/cases`: in one batch, in any order of input, event by event with restarts, and by the oracle.

UPDATE_CASES=1 writes what the engine finds into the files, unless the oracle finds something else.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ensue
from case_files import (
    Case,
    CaseEvent,
    case_files,
    input_of,
    parse_time,
    read_cases,
    ready_cases,
    render_cases,
    render_derived,
    render_results,
    render_rows,
    ticks_of,
    with_expected,
)
from case_oracle import (
    can_show_columns,
    completion,
    completions_of,
    heads_of,
    is_in_reach,
    node_of,
    oracle_results,
    oracle_rows,
    program_of,
    returned_rows,
    statements_of,
)
from ensue import EnsueWarning, QueryError, SchemaError
from inside import (
    Event,
    Field,
    PatternQuery,
    Return,
    Statements,
    render_query,
    render_statements,
)
from oracle.rules import head_attributes

FILES = case_files()
SAMPLE_EVERY = 16


# --- the engine


def detect(case: Case, events: Sequence[CaseEvent], query: str) -> pa.Table:
    """One batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EnsueWarning)
        return ensue.detect(input_of(case, events), query, **columns_of(case))


def has_rules(case: Case) -> bool:
    """Whether it is about rules; the query may be one that cannot be read."""
    return re.search(r"\bRULE\b", case.query) is not None


def run_rules(case: Case, events: Sequence[CaseEvent]) -> ensue.Results:
    """One batch of a program with rules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EnsueWarning)
        return ensue.run(input_of(case, events), case.query, **columns_of(case), tables=case.fixed_tables() or None)


def rows_in_batch(case: Case, events: Sequence[CaseEvent]) -> list[str]:
    if heads := heads_of(case):
        return render_results(run_rules(case, events), heads)
    return render_rows(detect(case, events, case.query))


def new_detector(case: Case, query: str) -> ensue.Detector:
    return ensue.Detector(query, **columns_of(case), tables=case.fixed_tables() or None)


def columns_of(case: Case) -> dict[str, Any]:
    """The arguments that describe the events."""
    return {
        "time": "time",
        "type": None if case.has_tables else "type",
        "end": "until" if case.has_intervals else None,
        "order": case.order or None,
    }


def detect_stepwise(case: Case, query: str, completions: Iterable[int]) -> list[str]:
    return [row for table, watermark in steps(case, query, completions) for row in render_completed(table, watermark)]


def steps(case: Case, query: str, completions: Iterable[int]) -> Iterator[tuple[pa.Table, int | None]]:
    """Event by event, a watermark at every end and right before and at every completion, a restart after two steps.

    What each step gives, with its watermark; the last one has none.
    """
    events = sorted(case.parsed_events(), key=lambda event: event.end)
    watermarks = sorted({event.end for event in events} | {at - early for at in completions for early in (0, 1)})
    detector = new_detector(case, query)
    detector.advance(input_of(case, []), watermark=as_watermark(case, min(watermarks, default=0) - 1))
    restarts = {len(watermarks) // 3, 2 * len(watermarks) // 3}
    for number, watermark in enumerate(watermarks):
        after = watermarks[number - 1] if number else watermark - 1
        for event in events:
            if after < event.end <= watermark:
                step = detector.advance(input_of(case, [event]), watermark=as_watermark(case, after))
                assert step.matches.num_rows == 0
        yield detector.advance(watermark=as_watermark(case, watermark)).matches, watermark
        if number in restarts:
            detector = restarted(detector, new_detector(case, query))
    yield detector.finish().matches, None


def derive_stepwise(case: Case) -> list[str]:
    """The results of a program with rules, each by a detector of its own, with `@` where a step is not the end."""
    program = program_of(case)
    found: list[str] = []
    for head in heads_of(case):
        for table, watermark in steps(case, query_for(program, asking_for(program, head)), ends_of(case)):
            derived = table.rename_columns(["start", "end", *table.column_names[2:]])
            ends = ticks_of(derived, "end")
            found += [
                f"{head}: {row}{completion(end, watermark, case.has_clock_times)}"
                for row, end in zip(render_derived(derived), ends, strict=True)
            ]
    for query in program.results:
        for table, _ in steps(case, query_for(program, query), ends_of(case)):
            found += [f"{query.name}: {row}" for row in render_rows(table)]
    return found


def query_for(program: Statements, query: PatternQuery) -> str:
    """The program with one pattern only."""
    return render_statements(replace(program, statements=(*program.declared, query)))


def asking_for(program: Statements, head: str) -> PatternQuery:
    """The pattern whose matches are the events of a head."""
    rule = next(rule for rule in program.ruleset.rules if rule.head == head)
    columns = [Return(Field("v", "s"), "event start"), Return(Field("v", "e"), "event end")]
    columns += [Return(Field("v", name), name) for name in head_attributes(rule)]
    return PatternQuery(Event(head, "v"), "wanted", returns=tuple(columns))


def ends_of(case: Case) -> list[int]:
    """When the expected events of heads end."""
    return [parse_time(row.removesuffix("]").rpartition(", ")[2]) for row in case.rows if row.endswith("]")]


def restarted(detector: ensue.Detector, fresh: ensue.Detector) -> ensue.Detector:
    fresh.restore(detector.snapshot())
    return fresh


def as_watermark(case: Case, ticks: int) -> object:
    return pa.scalar(ticks).cast(pa.timestamp("us")).as_py() if case.has_clock_times else ticks


def render_completed(found: pa.Table, watermark: int | None) -> list[str]:
    """The rows of one step, with `@` where the step is not the end of the match."""
    rows = render_rows(found)
    if "start" not in found.column_names:
        return rows
    is_clock = pa.types.is_timestamp(found.schema.field("end").type)
    return [row + completion(end, watermark, is_clock) for row, end in zip(rows, ticks_of(found, "end"), strict=True)]


# --- what is expected


def query_without_return(case: Case) -> str:
    selections = replace(Statements(()), selections=program_of(case).selections)
    return render_statements(selections).strip() + render_query(replace(node_of(case), returns=()))


def without_completion(row: str) -> str:
    return row.split(" @")[0]


def steps_of(case: Case) -> list[int]:
    """When matches are complete: as written behind `@`, and also where a match ends after its last event."""
    texts = [row.partition(" @")[2] for row in case.rows]
    written = [parse_time(text) for text in texts if text not in ("", "end")]
    return written + (completions_of(case) if is_in_reach(case) else [])


def completed_at(row: str, end: int) -> float:
    at = row.partition(" @")[2]
    if at == "end":
        return math.inf
    return parse_time(at) if at else end


def problems_of(case: Case) -> list[str]:
    """The codes with which the query is refused."""
    with pytest.raises((QueryError, SchemaError)) as refusal:
        run_or_detect(case)
    return codes_of(refusal.value)


def run_or_detect(case: Case) -> None:
    """One batch, whether the query can be read or not."""
    if has_rules(case):
        run_rules(case, case.parsed_events())
    else:
        detect(case, case.parsed_events(), case.query)


def codes_of(error: QueryError | SchemaError) -> list[str]:
    return [problem.code for problem in error.problems] if isinstance(error, QueryError) else [error.code]


# --- updating


def update_file(path: Path) -> None:
    cases, behind = read_cases(path)
    path.write_text(render_cases([case if case.pending else updated(case) for case in cases], behind), encoding="utf-8")


def updated(case: Case) -> Case:
    """The case with the engine's rows, or as it is where the oracle disagrees."""
    try:
        run_or_detect(case)
    except (QueryError, SchemaError) as error:
        return with_expected(case, [f"error {code}" for code in codes_of(error)])
    if heads_of(case):
        found = rows_in_batch(case, case.parsed_events())
        return with_expected(case, found) if sorted(found) == sorted(oracle_results(case)) else case
    if not is_in_reach(case):
        return with_expected(case, detect_stepwise(case, case.query, ()))
    if not has_labels(case):
        found = detect_stepwise(case, case.query, steps_of(case))
        shown = not (node_of(case).returns and can_show_columns(case)) or sorted(returned_rows(case)) == sorted(found)
        return with_expected(case, found) if shown else case
    by_oracle = [row for row, _, _ in oracle_rows(case)]
    times = completions_of(case)
    agreed = sorted(detect_stepwise(case, query_without_return(case), times)) == sorted(by_oracle)
    return with_expected(case, detect_stepwise(case, case.query, times)) if agreed else case


def has_labels(case: Case) -> bool:
    """Whether the matches bind events of the input, which have labels; only RETURN can show other events."""
    selected = any(one.returns or one.unnest for one in program_of(case).selections)
    return len(statements_of(case)) == 1 and not selected


if os.environ.get("UPDATE_CASES"):
    for file in FILES:
        update_file(file)

ALL = [(path, case) for path in FILES for case in ready_cases(path)]


def each(
    cases: Iterable[tuple[Path, Case]], *, is_slow: Callable[[Case], bool] = lambda _: False
) -> pytest.MarkDecorator:
    """A test for each case; those that are slow are left to `make test-all`."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=f"{path.stem}: {case.title}", marks=pytest.mark.slow if is_slow(case) else ())
            for path, case in cases
        ],
    )


SAMPLED = {case.title for path in FILES for case in [case for own, case in ALL if own == path][::SAMPLE_EVERY]}


def is_beyond_sample(case: Case) -> bool:
    """Whether a case is none of those that also run on Spark in `make test`: some of each file."""
    return case.title not in SAMPLED


ACCEPTED = [case for _, case in ALL if not case.errors]
accepted = each((path, case) for path, case in ALL if not case.errors)
refused = each((path, case) for path, case in ALL if case.errors)


# --- the tests


@accepted
def test_batch(case: Case) -> None:
    expected = sorted(map(without_completion, case.rows))
    assert sorted(rows_in_batch(case, case.parsed_events())) == expected


@accepted
def test_batch_backwards(case: Case) -> None:
    expected = sorted(map(without_completion, case.rows))
    assert sorted(rows_in_batch(case, case.parsed_events()[::-1])) == expected


@accepted
def test_event_by_event(case: Case) -> None:
    found = derive_stepwise(case) if heads_of(case) else detect_stepwise(case, case.query, steps_of(case))
    assert sorted(found) == sorted(case.rows)


@accepted
def test_oracle(case: Case) -> None:
    """The oracle finds the same matches, intervals and completions; a batch is in the order of (completion, start)."""
    if heads_of(case):
        assert sorted(oracle_results(case)) == sorted(case.rows)
        return
    if not is_in_reach(case):
        pytest.skip("the oracle does not know a function of the query")
    if node_of(case).returns and can_show_columns(case):
        assert sorted(returned_rows(case)) == sorted(case.rows)
    if not has_labels(case):
        return
    by_oracle = oracle_rows(case)
    query = query_without_return(case)
    rows = [row for row, _, _ in by_oracle]
    # Rows of RETURN do not show the events: there, the engine's steps without RETURN stand for them.
    shown = detect_stepwise(case, query, completions_of(case)) if node_of(case).returns else case.rows
    assert sorted(shown) == sorted(rows)
    batch = detect(case, case.parsed_events(), query)
    found = list(zip(render_rows(batch), ticks_of(batch, "start"), ticks_of(batch, "end"), strict=True))
    completed = {(without_completion(row), start, end): completed_at(row, end) for row, start, end in by_oracle}
    assert sorted(found) == sorted((without_completion(row), start, end) for row, start, end in by_oracle)
    order = [(completed[match], match[1]) for match in found]
    assert order == sorted(order)


@refused
def test_refusal(case: Case) -> None:
    assert problems_of(case) == case.errors
    with pytest.raises((QueryError, SchemaError)) as refusal:
        new_detector(case, case.query).advance(input_of(case, case.parsed_events()), watermark=as_watermark(case, 0))
    assert codes_of(refusal.value) == case.errors


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_reads_back(path: Path) -> None:
    assert render_cases(*read_cases(path)) == path.read_text(encoding="utf-8")
