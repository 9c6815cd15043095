"""Chooses the cheapest plan for each arriving row, by cost models and estimates, one kernel per batch.

k_s, how many ranges hold the row's x, is an interval histogram (histogram.py), kept up to date with every range that
comes or goes. k_j, how many rows of the other side join, is counted in the other side's tree (`RowCounts`) now and
then: when a quarter of its rows may have changed. Both are look-ups of a few nanoseconds; plans differ by factors, so
an estimate that is off by a quarter rarely changes the choice, and hardly ever costs much where it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.index.nodes import CHILD, COUNT, ENTRIES, GROUP, HEIGHT, NEXT, ROOT, X
from hullcast.broker.joins.costs import (
    BASIS,
    DEFAULTS,
    GROUPS_LOG_K_J,
    K_J,
    K_J_ROOT_K_S,
    K_S,
    K_S_LOG_K_J,
    ONE,
    PLANS,
    Facts,
    per_row,
)
from hullcast.broker.joins.histogram import IntervalHistogram, piece
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.joins.costs import Coefficients
    from hullcast.broker.joins.plan import Arrivals

#: Buckets of the histogram of ranges; counters, or steps, of the other side's join values, at most.
RANGE_BUCKETS, MOST_COUNTERS, RANK_STEPS = 24, 1 << 16, 1024

#: The other side is counted again when so large a share of it changed, and so many rows.
RECOUNT_SHARE, RECOUNT_LEAST = 0.25, 64

#: "Lately" are about so many rows: then all tallies are halved.
LATELY = 20_000

#: A tally begins with the sums of k_j and k_s, over so many rows; then the rows that each plan was chosen for.
ESTIMATED, SUMS = 2, 3
NOT_KEPT: Floats = np.empty((2, 0))
ALL = range(len(PLANS))
NOTHING_KNOWN = Facts(rows=-(1 << 62), ranges=0)
#: About what a call of the kernel takes: less than this is not worth planning for.
CALL_NS = 1500.0

# What `rows` of a RowCounts begins with: the lowest rank step, steps per unit of x (0: no band), then the counters.
LOWEST, PER_UNIT, FIRST = 0, 1, 2
#: Steps per unit of x are between these.
TINIEST, HUGEST = np.finfo(np.float64).tiny, np.finfo(np.float64).max


class RowCounts:
    """About how many rows of the other side join an arriving one, counted in its tree.

    For an equality: by join value, hashed into at most 65,536 counters; a counter that several values share has
    their mean. So the estimate is exact where values are few, and where all have about as many rows; what nobody has is
    0, or that mean. (Better than equal width, which needs to know how many values a bucket has.)
    For a band: the rank of a place, in 1,024 steps of equal width between the 0.5th and the 99.5th percentile, and
    between these steps by proportion; k_j is the difference of two.
    """

    def __init__(self, *, band: bool) -> None:
        self.band = band
        self.rows: Floats = np.zeros(FIRST + 1)
        self.most = 0.0  # the largest estimate there is
        self.recounts = 0
        self._entries = self._changed = 0

    def refresh(self, tree: Floats, changed: int) -> None:
        """Count again if too much has changed."""
        entries = int(tree[ENTRIES])
        allowed = max(RECOUNT_LEAST, RECOUNT_SHARE * self._entries)
        if self.recounts and max(abs(changed - self._changed), abs(entries - self._entries)) <= allowed:
            return
        self._entries, self._changed = entries, changed
        self.recounts += 1
        if self.band:
            self.rows = self._ranks(tree, entries)
        else:
            size = 1 << min(MOST_COUNTERS, 2 * entries).bit_length()
            self.rows = np.zeros(FIRST + min(MOST_COUNTERS, size))
            count_values(tree, self.rows)
        self.most = float(entries if self.band else self.rows[FIRST:].max())

    @staticmethod
    def _ranks(tree: Floats, entries: int) -> Floats:
        """The rank at steps of equal width."""
        rows = np.zeros(FIRST + RANK_STEPS + 1)
        places, ranks = leaf_ranks(tree)
        finite = np.isfinite(places)
        if not finite.any():
            return rows
        places, ranks = places[finite], ranks[finite]
        lowest, highest = np.interp((0.005 * entries, 0.995 * entries), ranks, places)
        if not lowest < highest:
            lowest, highest = places[0], places[-1]
        with np.errstate(
            over="ignore", divide="ignore"
        ):  # rows may all lie at one place, or at the ends of all there is
            rows[LOWEST], rows[PER_UNIT] = lowest, np.clip(RANK_STEPS / (highest - lowest), TINIEST, HUGEST)
        steps = 2 * np.linspace(lowest / 2, highest / 2, RANK_STEPS + 1)
        rows[FIRST:] = np.nan_to_num(np.interp(steps, places, ranks))  # places may be too close to divide by
        rows[FIRST], rows[-1] = 0, entries
        return rows


class Planner:
    """Chooses a plan for each row that arrives on one side; one for each side of a channel.

    Tell it of every range that comes or goes (`add`, `remove`: rectangles as plans get them); or by which histogram to
    go (`estimate_by`).

    Cost: about 30 ns a row, and 2 us a call. That is much for a single row where all plans take a microsecond, so
    a few rows get the plan that can never cost much more than another (`_plain`), where there is one. What is derived
    from facts (weights, counts of the other side) is kept until these have moved by a quarter or so.
    """

    def __init__(self, *, band: bool, coefficients: Coefficients = DEFAULTS) -> None:
        self.coefficients = coefficients
        self._ranges = IntervalHistogram(RANGE_BUCKETS)
        self._rows = RowCounts(band=band)
        self._known = NOTHING_KNOWN  # as of when the rest was derived
        self._plans: tuple[int, ...] = ()
        self._weights: Floats = np.zeros((len(PLANS), BASIS))
        self._steps = self._ranges.steps
        self._plain, self._regret = 0, np.inf  # a plan, and what it costs more than any other, at most
        self._same: Ints = np.zeros(64, np.int64)  # its number, for some rows
        self._plainly = 0  # rows that got it, and are not in the tally yet
        self._tally: Floats = np.zeros((2, len(PLANS) + SUMS))  # lately, and since the start

    def add(self, rectangles: Floats) -> None:
        """Ranges come."""
        self._ranges.add(rectangles[:, 0], rectangles[:, 1])
        self._known = NOTHING_KNOWN

    def remove(self, rectangles: Floats) -> None:
        """Ranges go."""
        self._ranges.remove(rectangles[:, 0], rectangles[:, 1])
        self._known = NOTHING_KNOWN

    def estimate_by(self, ranges: IntervalHistogram) -> None:
        """Estimate k_s by this histogram from now on, which somebody else keeps up to date."""
        self._ranges = ranges
        self._known = NOTHING_KNOWN

    def choose(self, tree: Floats, arrivals: Arrivals, facts: Facts, plans: Iterable[int] = ALL) -> Ints:
        """The cheapest plan (its place in costs.PLANS) for each arrival, of those there are. Not to be changed."""
        known, n, available = self._known, len(arrivals.xs), tuple(plans)
        slack = RECOUNT_LEAST + (known.rows >> 2)
        if (
            not known.rows - slack <= facts.rows <= known.rows + slack
            or facts.changed > known.changed + slack
            or facts.groups != known.groups
            or available != self._plans
        ):
            self._learn(tree, facts, available)
        if n * self._regret <= CALL_NS:
            self._plainly += n
            return self._same[:n] if n <= len(self._same) else np.full(n, self._plain)
        return self._run(arrivals, facts, NOT_KEPT)

    def _learn(self, tree: Floats, facts: Facts, plans: tuple[int, ...]) -> None:
        """Derive what costs depend on."""
        self._count()
        self._rows.refresh(tree, facts.changed)
        self._known, self._plans, self._steps = facts, plans, self._ranges.steps
        self._weights = self.coefficients.weights(facts)
        most = per_row(np.array([self._rows.most]), np.array([max(self._steps.values.max(), 0.0)]), facts.groups)
        dearest = (self._weights @ most)[:, 0]
        missing = [plan for plan in ALL if plan not in plans]
        dearest[missing] = np.inf
        self._weights[missing] = [np.inf] + [0] * (BASIS - 1)
        self._plain = int(np.argmin(dearest))
        self._same.fill(self._plain)
        self._regret = float(dearest[self._plain] - np.delete(self._weights[:, ONE], self._plain).min())

    def estimates(self, arrivals: Arrivals, facts: Facts) -> Floats:
        """(k_j, k_s) of each arrival as the latest `choose` would see them, (2, n)."""
        seen, tally = np.empty((2, len(arrivals.xs))), self._tally.copy()
        self._run(arrivals, facts, seen)
        self._tally = tally
        return seen

    def _run(self, arrivals: Arrivals, facts: Facts, seen: Floats) -> Ints:
        return cheapest(
            arrivals.groups,
            arrivals.offsets,
            arrivals.xs,
            self._steps.edges,
            self._steps.values,
            self._rows.rows,
            facts.y_low,
            facts.y_high,
            float(facts.groups),
            self._weights,
            self._tally,
            seen,
        )

    def describe(self) -> dict[str, object]:
        """What `hullcast explain` shows: how often plans were chosen, in all and lately, and mean estimates lately."""
        self._count()
        lately, ever = self._tally
        facts: dict[str, object] = {
            "chosen": dict(zip(PLANS, ever[SUMS:].astype(np.int64).tolist(), strict=True)),
            "chosen lately": dict(zip(PLANS, (lately[SUMS:] / max(1.0, lately[SUMS:].sum())).tolist(), strict=True)),
        }
        if lately[ESTIMATED]:
            facts["joining rows"], facts["ranges that hold x"] = (lately[:ESTIMATED] / lately[ESTIMATED]).tolist()
        return facts

    def _count(self) -> None:
        """Enter rows that were not planned for into the tally."""
        self._tally[:, SUMS + self._plain] += self._plainly
        self._plainly = 0
        age(self._tally)

    def check(self) -> None:
        """Test the histogram of ranges."""
        self._ranges.check()


@part
def counter_of(value: float, counters: int) -> int:
    """The counter of a join value: its whole part in two halves, each times an irrational number."""
    high = np.floor(value / 67108864.0)
    place = (value - high * 67108864.0) * 0.6180339887498949 + high * 0.7548776662466927
    place -= np.floor(place)
    return int(place * counters) if place < 1.0 else 0  # infinite: not a number, and so not below 1


@part
def first_leaf(m: Floats) -> int:
    """The leftmost leaf of a tree."""
    node = int(m[ROOT])
    for _ in range(int(m[HEIGHT])):
        node = int(m[node + CHILD])
    return node


@kernel
def count_values(m: Floats, rows: Floats) -> None:
    """Set the counters to the mean number of rows of the groups (the join values) that share each."""
    counters = len(rows) - FIRST
    values = np.zeros(counters, np.int64)
    leaf, before = first_leaf(m), np.nan
    while leaf >= 0:
        for i in range(int(m[leaf + COUNT])):
            value = m[leaf + GROUP + i]
            at = counter_of(value, counters)
            rows[FIRST + at] += 1
            values[at] += value != before
            before = value
        leaf = int(m[leaf + NEXT])
    for at in range(counters):
        if values[at] > 1:
            rows[FIRST + at] /= values[at]


@kernel
def leaf_ranks(m: Floats) -> tuple[Floats, Floats]:
    """The x that each leaf begins with and the rows before it; at the end the last row's x, and all rows."""
    room, n, rank = 64, 0, 0
    found = np.empty((2, room))
    leaf, last = first_leaf(m), np.nan
    while leaf >= 0:
        count = int(m[leaf + COUNT])
        if n + 2 > room:
            larger = np.empty((2, 2 * room))
            for k in range(n):
                larger[0, k], larger[1, k] = found[0, k], found[1, k]
            found, room = larger, 2 * room
        if count:
            found[0, n], found[1, n] = m[leaf + X], rank
            last = m[leaf + X + count - 1]
            n += 1
        rank += count
        leaf = int(m[leaf + NEXT])
    if n:
        found[0, n], found[1, n] = last, rank
        n += 1
    return found[0, :n].copy(), found[1, :n].copy()


@part
def rank(rows: Floats, x: float) -> float:
    """About how many rows lie below x."""
    steps = len(rows) - FIRST - 1
    place = min(max((x - rows[LOWEST]) * rows[PER_UNIT], 0.0), float(steps))
    if not place < steps:  # the last one, or not a number
        return float(rows[FIRST + steps])
    at = int(place)
    return float(rows[FIRST + at] + (place - at) * (rows[FIRST + at + 1] - rows[FIRST + at]))


@kernel
def age(tally: Floats) -> None:
    """Halve the tally of lately when it has grown too large."""
    lately = 0.0
    for plan in range(SUMS, tally.shape[1]):
        lately += tally[0, plan]
    if lately > LATELY:
        for i in range(tally.shape[1]):
            tally[0, i] *= LATELY / (2 * lately)


@kernel
def cheapest(
    groups: Floats,
    offsets: Floats,
    xs: Floats,
    edges: Floats,
    values: Floats,
    rows: Floats,
    y_low: float,
    y_high: float,
    hot: float,
    weights: Floats,
    tally: Floats,
    seen: Floats,
) -> Ints:
    """The cheapest plan for each arrival; `seen` gets k_j and k_s of each, if it has room."""
    chosen = np.empty(len(xs), np.int64)
    plans, n, counters = len(weights), len(edges), len(rows) - FIRST
    for i in range(len(xs)):
        k_j = 0.0
        if rows[PER_UNIT] > 0:
            k_j = rank(rows, offsets[i] + y_high) - rank(rows, offsets[i] + y_low)
        elif not np.isnan(groups[i]):
            k_j = rows[FIRST + counter_of(groups[i], counters)]
        k_s = max(values[piece(edges, n, xs[i])], 0.0)
        log_k_j, root_k_s, reached = np.log2(1.0 + k_j), np.sqrt(k_s), hot * k_s / max(hot + k_s, 1.0)
        best, least = 0, np.inf
        for plan in range(plans):
            cost = weights[plan, ONE] + weights[plan, GROUPS_LOG_K_J] * reached * log_k_j
            cost += (weights[plan, K_J] + weights[plan, K_J_ROOT_K_S] * root_k_s) * k_j
            cost += (weights[plan, K_S] + weights[plan, K_S_LOG_K_J] * log_k_j) * k_s
            if cost < least:
                best, least = plan, cost
        chosen[i] = best
        for when in range(2):
            tally[when, 0] += k_j
            tally[when, 1] += k_s
            tally[when, ESTIMATED] += 1
            tally[when, SUMS + best] += 1
        if i < seen.shape[1]:
            seen[0, i], seen[1, i] = k_j, k_s
    age(tally)
    return chosen
