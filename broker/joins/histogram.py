"""How many intervals hold x, nearly: step functions with few steps.

Xie (2007), section 4.4: inside a stabbing group the number of intervals that hold x rises up to the group's point and
falls behind it, so the best steps on each side are a weighted 1-d k-means of the counts, and the groups' step functions
are added up. What is done differently here, and why:

- Counts depend on the ends alone, not on which low end belongs to which high end. So both are sorted and the i-th low
  end is paired with the i-th high one. No interval lies inside another then, and there are no more groups than before
  (each new interval contains an old one; on the intervals of section 4.6.6: 7 groups instead of 400), a group is a
  stretch of the sorted ends, and nothing but two sorted columns need be kept.
- The error of a group counts relative to the *whole* count at x, since the sum is what is asked for; Xie (2007) divides
  by the group's own count. A count of 0 divides by 1: to estimate 2 where nobody is counts as an error of 2.
- The k-means is exact, by dynamic programming over at most 64 places of a side, not iterative; buckets go to
  the sides where they lower the error most (errors are convex in the number of buckets, so taking the best next one is
  optimal), not by cardinality.
- The sum of k steps has up to k + groups + 1 pieces, which would be compared with k pieces of an equal-width
  histogram. So the groups propose four times as many places as wanted, and the dynamic program that makes the optimal
  histogram of all places picks among these, and those of equal width: never worse than equal width, in squared error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.broker.joins.partition import canonical
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

#: Places on one side of a group that buckets may end at; up to so many places in all, all are looked at; how many
#: places the groups propose for each bucket; of how many groups (the largest) per bucket.
SIDE_PLACES, ALL_PLACES, PROPOSED, GROUPS_PER_BUCKET = 64, 256, 4, 1

#: Rebuilt when more than this share of the intervals changed, and at least so many.
REBUILD_SHARE, REBUILD_LEAST = 0.25, 16

#: Ends beyond this are as good as infinite: widths stay finite.
FARTHEST = 1e300


class Density(NamedTuple):
    """Where x is expected, by density: between edges[i] and edges[i + 1], `masses[i]` of the whole, evenly."""

    edges: Floats
    masses: Floats

    @staticmethod
    def uniform(low: float, high: float) -> Density:
        """Every place between low and high is as likely as any other."""
        return Density(np.array([low, high]), np.ones(1))

    def below(self, xs: Floats) -> Floats:
        """The share of all x that lie below each place."""
        total = np.concatenate((np.zeros(1), np.cumsum(self.masses)))
        shares: Floats = np.interp(xs, self.edges, total / total[-1])
        return shares


class Steps(NamedTuple):
    """A step function: `values[i]` from edges[i] up to, not at, edges[i + 1]; values[-2] below, values[-1] above."""

    edges: Floats
    values: Floats

    def at(self, xs: Floats) -> Floats:
        """The estimate at each x."""
        return look_up(self.edges, self.values, np.ascontiguousarray(xs, dtype=np.float64))


class Counts(NamedTuple):
    """The exact count as a function of x, and the integrals that errors are computed from.

    `places` are all places where the count changes, where x is expected; `counts[i]` is that from places[i] on. With
    f for the count and weight w = density / max(f, 1)^2, `integrals` has the rows w, w f and w f^2, up to each place.
    """

    places: Floats
    counts: Floats
    integrals: Floats
    below: float
    above: float

    @staticmethod
    def of(lows: Floats, highs: Floats, density: Density) -> Counts:
        """Of sorted low and sorted high ends; they may be infinite."""
        edges = density.edges
        last = np.nextafter(edges[-1], np.inf)
        begin, stop = np.searchsorted(lows, (edges[0], last)), np.searchsorted(highs, (edges[0], last))
        some, others = lows[begin[0] : begin[1]], np.nextafter(highs[stop[0] : stop[1]], np.inf)
        n, found = changes(some, others, edges[0], last, float(begin[0] - stop[0]))
        places, counts = found[0, :n].copy(), found[1, :n].copy()
        integrals = np.zeros((3, n))
        weights = np.diff(density.below(places)) / np.maximum(counts[:-1], 1) ** 2
        for row in range(3):
            np.cumsum(weights * counts[:-1] ** row, out=integrals[row, 1:])
        return Counts(places, counts, integrals, float(begin[0] - stop[0]), float(begin[1] - stop[1]))

    def steps(self, cuts: Ints) -> Steps:
        """The step function of least error between these places (their positions, first and last included)."""
        weight, count, _ = np.diff(self.integrals[:, cuts])
        mean = (np.diff(cuts) > 1) & (weight > 0)  # between neighbours the count is one, and known
        values = np.where(mean, count / np.where(mean, weight, 1), self.counts[cuts[:-1]])
        return Steps(self.places[cuts], np.concatenate((values, (self.below, self.above))))


def by_groups(lows: Floats, highs: Floats, counts: Counts, buckets: int) -> Steps:
    """Steps at places that stabbing groups propose; `lows` and `highs` are sorted. O(n) besides, O(n log n) to sort."""
    n = len(counts.places)
    if n <= max(ALL_PLACES, buckets + 1):
        return counts.steps(best_cuts(counts, np.arange(n), buckets))
    width = np.linspace(counts.places[0], counts.places[-1], buckets + 1)
    near = np.searchsorted(counts.places, width).clip(max=n - 1)
    proposed = [near, (near - 1).clip(min=0), evenly(n, buckets + 1), _of_groups(lows, highs, counts, buckets)]
    return counts.steps(best_cuts(counts, np.unique(np.concatenate(proposed)), buckets))


def evenly(n: int, most: int) -> Ints:
    """At most so many of the positions below n, the first and the last included."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def best_cuts(counts: Counts, candidates: Ints, buckets: int) -> Ints:
    """The candidates (positions of places) between which `buckets` steps have the least error."""
    if len(candidates) <= buckets + 1:
        return candidates  # exact, also at places that x is not expected at
    cost, back = segment(np.ascontiguousarray(counts.integrals[:, candidates]), buckets)
    return candidates[_cuts(back, int(np.argmin(cost[1:])) + 1)]


def _cuts(back: Ints, buckets: int) -> Ints:
    """Where so many buckets begin and end, from what `segment` remembered."""
    at = back.shape[1] - 1
    found = [at]
    for k in range(buckets, 0, -1):
        at = int(back[k, at])
        found.append(at)
    return np.unique(found)


def _of_groups(lows: Floats, highs: Floats, counts: Counts, buckets: int) -> Ints:
    """Positions of places where the groups' steps end, PROPOSED * buckets of them in all."""
    groups, meets = canonical(lows, highs)
    starts = np.searchsorted(groups, np.arange(len(meets) + 1))  # a group is a stretch: no interval is inside another
    largest = np.argsort(-np.diff(starts), kind="stable")[: GROUPS_PER_BUCKET * buckets]
    most = PROPOSED * buckets
    ends = np.nextafter(highs, np.inf)
    sides = [_side(column[starts[g] : starts[g + 1]], counts, most) for g in largest for column in (lows, ends)]
    gains = np.array([cost[:-1] - cost[1:] for _, cost, _ in sides])
    best = np.argsort(-gains, axis=None, kind="stable")[:most]  # convex: a side's first buckets gain most
    given = np.bincount(best // most, minlength=len(sides))
    of_sides = [at[_cuts(back, int(k))] for (at, _, back), k in zip(sides, given, strict=True) if k]
    points = np.searchsorted(counts.places, meets[largest, 0])
    return np.concatenate((*of_sides, points.clip(max=len(counts.places) - 1)))


def _side(ends: Floats, counts: Counts, most: int) -> tuple[Ints, Floats, Ints]:
    """The positions where the steps of one side of a group may end, with what `segment` says of them.

    `ends` are the sorted ends on that side: the count is 0 outside and rises (or falls) by one at each.
    """
    at = np.unique(
        np.searchsorted(counts.places, ends[evenly(len(ends), SIDE_PLACES)]).clip(max=len(counts.places) - 1)
    )
    own = np.searchsorted(ends, counts.places[at], "right").astype(np.float64)
    weight = np.diff(counts.integrals[0, at])
    middle = (own[1:] + own[:-1]) / 2
    integrals = np.zeros((3, len(at)))
    for row in range(3):
        np.cumsum(weight * middle**row, out=integrals[row, 1:])
    cost, back = segment(integrals, most)
    return at, cost, back


class IntervalHistogram:
    """Estimates how many intervals hold x, while intervals come and go.

    A change is spread over the buckets that its interval covers, in part where it ends inside one; so it changes
    the estimate at x exactly as it changes the count, except in the one or two buckets where it ends: by less than
    one there. When more than a quarter of the intervals has changed, all is built anew from the ends.

    Invariants (`check` tests them):
      H1  `_lows` and `_highs` are sorted, and with the pending changes hold the ends of the intervals that are there.
      H2  The estimate differs from that at the last rebuild by the change of the count, except for less than one for
          each change since with an end in the same bucket.

    Cost: `add` and `remove` O(log buckets) an interval; a rebuild O(n log n), on average O(log n) a change.
    """

    def __init__(self, buckets: int = 20, density: Density | None = None) -> None:
        """Without a density x is expected anywhere between the lowest and the highest end."""
        self.buckets = buckets
        self.rebuilds = 0
        self._density = density
        self._lows: Floats = np.empty(0)
        self._highs: Floats = np.empty(0)
        self._pending: list[tuple[float, Floats, Floats]] = []
        self._changed = 0
        self._size = 0
        self._steps: Steps | None = None

    def __len__(self) -> int:
        return self._size

    def add(self, lows: Floats, highs: Floats) -> None:
        """Intervals come."""
        self._change(lows, highs, 1.0)

    def remove(self, lows: Floats, highs: Floats) -> None:
        """Intervals that are there go."""
        self._change(lows, highs, -1.0)

    def _change(self, lows: Floats, highs: Floats, sign: float) -> None:
        lows, highs = np.array(lows, np.float64), np.array(highs, np.float64)  # copies: they are kept
        self._pending.append((sign, lows, highs))
        self._size += int(sign) * len(lows)
        self._changed += len(lows)
        if self._steps is not None:
            spread(self._steps.edges, self._steps.values, lows, highs, sign)

    @property
    def steps(self) -> Steps:
        """The step function as of now."""
        least = max(REBUILD_LEAST, REBUILD_SHARE * self._size)
        if self._steps is None or self._changed > least:
            self.rebuild()
        assert self._steps is not None
        return self._steps

    def estimate(self, xs: Floats) -> Floats:
        """About how many intervals hold each x."""
        return self.steps.at(xs)

    def exact(self, xs: Floats) -> Ints:
        """How many intervals hold each x."""
        self._settle()
        found: Ints = np.searchsorted(self._lows, xs, "right") - np.searchsorted(self._highs, xs, "left")
        return found

    def rebuild(self) -> None:
        """Find the best steps for the intervals that are there now."""
        self._settle()
        self._steps = by_groups(self._lows, self._highs, self.counts(), self.buckets)
        self._changed = 0
        self.rebuilds += 1

    def counts(self) -> Counts:
        """The exact counts, to compare with."""
        self._settle()
        return Counts.of(self._lows, self._highs, self._density or _between(self._lows, self._highs))

    def _settle(self) -> None:
        """Take the pending changes into the sorted ends."""
        for column, name in ((1, "_lows"), (2, "_highs")):
            come = [change[column] for change in self._pending if change[0] > 0]
            go = [change[column] for change in self._pending if change[0] < 0]
            ends = np.sort(np.concatenate((getattr(self, name), *come)), kind="stable")
            setattr(self, name, _without(ends, np.sort(np.concatenate(go))) if go else ends)
        self._pending.clear()

    def check(self) -> None:
        """Verify H1, or raise InvariantBroken."""
        self._settle()
        for ends in (self._lows, self._highs):
            if len(ends) != self._size or (ends[1:] < ends[:-1]).any():
                raise InvariantBroken("interval histogram: H1 ends are sorted, and as many as there are intervals")
        if (self._lows > self._highs).any():
            raise InvariantBroken("interval histogram: H1 no interval ends before it begins")


def _between(lows: Floats, highs: Floats) -> Density:
    """Even from the lowest to the highest end, but for ends so far out that no float is much further."""
    ends = np.concatenate((lows, highs))
    ends = ends[np.abs(ends) <= FARTHEST]
    low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 0.0)
    return Density.uniform(low, high if high > low else float(np.nextafter(low, np.inf)))


def _without(ends: Floats, gone: Floats) -> Floats:
    """Sorted ends without these, each as often as it is given."""
    first = np.searchsorted(gone, gone, "left")
    at = np.searchsorted(ends, gone, "left") + np.arange(len(gone)) - first
    if len(gone) > len(ends) or not np.array_equal(ends[at.clip(max=len(ends) - 1)], gone):
        raise InvariantBroken("interval histogram: H1 only intervals that are there are removed")
    return np.delete(ends, at)


@part
def piece(edges: Floats, n: int, x: float) -> int:
    """Which value of a step function with n edges holds at x: n - 1 below the first edge, n from the last one on."""
    if x < edges[0]:
        return n - 1
    if x >= edges[n - 1]:
        return n
    low, high = 0, n - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if edges[middle] <= x:
            low = middle
        else:
            high = middle
    return low


@kernel
def changes(lows: Floats, ends: Floats, first: float, last: float, count: float) -> tuple[int, Floats]:
    """The places from first to last where a count changes, and the count from each on: up at each of `lows`, down at
    each of `ends`, both sorted. Begins with `first`, ends with `last`."""
    found = np.empty((2, len(lows) + len(ends) + 2))
    n, i, j = 0, 0, 0
    place = first
    while True:
        while i < len(lows) and lows[i] <= place:
            count += 1
            i += 1
        while j < len(ends) and ends[j] <= place:
            count -= 1
            j += 1
        found[0, n], found[1, n] = place, count
        n += 1
        if place >= last:
            return n, found
        place = last
        if i < len(lows) and lows[i] < place:
            place = lows[i]
        if j < len(ends) and ends[j] < place:
            place = ends[j]


@kernel
def look_up(edges: Floats, values: Floats, xs: Floats) -> Floats:
    """The value of a step function at each x."""
    found = np.empty(len(xs))
    n = len(edges)
    for k in range(len(xs)):
        found[k] = values[piece(edges, n, xs[k])]
    return found


@kernel
def spread(edges: Floats, values: Floats, lows: Floats, highs: Floats, sign: float) -> None:
    """Add `sign` times each interval to a step function: whole in pieces that it covers, in part where it ends."""
    n = len(edges)
    change = np.zeros(n)  # the difference from the piece before
    for k in range(len(lows)):
        low, high = max(lows[k], edges[0]), min(highs[k], edges[n - 1])
        if lows[k] < edges[0]:
            values[n - 1] += sign
        if highs[k] >= edges[n - 1]:
            values[n] += sign
        if low > high or low >= edges[n - 1]:
            continue
        first, last = piece(edges, n, low), min(piece(edges, n, high), n - 2)
        change[first] += sign
        change[last + 1] -= sign
        missing = (low - edges[first]) / (edges[first + 1] - edges[first])
        change[first] -= sign * missing
        change[first + 1] += sign * missing
        missing = (edges[last + 1] - high) / (edges[last + 1] - edges[last])
        change[last] -= sign * missing
        change[last + 1] += sign * missing
    total = 0.0
    for i in range(n - 1):
        total += change[i]
        values[i] += total


@kernel
def segment(integrals: Floats, buckets: int) -> tuple[Floats, Ints]:
    """For every number of buckets: the least error, and where the last bucket before each place begins.

    `integrals` holds w, w f and w f^2 up to each place; a bucket from i to j costs w f^2 - (w f)^2 / w between them.
    With no bucket at all everything is estimated as 0.
    """
    n = integrals.shape[1]
    cost = np.full(buckets + 1, np.inf)
    back = np.zeros((buckets + 1, n), np.int64)
    before, now = np.full(n, np.inf), np.empty(n)
    before[0] = 0.0
    cost[0] = integrals[2, n - 1]
    for k in range(1, buckets + 1):
        now[0] = 0.0
        for j in range(1, n):
            least, best = before[j], j  # no further bucket: an empty one
            for i in range(j):
                if before[i] >= least:
                    continue
                w = integrals[0, j] - integrals[0, i]
                wf = integrals[1, j] - integrals[1, i]
                error = integrals[2, j] - integrals[2, i]
                if w > 0:
                    error -= wf * wf / w
                total = before[i] + max(error, 0.0)
                if total < least:
                    least, best = total, i
            now[j] = least
            back[k, j] = best
        for j in range(n):
            before[j] = now[j]
        cost[k] = now[n - 1]
    return cost, back
