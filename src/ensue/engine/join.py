"""Enumerates the matches of a graph: one variable after the other, over arrays of all keys, in bounded chunks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np

from ensue.engine.collections import fits, holds_for_lists, holds_successively, lists_of
from ensue.engine.compiled_graph import JoinStep, Range, own_conditions, plan_moment, plan_step
from ensue.engine.events import FOREVER, NEVER, Candidates
from ensue.engine.rows import Elements, Lists, Rows, concatenate_with_origin, expand_in_chunks
from ensue.engine.sources import Mask
from ensue.engine.workspace import EqualityClass, Workspace
from ensue.expr.lists import has_prev
from ensue.graph.bounds import end_of, start_of
from ensue.graph.graphs import Moment
from ensue.kernels.compiler import Codes, Int64s
from ensue.kernels.ranges import find_ranges, lower_to, sliding_minimum, suffix_minimum, value_from, value_until
from ensue.kernels.sorted_runs import group_by_key, order_by_time
from ensue.nodes.expressions import Expr, variables_of
from ensue.nodes.names import Name
from ensue.plan.planner import join_order, precedence
from ensue.plan.plans import AbsencePlan, CollectionPlan, GraphPlan, Side

FEW_PAIRS = 1 << 17
"""Up to this number of pairs, two variables are joined directly: searching for events without partners would take
longer. With more variables, pairs that lead nowhere multiply."""

FIRST_BLOCK = 16
BLOCK_GROWTH = 4
MOST_MOMENTS = np.iinfo(np.int32).max
"""The number of forbidden candidates that are tried first per match, and its growth while none is found."""


@dataclass(slots=True)
class Join:
    """The enumeration of one graph in one workspace, with the joins of the absences inside it.

    `summaries` are shared by all joins of an evaluation, because they do not depend on the outer match.
    """

    space: Workspace
    summaries: dict[int, Summary]
    inner: dict[int, Join] = field(default_factory=dict)
    steps_of_existence: list[JoinStep] | None = None

    # -- enumeration -----------------------------------------------------------------------------------------------

    def matches(self) -> Iterator[Rows]:
        """Every match of the graph, in chunks."""
        order = list(self.space.plan.graph.succession) or self._order(frozenset())
        steps = self._steps(order)
        count = len(self.space.candidates[order[0]])
        for begin in range(0, count, self.space.options.chunk_rows):
            places = np.arange(begin, min(begin + self.space.options.chunk_rows, count), dtype=np.int32)
            seeds = self._filter(Rows(len(places), {order[0]: places}), steps[0])
            yield from self._extend(seeds, steps[1:])

    def exist(self, rows: Rows) -> Mask:
        """The outer matches that have at least one match of this (forbidden) graph in scope."""
        found = np.zeros(rows.length, bool)
        if self.steps_of_existence is None:
            self.steps_of_existence = self._steps(self._order(self.space.sight.outer))
        steps = self.steps_of_existence
        first, last, classes = self._ranges(rows, steps[0])
        last = np.where(self._premises_hold(rows), last, first)
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

    def _order(self, bound: frozenset[Name]) -> list[Name]:
        graph = self.space.plan.graph
        if not self.space.options.reorder:
            return list(graph.names)
        counts = {name: len(self.space.candidates[name]) for name in graph.names}
        # Orders differ by magnitudes; that of one magnitude is known from the first step that met it.
        wanted = (bound, *(count.bit_length() for count in counts.values()))
        known = self.space.compiled.orders
        if wanted not in known:
            known[wanted] = join_order(graph, counts, self.space.store.span, bound)
        return known[wanted]

    def _steps(self, order: list[Name]) -> list[JoinStep]:
        return [self._step(name, frozenset(order[:place])) for place, name in enumerate(order)]

    def _step(self, name: Name, bound: frozenset[Name]) -> JoinStep:
        space, options = self.space, self.space.options
        # Which equalities are join keys depends on the data: the others are conditions.
        keyed = space.keyed_classes() if space.plan.graph.equalities else ()
        points = space.candidates[name].are_points
        wanted = (name, bound, space.sight, keyed, options.earliest_completion, space.deferred, points)
        known = space.compiled.steps
        if wanted not in known:
            graph = space.plan.graph
            conditions = self._residual_conditions(name, bound) if graph.equalities else graph.conditions
            early = options.earliest_completion and not space.plan.graph.succession
            for deferred in space.deferred:
                conditions = [*conditions, *own_conditions(graph, deferred)]
            known[wanted] = plan_step(space.plan, name, bound, space.sight, conditions, early, points)
        return known[wanted]

    def _residual_conditions(self, name: Name, bound: frozenset[Name]) -> list[Expr]:
        """The conditions that the join key of this step does not cover."""
        graph = self.space.plan.graph
        classes = self.space.join_classes(name, bound | self.space.sight.outer)
        keyed = {member for group in classes for member in group.members}
        left = [
            equality.condition
            for equality in graph.equalities
            if (equality.left.variable, equality.left.name) not in keyed
        ]
        return [*graph.conditions, *left]

    def _extend(self, rows: Rows, steps: list[JoinStep]) -> Iterator[Rows]:
        """The rows with every remaining variable bound and no absence violated."""
        if rows.length == 0:
            return
        if not steps:
            if self.space.compiled.all_judged and self.space.options.earliest_completion:
                yield rows
                return
            for timed in self._with_moments(rows, self.space.plan.graph.repeated):
                complete = self._with_lists(self._without_forbidden(self._filter_late(self._in_succession(timed))))
                if complete.length:
                    yield complete
            return
        first, last, classes = self._ranges(rows, steps[0])
        if self.space.plan.graph.succession:
            yield from self._extend(self._bind_next(rows, steps[0], first, last, classes), steps[1:])
            return
        for extended in self._bind(rows, steps[0], first, last, classes):
            yield from self._extend(extended, steps[1:])

    def _bind(
        self, rows: Rows, step: JoinStep, first: Codes, last: Codes, classes: tuple[EqualityClass, ...]
    ) -> Iterator[Rows]:
        """The rows extended by every event in their range that passes the checks of this step."""
        for probes, places in expand_in_chunks(first, last, self.space.options.chunk_rows):
            if classes:
                places = self.space.index(step.variable, classes).order[places]
            yield self._filter(rows.bind(step.variable, probes, places), step)

    def _bind_next(
        self, rows: Rows, step: JoinStep, first: Codes, last: Codes, classes: tuple[EqualityClass, ...]
    ) -> Rows:
        """The rows extended by the earliest event in their range that passes; rows without one are left out."""
        found = self.space.candidates[step.variable]
        ranks, by_rank = _ranked(found, self.space)
        best = np.full(rows.length, len(found), np.int64)
        active = np.flatnonzero(last > first).astype(np.int32)
        block = FIRST_BLOCK if found.are_points else len(found)
        while len(active):
            stop = np.minimum(last[active], first[active].astype(np.int64) + block).astype(np.int32)
            tried = Rows(len(active), rows.take(active).places, active)
            for extended in self._bind(tried, step, first[active], stop, classes):
                assert extended.origin is not None
                np.minimum.at(best, extended.origin, ranks[extended.places[step.variable]])
            first[active] = stop
            active = active[(best[active] == len(found)) & (stop < last[active])]
            block *= BLOCK_GROWTH
        kept = np.flatnonzero(best < len(found)).astype(np.int32)
        return rows.bind(step.variable, kept, by_rank[best[kept]])

    # -- moments ---------------------------------------------------------------------------------------------------

    def _with_moments(self, rows: Rows, repeated: Sequence[Moment]) -> Iterator[Rows]:
        """The rows with every choice of the repeated moments."""
        if not repeated:
            yield rows
            return
        moment = repeated[0]
        base = self.space.value(moment.base, rows)
        low, high = self._moment_limits(moment, rows)
        first = np.maximum(1, -((base - low) // moment.ticks))
        last = (high - base) // moment.ticks + 1
        first, last = (np.clip(numbers, 0, MOST_MOMENTS).astype(np.int32) for numbers in (first, last))
        for probes, numbers in expand_in_chunks(first, last, self.space.options.chunk_rows):
            yield from self._with_moments(rows.bind(moment.name, probes, numbers), repeated[1:])

    def _moment_limits(self, moment: Moment, rows: Rows) -> tuple[Int64s, Int64s]:
        """The range of a moment in each row: within its bounds, the known time, and before it would be forbidden."""
        space = self.space
        low, high = space.limits(self._moment_range(moment.name), rows)
        if low is None:
            low = space.value(moment.base, rows)
        if space.earliest is not None and space.plan.graph.extent.ends == (moment.name,):
            low = np.maximum(low, space.earliest)
        known = space.horizon if space.latest is None and not moment.ended else space.latest
        if known is not None:
            high = np.minimum(known, FOREVER if high is None else high)
        assert high is not None
        for absence in space.plan.absences:
            if self._is_summarized(absence) and _forbids_later(absence, moment):
                assert absence.lower is not None and absence.upper is not None
                closed = self._earliest_completion(absence, rows)
                if space.store.order is not None:
                    closed = space.store.order.time_of(closed)
                high = np.minimum(high, closed - 1 - absence.upper.shift)
        return low, high

    def _moment_range(self, name: Name) -> Range:
        wanted = (name, self.space.sight.outer, self.space.sight)
        known = self.space.compiled.ranges
        if wanted not in known:
            repeated = [moment.name for moment in self.space.plan.graph.repeated]
            earlier = frozenset(repeated[: repeated.index(name)])
            known[wanted] = plan_moment(self.space.plan, name, earlier, self.space.sight)
        return known[wanted]

    def _in_succession(self, rows: Rows) -> Rows:
        """The rows whose rounds at the same place are in the order of content, so that each set of rounds is found
        once."""
        for earlier, later in self.space.plan.successive:
            places = [
                self.space.place(point, rows) for name in (*earlier, *later) for point in (start_of(name), end_of(name))
            ]
            ranks = [self._total_rank(name, rows) for name in (earlier[0], later[0])]
            together = np.logical_and.reduce([places[0] == place for place in places[1:]])
            rows = rows.where(~together | (ranks[0] < ranks[1]))
        return rows

    def _total_rank(self, name: Name, rows: Rows) -> Int64s:
        """A number for each event that no other event has, increasing with its content."""
        found = self.space.candidates[name]
        events, content = found.rows[rows.places[name]], self.space.ties(found)[rows.places[name]]
        return content * (1 + len(found.source.starts)) + events

    def _filter_late(self, rows: Rows) -> Rows:
        """The rows that pass the conditions on moments."""
        graph = self.space.plan.graph
        names = {moment.name for moment in graph.repeated}
        if not names:
            return rows
        for condition in graph.conditions:
            if rows.length and variables_of(condition) & names:
                rows = rows.where(self.space.holds(condition, rows))
        return rows

    # -- ranges ----------------------------------------------------------------------------------------------------

    def _ranges(self, rows: Rows, step: JoinStep) -> tuple[Codes, Codes, tuple[EqualityClass, ...]]:
        """For each row, the places of the step's variable that its bounds, join keys and deadlines allow."""
        space = self.space
        found = space.candidates[step.variable]
        bound = frozenset(rows.places)
        low, high = self._start_limits(rows, step)
        lows = np.full(rows.length, NEVER, np.int64) if low is None else low
        highs = np.full(rows.length, FOREVER, np.int64) if high is None else high
        classes = space.join_classes(step.variable, bound) if space.plan.graph.equalities else ()
        if classes:
            index = space.index(step.variable, classes)
            segments = space.segments(step.variable, classes, bound, rows)
            first, last = find_ranges(segments, lows, highs, index.offsets, index.starts)
        else:
            first, last = find_ranges(space.keys(rows), lows, highs, found.offsets, found.start_places)
            if not step.position.open and found.are_points:
                first, last = self._within_positions(rows, step, first, last)
        return first, last, classes

    def _within_positions(self, rows: Rows, step: JoinStep, first: Codes, last: Codes) -> tuple[Codes, Codes]:
        """Narrows the ranges by position: candidates without an end column are sorted by position."""
        found = self.space.candidates[step.variable]
        assert found.positions is not None
        low, high = self.space.limits(step.position, rows)
        lows = np.full(rows.length, NEVER, np.int64) if low is None else low
        highs = np.full(rows.length, FOREVER, np.int64) if high is None else high
        begin, end = find_ranges(self.space.keys(rows), lows, highs, found.offsets, found.positions)
        return np.maximum(first, begin), np.minimum(last, end)

    def _start_limits(self, rows: Rows, step: JoinStep) -> tuple[Int64s | None, Int64s | None]:
        low, high = self.space.place_limits(step.start, rows)
        for absence in step.deadlines:
            assert absence.lower is not None and absence.upper is not None
            latest = self._earliest_completion(absence, rows)
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

    def _needs_no_filter(self, step: JoinStep) -> bool:
        found = self.space.candidates[step.variable]
        plan = self.space.plan
        ranged = found.are_points and (step.position.open or not self._keyed(step))
        late = plan.absences or plan.collections or plan.graph.repeated or plan.successive
        return ranged and not (step.conditions or step.distinct or step.checks or late)

    def _keyed(self, step: JoinStep) -> bool:
        return bool(self.space.join_classes(step.variable, self.space.sight.outer))

    def _filter(self, rows: Rows, step: JoinStep) -> Rows:
        """The rows that pass all checks that are possible after binding the step's variable."""
        found = self.space.candidates[step.variable]
        if not found.are_points:
            limits = self.space.place_limits(step.end, rows)
            rows = self._inside(rows, *limits, self.space.place(end_of(step.variable), rows))
            for absence in step.earliest:
                rows = rows.where(self.space.place(end_of(step.variable), rows) >= self._earliest_end(absence, rows))
        if not step.position.open:
            assert found.positions is not None
            limits = self.space.limits(step.position, rows)
            rows = self._inside(rows, *limits, found.positions[rows.places[step.variable]])
        for x, y in step.distinct:
            if self.space.candidates[x].source.origin is self.space.candidates[y].source.origin:
                rows = rows.where(self._event_of(x, rows) != self._event_of(y, rows))
        for condition in step.conditions:
            if rows.length:
                rows = rows.where(self.space.holds(condition, rows))
        for absence in step.checks:
            rows = rows.where(self._is_absent(absence, rows))
        return rows

    def _inside(self, rows: Rows, low: Int64s | None, high: Int64s | None, values: Int64s) -> Rows:
        mask = np.ones(rows.length, bool)
        if low is not None:
            mask &= values >= low
        if high is not None:
            mask &= values <= high
        return rows.where(mask)

    def _event_of(self, name: Name, rows: Rows) -> Codes:
        return self.space.candidates[name].rows[rows.places[name]]

    # -- absences --------------------------------------------------------------------------------------------------

    def _without_forbidden(self, rows: Rows) -> Rows:
        """The complete rows that violate none of the absences that no step has checked."""
        graph = self.space.plan.graph
        moments = {moment.name for moment in graph.repeated}
        for absence in self.space.plan.absences:
            if rows.length and self._is_summarized(absence):
                if graph.succession or _is_about(absence, moments):
                    rows = rows.where(self._is_absent(absence, rows))
            elif rows.length:
                rows = rows.where(~self._join_of(absence).exist(rows))
        return rows

    def _is_summarized(self, absence: AbsencePlan) -> bool:
        return self.space.options.earliest_completion and absence.lower is not None

    def _is_absent(self, absence: AbsencePlan, rows: Rows) -> Mask:
        assert absence.lower is not None and absence.upper is not None
        earliest = self._earliest_completion(absence, rows)
        return earliest > self._side(absence.upper, rows)

    def _earliest_completion(self, absence: AbsencePlan, rows: Rows) -> Int64s:
        """The earliest completion of a forbidden match that starts in the scope."""
        assert absence.lower is not None
        lower = self._side(absence.lower, rows, opens=True)
        return self._summary(absence).earliest_completion(self.space.keys(rows), lower)

    def _side(self, side: Side, rows: Rows, opens: bool = False) -> Int64s:
        """The place in the order of events where a scope begins or ends."""
        combine = np.maximum if side.greatest else np.minimum
        value = self.space.value if side.in_time else self.space.place
        values: Int64s = combine.reduce([value(point, rows) for point in side.points]) + side.shift
        order = self.space.store.order
        if not side.in_time or order is None:
            return values
        return order.at_least(values) if opens else order.at_most(values)

    def _join_of(self, absence: AbsencePlan) -> Join:
        return self._join_inside(id(absence), absence.graph)

    def _join_inside(self, number: int, plan: GraphPlan) -> Join:
        if number not in self.inner:
            self.inner[number] = Join(self.space.inside(plan), self.summaries)
        return self.inner[number]

    def _summary(self, absence: AbsencePlan) -> Summary:
        """The summary of an absence, computed once per evaluation over all keys."""
        if id(absence) not in self.summaries:
            variables = absence.graph.graph.variables
            question: Hashable
            if len(absence.chain) == 1 == len(variables):
                # What forbids one event is the same for all queries.
                question = absence.graph.graph.question(variables[0])
                self.summaries[id(absence)] = self.space.store.once(("summary", question), lambda: self._made(absence))
            elif id(absence.graph) in self.space.store.compiled.alike:
                question = self.space.store.compiled.alike[id(absence.graph)]
                self.summaries[id(absence)] = self.space.store.once(("summary", question), lambda: self._made(absence))
            else:
                self.summaries[id(absence)] = self._made(absence)
        return self.summaries[id(absence)]

    def _made(self, absence: AbsencePlan) -> Summary:
        alone = Join(self.space.alone(absence.graph), self.summaries)
        if len(absence.graph.graph.variables) > 2:
            alone.prune()
        if absence.chain:
            return summarize_chain(alone.space, absence.chain)
        return summarize_matches(alone.space, alone.matches())

    # -- collections -----------------------------------------------------------------------------------------------

    def _with_lists(self, rows: Rows) -> Rows:
        """The complete rows with their collections, if needed, that satisfy the requirements on lists."""
        plan = self.space.plan
        for collection in plan.collections:
            if rows.length and collection.needed:
                found = self._list(collection, rows)
                rows = Rows(rows.length, rows.places, rows.origin, {**rows.lists, collection.collection.name: found})
                if self.space.store.is_certain:
                    rows = rows.where(fits(collection, found))
        return self._where_lists_hold(rows) if self.space.store.is_certain else rows

    def where_lists_fit(self, rows: Rows) -> Rows:
        """The rows whose collections satisfy the requirements; collections not built yet are checked when they are
        built."""
        for collection in self.space.plan.collections:
            if collection.needed and collection.collection.threat is None:
                rows = rows.where(fits(collection, rows.lists[collection.collection.name]))
        return self._where_lists_hold(rows)

    def _where_lists_hold(self, rows: Rows) -> Rows:
        for condition in self.space.plan.graph.list_conditions:
            if rows.length:
                rows = rows.where(self._holds_for_lists(condition, rows))
        return rows

    def _list(self, plan: CollectionPlan, rows: Rows) -> Lists:
        parts: list[Elements] = []
        if plan.collection.threat is not None and self.space.store.is_certain:
            return lists_of(parts, rows.length, plan.collection.names)
        around = Rows(rows.length, rows.places, np.arange(rows.length, dtype=np.int32))
        for graph in plan.graphs:
            join = self._join_inside(id(graph), graph)
            found = list(join.all_matches(around))
            if found:
                parts.append(Elements(join.space, concatenate_with_origin(found)))
        return lists_of(parts, rows.length, plan.collection.names)

    def all_matches(self, rows: Rows) -> Iterator[Rows]:
        """Every match of this graph in the scope of the outer matches."""
        steps = self._steps(self._order(self.space.sight.outer))
        yield from self._extend(rows.where(self._premises_hold(rows)), steps)

    def _premises_hold(self, rows: Rows) -> Mask:
        """The outer matches for which this graph can have a match."""
        mask = np.ones(rows.length, bool)
        for bound in self.space.plan.graph.premises:
            value = self.space.place if bound.limit.ordered else self.space.value
            most = bound.limit.places if bound.limit.ordered else bound.limit.whole
            mask &= value(bound.left, rows) - value(bound.right, rows) <= most
        return mask

    def _holds_for_lists(self, condition: Expr, rows: Rows) -> Mask:
        if not has_prev(condition):
            return holds_for_lists(condition, self.space, rows, self.space.expression_type)
        names = variables_of(condition)
        found = next(plan.collection for plan in self.space.plan.collections if names & set(plan.collection.names))
        return holds_successively(condition, found.name, found.names, rows)

    # -- pruning ---------------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Drops candidates without partners, by semi-joins in both directions of time, if the first join would grow."""
        graph = self.space.plan.graph
        if graph.succession or not self.space.options.prune:
            return
        counts = sorted(len(self.space.candidates[name]) for name in graph.names)
        if (len(counts) == 3 and counts[0] * counts[2] <= FEW_PAIRS) or not self._grows():
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

    def _keep_those_with(self, name: Name, partner: Name) -> None:
        first, last = self._partner_ranges(name, partner)
        self.space.restrict(name, last > first)

    def _partner_ranges(self, name: Name, partner: Name) -> tuple[Codes, Codes]:
        count = len(self.space.candidates[name])
        rows = Rows(count, {name: np.arange(count, dtype=np.int32)})
        first, last, _ = self._ranges(rows, self._step(partner, frozenset({name})))
        return first, last


def _ranked(found: Candidates, space: Workspace) -> tuple[Int64s, Codes]:
    """The rank of each candidate in the order of (end, start, content), and the candidate of each rank."""
    by_rank = np.lexsort((found.rows, space.ties(found), found.start_places, found.end_places)).astype(np.int32)
    ranks = np.empty(len(found), np.int64)
    ranks[by_rank] = np.arange(len(found))
    return ranks, by_rank


def _is_about(absence: AbsencePlan, names: set[Name]) -> bool:
    assert absence.lower is not None and absence.upper is not None
    return bool(names & (absence.lower.variables | absence.upper.variables))


def _forbids_later(absence: AbsencePlan, moment: Moment) -> bool:
    """Whether the forbidden match is before the moment, so that all later moments are forbidden too."""
    assert absence.lower is not None and absence.upper is not None
    return absence.upper.points == (end_of(moment.name),) and moment.name not in absence.lower.variables


# -- absence without enumeration ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """Per key, the starts of forbidden matches in order, and for each the earliest completion from there on.

    Both are places in the order of events. Both arrays increase within a key, so each can be searched by the other.
    """

    offsets: Int64s
    starts: Int64s
    completions: Int64s

    def earliest_completion(self, keys: Codes, lower: Int64s) -> Int64s:
        """The earliest completion among the forbidden matches that start at or after `lower`."""
        return value_from(keys, lower, self.offsets, self.starts, self.completions, FOREVER)

    def latest_start(self, keys: Codes, upper: Int64s) -> Int64s:
        """The latest start among the forbidden matches that complete at or before `upper`."""
        return value_until(keys, upper, self.offsets, self.completions, self.starts, NEVER)


def summarize_chain(space: Workspace, chain: tuple[Name, ...]) -> Summary:
    """The summary of a sequence: backwards from the last item, the minimum over the successors in range."""
    times, order = space.plan.graph.times, space.store.order
    completions = space.candidates[chain[-1]].end_places
    for name, following in reversed(list(pairwise(chain))):
        here, there = space.candidates[name], space.candidates[following]
        gap = times.limit(start_of(name), start_of(following))
        reach = times.limit(start_of(following), start_of(name))
        assert gap is not None
        lows = here.starts - gap.whole
        highs = np.full(len(here), FOREVER, np.int64) if reach is None else here.starts + reach.whole
        if order is not None:
            lows = here.start_places - gap.places if gap.ordered else order.at_least(lows)
            highs = here.start_places + reach.places if reach is not None and reach.ordered else order.at_most(highs)
        first, last = find_ranges(here.keys, lows, highs, there.offsets, there.start_places)
        completions = sliding_minimum(completions, first, last, FOREVER)
    starts = space.candidates[chain[0]]
    total = times.limit(end_of(chain[-1]), start_of(chain[0]))
    possible = completions < FOREVER
    if total is not None and len(chain) > 1:
        latest = starts.starts + total.whole
        possible &= completions <= (latest if order is None else order.at_most(latest))
    if not possible.all():
        completions = completions[possible]
        starts = starts.select(possible)
    return Summary(starts.offsets, starts.start_places, suffix_minimum(completions, starts.offsets))


def summarize_matches(space: Workspace, matches: Iterable[Rows]) -> Summary:
    """The summary of enumerated forbidden matches: only the earliest completion per starting event is kept."""
    extent = space.plan.graph.extent
    earliest = {name: np.full(len(space.candidates[name]), FOREVER, np.int64) for name in extent.starts}
    for rows in matches:
        ends = np.maximum.reduce([space.place(end_of(name), rows) for name in extent.ends])
        starts = {name: space.place(start_of(name), rows) for name in extent.starts}
        least = np.minimum.reduce(list(starts.values()))
        for name, values in starts.items():
            first = values == least
            lower_to(earliest[name], rows.places[name][first], ends[first])
    return _merge([(space.candidates[name], found) for name, found in earliest.items()], space.store.key_count)


def _merge(parts: list[tuple[Candidates, Int64s]], key_count: int) -> Summary:
    kept = [completions < FOREVER for _, completions in parts]
    keys = np.concatenate([found.keys[mask] for (found, _), mask in zip(parts, kept, strict=True)])
    starts = np.concatenate([found.start_places[mask] for (found, _), mask in zip(parts, kept, strict=True)])
    completions = np.concatenate([ends[mask] for (_, ends), mask in zip(parts, kept, strict=True)])
    if len(parts) > 1:
        order = order_by_time(starts)
        keys, starts, completions = keys[order], starts[order], completions[order]
    order, offsets = group_by_key(keys, key_count)
    return Summary(offsets, starts[order], suffix_minimum(completions[order], offsets))
