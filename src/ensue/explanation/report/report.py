"""`ensue.report`: a program over events, and what it found as one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ensue.api import checked_limit, load_tables, warn_set_aside
from ensue.constraints import ConstraintsLike
from ensue.explanation.report.facts import Facts
from ensue.explanation.report.found import find_all
from ensue.explanation.report.limits import MOST_ROWS_WITH_IDS, Limits
from ensue.explanation.report.page import HtmlReport
from ensue.lower.phases import Checked
from ensue.plan.plans import DEFAULT_LIMIT, Options
from ensue.plan.program_plans import ColumnNames, Columns
from ensue.programs import Program, QueryLike, explained_statements, program_statements, written_statements
from ensue.runtimes.fixed import fixed_tables
from ensue.runtimes.moments import Period
from ensue.runtimes.tables import are_frames, arrow_tables


def report(
    events: Any,
    program: Program | QueryLike,
    *,
    time: ColumnNames,
    type: str | None = None,
    end: ColumnNames | None = None,
    limit: int | None = DEFAULT_LIMIT,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
    title: str | None = None,
    most_keys: int = 50,
    most_events: int = 5_000,
    most_matches: int = 500,
) -> HtmlReport:
    """Runs a program and shows what happened as one HTML page that needs nothing else: `.save("report.html")`.

    The page has a timeline for each key with its events and matches, what proves each match, the matches over time,
    the patterns as graphs, and how they ran. It shows `most_keys` keys, those with matches first, `most_events` events
    and `most_matches` matches, and says what it leaves out. The other arguments are those of `ensue.run`. Of Spark
    DataFrames only the events of the keys that are shown are brought into this process.

    >>> import pyarrow as pa
    >>> table = pa.table({"t": [1, 5], "type": ["Order", "Paid"], "id": [7, 7]})
    >>> page = report(table, "PATTERN paid SEQ(Order o, Paid p) PARTITION BY id WITHIN 10", time="t", type="type")
    >>> page
    HtmlReport('paid': 1 match)
    """
    given = written_statements(program, constraints)
    written = _with_names(given)
    statements = program_statements(Program(written))
    limits = Limits(most_keys, most_events, most_matches)
    columns, options, period = Columns(time, type, end), Options(limit=checked_limit(limit)), Period(since, until)
    fixed = fixed_tables(tables, statements)
    names = dict.fromkeys(Program(statements).names, True)
    names |= {name: node.name is not None for name, node in zip(names, given.results, strict=False)}
    counts = None
    if are_frames(events):
        from ensue.explanation.report.sampled import Asked, sample

        further = {"limit": limit, "tables": tables, "since": since, "until": until}
        events, counts = sample(Asked(events, written, statements, columns, fixed, further), limits)
        # Spark has found all matches and kept to the limit; these are some of them.
        limit = None
    _, events = arrow_tables(events)
    rows = sum(table.num_rows for table in (events.values() if isinstance(events, Mapping) else (events,)))
    ids = counts is not None or rows <= MOST_ROWS_WITH_IDS
    loaded = load_tables(events, statements, columns, ids, fixed, replace(options, limit=limit), period, whole=True)
    loaded, found = find_all(loaded, names, written.heads)
    for one in found:
        warn_set_aside(one.report)
    named_time, named_end = (name if isinstance(name, str) else None for name in (time, end))
    lasts = named_end or ("e" if end is not None else None)
    explained = [
        (str(entry.query.name or ""), entry) for entry in explained_statements(written, named_time or "t", lasts)
    ]
    facts = Facts(loaded, found, explained, limits, title or _title((*names,)), counts)
    return HtmlReport(facts.collected())


def _with_names(statements: Checked) -> Checked:
    """The statements with a name for each pattern, so that its matches are called the same wherever they are found."""
    names = iter(Program(statements).names)
    named = (node if node.declares else replace(node, name=next(names)) for node in statements.statements)
    return replace(statements, statements=tuple(named))


def _title(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
