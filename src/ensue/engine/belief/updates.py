"""Applies events to a state: keys, order, the kernel, and contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.belief.answers import Answers, column_of, sums_of, weights_of
from ensue.engine.belief.changes import (
    CONTRADICTION,
    FINE,
    NO_TIME,
    RESTART,
    UNDECLARED,
    EventChanges,
    read_changes,
    undeclared_error,
)
from ensue.engine.belief.changes import (
    NO_KEY as WITHOUT_KEY,
)
from ensue.engine.belief.model import StatePlan
from ensue.engine.keys import NO_KEY, encode_columns
from ensue.engine.order import in_ties, row_ranks
from ensue.engine.sources import EventSource, Mask
from ensue.errors import Problem, QueryError, SchemaError, did_you_mean
from ensue.expr.kinds import Kind
from ensue.expr.types import kind_of
from ensue.kernels import beliefs as belief_kernels
from ensue.kernels.codes import number_by_appearance
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.sorted_runs import group_by_key, is_sorted, order_by_time
from ensue.nodes.states import Measure
from ensue.text.render_parts import render_change

POLICIES = {"error": belief_kernels.STOP, "skip": belief_kernels.SKIP, "reset": belief_kernels.RESET}
_KEYS = (Kind.INTEGER, Kind.FLOAT, Kind.TEXT, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DURATION, Kind.NULL)

MOST_NUMBERS = 4_000_000
"""The maximum number of values held at once if every row needs its own belief."""


@dataclass(slots=True)
class HeldBeliefs:
    """The beliefs by key: `keys` has the columns of PARTITION BY, `count` rows."""

    keys: pa.Table
    count: int
    beliefs: belief_kernels.Beliefs


@dataclass(frozen=True, slots=True)
class Moments:
    """Keys and times at which beliefs are wanted: columns of PARTITION BY, and ticks."""

    keys: pa.Table
    times: Int64s


@dataclass(frozen=True, slots=True)
class Question:
    """The requested output of a run: measures at every row, before or after it; beliefs at some moments; drift to the
    end."""

    measures: tuple[Measure, ...] = ()
    before: bool = False
    moments: Moments | None = None
    until: int | None = None


NOTHING_ASKED = Question()


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The output of a run: columns of the measures, beliefs at the moments, and the reasons for ignored rows."""

    columns: tuple[pa.Array, ...]
    chances: belief_kernels.Floats
    lost: belief_kernels.Floats
    reasons: npt.NDArray[np.int8]


def nothing_held(plan: StatePlan) -> HeldBeliefs:
    """The beliefs before the first event."""
    return HeldBeliefs(
        pa.table({}), 0, belief_kernels.Beliefs(np.zeros((0, plan.size)), np.zeros(0, np.int64), np.zeros(0))
    )


def follow(
    plan: StatePlan,
    held: HeldBeliefs,
    sources: Sequence[EventSource],
    policy: str = "error",
    probability: str | None = None,
    question: Question = NOTHING_ASKED,
) -> UpdateResult:
    """Applies the events of some tables, which are not earlier than those of previous calls, to the held beliefs."""
    read = read_changes(plan, sources, probability)
    times = np.concatenate([np.zeros(0, np.int64), *(source.starts for source in sources)])
    valid = np.concatenate([np.zeros(0, bool), *(_timed(source) for source in sources)])
    keys = _number_keys(plan, held, sources, question.moments)
    rows = len(times)
    read.reasons[(keys[:rows] == NO_KEY) & _keyed(plan, sources)] = WITHOUT_KEY
    read.reasons[~valid] = NO_TIME
    if policy == "error" and read.undeclared is not None and (read.reasons == UNDECLARED).any():
        raise undeclared_error(plan, read.undeclared, _moment(sources, read.undeclared.row))
    events = _Events(plan, held, read.changes, times, np.where(valid, keys[:rows], NO_KEY), sources, probability)
    if question.moments is not None:
        events = events.with_moments(question.moments.times, keys[rows:])
    columns, chances, lost, status = events.run(POLICIES[policy], question, rows)
    if policy == "error" and (status != FINE).any():
        raise _contradiction(plan, held, sources, read, times, keys, status[:rows])
    contradicting = status[:rows] != FINE
    read.reasons[contradicting] = CONTRADICTION
    read.reasons[status[:rows] == belief_kernels.BEGAN_ANEW] = RESTART
    return UpdateResult(columns, chances, lost, read.reasons)


def _timed(source: EventSource) -> Mask:
    return np.ones(len(source.starts), bool) if source.valid is None else source.valid


def _keyed(plan: StatePlan, sources: Sequence[EventSource]) -> Mask:
    """The rows of tables that have the key columns."""
    flags = [np.full(len(s.starts), _has_keys(plan, s), bool) for s in sources]
    return np.concatenate([np.zeros(0, bool), *flags])


def _has_keys(plan: StatePlan, source: EventSource) -> bool:
    return all(name in source.input.table.column_names for name in plan.statement.partition_by)


def _number_keys(plan: StatePlan, held: HeldBeliefs, sources: Sequence[EventSource], moments: Moments | None) -> Codes:
    """A number for the key of every row, with those of moments last; new keys are added to `held`."""
    names, statement = plan.statement.partition_by, plan.statement
    lengths = [len(source.starts) for source in sources] + ([len(moments.times)] if moments is not None else [])
    if not names:
        _add_keys(plan, held, pa.table({}), 1)
        return np.zeros(sum(lengths), np.int32)
    for source in sources:
        concerned = any(source.input.holds(stream) for stream in statement.streams)
        missing = [name for name in names if name not in source.input.table.column_names]
        if missing and (concerned or source.input.stream is None):
            columns = source.input.table.column_names
            said = (
                f"the {source.input.label} has no column `{missing[0]}` for PARTITION BY; columns: {', '.join(columns)}"
            )
            raise SchemaError("no-such-column", said, did_you_mean(missing[0], columns))
    columns = [_key_columns(name, held, sources, moments, lengths) for name in names]
    codes, count = encode_columns(columns)
    numbers, first = number_by_appearance(np.concatenate(codes), count)
    fresh = first[held.count :]
    if len(fresh):
        joined = [pa.concat_arrays([part.cast(parts[-1].type) for part in parts]) for parts in columns]
        _add_keys(
            plan, held, pa.table([column.take(pa.array(fresh)) for column in joined], names=list(names)), len(fresh)
        )
    elif not held.count:
        held.keys = pa.table([parts[-1].slice(0, 0) for parts in columns], names=list(names))
    return numbers[held.count - len(fresh) :]


def _key_columns(
    name: str, held: HeldBeliefs, sources: Sequence[EventSource], moments: Moments | None, lengths: Sequence[int]
) -> list[pa.Array]:
    """One key column: of the held keys, of each table, of the moments."""
    given = [source.column(name) if name in source.input.table.column_names else None for source in sources]
    if moments is not None:
        given.append(moments.keys.column(name).combine_chunks())
    types = [column.type for column in given if column is not None and kind_of(column.type) is not Kind.NULL]
    before = held.keys.column(name).combine_chunks() if held.count else None
    kind = before.type if before is not None and kind_of(before.type) is not Kind.NULL else (types or [pa.null()])[0]
    if kind_of(kind) not in _KEYS:
        raise SchemaError(
            "key-type", f"column `{name}` of PARTITION BY has type {kind}, which is not supported for keys", "cast it"
        )
    parts = [pa.array([], kind) if before is None else before]
    for column, length in zip(given, lengths, strict=True):
        parts.append(pa.nulls(length, kind) if column is None else column)
    try:
        return [part.cast(kind) for part in parts]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = ", ".join(dict.fromkeys(str(part.type) for part in parts))
        said = f"column `{name}` of PARTITION BY has different types: {found}"
        raise SchemaError("key-type", said, "cast the columns to one type") from error


def _add_keys(plan: StatePlan, held: HeldBeliefs, keys: pa.Table, count: int) -> None:
    """Adds new keys with the initial belief of STARTS."""
    if not plan.statement.partition_by and held.count:
        return
    held.keys = pa.concat_tables([held.keys.cast(keys.schema), keys]) if held.count else keys
    before = held.beliefs
    held.beliefs = belief_kernels.Beliefs(
        np.concatenate([before.chances, np.tile(plan.model.start, (count, 1))]),
        np.concatenate([before.moments, np.full(count, belief_kernels.NEVER)]),
        np.concatenate([before.lost, np.zeros(count)]),
    )
    held.count += count


@dataclass(frozen=True, slots=True)
class _Events:
    """Rows with their keys and changes, ready for the kernel; those of moments have a place."""

    plan: StatePlan
    held: HeldBeliefs
    changes: belief_kernels.Changes
    times: Int64s
    keys: Codes
    sources: Sequence[EventSource] = ()
    """The tables of the rows, to order those at the same time."""
    probability: str | None = None
    places: Codes | None = None

    def with_moments(self, times: Int64s, keys: Codes) -> _Events:
        """The same with the rows of moments, which change nothing, after the events of their time."""
        more, old = len(times), self.changes

        def padded(values: np.ndarray, fill: float) -> np.ndarray:
            return np.concatenate([values, np.full((*values.shape[:-1], more), fill, values.dtype)], axis=-1)

        changes = belief_kernels.Changes(
            padded(old.responses, -1),
            padded(old.who, 0),
            padded(old.source, 0),
            padded(old.target, 0),
            padded(old.numbers, 0) if old.numbers.shape[2] else old.numbers,
            padded(old.chances, 1),
        )
        places = np.concatenate([np.full(len(self.times), -1), np.arange(more)]).astype(np.int32)
        return _Events(
            self.plan,
            self.held,
            changes,
            np.concatenate([self.times, times]),
            np.concatenate([self.keys, keys]),
            self.sources,
            self.probability,
            places,
        )

    def run(
        self, policy: int, question: Question, rows: int
    ) -> tuple[tuple[pa.Array, ...], belief_kernels.Floats, belief_kernels.Floats, npt.NDArray[np.int8]]:
        """The columns of the measures, the beliefs at the moments, their loss, and the status of each row."""
        plan, wanted = self.plan, question.measures
        order, offsets = self._order()
        events = self._sorted(order)
        status = np.zeros(len(self.times), np.int8)
        places = np.full(len(self.times), -1, np.int32) if self.places is None else self.places
        captured = np.zeros((int((places >= 0).sum()), plan.size))
        lost = np.zeros(len(captured))
        until = belief_kernels.NEVER if question.until is None else question.until
        if plan.exact or not wanted:
            weights = [weights_of(measure, plan) for measure in wanted]
            measures = np.concatenate([np.zeros((0, plan.size)), *weights])
            sums = np.full((len(self.times), len(measures)), np.nan)
            asked = belief_kernels.BeliefRequest(measures, sums, places, captured, lost, question.before, until)
            events._follow(order, offsets, self.held.beliefs, policy, asked, status)
            ends = np.cumsum([len(part) for part in weights])
            columns = [
                column_of(measure, sums[:rows, end - len(part) : end], plan)
                for measure, part, end in zip(wanted, weights, ends, strict=True)
            ]
            return tuple(columns), captured, lost, status
        return events._in_pieces(order, offsets, policy, question, rows, status), captured, lost, status

    def _order(self) -> tuple[Codes, Int64s]:
        """The rows by key, time, order columns and content, and the start of each key."""
        if is_sorted(self.times):
            order, offsets = group_by_key(self.keys, self.held.count)
        else:
            by_time = order_by_time(self.times)
            places, offsets = group_by_key(self.keys[by_time], self.held.count)
            order = by_time[places]
        tied = in_ties(self.keys[order], self.times[order])
        if tied.any():
            rows = order[tied]
            used = {*self.plan.statement.reads, *([] if self.probability is None else [self.probability])}
            ranks = row_ranks(self.sources, rows, used)
            order[tied] = rows[np.lexsort((ranks, self.times[rows], self.keys[rows]))]
        return order, offsets

    def _sorted(self, order: Codes) -> _Events:
        """The same in sorted order, so that the kernel reads events consecutively."""
        old = self.changes
        numbers = old.numbers[:, :, order] if old.numbers.shape[2] else old.numbers
        changes = belief_kernels.Changes(
            np.ascontiguousarray(old.responses[:, order]),
            np.ascontiguousarray(old.who[:, order]),
            np.ascontiguousarray(old.source[:, order]),
            np.ascontiguousarray(old.target[:, order]),
            np.ascontiguousarray(numbers),
            old.chances[order],
        )
        return _Events(self.plan, self.held, changes, self.times[order], self.keys)

    def _follow(
        self,
        order: Codes,
        offsets: Int64s,
        beliefs: belief_kernels.Beliefs,
        policy: int,
        wanted: belief_kernels.BeliefRequest,
        status: npt.NDArray[np.int8],
    ) -> None:
        plan = self.plan
        belief_kernels.follow_beliefs(
            order, offsets, self.times, self.changes, plan.model, plan.responses, beliefs, policy, wanted, status
        )

    def _in_pieces(
        self,
        order: Codes,
        offsets: Int64s,
        policy: int,
        question: Question,
        rows: int,
        status: npt.NDArray[np.int8],
    ) -> tuple[pa.Array, ...]:
        """Measures of independent variables from the beliefs at every row, a part of the keys at a time."""
        plan, beliefs = self.plan, self.held.beliefs
        nobody = Answers(plan, np.zeros((0, plan.size)))
        sums = [np.full((len(self.keys), sums_of(m, nobody).shape[1]), np.nan) for m in question.measures]
        until = belief_kernels.NEVER if question.until is None else question.until
        for begin, end in _pieces(offsets, max(1, MOST_NUMBERS // plan.size)):
            own = order[offsets[begin] : offsets[end]]
            places = np.full(len(self.keys), -1, np.int32)
            places[own] = np.arange(len(own))
            captured = np.zeros((len(own), plan.size))
            measures, values = np.zeros((0, plan.size)), np.zeros((len(self.keys), 0))
            asked = belief_kernels.BeliefRequest(
                measures, values, places, captured, np.zeros(len(own)), question.before, until
            )
            part = belief_kernels.Beliefs(
                beliefs.chances[begin:end], beliefs.moments[begin:end], beliefs.lost[begin:end]
            )
            self._follow(order, offsets[begin : end + 1], part, policy, asked, status)
            for measure, total in zip(question.measures, sums, strict=True):
                total[own] = sums_of(measure, Answers(plan, captured))
        return tuple(column_of(m, total[:rows], plan) for m, total in zip(question.measures, sums, strict=True))


def _pieces(offsets: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of keys with at most this number of rows, or a single key."""
    begin, keys = 0, len(offsets) - 1
    while begin < keys:
        end = int(np.searchsorted(offsets, offsets[begin] + most, side="right")) - 1
        end = min(max(end, begin + 1), keys)
        yield begin, end
        begin = end


def _contradiction(
    plan: StatePlan,
    held: HeldBeliefs,
    sources: Sequence[EventSource],
    read: EventChanges,
    times: Int64s,
    keys: Codes,
    status: npt.NDArray[np.int8],
) -> QueryError:
    """The error for the first event that contradicts the belief."""
    rows = np.flatnonzero(status != FINE)
    row = int(rows[np.argmin(times[rows])])
    key = int(keys[row])
    statement = plan.statement
    where = "".join(f", {name} {held.keys.column(name)[key].as_py()!r}" for name in statement.partition_by)
    answers = Answers(plan, held.beliefs.chances[key : key + 1])
    known = "; ".join(f"{name}: {_in_words(answers, name)}" for name in statement.variables)
    responses = [int(number) for number in read.changes.responses[:, row] if number >= 0]
    response = statement.responses[responses[0]]
    names, values = statement.variables, statement.values
    told = [names[int(read.changes.who[0, row])]] if "who" in _told(plan, responses[0]) else []
    told += [values[int(read.changes.source[0, row])]] if read.changes.source[0, row] >= 0 else []
    told += [values[int(read.changes.target[0, row])]] if "target" in _told(plan, responses[0]) else []
    said = (
        f"the event of `{response.stream}` at {_moment(sources, row)}{where}, {render_change(response.change)} "
        f"({', '.join(told)}), contradicts the state, which is: {known}"
    )
    hint = 'pass `policy="skip"` to ignore such events or `policy="reset"` to restart from STARTS, '
    hint += "or add PROBABILITY to the change or RELIABILITY to the observation"
    return QueryError([Problem("state-contradiction", said, response.span, hint=hint)], plan.source)


def _told(plan: StatePlan, number: int) -> tuple[str, ...]:
    """The parts of a change that its numbers describe."""
    code = int(plan.responses.codes[number])
    who = (
        ("who",)
        if code
        in (belief_kernels.MOVE_ONE, belief_kernels.WANDER_ONE, belief_kernels.SEE_ONE, belief_kernels.MISREAD_ONE)
        else ()
    )
    return who if code in (belief_kernels.WANDER_ONE, belief_kernels.WANDER_EVERYONE) else (*who, "target")


def _in_words(answers: Answers, variable: str) -> str:
    chances = answers.marginal(variable)[0]
    order = [place for place in np.argsort(-chances, kind="stable") if chances[place] > 0]
    shown = [f"{answers.plan.statement.values[place]} {chances[place]:.3g}" for place in order[:3]]
    return ", ".join(shown) + (", ..." if len(order) > len(shown) else "")


def _moment(sources: Sequence[EventSource], row: int) -> str:
    """The time of a row, as in its table."""
    for source in sources:
        if row < len(source.starts):
            return str(source.raw_column(source.input.time)[row].as_py())
        row -= len(source.starts)
    raise AssertionError("the row belongs to one of the tables")
