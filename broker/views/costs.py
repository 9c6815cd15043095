"""What propagating the pending changes of a base table into a view takes: f(k) seconds for k changes.

Planners need three things of f (Xie (2007), section 2.2): f(0) = 0; it is *monotone*, f(k) <= f(k + 1); and it is
*subadditive*, f(j + k) <= f(j) + f(k): a batch takes no longer than its parts one by one. Measured times are noise and
have none of that, so what is learned from them is made to have it (C1 to C3 below).

    seconds
      |                          . '   beyond the largest batch seen: as much for each change as in that batch
      |                    . - o
      |          o - ' ' '              between: a line
      |- - - - o                       below the smallest batch seen: as much as that batch
      +------------------------------- changes (k)

    average cost falls:  f(k) / k never rises, and that makes f subadditive:
    f(j + k) = j f(j + k) / (j + k) + k f(j + k) / (j + k)  <=  j f(j) / j + k f(k) / k

Pure: whoever measures says what it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, isfinite, log
from typing import Protocol

import numpy as np

#: The largest batch that anything here speaks of: a cost that never grows has no largest one.
MOST = 1 << 48


class CostFunction(Protocol):
    """f: monotone, subadditive, f(0) = 0."""

    def of(self, k: int) -> float:
        """Seconds to propagate k pending changes."""

    def largest_within(self, limit_s: float) -> int:
        """The most changes that take at most so long (MOST: any number does); 0 if one takes longer."""


def largest_within(of: Callable[[int], float], limit_s: float) -> int:
    """The same for any monotone function, in O(log of the answer) calls."""
    if of(1) > limit_s:
        return 0
    low, high = 1, 2
    while of(high) <= limit_s:
        if high >= MOST:
            return MOST
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if of(middle) <= limit_s else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class LinearCost:
    """f(k) = row_s k + fixed_s for k > 0."""

    row_s: float
    fixed_s: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.row_s < float("inf") and 0 <= self.fixed_s < float("inf")):
            raise ValueError(f"costs must be 0 s or more, got {self.row_s} a row and {self.fixed_s} a batch")

    def of(self, k: int) -> float:
        return self.row_s * k + self.fixed_s if k else 0.0

    def largest_within(self, limit_s: float) -> int:
        return largest_within(self.of, limit_s)


@dataclass(frozen=True, slots=True)
class CheaperCost:
    """The lesser of two: of a change whose effects can be found in two ways. If f(k) / k falls for both, it does for
    the lesser."""

    one: CostFunction
    other: CostFunction

    def of(self, k: int) -> float:
        return min(self.one.of(k), self.other.of(k))

    def largest_within(self, limit_s: float) -> int:
        return max(self.one.largest_within(limit_s), self.other.largest_within(limit_s))


class CurveCost:
    """Lines between points (k, seconds), with k > 0 and rising.

    Points that are not monotone, or whose average rises, are moved as little as necessary, by weight: see `shaped`.

    Invariants (`check`):
      C1  f(0) = 0, and f(k) > 0 for k > 0.
      C2  f is monotone.
      C3  f(k) / k never rises; hence f is subadditive.

    Cost for p points: O(p) to make, O(log p) for `of`.
    """

    def __init__(
        self, points: Sequence[tuple[float, float]], weights: Sequence[float] | None = None, upto: float = 0.0
    ) -> None:
        """`upto`: how far the last line goes on, if that is beyond the last point."""
        if not points:
            raise ValueError("a curve needs a point (changes, seconds)")
        if not all(k > 0 and s > 0 and isfinite(k) and isfinite(s) for k, s in points):
            raise ValueError(f"points must be positive (changes, seconds), got {list(points)}")
        if any(k >= after for (k, _), (after, _) in pairwise(points)):
            raise ValueError(f"points must be in the order of their changes, got {list(points)}")
        self.ks = [k for k, _ in points]
        self.seconds = shaped(points, weights or [1.0] * len(points))
        if upto > self.ks[-1] and len(points) > 1:
            slope = (self.seconds[-1] - self.seconds[-2]) / (self.ks[-1] - self.ks[-2])
            self.seconds.append(self.seconds[-1] + slope * (upto - self.ks[-1]))
            self.ks.append(upto)
        slopes = [(t - s) / (k - j) for (j, k), (s, t) in zip(pairwise(self.ks), pairwise(self.seconds), strict=True)]
        self._slopes = [*slopes, self.seconds[-1] / self.ks[-1]]

    def of(self, k: int) -> float:
        if k <= 0:
            return 0.0
        at = bisect_right(self.ks, k) - 1
        if at < 0:
            return self.seconds[0]
        return self.seconds[at] + self._slopes[at] * (k - self.ks[at])

    def largest_within(self, limit_s: float) -> int:
        return largest_within(self.of, limit_s)

    def check(self) -> None:
        """Raise AssertionError if C1 to C3 do not hold (up to rounding) at the points and on the lines."""
        assert self.of(0) == 0 < self.of(1), "C1"
        ks = sorted({int(k) + step for k in self.ks for step in (0, 1)} | {1, 2 * int(self.ks[-1]) + 2})
        ks = [k for k in ks if k > 0]
        for k, after in pairwise(ks):
            assert self.of(k) <= self.of(after) * (1 + 1e-9), f"C2 at {k} and {after}"
            assert self.of(k) / k >= self.of(after) / after * (1 - 1e-9), f"C3 at {k} and {after}"


def shaped(points: Sequence[tuple[float, float]], weights: Sequence[float]) -> list[float]:
    """The seconds of points, moved so that they rise with k (C2) and seconds / k falls (C3).

    In logarithms: y rises, and z = y - log k falls. Neighbours that do not are pooled to their weighted mean (pool
    adjacent violators), first for y and then for z. The second keeps what the first made: the last member of a
    block has a z of at least the mean, the first member of the next block one of at most its mean, so the step of
    the means in y is at least the step between these two members, which was not negative.
    """
    x = [log(k) for k, _ in points]
    y = _rising([log(s) for _, s in points], weights)
    z = _rising([u - v for u, v in zip(x, y, strict=True)], weights)  # - z rises
    return [exp(u - v) for u, v in zip(x, z, strict=True)]


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising sequence nearest to the values, by weighted squares."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        count = 1
        while blocks and blocks[-1][0] > value:
            mean, other, more = blocks.pop()
            value = (mean * other + value * weight) / (other + weight)
            weight, count = other + weight, count + more
        blocks.append((value, weight, count))
    return [mean for mean, _, count in blocks for _ in range(count)]


# -- learned ---------------------------------------------------------------------------------------------------


class LearnedCost:
    """f of one base table of one view, learned from what propagations took, and never done learning.

    Batches are kept by their sizes in powers of two: of each such class the mean size and the mean time, in which a
    batch counts `MEMORY` of what it did after one more of its class. A class that no batch came to for long counts less
    and less against its neighbours (`LEAST` in the end): so costs may drift, upward or downward, and yet what large
    batches took is not forgotten where only small ones come. The curve through the means is a `CurveCost` (C1 to C3).

    Before the first measurement f is the line given as a guess.

    Cost: `of` a microsecond, `learn` some tens.
    """

    #: What a batch counts after one more of its class, and after one more of another class.
    MEMORY, ELSEWHERE = 0.9, 0.95
    #: A class counts at least so much: what large batches took is worth knowing when there were only small ones.
    LEAST = 0.02
    #: Times are at least this long, so that there is a logarithm.
    SHORTEST_S = 1e-9

    def __init__(self, fixed_s: float = 0.002, row_s: float = 1e-5) -> None:
        self._guess = LinearCost(row_s, fixed_s)
        self._classes: dict[int, list[float]] = {}  # by power of two: weight, mean size, mean seconds, largest size
        self._curve: CurveCost | LinearCost = self._guess
        self._line: tuple[float, float] | None = None  # `fitted`, until something is learned
        self.batches = 0

    def learn(self, rows: int, took_s: float) -> None:
        """So many changes were propagated in so long; nothing is learned of an empty batch."""
        if rows <= 0 or not took_s >= 0 or not isfinite(took_s):
            return
        took_s = max(took_s, self.SHORTEST_S)
        self.batches += 1
        which = rows.bit_length()
        for each, known in list(self._classes.items()):
            known[0] = max(self.LEAST, known[0] * (self.MEMORY if each == which else self.ELSEWHERE))
        mine = self._classes.setdefault(which, [0.0, 0.0, 0.0, 0.0])
        mine[0] += 1.0
        mine[1] += (rows - mine[1]) / mine[0]
        mine[2] += (took_s - mine[2]) / mine[0]
        mine[3] = max(mine[3], rows)
        self._draw()

    def _draw(self) -> None:
        self._line = None
        by_size = [self._classes[each] for each in sorted(self._classes)]
        self._curve = CurveCost([(k, s) for _, k, s, _ in by_size], [each[0] for each in by_size], by_size[-1][3])

    def kept(self) -> list[list[float]]:
        """What was learned, so that another one can begin with it: by class of sizes its weight, mean size, mean
        seconds and largest size."""
        return [list(self._classes[each]) for each in sorted(self._classes)]

    def begin_with(self, kept: Sequence[Sequence[float]]) -> None:
        """Begin with what another one had learned, before anything else is; ValueError if it is not what one keeps."""
        classes: dict[int, list[float]] = {}
        for weight, rows, seconds, largest in kept:
            good = all(isfinite(each) for each in (weight, rows, seconds, largest)) and seconds >= self.SHORTEST_S
            if not good or not (weight > 0 and 1 <= rows <= largest <= MOST) or int(rows).bit_length() in classes:
                raise ValueError(f"not what a cost keeps: {[weight, rows, seconds, largest]}")
            classes[int(rows).bit_length()] = [weight, rows, seconds, largest]
        if classes:
            self._classes = classes
            self.batches = len(classes)
            self._draw()

    def of(self, k: int) -> float:
        """Seconds that k changes are expected to take."""
        return self._curve.of(k)

    def largest_within(self, limit_s: float) -> int:
        return self._curve.largest_within(limit_s)

    @property
    def fitted(self) -> tuple[float, float]:
        """Seconds per batch, and per change: the line nearest to what was learned, for people; neither is negative."""
        if self._line is None:
            self._line = self._fitted()
        return self._line

    def _fitted(self) -> tuple[float, float]:
        if not self._classes:
            return self._guess.fixed_s, self._guess.row_s
        w, k, s, _ = np.array(list(self._classes.values())).T
        sizes, seconds = float(np.average(k, weights=w)), float(np.average(s, weights=w))
        spread = float(np.average((k - sizes) ** 2, weights=w))
        row_s = float(np.average((k - sizes) * (s - seconds), weights=w)) / spread if spread > 1e-9 * sizes**2 else 0.0
        row_s = min(max(row_s, 0.0), seconds / sizes)
        return max(0.0, seconds - row_s * sizes), row_s

    def check(self) -> None:
        """Raise AssertionError if C1 to C3 do not hold."""
        if isinstance(self._curve, CurveCost):
            self._curve.check()
