"""Raw text logs as tables: recognised formats, and regular expressions with named groups."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ensue.apps.cli.input_files import InputFile
from ensue.apps.cli.terminal import UsageError, counted, messages

LINE = "line_number"
"""The column with the number of the row in its file. It orders events at the same time."""

_PROGRAM = r"(?P<program>[^\s:\[]+)(?:\[(?P<pid>[0-9]+)\])?:? (?P<message>.*)"
_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE"
_ISO = r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(?:,[0-9]{3})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format of lines. The groups of the pattern are the columns."""

    name: str
    pattern: str


FORMATS = (
    LogFormat(
        "Apache or nginx access log",
        r'^(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>[A-Z]+) (?P<path>\S+)[^"]*" '
        r'(?P<status>[0-9]{3}) (?P<bytes>[0-9]+|-)(?: "(?P<referrer>[^"]*)" "(?P<agent>[^"]*)")?',
    ),
    LogFormat(
        "Apache error log",
        r"^\[\w{3} (?P<time>\w{3} [0-9]+ [0-9:.]+ [0-9]{4})\] \[(?:\w*:)?(?P<level>\w+)\] "
        r"(?:\[pid (?P<pid>[0-9]+)[^\]]*\] )?(?:\[client (?P<client>[^\]]+)\] )?(?P<message>.*)",
    ),
    LogFormat(
        "nginx error log",
        r"^(?P<time>[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:]{8}) \[(?P<level>\w+)\] (?P<pid>[0-9]+)#[0-9]+: "
        r"(?:\*(?P<connection>[0-9]+) )?(?P<message>.*)",
    ),
    LogFormat("syslog", rf"^(?:<[0-9]+>)?(?P<time>\w{{3}} +[0-9]+ [0-9:]{{8}}) (?P<host>\S+) +(?:-- )?{_PROGRAM}"),
    LogFormat("time, level and message", rf"^\[?{_ISO}\]?[ ,|]+\[?(?P<level>{_LEVELS})\]?[ :|]+(?P<message>.*)"),
    LogFormat("syslog with ISO 8601 times", rf"^(?:<[0-9]+>[0-9]* ?)?{_ISO} (?P<host>\S+) {_PROGRAM}"),
)
"""The formats that are recognised without --parse, most specific first."""

_GROUP = re.compile(r"\(\?P?<(\w+)>")


def groups_of(pattern: str) -> list[str]:
    """Returns the names of the groups.

    >>> groups_of(r"(?P<ip>\\S+) (?<user>\\w+)")
    ['ip', 'user']
    """
    return _GROUP.findall(pattern)


def one_group(pattern: str, name: str) -> str:
    """Returns the pattern with this group as its only capturing group, for `regexp_extract(text, pattern, 1)`.

    >>> one_group(r"(?P<ip>\\S+) (?P<user>\\w+)", "user")
    '(?:\\\\S+) (\\\\w+)'
    """
    return _GROUP.sub(lambda found: "(" if found[1] == name else "(?:", pattern)


def read_lines(given: InputFile) -> pa.Array:
    """Reads the lines of a text file, compressed or not. Bytes that are not UTF-8 are replaced."""
    with given.open() as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    return pa.array(re.split(r"\r\n|\n|\r", text.rstrip("\r\n")) if text else [], pa.string())


def format_of_lines(lines: pa.Array) -> LogFormat | None:
    """Returns the format that most of the first lines have; None if there is none."""
    head = lines.slice(0, 1000)
    written = head.filter(pc.not_equal(pc.utf8_trim_whitespace(head), ""))
    for known in FORMATS:
        fitting = pc.sum(pc.match_substring_regex(written, known.pattern)).as_py() or 0
        if 2 * fitting > len(written):
            return known
    return None


def unknown_format(name: str) -> UsageError:
    """Returns the error for lines without a known format. `name` is that of the file."""
    return UsageError(
        "unknown-log",
        f"the lines of `{name}` have no known format; recognised: {', '.join(known.name for known in FORMATS)}",
        r"name the columns with --parse, for example --parse '^(?P<time>\S+ \S+) (?P<level>\w+) (?P<message>.*)'",
    )


def checked_pattern(pattern: str) -> str:
    """Returns the pattern as RE2 reads it. Raises an error if it is none, or has no names."""
    text = _GROUP.sub(r"(?P<\1>", pattern)
    names = groups_of(text)
    if not names:
        example = r"use names for the columns, for example '^(?P<time>\S+ \S+) (?P<message>.*)'"
        raise UsageError("parse-groups", f"--parse has no named groups: {pattern}", example)
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UsageError("parse-groups", f"--parse has two groups `{repeated[0]}`", "give each group its own name")
    try:
        pc.match_substring_regex(pa.scalar(""), pattern=text)
    except pa.ArrowInvalid as error:
        said = str(error).partition(": ")[2]
        raise UsageError(
            "parse-regex",
            f"--parse cannot be read: {said}",
            "use the syntax of RE2: https://github.com/google/re2/wiki/Syntax",
        ) from None
    return text


def read_log(given: InputFile, parse: str | None) -> tuple[pa.Table, LogFormat]:
    """Reads a text file as a table with a column for each named group, and `line_number`.

    An empty group is null. Lines without a match are ignored, and counted in a message.
    """
    lines = read_lines(given)
    known = LogFormat("--parse", checked_pattern(parse)) if parse is not None else format_of_lines(lines)
    if known is None:
        raise unknown_format(given.name)
    # Only named groups: Arrow does not accept others.
    pattern = _named_only(known.pattern)
    found = pc.extract_regex(lines, pattern=pattern)
    matched = found.is_valid()
    columns = {}
    for place, name in enumerate(groups_of(pattern)):
        values = pc.struct_field(found, [place]).filter(matched)
        columns[name] = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    numbers = pa.array(range(1, len(lines) + 1), pa.int64()).filter(matched)
    if LINE not in columns:
        columns[LINE] = numbers
    written = pc.not_equal(pc.utf8_trim_whitespace(lines), "")
    ignored = lines.filter(pc.and_(pc.invert(matched), written))
    if len(ignored):
        first = lines.index(ignored[0]).as_py() + 1
        form = "--parse" if parse is not None else f"the format ({known.name})"
        many = counted(len(ignored), "line")
        messages(f"warning: {many} of `{given.name}` ignored: {form} does not match, first line {first}")
    return pa.table(columns), known


def _named_only(pattern: str) -> str:
    """Returns the pattern with plain groups as groups that capture nothing."""
    return re.sub(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\((?!\?)", lambda found: found[1] or "(?:", pattern)
