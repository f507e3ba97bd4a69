"""`ensue.why_not`: count how many choices of events meet each requirement of a pattern, and find near misses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import pyarrow as pa

from ensue.arguments import helpful
from ensue.constraints import ConstraintsLike
from ensue.engine.goals import Choices, Search
from ensue.engine.trace_rows import KEY
from ensue.errors import LimitError, citing, counted
from ensue.explanation.near_misses import Example, moment_in_words
from ensue.explanation.nearest import Examples
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
from ensue.nodes.patterns import Repeat, walk
from ensue.plan.program_plans import ColumnNames, OrderColumns
from ensue.plan.requirements import ORDER, PREDICATE, RELATION, Question, Requirement, question_of, what_chooses
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
    `distance` is how far the closest of them is, and `share` this distance as a share of the amount that the
    requirement needs; None if there is no such amount. If no choice failed only one requirement, the one that leaves no
    choice has the closest of those that met all before it, without being a near miss.

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
    share: float | None
    examples: tuple[Example, ...]

    @property
    def usefulness(self) -> tuple[int, float, int]:
        """The sort key of requirements with near misses: the closest first, then the wrong order, then the key.

        Without an amount, all that is needed is missing: a share of 1.
        """
        is_order = self.kind == ORDER or (self.kind == RELATION and self.share is None)
        group = 2 if self.kind == KEY else 1 if is_order else 0
        near = self.distance if is_order else 1.0 if self.share is None else self.share
        return group, math.inf if near is None else near, -(self.near_misses or 0)

    @property
    def in_words(self) -> str:
        """The near misses in one line: `WITHIN 10m failed 3 times, closest 10m 4s`."""
        if self.kind == TIE:
            return f"{self.tie_words}; {ADVICE}"
        times = self._times(self.near_misses or 0)
        return f"{self.what} failed {times}" + (f", closest {self.closest}" if self.closest else "")

    @property
    def miss_words(self) -> str:
        """What failed and how often, above the examples; without examples also the closest one."""
        if self.kind == TIE:
            return self.tie_words
        return f"{self.what} failed {self._times(self.near_misses or self.failed)}" if self.examples else self.in_words

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
        """The requirement with the most near misses, or None. The wrong order is blamed only if no other requirement
        except the key has near misses, and the key only if no other one has."""
        return _blamed(self.steps)

    @property
    def nearest(self) -> tuple[RequirementCount, ...]:
        """The requirements with near misses, the most useful ones first."""
        return tuple(sorted((step for step in self.steps if step.near_misses), key=lambda step: step.usefulness))

    @property
    def table(self) -> pa.Table:
        """One row for each requirement."""
        ranks = {id(step): rank for rank, step in enumerate(self.nearest, start=1)}
        rows = [
            {
                "step": number,
                "kind": step.kind,
                "what": step.what,
                "tried": step.tried,
                "failed": step.failed,
                "near_misses": step.near_misses,
                "rank": ranks.get(id(step)),
                "cut": step.cut,
                "closest": step.closest or None,
                "distance": step.distance,
                "share": step.share,
                "examples": [example.as_row() for example in step.examples],
            }
            for number, step in enumerate(self.steps, start=1)
        ]
        return pa.Table.from_pylist(rows, schema=_schema(self.time_type))

    def to_text(self) -> str:
        """Return the full answer as readable text."""
        lines = [f"{self.name}: {self.verdict}", "", "what is left after each requirement"]
        lines += [f"  {': '.join(line)}" for line in self._funnel()]
        for title, steps in self._parts():
            lines += ["", title]
            for step in steps:
                lines.append(f"  {step.miss_words}")
                lines += [f"    {example.in_words}" for example in step.examples]
        return "\n".join(lines)

    def _funnel(self) -> Iterator[tuple[str, str]]:
        """Yield each requirement, and what is left after it, in words."""
        for step in self.steps:
            if step.kind == TIE:
                continue
            label = f"{step.kind} {step.what}" if step.kind in (STREAM, KEY) else step.what
            if step.kind == STREAM:
                yield label, counted(step.tried, "event", "events")
            else:
                left = f"{'at least ' if step.cut else ''}{step.tried - step.failed:,}"
                yield label, f"{left} of {step.tried:,} {'events' if step.kind == PREDICATE else 'choices'}"

    def _parts(self) -> Iterator[tuple[str, Sequence[RequirementCount]]]:
        """Yield the near misses that are ties, then the others, each with a title."""
        ties = [step for step in self.steps if step.kind == TIE]
        if ties:
            yield f"events at the same time, which nothing orders: {ADVICE}", ties
        near = [step for step in self.nearest if step.kind != TIE]
        if near:
            yield "near misses: only this requirement failed", near
        stopped = [step for step in self.steps if step.near_misses == 0 and step.examples]
        if stopped:
            yield "no near misses: what came closest failed this requirement and others", stopped

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """The verdict, the near misses and what is left after each requirement as tables, for a notebook."""
        tables = [
            _html_table(title, ("requirement", "key", "events", "what is missing"), _html_rows(steps))
            for title, steps in self._parts()
        ]
        left = (f"<tr>{_cell(label)}{_cell(words)}</tr>" for label, words in self._funnel())
        tables.append(_html_table("what is left after each requirement", ("requirement", "left"), left))
        return f"<div><p><b>{escape(self.name)}</b>: {escape(self.verdict)}</p>{''.join(tables)}</div>"


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
    'no match: WITHIN 10 failed once, closest 14, 4 over'
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
        pictures = Examples(search, tables_of(loaded), loaded.planned.lookups, shown)
        steps = tuple(_steps(search, pictures))
        if search.matches.cut:
            raise LimitError(
                "too-many-matches",
                f"pattern `{chosen.name}` has more than {limit:,} matches, too many for `why_not`",
                "pass fewer events, or raise `most_choices=`",
            )
        if not search.matches.count and _blamed(steps) is None:
            steps = _with_closest(search, pictures, steps)
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


def _ordered(search: Search) -> tuple[list[Requirement], list[Requirement]]:
    """Return the requirements on single events, and those on choices of them."""
    found = search.question.requirements
    return [each for each in found if each.kind == PREDICATE], [each for each in found if each.kind != PREDICATE]


def _steps(search: Search, pictures: Examples) -> Iterator[RequirementCount]:
    question = search.question
    variables = _variables(search)
    yield from _streams(search, variables)
    predicates, judged = _ordered(search)
    for requirement in predicates:
        tried, failed = _judged_events(search, requirement, variables)
        yield _step(pictures, requirement, search.misses(requirement), tried, failed, False)
    before = search.choices(question.without(judged)) if judged else None
    for place, requirement in enumerate(judged):
        assert before is not None
        after = search.choices(question.without(judged[place + 1 :]))
        cut = before.cut or after.cut
        misses, tied = search.misses(requirement), None
        if requirement.kind == ORDER and not requirement.repeated and search.has_ties:
            misses, tied = search.in_time_and_tied(requirement, misses)
        yield _step(pictures, requirement, misses, before.count, max(0, before.count - after.count), cut)
        if tied is not None and tied.count:
            yield _tie(search, pictures, requirement, tied, misses.count + tied.count, variables)
        before = after
    for tie, count in search.tied_matches.items():
        what = f"`{tie.one}` at the very time of `{tie.other}`"
        examples = tuple(pictures.tied_matches(tie))
        yield RequirementCount(TIE, what, search.matches.count, count, None, False, "", None, None, examples)


def _stopped(steps: Iterable[RequirementCount]) -> RequirementCount | None:
    """Return the first requirement that all events or choices fail."""
    return next((step for step in steps if step.kind not in (STREAM, TIE) and step.tried == step.failed), None)


def _with_closest(
    search: Search, pictures: Examples, steps: tuple[RequirementCount, ...]
) -> tuple[RequirementCount, ...]:
    """Add the closest choices to the requirement that leaves none; all of them fail others as well."""
    predicates, judged = _ordered(search)
    own = [step for step in steps if step.kind not in (STREAM, TIE)]
    stopped = _stopped(own)
    if stopped is None or not stopped.tried:
        return steps
    requirement = [*predicates, *judged][own.index(stopped)]
    later = judged[judged.index(requirement) :] if requirement in judged else [requirement, *judged]
    met = search.choices(search.question.without(later))
    closest = _step(pictures, requirement, met, stopped.tried, stopped.failed, stopped.cut)
    return tuple(replace(closest, near_misses=0) if step is stopped else step for step in steps)


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
    nearest = tuple(pictures.ties(requirement, tied))
    moment = moment_in_words(pictures.end_of(requirement.left, nearest[0]), search.plan.catalog.time_type)
    what = f"{later} at the same time as {first}"
    return RequirementCount(
        TIE, what, tried, tied.count, tied.count, tied.cut, moment, 0.0, 0.0, nearest[: pictures.most]
    )


def _step(
    pictures: Examples, requirement: Requirement, misses: Choices, tried: int, failed: int, cut: bool
) -> RequirementCount:
    nearest = pictures.nearest(requirement, misses)
    first = nearest[0] if nearest else None
    return RequirementCount(
        requirement.kind,
        requirement.text,
        tried,
        failed,
        misses.count,
        cut or misses.cut,
        "" if first is None else first.key_words if requirement.kind == KEY else first.note,
        None if first is None else first.distance,
        None if first is None else first.share,
        tuple(nearest[: pictures.most]),
    )


def _variables(search: Search) -> dict[Name, Variable]:
    """Return the variables that matches bind, each once, whatever its round."""
    graphs = [graph.graph for graph in search.planned(search.question.query).graphs]
    return {written(variable.name): variable for graph in graphs for variable in graph.variables}


def _streams(search: Search, variables: Mapping[Name, Variable]) -> Iterator[RequirementCount]:
    for stream in dict.fromkeys(variable.stream for variable in variables.values()):
        present = search.present(stream)
        yield RequirementCount(STREAM, in_words(stream), present, 0, None, False, "", None, None, ())


def _judged_events(search: Search, requirement: Requirement, variables: Mapping[Name, Variable]) -> tuple[int, int]:
    """Count the events of a variable's stream, and how many of them fail its predicates."""
    variable = variables[requirement.left[0]]
    present = search.present(variable.stream)
    return present, present - search.satisfying(variable)


def _blamed(steps: Sequence[RequirementCount]) -> RequirementCount | None:
    """Return the requirement with the most near misses; the order and the key last, because events in another order or
    of other keys nearly always form choices."""
    near = [step for step in steps if step.near_misses]
    return min(near, key=lambda step: (step.usefulness[0], -(step.near_misses or 0)), default=None)


def _html_rows(steps: Sequence[RequirementCount]) -> Iterator[str]:
    """Yield the rows of a table of near misses: each requirement next to its examples."""
    for step in steps:
        first = _cell(step.miss_words, rows=max(1, len(step.examples)))
        for example in step.examples:
            events = (event.in_words for event in example.events)
            yield f"<tr>{first}{_cell(example.key_words)}{_cell(*events)}{_cell(example.note)}</tr>"
            first = ""
        if first:
            yield f"<tr>{first}{_cell() * 3}</tr>"


def _cell(*lines: str, rows: int = 1) -> str:
    span = f' rowspan="{rows}"' if rows > 1 else ""
    return f'<td{span} style="text-align: left; vertical-align: top">{"<br>".join(map(escape, lines))}</td>'


def _html_table(title: str, columns: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th style="text-align: left">{escape(column)}</th>' for column in columns)
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _verdict(question: Question, steps: Sequence[RequirementCount], matches: int, kept: int) -> str:
    if matches and kept < matches:
        chose = " and ".join(question.chosen)
        return f"{_times(kept)}: {chose} selected from {matches:,}"
    if matches:
        return _times(matches)
    empty = next((step for step in steps if step.kind == STREAM and step.tried == 0), None)
    if empty is not None:
        return f"no match: stream {empty.what} has no events"
    blamed = _blamed(steps)
    if blamed is not None:
        return f"no match: {blamed.in_words}"
    stopped = _stopped(steps)
    if stopped is None:
        return "no match"
    if not stopped.tried:
        repeated = [question.written(part) for part in walk(question.query.pattern) if isinstance(part, Repeat)]
        return f"no match: not enough events in order for {' and '.join(repeated) or 'the pattern'}"
    closest = f", closest {stopped.closest}" if stopped.closest else ""
    return f"no match: no candidate is left after {stopped.what}{closest}; all of them fail more than one requirement"


def _times(matches: int) -> str:
    return "no match" if matches == 0 else "1 match" if matches == 1 else f"{matches:,} matches"


def _schema(time_type: pa.DataType) -> pa.Schema:
    event = pa.struct([("variable", pa.string()), ("stream", pa.string()), ("start", time_type), ("end", time_type)])
    example = pa.struct(
        [
            ("key", pa.string()),
            ("events", pa.list_(event)),
            ("distance", pa.float64()),
            ("share", pa.float64()),
            ("had", pa.string()),
            ("needed", pa.string()),
            ("note", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("step", pa.int64()),
            ("kind", pa.string()),
            ("what", pa.string()),
            ("tried", pa.int64()),
            ("failed", pa.int64()),
            ("near_misses", pa.int64()),
            ("rank", pa.int64()),
            ("cut", pa.bool_()),
            ("closest", pa.string()),
            ("distance", pa.float64()),
            ("share", pa.float64()),
            ("examples", pa.list_(example)),
        ]
    )
