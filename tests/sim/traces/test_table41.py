"""Table 4.1 of Xie (2007): the workload has the properties that its text gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.table41 import (
    DOMAIN,
    LENGTH_60,
    Normal,
    Table41,
    joining_rows,
    length_for,
    stabbing_number,
)


def test_the_same_seed_is_the_same_workload() -> None:
    one, same, other = Table41(1_000, 10), Table41(1_000, 10), Table41(1_000, 10, seed=1)
    assert all(map(np.array_equal, one.partners(), same.partners()))
    assert all(map(np.array_equal, one.arrivals(50), same.arrivals(50)))
    assert np.array_equal(one.select_joins(50), same.select_joins(50))
    assert np.array_equal(one.bands(50), same.bands(50))
    assert not np.array_equal(one.partners().b, other.partners().b)
    assert not np.array_equal(one.arrivals(50).b, other.arrivals(50).b)
    assert not np.array_equal(one.bands(50), one.bands(50, name=1))


def test_columns_are_whole_numbers_distributed_as_the_table_says() -> None:
    tables = Table41()
    s, r = tables.partners(), tables.arrivals(2_000)
    for column in (*s, *r):
        assert np.array_equal(column, np.rint(column))
        assert 0 <= column.min() <= column.max() <= DOMAIN
    assert abs(s.b.mean() - 4_950) < 20  # rounded down to multiples of 100
    assert abs(s.b.std() - 1_000) < 20
    assert abs(s.c.mean() - 5_000) < 50
    for column in r:
        assert np.histogram(column, 10, (0, DOMAIN))[0].min() > 180


@pytest.mark.parametrize("joining", [100, 1_000, 10_000])
def test_a_row_meets_as_many_rows_as_asked_for(joining: int) -> None:
    tables = Table41(joining=joining)
    met = joining_rows(tables.partners(), tables.arrivals(2_000).b)
    assert abs(met.mean() / joining - 1) < 0.02
    assert met.max() > 2 * joining or joining == 10_000


def test_few_arrivals_are_like_many() -> None:
    tables = Table41()
    rows = tables.arrivals(2_000)
    met = joining_rows(tables.partners(), rows.b)
    assert abs(met[:32].mean() / met.mean() - 1) < 0.25
    assert abs(rows.a[:32].mean() / rows.a.mean() - 1) < 0.25


def test_select_joins_have_the_groups_and_the_selectivity_of_the_text() -> None:
    tables = Table41()
    queries = tables.select_joins(100_000)
    assert 25 <= stabbing_number(queries[:, 2], queries[:, 3]) <= 35
    a = tables.arrivals(64).a[:, None]
    assert abs(((queries[:, 0] <= a) & (a <= queries[:, 1])).mean() - 0.1) < 0.01


@pytest.mark.parametrize(("count", "low", "high"), [(50, 8, 12), (500_000, 54, 66)])
def test_bands_have_the_groups_of_the_text(count: int, low: int, high: int) -> None:
    bands = Table41().bands(count)
    assert low <= stabbing_number(bands[:, 2], bands[:, 3]) <= high
    assert (bands[:, 0] == -np.inf).all()
    assert (bands[:, 1] == np.inf).all()


def test_a_hundred_thousand_bands_in_sixty_groups() -> None:
    bands = Table41().bands(100_000, LENGTH_60)
    assert 54 <= stabbing_number(bands[:, 2], bands[:, 3]) <= 66


@pytest.mark.parametrize("groups", [30, 250, 5_000])
def test_lengths_are_found_for_a_number_of_groups(groups: int) -> None:
    queries = Table41().select_joins(100_000, c=length_for(groups, 100_000))
    assert abs(stabbing_number(queries[:, 2], queries[:, 3]) / groups - 1) < 0.1


@pytest.mark.parametrize("hot", [0.0, 0.3, 1.0])
def test_clustered_queries_have_the_hot_share_asked_for(hot: float) -> None:
    queries = Table41().clustered(20_000, hot=hot, groups=50, a=Normal(100, 10))
    points = (np.arange(50) + 0.5) * DOMAIN / 50
    at = np.searchsorted(points, queries[:, 2])
    stabbed = (at < 50) & (points[np.minimum(at, 49)] <= queries[:, 3])
    assert stabbed.mean() == hot
    assert (queries[:, 2] <= queries[:, 3]).all()
    groups = stabbing_number(queries[:, 2], queries[:, 3])
    assert groups == 50 if hot == 1 else groups > 500


@given(ends=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=7))
def test_the_stabbing_number_is_the_least_number_of_points(ends: list[tuple[int, int]]) -> None:
    intervals = [(low, low + length) for low, length in ends]

    def fewest(left: list[tuple[int, int]]) -> int:
        if not left:
            return 0
        points = {high for _, high in left}
        return 1 + min(fewest([one for one in left if not one[0] <= point <= one[1]]) for point in points)

    low, high = np.array(intervals, np.float64).reshape(-1, 2).T
    assert stabbing_number(low, high) == fewest(intervals)


def test_more_joining_rows_than_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="1 to 10 of 10 rows, not 11"):
        Table41(10, 11)
