"""Conditions on time that are difference bounds: `b.t - a.t <= 5 minutes`, `a.e < b.s`, `a.t = b.t`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ensue.graph.bounds import Bound, Limit, Point, Reason, TimeScale
from ensue.nodes.expressions import Between, Binary, Duration, Expr, Field, Literal, Unary

PointOf = Callable[[Field], Point | None]
"""The point of a field that is a time, None for other fields."""

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of points with whole coefficients plus a constant, in nanoseconds or, for integer time, in ticks."""

    terms: tuple[tuple[Point, int], ...]
    constant: int

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        total = dict(self.terms)
        for point, count in other.terms:
            total[point] = total.get(point, 0) + sign * count
        return Linear(tuple((p, c) for p, c in total.items() if c), self.constant + sign * other.constant)


def bounds_of(condition: Expr, point_of: PointOf, scale: TimeScale, reason: Reason) -> tuple[Bound, ...]:
    """The bounds that say exactly what the condition says, or none if it is not of that kind."""
    if isinstance(condition, Between) and not condition.negated:
        low = bounds_of(Binary(">=", condition.operand, condition.low), point_of, scale, reason)
        high = bounds_of(Binary("<=", condition.operand, condition.high), point_of, scale, reason)
        return low + high if low and high else ()
    if not isinstance(condition, Binary) or condition.operator not in MIRRORED:
        return ()
    left, right = linear(condition.left, point_of, scale), linear(condition.right, point_of, scale)
    if left is None or right is None:
        return ()
    difference = left.plus(right, -1)
    if sorted(count for _, count in difference.terms) != [-1, 1]:
        return ()
    (first, count), (second, _) = difference.terms
    operator = condition.operator
    constant = -difference.constant
    if count < 0:
        operator, constant = MIRRORED[operator], -constant
    return _difference(first, second, operator, constant, scale, reason)


def _difference(
    first: Point, second: Point, operator: str, constant: int, scale: TimeScale, reason: Reason
) -> tuple[Bound, ...]:
    """`first - second operator constant`."""
    at_most = Bound(first, second, Limit(scale.floor(constant), False), reason)
    at_least = Bound(second, first, Limit(scale.floor(-constant), False), reason)
    match operator:
        case "<=":
            return (at_most,)
        case ">=":
            return (at_least,)
        case "=":
            return (at_most, at_least)
        case "<":
            return (Bound(first, second, Limit(scale.ceil(constant), True), reason),)
        case _:
            return (Bound(second, first, Limit(scale.ceil(-constant), True), reason),)


def linear(expr: Expr, point_of: PointOf, scale: TimeScale) -> Linear | None:
    """The expression as a linear one over points, None if it is not."""
    match expr:
        case Field():
            point = point_of(expr)
            return None if point is None else Linear(((point, 1),), 0)
        case Duration():
            return None if scale.unit is None else Linear((), expr.nanoseconds)
        case Literal(value=int(number)) if not isinstance(number, bool) and scale.unit is None:
            return Linear((), number)
        case Unary(operator="-"):
            operand = linear(expr.operand, point_of, scale)
            return None if operand is None else Linear((), 0).plus(operand, -1)
        case Binary(operator="+" | "-"):
            left, right = linear(expr.left, point_of, scale), linear(expr.right, point_of, scale)
            if left is None or right is None:
                return None
            return left.plus(right, 1 if expr.operator == "+" else -1)
        case _:
            return None
