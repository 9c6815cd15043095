"""Positions of updates: the knapsack against every choice there is, and against the paper's table."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.scheduling import knapsack
from hullcast.broker.scheduling.knapsack import UpdatePositions, packed, update_positions
from hullcast.sim.experiments.studies.scheduling.tradeoff.fronts import update_prioritizing

if TYPE_CHECKING:
    import numpy.typing as npt

UPDATES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.lists(st.booleans(), min_size=4, max_size=4)))
SMALL, MORE = UPDATES.filter(lambda each: len(each) <= 4), UPDATES
SHARES = st.integers(0, 8).map(lambda eighths: eighths / 8)


def classes(updates: list[tuple[int, int, list[bool]]]) -> UpdatePositions:
    """Updates by cost, profit, and which queries depend on them, the last query first."""
    places = [[1 + at for at, depends in enumerate(row) if depends] for _, _, row in updates]
    return update_positions(
        np.array([cost for cost, _, _ in updates], dtype=np.int64),
        np.array([profit for _, profit, _ in updates], dtype=np.int64),
        np.cumsum([0, *map(len, places)], dtype=np.int64),
        np.array([place for row in places for place in row], dtype=np.int64),
    )


def every_choice(updates: list[tuple[int, int, list[bool]]]) -> list[tuple[int, int]]:
    """Cost and profit of all of them, by the definition."""
    return [
        (
            sum(cost * place for (cost, _, _), place in zip(updates, places, strict=True)),
            sum(profit * sum(row[:place]) for (_, profit, row), place in zip(updates, places, strict=True)),
        )
        for places in product(range(5), repeat=len(updates))
    ]


def drawn(queries: int, updates: int, dependency: float, kind: str, seed: int = 7) -> tuple[UpdatePositions, int]:
    """The workloads of the paper and one with many ties, and what all updates first would cost."""
    random = np.random.default_rng(seed)
    if kind == "Gauss":
        costs, profits = random.normal(500, 1, updates).astype(int), random.normal(50, 1, updates).astype(int)
    elif kind == "Zipf":
        costs, profits = random.zipf(1.5, updates).clip(1, 100) * 5, random.zipf(1.5, updates).clip(1, 500)
    else:
        costs, profits = random.integers(1, 30, updates), random.integers(1, 5, updates)
    depends: npt.NDArray[np.bool_] = random.random((updates, queries)) < dependency
    places = np.nonzero(depends)[1].astype(np.int64) + 1
    return update_positions(costs, profits, np.r_[0, depends.sum(axis=1).cumsum()], places), int(costs.sum()) * queries


@given(SMALL, SHARES)
def test_it_finds_the_most_profit_and_of_that_the_least_cost(
    updates: list[tuple[int, int, list[bool]]], share: float
) -> None:
    slot = int(share * 4 * sum(cost for cost, _, _ in updates))
    found = packed(classes(updates), slot)
    profit, cost = max((profit, -cost) for cost, profit in every_choice(updates) if cost <= slot)
    assert (found.profit, found.cost) == (profit, -cost)
    assert found.exact
    told = [
        (cost * place, profit * sum(row[:place]))
        for (cost, profit, row), place in zip(updates, found.place.tolist(), strict=True)
    ]
    assert (sum(cost for cost, _ in told), sum(profit for _, profit in told)) == (found.cost, found.profit)


@pytest.mark.parametrize("dependency", [0.2, 0.6, 1.0])
def test_it_agrees_with_the_papers_table(dependency: float) -> None:
    for seed in range(100):
        positions, all_first = drawn(6 + seed % 7, 4 + seed % 11, dependency, "ties", seed)
        slot = (1 + seed % 9) * all_first // 12
        found = packed(positions, slot)
        _, table = update_prioritizing(positions, slot)
        assert (found.profit, found.cost) == (int(table[slot]), int(np.argmax(table == table[slot])))
        assert found.exact


def test_of_equal_profits_the_cheaper_is_taken_where_the_paper_keeps_the_first() -> None:
    positions = classes([(5, 10, [True, False, False, False]), (3, 10, [True, False, False, False])])
    found = packed(positions, 5)
    assert (found.place.tolist(), found.profit, found.cost) == ([0, 1], 10, 3)
    assert update_prioritizing(positions, 5)[0] == [1, 0]


def test_dominated_positions_are_no_items() -> None:
    positions = classes([(5, 10, [False, True, False, True]), (1, 0, [True, True, True, True])])
    assert positions.place.tolist() == [0, 2, 4, 0]
    assert positions.cost.tolist() == [0, 10, 20, 0]
    assert positions.profit.tolist() == [0, 10, 20, 0]


@given(MORE, SHARES, st.sampled_from([0, 3, 1 << 20]))
def test_what_less_effort_loses_is_within_what_it_says(
    updates: list[tuple[int, int, list[bool]]], share: float, effort: int
) -> None:
    slot = int(share * 4 * sum(cost for cost, _, _ in updates))
    positions = classes(updates)
    best, found = packed(positions, slot), packed(positions, slot, effort)
    assert found.cost <= slot
    assert found.profit <= best.profit <= found.profit + found.lost_profit
    if found.profit == best.profit:
        assert found.cost - found.lost_cost <= best.cost <= found.cost


@pytest.mark.parametrize("kind", ["Gauss", "Zipf"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_thousand_queries_and_updates_are_packed_exactly_with_little_work(kind: str, share: float) -> None:
    positions, all_first = drawn(1_000, 1_000, 0.1, kind)
    found = packed(positions, int(share * all_first))
    assert found.exact
    assert found.work < 1_000_000
    assert found.size_bytes < 20_000_000


def test_too_many_states_are_dropped_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    positions, all_first = drawn(200, 200, 0.5, "Gauss")
    best = packed(positions, all_first // 2)
    monkeypatch.setattr(knapsack, "FEW", 8)
    monkeypatch.setattr(knapsack, "STATES", 8)
    found = packed(positions, all_first // 2)
    assert best.exact
    assert best.states > 8
    assert found.states <= 8
    assert not found.exact
    assert best.profit <= found.profit + found.lost_profit


def test_numbers_near_the_end_of_64_bits_do_not_wrap() -> None:
    updates = [(4, 3, [True, True, False, True]), (3, 4, [False, True, True, True]), (2, 1, [True, True, True, False])]
    small, many = classes(updates), 1 << 40
    large = UpdatePositions(small.first, small.place, small.cost * many, small.profit * many)
    for slot in range(36):
        assert packed(large, slot * many).place.tolist() == packed(small, slot).place.tolist()


def test_a_slot_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the slot must be 0 or more"):
        packed(classes([]), -1)
