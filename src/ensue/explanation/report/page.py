"""`ensue.report`: one HTML file with styles, script and data, which needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ensue.api import load_tables, match_limit, warn_set_aside
from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.errors import counted
from ensue.explanation.report.columns import packed
from ensue.explanation.report.facts import Facts
from ensue.explanation.report.lanes import MOST_ROWS_WITH_IDS, PageLimits, find_all
from ensue.lower.phases import CheckedProgram
from ensue.plan.plans import DEFAULT_LIMITS, Limits, Options
from ensue.plan.program_plans import ColumnNames, OrderColumns
from ensue.programs import Program, QueryLike, explained_statements, program_statements, written_statements
from ensue.runtimes.moments import Period
from ensue.runtimes.tables import are_frames, arrow_tables, described, fixed_tables

FRAME_HEIGHT = 760
"""Height of the page in a notebook, in pixels."""
SCRIPT = ("data", "timeline", "details", "table", "sections")
"""The parts of the script, in the order in which they use each other's constants."""


@dataclass(frozen=True)
class HtmlReport:
    """A run as one HTML page: `save` writes it, a notebook displays it, `facts` is its content as JSON values."""

    facts: Mapping[str, Any] = field(repr=False)

    @cached_property
    def html(self) -> str:
        """The complete HTML text."""
        assets = files("ensue.explanation.report").joinpath("assets")
        parts = {
            "title": escape(str(self.facts["title"])),
            "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
            "script": "\n".join(assets.joinpath(f"{part}.js").read_text(encoding="utf-8") for part in SCRIPT),
            "facts": embedded(packed(self.facts)),
        }
        page = assets.joinpath("page.html").read_text(encoding="utf-8")
        first, *rest = page.split("{{")
        return first + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return the path."""
        target = Path(path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        """Return the page in an iframe, so that its styles do not affect the notebook."""
        return (
            f'<iframe title="{escape(str(self.facts["title"]), quote=True)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" srcdoc="{escape(self.html, quote=True)}"></iframe>'
        )

    def __repr__(self) -> str:
        said = (f"{one['name']!r}: {counted(one['count'], 'match', 'matches')}" for one in self.facts["patterns"])
        return f"HtmlReport of {', '.join(said)}; `save(path)` writes the page"


def embedded(facts: Mapping[str, Any]) -> str:
    """Return a value as JSON that is safe inside a script element: nothing in it ends the script or starts a comment.

    >>> embedded({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- `ensue.report`


@helpful
def report(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    limits: Limits = DEFAULT_LIMITS,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    since: Any = None,
    until: Any = None,
    title: str | None = None,
    most_keys: int = 200,
    most_events: int = 5_000,
    most_matches: int = 2_000,
) -> HtmlReport:
    """Run a program and return the result as one self-contained HTML page: `.save("report.html")`.

    The page has a timeline for each key with its events and matches, the proof of each match, the matches over time,
    the patterns as graphs, and their plans. It shows `most_keys` keys (those with matches first), `most_events` events
    and `most_matches` matches, and says what it omits. The other arguments are those of `ensue.run`. For Spark
    DataFrames, only the events of the keys on the page are collected into this process.

    >>> import pyarrow as pa
    >>> table = pa.table({"t": [1, 5], "type": ["Order", "Paid"], "id": [7, 7]})
    >>> page = report(table, "PATTERN paid SEQ(Order o, Paid p) PARTITION BY id WITHIN 10", time="t", type="type")
    >>> page
    HtmlReport of 'paid': 1 match; `save(path)` writes the page
    """
    given = written_statements(query, constraints)
    written = _with_names(given)
    statements = program_statements(Program(written))
    shown = PageLimits(most_keys, most_events, most_matches)
    source = described(events, time, type, end, order, tables=tables)
    events, columns = source.table, replace(source.columns, probability=None, alternatives=None)
    options, period = Options(limit=match_limit(limits)), Period(since, until)
    fixed = fixed_tables(source.tables, statements, source.offered)
    names = dict.fromkeys(Program(statements).names, True)
    names |= {name: node.name is not None for name, node in zip(names, given.results, strict=False)}
    counts = None
    if are_frames(events):
        from ensue.explanation.report.facts import FrameRequest, sample

        further = {"limits": limits, "tables": source.tables, "since": since, "until": until}
        events, counts = sample(
            FrameRequest(events, written, statements, columns, fixed, further, source.offered), shown
        )
        # Spark has found all matches and applied the limit; this is a sample of them.
        options = replace(options, limit=None)
    _, events = arrow_tables(events)
    rows = sum(table.num_rows for table in (events.values() if isinstance(events, Mapping) else (events,)))
    ids = counts is not None or rows <= MOST_ROWS_WITH_IDS
    loaded = load_tables(events, statements, columns, ids, fixed, options, period, whole=True)
    loaded, found = find_all(loaded, names, written.heads)
    # Of ties, Spark has counted those of all rows, and `sample` has told about them.
    told = {tie for one in found for tie in one.report.ties} if counts is not None else ()
    warn_set_aside({one.name: one.report for one in found}, told)
    named_time, named_end = (name if isinstance(name, str) else None for name in (columns.time, columns.end))
    lasts = named_end or ("e" if columns.end is not None else None)
    explained = [
        (str(entry.query.name or ""), entry) for entry in explained_statements(written, named_time or "t", lasts)
    ]
    facts = Facts(loaded, found, explained, shown, title or _title((*names,)), counts)
    return HtmlReport(facts.collected())


def _with_names(statements: CheckedProgram) -> CheckedProgram:
    """Give each pattern a name, so that its matches have the same name everywhere."""
    names = iter(Program(statements).names)
    named = (node if node.declares else replace(node, name=next(names)) for node in statements.statements)
    return replace(statements, statements=tuple(named))


def _title(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
