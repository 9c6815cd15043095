"""Every plan finds the partners, and the ranges, that the definition names; each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.joins.join_first import JoinFirst, JoinFirstEach
from hullcast.broker.joins.naive import Naive
from hullcast.broker.joins.plan import Arrivals, Plan, Spans, walk
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.network.wire.arrays import Floats
from tests.support.standing import affected_pairs, joining, tree_of, wanted_pairs

PLANS: dict[str, Callable[[], Plan]] = {
    "naive": Naive,
    "join first, each row": JoinFirst,
    "join first, each range": JoinFirstEach,
    "select first": SelectFirst,
    "hotspots": lambda: Hotspot(0.3, 0.5),
    "all groups": lambda: Hotspot(0.0, 0.5),
}

bounds = st.one_of(st.integers(-4, 4).map(float), st.sampled_from([-inf, inf, -0.0, 0.5]))
intervals = st.tuples(bounds, bounds).map(sorted)
rectangles = st.lists(st.tuples(intervals, intervals).map(lambda pair: [*pair[0], *pair[1]]), max_size=12)
values = st.one_of(st.integers(-5, 5).map(float), st.sampled_from([-0.0, 0.5, inf, -inf]))
#: Places at which v + low and v - low round: plain sums would miss rows, or take too many.
odd = st.sampled_from([0.1, 0.3, 1e16, -1e16, 1e308, -1e308, 0.2 + 0.1])
groups = st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0])
rows = st.lists(st.tuples(groups, st.one_of(values, odd)), max_size=30)
arriving = st.lists(
    st.tuples(
        st.one_of(groups, groups, st.sampled_from([0.0, nan])),
        st.one_of(st.just(0.0), st.just(0.0), values, odd, st.sampled_from([0.0, nan])),
        st.one_of(values, values, st.sampled_from([0.0, nan])),
    ),
    max_size=6,
)


def table(drawn: Sequence[tuple[float, ...]], width: int) -> Floats:
    """Columns of drawn rows."""
    return np.array(drawn, np.float64).reshape(len(drawn), width).T.copy()


def boxes(drawn: list[list[float]]) -> Floats:
    """Rectangles, (n, 4)."""
    return np.array(drawn, np.float64).reshape(len(drawn), 4)


def walked(tree: Floats, arrivals: Arrivals, spans: Spans) -> list[tuple[int, int]]:
    """Pairs in the spans, all of which must be sure; and what holds of spans is tested."""
    assert spans.sure.all()
    assert (spans.low <= spans.high).all()
    assert (np.diff(spans.of) >= 0).all()
    for i in range(1, len(spans.of)):
        assert spans.of[i - 1] < spans.of[i] or spans.high[i - 1] < spans.low[i], "disjoint, ascending"
    of, slots, _, complete = walk(tree, arrivals.groups, arrivals.offsets, *spans, 1 << 40)
    assert complete
    for i in range(len(spans.of)):
        only = slice(i, i + 1)
        one = Spans(spans.of[only], spans.low[only], spans.high[only], spans.sure[only])
        assert len(walk(tree, arrivals.groups, arrivals.offsets, *one, 1 << 40)[0]), "a row in every span"
    pairs = list(zip(of.tolist(), slots.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "each partner once"
    return sorted(pairs)


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS.keys())
@settings(max_examples=300)
@given(there=rows, wanted=rectangles, gone=rectangles, news=arriving)
def test_a_plan_finds_what_the_definition_names(
    make: Callable[[], Plan],
    there: list[tuple[float, float]],
    wanted: list[list[float]],
    gone: list[list[float]],
    news: list[tuple[float, float, float]],
) -> None:
    row_groups, row_xs = table(there, 2)
    tree = tree_of(row_groups, row_xs).memory
    arrivals = Arrivals(*table(news, 3))
    plan = make()
    every = boxes(gone + wanted)
    plan.add(np.arange(len(every)), every)
    plan.check()
    plan.remove(np.arange(len(gone)))
    plan.check()
    ids = np.arange(len(gone), len(every))
    found = joining(row_groups, row_xs, arrivals, boxes(wanted))
    assert walked(tree, arrivals, plan.spans(tree, arrivals)) == wanted_pairs(found)
    of, hit = plan.affected(tree, arrivals)
    assert (np.diff(of) >= 0).all()
    assert sorted(zip(of.tolist(), hit.tolist(), strict=True)) == affected_pairs(found, ids)


def test_a_walk_gives_nothing_when_there_are_more_than_allowed() -> None:
    tree = tree_of(np.zeros(100), np.arange(100.0)).memory
    arrivals = Arrivals(np.zeros(1), np.zeros(1), np.zeros(1))
    plan = Naive()
    plan.add(np.arange(1), np.array([[-inf, inf, 10.0, 19.0]]))
    spans = plan.spans(tree, arrivals)
    of, slots, _, complete = walk(tree, arrivals.groups, arrivals.offsets, *spans, 10)
    assert complete
    assert slots.tolist() == list(range(10, 20))
    of, slots, _, complete = walk(tree, arrivals.groups, arrivals.offsets, *spans, 9)
    assert not complete
    assert len(of) == len(slots) == 0


def test_rows_of_one_place_just_outside_a_band_are_skipped_at_once() -> None:
    """A thousand rows that rounding puts in the hair before a band: none is wanted, and the next ones are found."""
    offset, low = 0.1, 0.2
    outside = np.nextafter(low + offset, 0.0)
    while outside - offset >= low:
        outside = np.nextafter(outside, 0.0)
    xs = np.array([outside] * 1000 + [0.31])
    tree = tree_of(np.zeros(len(xs)), xs).memory
    arrivals = Arrivals(np.zeros(1), np.array([offset]), np.zeros(1))
    plan = Naive()
    plan.add(np.arange(1), np.array([[-inf, inf, low, 1.0]]))
    assert walked(tree, arrivals, plan.spans(tree, arrivals)) == [(0, 1000)]
