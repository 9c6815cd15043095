"""The planner: estimates near the truth, the cheapest plan by the models, statistics of what was chosen."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.broker.joins.costs import DEFAULTS, HOTSPOT, JOIN_FIRST_E, JOIN_FIRST_S, PLANS, SELECT_FIRST, Facts
from hullcast.broker.joins.plan import LARGEST, Arrivals
from hullcast.broker.joins.planner import CALL_NS, Planner
from hullcast.network.wire.arrays import Floats
from tests.support.standing import tree_of

ROWS = 20_000


def equality(values: Floats, xs: Floats) -> Arrivals:
    return Arrivals(values, np.zeros(len(values)), xs)


def rectangles_of(lows: Floats, highs: Floats) -> Floats:
    """Rectangles of these x-ranges; y does not matter to the planner."""
    return np.stack((lows, highs, np.zeros(len(lows)), np.ones(len(lows))), axis=1)


def facts_of(ranges: int, **more: float) -> Facts:
    known: dict[str, object] = {"rows": ROWS, "ranges": ranges, "groups": 100, "pieces": 10_000, "cold": ranges // 50}
    return Facts(**(known | more))  # type: ignore[arg-type]  # names and numbers


@pytest.fixture(scope="module")
def mixed() -> tuple[Planner, Floats, Floats, Facts]:
    """A tree where value 0 has 5,000 rows and 15,000 values have one; ranges: 5,000 hold x = 50, one holds x = 500."""
    rng = np.random.default_rng(1)
    values = np.concatenate((np.zeros(5000), np.arange(1.0, 15_001)))
    tree = tree_of(values, rng.uniform(0, 100, ROWS)).memory
    ranges = rectangles_of(
        np.concatenate((rng.uniform(0, 40, 5000), [400])), np.concatenate((rng.uniform(60, 100, 5000), [600]))
    )
    planner = Planner(band=False)
    planner.add(ranges)
    return planner, tree, ranges, facts_of(len(ranges))


def test_clear_cases_get_the_obvious_plan(mixed: tuple[Planner, Floats, Floats, Facts]) -> None:
    planner, tree, _, facts = mixed
    arrivals = equality(np.array([7.0, 0, 0]), np.array([50.0, 500, 50]))
    assert planner.choose(tree, arrivals, facts).tolist() == [JOIN_FIRST_E, SELECT_FIRST, HOTSPOT]


def test_estimates_are_near_the_truth(mixed: tuple[Planner, Floats, Floats, Facts]) -> None:
    planner, tree, ranges, facts = mixed
    xs = np.linspace(0, 650, 100)
    arrivals = equality(np.tile([0.0, 7, 15_000, -3], 25), xs)
    planner.choose(tree, arrivals, facts)
    k_j, k_s = planner.estimates(arrivals, facts)
    assert np.allclose(k_j[0::4], 5000)
    assert (np.abs(k_j[1::4] - 1) < 1).all()
    assert (k_j[3::4] <= 2).all()
    true = ((ranges[:, :1] <= xs) & (xs <= ranges[:, 1:2])).sum(axis=0)
    assert np.mean(np.abs(k_s - true) / np.maximum(true, 1)) < 0.1


def test_each_row_gets_the_plan_that_the_models_say_is_cheapest(mixed: tuple[Planner, Floats, Floats, Facts]) -> None:
    planner, tree, _, facts = mixed
    rng = np.random.default_rng(2)
    arrivals = equality(rng.choice([0.0, 3, 9], 500), rng.uniform(0, 600, 500))
    chosen = planner.choose(tree, arrivals, facts)
    costs = DEFAULTS.costs(facts, *planner.estimates(arrivals, facts))
    assert np.allclose(costs[chosen, np.arange(500)], costs.min(axis=0))
    assert len(set(chosen.tolist())) > 1


def test_only_plans_that_there_are_get_chosen(mixed: tuple[Planner, Floats, Floats, Facts]) -> None:
    _, tree, ranges, facts = mixed
    other = Planner(band=False)
    other.add(ranges)
    arrivals = equality(np.array([7.0, 0, 0]), np.array([50.0, 500, 50]))
    assert set(other.choose(tree, arrivals, facts, (JOIN_FIRST_S,)).tolist()) == {JOIN_FIRST_S}


@pytest.mark.parametrize("whole", [True, False])
def test_for_a_band_the_joining_rows_are_those_between_the_lowest_and_the_highest_wanted_place(whole: bool) -> None:
    rng = np.random.default_rng(3)
    xs: Floats = rng.normal(5000, 1000, ROWS)
    xs = np.floor(xs) if whole else xs
    tree = tree_of(np.zeros(ROWS), xs).memory
    planner, facts = Planner(band=True), facts_of(10, y_low=-20.0, y_high=100.0)
    offsets = rng.uniform(3000, 7000, 200)
    arrivals = Arrivals(np.zeros(200), offsets, np.zeros(200))
    planner.choose(tree, arrivals, facts)
    k_j, _ = planner.estimates(arrivals, facts)
    true = ((offsets[:, None] - 20 <= xs) & (xs <= offsets[:, None] + 100)).sum(axis=1)
    assert np.mean(np.abs(k_j - true) / np.maximum(true, 1)) < 0.1
    endless = Facts(ROWS, 10)
    assert planner.estimates(arrivals, endless)[0].tolist() == [ROWS] * 200


def test_null_and_infinite_values_are_planned_for_like_any_other() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324])
    for band in (False, True):
        tree = tree_of(np.zeros(4) if band else odd[1:5], odd[1:5]).memory
        planner = Planner(band=band)
        planner.add(rectangles_of(odd[[2, 4]], odd[[1, 3]]))
        chosen = planner.choose(tree, Arrivals(odd, odd, odd), Facts(4, 2, y_low=-1, y_high=1))
        assert ((chosen >= 0) & (chosen < len(PLANS))).all()


def test_the_other_side_is_counted_again_when_enough_of_it_changed() -> None:
    planner = Planner(band=False)
    arrivals = equality(np.array([1.0]), np.array([0.0]))
    for rows, changed, expected in ((3000, 0, 3000.0), (3200, 200, 3000.0), (6000, 3000, 6000.0)):
        tree = tree_of(np.ones(rows), np.arange(float(rows))).memory
        facts = facts_of(10, rows=rows, changed=changed)
        planner.choose(tree, arrivals, facts)
        assert planner.estimates(arrivals, facts)[0] == expected


def test_ranges_that_come_and_go_move_the_choice() -> None:
    rng = np.random.default_rng(4)
    tree = tree_of(np.zeros(3000), rng.uniform(0, 100, 3000)).memory
    planner = Planner(band=False)
    arrivals = equality(np.zeros(1), np.array([5.0]))
    here, away = (rectangles_of(np.full(4000, low), np.full(4000, low + 10)) for low in (0.0, 100.0))
    planner.add(away)
    assert planner.choose(tree, arrivals, facts_of(4000)).tolist() == [SELECT_FIRST]
    planner.add(here)
    assert planner.choose(tree, arrivals, facts_of(8000)).tolist() == [HOTSPOT]
    planner.remove(here)
    assert planner.choose(tree, arrivals, facts_of(4000)).tolist() == [SELECT_FIRST]
    planner.check()


def test_where_no_plan_can_cost_much_more_a_single_row_gets_one_without_planning() -> None:
    rng = np.random.default_rng(5)
    tree = tree_of(np.arange(500.0), rng.uniform(0, 100, 500)).memory
    planner = Planner(band=False)
    planner.add(rectangles_of(np.arange(50.0), np.arange(50.0) + 1))
    facts = Facts(500, 50, 5, 50, 0)
    arrivals = equality(rng.integers(0, 500, 200).astype(np.float64), rng.uniform(0, 60, 200))
    for i in range(200):
        (plan,) = planner.choose(tree, arrivals.take(np.array([i])), facts)
        costs = DEFAULTS.costs(facts, *planner.estimates(arrivals.take(np.array([i])), facts))[:, 0]
        assert costs[plan] <= costs.min() + CALL_NS
    told = planner.describe()
    assert "joining rows" not in told  # nothing was estimated
    assert sum(told["chosen"].values()) == 200  # type: ignore[attr-defined]  # a dict


def test_it_says_how_often_each_plan_was_chosen_and_what_was_expected() -> None:
    planner = Planner(band=False)
    tree = tree_of(np.zeros(3000), np.arange(3000.0)).memory
    planner.add(rectangles_of(np.array([0.0]), np.array([10.0])))
    assert planner.describe()["chosen"] == dict.fromkeys(PLANS, 0)
    for _ in range(3):
        planner.choose(tree, equality(np.zeros(9000), np.full(9000, 5.0)), facts_of(1))
    told = planner.describe()
    assert told["chosen"] == dict.fromkeys(PLANS, 0) | {"SelectFirst": 27_000}
    assert told["chosen lately"] == dict.fromkeys(PLANS, 0.0) | {"SelectFirst": 1.0}
    assert (told["joining rows"], told["ranges that hold x"]) == (pytest.approx(3000), pytest.approx(1))


@pytest.mark.parametrize("ends", [(0.0, 0.0), (-5e-324, 5e-324), (1.5, 1.5), (LARGEST, LARGEST), (-LARGEST, LARGEST)])
def test_rows_of_a_band_that_lie_at_one_place_or_at_the_ends_of_all_there_is_are_estimated(
    ends: tuple[float, float],
) -> None:
    places = np.tile(ends, 500)
    planner, facts = Planner(band=True), facts_of(3)._replace(y_low=-1.0, y_high=1.0)
    planner.add(rectangles_of(np.zeros(3), np.ones(3)))
    arrivals = Arrivals(np.zeros(3), np.array([0.0, *ends]), np.full(3, 0.5))
    planner.choose(tree_of(np.zeros(1000), places).memory, arrivals, facts)
    k_j, _ = planner.estimates(arrivals, facts)
    assert ((k_j >= 0) & (k_j <= 1000)).all()
