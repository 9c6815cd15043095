"""Mar and Hull reformulation, slow and obvious: straight from the definitions, over plain lists of points.

Everything speaks of MIN; MAX is the same with every y negated. See "Mar", "Hull" and "one rule for all" in the
notes on the thesis (chapter 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

Point = tuple[float, float]  # x, y


class Message(NamedTuple):
    """Who has OUTER_L < x1 <= INNER_L and INNER_R <= x2 < OUTER_R has the answer BEST now."""

    best: float
    inner_l: float
    inner_r: float
    outer_l: float
    outer_r: float

    def concerns(self, x1: float, x2: float) -> bool:
        """The predicate. An infinite OUTER is no bound at all."""
        return (
            (self.outer_l < x1 or self.outer_l == -inf)
            and x1 <= self.inner_l
            and self.inner_r <= x2
            and (x2 < self.outer_r or self.outer_r == inf)
        )


def messages(others: Iterable[Point], old: Point | None, new: Point | None, sign: float = 1.0) -> set[Message]:
    """What one update of one row says, given the other rows of its group; None: the row is not there."""
    rest = [(x, sign * y) for x, y in others]
    before = None if old is None else (old[0], sign * old[1])
    after = None if new is None else (new[0], sign * new[1])
    said = _messages(rest, before, after)
    assert len(set(said)) == len(said)
    return {message._replace(best=sign * message.best) for message in said}


def _messages(others: list[Point], old: Point | None, new: Point | None) -> list[Message]:
    said: list[Message] = []
    if old is not None:
        said += removal(old, others if new is None else [*others, new])
    if new is not None:
        interval = mar(new, others if old is None else [*others, old])
        if interval is not None:
            said.append(Message(new[1], new[0], new[0], *interval))
    return said


def mar(point: Point, points: Sequence[Point]) -> tuple[float, float] | None:
    """The largest open interval around x without a point at least as low; None where it is empty."""
    x0, y0 = point
    low = [x for x, y in points if y <= y0]
    if x0 in low:
        return None
    return max((x for x in low if x < x0), default=-inf), min((x for x in low if x > x0), default=inf)


def removal(point: Point, points: Sequence[Point]) -> list[Message]:
    """One message per hull point of what removing the point uncovers."""
    x0, y0 = point
    bounds = mar(point, points)
    if bounds is None:
        return []
    l, r = bounds
    peak = (x0, min((y for x, y in points if x == x0), default=inf))
    left, right = hull(peak, y0, points, -1), hull(peak, y0, points, +1)
    said = [Message(peak[1], x0, x0, left[0][0] if left else l, right[0][0] if right else r)]
    for i, (x, y) in enumerate(left):
        outer_l = left[i + 1][0] if i + 1 < len(left) else l
        outer_r = next((other for other, value in right if value < y), r)
        said.append(Message(y, x, x0, outer_l, outer_r))
    for i, (x, y) in enumerate(right):
        outer_l = next((other for other, value in left if value <= y), l)
        outer_r = right[i + 1][0] if i + 1 < len(right) else r
        said.append(Message(y, x0, x, outer_l, outer_r))
    return said


def hull(peak: Point, stop: float, points: Sequence[Point], step: int) -> list[Point]:
    """RHull (step +1) or LHull (-1), nearest first: each the first strictly lower, until one is <= stop."""
    lowest: dict[float, float] = {}
    for x, y in points:
        if step * x > step * peak[0]:
            lowest[x] = min(y, lowest.get(x, inf))
    found: list[Point] = []
    last = peak[1]
    for x in sorted(lowest, reverse=step < 0):
        if lowest[x] < last:
            if lowest[x] <= stop:
                break
            last = lowest[x]
            found.append((x, last))
    return found


def answers(points: Iterable[Point], xs: Sequence[float], sign: float = 1.0) -> dict[tuple[float, float], float]:
    """The answer of every range with ends among `xs`; an infinity where it holds no row."""
    held = list(points)
    return {
        (x1, x2): sign * min((sign * y for x, y in held if x1 <= x <= x2), default=inf)
        for x1 in xs
        for x2 in xs
        if x1 <= x2
    }
