"""`ensue.why_not`: count how many choices of events meet each requirement of a pattern, and find near misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import pyarrow as pa

from ensue.api import LoadedProgram
from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.engine.goals import Choices, Search
from ensue.engine.trace_rows import KEY
from ensue.errors import LimitError, citing
from ensue.explanation.near_misses import Example, Examples, length_in_words, moment_in_words
from ensue.explanation.question import (
    ChosenStatement,
    QuestionEvents,
    chosen_statements,
    load_for,
    plain,
    question_events,
    tables_of,
)
from ensue.graph.graphs import Variable
from ensue.nodes.names import Name, in_words, written
from ensue.nodes.patterns import Events
from ensue.plan.program_plans import ColumnNames, OrderColumns
from ensue.plan.requirements import ORDER, PREDICATE, RELATION, WINDOW, Question, Requirement, question_of, what_chooses
from ensue.programs import QueryLike

MOST_CHOICES = 1_000_000
"""The default maximum of choices of events that are counted for one requirement."""

STREAM, TIE = "stream", "tie"

ADVICE = "use `order=` or ALLOWING TIES"


@dataclass(frozen=True, slots=True)
class RequirementCount:
    """One requirement: how many were tested, how many failed it, and how many failed nothing else.

    Streams and predicates test events; all other requirements test choices of events that met the requirements before.
    `near_misses` counts the choices that are not a match only because of this requirement; None if that is unknown.

    A tie is the part of an order that fails only because events are at the same time: `tried` choices failed nothing
    but this order, and `failed` of them are a tie. Or it is about a NOT: of `tried` matches, `failed` have a forbidden
    event at the very time of its neighbour; these are no near misses.
    """

    kind: str
    what: str
    tried: int
    failed: int
    near_misses: int | None
    cut: bool
    closest: str
    distance: float | None
    examples: tuple[Example, ...]

    @property
    def in_words(self) -> str:
        """The near misses in one line: `WITHIN 10 minutes failed 3 times, closest 10 min 4 s`."""
        if self.kind == TIE:
            return f"{self.tie_words}; {ADVICE}"
        times = self._times(self.near_misses or 0)
        return f"{self.what} failed {times}" + (f", closest {self.closest}" if self.closest else "")

    @property
    def tie_words(self) -> str:
        """What is at the same time, and how often."""
        if self.near_misses is None:
            verb = "has" if self.failed == 1 else "have"
            return f"{self.failed:,} of {_times(self.tried)} {verb} a {self.what}"
        moment = f" ({self.closest})" if self.closest else ""
        return f"{self.what} {self._times(self.failed)}{moment}, but SEQ requires it strictly later"

    def _times(self, number: int) -> str:
        least = "at least " if self.cut else ""
        return "once" if number == 1 else f"{least}{number:,} times"


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a pattern has no match, or no more: `verdict` is one line, `table` and `to_text()` have the details."""

    name: str
    matches: int
    verdict: str
    steps: tuple[RequirementCount, ...]
    time_type: pa.DataType

    @property
    def blamed(self) -> RequirementCount | None:
        """The requirement with the most near misses, or None; the key only if no other requirement has near misses."""
        return _blamed(self.steps)

    @property
    def table(self) -> pa.Table:
        """One row for each requirement."""
        rows = [
            {
                "step": number,
                "kind": step.kind,
                "what": step.what,
                "tried": step.tried,
                "failed": step.failed,
                "near_misses": step.near_misses,
                "cut": step.cut,
                "closest": step.closest or None,
                "distance": step.distance,
                "examples": [example.as_row() for example in step.examples],
            }
            for number, step in enumerate(self.steps, start=1)
        ]
        return pa.Table.from_pylist(rows, schema=_schema(self.time_type))

    def to_text(self) -> str:
        """Return the full answer as readable text."""
        lines = [f"{self.name}: {self.verdict}", "", "what is left after each requirement"]
        lines += [f"  {line}" for line in _funnel(self.steps)]
        near = [step for step in self.steps if step.near_misses and step.kind != TIE]
        if near:
            lines += ["", "near misses: only this requirement failed"]
            for step in near:
                lines.append(f"  {step.in_words}")
                lines += [f"    {example.in_words}" for example in step.examples]
        ties = [step for step in self.steps if step.kind == TIE]
        if ties:
            lines += ["", f"events at the same time, which nothing orders: {ADVICE}"]
            for step in ties:
                lines.append(f"  {step.tie_words}")
                lines += [f"    {example.in_words}" for example in step.examples]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"


@helpful
def why_not(
    events: Any,
    query: QueryLike,
    *,
    time: ColumnNames | None = None,
    type: str | None = None,
    end: ColumnNames | None = None,
    order: OrderColumns | None = None,
    name: str | None = None,
    constraints: ConstraintsLike | None = None,
    tables: Mapping[str, Any] | None = None,
    examples: int = 3,
    most_choices: int = MOST_CHOICES,
    where: Any = None,
) -> WhyNot:
    """Explain why a pattern has no match: how many choices of events meet each requirement, and the nearest misses.

    `events`, `time`, `type`, `end` and `tables` are as in `ensue.detect`; `name` selects a statement of a program.
    `examples` is the number of near misses to show for each requirement, and `most_choices` the number of choices of
    events to count. For a Spark DataFrame, at most `most_choices` rows of the pattern's streams are collected into this
    process; `where`, a Spark condition, selects fewer rows.

    >>> table = pa.table({"t": [1, 15], "type": ["Order", "Paid"], "id": [7, 7]})
    >>> query = "PATTERN SEQ(Order o, Paid p) PARTITION BY id WITHIN 10"
    >>> why_not(table, query, time="t", type="type").verdict
    'no match: WITHIN 10 failed once, closest 14'
    """
    chosen = chosen_statements(query, name, constraints)
    asked = question_events(events, time, type, end, order, where, tables)
    found = [_explained(one, asked, examples, most_choices) for one in chosen]
    return found[0] if len(found) == 1 else _together(found)


def _explained(chosen: ChosenStatement, asked: QuestionEvents, shown: int, limit: int) -> WhyNot:
    loaded, _ = load_for(chosen, plain(chosen.query), asked, limit)
    plan = loaded.planned.plans[0]
    question = replace(question_of(plan.query, plan.source), chosen=what_chooses(chosen.query))
    search = Search(question, plan, loaded.sources, limit)
    with citing(plan.source):
        steps = tuple(_steps(search, loaded, shown))
        if search.matches.cut:
            raise LimitError(
                "too-many-matches",
                f"pattern `{chosen.name}` has more than {limit:,} matches, too many for `why_not`",
                "pass fewer events, or raise `most_choices=`",
            )
    matches = search.matches.count
    kept = matches
    if question.chosen and matches:
        kept = _kept(chosen, asked, limit)
    verdict = _verdict(question, steps, matches, kept)
    return WhyNot(chosen.name, kept, verdict, steps, plan.catalog.time_type)


def _kept(chosen: ChosenStatement, asked: QuestionEvents, limit: int) -> int:
    """Count the matches of the query as written."""
    result = replace(chosen.query, name=None, declares=False)
    _, chunks = load_for(chosen, result, asked, limit)
    return sum(chunk.rows.length for chunk in chunks)


def _together(found: Sequence[WhyNot]) -> WhyNot:
    """Combine the answers for several rules with one head: all requirements, and the verdict that came closest."""
    matches = sum(one.matches for one in found)
    closest = max(found, key=lambda one: (one.blamed is not None, one.blamed.near_misses or 0 if one.blamed else 0))
    steps = tuple(
        replace(step, what=f"rule {number}: {step.what}")
        for number, one in enumerate(found, start=1)
        for step in one.steps
    )
    verdict = _times(matches) if matches else closest.verdict
    return WhyNot(closest.name, matches, verdict, steps, closest.time_type)


def _steps(search: Search, loaded: LoadedProgram, shown: int) -> Iterator[RequirementCount]:
    question = search.question
    variables = _variables(search)
    yield from _streams(search, loaded, variables)
    pictures = Examples(search, tables_of(loaded), shown)
    judged = [requirement for requirement in question.requirements if requirement.kind != PREDICATE]
    for requirement in question.requirements:
        if requirement.kind == PREDICATE:
            tried, failed = _judged_events(search, requirement, variables)
            yield _step(search, pictures, requirement, search.misses(requirement), tried, failed, False)
    before = search.choices(question.without(judged)) if judged else None
    for place, requirement in enumerate(judged):
        assert before is not None
        after = search.choices(question.without(judged[place + 1 :]))
        cut = before.cut or after.cut
        misses, tied = search.misses(requirement), None
        if requirement.kind == ORDER and not requirement.repeated and search.has_ties:
            misses, tied = search.in_time_and_tied(requirement, misses)
        yield _step(search, pictures, requirement, misses, before.count, max(0, before.count - after.count), cut)
        if tied is not None and tied.count:
            yield _tie(search, pictures, requirement, tied, misses.count + tied.count, variables)
        before = after
    for tie, count in search.tied_matches.items():
        what = f"`{tie.one}` at the very time of `{tie.other}`"
        yield RequirementCount(TIE, what, search.matches.count, count, None, False, "", None, ())


def _tie(
    search: Search,
    pictures: Examples,
    requirement: Requirement,
    tied: Choices,
    tried: int,
    variables: Mapping[Name, Variable],
) -> RequirementCount:
    """The near misses of an order whose events are at the same time."""
    first, later = (
        f"`{in_words(variables[names[0]].stream)}`" if len(names) == 1 else ", ".join(map(search.question.word, names))
        for names in (requirement.left, requirement.right)
    )
    nearest = tuple(pictures.nearest(requirement, tied))
    moment = moment_in_words(pictures.end_of(requirement.left, nearest[0]), search.plan.catalog.time_type)
    what = f"{later} at the same time as {first}"
    return RequirementCount(TIE, what, tried, tied.count, tied.count, tied.cut, moment, 0.0, nearest)


def _step(
    search: Search, pictures: Examples, requirement: Requirement, misses: Choices, tried: int, failed: int, cut: bool
) -> RequirementCount:
    nearest = pictures.nearest(requirement, misses)
    distance = nearest[0].distance if nearest else None
    return RequirementCount(
        requirement.kind,
        requirement.text,
        tried,
        failed,
        misses.count,
        cut or misses.cut,
        _closest(search, requirement, nearest),
        distance,
        tuple(nearest),
    )


def _variables(search: Search) -> dict[Name, Variable]:
    """Return the variables that matches bind, each once, whatever its round."""
    graphs = [graph.graph for graph in search.planned(search.question.query).graphs]
    return {written(variable.name): variable for graph in graphs for variable in graph.variables}


def _streams(search: Search, loaded: LoadedProgram, variables: Mapping[Name, Variable]) -> Iterator[RequirementCount]:
    total = sum(source.input.table.num_rows for source in loaded.sources)
    for stream in dict.fromkeys(variable.stream for variable in variables.values()):
        present = search.present(stream)
        yield RequirementCount(STREAM, in_words(stream), total, total - present, None, False, "", None, ())


def _judged_events(search: Search, requirement: Requirement, variables: Mapping[Name, Variable]) -> tuple[int, int]:
    """Count the events of a variable's stream, and how many of them fail its predicates."""
    variable = variables[requirement.left[0]]
    present = search.present(variable.stream)
    return present, present - search.satisfying(variable)


def _closest(search: Search, requirement: Requirement, nearest: Sequence[Example]) -> str:
    """Describe how close the nearest miss was."""
    if not nearest:
        return ""
    first, time_type = nearest[0], search.plan.catalog.time_type
    if requirement.kind == WINDOW and first.distance is not None:
        window = requirement.window
        assert window is not None
        if isinstance(window, Events):
            return f"{window.count + int(first.distance)} EVENTS"
        return length_in_words(search.ticks(window) + int(first.distance), time_type)
    if requirement.kind == ORDER and first.distance is not None:
        return "at the same time" if first.distance == 0 else f"{length_in_words(int(first.distance), time_type)} late"
    if requirement.kind == RELATION and first.distance is not None:
        return f"off by {length_in_words(int(first.distance), time_type)}"
    return first.note if requirement.kind != KEY else first.key_words


def _blamed(steps: Sequence[RequirementCount]) -> RequirementCount | None:
    """Return the requirement with the most near misses; the key last, because other keys nearly always form choices."""
    near = [step for step in steps if step.near_misses]
    return max(near, key=lambda step: (step.kind != KEY, step.near_misses or 0), default=None)


def _funnel(steps: Sequence[RequirementCount]) -> Iterator[Name]:
    for step in steps:
        if step.kind == TIE:
            continue
        what = "events" if step.kind in (STREAM, PREDICATE) else "choices"
        left = step.tried - step.failed
        least = "at least " if step.cut else ""
        label = f"{step.kind} {step.what}" if step.kind in (STREAM, KEY) else step.what
        yield f"{label}: {least}{left:,} of {step.tried:,} {what}"


def _verdict(question: Question, steps: Sequence[RequirementCount], matches: int, kept: int) -> str:
    if matches and kept < matches:
        chose = " and ".join(question.chosen)
        return f"{_times(kept)}: {chose} selected from {matches:,}"
    if matches:
        return _times(matches)
    empty = next((step for step in steps if step.kind == STREAM and step.tried == step.failed), None)
    if empty is not None:
        return f"no match: stream {empty.what} has no events"
    blamed = _blamed(steps)
    if blamed is not None:
        return f"no match: {blamed.in_words}"
    stopped = next((step for step in steps if step.kind not in (STREAM, TIE) and step.tried == step.failed), None)
    if stopped is None:
        return "no match"
    return f"no match: no candidate is left after {stopped.what}; all of them fail more than one requirement"


def _times(matches: int) -> str:
    return "no match" if matches == 0 else "1 match" if matches == 1 else f"{matches:,} matches"


def _schema(time_type: pa.DataType) -> pa.Schema:
    event = pa.struct([("variable", pa.string()), ("stream", pa.string()), ("start", time_type), ("end", time_type)])
    example = pa.struct(
        [("key", pa.string()), ("events", pa.list_(event)), ("distance", pa.float64()), ("note", pa.string())]
    )
    return pa.schema(
        [
            ("step", pa.int64()),
            ("kind", pa.string()),
            ("what", pa.string()),
            ("tried", pa.int64()),
            ("failed", pa.int64()),
            ("near_misses", pa.int64()),
            ("cut", pa.bool_()),
            ("closest", pa.string()),
            ("distance", pa.float64()),
            ("examples", pa.list_(example)),
        ]
    )
