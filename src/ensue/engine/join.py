"""Enumerating the matches of a graph: one variable after the other, over arrays of all keys, in bounded chunks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ensue.engine.events import FOREVER, NEVER
from ensue.engine.joinkeys import EqualityClass
from ensue.engine.rows import Rows, expand_in_chunks
from ensue.engine.sources import Mask
from ensue.engine.steps import Range, Step, plan_step
from ensue.engine.summary import Summary, summarize_chain, summarize_matches
from ensue.engine.workspace import Workspace
from ensue.expr.nodes import Expr
from ensue.graph.bounds import end_of
from ensue.kernels.compiled import Codes, Int64s
from ensue.kernels.ranges import find_ranges
from ensue.plan.model import AbsencePlan, Side
from ensue.plan.order import join_order, precedence

FIRST_BLOCK = 16
BLOCK_GROWTH = 4
"""How many forbidden candidates are tried first per match, and how fast that grows while none was found."""


@dataclass(slots=True)
class Join:
    """The enumeration of one graph in one workspace, with the joins of the absences inside of it.

    `summaries` are shared by all joins of an evaluation: what they say does not depend on the match around them.
    """

    space: Workspace
    summaries: dict[int, Summary]
    inner: dict[int, Join] = field(default_factory=dict)
    steps_of_existence: list[Step] | None = None
    orders: dict[Hashable, list[str]] = field(default_factory=dict)

    # -- enumeration -----------------------------------------------------------------------------------------------

    def matches(self) -> Iterator[Rows]:
        """Every match of the graph, in chunks."""
        order = self._order(frozenset())
        steps = self._steps(order)
        count = len(self.space.candidates[order[0]])
        for begin in range(0, count, self.space.options.chunk_rows):
            places = np.arange(begin, min(begin + self.space.options.chunk_rows, count), dtype=np.int32)
            seeds = self._filter(Rows(len(places), {order[0]: places}), steps[0])
            yield from self._extend(seeds, steps[1:])

    def exist(self, rows: Rows) -> Mask:
        """Which of the matches around have at least one match of this (forbidden) graph in scope."""
        found = np.zeros(rows.length, bool)
        if self.steps_of_existence is None:
            self.steps_of_existence = self._steps(self._order(self.space.outer))
        steps = self.steps_of_existence
        first, last, classes = self._ranges(rows, steps[0])
        if len(steps) == 1 and self._needs_no_filter(steps[0]):
            return last > first
        active = np.flatnonzero(last > first).astype(np.int32)
        block = FIRST_BLOCK
        while len(active):
            stop = np.minimum(last[active], first[active] + block)
            tried = Rows(len(active), rows.take(active).places, active)
            for extended in self._bind(tried, steps[0], first[active], stop, classes):
                for complete in self._extend(extended, steps[1:]):
                    found[complete.origin] = True
            first[active] = stop
            active = active[~found[active] & (stop < last[active])]
            block *= BLOCK_GROWTH
        return found

    def _order(self, bound: frozenset[str]) -> list[str]:
        graph = self.space.plan.graph
        if not self.space.options.reorder:
            return list(graph.names)
        counts = {name: len(self.space.candidates[name]) for name in graph.names}
        wanted = (bound, *counts.values())
        if wanted not in self.orders:
            self.orders[wanted] = join_order(graph, counts, self.space.store.span, bound)
        return self.orders[wanted]

    def _steps(self, order: list[str]) -> list[Step]:
        return [self._step(name, frozenset(order[:place])) for place, name in enumerate(order)]

    def _step(self, name: str, bound: frozenset[str]) -> Step:
        space, options = self.space, self.space.options
        wanted = ("step", name, bound, space.outer, space.sight, options.equality_keys, options.earliest_completion)
        known: dict[Hashable, Step] = space.plan.remembered
        if wanted not in known:
            conditions = self._residual_conditions(name, bound)
            known[wanted] = plan_step(space.plan, name, bound, space.sight, conditions, options.earliest_completion)
        return known[wanted]

    def _residual_conditions(self, name: str, bound: frozenset[str]) -> list[Expr]:
        """The conditions that the join key of this step does not take care of."""
        graph = self.space.plan.graph
        classes = self.space.join_classes(name, bound | self.space.outer)
        keyed = {member for group in classes for member in group.members}
        left = [
            equality.condition
            for equality in graph.equalities
            if (equality.left.variable, equality.left.name) not in keyed
        ]
        return [*graph.conditions, *left]

    def _extend(self, rows: Rows, steps: list[Step]) -> Iterator[Rows]:
        """The rows with every remaining variable bound and no absence violated."""
        if rows.length == 0:
            return
        if not steps:
            complete = self._without_forbidden(rows)
            if complete.length:
                yield complete
            return
        first, last, classes = self._ranges(rows, steps[0])
        for extended in self._bind(rows, steps[0], first, last, classes):
            yield from self._extend(extended, steps[1:])

    def _bind(
        self, rows: Rows, step: Step, first: Codes, last: Codes, classes: tuple[EqualityClass, ...]
    ) -> Iterator[Rows]:
        """The rows extended by every event in their range that passes what can be checked now."""
        for probes, places in expand_in_chunks(first, last, self.space.options.chunk_rows):
            if classes:
                places = self.space.index(step.variable, classes).order[places]
            yield self._filter(rows.bind(step.variable, probes, places), step)

    # -- ranges ----------------------------------------------------------------------------------------------------

    def _ranges(self, rows: Rows, step: Step) -> tuple[Codes, Codes, tuple[EqualityClass, ...]]:
        """For each row, the places of the step's variable that its bounds, join keys and deadlines allow."""
        space = self.space
        found = space.candidates[step.variable]
        bound = frozenset(rows.places)
        lows, highs = _filled(*self._start_limits(rows, step), rows.length)
        classes = space.join_classes(step.variable, bound)
        if classes:
            index = space.index(step.variable, classes)
            segments = space.segments(step.variable, classes, bound, rows)
            first, last = find_ranges(segments, lows, highs, index.offsets, index.starts)
        else:
            first, last = find_ranges(space.keys(rows), lows, highs, found.offsets, found.starts)
            if not step.position.open and found.are_points:
                first, last = self._within_positions(rows, step, first, last)
        return first, last, classes

    def _within_positions(self, rows: Rows, step: Step, first: Codes, last: Codes) -> tuple[Codes, Codes]:
        """Candidates without an end column lie in the order of their positions, so these are a range as well."""
        found = self.space.candidates[step.variable]
        assert found.positions is not None
        lows, highs = _filled(*self.space.limits(step.position, rows), rows.length)
        begin, end = find_ranges(self.space.keys(rows), lows, highs, found.offsets, found.positions)
        return np.maximum(first, begin), np.minimum(last, end)

    def _start_limits(self, rows: Rows, step: Step) -> tuple[Int64s | None, Int64s | None]:
        low, high = self.space.limits(step.start, rows)
        for absence in step.deadlines:
            assert absence.lower is not None and absence.upper is not None
            latest = self._summary(absence).earliest_completion(self.space.keys(rows), self._side(absence.lower, rows))
            high = latest if high is None else np.minimum(high, latest)
        if self.space.candidates[step.variable].are_points:
            for absence in step.earliest:
                floor = self._earliest_end(absence, rows)
                low = floor if low is None else np.maximum(low, floor)
        return low, high

    def _earliest_end(self, absence: AbsencePlan, rows: Rows) -> Int64s:
        assert absence.upper is not None
        return self._summary(absence).latest_start(self.space.keys(rows), self._side(absence.upper, rows))

    # -- checks ----------------------------------------------------------------------------------------------------

    def _needs_no_filter(self, step: Step) -> bool:
        found = self.space.candidates[step.variable]
        plan = self.space.plan
        ranged = found.are_points and (step.position.open or not self._keyed(step))
        return ranged and not (step.conditions or step.distinct or step.checks or plan.absences)

    def _keyed(self, step: Step) -> bool:
        return bool(self.space.join_classes(step.variable, self.space.outer))

    def _filter(self, rows: Rows, step: Step) -> Rows:
        """The rows that pass everything that can be checked now that the step's variable is bound."""
        found = self.space.candidates[step.variable]
        if not found.are_points:
            rows = self._inside(rows, step.end, self.space.value(end_of(step.variable), rows))
            for absence in step.earliest:
                rows = rows.where(self.space.value(end_of(step.variable), rows) >= self._earliest_end(absence, rows))
        if not step.position.open:
            assert found.positions is not None
            rows = self._inside(rows, step.position, found.positions[rows.places[step.variable]])
        for x, y in step.distinct:
            rows = rows.where(self._event_of(x, rows) != self._event_of(y, rows))
        for condition in step.conditions:
            if rows.length:
                rows = rows.where(self.space.holds(condition, rows))
        for absence in step.checks:
            rows = rows.where(self._is_absent(absence, rows))
        return rows

    def _inside(self, rows: Rows, bounds: Range, values: Int64s) -> Rows:
        low, high = self.space.limits(bounds, rows)
        mask = np.ones(rows.length, bool)
        if low is not None:
            mask &= values >= low
        if high is not None:
            mask &= values <= high
        return rows.where(mask)

    def _event_of(self, name: str, rows: Rows) -> Codes:
        return self.space.candidates[name].rows[rows.places[name]]

    # -- absences --------------------------------------------------------------------------------------------------

    def _without_forbidden(self, rows: Rows) -> Rows:
        """The complete rows for which no absence that is judged match by match is violated."""
        for absence in self.space.plan.absences:
            if rows.length and not (self.space.options.earliest_completion and absence.lower is not None):
                rows = rows.where(~self._join_of(absence).exist(rows))
        return rows

    def _is_absent(self, absence: AbsencePlan, rows: Rows) -> Mask:
        assert absence.lower is not None and absence.upper is not None
        earliest = self._summary(absence).earliest_completion(self.space.keys(rows), self._side(absence.lower, rows))
        return earliest > self._side(absence.upper, rows)

    def _side(self, side: Side, rows: Rows) -> Int64s:
        combine = np.maximum if side.greatest else np.minimum
        values: Int64s = combine.reduce([self.space.value(point, rows) for point in side.points])
        return values + side.shift

    def _join_of(self, absence: AbsencePlan) -> Join:
        if id(absence) not in self.inner:
            self.inner[id(absence)] = Join(self.space.inside(absence.graph), self.summaries)
        return self.inner[id(absence)]

    def _summary(self, absence: AbsencePlan) -> Summary:
        """Computed once per evaluation and absence, over all keys."""
        if id(absence) not in self.summaries:
            alone = Join(self.space.alone(absence.graph), self.summaries)
            alone.prune()
            self.summaries[id(absence)] = (
                summarize_chain(alone.space, absence.chain)
                if absence.chain
                else summarize_matches(alone.space, alone.matches())
            )
        return self.summaries[id(absence)]

    # -- pruning ---------------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Drops candidates without partners, by semi-joins both ways in time, if the first join would grow."""
        graph = self.space.plan.graph
        if not self.space.options.prune or len(graph.variables) < 3 or not self._grows():
            return
        names = precedence(graph)
        forward = list(zip(names[1:], names, strict=False))
        backward = list(zip(reversed(names[:-1]), reversed(names), strict=False))
        for name, partner in chain(forward, backward):
            self._keep_those_with(name, partner)

    def _grows(self) -> bool:
        first, second = self._order(frozenset())[:2]
        begin, end = self._partner_ranges(first, second)
        pairs = int((end.astype(np.int64) - begin).sum())
        return pairs > len(self.space.candidates[first]) + len(self.space.candidates[second])

    def _keep_those_with(self, name: str, partner: str) -> None:
        first, last = self._partner_ranges(name, partner)
        self.space.restrict(name, last > first)

    def _partner_ranges(self, name: str, partner: str) -> tuple[Codes, Codes]:
        count = len(self.space.candidates[name])
        rows = Rows(count, {name: np.arange(count, dtype=np.int32)})
        first, last, _ = self._ranges(rows, self._step(partner, frozenset({name})))
        return first, last


def _filled(low: Int64s | None, high: Int64s | None, length: int) -> tuple[Int64s, Int64s]:
    """Limits for a search: an open side reaches from the beginning or to the end of time."""
    return (
        np.full(length, NEVER, np.int64) if low is None else low,
        np.full(length, FOREVER, np.int64) if high is None else high,
    )
