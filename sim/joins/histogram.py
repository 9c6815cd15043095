"""The interval histograms that Xie (2007) compares (sections 4.4 and 4.6.6); ours is broker/joins/histogram.py."""

from __future__ import annotations

import numpy as np

from hullcast.broker.joins.histogram import Counts, Steps, best_cuts, evenly
from hullcast.broker.joins.partition import canonical
from hullcast.network.wire.arrays import Floats, Ints


def equal_width(counts: Counts, buckets: int) -> Steps:
    """Buckets of one width with the mean count of each: what a database usually keeps."""
    edges = np.linspace(counts.places[0], counts.places[-1], buckets + 1)
    at = np.union1d(edges, counts.places)
    area = np.diff(at) * counts.counts[np.searchsorted(counts.places, at[:-1], "right") - 1]
    total = np.concatenate((np.zeros(1), np.cumsum(area)))[np.searchsorted(at, edges)]
    return Steps(edges, np.concatenate((np.diff(total) / np.diff(edges), (counts.below, counts.above))))


def optimal(counts: Counts, buckets: int, places: int = 2000) -> Steps:
    """The steps with the least mean squared relative error that end at any of `places` places, evenly chosen from all.

    O(buckets * places^2): with 2,000 places and 20 buckets a tenth of a second, with all 200,000 of 100,000
    intervals half an hour. Xie (2007) takes a sample of the intervals instead; here the integrals between the places
    are of all intervals, and only where a step may end is a sample.
    """
    return counts.steps(best_cuts(counts, evenly(len(counts.places), places), buckets))


def squared_error(counts: Counts, steps: Steps) -> float:
    """The mean squared relative error of a step function."""
    at = np.union1d(counts.places, steps.edges)
    at = at[(counts.places[0] <= at) & (at <= counts.places[-1])]
    mass = np.interp(at, counts.places, counts.integrals[0])  # exact: w is constant between places
    true = counts.counts[np.searchsorted(counts.places, at[:-1], "right") - 1]
    return float(np.sum(np.diff(mass) * (steps.at(at[:-1]) - true) ** 2))


def by_k_means(lows: Floats, highs: Floats, buckets: int, most: int = 100) -> Steps:
    """SSI-HIST as section 4.4 has it: the sum of a histogram of each stabbing group, buckets by its cardinality.

    On each side of a group's point its count is monotone, and the best step function is a k-means of the counts,
    weighted with the width of each count divided by its square: here the iterative one, from centres of evenly many
    counts, at most `most` times. Of the buckets of a group each side gets half; one alone is laid over both sides. A
    group too small for a bucket is estimated as 0.
    """
    groups, meets = canonical(lows, highs)
    sizes = np.bincount(groups, minlength=len(meets))
    exact = buckets * sizes / sizes.sum()
    given = np.floor(exact).astype(np.int64)
    given[np.argsort(given - exact, kind="stable")[: buckets - given.sum()]] += 1
    places, changes = [], []
    for group in np.flatnonzero(given):
        mine, point = groups == group, meets[group, 0]
        left, right = np.append(np.sort(lows[mine]), point), np.append(point, np.sort(highs[mine]))
        rising = np.arange(1.0, sizes[group] + 1)
        sides = [(left, rising, given[group] - given[group] // 2), (right, rising[::-1], given[group] // 2)]
        if given[group] == 1:
            sides = [(np.append(left[:-1], right), np.append(rising, rising[::-1]), 1)]
        for edges, counts, some in sides:
            cuts, values = _k_means(counts, np.diff(edges) / counts**2, int(some), most)
            places.append(edges[cuts])
            changes.append(np.diff(values, prepend=0.0, append=0.0))
    ends, of = np.unique(np.concatenate(places), return_inverse=True)
    total = np.cumsum(np.bincount(of, np.concatenate(changes)))
    return Steps(ends, np.concatenate((total[:-1], np.zeros(2))))


def _k_means(counts: Floats, weights: Floats, k: int, most: int) -> tuple[Ints, Floats]:
    """Where each of k clusters begins (and the last ends), in a row of counts that only rise or only fall; its mean."""
    sign = 1.0 if counts[-1] >= counts[0] else -1.0
    sums = np.array([np.append(0.0, np.cumsum(weights * counts**power)) for power in (0, 1)])
    cuts = np.unique(np.linspace(0, len(counts), k + 1).astype(np.int64))
    for _ in range(most if k > 1 else 1):
        weight, weighted = np.diff(sums[:, cuts])
        means = np.where(weight > 0, weighted / np.where(weight > 0, weight, 1.0), counts[cuts[:-1]])
        nearer = np.searchsorted(sign * counts, sign * (means[1:] + means[:-1]) / 2)
        moved = np.unique(np.concatenate((cuts[:1], nearer, cuts[-1:])))
        if np.array_equal(moved, cuts):
            break
        cuts = moved
    weight, weighted = np.diff(sums[:, cuts])
    return cuts, np.where(weight > 0, weighted / np.where(weight > 0, weight, 1.0), counts[cuts[:-1]])
