"""The commands, their options and their help. Commands import modules only when they run, so that `--help` is fast."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ensue.apps.cli.input_files import STDIN, check_stdin, input_name
from ensue.apps.cli.quick import show_version
from ensue.apps.cli.terminal import UsageError, reported, show


class _Commands(TyperGroup):
    """The group of all commands. It does not fail when a reader such as `head` closes the pipe."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)
        except SystemExit as left:
            # Typer exits from within its handling of the broken pipe.
            if isinstance(left.__context__, BrokenPipeError):
                raise SystemExit(0) from None
            raise


RENAMED = {
    "why-not": {"--data": "--events", "--name": "--pattern"},
    "demo": {"--events": "--output", "--save": "--to"},
}
"""Former names of options, by command."""


class _RenamedOptions(TyperCommand):
    """A command that knows the former names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            name = word.partition("=")[0]
            new = RENAMED[ctx.info_name or ""].get(name)
            if new is not None and not ctx.resilient_parsing:
                with reported():
                    raise UsageError("renamed-option", f"unknown option `{name}`; it is now called `{new}`")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="ensue",
    cls=_Commands,
    help="Complex event processing: find patterns of events, and of absent events, in time-ordered data.",
    epilog="Start with `ensue demo`. `ensue explain FILE` shows what a pattern means and how it runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: rich would take most of the time of `--help`
)


def _complete_pattern(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Completes the names of the patterns in the program."""
    from ensue.apps.cli.program_files import read_program
    from ensue.errors import EnsueError

    # While an option has no value yet, the arguments before it are not parsed.
    file = context.params.get("file") or next(iter(context.args), None)
    if file is None or file == STDIN:
        return
    try:
        program = read_program(Path(file))
    except EnsueError:
        return
    yield from (name for name in program.names if name.startswith(incomplete))


def _complete_code(incomplete: str) -> Iterator[str]:
    from ensue.apps.cli.catalogue import read_catalogue

    yield from (code for code in read_catalogue() if code.startswith(incomplete))


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
ProgramFile = Annotated[Path, typer.Argument(metavar="FILE", help="an .ensue file; - is stdin", show_default=False)]


def _option(metavar: str, help: str, *names: str) -> Any:
    """An option without a default value to show."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


# The options that several commands have. A meaning has one name on all of them: tests/test_options.py.
_EVENTS = _option(
    "DATA",
    "a .parquet, .csv, .csv.gz, .json, .jsonl or .log file, a folder of such files, - for stdin, or STREAM=DATA",
)
EventFiles = Annotated[list[str], _EVENTS]
EventFilesIfAny = Annotated[list[str] | None, _EVENTS]
_TIME = _option("COLUMN", "time of an event")
TimeColumn = Annotated[str, _TIME]
TimeColumnIfAny = Annotated[str | None, _TIME]
TypeColumn = Annotated[str | None, _option("COLUMN", "stream of an event")]
EndColumn = Annotated[str | None, _option("COLUMN", "end of an event, for events with a duration")]
OrderColumn = Annotated[
    list[str] | None, _option("COLUMN", "order of events at the same time; repeat it for several columns")
]
ParsePattern = Annotated[
    str | None,
    _option("REGEX", "columns of a text file, as named groups; syslog, Apache and nginx logs need none"),
]
TableFiles = Annotated[list[str] | None, _option("NAME=DATA", "rows of a TABLE of the program")]
PatternName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="only this pattern or rule", show_default=False, autocompletion=_complete_pattern
    ),
]
RowsShown = Annotated[
    int | None,
    typer.Option(min=0, help="rows to write per pattern; default: 20 for a table, otherwise all", show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        raise typer.Exit(show_version())


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Complex event processing: find patterns of events, and of absent events, in time-ordered data."""


@app.command(epilog="Example: `ensue check *.ensue`")
def check(
    files: ProgramFiles,
    format: Annotated[ProblemFormat, typer.Option(help="json: a list of problems on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Check programs without data.

    It checks syntax, names and scopes, and finds contradictory time conditions. All problems of a file are reported
    together, but only the first syntax error. Field names require data: `detect` checks them. Exit code 0: no
    problems; 1: problems found; 2: a file cannot be read.
    """
    from ensue.apps.cli.check import run_check

    raise typer.Exit(run_check(files, format is ProblemFormat.JSON))


@app.command(epilog="Example: `ensue explain fraud.ensue --pattern big_transfer`")
def explain(
    file: ProgramFile,
    pattern: PatternName = None,
    time: Annotated[str, typer.Option(metavar="COLUMN", help="time of an event in the pattern")] = "t",
    end: EndColumn = None,
    format: Annotated[ProblemFormat, typer.Option(help="json: one object on stdout")] = ProblemFormat.TEXT,
    stages: Annotated[
        bool, typer.Option("--stages", help="show the program after each rewrite step instead of the plan")
    ] = False,
) -> None:
    """Show what each pattern means and how it runs.

    It prints the graph, the plan, and the state that a stream keeps.
    """
    from ensue.apps.cli.program_files import explain_program, read_program

    with reported():
        show(explain_program(read_program(file), pattern, time, end, format is ProblemFormat.JSON, stages))


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
    order: OrderColumn = None,
    parse: ParsePattern = None,
    table: TableFiles = None,
    pattern: PatternName = None,
    format: Annotated[TableFormat, typer.Option(help="output format of the matches")] = TableFormat.TABLE,
    rows: RowsShown = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="fail if a pattern has more matches than this; default: 10,000,000", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="only matches that complete after this time (ISO 8601 or integer)",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="only matches that complete at or before this time", show_default=False),
    ] = None,
    probability: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="probability of an event", show_default=False)
    ] = None,
    alternatives: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="alternatives: at most one of the events with the same value happened",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the matches of a program in files of events.

    Matches are written to stdout, everything else to stderr.
    """
    from ensue.apps.cli.detect import detect_in_files, write_matches
    from ensue.apps.cli.program_files import choose_pattern, read_program

    with reported():
        check_stdin(file, *events, *(table or ()))
        program = choose_pattern(read_program(file), pattern)
        uncertain = (probability, alternatives)
        found = detect_in_files(
            program, events, time, type, end, order, limit, table or (), since, until, *uncertain, parse
        )
        wanted = {name: table for name, table in found.items() if pattern in (None, name)}
        write_matches(wanted, format.value, rows)


@app.command(
    epilog="Example: `ensue violations orders.ensue --events orders.parquet --time t --type type`; "
    "constraints without PARTITION BY require a key: `--key order_id`"
)
def violations(
    file: ProgramFile,
    events: EventFiles,
    time: TimeColumn,
    type: TypeColumn = None,
    parse: ParsePattern = None,
    key: Annotated[list[str] | None, _option("COLUMN", "key of a trace, for constraints without PARTITION BY")] = None,
    format: Annotated[TableFormat, typer.Option(help="output format of the violations")] = TableFormat.TABLE,
    rows: RowsShown = None,
) -> None:
    """Show the traces that break a CONSTRAINT of a program.

    It prints which constraint was broken, by which event, and when. The exit code is 0 whether or not a constraint
    is broken. Scripts can use `--format json`.
    """
    from ensue.apps.cli.detect import violations_in_files, write_matches
    from ensue.apps.cli.program_files import read_program

    with reported():
        check_stdin(file, *events)
        found = violations_in_files(read_program(file), events, time, type, key or (), parse)
        write_matches({"violations": found}, format.value, rows, ("violation", "violations"))


@app.command(
    "why-not",
    cls=_RenamedOptions,
    epilog="Example: `ensue why-not fraud.ensue --events transfers.csv --time at --type kind --pattern big_transfer`",
)
def why_not(
    file: ProgramFile,
    events: EventFiles,
    time: TimeColumn,
    type: TypeColumn = None,
    end: EndColumn = None,
    order: OrderColumn = None,
    parse: ParsePattern = None,
    table: TableFiles = None,
    pattern: PatternName = None,
    examples: Annotated[int, typer.Option(min=0, help="near misses to show for each requirement")] = 3,
    format: Annotated[ProblemFormat, typer.Option(help="json: one object on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Explain why a pattern does not match.

    It prints how far events got, what stopped them, and the nearest misses. A program with several patterns requires
    --pattern, which can also be a declared stream.
    """
    from ensue.apps.cli.detect import why_not_in_files
    from ensue.apps.cli.program_files import read_program

    with reported():
        check_stdin(file, *events, *(table or ()))
        program = read_program(file)
        as_json = format is ProblemFormat.JSON
        show(why_not_in_files(program, events, time, type, end, order, table or (), pattern, examples, as_json, parse))


@app.command(
    epilog="Example: `ensue report fraud.ensue --events transfers.csv --time at --type kind --output fraud.html`"
)
def report(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="an .ensue file, - for one on stdin, or a pipeline file (YAML)", show_default=False
        ),
    ],
    events: EventFilesIfAny = None,
    time: TimeColumnIfAny = None,
    type: TypeColumn = None,
    end: EndColumn = None,
    order: OrderColumn = None,
    parse: ParsePattern = None,
    table: TableFiles = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="file to write; - is stdout")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="title of the page; default: the name of the file", show_default=False)
    ] = None,
    keys: Annotated[int, typer.Option(min=1, help="number of keys to show; keys with matches come first")] = 200,
    format: Annotated[ProblemFormat, typer.Option(help="json: a summary on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Write the results of a program as one HTML page.

    The page has timelines, matches with their proofs, patterns and plans.

    A pipeline file names its own events. They are read once on Spark, streams from their start, and nothing is
    written to the outputs of the pipeline.
    """
    from ensue.apps.cli.detect import PIPELINES, report_on_files, report_on_pipeline, write_report
    from ensue.apps.cli.program_files import read_program

    as_json, wanted = format is ProblemFormat.JSON, title or Path(input_name(file)).stem
    with reported():
        if as_json and str(output) == STDIN:
            said = "`--output -` and `--format json` both write to stdout"
            raise UsageError("stdout-twice", said, "write the page to a file")
        check_stdin(file, *(events or ()), *(table or ()))
        if file.suffix in PIPELINES:
            given = {"--events": events, "--time": time, "--type": type, "--end": end, "--order": order}
            given |= {"--table": table, "--parse": parse}
            page = report_on_pipeline(file, [name for name, value in given.items() if value], wanted, keys, as_json)
        else:
            program = read_program(file)
            page = report_on_files(program, events or (), time, type, end, order, table or (), wanted, keys, parse)
        write_report(page, output, as_json)


@app.command(cls=_RenamedOptions, epilog="Example: `ensue demo --orders 100000 --to .`")
def demo(
    orders: Annotated[int, typer.Option(min=1, help="number of orders to generate")] = 5_000,
    seed: Annotated[int, typer.Option(help="random seed; the same seed generates the same orders")] = 7,
    to: Annotated[
        Path | None, _option("FOLDER", "folder to write to: demo.ensue, orders.parquet and demo.html")
    ] = None,
    on: Annotated[
        Runtime, typer.Option(help="spark: a stream on local Spark, requires Java; process: without Spark")
    ] = Runtime.SPARK,
    output: Annotated[
        Path | None,
        _option("FILE", "file to write: only the generated events, as .parquet or .csv; - is stdout, as CSV"),
    ] = None,
    format: Annotated[ProblemFormat, typer.Option(help="json: one object with all results")] = ProblemFormat.TEXT,
) -> None:
    """Stream a generated week of orders through Spark.

    The program has patterns, a rule and constraints. The alerts are printed as tables and written to a page,
    demo.html, in the current folder or in FOLDER.
    """
    if output is not None:
        from ensue.apps.cli.orders import write_orders

        with reported():
            write_orders(orders, seed, output)
        return
    from ensue.apps.cli.demo import run_demo

    with reported():
        run_demo(orders, seed, to, on is Runtime.SPARK, format is ProblemFormat.JSON)


@app.command(
    epilog="Examples: `ensue bench`; with your own events: `ensue bench --events transfers.parquet`; "
    "with your own program: `ensue bench fraud.ensue --events transfers.parquet --time at --type kind --on spark`"
)
def bench(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="your own .ensue file; - is stdin", show_default=False)
    ] = None,
    events: EventFilesIfAny = None,
    time: TimeColumnIfAny = None,
    type: TypeColumn = None,
    end: EndColumn = None,
    order: OrderColumn = None,
    parse: ParsePattern = None,
    size: Annotated[
        int, typer.Option(min=1000, help="number of events to generate if there is no --events")
    ] = 2_000_000,
    runs: Annotated[int, typer.Option(min=1, help="runs of each pattern; the best one counts")] = 3,
    on: Annotated[Runtime, typer.Option(help="spark: a batch on local Spark, requires Java")] = Runtime.PROCESS,
    format: Annotated[BenchFormat, typer.Option(help="json: a list of figures on stdout")] = BenchFormat.TABLE,
) -> None:
    """Measure how many events this machine processes per second.

    It uses generated events or your own. With events but no program, it measures the patterns that `ensue init`
    proposes for the file.
    """
    from ensue.apps.cli.bench import drawn_work, measure, own_work, proposed_work, show_speeds
    from ensue.apps.cli.program_files import read_program

    with reported():
        if file is None:
            if events is None:
                work = drawn_work(size)
            else:
                work = proposed_work(events, time, type, {"--end": end, "--order": order}, parse)
        elif not events or time is None:
            raise UsageError("no-events", "a program requires events", "add --events DATA --time COLUMN")
        else:
            check_stdin(file, *events)
            work = own_work(read_program(file), events, time, type, end, order, parse)
        show_speeds(measure(work, on is Runtime.SPARK, runs), format is BenchFormat.JSON)


@app.command(epilog="Example: `ensue run pipeline.yaml --dry-run`, then `ensue run pipeline.yaml`")
def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="a pipeline file (YAML); - is stdin", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would run, without starting Spark")] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="resume from the checkpoint even if the program has changed")
    ] = False,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: problems, the plan and console rows as JSON on stdout")
    ] = ProblemFormat.TEXT,
    verbose: Annotated[bool, typer.Option("--verbose", help="show Spark's log and traces of errors on stderr")] = False,
) -> None:
    """Run a pipeline file on Spark.

    A pipeline has sources, a program, and outputs for its results. The file and the columns that it uses are checked
    before Spark starts, and all problems are reported together. Ctrl-C and SIGTERM stop a run cleanly, and the next
    run of a stream resumes it. Exit code
    0: the pipeline finished; 1: it failed or the file has problems; 2: the file cannot be read; 130: stopped by
    Ctrl-C; 143: stopped by SIGTERM.
    """
    from ensue.apps.cli.run import read_pipeline_file, run_file, show_plan

    as_json = format is ProblemFormat.JSON
    with reported():
        pipeline = read_pipeline_file(file, as_json)
        if dry_run:
            show_plan(pipeline, as_json)
            return
        code = run_file(pipeline, as_json, upgrade, verbose)
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
    """Explain an error code with an example, or list all codes.

    Exit code 0: explained; 2: unknown code.
    """
    from ensue.apps.cli.catalogue import run_errors

    raise typer.Exit(run_errors(code, format is ProblemFormat.JSON))


@app.command(epilog="Examples: `ensue fmt *.ensue`; in a build: `ensue fmt --check *.ensue`")
def fmt(
    files: ProgramFiles,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if a file would change")] = False,
    format: Annotated[
        ProblemFormat, typer.Option(help="json: a list of files and whether each changes, on stdout")
    ] = ProblemFormat.TEXT,
) -> None:
    """Format programs in the standard form and keep their comments.

    A statement with a comment inside is not changed, because the standard form has no place for the comment. If a file
    has a syntax error, no file is written.
    """
    from ensue.apps.cli.check import run_fmt

    raise typer.Exit(run_fmt(files, check, format is ProblemFormat.JSON))


@app.command(
    epilog="Examples: `ensue init --events events.parquet --to first`, then the commands that it prints; a text log: "
    "`ensue init --events app.log --parse '^(?P<time>\\S+ \\S+) (?P<level>\\w+) (?P<message>.*)' --to first`"
)
def init(
    events: Annotated[
        Path,
        _option("DATA", "a .parquet, .csv, .csv.gz, .json, .jsonl or .log file, or a folder", "--events", "--data"),
    ],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="folder to write to")] = Path(),
    time: TimeColumnIfAny = None,
    type: TypeColumn = None,
    key: Annotated[str | None, _option("COLUMN", "key that groups events, such as an order or a user")] = None,
    parse: ParsePattern = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite existing files")] = False,
    format: Annotated[ProblemFormat, typer.Option(help="json: the proposal on stdout")] = ProblemFormat.TEXT,
) -> None:
    """Write a starter project for a table or a text log.

    The project has a program, a pipeline and a README. The command inspects the columns and rows, proposes the time,
    type, key and order columns, tries patterns on the rows, and keeps patterns that find a moderate number of matches.
    """
    from ensue.apps.cli.starter import report_project, start_project

    with reported():
        starter = start_project(events, to, time, type, key, force, parse)
    report_project(starter, format is ProblemFormat.JSON)
