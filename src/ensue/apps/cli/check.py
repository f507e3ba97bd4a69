"""`ensue check` and `ensue fmt`: check and format program files. They do not import the engine, so they start fast."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ensue.apps.cli.input_files import STDIN, input_name, read_input
from ensue.apps.cli.terminal import UsageError, counted, messages, reported, show
from ensue.check.gate import checked
from ensue.errors import Problem, QueryError, Source, render_problem
from ensue.lower.contexts import resolve_contexts
from ensue.lower.phases import rules_lowered
from ensue.lower.rulesets import with_keys
from ensue.lower.spans import with_spans
from ensue.nodes.patterns import Statements
from ensue.plan.lawfulness import laws_by_query
from ensue.plan.planner import plan_without_data
from ensue.text.formatter import format_text
from ensue.text.parser import parse_statements


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its source text."""

    problem: Problem
    source: Source

    @property
    def rendered(self) -> str:
        return render_problem(self.problem, self.source)

    @property
    def fields(self) -> dict[str, str | int | None]:
        """The problem as JSON fields. `line` and `column` count from 1."""
        span = self.problem.span
        line, column = self.source.position(span.start) if span is not None else (None, None)
        return {
            "code": self.problem.code,
            "message": self.problem.message,
            "file": self.source.name,
            "line": line,
            "column": column,
            "label": self.problem.label,
            "hint": self.problem.hint,
        }


def run_check(paths: Sequence[str], as_json: bool) -> int:
    """Reports the problems of the files. Returns the exit code: 1 if there are problems, otherwise 0."""
    with reported():
        found = check_files(paths)
    if as_json:
        show(problems_as_json(found))
    else:
        # In one write, so that the exit code is that of the check even if the reader closes the pipe early.
        summary = f"{counted(len(paths), 'file')} checked, {counted(len(found), 'problem')}"
        messages("".join(f"{item.rendered}\n\n" for item in found) + summary)
    return 1 if found else 0


def check_files(paths: Sequence[str]) -> list[Finding]:
    """Returns all problems of all files that can be found without data. `-` is stdin."""
    return [finding for path in paths for finding in _check_text(read_input(path), input_name(path))]


def problems_as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([finding.fields for finding in findings], indent=2, ensure_ascii=False)


def _check_text(text: str, name: str) -> list[Finding]:
    source = Source(text, name)
    try:
        statements = checked(parse_statements(text, name))
    except QueryError as error:
        return [Finding(problem, error.source or source) for problem in error.problems]
    try:
        laws = laws_by_query(statements)
    except QueryError as error:
        return [Finding(problem, source) for problem in error.problems]
    findings = []
    everything = with_keys(rules_lowered(statements).statements)
    for node in everything:
        law = laws.get(node)
        try:
            stages = resolve_contexts(Statements((with_spans(node),), source)).statements
            for stage in stages:
                own = law if len(stages) == 1 else None
                plan_without_data(stage, (*everything, *stages), source=source, law=own)
        except QueryError as error:
            findings += [Finding(problem, source) for problem in error.problems]
    return findings


# --- `ensue fmt`


@dataclass(frozen=True, slots=True)
class FormattedFile:
    """The text of a file, and the same text in the standard form."""

    path: str
    text: str
    standard: str

    @property
    def changed(self) -> bool:
        return self.text != self.standard


def run_fmt(paths: Sequence[str], only_check: bool, as_json: bool) -> int:
    """Formats files in place, and stdin to stdout. With `only_check`, returns exit code 1 if a file would change."""
    with reported():
        found = formatted_files(paths)
        if not only_check:
            write_changed(found)
    changed = [file for file in found if file.changed]
    if as_json:
        show(json.dumps([{"file": input_name(file.path), "changed": file.changed} for file in found], indent=2))
    else:
        verb = "would change" if only_check else "changed"
        lines = "".join(f"{verb}: {input_name(file.path)}\n" for file in changed)
        messages(f"{lines}{counted(len(found), 'file')} checked")
    return 1 if only_check and changed else 0


def formatted_files(paths: Sequence[str]) -> list[FormattedFile]:
    """Returns all files in the standard form. Raises an error if a file has a syntax error."""
    texts = [(path, read_input(path)) for path in paths]
    return [FormattedFile(path, text, format_text(text, input_name(path))) for path, text in texts]


def write_changed(files: Sequence[FormattedFile]) -> None:
    """Writes the changed files, and the text from stdin to stdout."""
    for file in files:
        if file.path == STDIN:
            sys.stdout.write(file.standard)
            sys.stdout.flush()
        elif file.changed:
            try:
                Path(file.path).write_text(file.standard, encoding="utf-8")
            except OSError as error:
                raise UsageError("unwritable-file", f"cannot write `{file.path}`: {error.strerror}") from error
