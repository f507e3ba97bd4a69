"""`ensue report`: a program over files of events, or a pipeline, as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ensue.apps.cli.files import read_sources, read_tables
from ensue.apps.cli.terminal import UsageError, counted, messages, show
from ensue.explanation.report import HtmlReport, report
from ensue.programs import Program

PIPELINES = (".yaml", ".yml")
"""How the names of pipeline files end."""


def report_on_pipeline(file: Path, options: Sequence[str], title: str, most_keys: int, as_json: bool) -> HtmlReport:
    """What the program of a pipeline finds in its sources; `options` about events are what the file says itself."""
    from ensue.apps.cli.run import read_pipeline_file
    from ensue.apps.pipelines.runner import report_pipeline

    if options:
        raise UsageError(
            "pipeline-events",
            f"a pipeline file says what its events are, and {', '.join(options)} says it again",
            "leave these options out, or name an .ensue file",
        )
    pipeline = read_pipeline_file(file, as_json)
    messages(f"Reading the sources of {pipeline.name} on Spark ...")
    return report_pipeline(pipeline, title=title, most_keys=most_keys)


def report_on_files(
    program: Program,
    events: Sequence[str],
    time: str | None,
    type: str | None,
    end: str | None,
    tables: Sequence[str],
    title: str,
    most_keys: int,
) -> HtmlReport:
    """What the program finds in the files."""
    if not events or time is None:
        raise UsageError(
            "missing-events",
            "a report on a program needs its events and their time",
            "--events DATA --time COLUMN; a pipeline file says these itself",
        )
    sources = read_sources(events, [column for column in (time, end) if column is not None])
    given = read_tables(tables)
    return report(
        sources, program, time=time, type=type, end=end, tables=given or None, title=title, most_keys=most_keys
    )


def write_report(page: HtmlReport, output: Path, as_json: bool) -> None:
    """Writes the page, says where it is and what it shows: in words on stderr, or as JSON on stdout."""
    try:
        page.save(output)
    except OSError as error:
        raise UsageError("unwritable-report", f"`{output}` cannot be written: {error.strerror}") from None
    facts = page.facts
    found = {pattern["name"]: pattern["count"] for pattern in facts["patterns"]}
    if as_json:
        said = {"report": str(output), "rows": facts["rows"], "matches": found, "shown": facts["leftOut"]}
        show(json.dumps(said, ensure_ascii=False))
        return
    lines = [f"{name}: {counted(count, 'match', 'matches')}" for name, count in found.items()]
    lines += [f"shown: {'; '.join(facts['leftOut'])}"] if facts["leftOut"] else []
    messages("\n".join([*lines, f"Written to {output}"]))
