"""Interval histograms that ours is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.broker.joins.histogram import Counts, Density, by_groups
from hullcast.sim.joins.histogram import by_k_means, equal_width, optimal, squared_error
from hullcast.sim.traces.table41 import Table41


@pytest.mark.parametrize("seed", range(3))
def test_optimal_is_at_most_ours_and_ours_at_most_equal_width_in_squared_relative_error(seed: int) -> None:
    lows, highs = map(np.sort, Table41(seed=seed).intervals(1000))
    counts = Counts.of(lows, highs, Density.uniform(0, 10_000))
    for buckets in (10, 20, 40):
        best, ours, plain = (
            squared_error(counts, steps)
            for steps in (
                optimal(counts, buckets, len(counts.places)),
                by_groups(lows, highs, counts, buckets),
                equal_width(counts, buckets),
            )
        )
        assert best <= ours * (1 + 1e-9)
        assert ours <= plain
        assert ours < 1.5 * best


def test_k_means_with_a_bucket_for_each_count_is_exact() -> None:
    random = np.random.default_rng(1)
    lows = np.concatenate((random.uniform(0, 10, 30), random.uniform(100, 110, 30)))  # two groups that do not meet
    highs = lows + random.uniform(10, 50, 60)
    xs = np.setdiff1d(random.uniform(-5, 200, 500), np.concatenate((lows, highs)))
    true = ((lows[:, None] <= xs) & (xs <= highs[:, None])).sum(axis=0)
    assert np.allclose(by_k_means(lows, highs, 120).at(xs), true)
    assert not np.allclose(by_k_means(lows, highs, 60).at(xs), true)


def test_buckets_go_to_groups_by_their_cardinality() -> None:
    lows, highs = np.repeat((0.0, 100.0), (90, 10)), np.repeat((10.0, 110.0), (90, 10))
    assert by_k_means(lows, highs, 1).at(np.array([5.0, 50.0, 105.0])).tolist() == pytest.approx([90.0, 0.0, 0.0])
    assert by_k_means(lows, highs, 10).at(np.array([5.0, 50.0, 105.0])).tolist() == pytest.approx([90.0, 0.0, 10.0])
