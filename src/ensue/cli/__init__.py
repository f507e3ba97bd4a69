"""The command line. Commands import what they need when they run, so that `--help` answers at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class _Commands(TyperGroup):
    """The commands; that a reader such as `head` has read enough and left is no failure of theirs."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)
        except SystemExit as left:
            # Both typer and rich leave from within their handling of the broken pipe.
            if isinstance(left.__context__, BrokenPipeError):
                raise SystemExit(0) from None
            raise


app = typer.Typer(
    name="ensue",
    cls=_Commands,
    help="Complex event processing: which events, in which order, with which of them absent.",
    epilog="Start with `ensue demo`; then `ensue explain FILE` shows what a pattern means and how it runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class ProblemFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Runtime(StrEnum):
    PROCESS = "process"
    SPARK = "spark"


ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="an .ensue file", show_default=False)]
EventFiles = Annotated[
    list[str],
    typer.Option(
        metavar="DATA",
        help="a .parquet, .csv, .csv.gz, .json or .jsonl file, a folder of them, or STREAM=DATA",
        show_default=False,
    ),
]
TimeColumn = Annotated[str, typer.Option(metavar="COLUMN", help="the time of an event", show_default=False)]
TypeColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="the stream that an event belongs to", show_default=False)
]
EndColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="when an event ends, if events last", show_default=False)
]
TableFiles = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=DATA", help="the rows of a TABLE of the program", show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from ensue import __version__

        typer.echo(f"ensue {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Complex event processing: which events, in which order, with which of them absent."""


@app.command(epilog="Example: `ensue check *.ensue`")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=".ensue files", show_default=False)],
    format: Annotated[ProblemFormat, typer.Option(help="json: a list of problems on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Check programs without data: syntax, names, scopes, and times that cannot hold together.

    All problems of a file are reported together; where there is a syntax error, only the first one. Names of fields
    need data: `detect` checks them. Exit code 0: no problem; 1: some; 2: a file cannot be read.
    """
    from ensue.cli.checking import check_files, problems_as_json
    from ensue.cli.reporting import counted, messages, reported

    with reported():
        found = check_files(files)
    if format is ProblemFormat.JSON:
        typer.echo(problems_as_json(found))
    else:
        # At once, so that the exit code is that of the check even if the reader leaves after the first lines.
        summary = f"{counted(len(files), 'file')} checked, {counted(len(found), 'problem')}"
        messages("".join(f"{item.rendered}\n\n" for item in found) + summary)
    raise typer.Exit(1 if found else 0)


@app.command(epilog="Example: `ensue explain fraud.ensue --pattern big_transfer`")
def explain(
    file: ProgramFile,
    pattern: Annotated[str | None, typer.Option(help="only this pattern", show_default=False)] = None,
    time: Annotated[str, typer.Option(metavar="NAME", help="the time of an event, as the pattern calls it")] = "t",
) -> None:
    """Show what each pattern means and how it will run: its graph, its plan, and the state a stream would keep."""
    from ensue.cli.programs import explain_program, read_program
    from ensue.cli.reporting import reported

    with reported():
        typer.echo(explain_program(read_program(file), pattern, time))


@app.command(
    epilog="Example: `ensue detect fraud.ensue --events transfers.csv --time at --type kind`; "
    "one file per stream: `--events Order=orders.parquet --events Paid=payments.parquet`"
)
def detect(
    file: ProgramFile,
    events: EventFiles,
    time: TimeColumn,
    type: TypeColumn = None,
    end: EndColumn = None,
    table: TableFiles = None,
    pattern: Annotated[str | None, typer.Option(help="only this pattern or head", show_default=False)] = None,
    format: Annotated[TableFormat, typer.Option(help="how matches are written")] = TableFormat.TABLE,
    rows: Annotated[
        int | None,
        typer.Option(
            min=0, help="rows written per pattern; by default 20 of a table, all otherwise", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="more matches of a pattern than this are an error; by default 10,000,000", show_default=False
        ),
    ] = None,
) -> None:
    """Find the matches of a program in files of events. Matches go to stdout, everything else to stderr."""
    from ensue.cli.detecting import detect_in_files, write_matches
    from ensue.cli.programs import choose_pattern, read_program
    from ensue.cli.reporting import reported

    with reported():
        program = choose_pattern(read_program(file), pattern)
        found = detect_in_files(program, events, time, type, end, limit, table or ())
        wanted = {name: table for name, table in found.items() if pattern in (None, name)}
        write_matches(wanted, format.value, rows)


@app.command(
    "why-not",
    epilog="Example: `ensue why-not fraud.ensue --data transfers.csv --time at --type kind --name big_transfer`",
)
def why_not(
    file: ProgramFile,
    data: EventFiles,
    time: TimeColumn,
    type: TypeColumn = None,
    end: EndColumn = None,
    name: Annotated[
        str | None,
        typer.Option(help="the pattern or stream that is asked about, if there are several", show_default=False),
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="near misses shown for each requirement")] = 3,
    format: Annotated[ProblemFormat, typer.Option(help="json: one object on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Say why a pattern does not match: how far events came, what stopped them, and the nearest misses."""
    from ensue.cli.programs import read_program
    from ensue.cli.questions import why_not_in_files
    from ensue.cli.reporting import reported

    with reported():
        program = read_program(file)
        typer.echo(why_not_in_files(program, data, time, type, end, name, examples, format is ProblemFormat.JSON))


@app.command(
    epilog="Example: `ensue report fraud.ensue --events transfers.csv --time at --type kind --output fraud.html`"
)
def report(
    file: ProgramFile,
    events: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="a .parquet, .csv, .csv.gz, .json or .jsonl file, or STREAM=DATA", show_default=False
        ),
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="the time of an event", show_default=False)] = None,
    type: TypeColumn = None,
    end: EndColumn = None,
    table: TableFiles = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="where to write the page")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="of the page; by default the name of the file", show_default=False)
    ] = None,
    keys: Annotated[int, typer.Option(min=1, help="how many keys are shown, those with matches first")] = 50,
    format: Annotated[ProblemFormat, typer.Option(help="json: what was found, on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Write what a program finds as one HTML page: timelines, matches and what proves them, patterns and plans."""
    from ensue.cli.pages import report_on_files, write_report
    from ensue.cli.programs import read_program
    from ensue.cli.reporting import reported

    with reported():
        program = read_program(file)
        page = report_on_files(program, events or (), time, type, end, table or (), title or file.stem, keys)
        write_report(page, output, format is ProblemFormat.JSON)


@app.command(epilog="Example: `ensue demo --orders 100000 --save .`")
def demo(
    orders: Annotated[int, typer.Option(min=1, help="how many orders to draw")] = 5_000,
    seed: Annotated[int, typer.Option(help="of the random numbers; the same seed gives the same orders")] = 7,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="keep demo.ensue and orders.parquet there, and the page", show_default=False
        ),
    ] = None,
    on: Annotated[
        Runtime, typer.Option(help="spark: a stream on Spark on this machine, needs Java; process: without Spark")
    ] = Runtime.SPARK,
    events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="only write the drawn events, as .parquet or .csv, and stop", show_default=False
        ),
    ] = None,
) -> None:
    """A first result: patterns, a rule and constraints over a drawn week of orders, as a stream on Spark.

    The alerts are shown as tables and, with the events behind them, in a page: demo.html, here or in FOLDER.
    """
    from ensue.cli.reporting import reported

    if events is not None:
        from ensue.cli.orders import write_orders

        with reported():
            write_orders(orders, seed, events)
        return
    from ensue.cli.demo import run_demo

    with reported():
        run_demo(orders, seed, save, on is Runtime.SPARK)


@app.command(epilog="Example: `ensue run pipeline.yaml --dry-run`, then `ensue run pipeline.yaml`")
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a pipeline file, YAML", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would run, without starting Spark")] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="go on from a checkpoint although the program has changed")
    ] = False,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: problems, the plan and rows of the console as JSON on stdout")
    ] = ProblemFormat.TEXT,
) -> None:
    """Run a pipeline file on Spark: sources, a program, and where its results go.

    The file is checked before Spark starts; all problems are reported together. Ctrl-C and SIGTERM stop a stream
    cleanly, and the next run goes on. Exit code 0: the pipeline has ended; 1: it failed or the file has problems;
    2: the file cannot be read; 130, 143: stopped by Ctrl-C, by SIGTERM.
    """
    from ensue.cli.pipelines import read_pipeline_file, run_file, show_plan
    from ensue.cli.reporting import reported

    as_json = format is ProblemFormat.JSON
    with reported():
        pipeline = read_pipeline_file(file, as_json)
        if dry_run:
            show_plan(pipeline, as_json)
            return
        code = run_file(pipeline, as_json, upgrade)
    raise typer.Exit(code)


@app.command(epilog="Example: `ensue schema > pipeline.schema.json`, for an editor that completes YAML")
def schema() -> None:
    """Print the JSON schema of pipeline files."""
    from ensue.pipelines.schema import published_schema

    typer.echo(published_schema(), nl=False)


@app.command(epilog="Examples: `ensue fmt *.ensue`; in a build: `ensue fmt --check *.ensue`")
def fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=".ensue files", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if a file would change")] = False,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: a list of files and whether they change, on stdout")
    ] = ProblemFormat.TEXT,
) -> None:
    """Rewrite programs in the standard form, with their comments.

    A statement with a comment inside stays as it is written: the standard form has no place for it. With a syntax error
    in any file, none is written.
    """
    from ensue.cli.formatting import formatted_files, write_changed
    from ensue.cli.reporting import counted, messages, reported

    with reported():
        found = formatted_files(files)
        if not check:
            write_changed(found)
    changed = [file for file in found if file.changed]
    if format is ProblemFormat.JSON:
        import json

        typer.echo(json.dumps([{"file": str(file.path), "changed": file.changed} for file in found], indent=2))
    else:
        verb = "would change" if check else "changed"
        messages("".join(f"{verb}: {file.path}\n" for file in changed) + f"{counted(len(found), 'file')} looked at")
    raise typer.Exit(1 if check and changed else 0)


@app.command(epilog="Example: `ensue init --data events.parquet --to first`, then `ensue run first/pipeline.yaml`")
def init(
    data: Annotated[
        Path, typer.Option(metavar="DATA", help="a .parquet, .csv or .json file, or a folder", show_default=False)
    ],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="where to write the project")] = Path(),
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="the time of an event", show_default=False)] = None,
    type: TypeColumn = None,
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="what belongs together: an order, a user", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite files that are there")] = False,
    format: Annotated[ProblemFormat, typer.Option(help="json: what was proposed, on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Write a commented starter project for a table: a program, a pipeline and a README.

    It looks at the columns and rows and proposes the time, the type and the key of events, unless they are named, and
    two streams that often follow one another.
    """
    from ensue.cli.reporting import messages, reported
    from ensue.cli.starting import first_try, start_project

    with reported():
        found = start_project(data, to, time, type, key, force)
    if format is ProblemFormat.JSON:
        import json

        typer.echo(json.dumps({"time": found.time, "type": found.type, "key": found.key, "folder": str(to)}))
    messages(
        f"time: {found.time}, type: {found.type or '-'}, key: {found.key or '-'}\n"
        f"Written to {to}: program.ensue, pipeline.yaml, README.md\nNext: {first_try(data, to, found)}"
    )
