"""The commands, their options and their help. They import what they need when they run: `--help` answers at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ensue.apps.cli.quick import show_version
from ensue.apps.cli.terminal import show


class _Commands(TyperGroup):
    """The commands; that a reader such as `head` has read enough and left is no failure of theirs."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        if os.environ.get("NO_COLOR"):
            from typer import rich_utils

            # Otherwise help and errors would still have bold text.
            rich_utils.COLOR_SYSTEM = None
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


def _complete_pattern(context: typer.Context, incomplete: str) -> Iterator[str]:
    """The names of the patterns in the program that the command line names."""
    from ensue.apps.cli.detect import read_program
    from ensue.errors import EnsueError

    # While an option lacks its value, what stands before it is not read yet.
    file = context.params.get("file") or next(iter(context.args), None)
    if file is None:
        return
    try:
        program = read_program(Path(file))
    except EnsueError:
        return
    yield from (name for name in program.names if name.startswith(incomplete))


def _complete_code(incomplete: str) -> Iterator[str]:
    from ensue.apps.cli.catalogue import read_catalogue

    yield from (code for code in read_catalogue() if code.startswith(incomplete))


PatternName = Annotated[
    str | None, typer.Option(help="only this pattern or head", show_default=False, autocompletion=_complete_pattern)
]


class ProblemFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class BenchFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


class Runtime(StrEnum):
    PROCESS = "process"
    SPARK = "spark"


ProgramFiles = Annotated[
    list[str], typer.Argument(metavar="FILE...", help=".ensue files; - is stdin", show_default=False)
]
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
RowsShown = Annotated[
    int | None,
    typer.Option(min=0, help="rows written per pattern; by default 20 of a table, all otherwise", show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        raise typer.Exit(show_version())


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Complex event processing: which events, in which order, with which of them absent."""


@app.command(epilog="Example: `ensue check *.ensue`")
def check(
    files: ProgramFiles,
    format: Annotated[ProblemFormat, typer.Option(help="json: a list of problems on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Check programs without data: syntax, names, scopes, and times that cannot hold together.

    All problems of a file are reported together; where there is a syntax error, only the first one. Names of fields
    need data: `detect` checks them. Exit code 0: no problem; 1: some; 2: a file cannot be read.
    """
    from ensue.apps.cli.check import run_check

    raise typer.Exit(run_check(files, format is ProblemFormat.JSON))


@app.command(epilog="Example: `ensue explain fraud.ensue --pattern big_transfer`")
def explain(
    file: ProgramFile,
    pattern: PatternName = None,
    time: Annotated[str, typer.Option(metavar="NAME", help="the time of an event, as the pattern calls it")] = "t",
    format: Annotated[ProblemFormat, typer.Option(help="json: one object on stdout")] = ProblemFormat.TEXT,
    stages: Annotated[
        bool, typer.Option("--stages", help="the program after each lowering instead: rules, contexts, operators, ...")
    ] = False,
) -> None:
    """Show what each pattern means and how it will run: its graph, its plan, and the state a stream would keep."""
    from ensue.apps.cli.detect import explain_program, read_program
    from ensue.apps.cli.terminal import reported

    with reported():
        show(explain_program(read_program(file), pattern, time, format is ProblemFormat.JSON, stages))


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
    pattern: PatternName = None,
    format: Annotated[TableFormat, typer.Option(help="how matches are written")] = TableFormat.TABLE,
    rows: RowsShown = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="more matches of a pattern than this are an error; by default 10,000,000", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="only what completes after it: ISO 8601 or an integer", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="only what completes up to it", show_default=False)
    ] = None,
    probability: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="how probable an event is", show_default=False)
    ] = None,
    alternatives: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="of events that agree on it at most one is real", show_default=False),
    ] = None,
) -> None:
    """Find the matches of a program in files of events. Matches go to stdout, everything else to stderr."""
    from ensue.apps.cli.detect import choose_pattern, detect_in_files, read_program, write_matches
    from ensue.apps.cli.terminal import reported

    with reported():
        program = choose_pattern(read_program(file), pattern)
        uncertain = (probability, alternatives)
        found = detect_in_files(program, events, time, type, end, limit, table or (), since, until, *uncertain)
        wanted = {name: table for name, table in found.items() if pattern in (None, name)}
        write_matches(wanted, format.value, rows)


@app.command(
    epilog="Example: `ensue violations orders.ensue --events orders.parquet --time t --type type`; "
    "constraints without a key need one: `--key order_id`"
)
def violations(
    file: ProgramFile,
    events: EventFiles,
    time: TimeColumn,
    type: TypeColumn = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="what a trace is, for constraints without PARTITION BY", show_default=False
        ),
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="how violations are written")] = TableFormat.TABLE,
    rows: RowsShown = None,
) -> None:
    """Show the traces that break a CONSTRAINT of a program: which one, which event breaks it, and when.

    Exit code 0: the events were looked at, whether or not a constraint is broken; `--format json` tells scripts.
    """
    from ensue.apps.cli.detect import read_program, violations_in_files, write_matches
    from ensue.apps.cli.terminal import reported

    with reported():
        found = violations_in_files(read_program(file), events, time, type, key or ())
        write_matches({"violations": found}, format.value, rows, ("violation", "violations"))


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
        typer.Option(
            help="the pattern or stream that is asked about, if there are several",
            show_default=False,
            autocompletion=_complete_pattern,
        ),
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="near misses shown for each requirement")] = 3,
    format: Annotated[ProblemFormat, typer.Option(help="json: one object on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Say why a pattern does not match: how far events came, what stopped them, and the nearest misses."""
    from ensue.apps.cli.detect import read_program, why_not_in_files
    from ensue.apps.cli.terminal import reported

    with reported():
        program = read_program(file)
        show(why_not_in_files(program, data, time, type, end, name, examples, format is ProblemFormat.JSON))


@app.command(
    epilog="Example: `ensue report fraud.ensue --events transfers.csv --time at --type kind --output fraud.html`"
)
def report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="an .ensue file, or a pipeline file (YAML)", show_default=False)
    ],
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
    """Write what a program finds as one HTML page: timelines, matches and what proves them, patterns and plans.

    A pipeline file says itself what its events are: they are read once on Spark as they are now, streams from their
    start, and nothing is written to its outputs.
    """
    from ensue.apps.cli.detect import PIPELINES, read_program, report_on_files, report_on_pipeline, write_report
    from ensue.apps.cli.terminal import reported

    as_json, wanted = format is ProblemFormat.JSON, title or file.stem
    with reported():
        if file.suffix in PIPELINES:
            given = {"--events": events, "--time": time, "--type": type, "--end": end, "--table": table}
            page = report_on_pipeline(file, [name for name, value in given.items() if value], wanted, keys, as_json)
        else:
            program = read_program(file)
            page = report_on_files(program, events or (), time, type, end, table or (), wanted, keys)
        write_report(page, output, as_json)


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
    format: Annotated[ProblemFormat, typer.Option(help="json: all that is found as one object")] = ProblemFormat.TEXT,
) -> None:
    """A first result: patterns, a rule and constraints over a drawn week of orders, as a stream on Spark.

    The alerts are shown as tables and, with the events behind them, in a page: demo.html, here or in FOLDER.
    """
    from ensue.apps.cli.terminal import reported

    if events is not None:
        from ensue.apps.cli.orders import write_orders

        with reported():
            write_orders(orders, seed, events)
        return
    from ensue.apps.cli.demo import run_demo

    with reported():
        run_demo(orders, seed, save, on is Runtime.SPARK, format is ProblemFormat.JSON)


@app.command(
    epilog="Examples: `ensue bench`; of your own: "
    "`ensue bench fraud.ensue --events transfers.parquet --time at --type kind --on spark`"
)
def bench(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="an .ensue file of your own", show_default=False)
    ] = None,
    events: Annotated[
        list[str] | None, typer.Option(metavar="DATA", help="events of your own, as for detect", show_default=False)
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="the time of an event", show_default=False)] = None,
    type: TypeColumn = None,
    end: EndColumn = None,
    size: Annotated[int, typer.Option(min=1000, help="events to draw, where none are given")] = 2_000_000,
    runs: Annotated[int, typer.Option(min=1, help="runs of each pattern; the best one counts")] = 3,
    on: Annotated[Runtime, typer.Option(help="spark: a batch on local Spark; needs Java")] = Runtime.PROCESS,
    format: Annotated[BenchFormat, typer.Option(help="json: a list of figures on stdout")] = BenchFormat.TABLE,
) -> None:
    """Measure how many events a second this machine looks at, for drawn events or a program and events of your own."""
    from ensue.apps.cli.bench import drawn_work, measure, own_work, show_speeds
    from ensue.apps.cli.detect import read_program
    from ensue.apps.cli.terminal import UsageError, reported

    with reported():
        if file is None:
            if events or time:
                raise UsageError("no-program", "events are given, but no program", "ensue bench FILE --events DATA ...")
            work = drawn_work(size)
        elif not events or time is None:
            raise UsageError("no-events", "a program is measured on events", "add --events DATA --time COLUMN")
        else:
            work = own_work(read_program(file), events, time, type, end)
        show_speeds(measure(work, on is Runtime.SPARK, runs), format is BenchFormat.JSON)


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
    from ensue.apps.cli.run import read_pipeline_file, run_file, show_plan
    from ensue.apps.cli.terminal import reported

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
    from ensue.apps.pipelines.definition import published_schema

    show(published_schema().rstrip("\n"))


@app.command(epilog="Examples: `ensue errors open-scope`; all codes: `ensue errors`")
def errors(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", help="the code of a message", show_default=False, autocompletion=_complete_code
        ),
    ] = None,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: one object, or a list of all codes, on stdout")
    ] = ProblemFormat.TEXT,
) -> None:
    """Explain an error code with an example and its output, or list all codes.

    Exit code 0: explained; 2: unknown code.
    """
    from ensue.apps.cli.catalogue import run_errors

    raise typer.Exit(run_errors(code, format is ProblemFormat.JSON))


@app.command(epilog="Examples: `ensue fmt *.ensue`; in a build: `ensue fmt --check *.ensue`")
def fmt(
    files: ProgramFiles,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if a file would change")] = False,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: a list of files and whether they change, on stdout")
    ] = ProblemFormat.TEXT,
) -> None:
    """Rewrite programs in the standard form, with their comments.

    A statement with a comment inside stays as it is written: the standard form has no place for it. With a syntax error
    in any file, none is written.
    """
    from ensue.apps.cli.check import run_fmt

    raise typer.Exit(run_fmt(files, check, format is ProblemFormat.JSON))


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
    from ensue.apps.cli.starter import report_project, start_project
    from ensue.apps.cli.terminal import reported

    with reported():
        found = start_project(data, to, time, type, key, force)
    report_project(found, data, to, format is ProblemFormat.JSON)
