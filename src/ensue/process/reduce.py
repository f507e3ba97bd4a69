"""Constraints for reading: without those that follow from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ensue.nodes.constraints import Constraint, Ends, Exclusive, Prior, Require

Pair = TypeVar("Pair", Prior, Exclusive, Require)


def reduce_constraints(constraints: tuple[Constraint, ...], tasks: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Leaves out, one at a time, each constraint that follows from those still there:

    - `ENDS(b)` gives `PRIOR(a, b)`;
    - `PRIOR(a, b)` and `PRIOR(b, c)` give `PRIOR(a, c)` if `REQUIRE(a, b)` or `REQUIRE(c, b)`;
    - `REQUIRE(a, b)` and `REQUIRE(b, c)` give `REQUIRE(a, c)`;
    - `REQUIRE(a, b)` and `EXCLUSIVE(b, c)` give `EXCLUSIVE(a, c)`.

    Each step keeps what all of them say together. Far pairs go first, so what is left speaks of neighbours.
    """
    order = {task: number for number, task in enumerate(tasks)}
    requires = {item for item in constraints if isinstance(item, Require)}
    ending = {task for item in constraints if isinstance(item, Ends) for task in item.streams}

    def follows_prior(prior: Prior, rest: set[Prior]) -> bool:
        first, last = prior.streams
        return last in ending or any(
            Prior(first, task) in rest
            and Prior(task, last) in rest
            and (Require(first, task) in requires or Require(last, task) in requires)
            for task in tasks
        )

    def follows_require(require: Require, rest: set[Require]) -> bool:
        first, last = require.streams
        return any(Require(first, task) in rest and Require(task, last) in rest for task in tasks)

    def follows_exclusive(exclusive: Exclusive, rest: set[Exclusive]) -> bool:
        one, other = exclusive.streams
        return any(
            (Require(one, task) in requires and _exclude(task, other, order) in rest)
            or (Require(other, task) in requires and _exclude(task, one, order) in rest)
            for task in tasks
        )

    kept: set[Constraint] = {
        *_thin((item for item in constraints if isinstance(item, Prior)), follows_prior, order),
        *_thin((item for item in constraints if isinstance(item, Exclusive)), follows_exclusive, order),
        *_thin(requires, follows_require, order),
    }
    return tuple(item for item in constraints if item in kept or isinstance(item, Ends))


def _thin(pairs: Iterable[Pair], follows: Callable[[Pair, set[Pair]], bool], order: dict[str, int]) -> set[Pair]:
    rest = set(pairs)

    def nearness(pair: Pair) -> tuple[int, int, int]:
        one, other = (order[task] for task in pair.streams)
        return -abs(one - other), one, other

    for pair in sorted(rest, key=nearness):
        rest.discard(pair)
        if not follows(pair, rest):
            rest.add(pair)
    return rest


def _exclude(one: str, other: str, order: dict[str, int]) -> Exclusive:
    return Exclusive((one, other) if order[one] < order[other] else (other, one))
