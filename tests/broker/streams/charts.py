"""Progress charts to draw from: a coarse grid, so that ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from hullcast.broker.streams.chart import Chart


def charts(join: bool, most: int = 4) -> st.SearchStrategy[Chart]:
    """Charts with whole times; without a join no operator makes more than it takes."""
    choices = [0.0, 0.25, 0.5, 0.75, 1.0, *([1.5, 2.0] if join else [])]
    operators = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(choices)), min_size=1, max_size=most)
    return operators.map(_chart)


def _chart(operators: list[tuple[int, float]]) -> Chart:
    times, sizes = [0.0], [1.0]
    for took, selectivity in operators:
        times.append(times[-1] + took)
        sizes.append(sizes[-1] * selectivity)
    return Chart(tuple(times), (*sizes[:-1], 0.0))
