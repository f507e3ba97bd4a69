"""Program files: reading, checking, explaining, choosing a pattern."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ensue.algebra.contexts import resolve_contexts
from ensue.algebra.nodes import Statements
from ensue.algebra.rulesets import heads_below, resolve_rules
from ensue.algebra.settling import with_keys
from ensue.algebra.streams import program_catalog, streams_below
from ensue.api import Program, parse
from ensue.cli.reporting import UsageError, existing_file
from ensue.errors import Problem, QueryError, Source, did_you_mean, render_problem
from ensue.plan.build import plan_query
from ensue.plan.lawful import laws_by_query


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and the text it stands in."""

    problem: Problem
    source: Source

    @property
    def rendered(self) -> str:
        return render_problem(self.problem, self.source)

    @property
    def fields(self) -> dict[str, str | int | None]:
        """What a program reads of it; `line` and `column` count from 1."""
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


def read_program(path: Path) -> Program:
    """The program in a file; problems cite the path as it was given."""
    return parse(read_text(path), str(path))


def check_files(paths: Sequence[Path]) -> list[Finding]:
    """Every problem of every file, as far as it can be seen without data."""
    return [finding for path in paths for finding in _check_text(read_text(path), str(path))]


def problems_as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([finding.fields for finding in findings], indent=2, ensure_ascii=False)


def explain_program(program: Program, pattern: str | None, time: str) -> str:
    """What each pattern, or the one asked for, means and how it will run; `time` names the time column."""
    return choose_pattern(program, pattern).explain(time=time)


def name_patterns(program: Program) -> Program:
    """The program with its names written into it, so that messages call a pattern as results do."""
    names = iter(program.names)
    named = (node if node.declares else replace(node, name=next(names)) for node in program.statements.statements)
    return Program(replace(program.statements, statements=tuple(named)))


def choose_pattern(program: Program, pattern: str | None) -> Program:
    """The program with only the pattern asked for, and the streams it stands on."""
    if pattern is None:
        return program
    if pattern not in program.names:
        raise UsageError(
            "no-such-pattern",
            f"the program has no pattern `{pattern}`; patterns: {', '.join(program.names)}",
            did_you_mean(pattern, program.names),
        )
    if pattern in program.statements.heads:
        return _only_head(program, pattern)
    node = program.statements.results[program.names.index(pattern)]
    below = streams_below(node, program.statements.statements)
    return Program(replace(program.statements, statements=(*below, replace(node, name=pattern))))


def _only_head(program: Program, head: str) -> Program:
    """The program without patterns, and only with the rules for a head and for those that it stands on."""
    statements = program.statements
    assert statements.ruleset is not None
    needed = heads_below(head, statements.ruleset)
    rules = tuple(rule for rule in statements.ruleset.rules if rule.head in needed)
    return Program(
        replace(statements, statements=statements.declared, ruleset=replace(statements.ruleset, rules=rules))
    )


def _check_text(text: str, name: str) -> list[Finding]:
    source = Source(text, name)
    try:
        program = parse(text, name)
    except QueryError as error:
        return [Finding(problem, error.source or source) for problem in error.problems]
    try:
        laws = laws_by_query(program.statements)
    except QueryError as error:
        return [Finding(problem, source) for problem in error.problems]
    findings = []
    everything = with_keys(resolve_rules(program.statements).statements)
    for node in everything:
        law = laws.get(node)
        try:
            stages = resolve_contexts(Statements((node,), source)).statements
            for stage in stages:
                own = law if len(stages) == 1 else None
                catalog = program_catalog(stage, (*everything, *stages), other_windows=own.windows if own else ())
                plan_query(stage, catalog, source, own)
        except QueryError as error:
            findings += [Finding(problem, source) for problem in error.problems]
    return findings


def read_text(path: Path) -> str:
    """The text of a file that the user has named."""
    try:
        return existing_file(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            "not-text", f"`{path}` is not UTF-8 text: byte {error.start}", "is it an .ensue file?"
        ) from error
    except OSError as error:
        raise UsageError("unreadable-file", f"`{path}` cannot be read: {error.strerror}") from error
