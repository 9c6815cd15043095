"""Subscriptions of other kinds than Table 5.1's, and those of Table 5.1 over another domain."""

from __future__ import annotations

import numpy as np
import pytest

from network.wire.errors import UsageError
from sim.workloads import DOMAIN, LENGTH, MIDPOINT, Workload, scaled_ranges


def test_midpoints_and_lengths_may_be_others() -> None:
    ranges = Workload(10).ranges(50_000, midpoint=(5_000.0, 10_000.0), length=(50.0, 10.0))
    middle, length = (ranges.low + ranges.high) / 2, ranges.high - ranges.low
    assert middle.mean() == pytest.approx(5_000, abs=200)
    assert middle.std() == pytest.approx(10_000, rel=0.02)
    assert length.mean() == pytest.approx(50, rel=0.01)
    assert length.std() == pytest.approx(10, rel=0.02)


def test_those_of_table_5_1_are_drawn_as_they_always_were() -> None:
    ranges = Workload(10, root=7).ranges(1_000)
    same = Workload(10, root=7).ranges(1_000, midpoint=MIDPOINT, length=LENGTH)
    np.testing.assert_array_equal(ranges.low, same.low)
    assert ranges.low.sum() == pytest.approx(4311140.034, abs=0.001)  # before midpoint and length could be given


def test_scaled_ranges_are_table_5_1_over_another_domain() -> None:
    scaled = scaled_ranges((1.0, 5.0), 20_000, root=3)
    middle, length = (scaled.low + scaled.high) / 2, scaled.high - scaled.low
    assert middle.mean() == pytest.approx(3.0, abs=0.02)
    assert middle.std() == pytest.approx(0.15 * 4, rel=0.02)
    assert length.min() >= 0
    assert length.mean() == pytest.approx(0.12876 * 4, rel=0.02)
    plain = Workload(10, root=3).ranges(20_000)
    np.testing.assert_allclose(scaled_ranges((0.0, DOMAIN), 20_000, root=3).low, plain.low)
    assert (
        scaled_ranges((1.0, 5.0), 5, root=3, name="sample").low.tolist() != scaled_ranges((1.0, 5.0), 5, 3).low.tolist()
    )
    with pytest.raises(UsageError, match="low < high"):
        scaled_ranges((5.0, 5.0), 10)
