"""Subscriptions follow Table 5.1, and fewer are the first of many."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.sim.experiments.traffic.networks import SHORT, Law


def test_midpoints_and_lengths_are_those_of_the_table() -> None:
    ranges = Law().ranges(200_000, root=1)
    middle, length = (ranges.low + ranges.high) / 2, ranges.high - ranges.low
    assert (length >= 0).all()
    assert middle.mean() == pytest.approx(5_000, rel=0.01)
    assert middle.std() == pytest.approx(1_500, rel=0.01)
    # N(1000, 1000) drawn again while negative: mean 1000 + 1000 * phi(1) / Phi(1)
    assert length.mean() == pytest.approx(1_287.6, rel=0.01)
    short = SHORT.ranges(100_000, root=1)
    assert (short.high - short.low).std() == pytest.approx(10, rel=0.02)


def test_fewer_are_the_first_of_many() -> None:
    many, few = Law().ranges(1_000, root=2), Law().ranges(10, root=2)
    assert np.array_equal(few.low, many.low[:10])
    assert np.array_equal(few.high, many.high[:10])


def test_the_law_scales_to_another_domain() -> None:
    there, here = Law().over((1.0, 5.0)).ranges(50, root=3), Law().ranges(50, root=3)
    assert there.low == pytest.approx(1.0 + here.low * 4 / 10_000)
    assert there.high == pytest.approx(1.0 + here.high * 4 / 10_000)


def test_the_sample_is_not_the_subscriptions() -> None:
    sample, ranges = Law().sample(root=4), Law().ranges(100, root=4)
    assert not np.isin(ranges.low, sample[:, 0]).any()
    assert np.array_equal(sample, Law().sample(root=4))
