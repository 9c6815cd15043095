"""Every plan finds the partners that the definition names; each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.joins import envelope
from hullcast.broker.joins.envelope import LOOK_COST, TEST_COST
from hullcast.broker.joins.join_first import JoinFirst
from hullcast.broker.joins.naive import NaivePlan
from hullcast.broker.joins.plan import Arrivals, JoinPlan, Spans, walk
from hullcast.broker.joins.select_first import SelectFirst
from hullcast.broker.joins.ssi import Hotspot
from hullcast.network.wire.arrays import Booleans, Floats
from tests.support.standing import Pairs, joining, tree_of, wanted_pairs


class Either(JoinFirst):
    """By rows or by ranges, whichever is less work."""

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        return self.either(tree, arrivals)


PLANS: dict[str, Callable[[], JoinPlan]] = {
    "naive": NaivePlan,
    "join first, each row": JoinFirst,
    "the less work": Either,
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


def pairs_in(tree: Floats, arrivals: Arrivals, spans: Spans) -> tuple[Pairs, Booleans]:
    """(arrival, slot) of the rows in spans, and whether they are sure."""
    of, slots, sure, complete = walk(tree, arrivals.groups, arrivals.offsets, *spans, 1 << 40)
    assert complete
    return list(zip(of.tolist(), slots.tolist(), strict=True)), sure


def walked(tree: Floats, arrivals: Arrivals, spans: Spans) -> Pairs:
    """Pairs in the spans, all of which must be sure; and what holds of spans is tested."""
    assert spans.sure.all()
    assert (spans.low <= spans.high).all()
    assert (np.diff(spans.of) >= 0).all()
    for i in range(1, len(spans.of)):
        assert spans.of[i - 1] < spans.of[i] or spans.high[i - 1] < spans.low[i], "disjoint, ascending"
    pairs, _ = pairs_in(tree, arrivals, spans)
    for i in range(len(spans.of)):
        only = slice(i, i + 1)
        one = Spans(spans.of[only], spans.low[only], spans.high[only], spans.sure[only])
        assert pairs_in(tree, arrivals, one)[0], "a row in every span"
    assert len(pairs) == len(set(pairs)), "each partner once"
    return sorted(pairs)


@settings(max_examples=100)
@given(there=rows, wanted=rectangles, gone=rectangles, news=arriving)
def test_every_plan_finds_what_the_definition_names(
    there: list[tuple[float, float]],
    wanted: list[list[float]],
    gone: list[list[float]],
    news: list[tuple[float, float, float]],
) -> None:
    row_groups, row_xs = table(there, 2)
    tree = tree_of(row_groups, row_xs).memory
    arrivals = Arrivals(*table(news, 3))
    every = boxes(gone + wanted)
    found = joining(row_groups, row_xs, arrivals, boxes(wanted))
    for name, make in PLANS.items():
        plan = make()
        plan.add(np.arange(len(every)), every)
        plan.check()
        plan.remove(np.arange(len(gone)))
        plan.check()
        assert walked(tree, arrivals, plan.spans(tree, arrivals)) == wanted_pairs(found), name


def test_a_walk_gives_nothing_when_there_are_more_than_allowed() -> None:
    tree = tree_of(np.zeros(100), np.arange(100.0)).memory
    arrivals = Arrivals(np.zeros(1), np.zeros(1), np.zeros(1))
    plan = NaivePlan()
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
    plan = NaivePlan()
    plan.add(np.arange(1), np.array([[-inf, inf, low, 1.0]]))
    assert walked(tree, arrivals, plan.spans(tree, arrivals)) == [(0, 1000)]


def grid_rectangles(rng: np.random.Generator, n: int) -> Floats:
    """Rectangles on a grid of whole numbers, some of them without a bound."""
    ends = rng.integers(-20, 21, (n, 2, 2)).astype(np.float64)
    ends.sort(axis=2)
    ends[:, :, 1] = np.minimum(ends[:, :, 1], ends[:, :, 0] + rng.integers(0, 9, (n, 2)))
    ends[rng.random((n, 2)) < 0.03, 0] = -inf
    ends[rng.random((n, 2)) < 0.03, 1] = inf
    return ends.reshape(n, 4)


def follow_changes(plan: JoinPlan, changes: int, seed: int) -> int:
    """Random batches of ranges come and go; after each, partners of some arrivals are compared with NAIVE's.

    Gives how many pairs were unsure.
    """
    rng = np.random.default_rng(seed)
    naive, live, done, unsure = NaivePlan(), np.zeros(400, np.bool_), 0, 0
    tree = tree_of(np.floor(rng.uniform(0, 2, 60)), rng.integers(-22, 23, 60) / 2).memory
    while done < changes:
        ids = np.flatnonzero(rng.random(len(live)) < rng.choice([0.003, 0.03, 0.2, 0.9]))
        gone, new = ids[live[ids]], ids[~live[ids]]
        if rng.random() < 0.2:  # the same ids again, for other ranges
            new = np.concatenate((new, gone[: len(gone) // 2]))
        rectangles = grid_rectangles(rng, len(new))
        for each in (plan, naive):
            each.remove(gone)
            each.add(new, rectangles)
        live[gone], live[new] = False, True
        done += len(gone) + len(new)
        n = int(rng.integers(1, 4))
        offsets = np.where(rng.random(n) < 0.5, 0.0, rng.integers(-3, 4, n) / 2)
        arrivals = Arrivals(np.floor(rng.uniform(0, 2, n)), offsets, rng.integers(-20, 21, n) / 2)
        found, sure = pairs_in(tree, arrivals, plan.spans(tree, arrivals))
        wanted = set(pairs_in(tree, arrivals, naive.spans(tree, arrivals))[0])
        assert len(found) == len(set(found)), "each partner once"
        assert wanted <= set(found), "none is missed"
        assert {pair for pair, is_sure in zip(found, sure.tolist(), strict=True) if is_sure} <= wanted
        tests = len(sure) - int(sure.sum())
        unsure += tests
        if isinstance(plan, Hotspot):
            plan.charge(tests)
    plan.check()
    return unsure


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS.keys())
def test_plans_agree_with_naive_over_100_000_changes(make: Callable[[], JoinPlan]) -> None:
    plan = make()
    unsure = follow_changes(plan, 100_000, 1)
    assert unsure == 0 or isinstance(plan, Hotspot)


def test_a_group_that_shrinks_from_outside_is_not_computed_again_each_time() -> None:
    """Nested ranges, the outermost leaves first: the envelope rests on each in turn, and a row arrives after each."""
    n, steps = 20_000, 300
    edge = np.arange(n, 0, -1.0)
    plan = Hotspot(0.0, 1.0)
    plan.add(np.arange(n), np.column_stack((-edge, edge, -edge, edge)))
    xs = np.arange(-2 * n, 2 * n, 100.0)
    tree = tree_of(np.zeros(len(xs)), xs).memory
    arrivals = Arrivals(np.zeros(1), np.zeros(1), np.zeros(1))
    tests = 0
    for step in range(steps):
        plan.remove(np.array([step]))
        _, slots, sure, _ = walk(tree, arrivals.groups, arrivals.offsets, *plan.spans(tree, arrivals), 1 << 40)
        wanted = set(np.flatnonzero(np.abs(xs) <= edge[step + 1]).tolist())
        assert set(slots.tolist()) >= wanted
        assert set(slots[sure].tolist()) <= wanted
        tests += len(sure) - int(sure.sum())
        plan.charge(len(sure) - int(sure.sum()))
    assert tests > 0
    assert plan.envelopes.recomputed > 0
    assert plan.envelopes.recomputed <= LOOK_COST * 2 * steps + TEST_COST * tests, "no dearer than being unsure"


def test_ranges_that_end_where_others_do_may_leave_and_all_stays_sure() -> None:
    """One-sided ranges all end at infinity: one that leaves is not what the envelope rests on alone."""
    n = 5_000
    plan = Hotspot(0.0, 1.0)
    xs = np.arange(float(n))
    plan.add(np.arange(n), np.column_stack((xs, xs + 1000, np.full(n, -inf), np.full(n, inf))))
    tree = tree_of(np.zeros(10), np.arange(10.0)).memory
    arrivals = Arrivals(np.zeros(1), np.zeros(1), np.array([2500.0]))
    for i in range(1800, 2100):
        plan.remove(np.array([i]))
        assert plan.spans(tree, arrivals).sure.all()
    assert plan.envelopes.recomputed == 0
    plan.envelopes.check()


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_envelopes_that_are_never_computed_again_miss_nothing_and_say_where_they_are_unsure(
    alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envelope, "LOOK_COST", 0)
    monkeypatch.setattr(envelope, "TEST_COST", 0)
    plan = Hotspot(alpha, 1.0)
    assert follow_changes(plan, 20_000, 3) > 0
    assert plan.envelopes.recomputed == 0
